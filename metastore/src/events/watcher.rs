//! A watcher: a range and a cursor, nothing more.
//!
//! It has no queue. Whoever holds it pulls whole revisions from the log of changes at their own
//! pace; a slow one costs nothing but the history it still wants, and that is bounded by
//! compaction: once overtaken it gets `Compacted`, never a gap.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::futures::OwnedNotified;

use super::catch_up::{Missing, Reading};
use super::family::Family;
use super::log::{Chunk, Held, Stored};
use super::{Change, Event, EventBatch, Watch};
use crate::cold::Kept;
use crate::faults::{Fault, injected};
use crate::index::Version;
use crate::state::State;
use crate::store::Shared;
use crate::{Error, KeyRange, Record, Revision};

/// Events after which a batch ends at the next whole revision: enough to fill a large frame, small
/// enough that a catching-up watcher does not hold a core for long.
const BATCH_EVENTS: usize = 512;
/// Changes looked at in one call before it gives its thread back (about a millisecond).
const LOOK_MAX: usize = 16 * 1024;
/// Chunks copied out of the log at a time.
const CHUNKS: usize = 64;

/// A cursor over the changes of a range; dropping it is all there is to cancelling.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    range: KeyRange,
    family: Option<Family>,
    want_previous: bool,
    /// Events up to here come without what was there before, as the floor stood at the beginning.
    bare_through: Revision,
    /// The next revision to hand on.
    next: Revision,
    /// Events up to where the cursor goes next, some of whose values are being read.
    reading: Option<Reading>,
}

/// A wait for what may concern one watch; see [`Watcher::bell`]. It may ring for nothing.
#[derive(Debug)]
#[must_use = "a bell does nothing unless it is awaited"]
pub struct Bell(Option<Pin<Box<OwnedNotified>>>);

impl Future for Bell {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(bell) => bell.as_mut().poll(cx),
            // Every family has a slot, so this is not reached; ringing at once is safe.
            None => Poll::Ready(()),
        }
    }
}

impl Watcher {
    pub(crate) fn open(shared: Arc<Shared>, watch: Watch) -> Result<Self, Error> {
        let state = shared.view();
        let mut next = watch.start.unwrap_or(state.revision.next());
        if injected(Fault::FutureWatchTold) {
            next = next.min(state.revision.next());
        }
        if injected(Fault::ResumeSkips) && next <= state.revision {
            next = next.next();
        }
        if next < state.floor {
            return Err(compacted(next, &state));
        }
        Ok(Watcher {
            family: Family::of_range(&watch.range),
            range: watch.range,
            want_previous: watch.want_previous,
            bare_through: state.floor,
            next,
            reading: None,
            shared,
        })
    }

    /// Every event of this watch up to here has been handed out. For a watch that starts in the
    /// future this is the revision before its start, which the store has not reached.
    ///
    /// It moves only when [`Watcher::next`] or [`Watcher::poll_now`] is called.
    #[must_use]
    pub fn through(&self) -> Revision {
        self.next.prev()
    }

    /// Rings once something that may concern this watch becomes visible after this call, or the
    /// store stops. For whoever holds many watchers: take the bell, then [`Watcher::poll_now`],
    /// then wait, and nothing is missed in between.
    pub fn bell(&self) -> Bell {
        Bell(self.shared.log.owned_bell(self.family).map(Box::pin))
    }

    /// Waits for at least one event and hands on whole revisions.
    ///
    /// # Errors
    /// `Compacted` when compaction overtook the cursor, `Stopped` when the store has stopped and
    /// everything visible was handed on.
    ///
    /// # Cancellation
    /// Safe: events are taken only by a call that returns them.
    pub async fn next(&mut self) -> Result<EventBatch, Error> {
        let shared = Arc::clone(&self.shared);
        loop {
            // Listening begins before looking, so that nothing is missed in between.
            let mut bell = std::pin::pin!(shared.log.bell(self.family));
            if let Some(bell) = bell.as_mut().as_pin_mut() {
                bell.enable();
            }
            match self.poll_now()? {
                Some(batch) if !batch.events.is_empty() => return Ok(batch),
                Some(_) => {
                    tokio::task::yield_now().await;
                    continue;
                }
                None => shared.check_running()?,
            }
            if let Some(bell) = bell.as_pin_mut() {
                bell.await;
            }
        }
    }

    /// What is there already, without waiting. `None` means the watch has everything visible, and
    /// [`Watcher::through`] says up to where, or that values are being read back, in which case the
    /// bell rings once they are there; a batch without events means there is more to look at.
    ///
    /// # Errors
    /// `Compacted` when compaction overtook the cursor; `Corrupt` or `Io` when a value cannot be
    /// read back.
    pub fn poll_now(&mut self) -> Result<Option<EventBatch>, Error> {
        if let Some(reading) = &self.reading {
            let Some(read) = reading.take() else {
                return Ok(None);
            };
            self.reading = None;
            let batch = read?;
            self.next = batch.through.next();
            return Ok(Some(batch));
        }
        let begin = self.next;
        let mut missing = Missing::default();
        let found = self.look(&mut missing)?;
        let batch = match found {
            Some(batch) if !missing.is_empty() => batch,
            found => return Ok(found),
        };
        self.next = begin;
        self.reading = Some(Reading::begin(&self.shared, self.family, batch, missing));
        // Without a runtime it was read on the spot.
        self.poll_now()
    }

    /// Moves the cursor; events whose values have left the memory lack them, and are told.
    fn look(&mut self, missing: &mut Missing) -> Result<Option<EventBatch>, Error> {
        let state = self.shared.view();
        if self.next > state.revision {
            return Ok(None);
        }
        if self.shared.log.is_quiet(self.family, self.next) {
            self.next = state.revision.next();
            return Ok(None);
        }
        if self.next < state.floor {
            if self.shared.log.is_overtaken(self.family, self.next) {
                return Err(compacted(self.next, &state));
            }
            // It slept while others' changes were given up.
            self.next = state.floor;
        }
        let mut events = Vec::new();
        let mut looked = 0;
        let mut is_full = false;
        while self.next <= state.revision && !is_full {
            let Some(chunks) = self.shared.log.chunks_from(self.next, CHUNKS) else {
                return self.overtaken(events);
            };
            if chunks
                .first()
                .is_none_or(|first| first.first > state.revision)
            {
                // Revisions without a change are rare: those before the first write, and those that
                // a restore raised the store by. What follows them is not visible yet.
                self.next = state.revision.next();
            }
            for chunk in &chunks {
                if chunk.first > state.revision {
                    break;
                }
                looked += self.scan(chunk, &state, &mut events, missing)?;
                is_full = events.len() >= BATCH_EVENTS || looked >= LOOK_MAX || missing.is_much();
                if is_full {
                    break;
                }
            }
        }
        if events.is_empty() && self.next > state.revision {
            return Ok(None);
        }
        let through = self.through();
        Ok(Some(EventBatch { events, through }))
    }

    /// The log ends above the cursor: hand on what was found, and the error with the next call.
    fn overtaken(&self, events: Vec<Event>) -> Result<Option<EventBatch>, Error> {
        if events.is_empty() {
            return Err(compacted(self.next, &self.shared.view()));
        }
        let through = self.through();
        Ok(Some(EventBatch { events, through }))
    }

    /// Takes what matches out of one chunk, up to a whole revision; answers how much it looked at.
    fn scan(
        &mut self,
        chunk: &Chunk,
        state: &State,
        events: &mut Vec<Event>,
        missing: &mut Missing,
    ) -> Result<usize, Error> {
        if self
            .family
            .is_some_and(|family| family.mask() & chunk.mask == 0)
        {
            self.next = chunk.last.min(state.revision).next();
            return Ok(1);
        }
        let mut looked = 0;
        for stored in chunk.changes_from(self.next).iter() {
            // Gathered keys may be ahead of what is visible.
            if stored.revision > state.revision {
                break;
            }
            let is_new = stored.revision != self.next.prev();
            if is_new && (events.len() >= BATCH_EVENTS || missing.is_much()) {
                self.next = stored.revision;
                return Ok(looked);
            }
            looked += 1;
            if self.wants(stored) {
                let event = self.take(stored, state, events.len(), missing)?;
                let is_lost = stored.revision == self.bare_through
                    && matches!(event.change, Change::Delete { .. });
                if !(is_lost && injected(Fault::DeleteAtFloorLost)) {
                    events.push(event);
                }
            }
            self.next = stored.revision.next();
        }
        self.next = chunk.last.min(state.revision).next();
        Ok(looked)
    }

    fn wants(&self, stored: &Stored) -> bool {
        self.family.is_none_or(|family| family == stored.family)
            && (self.range.contains(stored.key()) || injected(Fault::FilterLeaks))
    }

    /// The event of a change, to be the one at place `at`.
    fn take(
        &self,
        stored: &Stored,
        state: &State,
        at: usize,
        missing: &mut Missing,
    ) -> Result<Event, Error> {
        let wants_previous = self.want_previous && stored.revision > self.bare_through;
        let (change, previous) = match &stored.held {
            Held::Whole(made) => {
                let previous = made.previous.as_ref().filter(|_| wants_previous);
                (made.change.clone(), previous)
            }
            Held::Key(key) => {
                let swept = || compacted(stored.revision, &self.shared.view());
                let history = state.index.get(key).ok_or_else(swept)?;
                let change = match history.exactly(stored.revision).ok_or_else(swept)? {
                    Version::Put(kept) => Change::Put(kept.resident().unwrap_or_else(|| {
                        missing.changed(at, kept);
                        kept.bare()
                    })),
                    Version::Tombstone(record) => Change::Delete {
                        key: record.key_bytes(),
                        revision: record.mod_revision(),
                    },
                };
                let before = || history.at(stored.revision.prev());
                let previous = wants_previous.then(before).flatten();
                (change, previous.and_then(Version::kept))
            }
        };
        let whole = |kept: &Kept| {
            kept.resident().unwrap_or_else(|| {
                missing.previous(at, kept);
                kept.bare()
            })
        };
        let previous = previous.map(whole);
        let mut event = Event { change, previous };
        spoil(&mut event);
        Ok(event)
    }
}

/// Tells an event as stores did that were wrong about it.
fn spoil(event: &mut Event) {
    let Change::Put(record) = &event.change else {
        return;
    };
    if injected(Fault::WrongPrevious) && event.previous.is_some() {
        event.previous = Some(record.clone());
    }
    if injected(Fault::UpdateLooksNew) {
        let at = record.mod_revision();
        let new = Record::new(record.key(), record.value(), at, at, 1, record.lease());
        event.change = Change::Put(new);
    }
}

fn compacted(requested: Revision, state: &State) -> Error {
    Error::Compacted {
        requested,
        compacted: state.floor,
    }
}
