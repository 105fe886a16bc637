//! Batches handed to the engine and not yet settled, oldest first, and what their outcomes call
//! for.
//!
//! ```text
//! sent -> durable                publish it, and on to the next
//!      -> no space               once all behind it are refused too: undo them all
//!      -> uncertain              once all behind it are known: send it again, alone
//!      -> fenced, failed         stop for good
//! ```
//!
//! The head holds everything behind it back: nothing is visible out of order. It decides and does
//! nothing itself; the sequencer acts.

use std::collections::VecDeque;
use std::time::Instant;

use super::request::Decided;
use crate::cold::Kept;
use crate::engine::{AppendOutcome, Batch, Place};
use crate::events::log::Chunk;
use crate::state::State;

/// Batches in flight at once: one being synced, one that the engine may take next, and room for
/// the sequencer to fill a third. More would only make batches smaller.
pub(crate) const IN_FLIGHT_MAX: usize = 3;

/// One batch on its way.
pub(crate) struct InFlight {
    /// Matches an outcome to the append it is of.
    pub(crate) token: u64,
    /// When it was handed over first.
    pub(crate) sent: Instant,
    pub(crate) batch: Batch,
    /// What readers see once it is durable.
    pub(crate) state: State,
    pub(crate) chunk: Option<Chunk>,
    /// Values that may leave the memory once it is durable, and where in the payload they lie.
    pub(crate) puts: Vec<(Kept, u64)>,
    /// Where the payload lies, when the engine has said so.
    pub(crate) place: Option<Place>,
    pub(crate) decided: Vec<Decided>,
    pub(crate) phase: Phase,
    /// An append of it was uncertain: it may be in the log whatever a later append says.
    pub(crate) is_doubted: bool,
}

/// Where a batch stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// To be sent again, in its turn.
    Held,
    /// With the engine.
    Sent,
    /// The engine has answered.
    Known(AppendOutcome),
}

/// What to do about the head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing until the engine says more.
    Wait,
    /// It is durable: make it visible.
    Publish,
    /// It and all behind it were refused for want of space: take them back.
    Undo,
    /// Nobody knows: send it again after a pause.
    Doubt(String),
    /// It follows one that was doubted and is settled now: send it again at once.
    Resend,
    /// There will be no more writes.
    Stop(String),
}

/// The batches in flight.
#[derive(Default)]
pub(crate) struct Window {
    pub(crate) batches: VecDeque<InFlight>,
    /// How many at the front were there at the last [`Window::mark`].
    marked: usize,
}

impl Window {
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Marks what is in flight: the engine may have it already.
    pub(crate) fn mark(&mut self) {
        self.marked = self.batches.len();
    }

    /// Whether something marked is still in flight.
    pub(crate) fn has_marked(&self) -> bool {
        self.marked > 0
    }

    /// Takes out the head, which is durable.
    pub(crate) fn pop(&mut self) -> Option<InFlight> {
        self.marked = self.marked.saturating_sub(1);
        self.batches.pop_front()
    }

    /// Takes out everything.
    pub(crate) fn drain(&mut self) -> Vec<InFlight> {
        self.marked = 0;
        self.batches.drain(..).collect()
    }

    /// Whether another batch may be sent: not while the head is in doubt.
    pub(crate) fn has_room(&self) -> bool {
        self.batches.len() < IN_FLIGHT_MAX && !self.batches.iter().any(|b| b.is_doubted)
    }

    /// Notes an outcome.
    pub(crate) fn report(&mut self, token: u64, outcome: AppendOutcome, place: Option<Place>) {
        let batch = self.batches.iter_mut().find(|b| b.token == token);
        if let Some(batch) = batch {
            batch.place = place;
            batch.phase = Phase::Known(outcome);
        }
    }

    /// What the outcomes known so far call for.
    pub(crate) fn verdict(&self) -> Verdict {
        let Some(head) = self.batches.front() else {
            return Verdict::Wait;
        };
        let outcome = match &head.phase {
            Phase::Held => return Verdict::Resend,
            Phase::Sent => return Verdict::Wait,
            Phase::Known(outcome) => outcome,
        };
        let behind = || self.batches.iter().skip(1);
        let all_known = behind().all(|batch| batch.phase != Phase::Sent);
        match outcome {
            AppendOutcome::Durable => Verdict::Publish,
            AppendOutcome::Fenced => Verdict::Stop("another holder took the lock".to_owned()),
            AppendOutcome::Failed { reason } => Verdict::Stop(reason.clone()),
            _ if !all_known => Verdict::Wait,
            AppendOutcome::NoSpace if !head.is_doubted => Verdict::Undo,
            AppendOutcome::NoSpace => Verdict::Doubt("no room to settle it".to_owned()),
            AppendOutcome::Uncertain { reason } => Verdict::Doubt(reason.clone()),
        }
    }

    /// Everything is to be sent again, the head first.
    pub(crate) fn doubt_all(&mut self) {
        for batch in &mut self.batches {
            batch.is_doubted = true;
            batch.phase = Phase::Held;
        }
    }
}
