//! A revision-ordered, multi-version store over one durable log.
//!
//! It knows bytes, keys, revisions and time. It knows nothing of Kubernetes objects and reads no
//! configuration file. Only [`etcd`], the store's own wire, may name an HTTP or gRPC library.
//!
//! # Guarantees
//!
//! Of writes: *dense* (each effective transaction takes the next revision, failures and reads take
//! none), *durable before visible* (no answer, read or event shows a write that a crash could take
//! back), *own revision* (an answer carries the revision of that write, not of its batch).
//!
//! Of watches: *ordered*, *unique*, *atomic per revision*, *reliable*, *resumable*,
//! *bookmarkable* (a progress mark at R means every event up to R was delivered before it),
//! *previous value right*, *create flag right*. `DESIGN.md` says of each what holds it and which
//! test tells, and how batches and checkpoints are laid out.

pub mod backup;
mod codec;
mod cold;
pub mod compactor;
pub mod digest;
pub mod engine;
pub mod error;
pub mod etcd;
pub mod events;
pub mod faults;
pub mod follow;
pub mod import;
mod index;
pub mod key;
pub mod lease;
pub mod read;
pub mod record;
mod recovery;
pub mod revision;
mod sequencer;
mod sorted;
mod state;
pub mod stats;
pub mod store;
pub mod txn;

pub use error::{Error, ErrorKind};
pub use events::Watcher;
pub use import::Import;
pub use key::KeyRange;
pub use lease::LeaseView;
pub use record::{LeaseId, Record};
pub use revision::Revision;
pub use stats::{StoreSize, StoreStats};
pub use store::{Store, StoreOptions};
