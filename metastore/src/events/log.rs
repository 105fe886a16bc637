//! The changes of every revision that can still be watched, in revision order.
//!
//! One chunk is one batch of the sequencer. Recent chunks (the *ring*, bounded by bytes) hold the
//! records themselves, current and previous; of older ones only which keys changed is known, packed
//! some hundred changes to a chunk, and a reader looks the versions up in the index. Chunks go when
//! the floor and the sweep have passed them, so the log is bounded by what compaction leaves
//! readable.
//!
//! Readers take the lock only to copy a few chunk handles, never while they filter.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::sync::futures::{Notified, OwnedNotified};

use super::family::{Family, Mask, SLOTS};
use super::packed::Packed;
use super::{Change, Made};
use crate::Revision;
use crate::cold::Kept;

/// Changes that older chunks are gathered to: what a reader unpacks at a time.
const SLIM_CHANGES: usize = 512;

/// One change and whom it can concern.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) revision: Revision,
    pub(crate) family: Family,
    pub(crate) held: Held,
}

/// What is kept of a change.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    /// All of it.
    Whole(Made),
    /// Which key it was of; the rest is in the index.
    Key(Bytes),
}

impl Stored {
    pub(crate) fn new(event: Made) -> Self {
        Stored {
            revision: event.change.revision(),
            family: Family::of(event.change.key()),
            held: Held::Whole(event),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        match &self.held {
            Held::Whole(event) => event.change.key(),
            Held::Key(key) => key,
        }
    }
}

/// The changes of consecutive whole revisions.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) first: Revision,
    pub(crate) last: Revision,
    pub(crate) mask: Mask,
    /// What its records weigh; none when it holds only keys.
    bytes: usize,
    /// In revision order, and within one revision in the order made.
    changes: Changes,
}

#[derive(Debug)]
enum Changes {
    Whole(Box<[Stored]>),
    Keys(Packed),
}

impl Chunk {
    /// A chunk of changes in revision order; `None` for none at all.
    pub(crate) fn new(changes: Vec<Stored>) -> Option<Self> {
        let (first, last) = (changes.first()?.revision, changes.last()?.revision);
        Some(Chunk {
            first,
            last,
            mask: changes.iter().fold(0, |mask, c| mask | c.family.mask()),
            bytes: changes.iter().map(|change| weigh(&change.held)).sum(),
            // Without the room that a batch grew by.
            changes: Changes::Whole(changes.into()),
        })
    }

    /// A chunk that has room for keys, and none yet.
    fn slim(first: Revision) -> Self {
        Chunk {
            first,
            last: first,
            mask: 0,
            bytes: 0,
            changes: Changes::Keys(Packed::default()),
        }
    }

    /// Itself, if so many more keys are to be gathered in it; else it takes no more.
    fn with_room_for(&mut self, count: usize) -> Option<&mut Self> {
        let Changes::Keys(packed) = &mut self.changes else {
            return None;
        };
        if packed.len() + count <= SLIM_CHANGES {
            return Some(self);
        }
        packed.close();
        None
    }

    /// Its changes from a revision on; unpacked first if only keys are held.
    pub(crate) fn changes_from(&self, from: Revision) -> Cow<'_, [Stored]> {
        match &self.changes {
            Changes::Whole(changes) => {
                let start = changes.partition_point(|change| change.revision < from);
                Cow::Borrowed(changes.get(start..).unwrap_or_default())
            }
            Changes::Keys(packed) => {
                let mut changes = packed.unpack();
                changes.drain(..changes.partition_point(|(revision, _)| *revision < from));
                let stored = changes.into_iter().map(|(revision, key)| Stored {
                    revision,
                    family: Family::of(&key),
                    held: Held::Key(key),
                });
                Cow::Owned(stored.collect())
            }
        }
    }
}

/// Bytes a held event keeps alive; the previous record is shared with the event before it, and
/// counted again since that one may be gone.
fn weigh(held: &Held) -> usize {
    let Held::Whole(event) = held else {
        return 0;
    };
    let record = match &event.change {
        Change::Put(record) => record.encoded().len(),
        Change::Delete { key, .. } => key.len(),
    };
    let previous = event.previous.as_ref().map_or(0, Kept::resident_bytes);
    std::mem::size_of::<Stored>() + record + previous
}

/// Ascending, without gaps between `first` of the front and `last` of the back.
#[derive(Debug, Default)]
struct Chunks {
    /// The older ones, of which only keys are held. The last may have room for more.
    slim: VecDeque<Arc<Chunk>>,
    whole: VecDeque<Arc<Chunk>>,
    /// Bytes held by the whole ones.
    bytes: usize,
    /// Every change from here on is held.
    base: Revision,
}

impl Chunks {
    /// Leaves only keys of the oldest chunk that has more; false when there is none.
    fn slim_next(&mut self) -> bool {
        let Some(oldest) = self.whole.pop_front() else {
            return false;
        };
        self.bytes -= oldest.bytes;
        if let Changes::Whole(changes) = &oldest.changes {
            let changes = changes.iter().map(|change| (change.revision, change.key()));
            self.pack((oldest.last, oldest.mask), changes);
        }
        true
    }

    /// Adds whole revisions up to `last` to the slim ones.
    fn pack<'a>(
        &mut self,
        (last, mask): (Revision, Mask),
        changes: impl ExactSizeIterator<Item = (Revision, &'a [u8])>,
    ) {
        // One that a reader looks at stays as it is.
        let open = self.slim.back_mut().and_then(Arc::get_mut);
        let open = open.and_then(|chunk| chunk.with_room_for(changes.len()));
        let mut fresh = Chunk::slim(last);
        let is_fresh = open.is_none();
        let chunk = open.unwrap_or(&mut fresh);
        if let Changes::Keys(packed) = &mut chunk.changes {
            for (revision, key) in changes {
                chunk.first = chunk.first.min(revision);
                packed.push(revision, key);
            }
        }
        chunk.last = last;
        chunk.mask |= mask;
        if is_fresh {
            self.slim.push_back(Arc::new(fresh));
        }
    }

    /// The chunks from the first that ends at or after a revision.
    fn from(&self, from: Revision) -> impl Iterator<Item = &Arc<Chunk>> {
        let start = |chunks: &VecDeque<Arc<Chunk>>| chunks.partition_point(|c| c.last < from);
        let slim = self.slim.range(start(&self.slim)..);
        slim.chain(self.whole.range(start(&self.whole)..))
    }
}

/// The log, and where watchers wait.
#[derive(Debug)]
pub(crate) struct Log {
    chunks: RwLock<Chunks>,
    bytes_max: usize,
    /// For each slot, the newest revision that changed a key of it: a watcher past it has nothing
    /// to look for. Set before the revision becomes visible.
    newest: Vec<AtomicU64>,
    /// For each slot, the newest revision below the floor that changed a key of it: a sleeping
    /// watcher is overtaken only if it has not passed that. Set before the floor becomes visible.
    buried: Vec<AtomicU64>,
    /// Where watchers of one family wait, by slot; the last is for those of no family.
    bells: Vec<Arc<Notify>>,
}

impl Log {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Log {
            chunks: RwLock::default(),
            bytes_max,
            newest: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            buried: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            bells: (0..=SLOTS).map(|_| Arc::default()).collect(),
        }
    }

    /// Adds whole revisions of which only keys are to be held, to a log that holds no others.
    pub(crate) fn fill<'a>(
        &self,
        changes: impl ExactSizeIterator<Item = (Revision, &'a [u8])> + Clone,
    ) {
        let Some(last) = changes.clone().last() else {
            return;
        };
        let slots = changes.clone().map(|(_, key)| Family::of(key).mask());
        let mask = slots.fold(0, |mask, one| mask | one);
        self.note_newest(mask, last.0);
        self.chunks.write().pack((last.0, mask), changes);
    }

    fn note_newest(&self, mask: Mask, last: Revision) {
        for slot in slots(mask) {
            if let Some(newest) = self.newest.get(slot) {
                newest.store(last.get(), Ordering::Release);
            }
        }
    }

    /// Adds the changes of the next revisions, before these become visible.
    pub(crate) fn push(&self, chunk: Chunk) {
        self.note_newest(chunk.mask, chunk.last);
        let mut chunks = self.chunks.write();
        chunks.bytes += chunk.bytes;
        chunks.whole.push_back(Arc::new(chunk));
        while chunks.bytes > self.bytes_max && chunks.slim_next() {}
    }

    /// Leaves only keys of changes up to `floor`, wherever a chunk ends there.
    pub(crate) fn slim_through(&self, floor: Revision) {
        let mut chunks = self.chunks.write();
        while chunks
            .whole
            .front()
            .is_some_and(|chunk| chunk.last <= floor)
            && chunks.slim_next()
        {}
    }

    /// Wakes whoever may want changes of these slots, after they became visible.
    pub(crate) fn ring(&self, mask: Mask) {
        for slot in slots(mask).chain([SLOTS]) {
            if let Some(bell) = self.bells.get(slot) {
                bell.notify_waiters();
            }
        }
    }

    /// Wakes those of one family, or of none: something that one of them waits for is there.
    pub(crate) fn ring_one(&self, family: Option<Family>) {
        let slot = family.map_or(SLOTS, Family::slot);
        if let Some(bell) = self.bells.get(slot) {
            bell.notify_waiters();
        }
    }

    /// Wakes everybody: the store has stopped.
    pub(crate) fn ring_all(&self) {
        self.bells.iter().for_each(|bell| bell.notify_waiters());
    }

    /// Resolves at the next [`Log::ring`] that may concern the family; `None` for every one.
    pub(crate) fn bell(&self, family: Option<Family>) -> Option<Notified<'_>> {
        let slot = family.map_or(SLOTS, Family::slot);
        self.bells.get(slot).map(|bell| bell.notified())
    }

    /// The same for whoever cannot borrow the log.
    pub(crate) fn owned_bell(&self, family: Option<Family>) -> Option<OwnedNotified> {
        let slot = family.map_or(SLOTS, Family::slot);
        self.bells
            .get(slot)
            .map(|bell| Arc::clone(bell).notified_owned())
    }

    /// Whether nothing of the family can have changed from `next` on, among the visible revisions.
    pub(crate) fn is_quiet(&self, family: Option<Family>, next: Revision) -> bool {
        let newest = family.and_then(|family| self.newest.get(family.slot()));
        newest.is_some_and(|newest| newest.load(Ordering::Acquire) < next.get())
    }

    /// Whether changes of the family from `next` on have been given up, with `next` below the floor.
    pub(crate) fn is_overtaken(&self, family: Option<Family>, next: Revision) -> bool {
        let buried = family.and_then(|family| self.buried.get(family.slot()));
        buried.is_none_or(|buried| buried.load(Ordering::Acquire) >= next.get())
    }

    /// Notes what lies between the floor that was and the one that is about to become visible.
    pub(crate) fn bury(&self, old: Revision, floor: Revision) {
        let chunks = self.chunks.read();
        let buried = |mask, revision: Revision| {
            for slot in slots(mask) {
                // Never back, not for a moment: whoever looks meanwhile would take itself for one
                // that missed nothing.
                if let Some(buried) = self.buried.get(slot) {
                    buried.fetch_max(revision.get(), Ordering::AcqRel);
                }
            }
        };
        for chunk in chunks.from(old) {
            if chunk.last < floor {
                buried(chunk.mask, chunk.last);
                continue;
            }
            let changes = chunk.changes_from(old);
            let below = changes.iter().take_while(|change| change.revision < floor);
            below.for_each(|change| buried(change.family.mask(), change.revision));
            return;
        }
    }

    /// The chunks that hold `from` and what follows, at most `limit` of them; `None` when changes
    /// from there on are already forgotten.
    pub(crate) fn chunks_from(&self, from: Revision, limit: usize) -> Option<Vec<Arc<Chunk>>> {
        let chunks = self.chunks.read();
        if from < chunks.base {
            return None;
        }
        Some(chunks.from(from).take(limit).cloned().collect())
    }

    /// The least revision whose changes are all held.
    pub(crate) fn base(&self) -> Revision {
        self.chunks.read().base
    }

    /// Forgets chunks that lie wholly below `floor`.
    pub(crate) fn drop_below(&self, floor: Revision) {
        let mut chunks = self.chunks.write();
        chunks.base = chunks.base.max(floor);
        let is_below = |chunk: Option<&Arc<Chunk>>| chunk.is_some_and(|c| c.last < floor);
        while is_below(chunks.slim.front()) {
            chunks.slim.pop_front();
        }
        if !chunks.slim.is_empty() {
            return;
        }
        while is_below(chunks.whole.front()) {
            if let Some(chunk) = chunks.whole.pop_front() {
                chunks.bytes -= chunk.bytes;
            }
        }
    }

    /// Bytes of the records held.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.read().bytes
    }
}

fn slots(mask: Mask) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let slot = usize::try_from(left.trailing_zeros()).ok()?;
        if slot >= SLOTS {
            return None;
        }
        left &= left - 1;
        Some(slot)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeaseId, Record};

    fn chunk(revision: u64, key: &str) -> Chunk {
        let at = Revision::new(revision);
        let record = Record::new(key.as_bytes(), &[7; 100], at, at, 1, LeaseId::NONE);
        let change = Change::Put(record);
        let previous = None;
        Chunk::new(vec![Stored::new(Made { change, previous })]).unwrap()
    }

    #[test]
    fn the_ring_keeps_to_its_bytes_and_the_keys_stay() {
        let log = Log::new(2000);
        for revision in 2..100 {
            log.push(chunk(revision, "/registry/pods/x"));
            assert!(log.bytes() <= 2000);
        }
        let all = log.chunks_from(Revision::new(2), usize::MAX).unwrap();
        let changes = |chunk: &Chunk| chunk.changes_from(Revision::ZERO).into_owned();
        let stored: Vec<Stored> = all.iter().flat_map(|chunk| changes(chunk)).collect();
        assert!(stored.iter().map(|s| s.revision.get()).eq(2..100));
        assert!(stored.iter().all(|s| s.key() == b"/registry/pods/x"));
        assert!(matches!(stored[0].held, Held::Key(_)));
        assert!(matches!(stored[97].held, Held::Whole(_)));
        assert!(
            all.len() < 20,
            "{} chunks: keys are not gathered",
            all.len()
        );
        log.drop_below(Revision::new(50));
        assert!(log.chunks_from(Revision::new(49), 1).is_none());
        let left = log.chunks_from(Revision::new(50), 1).unwrap();
        assert!(left[0].first <= Revision::new(50) && left[0].last >= Revision::new(50));
        assert_eq!(
            left[0].changes_from(Revision::new(50))[0].revision,
            Revision::new(50)
        );
    }

    #[test]
    fn a_chunk_that_is_read_does_not_change() {
        let log = Log::new(0);
        log.push(chunk(2, "/registry/pods/a"));
        let read = log.chunks_from(Revision::new(2), 1).unwrap();
        log.push(chunk(3, "/registry/pods/b"));
        assert_eq!(read[0].last, Revision::new(2));
        assert_eq!(read[0].changes_from(Revision::ZERO).len(), 1);
        let all = log.chunks_from(Revision::new(2), 9).unwrap();
        assert_eq!(all.iter().map(|c| c.last.get()).collect::<Vec<_>>(), [2, 3]);
        drop((read, all));
        for revision in 4..4000 {
            log.push(chunk(revision, "/registry/pods/c"));
        }
        let all = log.chunks_from(Revision::new(2), usize::MAX).unwrap();
        let most = SLIM_CHANGES;
        assert!(all.len() >= 2 && all.len() < 12, "{} chunks", all.len());
        let lengths = all.iter().map(|c| c.changes_from(Revision::ZERO).len());
        assert!(lengths.clone().all(|length| length <= most));
        assert_eq!(lengths.sum::<usize>(), 3998);
    }

    #[test]
    fn a_quiet_family_is_known_without_looking() {
        let log = Log::new(2000);
        log.push(chunk(2, "/registry/pods/x"));
        let pods = Some(Family::of(b"/registry/pods/y"));
        let leases = Some(Family::of(b"/registry/leases/y"));
        assert!(!log.is_quiet(pods, Revision::new(2)));
        assert!(log.is_quiet(pods, Revision::new(3)));
        assert!(log.is_quiet(leases, Revision::new(2)));
        assert!(!log.is_quiet(None, Revision::new(2)));
    }

    /// The floor rises again and again within one chunk, while a watcher that was overtaken looks.
    #[test]
    fn who_was_overtaken_stays_so_while_the_floor_rises() {
        let log = Log::new(0);
        for revision in 2..400 {
            log.push(chunk(revision, "/registry/pods/x"));
        }
        let pods = Some(Family::of(b"/registry/pods/y"));
        let at = Revision::new;
        log.bury(at(1), at(100));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let is_ready = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                is_ready.wait();
                let mut looks = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    assert!(log.is_overtaken(pods, at(99)), "after {looks} looks");
                    looks += 1;
                }
            });
            is_ready.wait();
            for round in 0..3_000 {
                log.bury(at(100 + round % 200), at(101 + round % 200));
            }
            is_over.store(true, Ordering::Relaxed);
            looking.join().unwrap();
        });
        assert!(log.is_overtaken(pods, at(299)) && !log.is_overtaken(pods, at(300)));
    }
}
