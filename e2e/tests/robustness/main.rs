//! The store under faults, judged by the history checker.
//!
//! Each test is one scenario. The gate runs each once, with a seed of its own, for some seconds in
//! all; `make robustness SEED= SECONDS=` runs each again and again with seeds from SEED on, and
//! keeps the history of a run that breaks a guarantee.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod disk;
mod injected;
mod process;
mod rounds;
mod steps;
