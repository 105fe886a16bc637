//! The store by its handle, over the memory engine.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod acceptance;
mod common;
mod late;
mod model;
mod outcomes;
mod quota;
mod retention;
mod space;
mod watch_guarantees;
