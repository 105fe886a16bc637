//! What the sequencer does between writes: end leases, sweep, publish the swept state, checkpoint.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::inbox::Message;
use super::request::{Request, Waiting};
use super::{Sequencer, text_of};
use crate::faults::{Fault, Step, injected, reached};
use crate::recovery::Checkpoint;
use crate::stats::add;
use crate::{Error, Revision};

/// Leases ended in one turn of the loop; each may delete very many keys.
const EXPIRE_STEP: usize = 16;
/// Changes swept in one turn of the loop, which a write may wait for: some ten microseconds.
const SWEEP_STEP: usize = 64;
/// Bytes let go in one turn, for a key may have had very many versions: as long again.
const SWEEP_BYTES: u64 = 32 << 10;
/// Chunks of changes looked at in one turn.
const SWEEP_CHUNKS: usize = 4;

/// How long after one for which there was no room a checkpoint is tried again.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(2);

impl Sequencer {
    /// Queues the end of leases whose time is over.
    pub(super) fn expire(&mut self) {
        let now = self.shared.now();
        for id in self.shared.expiry.lock().due(now, EXPIRE_STEP) {
            reached(Step::Expiring);
            self.queue.push_back(Waiting {
                request: Request::Expire(id),
                permit: None,
                is_second_try: false,
            });
        }
    }

    /// Whether versions below the durable floor are still to be let go.
    pub(super) fn has_sweep(&self) -> bool {
        self.shared.failure.get().is_none() && self.swept_for < self.durable_floor()
    }

    /// How long until it goes on; somebody who waits for its end has it go on at once.
    pub(super) fn sweep_rests(&self) -> Duration {
        if self.defragment_next.is_empty() && !self.was_short_of_space {
            self.sweep_pace.rests(Instant::now())
        } else {
            Duration::ZERO
        }
    }

    fn durable_floor(&self) -> Revision {
        self.shared.view.load().floor
    }

    /// Lets go some of what lies below the floor. Only the durable floor counts: a crash must not
    /// find versions gone that it still promises. Changes at exactly the floor are looked at again
    /// when it rises, since a delete there must stay to be watched.
    pub(super) fn sweep(&mut self) {
        let floor = self.durable_floor();
        if self.swept_for >= floor || !self.sweep_rests().is_zero() {
            return;
        }
        let begun = Instant::now();
        self.sweep_step(floor);
        // What was let go is freed when no reader can see it any more.
        self.refresh_view();
        if self.swept_for >= floor {
            self.sweep_pace.end();
        } else {
            let is_pressing = self.shared.is_nearly_full();
            self.sweep_pace.rest(begun, Instant::now(), is_pressing);
        }
    }

    fn sweep_step(&mut self, floor: Revision) {
        let bytes_after = self.state.bytes.saturating_sub(SWEEP_BYTES);
        let mut mark = self.state.swept;
        let mut left = SWEEP_STEP;
        let chunks = self.shared.log.chunks_from(mark.revision, SWEEP_CHUNKS);
        let chunks = chunks.unwrap_or_default();
        let mut is_over = chunks.is_empty();
        for chunk in &chunks {
            let from_mark = chunk.changes_from(mark.revision);
            for change in from_mark.iter().skip(mark.done) {
                if change.revision > floor {
                    is_over = true;
                    break;
                }
                if left == 0 {
                    break;
                }
                left -= 1;
                let is_greedy = injected(Fault::FloorSweptAway);
                let spent = if is_greedy { floor.next() } else { floor };
                self.state.sweep_oldest(change.key(), spent);
                if self.state.bytes < bytes_after {
                    left = 0;
                }
                if change.revision != mark.revision {
                    mark.revision = change.revision;
                    mark.done = 0;
                }
                mark.done += 1;
            }
            if is_over || left == 0 {
                break;
            }
            // A chunk holds whole revisions, so the next one begins a new one.
            mark.revision = chunk.last.next();
            mark.done = 0;
        }
        is_over |= left > 0 && mark.revision > floor;
        if is_over {
            mark.revision = floor;
            mark.done = 0;
            self.swept_for = floor;
        }
        self.state.swept = mark;
        reached(Step::Sweeping);
        self.is_view_stale = true;
        self.has_swept_since_checkpoint = true;
    }

    /// Shows the swept state to readers when no batch in flight is about to.
    pub(super) fn refresh_view(&mut self) {
        if self.is_view_stale && self.window.is_empty() {
            self.is_view_stale = false;
            self.show(self.state.clone());
        }
    }

    /// Starts a checkpoint in the background when the log has grown enough, when somebody asks for
    /// one, or when space is short and compaction has let something go that only a checkpoint can
    /// leave behind.
    ///
    /// The engine drops what was in the log when the checkpoint before this one ended, so the state
    /// must have all of it: none begins while a batch is unsettled that was in flight then.
    pub(super) fn checkpoint(&mut self) {
        let options = &self.shared.options;
        let is_idle = !self.is_checkpointing && self.closing.is_none();
        let is_idle = is_idle && !self.window.has_marked();
        let has_grown = self.bytes_since_checkpoint >= options.checkpoint_every_bytes;
        let can_shrink = || {
            let is_swept = self.has_swept_since_checkpoint && !self.has_sweep();
            is_swept && (self.was_short_of_space || self.shared.is_nearly_full())
        };
        let is_asked = !self.defragment_next.is_empty() && !self.has_sweep();
        let is_put_off = || self.checkpoint_after.is_some_and(|at| Instant::now() < at);
        if !is_idle || !(has_grown || is_asked || can_shrink()) || (!is_asked && is_put_off()) {
            return;
        }
        self.checkpoint_after = None;
        self.defragment_now.append(&mut self.defragment_next);
        self.bytes_since_checkpoint = 0;
        self.has_swept_since_checkpoint = false;
        self.was_short_of_space = false;
        let shared = Arc::clone(&self.shared);
        let epoch = self.epoch;
        let builder = std::thread::Builder::new().name("sluice-checkpoint".to_owned());
        let spawned = builder.spawn(move || {
            let write = || {
                let state = shared.view();
                reached(Step::Checkpointing);
                let mut chunks = Checkpoint::of(&state, &shared.log);
                let engine = &shared.engine;
                let places = engine.checkpoint_placed(epoch, state.revision, &mut chunks)?;
                chunks.settle(&places);
                if shared.residence.is_some() {
                    // What was there before these events may be in no checkpoint any more, and
                    // would keep an older file.
                    shared.log.slim_through(state.floor);
                }
                reached(Step::Checkpointed);
                engine.trim()
            };
            // The sequencer must hear of its end however it ends, or closing would wait for ever.
            let result = catch_unwind(AssertUnwindSafe(write)).unwrap_or_else(|panic| {
                Err(Error::Stopped {
                    reason: format!("it panicked: {}", text_of(&*panic)),
                })
            });
            shared.inbox.send(Message::Checkpointed(result));
        });
        match spawned {
            Ok(_runs_by_itself) => self.is_checkpointing = true,
            Err(source) => self.checkpointed(Err(Error::Io {
                action: "start the checkpoint's thread".to_owned(),
                source,
            })),
        }
    }

    pub(super) fn checkpointed(&mut self, result: Result<(), Error>) {
        self.is_checkpointing = false;
        self.window.mark();
        for done in self.defragment_now.drain(..) {
            let told = match &result {
                Ok(()) => Ok(()),
                Err(Error::NoSpace) => Err(Error::NoSpace),
                Err(error) => Err(Error::Stopped {
                    reason: error.to_string(),
                }),
            };
            // Whoever asked may have stopped waiting.
            let _gone = done.send(told);
        }
        match result {
            Ok(()) => add(&self.shared.counters.checkpoints, 1),
            Err(error) => {
                if matches!(error, Error::NoSpace) {
                    // What was swept still has to be left out, once there is room for that.
                    self.has_swept_since_checkpoint = true;
                    self.was_short_of_space = true;
                    self.checkpoint_after = Some(Instant::now() + CHECKPOINT_PAUSE);
                }
                add(&self.shared.counters.checkpoints_failed, 1);
                tracing::warn!(%error, "checkpoint failed, the log keeps growing");
            }
        }
    }
}
