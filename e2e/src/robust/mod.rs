//! Runs a store under traffic and faults, and records what its clients see.
//!
//! ```text
//!   traffic --> Client --\                      /-- a process: killed, halted
//!   watches --> Stream ---+-- etcd v3 wire -----+
//!                  |                            \-- in this process, over a disk that fails
//!                  v
//!                Tape ----> History ----> crate::history::check
//! ```
//!
//! Clients speak to the real listener with a generated client that shares no encoding with it, and
//! find the server by a URL that changes when it is started again. Draws come from a seed; times do
//! not, so a seed gives the same requests in another interleaving.

pub mod client;
pub mod crash;
pub mod dice;
pub mod run;
pub mod server;
pub mod tape;
pub mod traffic;
pub mod watcher;
mod wire;
