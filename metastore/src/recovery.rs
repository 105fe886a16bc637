//! Making a state from what an engine holds, and a checkpoint from a state.
//!
//! A checkpoint holds every version that can still be read, not only the newest, so that history
//! down to the floor survives a restart; and of each revision that did not change its keys in key
//! order, the order, so that events come as they did before. Housekeeping that it holds already may be replayed on top
//! of it; each entry of that kind sets a value, so doing it again changes nothing in the end.

mod changes;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use bytes::{Bytes, BytesMut};

use self::changes::Changes;
use crate::codec::{self, Entry, encode_delete, encode_put};
use crate::cold::{Kept, Residence, load};
use crate::engine::{Batch, Engine, Epoch, Place, Recovered};
use crate::events::log::{Log, Stored};
use crate::events::order::{self, Orders};
use crate::faults::{Fault, injected};
use crate::index::{History, Keyed, Version};
use crate::sorted::Sorted;
use crate::state::{State, SweepMark};
use crate::{Error, Revision};

/// Bytes after which a chunk of a checkpoint ends: large enough to write in one go, small enough
/// that a checkpoint takes no memory to speak of.
const CHUNK_BYTES: usize = 256 << 10;
/// Parts read ahead while others are taken in: a few hundred KiB each.
const PARTS_AHEAD: usize = 8;
/// Changes in a chunk of the rebuilt log of changes.
const LOG_CHUNK: usize = 512;
/// Chunks copied out of the log of changes at a time.
const LOG_CHUNKS: usize = 64;

/// What was recovered.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) state: State,
    /// Which revisions changed which keys, and in what order those of the checkpoint did.
    changes: Changes,
    orders: Orders,
    /// Bytes of log replayed.
    pub(crate) replayed: u64,
}

/// Reads back everything an engine holds. With an account of values in memory, values stay where
/// they lie, if the engine can read them back later.
///
/// # Errors
/// `Corrupt` when it does not follow from itself; `Io`.
pub(crate) fn recover(
    engine: &dyn Engine,
    epoch: Epoch,
    residence: Option<Arc<Residence>>,
) -> Result<Found, Error> {
    let mut loading = Loading::new(State::with(residence));
    let (sender, parts) = sync_channel(PARTS_AHEAD);
    std::thread::scope(|scope| {
        // Reads and checks what comes next while what is there is taken in.
        let read = scope.spawn(move || {
            engine.recover_placed(epoch, &mut |part, place| {
                // Nobody takes it any more once a part was refused, which is what will be said.
                let refused = |_part| Error::Stopped {
                    reason: "recovery was given up".to_owned(),
                };
                sender.send((part, place)).map_err(refused)
            })
        });
        let taken = parts
            .iter()
            .try_for_each(|(part, place)| loading.take(part, place));
        drop(parts);
        let read = read.join().unwrap_or_else(|_panic| {
            Err(Error::Stopped {
                reason: "the engine panicked while it was read".to_owned(),
            })
        });
        taken.and(read)
    })?;
    Ok(loading.finish())
}

/// A state being made.
struct Loading {
    state: State,
    /// The keys of the checkpoint, until the first batch arrives.
    sorted: Option<Sorted>,
    changes: Changes,
    orders: Orders,
    replayed: u64,
    /// Where the batch before ended.
    previous: Option<Revision>,
    /// Where the checkpoint stands; set when the first batch after its chunks arrives.
    seen: Option<Revision>,
}

impl Loading {
    fn new(state: State) -> Self {
        Loading {
            state,
            sorted: Some(Sorted::default()),
            changes: Changes::default(),
            orders: Orders::default(),
            replayed: 0,
            previous: None,
            seen: None,
        }
    }

    fn take(&mut self, part: Recovered, place: Option<Place>) -> Result<(), Error> {
        let at = |at| place.as_ref().map(|place| place.after(at));
        match part {
            Recovered::Checkpoint(_) => Ok(()),
            Recovered::Chunk(chunk) => codec::decode(&chunk, |entry, offset| {
                match (entry, &mut self.sorted) {
                    (Entry::Order { revision, places }, _) => self.orders.learn(revision, places),
                    (entry, Some(sorted)) => {
                        if let Some((revision, key)) = entry.change() {
                            self.changes.note(revision, key);
                        }
                        sorted.take(&mut self.state, entry, at(offset))?;
                    }
                    (_, None) => {
                        return Err(Error::Corrupt {
                            reason: "a checkpoint inside the log; restore from a backup".to_owned(),
                        });
                    }
                }
                Ok(())
            }),
            Recovered::Batch(batch) => {
                self.end_keys();
                let seen = *self.seen.get_or_insert(self.state.revision);
                self.check_follows(&batch)?;
                self.previous = Some(batch.last);
                self.replayed += batch.payload.len() as u64;
                codec::decode(&batch.payload, |entry, offset| {
                    let change = entry.change();
                    if self.state.replay(entry, at(offset), seen)?
                        && let Some((revision, key)) = change
                    {
                        self.changes.note(revision, key);
                    }
                    Ok(())
                })
            }
        }
    }

    fn check_follows(&self, batch: &Batch) -> Result<(), Error> {
        let follows = self
            .previous
            .is_none_or(|previous| previous == batch.previous);
        if follows && batch.previous <= self.state.revision {
            return Ok(());
        }
        Err(Error::Corrupt {
            reason: format!(
                "a batch from revision {} follows one to {} in the log; restore from a backup",
                batch.previous, self.state.revision
            ),
        })
    }

    fn end_keys(&mut self) {
        if let Some(sorted) = self.sorted.take() {
            sorted.finish(&mut self.state);
        }
    }

    fn finish(mut self) -> Found {
        self.end_keys();
        let Loading {
            mut state,
            mut changes,
            orders,
            replayed,
            ..
        } = self;
        let mut spent: Vec<Bytes> = Vec::new();
        let mut walk = state.index.iter();
        while let Some(history) = walk.next_value() {
            if history.is_spent(state.floor) {
                spent.push(Bytes::copy_from_slice(history.key()));
            }
        }
        for key in spent {
            state.sweep_key(&key, state.floor);
        }
        state.swept = SweepMark {
            revision: state.floor,
            done: 0,
        };
        changes.settle(state.floor);
        Found {
            state,
            changes,
            orders,
            replayed,
        }
    }
}

/// What a crash did to stores that were wrong about it; nothing without `injected-faults`.
pub(crate) fn spoil(state: &mut State) {
    if injected(Fault::RevisionReused) && state.revision > Revision::FIRST {
        state.revision = state.revision.prev();
    }
    if injected(Fault::FloorForgotten) {
        state.floor = Revision::ZERO;
    }
    if injected(Fault::LeaseForgotten) {
        for id in state.lease_ids() {
            state.forget_lease(id);
        }
    }
}

/// Fills an empty log of changes with what a recovered state still holds, in the order made.
///
/// # Errors
/// `Corrupt` when the order of a revision is not one of its changes.
pub(crate) fn rebuild_log(found: &Found, log: &Log) -> Result<(), Error> {
    log.drop_below(found.state.floor);
    let mut chunk: Vec<(Revision, &[u8])> = Vec::new();
    for (revision, keys) in found.changes.by_revision() {
        if chunk.len() >= LOG_CHUNK {
            log.fill(chunk.iter().copied());
            chunk.clear();
        }
        let Some(places) = found.orders.of(revision) else {
            chunk.extend(keys.map(|key| (revision, key)));
            continue;
        };
        let count = keys.len();
        let made = order::arrange(keys, places).ok_or_else(|| Error::Corrupt {
            reason: format!(
                "the order kept of revision {revision} is not one of its {count} changes; restore from a backup"
            ),
        })?;
        chunk.extend(made.into_iter().map(|key| (revision, key)));
    }
    log.fill(chunk.iter().copied());
    Ok(())
}

/// The chunks of a checkpoint of a state, made as they are asked for. Blocks where values have left
/// the memory, and fails where one cannot be read back.
pub(crate) struct Checkpoint<'a> {
    head: Option<BytesMut>,
    keys: Box<dyn Iterator<Item = (&'a [u8], &'a History)> + 'a>,
    log: &'a Log,
    /// The next revision whose order is to be looked at.
    next: Revision,
    last: Revision,
    /// Where values lie that may leave the memory: their chunk, and where in it.
    puts: Option<Vec<(Kept, u32, u32)>>,
    chunks: u32,
}

impl<'a> Checkpoint<'a> {
    /// Of a visible state, with its log of changes, which may be ahead of it. What the log has
    /// dropped meanwhile lies below a floor that is durable already, and is not missed.
    pub(crate) fn of(state: &'a State, log: &'a Log) -> Self {
        Checkpoint {
            head: Some(state.head()),
            keys: Box::new(state.index.iter()),
            log,
            next: state.floor,
            last: state.revision,
            puts: state.residence.is_some().then(Vec::new),
            chunks: 0,
        }
    }

    /// Once it is durable: has values looked up in it from now on, so that older files may go.
    pub(crate) fn settle(self, chunks: &[Place]) {
        for (kept, chunk, at) in self.puts.into_iter().flatten() {
            if let Some(chunk) = chunks.get(chunk as usize) {
                kept.move_to(chunk.after(u64::from(at)));
            }
        }
    }

    fn put_keys(&mut self, out: &mut BytesMut) -> Result<(), Error> {
        // Gathered first, so that what lies together is read together.
        let mut versions = Vec::new();
        let mut bytes = out.len();
        while bytes < CHUNK_BYTES
            && let Some((key, history)) = self.keys.next()
        {
            for version in history.versions() {
                bytes += key.len() + usize::try_from(version.bytes()).unwrap_or(0);
                versions.push((key, version));
            }
        }
        let kepts = versions.iter().filter_map(|(_, version)| version.kept());
        let kepts: Vec<Kept> = kepts.cloned().collect();
        let mut records = load(&kepts, false)?.into_iter().zip(kepts);
        for (key, version) in versions {
            match version {
                Version::Tombstone(gone) => encode_delete(out, key, gone.mod_revision()),
                Version::Put(_) => {
                    if let Some((record, kept)) = records.next() {
                        encode_put(out, &record);
                        let at = out.len() - record.encoded().len();
                        if let Some(puts) = &mut self.puts {
                            // A chunk is far below 4 GiB: it ends with the key that fills it.
                            puts.push((kept, self.chunks, u32::try_from(at).unwrap_or(u32::MAX)));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn put_orders(&mut self, out: &mut BytesMut) {
        while out.len() < CHUNK_BYTES && self.next <= self.last {
            let Some(changes) = self.log.chunks_from(self.next, LOG_CHUNKS) else {
                self.next = self.log.base();
                continue;
            };
            if changes.is_empty() {
                self.next = self.last.next();
            }
            for chunk in changes {
                let from = chunk.changes_from(self.next);
                for made in from.chunk_by(|one, two| one.revision == two.revision) {
                    put_order(out, made, self.last);
                }
                self.next = chunk.last.next();
            }
        }
    }
}

/// Appends the order of one revision's changes, unless it goes without saying.
fn put_order(out: &mut BytesMut, made: &[Stored], last: Revision) {
    let [first, _, ..] = made else {
        return;
    };
    let revision = first.revision;
    let keys: Vec<&[u8]> = made.iter().map(Stored::key).collect();
    if revision <= last
        && let Some(places) = order::places(&keys)
    {
        Entry::Order { revision, places }.encode(out);
    }
}

impl Iterator for Checkpoint<'_> {
    type Item = Result<Bytes, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let out = match self.head.take() {
            Some(head) => head,
            None => {
                let mut out = codec::payload(CHUNK_BYTES + CHUNK_BYTES / 4);
                if let Err(error) = self.put_keys(&mut out) {
                    return Some(Err(error));
                }
                self.put_orders(&mut out);
                out
            }
        };
        self.chunks += 1;
        // A head always has entries.
        Some(Ok(out.freeze())).filter(|out| !out.as_ref().is_ok_and(|out| codec::is_blank(out)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::Fields;
    use crate::{LeaseId, Record};

    #[test]
    fn a_checkpoint_loads_as_the_state_it_was_made_of() {
        let mut state = State::new();
        state.grant(LeaseId(9), Duration::from_secs(60));
        for number in 2..3000u64 {
            let at = Revision::new(number);
            state.revision = at;
            let key = format!("/k/{}", number % 97);
            if number % 11 == 0 {
                state.delete(key.as_bytes(), at);
                continue;
            }
            let lease = LeaseId(if number % 5 == 0 { 9 } else { 0 });
            let record = Record::new(key.as_bytes(), &[1; 200], at, at, 1, lease);
            state.set(&Fields::of(record.encoded()).unwrap(), None);
        }
        state.raise_floor(Revision::new(50));
        let mut loading = Loading::new(State::new());
        let mut chunks = 0;
        for chunk in Checkpoint::of(&state, &Log::new(0)) {
            chunks += 1;
            let part = Recovered::Chunk(chunk.unwrap());
            loading.take(part, None).unwrap();
        }
        loading.end_keys();
        let mut loaded = loading.state;
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
                None,
                Revision::FIRST
            ),
            Err(Error::Corrupt { .. })
        ));
    }
}
