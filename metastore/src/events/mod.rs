//! What changed, in revision order, for those who watch.

use bytes::Bytes;

use crate::cold::Kept;
use crate::{KeyRange, Record, Revision};

mod catch_up;
pub(crate) mod family;
pub(crate) mod log;
pub(crate) mod order;
mod packed;
mod watcher;

pub use watcher::{Bell, Watcher};

/// One change of one key.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it became, or that it went.
    pub change: Change,
    /// What it was before, when known and asked for.
    pub previous: Option<Record>,
}

/// A change as it was made: what was there before may have left the memory.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) change: Change,
    pub(crate) previous: Option<Kept>,
}

/// What a key became.
#[derive(Clone, Debug)]
pub enum Change {
    /// It was put; [`Record::is_create`] tells whether a life began.
    Put(Record),
    /// It was deleted at this revision.
    Delete {
        /// The key.
        key: Bytes,
        /// The delete's own revision.
        revision: Revision,
    },
}

impl Change {
    /// The key that changed.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match self {
            Change::Put(record) => record.key(),
            Change::Delete { key, .. } => key,
        }
    }

    /// The revision of the change.
    #[must_use]
    pub fn revision(&self) -> Revision {
        match self {
            Change::Put(record) => record.mod_revision(),
            Change::Delete { revision, .. } => *revision,
        }
    }
}

/// What to watch.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The keys.
    pub range: KeyRange,
    /// The first revision wanted; `None` is the next one to come. It may lie in the future.
    pub start: Option<Revision>,
    /// Whether events carry what was there before. Events at or below the floor that held when the
    /// watch began come without it, as from etcd.
    pub want_previous: bool,
}

/// What a watcher is handed: whole revisions, never a part of one.
#[derive(Clone, Debug)]
pub struct EventBatch {
    /// Events of one or more whole revisions, in order; may be empty when none matched.
    pub events: Vec<Event>,
    /// Every event of the watch up to here is in this batch or one before it.
    pub through: Revision,
}
