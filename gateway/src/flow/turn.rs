//! Waiting for a turn under a rule that has a line.
//!
//! The line itself, its order and its bound are the limit's (`ratelimit`); here is the time that is
//! waited, and what is told to whom. Whoever gives up, or whose client has left, leaves the line by
//! being dropped. A turn that comes in the instant of giving up is taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_ratelimit::{InFlight, Permit, Place};
use tokio::sync::oneshot;

use super::admission::{Admission, Ticket};
use super::live::{LiveState, RuleState};
use super::refuse;
use crate::status::Refusal;

#[cfg(test)]
mod tests;

/// A place in a line, counted as long as it is held.
#[derive(Debug)]
pub(super) struct Turn {
    // Left before nobody listens any more to the call.
    _place: Place,
    called: oneshot::Receiver<Permit>,
    rule: Arc<RuleState>,
    live: Arc<LiveState>,
    count: Arc<InFlight>,
    max: u32,
    limit: String,
}

impl Turn {
    pub(super) fn new(
        (place, called): (Place, oneshot::Receiver<Permit>),
        (rule, live): (&Arc<RuleState>, &Arc<LiveState>),
        (count, max, limit): (Arc<InFlight>, u32, String),
    ) -> Self {
        rule.tally.waited.fetch_add(1, Ordering::Relaxed);
        rule.tally.waiting.fetch_add(1, Ordering::Relaxed);
        Turn {
            _place: place,
            called,
            rule: Arc::clone(rule),
            live: Arc::clone(live),
            count,
            max,
            limit,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.rule.tally.waiting.fetch_sub(1, Ordering::Relaxed);
        self.live.go_on();
    }
}

/// A request that may go on when its turn comes.
#[derive(Debug)]
pub struct Waiting {
    turn: Turn,
    wait: Duration,
    admission: Admission,
}

impl Waiting {
    pub(super) fn new(turn: Turn, wait: Duration, admission: Admission) -> Self {
        Waiting {
            turn,
            wait,
            admission,
        }
    }

    /// Waits, as long as the rule lets it.
    ///
    /// # Errors
    /// The turn did not come in time: the [`Refusal`] of the limit. `now` is when it is asked.
    ///
    /// # Cancellation
    /// Dropping the future leaves the line; a turn that was given already goes to the next.
    pub async fn turn(mut self, now: impl FnOnce() -> Instant) -> Result<Admission, Refusal> {
        let called = tokio::time::timeout(self.wait, &mut self.turn.called).await;
        match called {
            Ok(Ok(permit)) => Ok(self.go_on(permit)),
            // In time or never.
            Ok(Err(_)) | Err(_) => match self.turn.called.try_recv() {
                Ok(permit) => Ok(self.go_on(permit)),
                Err(_) => Err(self.give_up(now())),
            },
        }
    }

    fn go_on(mut self, permit: Permit) -> Admission {
        let ticket = Ticket::new(&self.turn.rule, false, permit);
        self.admission.add(ticket);
        self.admission
    }

    /// Does not wait any longer.
    #[must_use]
    pub fn give_up(self, now: Instant) -> Refusal {
        let Turn {
            rule,
            live,
            count,
            max,
            limit,
            ..
        } = &self.turn;
        let at = live.moment(now);
        let rejection = count.reject(*max, at, live.noise(at));
        rule.count_refusal(rejection.reason);
        refuse::by_limit(&rule.id, limit, &rejection)
    }
}
