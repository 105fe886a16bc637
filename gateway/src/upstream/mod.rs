//! Sets of equal kube-apiservers and the connections to them.
//!
//! A [`Cluster`] is the handle: it picks an endpoint for each request by two random choices,
//! keeps pooled HTTP/2 connections to each, opens HTTP/1.1 ones for tunnels, probes health on
//! connections of their own, and takes endpoints out that fail. Specs are plain values; applying
//! a new one keeps the live state of every endpoint that stays. It knows nothing of users, routes
//! or retries: those are the forwarder's.

mod budget;
mod busy;
mod call;
mod cluster;
mod connect;
mod converge;
mod credentials;
mod discover;
mod endpoint;
mod estimate;
mod gate;
mod group;
mod health;
mod http2;
mod io;
mod kept;
mod pace;
mod pick;
mod pool;
mod received;
mod seats;
mod send;
mod spec;
mod upload;
mod view;
mod wish;

pub use call::{CallError, CallOptions};
pub use cluster::{Cluster, ClusterCounters};
pub use connect::ConnectError;
pub use endpoint::{EndpointView, GateView};
pub use health::ProbeState;
pub use spec::{
    BreakerSpec, ClusterSpec, CredentialsSpec, DiscoverySpec, EjectionSpec, EndpointSpec,
    HealthSpec, IdentityMode, SubsetMembers, SubsetSpec, TimeoutSpec, UpstreamError,
    UpstreamTlsSpec,
};

pub(crate) use connect::Http1;
pub(crate) use endpoint::{Endpoint, LoadClass, Ticket};
pub(crate) use estimate::Estimates;
pub(crate) use gate::Outcome;
pub(crate) use http2::Ask;
pub(crate) use kept::Kept;
pub(crate) use pick::Tried;
pub(crate) use pool::Lease;
pub(crate) use received::{ReceiveError, Received};
pub(crate) use seats::Seat;
pub(crate) use send::{SendBody, SendFailure};
pub(crate) use view::View;
pub(crate) use wish::Wish;
