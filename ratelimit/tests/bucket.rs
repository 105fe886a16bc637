//! The bucket against integer arithmetic: admissions left, counted in nanoseconds of refill.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use sluice_ratelimit::{Bucket, Moment, Quota, QuotaError};

const SECOND: u64 = 1_000_000_000;

fn per_second(rate: u32, burst: u32) -> Quota {
    Quota::per_second(
        NonZeroU32::new(rate).unwrap(),
        NonZeroU32::new(burst).unwrap(),
    )
    .unwrap()
}

fn at_ms(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

/// How many of `tries` pass at that moment.
fn passing(bucket: &Bucket, quota: &Quota, now: Moment, tries: u32) -> u32 {
    (0..tries)
        .map(|_| u32::from(bucket.check(quota, now, 0).is_ok()))
        .sum()
}

#[test]
fn a_raised_and_cut_quota_keeps_the_spent_bucket() {
    let slow = per_second(10, 10);
    let bucket = Bucket::new(&slow);
    let start = 3_600_000; // after an hour's uptime
    assert_eq!(passing(&bucket, &slow, at_ms(start), 20), 10);
    let fast = per_second(20, 20);
    assert_eq!(passing(&bucket, &fast, at_ms(start), 20), 0);
    assert_eq!(passing(&bucket, &fast, at_ms(start + 500), 20), 10);
    let slower = per_second(5, 5);
    assert_eq!(passing(&bucket, &slower, at_ms(start + 500), 20), 0);
    assert_eq!(passing(&bucket, &slower, at_ms(start + 699), 20), 0);
    assert_eq!(passing(&bucket, &slower, at_ms(start + 700), 20), 1);
}

#[test]
fn a_rate_cut_to_a_thousandth_grants_nothing() {
    // By time alone, one second owed would be one admission of ten at the new rate.
    let fast = per_second(1000, 1000);
    let bucket = Bucket::new(&fast);
    assert_eq!(passing(&bucket, &fast, at_ms(5), 2000), 1000);
    assert_eq!(passing(&bucket, &per_second(1, 10), at_ms(5), 20), 0);
}

#[test]
fn resizing_every_two_seconds_adds_no_bursts() {
    // kubegateway.md A15: 1,000 offered a second, the limit moves between 100 and 101.
    let quotas = [per_second(100, 100), per_second(101, 101)];
    let bucket = Bucket::new(&quotas[0]);
    let mut passed = 0;
    for ms in 0..10_000_u64 {
        let quota = &quotas[usize::try_from(ms / 2000 % 2).unwrap()];
        passed += passing(&bucket, quota, at_ms(ms), 1);
    }
    assert!((1095..=1110).contains(&passed), "{passed}");
}

#[test]
fn threads_share_one_burst_exactly() {
    let quota = per_second(10, 1000);
    let bucket = Bucket::new(&quota);
    let now = at_ms(7);
    let passed: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| passing(&bucket, &quota, now, 2000)))
            .collect();
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert_eq!(passed, 1000);
}

#[test]
fn a_quota_moved_to_and_fro_grants_nothing() {
    let quotas = [per_second(10, 1000), per_second(700, 1000)];
    let bucket = Bucket::new(&quotas[0]);
    let passed: u32 = (0..8000)
        .map(|n| passing(&bucket, &quotas[usize::from(n % 5 == 0)], at_ms(7), 1))
        .sum();
    // Each move may cost the fraction of an admission that the other rate cannot hold.
    assert!((990..=1000).contains(&passed), "{passed}");
}

#[test]
fn a_cost_above_the_burst_counts_as_the_burst() {
    let quota = per_second(10, 5);
    let bucket = Bucket::new(&quota);
    let cost = NonZeroU32::new(500).unwrap();
    assert!(bucket.check_cost(&quota, cost, at_ms(1), 0).is_ok());
    assert!(bucket.check(&quota, at_ms(1), 0).is_err());
    let rejection = bucket.check_cost(&quota, cost, at_ms(1), 0).unwrap_err();
    assert!(rejection.retry_after >= Duration::from_millis(500));
}

#[test]
fn quotas_beyond_the_arithmetic_are_refused() {
    let one = NonZeroU32::MIN;
    let max = NonZeroU32::MAX;
    assert_eq!(Quota::per_second(max, one), Err(QuotaError::TooFast));
    let hour = Duration::from_secs(3600);
    assert_eq!(Quota::new(one, hour, max), Err(QuotaError::TooSlow));
    assert!(Quota::new(one, hour, NonZeroU32::new(24).unwrap()).is_ok());
}

#[test]
fn a_herd_is_gone_within_a_minute() {
    // kubernetes/kubernetes#79805: 1,000 clients start together where 100 a second are served.
    // Hints are whole seconds, so a burst of less than a second's worth would idle in between.
    let quota = per_second(100, 100);
    let bucket = Bucket::new(&quota);
    let mut noise = 7_u64;
    let mut due: BinaryHeap<Reverse<u64>> = (0..1000).map(|_| Reverse(SECOND)).collect();
    let (mut tries, mut last) = (0, 0);
    while let Some(Reverse(now)) = due.pop() {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        tries += 1;
        last = now;
        if let Err(rejection) = bucket.check(&quota, Moment::from_nanos(now), noise) {
            let seconds = rejection.retry_after.as_nanos().div_ceil(1_000_000_000);
            // Some ten milliseconds of network.
            due.push(Reverse(
                now + u64::try_from(seconds).unwrap() * SECOND + (noise >> 40),
            ));
        }
    }
    let took = Duration::from_nanos(last - SECOND);
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(tries < 5_000, "{tries} tries for 1,000 requests");
}

#[derive(Clone, Debug)]
enum Step {
    Pass(Duration),
    Check,
    Resize(u32, u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0_u64..3 * SECOND).prop_map(|n| Step::Pass(Duration::from_nanos(n))),
        6 => Just(Step::Check),
        1 => (1_u32..1000, 1_u32..50).prop_map(|(rate, burst)| Step::Resize(rate, burst)),
    ];
    prop::collection::vec(step, 1..200)
}

/// Admissions left, as nanoseconds of refill at the present rate.
struct Model {
    quota: Quota,
    left: u128,
}

impl Model {
    fn interval(&self) -> u128 {
        self.quota.interval().as_nanos()
    }

    fn fill(quota: &Quota) -> u128 {
        quota.interval().as_nanos() * u128::from(quota.burst().get())
    }

    fn pass(&mut self, span: Duration) {
        self.left = (self.left + span.as_nanos()).min(Model::fill(&self.quota));
    }

    fn resize(&mut self, quota: Quota) {
        let scaled = self.left * quota.interval().as_nanos() / self.interval();
        self.left = scaled.min(Model::fill(&quota));
        self.quota = quota;
    }

    fn check(&mut self) -> Result<(), Duration> {
        if self.left >= self.interval() {
            self.left -= self.interval();
            return Ok(());
        }
        let wait = self.interval() - self.left;
        Err(Duration::from_nanos(u64::try_from(wait).unwrap()))
    }
}

proptest! {
    #[test]
    fn decides_as_integer_arithmetic_does(
        start in 1_u64..10_000 * SECOND,
        rate in 1_u32..1000,
        burst in 1_u32..50,
        steps in steps(),
    ) {
        let mut now = Moment::from_nanos(start);
        let quota = per_second(rate, burst);
        let bucket = Bucket::new(&quota);
        let mut model = Model { quota, left: Model::fill(&quota) };
        for step in steps {
            match step {
                Step::Pass(span) => {
                    now = now + span;
                    model.pass(span);
                }
                Step::Resize(rate, burst) => {
                    // The bucket learns of a quota when it is asked by it.
                    model.resize(per_second(rate, burst));
                    let decided = bucket.check(&model.quota, now, 0);
                    prop_assert_eq!(decided.is_ok(), model.check().is_ok());
                }
                Step::Check => match (bucket.check(&model.quota, now, 0), model.check()) {
                    (Ok(()), Ok(())) => {}
                    (Err(rejection), Err(wait)) => {
                        // The first refused is told the wait, those after him more.
                        prop_assert!(rejection.retry_after >= wait);
                        let most = wait + Duration::from_secs(32);
                        prop_assert!(rejection.retry_after <= most + most / 4);
                    }
                    (decided, model) => prop_assert!(false, "{:?} for {:?}", decided, model),
                },
            }
            let is_full = model.left == Model::fill(&model.quota);
            prop_assert_eq!(bucket.is_full(now), is_full);
        }
    }

    #[test]
    fn the_wait_it_tells_is_exact(rate in 1_u32..1000, burst in 1_u32..50) {
        let quota = per_second(rate, burst);
        let bucket = Bucket::new(&quota);
        let now = Moment::from_nanos(77);
        prop_assert_eq!(passing(&bucket, &quota, now, burst), burst);
        let wait = bucket.check(&quota, now, 0).unwrap_err().retry_after;
        let early = now + (wait - Duration::from_nanos(1));
        prop_assert!(bucket.check(&quota, early, 0).is_err());
        prop_assert!(bucket.check(&quota, now + wait, 0).is_ok());
    }
}
