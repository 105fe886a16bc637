//! Whether an endpoint may be chosen, judged by what became of the requests sent to it.
//!
//! ```text
//!   Admitting --failures in a row, or too large a share in a second--> Ejected(until)
//!   Ejected   --until is over: one request is let through-----------> Trial
//!   Trial     --it succeeds--> Admitting        --it fails--> Ejected, twice as long
//! ```
//! A failure is a broken connection, a missing answer, or a 5xx to a read of a built-in group; a
//! 429 is flow control and 5xx to writes or aggregated groups are others' faults, and neither
//! counts. The caller never leaves all endpoints out. Pure but for the atomics that keep the
//! common case, an admitting endpoint that succeeds, free of the lock. Time is an argument.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::spec::{BreakerSpec, EjectionSpec};

/// The longest ejection, and how long an endpoint has to behave until its next one is short.
const EJECTION_MAX: Duration = Duration::from_secs(60);

/// The breaker's window.
const WINDOW: Duration = Duration::from_secs(1);

/// A trial that has not come back by then is lost, and another may be made.
const TRIAL_MAX: Duration = Duration::from_secs(10);

/// What became of a request, as far as it speaks for or against the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Failure,
    /// Says nothing: the client left, or the fault may be another's.
    Neutral,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    is_admitting: AtomicBool,
    consecutive: AtomicU32,
    /// Requests since the window began.
    total: AtomicU32,
    core: Mutex<Core>,
}

#[derive(Debug)]
struct Core {
    state: State,
    /// Ejections without a long good time between them.
    streak: u32,
    readmitted: Option<Instant>,
    window_began: Option<Instant>,
    failed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// To `Ejected`.
    Admitting,
    /// To `Trial`.
    Ejected { until: Instant },
    /// To `Admitting` or `Ejected`.
    Trial { since: Instant },
}

impl Default for Gate {
    fn default() -> Self {
        Gate {
            is_admitting: AtomicBool::new(true),
            consecutive: AtomicU32::new(0),
            total: AtomicU32::new(0),
            core: Mutex::new(Core {
                state: State::Admitting,
                streak: 0,
                readmitted: None,
                window_began: None,
                failed: 0,
            }),
        }
    }
}

impl Gate {
    pub(crate) fn state(&self) -> State {
        self.core.lock().state
    }

    /// Whether [`Gate::enter`] would let a request through.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        if self.is_admitting.load(Ordering::Relaxed) {
            return true;
        }
        match self.core.lock().state {
            State::Admitting => true,
            State::Ejected { until } => now >= until,
            State::Trial { since } => now.duration_since(since) >= TRIAL_MAX,
        }
    }

    /// A request is on its way; after an ejection this begins the trial.
    pub(crate) fn enter(&self, now: Instant) {
        if self.is_admitting.load(Ordering::Relaxed) {
            return;
        }
        let mut core = self.core.lock();
        match core.state {
            State::Ejected { until } if now >= until => core.state = State::Trial { since: now },
            State::Trial { since } if now.duration_since(since) >= TRIAL_MAX => {
                core.state = State::Trial { since: now };
            }
            _ => {}
        }
    }

    /// Takes note of an outcome; true when it has readmitted the endpoint.
    pub(crate) fn observe(
        &self,
        outcome: Outcome,
        ejection: &EjectionSpec,
        breaker: &BreakerSpec,
        now: Instant,
    ) -> bool {
        match outcome {
            Outcome::Neutral => false,
            Outcome::Success => self.observe_success(now),
            Outcome::Failure => {
                self.observe_failure(ejection, breaker, now);
                false
            }
        }
    }

    /// Takes an admitting endpoint out although its requests succeed.
    pub(super) fn rest(&self, ejection: &EjectionSpec, now: Instant) {
        let mut core = self.core.lock();
        if core.state == State::Admitting {
            self.is_admitting.store(false, Ordering::Relaxed);
            core.eject(ejection.base_time, now);
        }
    }

    fn observe_success(&self, now: Instant) -> bool {
        self.total.fetch_add(1, Ordering::Relaxed);
        if self.consecutive.load(Ordering::Relaxed) != 0 {
            self.consecutive.store(0, Ordering::Relaxed);
        }
        if self.is_admitting.load(Ordering::Relaxed) {
            return false;
        }
        let mut core = self.core.lock();
        // A late answer to a request from before the ejection proves nothing.
        if !matches!(core.state, State::Trial { .. }) {
            return false;
        }
        core.state = State::Admitting;
        core.readmitted = Some(now);
        core.window_began = None;
        self.is_admitting.store(true, Ordering::Relaxed);
        true
    }

    fn observe_failure(&self, ejection: &EjectionSpec, breaker: &BreakerSpec, now: Instant) {
        let in_a_row = self.consecutive.fetch_add(1, Ordering::Relaxed) + 1;
        let mut core = self.core.lock();
        let is_first = core
            .window_began
            .is_none_or(|t| now.duration_since(t) >= WINDOW);
        if is_first {
            core.window_began = Some(now);
            core.failed = 0;
            self.total.store(0, Ordering::Relaxed);
        }
        core.failed += 1;
        let total = self.total.fetch_add(1, Ordering::Relaxed) + 1;
        let trips = match core.state {
            State::Trial { .. } => true,
            State::Ejected { .. } => false,
            State::Admitting => {
                in_a_row >= ejection.consecutive_failures.get()
                    || is_too_many(core.failed, total, breaker)
            }
        };
        if trips {
            self.is_admitting.store(false, Ordering::Relaxed);
            self.consecutive.store(0, Ordering::Relaxed);
            core.eject(ejection.base_time, now);
        }
    }
}

impl Core {
    fn eject(&mut self, base: Duration, now: Instant) {
        let is_fresh = self
            .readmitted
            .is_none_or(|at| now.duration_since(at) >= EJECTION_MAX);
        let was_trial = matches!(self.state, State::Trial { .. });
        if is_fresh && !was_trial {
            self.streak = 0;
        }
        let length = base.saturating_mul(1 << self.streak.min(16));
        self.streak += 1;
        self.state = State::Ejected {
            until: now + length.min(EJECTION_MAX.max(base)),
        };
    }
}

fn is_too_many(failed: u32, total: u32, breaker: &BreakerSpec) -> bool {
    let share = u64::from(failed) * 100 >= u64::from(total) * u64::from(breaker.failure_percent);
    breaker.failure_percent > 0 && total >= breaker.requests_min.get() && share
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(gate: &Gate, times: usize, now: Instant) {
        for _ in 0..times {
            let spec = (EjectionSpec::default(), BreakerSpec::default());
            gate.observe(Outcome::Failure, &spec.0, &spec.1, now);
        }
    }

    fn succeed(gate: &Gate, now: Instant) -> bool {
        let spec = (EjectionSpec::default(), BreakerSpec::default());
        gate.observe(Outcome::Success, &spec.0, &spec.1, now)
    }

    #[test]
    fn failures_in_a_row_eject_and_one_trial_readmits() {
        let (gate, start) = (Gate::default(), Instant::now());
        fail(&gate, 4, start);
        succeed(&gate, start);
        fail(&gate, 4, start);
        assert!(
            gate.is_open(start),
            "a success between them starts the count anew"
        );
        fail(&gate, 1, start);
        assert!(!gate.is_open(start));
        assert!(!succeed(&gate, start), "a late success proves nothing");
        let over = start + EjectionSpec::default().base_time;
        assert!(gate.is_open(over));
        gate.enter(over);
        assert!(!gate.is_open(over), "one trial at a time");
        assert!(succeed(&gate, over));
        assert!(gate.is_open(over));
    }

    #[test]
    fn failed_trial_doubles_the_time() {
        let (gate, start) = (Gate::default(), Instant::now());
        let base = EjectionSpec::default().base_time;
        fail(&gate, 5, start);
        gate.enter(start + base);
        fail(&gate, 1, start + base);
        assert!(!gate.is_open(start + base + base));
        assert!(gate.is_open(start + base + base * 2));
    }

    #[test]
    fn half_of_twenty_in_a_second_trips() {
        let (gate, start) = (Gate::default(), Instant::now());
        for _ in 0..9 {
            fail(&gate, 1, start);
            succeed(&gate, start);
        }
        succeed(&gate, start);
        assert!(gate.is_open(start), "nine of nineteen");
        fail(&gate, 1, start);
        assert!(!gate.is_open(start), "ten of twenty");
        let (gate, spread) = (Gate::default(), WINDOW / 4);
        for n in 0..40 {
            fail(&gate, 1, start + spread * n);
            succeed(&gate, start + spread * n);
        }
        assert!(
            gate.is_open(start + spread * 40),
            "eight in a second are too few to judge"
        );
    }

    #[test]
    fn lost_trial_is_made_again() {
        let (gate, start) = (Gate::default(), Instant::now());
        fail(&gate, 5, start);
        let over = start + EjectionSpec::default().base_time;
        gate.enter(over);
        assert!(!gate.is_open(over + TRIAL_MAX / 2));
        assert!(gate.is_open(over + TRIAL_MAX));
    }
}
