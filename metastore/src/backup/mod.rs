//! Snapshots: the whole store at one revision as a file, out of a running server and back.
//!
//! The file is a database of etcd's own (bbolt, etcd's buckets and rows), followed by its SHA-256 as
//! `etcdctl snapshot save` wants it: etcd's tools read and restore ours, and ours read and restore
//! etcd's. What must be exact is exact both ways: keys, values, revisions, versions, leases, what can
//! be read and watched of the past, and the order of changes within a revision.
//!
//! ```text
//! State, order of changes -> rows -> bolt::Image -> Stream            file -> Contents -> Import
//! ```
//!
//! A snapshot is of one visible state, which is a value: writes and compactions go on beside it and
//! are not seen. It costs memory by the number of versions, not by their bytes.
//!
//! It does not know where a file is kept or how it travels; members, users and raft's own state,
//! which a store does not have, are left out and passed over.

mod bolt;
mod contents;
mod file;
mod layout;
mod restore;
mod rows;
pub mod schedule;
mod take;

pub use contents::{Contents, HashCheck, Summary};
pub use file::PartFile;
pub use restore::{Bump, Restored};
pub use schedule::Schedule;
pub use take::{Pieces, Snapshot};
