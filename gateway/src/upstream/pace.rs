//! How fast an endpoint gets and gives: its turn among equals, its way back, its latency.
//!
//! Turns are counted as in start-time fair queueing: a request moves its endpoint's pass on by the
//! inverse of its share, and of two endpoints with equal load the one with the lesser pass is
//! chosen. A pass lags at most [`LAG_MAX`] behind the newest turn, so that whoever was away is not
//! flooded to make up for it. Pure but for atomics; the time is an argument.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The share of the endpoint of the largest weight in full health.
pub(super) const SHARE_FULL: u32 = 1 << 16;

/// A turn's length at a share of one.
const TURN: u64 = 1 << 32;

/// Turns at full share that are made up for: what load decides evens out in the long run, and an
/// endpoint that was away has this much more to do and no flood.
const LAG_MAX: u64 = 256 * (TURN / SHARE_FULL as u64);

/// Turns at full share from which on a lag counts as one request less in flight. A steady load from
/// few clients never ties: whoever has answered is asked again. What an endpoint has missed in a
/// pause of a tenth of a second, some hundred turns, would be missed for good.
const LAG_NOTED: u64 = 16 * (TURN / SHARE_FULL as u64);

/// The least part of its share with which an endpoint begins when it comes back, in percent.
const RAMP_FLOOR: u64 = 10;

/// A latency that nobody has measured for so long says nothing any more.
const LATENCY_AGE_MAX: Duration = Duration::from_secs(10);

/// Below this an endpoint is not slow, however fast another is.
const LATENCY_NOISE_US: u64 = 5_000;

/// One measurement counts as so many times what was known before at most: a pause of a busy
/// machine is no slowness.
const SAMPLE_FACTOR: u64 = 4;

/// How many times slower an endpoint must be until that counts, and how much at most is counted.
const SLOW_FROM: u64 = 3;
const SLOW_MAX: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    base: Instant,
    pass: AtomicU64,
    /// When it came back, in milliseconds since `base` and one; zero when it was never away.
    returned: AtomicU64,
    /// Smoothed time to an answer's head, in microseconds, and when it was measured.
    latency: AtomicU64,
    measured: AtomicU64,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Pace {
            base: now,
            pass: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            latency: AtomicU64::new(0),
            measured: AtomicU64::new(0),
        }
    }

    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.base).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }

    /// Its pass, with no more lag than is allowed.
    pub(super) fn pass(&self, newest: &AtomicU64) -> u64 {
        let least = newest.load(Ordering::Relaxed).saturating_sub(LAG_MAX);
        self.pass.load(Ordering::Relaxed).max(least)
    }

    /// Takes a turn at `share` of [`SHARE_FULL`].
    pub(super) fn take_turn(&self, share: u32, newest: &AtomicU64) {
        let start = self.pass(newest);
        let turn = TURN / u64::from(share.max(1));
        self.pass.fetch_max(start, Ordering::Relaxed);
        self.pass.fetch_add(turn, Ordering::Relaxed);
        if newest.load(Ordering::Relaxed) < start {
            newest.fetch_max(start, Ordering::Relaxed);
        }
    }

    /// It was away, and is back.
    pub(super) fn come_back(&self, now: Instant) {
        self.returned.store(self.millis(now), Ordering::Relaxed);
        self.measured.store(0, Ordering::Relaxed);
    }

    /// Whether it came back less than `span` ago.
    pub(super) fn is_back_since_less_than(&self, span: Duration, now: Instant) -> bool {
        let returned = self.returned.load(Ordering::Relaxed);
        returned != 0 && u128::from(self.millis(now).saturating_sub(returned)) < span.as_millis()
    }

    /// What part of `share` it is given while it comes back over `span`.
    pub(super) fn ramp(&self, share: u32, span: Duration, now: Instant) -> u32 {
        let returned = self.returned.load(Ordering::Relaxed);
        let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        if returned == 0 || span == 0 {
            return share;
        }
        let since = self.millis(now).saturating_sub(returned);
        if since >= span {
            return share;
        }
        let percent = (since.saturating_mul(100) / span).max(RAMP_FLOOR);
        let part = u64::from(share) * percent / 100;
        u32::try_from(part).unwrap_or(share).max(1)
    }

    /// Takes note of an answer's head.
    pub(super) fn measure(&self, took: Duration, now: Instant) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let before = self.latency(now).unwrap_or(took);
        // Two at once lose one of two measurements, which is no harm.
        let took = took.min(before * SAMPLE_FACTOR + LATENCY_NOISE_US);
        let smoothed = before - before / 8 + took / 8;
        self.latency.store(smoothed.max(1), Ordering::Relaxed);
        self.measured.store(self.millis(now), Ordering::Relaxed);
    }

    /// Its smoothed latency in microseconds, where it is known.
    pub(super) fn latency(&self, now: Instant) -> Option<u64> {
        let measured = self.measured.load(Ordering::Relaxed);
        let age = u128::from(self.millis(now).saturating_sub(measured));
        let is_known = measured != 0 && age < LATENCY_AGE_MAX.as_millis();
        is_known.then(|| self.latency.load(Ordering::Relaxed))
    }
}

/// Whether who has this pass is behind another in its turns.
pub(super) fn is_behind(mine: u64, others: u64) -> bool {
    others.saturating_sub(mine) > LAG_NOTED
}

/// By how much the share of an endpoint is divided for its latency, compared with another's.
pub(super) fn slowness(mine: Option<u64>, others: Option<u64>) -> u32 {
    let (Some(mine), Some(others)) = (mine, others) else {
        return 1;
    };
    let ratio = mine / (others + LATENCY_NOISE_US).max(1);
    match ratio {
        ratio if ratio < SLOW_FROM => 1,
        ratio => u32::try_from(ratio.min(SLOW_MAX)).unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_shares_and_lag_is_forgotten() {
        let now = Instant::now();
        let (a, b, newest) = (Pace::new(now), Pace::new(now), AtomicU64::new(0));
        let mut taken = [0; 2];
        let take = |count: usize, taken: &mut [usize; 2]| {
            for _ in 0..count {
                if a.pass(&newest) <= b.pass(&newest) {
                    a.take_turn(SHARE_FULL, &newest);
                    taken[0] += 1;
                } else {
                    b.take_turn(SHARE_FULL / 4, &newest);
                    taken[1] += 1;
                }
            }
        };
        take(1_000, &mut taken);
        assert_eq!(taken, [800, 200]);
        for _ in 0..1_000 {
            a.take_turn(SHARE_FULL, &newest); // b is away
        }
        let mut after = [0; 2];
        take(1_000, &mut after);
        assert!((200..=260).contains(&after[1]), "{after:?}");
    }

    #[test]
    fn share_grows_from_a_tenth_to_all_of_it() {
        let start = Instant::now();
        let (pace, span) = (Pace::new(start), Duration::from_secs(10));
        let share = |now| pace.ramp(1_000, span, now);
        assert_eq!(share(start), 1_000, "never away");
        pace.come_back(start);
        let seconds = |n| start + Duration::from_secs(n);
        assert_eq!(
            [0, 3, 9, 10].map(|n| share(seconds(n))),
            [100, 300, 900, 1_000]
        );
        assert_eq!(pace.ramp(1_000, Duration::ZERO, start), 1_000);
        assert!(pace.is_back_since_less_than(span, seconds(9)));
        assert!(!pace.is_back_since_less_than(span, seconds(10)));
    }

    #[test]
    fn only_marked_and_fresh_slowness_counts() {
        let ms = |n: u64| Some(n * 1_000);
        assert_eq!(slowness(ms(5), ms(1)), 1, "noise");
        assert_eq!(slowness(ms(65), ms(8)), 5);
        assert_eq!(slowness(ms(30), ms(8)), 1, "not marked");
        assert_eq!(slowness(ms(9_000), ms(8)), 16);
        assert_eq!(slowness(ms(9_000), None), 1);
        let now = Instant::now();
        let pace = Pace::new(now);
        pace.measure(Duration::from_millis(8), now);
        pace.measure(Duration::from_millis(16), now);
        assert_eq!(pace.latency(now), Some(9_000));
        assert_eq!(pace.latency(now + LATENCY_AGE_MAX), None);
    }
}
