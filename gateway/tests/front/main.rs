//! The front data path end to end: real sockets, TLS and HTTP on both sides, and an apiserver that
//! can be told to misbehave.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod fake;
mod rig;

mod balance;
mod doubts;
mod faults;
mod floods;
mod frames;
mod headers;
mod identity;
mod kubegateway;
mod listening;
mod pipeline;
mod secure;
mod smuggling;
mod threats;
mod tunnels;
mod watches;
