//! What a change in the store means to one who watches a selection of objects.
//!
//! | matched before | matches now | told |
//! | --- | --- | --- |
//! | no | yes | added, as it is now |
//! | yes | yes | modified, as it is now |
//! | yes | no | deleted, as it was before, at the change's revision |
//! | yes | gone | deleted, as it last was, at the deletion's revision |

use bytes::Bytes;
use sluice_metastore::Revision;
use sluice_metastore::events::{Change, Event};

use crate::api::keys;
use crate::api::resource::ResourceKind;
use crate::api::selectors::Selectors;

/// What a watcher is told of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// It came into the selection.
    Added,
    /// It changed.
    Modified,
    /// It left the selection, or is gone.
    Deleted,
}

impl Told {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Told::Added => "ADDED",
            Told::Modified => "MODIFIED",
            Told::Deleted => "DELETED",
        }
    }
}

/// One thing to tell a watcher.
#[derive(Clone, Debug)]
pub struct Telling {
    /// What.
    pub told: Told,
    /// The stored bytes of the object shown.
    pub value: Bytes,
    /// The version it is shown at.
    pub revision: Revision,
    /// Its key.
    pub key: Bytes,
}

/// The state before a change is needed to judge it and is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLost;

/// What an event means to those who see everything.
///
/// # Errors
/// [`HistoryLost`] for a deletion whose object is not known.
pub fn whole(event: &Event) -> Result<Telling, HistoryLost> {
    match &event.change {
        Change::Put(record) => Ok(Telling {
            told: if record.is_create() {
                Told::Added
            } else {
                Told::Modified
            },
            value: record.value_bytes(),
            revision: record.mod_revision(),
            key: record.key_bytes(),
        }),
        Change::Delete { key, revision } => {
            let last = event.previous.as_ref().ok_or(HistoryLost)?;
            Ok(Telling {
                told: Told::Deleted,
                value: last.value_bytes(),
                revision: *revision,
                key: key.clone(),
            })
        }
    }
}

/// What an event means to those who see a selection; nothing if it was and is outside.
///
/// # Errors
/// [`HistoryLost`] when the state before the change is needed and not known.
pub fn selected(
    kind: &ResourceKind,
    prefix: &str,
    selectors: &Selectors,
    event: &Event,
) -> Result<Option<Telling>, HistoryLost> {
    let mut telling = whole(event)?;
    if selectors.is_empty() {
        return Ok(Some(telling));
    }
    let Some(place) = keys::parse(kind, prefix, event.change.key()) else {
        return Ok(None);
    };
    let is_in = telling.told != Told::Deleted && selectors.select(place, &telling.value);
    let was_in = match (&event.previous, telling.told) {
        (_, Told::Added) => false,
        (None, _) => return Err(HistoryLost),
        (Some(before), _) => selectors.select(place, before.value()),
    };
    telling.told = match (was_in, is_in) {
        (false, false) => return Ok(None),
        (false, true) => Told::Added,
        (true, true) => Told::Modified,
        (true, false) => Told::Deleted,
    };
    if let (Told::Deleted, Some(before)) = (telling.told, &event.previous) {
        telling.value = before.value_bytes();
    }
    Ok(Some(telling.clone()))
}
