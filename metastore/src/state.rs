//! The store's whole content at one revision, as a value that is cheap to copy.
//!
//! The sequencer changes one `State` ahead of the log (the *assigned* one); a copy of it becomes
//! what readers see once its batch is durable. Undoing a batch that came to nothing is going back
//! to the copy before it, so revisions stay dense. Replay of the log drives the same methods.
//!
//! It does no IO, reads no clock, and trusts its caller: whether a write is allowed is decided in
//! [`crate::txn`] and the sequencer.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use crate::codec::{Entry, payload};
use crate::cold::{Cell, Kept, Residence};
use crate::engine::Place;
use crate::events::{Change, Made};
use crate::faults::{Fault, injected};
use crate::index::{History, Keyed, Tree, Version, Weigh};
use crate::record::Fields;
use crate::{Error, LeaseId, Record, Revision};

/// Lease ids the store chooses from. A caller's own id in here is passed by as well; those above
/// are left to callers, so that no single grant can use up the span but one meant to.
const CHOSEN: RangeInclusive<i64> = 1..=i64::MAX / 2;

/// A granted lease; when it ends is kept by the expiry clock, not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// What was granted, and what a renewal gives again.
    pub(crate) ttl: Duration,
}

/// A tree value that counts for one and has no history, with its key.
#[derive(Clone, Debug)]
pub(crate) struct Plain<T>(Bytes, T);

impl<T> Keyed for Plain<T> {
    fn key(&self) -> &[u8] {
        &self.0
    }
}

impl<T: Clone> Weigh for Plain<T> {
    fn weight(&self) -> u64 {
        1
    }
    fn weight_at(&self, _at: u64) -> u64 {
        1
    }
    fn stamp(&self) -> u64 {
        0
    }
}

/// Versions of one key let go at once by a sweep that others wait for.
const SWEPT_VERSIONS: usize = 64;

/// How far the sweep of superseded versions has come: what lies before is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepMark {
    /// The revision to sweep next.
    pub(crate) revision: Revision,
    /// Changes of that revision already swept: one revision may have touched very many keys.
    pub(crate) done: usize,
}

/// All there is at one revision.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The last revision in it.
    pub(crate) revision: Revision,
    /// The compacted floor: the least revision that can still be read.
    pub(crate) floor: Revision,
    /// What the sweep has still to look at.
    pub(crate) swept: SweepMark,
    /// Keys to their versions.
    pub(crate) index: Tree<History>,
    /// Lease ids, big-endian, to leases.
    leases: Tree<Plain<Lease>>,
    /// Lease id, big-endian, then key: what hangs on which lease.
    attached: Tree<Plain<()>>,
    /// The id the store would choose next: greater than every one in its span ever granted, so that
    /// a forgotten one does not come back to mean another lease.
    pub(crate) next_lease: i64,
    /// Bytes of all versions held.
    pub(crate) bytes: u64,
    /// Where values in memory are counted, in a store that may let them go.
    pub(crate) residence: Option<Arc<Residence>>,
}

impl State {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::with(None)
    }

    /// An empty state whose values are counted.
    pub(crate) fn with(residence: Option<Arc<Residence>>) -> Self {
        State {
            residence,
            revision: Revision::FIRST,
            floor: Revision::ZERO,
            swept: SweepMark::default(),
            index: Tree::new(),
            leases: Tree::new(),
            attached: Tree::new(),
            next_lease: 1,
            bytes: 0,
        }
    }

    /// The key's version now.
    pub(crate) fn live(&self, key: &[u8]) -> Option<&Kept> {
        self.index.get(key)?.live()
    }

    /// Writes the version that `make` makes of the present one; answers it as kept, and what it
    /// replaced.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        make: impl FnOnce(Option<&Kept>) -> Record,
    ) -> (Kept, Option<Kept>) {
        let residence = self.residence.clone();
        self.put_kept(key, |previous| {
            let record = make(previous);
            match residence {
                None => Kept::Whole(record),
                Some(residence) => Kept::Cell(Cell::whole(record, &residence)),
            }
        })
    }

    fn put_kept(
        &mut self,
        key: &[u8],
        make: impl FnOnce(Option<&Kept>) -> Kept,
    ) -> (Kept, Option<Kept>) {
        let make = |previous: Option<&Kept>| Version::Put(make(previous));
        let (version, previous) = self.push(key, make);
        let Version::Put(kept) = version else {
            unreachable!("a put makes a put");
        };
        let held = previous.as_ref().map_or(LeaseId::NONE, Kept::lease);
        if held != kept.lease() {
            if !injected(Fault::PutDoesNotDetach) {
                self.detach(held, key);
            }
            self.attach(kept.lease(), key);
        }
        (kept, previous)
    }

    pub(crate) fn attach(&mut self, lease: LeaseId, key: &[u8]) {
        if lease.is_some() {
            let path = lease_path(lease, key);
            self.attached.upsert(&path, |present| match present {
                Some(_) => None,
                None => Some(Plain(path.clone(), ())),
            });
        }
    }

    /// Deletes a key at a revision; answers what was there, or does nothing when nothing was.
    pub(crate) fn delete(&mut self, key: &[u8], revision: Revision) -> Option<Kept> {
        self.live(key)?;
        let gone = Record::tombstone(key, revision);
        let (_, previous) = self.push(key, |_| Version::Tombstone(gone));
        let previous = previous?;
        self.detach(previous.lease(), key);
        Some(previous)
    }

    fn push(
        &mut self,
        key: &[u8],
        make: impl FnOnce(Option<&Kept>) -> Version,
    ) -> (Version, Option<Kept>) {
        let (mut made, mut previous) = (None, None);
        self.index.upsert(key, |present| match present {
            Some(history) => {
                previous = history.live().cloned();
                let version = make(previous.as_ref());
                made = Some(version.clone());
                history.push(version);
                None
            }
            None => {
                let version = make(None);
                made = Some(version.clone());
                Some(History::new(version))
            }
        });
        let version = made.expect("an upsert calls its closure exactly once");
        self.bytes += version.bytes();
        (version, previous)
    }

    fn detach(&mut self, lease: LeaseId, key: &[u8]) {
        if lease.is_some() {
            self.attached.remove(&lease_path(lease, key));
        }
    }

    pub(crate) fn lease(&self, id: LeaseId) -> Option<Lease> {
        self.leases.get(&id.0.to_be_bytes()).map(|found| found.1)
    }

    pub(crate) fn lease_ids(&self) -> Vec<LeaseId> {
        let ids = self.leases.iter().filter_map(|(key, _)| {
            let bytes = <[u8; 8]>::try_from(key).ok()?;
            Some(LeaseId(i64::from_be_bytes(bytes)))
        });
        ids.collect()
    }

    pub(crate) fn lease_count(&self) -> u64 {
        self.leases.count(b"", None, u64::MAX)
    }

    /// The keys that hang on a lease, in order.
    pub(crate) fn lease_keys(&self, id: LeaseId) -> Vec<Bytes> {
        let start = id.0.to_be_bytes();
        let walk = self.attached.range(&start, None, u64::MAX);
        walk.take_while(|(path, _)| path.starts_with(&start))
            .filter_map(|(path, _)| path.get(start.len()..))
            .map(Bytes::copy_from_slice)
            .collect()
    }

    /// An id for a lease that names none.
    pub(crate) fn choose_lease(&self) -> LeaseId {
        let mut id = self.next_lease;
        // Past the span, which a caller must have given away on purpose, only absence is left.
        while self.lease(LeaseId(id)).is_some() || !CHOSEN.contains(&id) {
            id = if CHOSEN.contains(&id) { id + 1 } else { 1 };
        }
        LeaseId(id)
    }

    pub(crate) fn grant(&mut self, id: LeaseId, ttl: Duration) {
        if CHOSEN.contains(&id.0) {
            self.next_lease = self.next_lease.max(id.0 + 1);
        }
        let path = Bytes::copy_from_slice(&id.0.to_be_bytes());
        let lease = Plain(path.clone(), Lease { ttl });
        self.leases.upsert(&path, |present| match present {
            Some(held) => {
                *held = lease;
                None
            }
            None => Some(lease),
        });
    }

    /// Forgets a lease whose keys are deleted already.
    pub(crate) fn forget_lease(&mut self, id: LeaseId) {
        self.leases.remove(&id.0.to_be_bytes());
    }

    /// Raises the floor; it never falls.
    pub(crate) fn raise_floor(&mut self, at: Revision) {
        self.floor = self.floor.max(at);
    }

    /// As [`State::sweep_key`], the oldest versions alone where there are very many: each change of
    /// the key is a turn to go on.
    pub(crate) fn sweep_oldest(&mut self, key: &[u8], floor: Revision) {
        let history = self.index.get(key);
        let beyond = history.and_then(|history| history.versions().nth(SWEPT_VERSIONS));
        let until = beyond.map_or(floor, |version| floor.min(version.revision()));
        self.sweep_key(key, until);
    }

    /// Lets go what no read at or above `floor` can see of one key.
    pub(crate) fn sweep_key(&mut self, key: &[u8], floor: Revision) {
        if !self
            .index
            .get(key)
            .is_some_and(|history| history.is_spent(floor))
        {
            return;
        }
        let (mut freed, mut is_empty) = (0, false);
        self.index.upsert(key, |present| {
            if let Some(history) = present {
                (freed, is_empty) = history.truncate(floor);
            }
            None
        });
        self.bytes = self.bytes.saturating_sub(freed);
        if is_empty {
            self.index.remove(key);
        }
    }

    /// Replays one entry of the log, whose version lies at `place`. Entries at or below `seen`, the revision
    /// the checkpoint already held, have had their effect. Answers whether it changed a key.
    ///
    /// # Errors
    /// `Corrupt` when a write is not the next one.
    pub(crate) fn replay(
        &mut self,
        entry: Entry<'_>,
        place: Option<Place>,
        seen: Revision,
    ) -> Result<bool, Error> {
        match entry {
            Entry::Put(fields) if fields.mod_revision > seen => {
                self.step_to(fields.mod_revision)?;
                self.set(&fields, place);
                return Ok(true);
            }
            Entry::Delete { key, revision } if revision > seen => {
                self.step_to(revision)?;
                return Ok(self.delete(key, revision).is_some());
            }
            Entry::Put(_) | Entry::Delete { .. } => {}
            Entry::Grant { id, ttl } => self.grant(id, ttl),
            Entry::Revoke(id) => self.forget_lease(id),
            Entry::Floor(at) => self.raise_floor(at),
            Entry::Mark { .. } | Entry::Order { .. } => {
                return Err(Error::Corrupt {
                    reason: "a checkpoint's entry inside the log; restore from a backup".to_owned(),
                });
            }
        }
        Ok(false)
    }

    /// Writes a version as it was once made.
    pub(crate) fn set(&mut self, fields: &Fields<'_>, place: Option<Place>) {
        let kept = self.keep(fields, place);
        self.put_kept(fields.key, |_| kept);
    }

    /// A version as the index keeps it; one that lies somewhere already need not be in memory.
    pub(crate) fn keep(&self, fields: &Fields<'_>, place: Option<Place>) -> Kept {
        match (&self.residence, place) {
            (None, _) => Kept::Whole(Record::of(fields)),
            (Some(residence), None) => Kept::Cell(Cell::whole(Record::of(fields), residence)),
            (Some(residence), Some(place)) => Kept::Cell(Cell::cold(fields, place, residence)),
        }
    }

    fn step_to(&mut self, revision: Revision) -> Result<(), Error> {
        if revision != self.revision && revision != self.revision.next() {
            return Err(Error::Corrupt {
                reason: format!(
                    "revision {revision} follows {} in the log; restore from a backup",
                    self.revision
                ),
            });
        }
        self.revision = revision;
        Ok(())
    }

    /// Loads one entry of a checkpoint that is not a version of a key.
    pub(crate) fn load(&mut self, entry: Entry<'_>) {
        match entry {
            // Those come key by key and not by revision; see `sorted`.
            Entry::Put(_) | Entry::Delete { .. } => {}
            Entry::Grant { id, ttl } => self.grant(id, ttl),
            Entry::Revoke(id) => self.forget_lease(id),
            Entry::Floor(at) => self.raise_floor(at),
            Entry::Mark {
                revision,
                next_lease,
            } => {
                self.revision = revision;
                self.next_lease = self.next_lease.max(next_lease);
            }
            // The log of changes is made from these, not the state.
            Entry::Order { .. } => {}
        }
    }

    /// The head of a checkpoint of this state: all but the keys.
    pub(crate) fn head(&self) -> BytesMut {
        let mut out = payload(0);
        let mark = Entry::Mark {
            revision: self.revision,
            next_lease: self.next_lease,
        };
        mark.encode(&mut out);
        Entry::Floor(self.floor).encode(&mut out);
        for id in self.lease_ids() {
            if let Some(Lease { ttl }) = self.lease(id) {
                Entry::Grant { id, ttl }.encode(&mut out);
            }
        }
        out
    }
}

fn lease_path(lease: LeaseId, key: &[u8]) -> Bytes {
    let mut path = BytesMut::with_capacity(8 + key.len());
    path.put_slice(&lease.0.to_be_bytes());
    path.put_slice(key);
    path.freeze()
}

/// Whether an event is a put, which is what a full disk refuses.
pub(crate) fn is_put(event: &Made) -> bool {
    matches!(event.change, Change::Put(_))
}
