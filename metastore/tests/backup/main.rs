//! Snapshots: out of a store and back, damaged, and made by others.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod common;
mod damage;
mod round_trip;
mod scheduled;
