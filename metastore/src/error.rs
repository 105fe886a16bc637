//! What the store refuses, and what the caller should do about it.

use crate::Revision;

/// What a caller should do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request is wrong: mend it, do not repeat it.
    Invalid,
    /// The history asked for is gone or not there yet: read the current state instead.
    OutOfRange,
    /// The thing named does not exist (a lease).
    NotFound,
    /// The thing named exists already (a lease).
    Exists,
    /// Too much at once, or no room: wait, then repeat.
    Exhausted,
    /// Nobody knows whether the write happened: read before repeating.
    Uncertain,
    /// The store takes no more writes (failed sync, deposed, closed): go elsewhere or restart it.
    Unavailable,
    /// What is on disk is damaged: stop and restore.
    Corrupt,
}

/// A refusal of the store; texts of the wire are made in [`crate::etcd`] alone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The revision asked for lies below the compacted floor.
    #[error("revision is compacted requested={requested} compacted={compacted}")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The compacted floor, itself still readable.
        compacted: Revision,
    },
    /// The revision asked for is not reached yet.
    #[error("revision is in the future requested={requested} current={current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The newest visible revision.
        current: Revision,
    },
    /// A key is needed and was empty.
    #[error("key is not provided")]
    EmptyKey,
    /// A transaction put one key twice, or put into a range it deletes.
    #[error("duplicate key in transaction")]
    DuplicateKey,
    /// A transaction has too many operations.
    #[error("too many operations in transaction count={count} limit={limit}")]
    TooManyOps {
        /// How many it has.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
    /// A request is larger than the store takes.
    #[error("request is too large bytes={bytes} limit={limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The greatest size taken.
        limit: usize,
    },
    /// The lease named does not exist.
    #[error("lease not found")]
    LeaseNotFound,
    /// The lease named exists already.
    #[error("lease already exists")]
    LeaseExists,
    /// The time to live is beyond what a lease may have.
    #[error("lease time to live is too large")]
    LeaseTtlTooLarge,
    /// `ignore_value` or `ignore_lease` on a key that does not exist.
    #[error("key not found")]
    KeyNotFound,
    /// The disk or the quota is full; reads, deletes and compaction go on.
    #[error(
        "no space left in the store: delete what is not needed and compact, or give it a larger disk or quota"
    )]
    NoSpace,
    /// The queue of writes is full.
    #[error("too many requests are waiting")]
    Overloaded,
    /// The write may or may not be durable.
    #[error("outcome of the write is unknown: {reason}")]
    Uncertain {
        /// What happened.
        reason: String,
    },
    /// The store takes no more writes.
    #[error("store is stopped: {reason}")]
    Stopped {
        /// What happened.
        reason: String,
    },
    /// What is on disk cannot be read or trusted.
    #[error("stored data is damaged: {reason}")]
    Corrupt {
        /// Where, what, and what to do.
        reason: String,
    },
    /// What was to be imported is not a store's content, or the place for it is taken.
    #[error("cannot import: {reason}")]
    Import {
        /// What is wrong, where, and what to do.
        reason: String,
    },
    /// The operating system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was being done, with its path.
        action: String,
        /// The refusal.
        source: std::io::Error,
    },
}

impl Error {
    /// What the caller should do now.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Compacted { .. } | Error::Future { .. } => ErrorKind::OutOfRange,
            Error::EmptyKey
            | Error::DuplicateKey
            | Error::TooManyOps { .. }
            | Error::TooLarge { .. }
            | Error::LeaseTtlTooLarge
            | Error::KeyNotFound
            | Error::Import { .. } => ErrorKind::Invalid,
            Error::LeaseNotFound => ErrorKind::NotFound,
            Error::LeaseExists => ErrorKind::Exists,
            Error::NoSpace | Error::Overloaded => ErrorKind::Exhausted,
            Error::Uncertain { .. } => ErrorKind::Uncertain,
            Error::Stopped { .. } | Error::Io { .. } => ErrorKind::Unavailable,
            Error::Corrupt { .. } => ErrorKind::Corrupt,
        }
    }
}
