//! Known faults of stores like this one, brought back on purpose: the suites that say the store is
//! right must find each of them.
//!
//! Only with the feature `injected-faults`, which no release build takes. Without it
//! `injected` is a constant `false` and the hooks are compiled to nothing. With it a process
//! has one fault at most, chosen by name when it starts, and one step at most at which it dies.

#[cfg(feature = "injected-faults")]
mod death;
mod step;

pub(crate) use step::Step;

#[cfg(all(feature = "injected-faults", not(debug_assertions)))]
compile_error!(
    "injected-faults breaks the store on purpose: build without it, or without --release"
);

/// A fault; `name` says it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A write is answered before it is on the disk, and a crash takes it back (etcd 14370).
    ReplyBeforeSync,
    /// The first write after a crash takes a revision that was given before (etcd 13766, 14685).
    RevisionReused,
    /// All writes of a batch are answered with the revision of the last.
    BatchRevision,
    /// A lost compare takes a revision, as in `KubeBrain`.
    LostCompareTakes,
    /// A crash leaves half of a transaction.
    HalfOfTransaction,
    /// Progress is told ahead of events (etcd 15220).
    ProgressAhead,
    /// A stream whose client is slow loses events (etcd 17529).
    SlowStreamLoses,
    /// A response comes twice.
    EventsTwice,
    /// Two events change places.
    EventsSwapped,
    /// A watch from a revision misses the first event.
    ResumeSkips,
    /// A delete at the compacted revision is not told to a watch that begins there (etcd 19179).
    DeleteAtFloorLost,
    /// A delete is never told.
    DeleteLost,
    /// The compacted floor is forgotten by a crash (etcd 17780).
    FloorForgotten,
    /// Compaction takes what a read at the floor sees.
    FloorSweptAway,
    /// A watch on the future is told what happens before (etcd 20221).
    FutureWatchTold,
    /// A read is answered from the past (etcd 20418).
    StaleRead,
    /// The previous value is another one.
    WrongPrevious,
    /// An update looks like a create, as in `KubeBrain`.
    UpdateLooksNew,
    /// The events of a revision come in several responses.
    RevisionSplit,
    /// Events of keys outside of the range come.
    FilterLeaks,
    /// A lease's keys go in a revision each.
    ExpiryInParts,
    /// A key put on another lease still goes with the first.
    PutDoesNotDetach,
    /// A lease ends at half of its time.
    LeaseEarly,
    /// A restart forgets leases.
    LeaseForgotten,
    /// The count is that of the page, as in `kine`.
    CountIsPage,
    /// The compacted error has another text.
    WrongText,
}

impl Fault {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Fault); 26] = [
        ("reply-before-sync", Fault::ReplyBeforeSync),
        ("revision-reused", Fault::RevisionReused),
        ("batch-revision", Fault::BatchRevision),
        ("lost-compare-takes-revision", Fault::LostCompareTakes),
        ("half-of-transaction", Fault::HalfOfTransaction),
        ("progress-ahead", Fault::ProgressAhead),
        ("slow-stream-loses", Fault::SlowStreamLoses),
        ("events-twice", Fault::EventsTwice),
        ("events-swapped", Fault::EventsSwapped),
        ("resume-skips", Fault::ResumeSkips),
        ("delete-at-floor-lost", Fault::DeleteAtFloorLost),
        ("delete-lost", Fault::DeleteLost),
        ("floor-forgotten", Fault::FloorForgotten),
        ("floor-swept-away", Fault::FloorSweptAway),
        ("future-watch-told", Fault::FutureWatchTold),
        ("stale-read", Fault::StaleRead),
        ("wrong-previous", Fault::WrongPrevious),
        ("update-looks-new", Fault::UpdateLooksNew),
        ("revision-split", Fault::RevisionSplit),
        ("filter-leaks", Fault::FilterLeaks),
        ("expiry-in-parts", Fault::ExpiryInParts),
        ("put-does-not-detach", Fault::PutDoesNotDetach),
        ("lease-early", Fault::LeaseEarly),
        ("lease-forgotten", Fault::LeaseForgotten),
        ("count-is-page", Fault::CountIsPage),
        ("wrong-text", Fault::WrongText),
    ];

    /// The fault of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Fault> {
        let found = Fault::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, fault)| *fault)
    }
}

#[cfg(feature = "injected-faults")]
pub use death::die_at;
#[cfg(feature = "injected-faults")]
pub(crate) use death::{changing, is_ahead, reached};
#[cfg(feature = "injected-faults")]
pub use on::inject;
#[cfg(feature = "injected-faults")]
pub(crate) use on::{held_back, injected, now_and_then, stale};

#[cfg(not(feature = "injected-faults"))]
pub(crate) use off::{held_back, injected, now_and_then, reached, stale};

/// Nothing is wrong.
#[cfg(not(feature = "injected-faults"))]
mod off {
    use std::sync::Arc;

    use super::{Fault, Step};

    #[inline]
    pub(crate) const fn reached(_step: Step) {}

    #[inline]
    pub(crate) const fn injected(_fault: Fault) -> bool {
        false
    }

    #[inline]
    pub(crate) const fn now_and_then(_fault: Fault) -> bool {
        false
    }

    #[inline]
    pub(crate) fn stale<T>(view: Arc<T>) -> Arc<T> {
        view
    }

    #[inline]
    pub(crate) const fn held_back(_frame: &[u8], _at: u64) -> Option<(Vec<u8>, u64)> {
        None
    }
}

/// One thing may be wrong.
#[cfg(feature = "injected-faults")]
mod on {
    use std::any::Any;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, OnceLock};

    use parking_lot::Mutex;

    use super::Fault;

    static CHOSEN: OnceLock<Fault> = OnceLock::new();
    static CALLS: AtomicU64 = AtomicU64::new(0);
    static FRAME: Mutex<Option<(Vec<u8>, u64)>> = Mutex::new(None);
    static VIEW: Mutex<Option<Arc<dyn Any + Send + Sync>>> = Mutex::new(None);

    /// Of how many calls one goes wrong.
    const EVERY: u64 = 10;

    /// Has this process show a fault from now on; the first one stays.
    pub fn inject(fault: Fault) {
        let _earlier = CHOSEN.set(fault);
    }

    /// Whether this is the fault to show.
    pub(crate) fn injected(fault: Fault) -> bool {
        CHOSEN.get() == Some(&fault)
    }

    /// The same for one call of [`EVERY`].
    pub(crate) fn now_and_then(fault: Fault) -> bool {
        injected(fault) && CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(EVERY)
    }

    /// The view, or now and then the one of some calls ago.
    pub(crate) fn stale<T: Send + Sync + 'static>(view: Arc<T>) -> Arc<T> {
        if !injected(Fault::StaleRead) {
            return view;
        }
        let mut kept = VIEW.lock();
        let old = kept.clone().and_then(|old| old.downcast::<T>().ok());
        if now_and_then(Fault::StaleRead) {
            *kept = Some(Arc::clone(&view) as Arc<dyn Any + Send + Sync>);
            return old.unwrap_or(view);
        }
        view
    }

    /// The frame that was to be written before, in place of this one, which waits for the next.
    pub(crate) fn held_back(frame: &[u8], at: u64) -> Option<(Vec<u8>, u64)> {
        if !injected(Fault::ReplyBeforeSync) {
            return None;
        }
        let now = (frame.to_vec(), at);
        Some(FRAME.lock().replace(now).unwrap_or((Vec::new(), at)))
    }
}
