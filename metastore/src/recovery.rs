//! Making a state from what an engine holds, and a checkpoint from a state.
//!
//! A checkpoint holds every version that can still be read, not only the newest, so that history
//! down to the floor survives a restart. Housekeeping that it holds already may be replayed on top
//! of it; each entry of that kind sets a value, so doing it again changes nothing in the end.

use bytes::{Bytes, BytesMut};

use crate::codec::{self, encode_delete, encode_put};
use crate::engine::{Engine, Epoch, Recovered};
use crate::events::family::Family;
use crate::events::log::{Chunk, Held, Log, Stored};
use crate::index::Version;
use crate::state::{State, SweepMark};
use crate::{Error, Revision};

/// Bytes after which a chunk of a checkpoint ends: large enough to write in one go, small enough
/// that a checkpoint takes no memory to speak of.
const CHUNK_BYTES: usize = 256 << 10;
/// Changes in a chunk of the rebuilt log of changes.
const LOG_CHUNK: usize = 512;

/// What was recovered.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) state: State,
    /// Bytes of log replayed.
    pub(crate) replayed: u64,
}

/// Reads back everything an engine holds.
///
/// # Errors
/// `Corrupt` when it does not follow from itself; `Io`.
pub(crate) fn recover(engine: &dyn Engine, epoch: Epoch) -> Result<Found, Error> {
    let mut state = State::new();
    let mut replayed = 0;
    let mut previous = None;
    // Set when the first batch after the checkpoint's chunks arrives.
    let mut seen = None;
    engine.recover(epoch, &mut |part| match part {
        Recovered::Checkpoint(_) => Ok(()),
        Recovered::Chunk(chunk) => codec::decode(&chunk, |entry| {
            state.load(entry);
            Ok(())
        }),
        Recovered::Batch(batch) => {
            let seen = *seen.get_or_insert(state.revision);
            let follows = previous.is_none_or(|previous| previous == batch.previous);
            if !follows || batch.previous > state.revision {
                return Err(Error::Corrupt {
                    reason: format!(
                        "a batch from revision {} follows one to {} in the log; restore from a backup",
                        batch.previous, state.revision
                    ),
                });
            }
            previous = Some(batch.last);
            replayed += batch.payload.len() as u64;
            codec::decode(&batch.payload, |entry| state.replay(entry, seen))
        }
    })?;
    let spent: Vec<Bytes> = state
        .index
        .iter()
        .filter(|(_, history)| history.is_spent(state.floor))
        .map(|(key, _)| key.clone())
        .collect();
    for key in spent {
        state.sweep_key(&key, state.floor);
    }
    state.swept = SweepMark {
        revision: state.floor,
        done: 0,
    };
    Ok(Found { state, replayed })
}

/// Fills an empty log of changes with what a recovered state still holds. Changes of one revision
/// come in key order, since the order they were made in is not kept.
pub(crate) fn rebuild_log(state: &State, log: &Log) {
    log.drop_below(state.floor);
    let mut changes: Vec<(Revision, &Bytes)> = Vec::new();
    for (key, history) in state.index.iter() {
        let recent = history
            .versions()
            .map(Version::revision)
            .filter(|revision| *revision >= state.floor);
        changes.extend(recent.map(|revision| (revision, key)));
    }
    changes.sort_unstable();
    let mut chunk: Vec<Stored> = Vec::new();
    for (revision, key) in changes {
        let is_whole = chunk.last().is_some_and(|last| last.revision < revision);
        if is_whole && chunk.len() >= LOG_CHUNK {
            push(log, std::mem::take(&mut chunk));
        }
        chunk.push(Stored {
            revision,
            family: Family::of(key),
            held: Held::Key(key.clone()),
        });
    }
    push(log, chunk);
}

fn push(log: &Log, changes: Vec<Stored>) {
    if let Some(chunk) = Chunk::new(changes) {
        log.push(chunk);
    }
}

/// The chunks of a checkpoint of a state, made as they are asked for.
pub(crate) struct Checkpoint<'a> {
    head: Option<BytesMut>,
    keys: Box<dyn Iterator<Item = (&'a Bytes, &'a crate::index::History)> + 'a>,
}

impl<'a> Checkpoint<'a> {
    pub(crate) fn of(state: &'a State) -> Self {
        Checkpoint {
            head: Some(state.head()),
            keys: Box::new(state.index.iter()),
        }
    }
}

impl Iterator for Checkpoint<'_> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(head) = self.head.take() {
            return Some(head.freeze());
        }
        let mut out = BytesMut::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        for (key, history) in self.keys.by_ref() {
            for version in history.versions() {
                match version {
                    Version::Put(record) => encode_put(&mut out, record),
                    Version::Tombstone(revision) => encode_delete(&mut out, key, *revision),
                }
            }
            if out.len() >= CHUNK_BYTES {
                break;
            }
        }
        Some(out.freeze()).filter(|out| !out.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::codec::Entry;
    use crate::{LeaseId, Record};

    #[test]
    fn a_checkpoint_loads_as_the_state_it_was_made_of() {
        let mut state = State::new();
        state.grant(LeaseId(9), Duration::from_secs(60), true);
        for number in 2..3000u64 {
            let at = Revision::new(number);
            state.revision = at;
            let key = format!("/k/{}", number % 97);
            if number % 11 == 0 {
                state.delete(&Bytes::from(key), at);
                continue;
            }
            let lease = LeaseId(if number % 5 == 0 { 9 } else { 0 });
            let record = Record::new(key.as_bytes(), &[1; 200], at, at, 1, lease);
            state.set(record);
        }
        state.raise_floor(Revision::new(50));
        let mut loaded = State::new();
        let mut chunks = 0;
        for chunk in Checkpoint::of(&state) {
            chunks += 1;
            codec::decode(&chunk, |entry| {
                loaded.load(entry);
                Ok(())
            })
            .unwrap();
        }
        assert!(chunks > 2, "{chunks} chunks do not test their borders");
        assert_eq!(loaded.revision, state.revision);
        assert_eq!(loaded.floor, state.floor);
        assert_eq!(loaded.bytes, state.bytes);
        assert_eq!(loaded.next_lease, state.next_lease);
        assert_eq!(loaded.lease_keys(LeaseId(9)), state.lease_keys(LeaseId(9)));
        let versions = |state: &State| -> Vec<Version> {
            let all = state
                .index
                .iter()
                .flat_map(|(_, history)| history.versions());
            all.cloned().collect()
        };
        assert_eq!(versions(&loaded), versions(&state));
        assert!(matches!(
            loaded.replay(
                Entry::Mark {
                    revision: Revision::FIRST,
                    next_lease: 1
                },
                Revision::FIRST
            ),
            Err(Error::Corrupt { .. })
        ));
    }
}
