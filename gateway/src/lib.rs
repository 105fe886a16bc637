//! The gateway: everything that knows Kubernetes or speaks HTTP to it.
//!
//! A request meets the modules in this order: [`listener`] accepts and terminates TLS, [`request`]
//! reads what is asked, [`authn`] says by whom, [`flow`] classifies, breaks and limits,
//! [`forward`] or [`api`] answers, [`audit`] writes it down. `bootstrap` puts them together,
//! and `control` publishes what operators write.

pub mod admin;
pub mod api;
pub mod audit;
pub mod authn;
pub mod body;
pub mod bootstrap;
pub mod cli;
pub mod clock;
pub mod context;
pub mod control;
pub mod drain;
pub mod flow;
pub mod forward;
pub mod forwarded;
mod http2;
pub mod identity;
pub mod listener;
pub mod material;
pub mod migrate;
pub mod networks;
pub mod pipeline;
pub mod profile;
pub mod request;
pub mod snapshot;
mod socket;
pub mod status;
pub mod telemetry;
pub mod upstream;
