//! A circuit breaker: whether requests pass at all.
//!
//! ```text
//!              trip by hand, or by outcome
//!    Closed ------------------------------> Open <------------------+
//!       ^ ^                                  |  |                   |
//!       | |      time of a trip by hand ran  |  | time ran out,     | a probe, or the
//!       | |      out                         |  | tripped by        | ramp, failed
//!       | |                                  v  v outcome           |
//!       | +------------------------------- Ramp <--- HalfOpen ------+
//!       |           all of it passes             probes succeeded
//!       +--- reset, from anywhere                      ramp by hand, from anywhere
//! ```
//!
//! Closed costs one atomic read. Only passes of the present phase are judged: an answer to a
//! request that was let through before the trip moves nothing afterwards. The policy is an
//! argument, so a reload changes it and forgets nothing. Outcomes are reported by whoever
//! forwards; a breaker tripped by hand alone never needs any.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::decision::{Reason, Rejection};
use crate::moment::{Moment, nanos};

mod policy;
mod window;

pub use policy::{BreakerPolicy, FailureRatio, Percent, Ramp};
use window::Window;

/// What the refused are told when nobody can say when it will close: soon enough to notice a
/// reset, which no client is told of.
const HINT: Duration = Duration::from_secs(5);

const ALL: u64 = Percent::ALL.basis_points();

/// Why a breaker is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Somebody tripped it, and said why.
    Hand(String),
    /// So many failures came in a row.
    Consecutive(u32),
    /// Too large a share of requests failed.
    Ratio,
    /// A probe failed, half-open.
    Probe,
}

/// What came of a request that was let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It worked, as far as the breaker is concerned.
    Success,
    /// It did not.
    Failure,
}

/// Let through; hand it back with the [`Outcome`]. Dropping it is no outcome: a probe that is
/// never reported is given up after the policy's `open_for`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Pass {
    /// The phase it was let through in, as a number that grows with each change.
    phase: u64,
}

/// See the module's diagram; each arm names its successors.
#[derive(Clone, Debug)]
enum Phase {
    /// Next: `Open` (trip), `Ramp` (by hand).
    Closed,
    /// Next: `HalfOpen` or, tripped by hand, `Ramp` at `until`; `Closed` (reset).
    Open { cause: Cause, until: Option<Moment> },
    /// Next: `Ramp` when all probes succeeded, `Open` when one failed.
    HalfOpen { granted: u32, succeeded: u32 },
    /// Next: `Closed` when `over` has passed, `Open` (trip).
    Ramp(Ramp),
}

/// The breaker's phase as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhaseView {
    /// All pass.
    Closed,
    /// None pass.
    Open {
        /// Why.
        cause: Cause,
        /// For how long from now; `None` until it is reset.
        remaining: Option<Duration>,
    },
    /// Probes pass.
    HalfOpen,
    /// A share passes.
    Ramp {
        /// The share at present.
        admitting: Percent,
        /// Until all pass.
        remaining: Duration,
    },
}

/// A breaker as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerView {
    /// Its phase.
    pub phase: PhaseView,
    /// For how long it has been in it.
    pub since: Duration,
    /// How many it refused since it was made.
    pub refused: u64,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    since: Moment,
    window: Window,
}

/// A breaker, without its policy.
#[derive(Debug)]
pub struct Breaker {
    /// Whether `state.phase` is `Closed`; written under the lock, read without.
    is_closed: AtomicBool,
    /// Grows with each change of phase; written under the lock.
    phase_number: AtomicU64,
    /// Failures without a success between them.
    consecutive: AtomicU32,
    refused: AtomicU64,
    state: Mutex<State>,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker::new()
    }
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub fn new() -> Self {
        Breaker {
            is_closed: AtomicBool::new(true),
            phase_number: AtomicU64::new(0),
            consecutive: AtomicU32::new(0),
            refused: AtomicU64::new(0),
            state: Mutex::new(State {
                phase: Phase::Closed,
                since: Moment::ZERO,
                window: Window::default(),
            }),
        }
    }

    /// Asks to pass. `noise` draws the lot of a ramp.
    ///
    /// # Errors
    /// A [`Rejection`] while it is open, its probes are under way, or the lot fell so.
    pub fn admit(
        &self,
        policy: &BreakerPolicy,
        now: Moment,
        noise: u64,
    ) -> Result<Pass, Rejection> {
        let phase = self.phase_number.load(Ordering::Acquire);
        if self.is_closed.load(Ordering::Acquire) {
            return Ok(Pass { phase });
        }
        let decided = self.admit_slowly(policy, now, noise);
        if decided.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        decided
    }

    fn admit_slowly(
        &self,
        policy: &BreakerPolicy,
        now: Moment,
        noise: u64,
    ) -> Result<Pass, Rejection> {
        let mut state = self.state.lock();
        self.settle_locked(&mut state, policy, now);
        let since = state.since;
        let reject = |retry_after, reason| {
            Err(Rejection {
                retry_after,
                reason,
            })
        };
        match &mut state.phase {
            Phase::Closed => {}
            Phase::Open { until, .. } => {
                let wait = until.map_or(HINT, |until| until.since(now));
                return reject(wait, Reason::BreakerOpen);
            }
            Phase::HalfOpen { granted, .. } => {
                if *granted >= policy.probes.get() {
                    return reject(Duration::from_secs(1), Reason::BreakerHalfOpen);
                }
                *granted += 1;
            }
            Phase::Ramp(ramp) => {
                if noise % ALL >= admitting(ramp, now.since(since)) {
                    return reject(Duration::from_secs(1), Reason::BreakerRamp);
                }
            }
        }
        Ok(Pass {
            phase: self.phase_number.load(Ordering::Acquire),
        })
    }

    /// Says what came of a request that passed.
    pub fn report(&self, policy: &BreakerPolicy, pass: Pass, outcome: Outcome, now: Moment) {
        let is_current = self.phase_number.load(Ordering::Acquire) == pass.phase;
        if !is_current {
            return;
        }
        let is_quiet = outcome == Outcome::Success && policy.ratio.is_none();
        if is_quiet && self.is_closed.load(Ordering::Acquire) {
            if self.consecutive.load(Ordering::Relaxed) != 0 {
                self.consecutive.store(0, Ordering::Relaxed);
            }
            return;
        }
        let mut state = self.state.lock();
        if self.phase_number.load(Ordering::Acquire) == pass.phase {
            self.judge_locked(&mut state, policy, outcome, now);
        }
    }

    fn judge_locked(
        &self,
        state: &mut State,
        policy: &BreakerPolicy,
        outcome: Outcome,
        now: Moment,
    ) {
        let is_failure = outcome == Outcome::Failure;
        let until = Some(now + policy.open_for);
        match &mut state.phase {
            Phase::Open { .. } => {}
            Phase::HalfOpen { .. } if is_failure => {
                let cause = Cause::Probe;
                self.enter_locked(state, Phase::Open { cause, until }, now);
            }
            Phase::HalfOpen { succeeded, .. } => {
                *succeeded += 1;
                if *succeeded >= policy.probes.get() {
                    self.enter_locked(state, Phase::Ramp(policy.ramp), now);
                }
            }
            Phase::Closed | Phase::Ramp(_) => {
                if let Some(cause) = self.count_locked(state, policy, is_failure, now) {
                    self.enter_locked(state, Phase::Open { cause, until }, now);
                }
            }
        }
    }

    fn count_locked(
        &self,
        state: &mut State,
        policy: &BreakerPolicy,
        is_failure: bool,
        now: Moment,
    ) -> Option<Cause> {
        let in_row = if is_failure {
            self.consecutive.load(Ordering::Relaxed).saturating_add(1)
        } else {
            0
        };
        self.consecutive.store(in_row, Ordering::Relaxed);
        let ratio = policy.ratio.as_ref();
        let by_ratio = ratio.is_some_and(|rule| state.window.count(rule, is_failure, now));
        if policy.consecutive.is_some_and(|max| in_row >= max.get()) {
            return Some(Cause::Consecutive(in_row));
        }
        by_ratio.then_some(Cause::Ratio)
    }

    /// Opens it by hand: for some time, or until it is reset or ramped.
    pub fn trip(&self, reason: String, lasting: Option<Duration>, now: Moment) {
        let phase = Phase::Open {
            cause: Cause::Hand(reason),
            until: lasting.map(|span| now + span),
        };
        self.enter_locked(&mut self.state.lock(), phase, now);
    }

    /// Closes it by hand, at once.
    pub fn reset(&self, now: Moment) {
        self.enter_locked(&mut self.state.lock(), Phase::Closed, now);
    }

    /// Lets a growing share pass, from now on.
    pub fn ramp(&self, ramp: Ramp, now: Moment) {
        self.enter_locked(&mut self.state.lock(), Phase::Ramp(ramp), now);
    }

    /// How it stands.
    #[must_use]
    pub fn view(&self, policy: &BreakerPolicy, now: Moment) -> BreakerView {
        let mut state = self.state.lock();
        self.settle_locked(&mut state, policy, now);
        let since = now.since(state.since);
        let phase = match &state.phase {
            Phase::Closed => PhaseView::Closed,
            Phase::HalfOpen { .. } => PhaseView::HalfOpen,
            Phase::Open { cause, until } => PhaseView::Open {
                cause: cause.clone(),
                remaining: until.map(|until| until.since(now)),
            },
            Phase::Ramp(ramp) => PhaseView::Ramp {
                admitting: u8::try_from(admitting(ramp, since) / 100)
                    .ok()
                    .and_then(Percent::new)
                    .unwrap_or(Percent::ALL),
                remaining: ramp.over.saturating_sub(since),
            },
        };
        BreakerView {
            phase,
            since,
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Whether all pass, as of the last time anybody asked.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Takes the steps that time alone brings, each at the moment it was due.
    fn settle_locked(&self, state: &mut State, policy: &BreakerPolicy, now: Moment) {
        if let Phase::Open {
            cause,
            until: Some(until),
        } = &state.phase
            && *until <= now
        {
            let due = *until;
            let next = match cause {
                Cause::Hand(_) => Phase::Ramp(policy.ramp),
                Cause::Consecutive(_) | Cause::Ratio | Cause::Probe => Phase::HalfOpen {
                    granted: 0,
                    succeeded: 0,
                },
            };
            self.enter_locked(state, next, due);
        }
        match &mut state.phase {
            Phase::HalfOpen { granted, succeeded } => {
                // Probes that nobody reported on must not keep it half-open for ever.
                if *granted > *succeeded && now.since(state.since) >= policy.open_for {
                    *granted = *succeeded;
                    state.since = now;
                }
            }
            Phase::Ramp(ramp) if now.since(state.since) >= ramp.over => {
                let due = state.since + ramp.over;
                self.enter_locked(state, Phase::Closed, due);
            }
            Phase::Closed | Phase::Open { .. } | Phase::Ramp(_) => {}
        }
    }

    fn enter_locked(&self, state: &mut State, phase: Phase, at: Moment) {
        let is_closed = matches!(phase, Phase::Closed);
        state.phase = phase;
        state.since = at;
        state.window = Window::default();
        self.consecutive.store(0, Ordering::Relaxed);
        self.phase_number.fetch_add(1, Ordering::AcqRel);
        self.is_closed.store(is_closed, Ordering::Release);
    }
}

/// The share let through, in hundredths of a per cent, so long after the ramp began.
fn admitting(ramp: &Ramp, elapsed: Duration) -> u64 {
    let from = ramp.from.basis_points();
    let (elapsed, over) = (nanos(elapsed), nanos(ramp.over));
    if elapsed >= over {
        return ALL;
    }
    let grown = u128::from(ALL - from) * u128::from(elapsed) / u128::from(over);
    from + u64::try_from(grown).unwrap_or(ALL - from)
}
