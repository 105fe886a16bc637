//! Which revision changed which keys, noted while they are read back.
//!
//! The log of changes is made from these. To look for them in the index afterwards would read every
//! version once more from memory, of which most of the way to a running store consists; so the keys are
//! copied one behind the other as they come by, and only those are put in the order of revisions. They
//! take a key's bytes and some twenty for each version, until the log is made.

use crate::Revision;
use crate::codec::{Reader, put_varint};

/// Changes as they came, of a checkpoint key by key and then of the log as they were made.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Each behind its length.
    keys: Vec<u8>,
    /// Revision, and where the key lies.
    list: Vec<(Revision, usize)>,
}

impl Changes {
    pub(super) fn note(&mut self, revision: Revision, key: &[u8]) {
        self.list.push((revision, self.keys.len()));
        put_varint(&mut self.keys, key.len() as u64);
        self.keys.extend_from_slice(key);
    }

    /// Forgets those below a revision and puts the others in order; within a revision they stay as
    /// they came.
    pub(super) fn settle(&mut self, floor: Revision) {
        self.list.retain(|(revision, _)| *revision >= floor);
        // Stable; and what was written in key order comes as runs.
        self.list.sort_by_key(|(revision, _)| *revision);
    }

    /// The changes of each revision, with it.
    pub(super) fn by_revision(
        &self,
    ) -> impl Iterator<Item = (Revision, impl ExactSizeIterator<Item = &[u8]> + Clone)> {
        let revisions = self.list.chunk_by(|one, two| one.0 == two.0);
        revisions.map(|made| {
            let revision = made.first().map_or(Revision::ZERO, |first| first.0);
            (revision, made.iter().map(|(_, at)| self.key(*at)))
        })
    }

    fn key(&self, at: usize) -> &[u8] {
        let rest = self.keys.get(at..).unwrap_or_default();
        // It was written here.
        Reader::new(rest).slice().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_by_revision_and_within_one_as_noted() {
        let mut changes = Changes::default();
        let noted = [
            (4, "/a"),
            (2, "/b"),
            (3, "/b"),
            (3, "/c"),
            (5, "/z"),
            (5, "/a"),
        ];
        for (revision, key) in noted {
            changes.note(Revision::new(revision), key.as_bytes());
        }
        changes.settle(Revision::new(3));
        let found: Vec<(u64, Vec<&[u8]>)> = changes
            .by_revision()
            .map(|(revision, keys)| (revision.get(), keys.collect()))
            .collect();
        let expected: [(u64, Vec<&[u8]>); 3] = [
            (3, vec![b"/b", b"/c"]),
            (4, vec![b"/a"]),
            (5, vec![b"/z", b"/a"]),
        ];
        assert_eq!(found, expected);
    }
}
