//! The life of the process as its clients see it: how it ends, and what they notice of that.
//!
//! The real binary in front of a scripted kube-apiserver, which holds answers back as a case needs.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod addresses;
mod ending;
mod handover;
mod reloads;
mod restart;
mod upstream;
