//! Acting on what became of a batch: publish, undo, send again, or stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::inbox::Message;
use super::request::{Answer, Decided, Request};
use super::window::{InFlight, Phase, Verdict};
use super::{Resend, Sequencer};
use crate::cold::Kept;
use crate::engine::{AppendOutcome, Batch, Place};
use crate::events::log::Chunk;
use crate::faults::{Fault, Step, injected, reached};
use crate::state::State;
use crate::stats::add;
use crate::store::Shared;
use crate::{Error, Revision};

/// The first pause before an uncertain batch is sent again; each further one is twice as long.
const RESEND_PAUSE: Duration = Duration::from_millis(10);
/// The longest: an engine that comes back is noticed within it.
const RESEND_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Up to so many answers are waited for by the sequencer itself: to hand them to the log's thread
/// and to be woken by it costs two changes of threads. With more, the next batch is better filled
/// while this one is synced.
const ALONE_ANSWERS: usize = 4;
/// A write of more takes longer than that.
const ALONE_BYTES: usize = 64 << 10;
/// How long an expired lease waits for space when there was none to record its end.
const EXPIRE_PAUSE: Duration = Duration::from_secs(1);

/// An append whose outcome the engine has yet to say. One that is let go without a word (its thread
/// panicked) is as good as failed: nobody knows whether it was written.
struct Unsaid {
    /// Taken when it is said.
    shared: Option<Arc<Shared>>,
    token: u64,
}

impl Unsaid {
    fn say(&mut self, outcome: AppendOutcome, place: Option<Place>) {
        if let Some(shared) = self.shared.take() {
            let message = Message::Outcome(self.token, outcome, place);
            shared.inbox.send(message);
        }
    }
}

impl Drop for Unsaid {
    fn drop(&mut self) {
        let reason = "the engine let an append go without saying what became of it".to_owned();
        self.say(AppendOutcome::Failed { reason }, None);
    }
}

impl Sequencer {
    pub(super) fn send_new(
        &mut self,
        batch: Batch,
        chunk: Option<Chunk>,
        puts: Vec<(Kept, u64)>,
        decided: Vec<Decided>,
    ) {
        self.bytes_since_checkpoint += batch.payload.len() as u64;
        let is_small = decided.len() <= ALONE_ANSWERS && batch.payload.len() <= ALONE_BYTES;
        let now = if is_small && self.window.is_empty() && self.queue.is_empty() {
            // Nobody who has their answer waits for this one's.
            self.round.ring();
            self.shared.engine.append_now(self.epoch, &batch)
        } else {
            None
        };
        let (token, place, phase) = match now {
            Some((outcome, place)) => (self.next_token(), place, Phase::Known(outcome)),
            None => (self.append(batch.clone()), None, Phase::Sent),
        };
        self.window.batches.push_back(InFlight {
            token,
            sent: Instant::now(),
            batch,
            state: self.state.clone(),
            chunk,
            puts,
            place,
            decided,
            phase,
            is_doubted: false,
        });
    }

    fn next_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    fn append(&mut self, batch: Batch) -> u64 {
        let token = self.next_token();
        let mut unsaid = Unsaid {
            shared: Some(Arc::clone(&self.shared)),
            token,
        };
        let done = move |outcome, place| unsaid.say(outcome, place);
        let engine = &self.shared.engine;
        engine.append_placed(self.epoch, batch, Box::new(done));
        token
    }

    /// Acts on outcomes, in order, until the head of the window waits for the engine again.
    pub(super) fn settle(&mut self) {
        loop {
            match self.window.verdict() {
                Verdict::Wait => return,
                Verdict::Publish => {
                    if let Some(head) = self.window.pop() {
                        self.publish(head);
                    }
                    self.resend = None;
                }
                Verdict::Undo => self.undo(),
                Verdict::Stop(reason) => self.stop(reason),
                Verdict::Doubt(reason) if self.closing.is_some() => self.stop(reason),
                Verdict::Doubt(reason) => {
                    tracing::warn!(reason, "outcome of a batch is unknown, it is sent again");
                    add(&self.shared.counters.uncertain, 1);
                    self.window.doubt_all();
                    let pause = self.resend.map_or(RESEND_PAUSE, |last| last.pause * 2);
                    let pause = pause.min(RESEND_PAUSE_MAX);
                    let at = Instant::now() + pause;
                    self.resend = Some(Resend { at, pause });
                }
                Verdict::Resend => {
                    if self.resend.is_some_and(|resend| Instant::now() < resend.at) {
                        return;
                    }
                    self.send_head_again();
                }
            }
        }
    }

    fn send_head_again(&mut self) {
        let Some(batch) = self.window.batches.front().map(|head| head.batch.clone()) else {
            return;
        };
        let token = self.append(batch);
        if let Some(head) = self.window.batches.front_mut() {
            head.token = token;
            head.phase = Phase::Sent;
        }
    }

    /// Makes a durable batch visible, then answers. The order matters: changes are in the log
    /// before the state that has them, and both before anybody is told.
    fn publish(&mut self, head: InFlight) {
        reached(Step::Durable);
        add(&self.shared.counters.batches, 1);
        if let Some(payload) = head.place {
            for (put, at) in &head.puts {
                put.move_to(payload.after(*at));
            }
        }
        let mask = head.chunk.as_ref().map_or(0, |chunk| chunk.mask);
        if let Some(chunk) = head.chunk {
            self.shared.log.push(chunk);
        }
        let floor = self.shared.view.load().floor;
        if head.state.floor > floor {
            reached(Step::FloorDurable);
            self.shared.log.bury(floor, head.state.floor);
        }
        let is_new = head.state.revision > self.visible;
        self.visible = head.state.revision;
        self.show(head.state);
        reached(Step::Shown);
        self.shared.counters.commits.add(head.sent.elapsed());
        self.begin_and_end_leases(&head.decided);
        if is_new {
            self.shared.newest.send_replace(self.visible);
            self.shared.log.ring(mask);
        }
        for mut decided in head.decided {
            if injected(Fault::BatchRevision) {
                decided.settle_at(self.visible);
            }
            decided.say(&mut self.round);
        }
        self.pass_on();
        reached(Step::Answered);
    }

    /// Lets the answers go to their readers. With nothing else to do, it brings them itself.
    fn pass_on(&mut self) {
        let is_busy = !self.window.is_empty() || !self.queue.is_empty();
        if is_busy || !self.shared.inbox.is_empty() {
            self.round.ring();
        } else {
            self.round.bring();
        }
    }

    /// Stores what readers see, and forgets the changes that no longer can be asked for.
    pub(super) fn show(&mut self, state: State) {
        let least = state.swept.revision.min(state.floor);
        let is_lower = self.shared.view.load().swept.revision < least;
        self.shared.view.store(Arc::new(state));
        if is_lower {
            self.shared.log.drop_below(least);
        }
    }

    fn begin_and_end_leases(&self, decided: &[Decided]) {
        let mut expiry = None;
        for decided in decided {
            match (&decided.waiting.request, &decided.answer) {
                (Request::Grant(..), Answer::Granted(id, ttl)) => {
                    let now = self.shared.now();
                    let expiry = expiry.get_or_insert_with(|| self.shared.expiry.lock());
                    expiry.grant(*id, *ttl, now);
                }
                (request @ (Request::Revoke(id, _) | Request::Expire(id)), _) => {
                    if matches!(request, Request::Expire(_)) {
                        add(&self.shared.counters.expired, 1);
                    }
                    let expiry = expiry.get_or_insert_with(|| self.shared.expiry.lock());
                    if self.shared.view.load().lease(*id).is_none() {
                        expiry.forget(*id);
                    }
                }
                _ => {}
            }
        }
    }

    /// Nothing of the window was written: the assigned state goes back to the visible one, so that
    /// the same revisions are given again. What grew is refused; the rest is tried once more,
    /// without it.
    fn undo(&mut self) {
        self.state = State::clone(&self.shared.view());
        self.swept_for = Revision::ZERO;
        self.was_short_of_space = true;
        let undone = self.window.drain();
        add(&self.shared.counters.undone, undone.len());
        self.shared.engine.resume(self.epoch);
        let mut again = Vec::new();
        for decided in undone.into_iter().flat_map(|batch| batch.decided) {
            let mut waiting = decided.waiting;
            if let Request::Expire(id) = waiting.request {
                let until = self.shared.now() + EXPIRE_PAUSE;
                self.shared.expiry.lock().put_off(id, until);
            } else if decided.grows || waiting.is_second_try {
                waiting.refuse(Error::NoSpace);
            } else {
                waiting.is_second_try = true;
                again.push(waiting);
            }
        }
        // They get a batch of their own, ahead of whatever grows next.
        for waiting in again.into_iter().rev() {
            self.queue.push_front(waiting);
        }
    }

    /// No more writes. What was sent may be there; what was only queued is not.
    pub(super) fn stop(&mut self, reason: String) {
        tracing::error!(reason, "the store takes no more writes");
        let _earlier = self.shared.failure.set(reason.clone());
        let mut is_lost = false;
        for batch in self.window.drain() {
            let is_fenced = batch.phase == Phase::Known(AppendOutcome::Fenced);
            is_lost |= is_fenced && !batch.is_doubted;
            for decided in batch.decided {
                let reason = reason.clone();
                decided.waiting.refuse(if is_lost {
                    Error::Stopped { reason }
                } else {
                    Error::Uncertain { reason }
                });
            }
        }
        self.state = State::clone(&self.shared.view());
        self.resend = None;
        self.shared.log.ring_all();
    }
}
