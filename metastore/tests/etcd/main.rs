//! The etcd listener over its wire, through a plain generated client: what kube-apiserver and
//! etcd's tools rely on, case by case, with the texts they compare.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod access;
mod calls;
mod fixture;
mod hostile;
mod http;
mod kv;
mod lease;
mod operators;
mod paging;
mod pki;
mod progress;
mod snapshot;
mod tls;
mod txn;
mod watch;
