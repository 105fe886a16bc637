//! The versions of one key, oldest to newest, as a persistent value.
//!
//! One running example, as the floor rises; `a` and `b` are puts, `x` is a tombstone:
//!
//! ```text
//! revisions          2a 5b 7x 9a
//! floor 4:           2a 5b 7x 9a     2a is still what a read at 4 sees
//! floor 5:              5b 7x 9a
//! floor 7:                 7x 9a     a watch from 7 must still see the delete
//! floor 8:                    9a
//! ```
//!
//! A key written thousands of times between two compactions must not make each write copy all of
//! its past: older versions lie in full chunks that copies share, and only the last, part-filled
//! chunk is copied.

use std::sync::Arc;

use super::tree::{Keyed, Weigh};
use crate::cold::Kept;
use crate::{Record, Revision};

/// Versions a chunk holds: what a write to a hot key copies at most.
const CHUNK: usize = 32;

/// What one revision made of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Put(Kept),
    /// A record of the key and the revision alone.
    Tombstone(Record),
}

impl Version {
    pub(crate) fn revision(&self) -> Revision {
        match self {
            Version::Put(kept) => kept.mod_revision(),
            Version::Tombstone(record) => record.mod_revision(),
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Version::Put(kept) => kept.key(),
            Version::Tombstone(record) => record.key(),
        }
    }

    pub(crate) fn kept(&self) -> Option<&Kept> {
        match self {
            Version::Put(kept) => Some(kept),
            Version::Tombstone(_) => None,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.kept().map_or(0, |kept| kept.bytes() as u64)
    }
}

/// All versions of a key that are still readable, never none.
///
/// Most keys have one version, which lies in the index itself; the key is that version's own.
#[derive(Clone, Debug)]
pub(crate) enum History {
    One(Version),
    Many(Arc<Many>),
}

/// A key's newest version and those before it.
#[derive(Clone, Debug)]
pub(crate) struct Many {
    newest: Version,
    older: Older,
}

/// Ascending; every version here is older than the newest.
#[derive(Clone, Debug, Default)]
struct Older {
    /// Each of [`CHUNK`] versions, but for the first, which compaction may have cut.
    chunks: Arc<Vec<Arc<Vec<Version>>>>,
    tail: Vec<Version>,
}

impl History {
    pub(crate) fn new(first: Version) -> Self {
        History::One(first)
    }

    /// Adds a version newer than all others.
    pub(crate) fn push(&mut self, version: Version) {
        match self {
            History::One(only) => {
                let mut many = Many {
                    newest: version,
                    older: Older::default(),
                };
                many.older.tail.push(only.clone());
                *self = History::Many(Arc::new(many));
            }
            History::Many(many) => {
                let Many { newest, older } = Arc::make_mut(many);
                older.tail.push(std::mem::replace(newest, version));
                if older.tail.len() >= CHUNK {
                    let full = std::mem::take(&mut older.tail);
                    Arc::make_mut(&mut older.chunks).push(Arc::new(full));
                }
            }
        }
    }

    pub(crate) fn newest(&self) -> &Version {
        match self {
            History::One(only) => only,
            History::Many(many) => &many.newest,
        }
    }

    fn older(&self) -> Option<&Older> {
        match self {
            History::One(_) => None,
            History::Many(many) => Some(&many.older),
        }
    }

    /// The key's version now, unless it is deleted.
    pub(crate) fn live(&self) -> Option<&Kept> {
        self.newest().kept()
    }

    /// The version a read at `revision` sees.
    pub(crate) fn at(&self, revision: Revision) -> Option<&Version> {
        if self.newest().revision() <= revision {
            return Some(self.newest());
        }
        let older = self.older()?;
        last_up_to(&older.tail, revision).or_else(|| {
            let starts_by =
                |chunk: &Arc<Vec<Version>>| chunk.first().is_some_and(|v| v.revision() <= revision);
            let chunk = older.chunks.partition_point(starts_by).checked_sub(1)?;
            last_up_to(older.chunks.get(chunk)?, revision)
        })
    }

    /// The version that exactly this revision made.
    pub(crate) fn exactly(&self, revision: Revision) -> Option<&Version> {
        self.at(revision).filter(|v| v.revision() == revision)
    }

    /// Oldest to newest.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Version> {
        let older = self.older();
        let chunks = older.map(|older| older.chunks.as_slice());
        let chunks = chunks.unwrap_or_default().iter().flat_map(|c| c.iter());
        let tail = older.map(|older| older.tail.as_slice()).unwrap_or_default();
        chunks.chain(tail).chain([self.newest()])
    }

    /// Forgets what no read at or above `floor` sees. Answers the bytes let go, and whether
    /// nothing is left, in which case the key itself may go.
    pub(crate) fn truncate(&mut self, floor: Revision) -> (u64, bool) {
        let gone = match self.at(floor) {
            Some(Version::Tombstone(record)) if record.mod_revision() < floor => {
                record.mod_revision().next()
            }
            Some(seen) => seen.revision(),
            None => return (0, false),
        };
        let mut freed = 0;
        if let History::Many(many) = self {
            let Many { newest, older } = Arc::make_mut(many);
            freed = older.drop_below(gone);
            if older.tail.is_empty() && older.chunks.is_empty() {
                *self = History::One(newest.clone());
            }
        }
        (freed, self.newest().revision() < gone)
    }

    /// Whether truncating at `floor` would change anything; spares a copy of the path.
    pub(crate) fn is_spent(&self, floor: Revision) -> bool {
        if matches!(self, History::One(Version::Put(_))) {
            // Most keys have one version, of which nothing need be read.
            return false;
        }
        let oldest = self.versions().next().unwrap_or(self.newest());
        match self.at(floor) {
            Some(Version::Tombstone(record)) if record.mod_revision() < floor => true,
            Some(seen) => oldest.revision() < seen.revision(),
            None => false,
        }
    }
}

impl Older {
    fn drop_below(&mut self, least: Revision) -> u64 {
        let mut freed = 0;
        let is_old = |version: &Version| version.revision() < least;
        let keeps = |chunk: &Arc<Vec<Version>>| chunk.last().is_none_or(is_old);
        let whole = self.chunks.partition_point(keeps);
        let cuts = self.chunks.get(whole).and_then(|chunk| chunk.first());
        if whole > 0 || cuts.is_some_and(is_old) {
            let chunks = Arc::make_mut(&mut self.chunks);
            for chunk in chunks.drain(..whole) {
                freed += chunk.iter().map(Version::bytes).sum::<u64>();
            }
            if let Some(first) = chunks.first_mut() {
                freed += drain_below(Arc::make_mut(first), least);
            }
        }
        freed + drain_below(&mut self.tail, least)
    }
}

fn drain_below(versions: &mut Vec<Version>, least: Revision) -> u64 {
    let gone = versions.partition_point(|version| version.revision() < least);
    versions.drain(..gone).map(|version| version.bytes()).sum()
}

fn last_up_to(versions: &[Version], revision: Revision) -> Option<&Version> {
    let past = versions.partition_point(|version| version.revision() <= revision);
    versions.get(past.checked_sub(1)?)
}

impl Weigh for History {
    fn weight(&self) -> u64 {
        u64::from(self.live().is_some())
    }

    fn weight_at(&self, at: u64) -> u64 {
        let seen = self.at(Revision::new(at));
        u64::from(seen.is_some_and(|version| version.kept().is_some()))
    }

    fn stamp(&self) -> u64 {
        self.newest().revision().get()
    }
}

impl Keyed for History {
    fn key(&self) -> &[u8] {
        self.newest().key()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeaseId;

    fn put(revision: u64) -> Version {
        let at = Revision::new(revision);
        Version::Put(Kept::Whole(Record::new(
            b"k",
            b"v",
            at,
            at,
            1,
            LeaseId::NONE,
        )))
    }

    fn revisions(history: &History) -> Vec<u64> {
        history.versions().map(|v| v.revision().get()).collect()
    }

    fn example() -> History {
        let mut history = History::new(put(2));
        history.push(put(5));
        history.push(Version::Tombstone(Record::tombstone(
            b"k",
            Revision::new(7),
        )));
        history.push(put(9));
        history
    }

    #[test]
    fn a_key_with_one_version_takes_little_room() {
        // A million of them lie side by side in the leaves of the index.
        assert!(std::mem::size_of::<History>() <= 24);
        assert_eq!(History::new(put(2)).key(), b"k");
    }

    #[test]
    fn the_example_of_the_module_holds() {
        for (floor, left) in [
            (1, vec![2, 5, 7, 9]),
            (4, vec![2, 5, 7, 9]),
            (5, vec![5, 7, 9]),
            (7, vec![7, 9]),
            (8, vec![9]),
            (20, vec![9]),
        ] {
            let mut history = example();
            let spent = history.is_spent(Revision::new(floor));
            let (_, gone) = history.truncate(Revision::new(floor));
            assert_eq!(revisions(&history), left, "floor {floor}");
            assert!(!gone);
            assert_eq!(spent, left.len() < 4, "floor {floor}");
        }
    }

    #[test]
    fn a_tombstone_goes_only_when_the_floor_is_past_it() {
        let mut history = History::new(put(2));
        history.push(Version::Tombstone(Record::tombstone(
            b"k",
            Revision::new(7),
        )));
        assert!(!history.truncate(Revision::new(7)).1);
        assert_eq!(revisions(&history), [7]);
        assert!(history.truncate(Revision::new(8)).1);
    }

    #[test]
    fn long_histories_find_and_forget_like_short_ones() {
        let mut history = History::new(put(10));
        for revision in 1..500 {
            history.push(put(10 + revision * 10));
        }
        let shared = history.clone();
        for revision in 0..6000 {
            let expected = (revision >= 10).then(|| (revision / 10 * 10).min(5000));
            let seen = history.at(Revision::new(revision));
            assert_eq!(seen.map(|v| v.revision().get()), expected);
        }
        for floor in [9, 15, 20, 777, 3205, 4999] {
            history.truncate(Revision::new(floor));
            let least = (floor / 10 * 10).max(10);
            let expected: Vec<u64> = (least / 10..=500).map(|n| n * 10).collect();
            assert_eq!(revisions(&history), expected, "floor {floor}");
        }
        assert_eq!(shared.versions().count(), 500, "a copy is not reached");
    }
}
