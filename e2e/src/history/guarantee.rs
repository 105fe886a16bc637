//! The guarantees by name, and what a report says of those that do not hold.

use std::collections::BTreeMap;
use std::fmt;

/// Violations of one guarantee that are kept; further ones are only counted, since one fault
/// breaks hundreds of answers.
const KEPT_MAX: usize = 4;

/// What the store promises; `Display` is the name, [`Guarantee::sentence`] the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the sentences are the documentation")]
pub enum Guarantee {
    AcknowledgedWrites,
    RevisionUnique,
    OwnRevision,
    Dense,
    WriteOrigin,
    Responses,
    Paging,
    Refusals,
    RealTime,
    RestartRevision,
    LeaseAtomic,
    LeaseDetach,
    LeaseEarly,
    LeaseEnds,
    LeaseSurvives,
    CompactionFloor,
    WatchOrdered,
    WatchUnique,
    WatchAtomic,
    WatchReliable,
    WatchResumable,
    WatchBookmarkable,
    WatchFilter,
    WatchPrevKv,
    WatchCreate,
}

impl Guarantee {
    /// All of them.
    pub const ALL: [Guarantee; 25] = [
        Guarantee::AcknowledgedWrites,
        Guarantee::RevisionUnique,
        Guarantee::OwnRevision,
        Guarantee::Dense,
        Guarantee::WriteOrigin,
        Guarantee::Responses,
        Guarantee::Paging,
        Guarantee::Refusals,
        Guarantee::RealTime,
        Guarantee::RestartRevision,
        Guarantee::LeaseAtomic,
        Guarantee::LeaseDetach,
        Guarantee::LeaseEarly,
        Guarantee::LeaseEnds,
        Guarantee::LeaseSurvives,
        Guarantee::CompactionFloor,
        Guarantee::WatchOrdered,
        Guarantee::WatchUnique,
        Guarantee::WatchAtomic,
        Guarantee::WatchReliable,
        Guarantee::WatchResumable,
        Guarantee::WatchBookmarkable,
        Guarantee::WatchFilter,
        Guarantee::WatchPrevKv,
        Guarantee::WatchCreate,
    ];

    /// Its name and the promise.
    #[must_use]
    pub fn parts(self) -> (&'static str, &'static str) {
        match self {
            Guarantee::AcknowledgedWrites => (
                "acknowledged-writes",
                "an acknowledged write is in the history at its revision, whole",
            ),
            Guarantee::RevisionUnique => ("revision-unique", "no revision is given to two writes"),
            Guarantee::OwnRevision => (
                "own-revision",
                "the answer to a write carries the revision of that write",
            ),
            Guarantee::Dense => (
                "dense",
                "each effective write takes the next revision; reads and lost compares take none",
            ),
            Guarantee::WriteOrigin => (
                "write-origin",
                "each revision is the work of one request or of one lease's end",
            ),
            Guarantee::Responses => (
                "responses",
                "an answer is what the model gives at the answer's revision",
            ),
            Guarantee::Paging => (
                "paging",
                "count is the whole range's, limit is obeyed, more says whether it cut",
            ),
            Guarantee::Refusals => (
                "refusals",
                "a request is refused for a reason that holds, in etcd's words",
            ),
            Guarantee::RealTime => (
                "real-time",
                "no answer is older than one completed before it began",
            ),
            Guarantee::RestartRevision => (
                "restart-revision",
                "the revision never goes back over a restart",
            ),
            Guarantee::LeaseAtomic => (
                "lease-atomic",
                "the end of a lease deletes all its keys in one revision",
            ),
            Guarantee::LeaseDetach => (
                "lease-detach",
                "a key put again goes with its new lease and not with the former one",
            ),
            Guarantee::LeaseEarly => (
                "lease-early",
                "no lease expires before its time to live is over",
            ),
            Guarantee::LeaseEnds => (
                "lease-ends",
                "a lease that is not renewed ends soon after its time",
            ),
            Guarantee::LeaseSurvives => ("lease-survives", "a lease survives a restart"),
            Guarantee::CompactionFloor => (
                "compaction-floor",
                "history is refused below the compacted revision alone, and the floor never falls",
            ),
            Guarantee::WatchOrdered => (
                "watch-ordered",
                "events come by revision, and within one in the order made",
            ),
            Guarantee::WatchUnique => ("watch-unique", "no event comes twice"),
            Guarantee::WatchAtomic => (
                "watch-atomic",
                "events of one revision come in one response",
            ),
            Guarantee::WatchReliable => (
                "watch-reliable",
                "no event is left out between two that came",
            ),
            Guarantee::WatchResumable => (
                "watch-resumable",
                "a watch begins with the first event at or after its start",
            ),
            Guarantee::WatchBookmarkable => (
                "watch-bookmarkable",
                "after a progress notice no event at or before its revision follows",
            ),
            Guarantee::WatchFilter => (
                "watch-filter",
                "only events of the range and of the kinds asked for come",
            ),
            Guarantee::WatchPrevKv => (
                "watch-prev-kv",
                "the previous value is what was there before",
            ),
            Guarantee::WatchCreate => (
                "watch-create",
                "create revision and version say exactly when the key's life began",
            ),
        }
    }

    /// The promise.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        self.parts().1
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.parts().0)
    }
}

/// One thing that should not have happened, with the operations and revisions involved.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What was broken.
    pub guarantee: Guarantee,
    /// How.
    pub what: String,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    kept: BTreeMap<Guarantee, Vec<Violation>>,
    counts: BTreeMap<Guarantee, usize>,
}

impl Report {
    pub(super) fn add(&mut self, guarantee: Guarantee, what: impl Into<String>) {
        *self.counts.entry(guarantee).or_default() += 1;
        let kept = self.kept.entry(guarantee).or_default();
        if kept.len() < KEPT_MAX {
            let what = what.into();
            kept.push(Violation { guarantee, what });
        }
    }

    /// Whether every guarantee held.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    /// The guarantees that were broken.
    #[must_use]
    pub fn broken(&self) -> Vec<Guarantee> {
        self.counts.keys().copied().collect()
    }

    /// Whether this one was.
    #[must_use]
    pub fn has(&self, guarantee: Guarantee) -> bool {
        self.counts.contains_key(&guarantee)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return f.write_str("every guarantee held");
        }
        for (guarantee, count) in &self.counts {
            writeln!(f, "{guarantee} ({}): {count} times", guarantee.sentence())?;
            for violation in self.kept.get(guarantee).into_iter().flatten() {
                writeln!(f, "    {}", violation.what)?;
            }
        }
        Ok(())
    }
}
