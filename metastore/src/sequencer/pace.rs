//! How much of the sequencer's time housekeeping may take from writes.
//!
//! A turn of it is short, and a rest follows that is so many times as long. The work may take its
//! time, as long as it ends: what has gone on for long without coming to an end is behind what writes
//! leave for it, and then gets a larger share, which is more than the fastest writes leave.

use std::time::{Duration, Instant};

/// How many times as long as a turn took the rest is: a twenty-fifth of a core.
const REST: u32 = 24;
/// The same for work that is behind: a fifth of a core.
const REST_BEHIND: u32 = 4;
/// The longest rest: a turn that took so long did not work all the while, but waited for a core.
const REST_MAX: Duration = Duration::from_millis(20);
/// Work that has gone on for so long is behind.
const EASY: Duration = Duration::from_secs(30);

/// When a kind of work goes on; over instants that are handed in.
#[derive(Debug)]
pub(super) struct Pace {
    /// Since when there has been something to do.
    since: Option<Instant>,
    /// When the rest is over.
    at: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Pace {
            since: None,
            at: now,
        }
    }

    /// How long it still rests.
    pub(super) fn rests(&self, now: Instant) -> Duration {
        self.at.saturating_duration_since(now)
    }

    /// A turn ended, which began at `begun`, and there is more to do. What is pressing gets the
    /// share of what is behind.
    pub(super) fn rest(&mut self, begun: Instant, ended: Instant, is_pressing: bool) {
        let since = *self.since.get_or_insert(begun);
        let is_behind = is_pressing || ended.saturating_duration_since(since) >= EASY;
        let times = if is_behind { REST_BEHIND } else { REST };
        let rest = ended.saturating_duration_since(begun) * times;
        self.at = ended + rest.min(REST_MAX);
    }

    /// There is nothing left to do.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of a second's work, a turn of 100 us each, so long after it began.
    fn share(pace: &mut Pace, start: Instant, is_pressing: bool) -> f64 {
        let (turn, mut now, mut worked) = (Duration::from_micros(100), start, Duration::ZERO);
        while now < start + Duration::from_secs(1) {
            now += pace.rests(now);
            pace.rest(now, now + turn, is_pressing);
            now += turn;
            worked += turn;
        }
        worked.as_secs_f64()
    }

    #[test]
    fn work_is_spread_thin_until_it_is_behind() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let about = |share: f64, expected: f64| (share / expected - 1.0).abs() < 0.02;
        assert!(about(share(&mut pace, start, false), 0.04));
        assert!(about(share(&mut pace, start + EASY, false), 0.2));
        let late = start + EASY + Duration::from_secs(2);
        pace.rest(late, late + Duration::from_secs(1), true);
        assert_eq!(pace.rests(late + Duration::from_secs(1)), REST_MAX);
        pace.end();
        assert!(about(share(&mut pace, start + 2 * EASY, false), 0.04));
        assert!(about(
            share(&mut pace, start + 2 * EASY + Duration::from_secs(2), true),
            0.2
        ));
    }
}
