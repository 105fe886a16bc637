//! The breaker through its phases, and the debt bucket.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use proptest::prelude::*;
use sluice_ratelimit::{
    Breaker, BreakerPolicy, Cause, Debt, FailureRatio, Moment, Outcome, Percent, PhaseView, Ramp,
    Reason,
};

const SECOND: Duration = Duration::from_secs(1);

const POLICY: BreakerPolicy = BreakerPolicy {
    consecutive: NonZeroU32::new(3),
    ratio: None,
    open_for: Duration::from_secs(10),
    probes: NonZeroU32::new(2).unwrap(),
    ramp: Ramp {
        from: Percent::new(10).unwrap(),
        over: Duration::from_secs(20),
    },
};

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

fn fail(breaker: &Breaker, policy: &BreakerPolicy, now: Moment) {
    let pass = breaker.admit(policy, now, 0).unwrap();
    breaker.report(policy, pass, Outcome::Failure, now);
}

fn succeed(breaker: &Breaker, policy: &BreakerPolicy, now: Moment) {
    let pass = breaker.admit(policy, now, 0).unwrap();
    breaker.report(policy, pass, Outcome::Success, now);
}

fn phase(breaker: &Breaker, now: Moment) -> PhaseView {
    breaker.view(&POLICY, now).phase
}

/// How many of 10,000 evenly spread lots pass.
fn passing(breaker: &Breaker, now: Moment) -> usize {
    (0..10_000)
        .filter(|noise| breaker.admit(&POLICY, now, *noise).is_ok())
        .count()
}

#[test]
fn failures_in_a_row_open_it_and_probes_ramp_it_closed() {
    let breaker = Breaker::new();
    fail(&breaker, &POLICY, at(1));
    fail(&breaker, &POLICY, at(1));
    succeed(&breaker, &POLICY, at(1));
    fail(&breaker, &POLICY, at(1));
    fail(&breaker, &POLICY, at(1));
    assert!(breaker.is_closed(), "a success between them");
    fail(&breaker, &POLICY, at(2));
    let rejection = breaker.admit(&POLICY, at(4), 0).unwrap_err();
    assert_eq!(rejection.reason, Reason::BreakerOpen);
    assert_eq!(rejection.retry_after, 8 * SECOND);

    let first = breaker.admit(&POLICY, at(12), 0).unwrap();
    let second = breaker.admit(&POLICY, at(12), 0).unwrap();
    let third = breaker.admit(&POLICY, at(12), 0).unwrap_err();
    assert_eq!(third.reason, Reason::BreakerHalfOpen, "two probes only");
    breaker.report(&POLICY, first, Outcome::Success, at(13));
    assert_eq!(phase(&breaker, at(13)), PhaseView::HalfOpen);
    breaker.report(&POLICY, second, Outcome::Success, at(14));

    assert_eq!(passing(&breaker, at(14)), 1000);
    assert_eq!(passing(&breaker, at(24)), 5500);
    assert!(!breaker.is_closed());
    assert_eq!(passing(&breaker, at(34)), 10_000);
    assert!(breaker.is_closed());
    assert_eq!(breaker.view(&POLICY, at(35)).since, SECOND);
}

#[test]
fn a_failed_probe_opens_it_again() {
    let breaker = Breaker::new();
    (0..3).for_each(|_| fail(&breaker, &POLICY, at(0)));
    fail(&breaker, &POLICY, at(10));
    let expected = PhaseView::Open {
        cause: Cause::Probe,
        remaining: Some(10 * SECOND),
    };
    assert_eq!(phase(&breaker, at(10)), expected);
}

#[test]
fn probes_nobody_reports_on_are_given_up() {
    let breaker = Breaker::new();
    (0..3).for_each(|_| fail(&breaker, &POLICY, at(0)));
    let _ = breaker.admit(&POLICY, at(10), 0).unwrap();
    let _ = breaker.admit(&POLICY, at(10), 0).unwrap();
    assert!(breaker.admit(&POLICY, at(19), 0).is_err());
    assert!(breaker.admit(&POLICY, at(20), 0).is_ok());
}

#[test]
fn answers_to_requests_from_before_the_trip_move_nothing() {
    let breaker = Breaker::new();
    let old: Vec<_> = (0..10)
        .map(|_| breaker.admit(&POLICY, at(0), 0).unwrap())
        .collect();
    (0..3).for_each(|_| fail(&breaker, &POLICY, at(0)));
    let probe = breaker.admit(&POLICY, at(10), 0).unwrap();
    for pass in old {
        breaker.report(&POLICY, pass, Outcome::Failure, at(10));
    }
    assert_eq!(phase(&breaker, at(10)), PhaseView::HalfOpen);
    breaker.report(&POLICY, probe, Outcome::Success, at(10));
    succeed(&breaker, &POLICY, at(10));
    assert!(matches!(phase(&breaker, at(10)), PhaseView::Ramp { .. }));
}

#[test]
fn failures_during_the_ramp_open_it_again() {
    let breaker = Breaker::new();
    breaker.ramp(POLICY.ramp, at(0));
    (0..3).for_each(|_| fail(&breaker, &POLICY, at(1)));
    assert!(matches!(phase(&breaker, at(1)), PhaseView::Open { .. }));
}

#[test]
fn a_share_of_failures_opens_it() {
    let ratio = FailureRatio {
        percent: Percent::new(50).unwrap(),
        requests_min: NonZeroU32::new(10).unwrap(),
        window: 10 * SECOND,
    };
    let policy = BreakerPolicy {
        consecutive: None,
        ratio: Some(ratio),
        ..POLICY
    };
    let breaker = Breaker::new();
    for _ in 0..5 {
        succeed(&breaker, &policy, at(1));
    }
    for _ in 0..4 {
        fail(&breaker, &policy, at(2));
    }
    assert!(breaker.is_closed(), "nine requests say nothing");
    fail(&breaker, &policy, at(12));
    assert!(!breaker.is_closed(), "the last window counts too");

    breaker.reset(at(20));
    for _ in 0..9 {
        fail(&breaker, &policy, at(20));
    }
    fail(&breaker, &policy, at(50));
    assert!(breaker.is_closed(), "windows long past do not");
}

#[test]
fn by_hand_it_opens_for_a_time_or_until_reset() {
    let breaker = Breaker::new();
    breaker.trip("runaway".to_owned(), Some(60 * SECOND), at(0));
    assert_eq!(passing(&breaker, at(59)), 0);
    assert_eq!(breaker.view(&POLICY, at(59)).refused, 10_000);
    assert_eq!(passing(&breaker, at(60)), 1000, "it ran out, and ramps");
    assert_eq!(passing(&breaker, at(80)), 10_000);

    breaker.trip("runaway".to_owned(), None, at(100));
    let rejection = breaker.admit(&POLICY, at(1_000_000), 0).unwrap_err();
    assert_eq!(rejection.retry_after, 5 * SECOND);
    let expected = PhaseView::Open {
        cause: Cause::Hand("runaway".to_owned()),
        remaining: None,
    };
    assert_eq!(phase(&breaker, at(1_000_000)), expected);
    breaker.reset(at(1_000_000));
    assert_eq!(passing(&breaker, at(1_000_000)), 10_000);

    breaker.trip("short".to_owned(), Some(SECOND), at(2_000_000));
    let by_hand = BreakerPolicy::BY_HAND;
    assert!(
        breaker.admit(&by_hand, at(2_000_001), 9_999).is_ok(),
        "no ramp, closed at once"
    );
    assert!(breaker.is_closed());
}

#[test]
fn debt_is_paid_before_the_next_and_ends_somewhere() {
    let rate = NonZeroU64::new(1000).unwrap();
    let debt = Debt::default();
    debt.charge(2500, rate, 500, at(0));
    let rejection = debt.check(rate, 500, at(0)).unwrap_err();
    assert_eq!(rejection.retry_after, 2 * SECOND);
    assert!(debt.check(rate, 500, at(1)).is_err());
    assert!(debt.check(rate, 500, at(2)).is_ok());
    debt.charge(u64::MAX, rate, 500, at(2));
    let rejection = debt.check(rate, 500, at(2)).unwrap_err();
    assert_eq!(rejection.retry_after, 60 * SECOND, "no more than a minute");
}

proptest! {
    /// The debt is what was charged less what time has paid, never below nothing.
    #[test]
    fn debt_is_integer_arithmetic(steps in prop::collection::vec((0_u64..2_000, 0_u64..3_000), 1..100)) {
        let rate = NonZeroU64::new(1000).unwrap();
        let debt = Debt::default();
        let mut now = Moment::ZERO;
        let mut owed_ms: u64 = 0;
        for (pause_ms, cost) in steps {
            now = now + Duration::from_millis(pause_ms);
            owed_ms = owed_ms.saturating_sub(pause_ms);
            prop_assert_eq!(debt.check(rate, 5000, now).is_ok(), owed_ms <= 5000);
            debt.charge(cost, rate, 5000, now);
            owed_ms = (owed_ms + cost).min(65_000.max(owed_ms));
            prop_assert_eq!(debt.owed(now), Duration::from_millis(owed_ms));
        }
    }

    /// Whatever happens, an open breaker lets nobody through before its time, and one left
    /// alone for long enough, without failures, closes.
    #[test]
    fn left_alone_it_closes(script in prop::collection::vec((0_u64..15, 0_u8..4), 1..100)) {
        let breaker = Breaker::new();
        let mut now = at(0);
        let mut closed_until = None;
        for (pause, action) in script {
            now = now + Duration::from_secs(pause);
            match action {
                0 => {
                    breaker.trip("test".to_owned(), Some(7 * SECOND), now);
                    closed_until = Some(now + 7 * SECOND);
                }
                1 => {
                    breaker.reset(now);
                    closed_until = None;
                }
                action => {
                    let decided = breaker.admit(&POLICY, now, 0);
                    if let Some(until) = closed_until && now < until {
                        prop_assert!(decided.is_err());
                    }
                    if let Ok(pass) = decided {
                        let outcome = if action == 2 { Outcome::Success } else { Outcome::Failure };
                        breaker.report(&POLICY, pass, outcome, now);
                    }
                }
            }
        }
        for _ in 0..5 {
            now = now + 30 * SECOND;
            for _ in 0..2 {
                if let Ok(pass) = breaker.admit(&POLICY, now, 0) {
                    breaker.report(&POLICY, pass, Outcome::Success, now);
                }
            }
        }
        prop_assert_eq!(breaker.view(&POLICY, now).phase, PhaseView::Closed);
    }
}
