//! Moving a store from and to a live etcd, or another Sluice.
//!
//! ```text
//! etcd -> data directory   exact:  scan at one revision -> import -> follow -> compare   (exact)
//! any  -> live etcd        by key: pad the revision -> leases -> make equal -> compare   (copy)
//! ```
//!
//! Into a data directory everything keeps its revisions, versions and leases, so that nobody who
//! knew a revision of the source is told a lower one. Into a live etcd there is only its API: keys
//! and values are the same, revisions are higher than any of the source's.
//!
//! Both can be killed at any moment and begun again: the first keeps its place in a folder beside
//! the data directory (`work`), the second looks at what is there and writes what is missing.
//! Memory is bounded by pages (`walk`), whatever the size of the store.
//!
//! It knows the wire of etcd and the handle of a store; nothing of Kubernetes, and no configuration
//! file.

mod access;
mod compare;
mod copy;
mod error;
mod exact;
mod group;
mod lease;
mod pad;
mod remote;
mod report;
mod side;
mod snapshot;
mod spool;
mod tail;
mod target;
mod walk;
mod work;

pub use access::{Access, TlsFiles};
pub use compare::Equal;
pub use copy::{IntoLive, Origin};
pub use error::MigrateError;
pub use exact::{Follow, IntoDirectory};
pub use report::Report;
pub use snapshot::fetch_snapshot;

/// What was done, for whoever asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The source's revision that was moved.
    pub source_revision: i64,
    /// The revision the other side stands at now.
    pub revision: i64,
    /// What both sides hold; `None` when they were not compared.
    pub compared: Option<Equal>,
}
