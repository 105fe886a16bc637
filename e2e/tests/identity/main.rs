//! Callers who are known by something else than a client certificate of the cluster, at the real
//! binary: tokens of an issuer that is found by discovery, and front proxies that speak for others.
//! What the apiserver behind is told of them is what a scripted one has seen.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod issuer;
mod oidc;
mod proxies;
mod stage;
