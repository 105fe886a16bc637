//! The etcd v3 wire: the only place in this crate that names an HTTP or gRPC library.
//!
//! It serves what kube-apiserver, etcdctl and etcd's own tools ask of an etcd member, with etcd's
//! codes and texts, over a [`Store`](crate::store::Store). It adds no state of its own but cursors
//! of watches and counters: requests become values of the store ([`crate::txn`], [`crate::read`]),
//! answers become messages built on the bytes each record was stored as.
//!
//! Bounds: messages of 2 MiB in, requests of 1.5 MiB, connections, watches a stream, bytes buffered
//! for a client that does not read; each constant says why.
//!
//! It is not a cluster: there is one member, its own leader, and no user but by certificate.

mod access;
mod admission;
mod alarms;
mod answer;
mod auth;
mod calls;
pub mod client;
mod cluster;
mod codec;
mod connection;
mod convert;
mod counters;
mod errors;
mod exposition;
mod gate;
mod hash;
mod health;
mod http;
mod kv;
mod lease;
mod listener;
mod maintenance;
mod meter;
mod methods;
mod metrics;
mod options;
mod probes;
mod process;
mod proto;
mod range_stream;
mod routes;
mod shape;
mod shared;
mod snapshot;
mod tls;
mod watch;
mod wire;

pub use access::{AccessEvent, AccessLog, BreakGlass, EtcdAccess};
pub use listener::Listener;
pub use options::{EtcdOptions, EtcdSocket, EtcdTls, ListenError, TlsVersions};
pub use shared::VERSION as API_VERSION;
