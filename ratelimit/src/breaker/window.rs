//! Successes and failures of late: the running window and the one before it.

use std::time::Duration;

use super::policy::FailureRatio;
use crate::moment::{Moment, nanos};

/// What came of the requests of one window.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    requests: u64,
    failures: u64,
}

/// Two windows of outcomes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// Which multiple of the window's length `running` covers.
    number: u64,
    running: Tally,
    last: Tally,
}

impl Window {
    /// Counts one outcome; answers whether the share of failures is now too high.
    pub(super) fn count(&mut self, rule: &FailureRatio, is_failure: bool, now: Moment) -> bool {
        self.turn(rule.window, now);
        self.running.requests += 1;
        self.running.failures += u64::from(is_failure);
        let requests = self.running.requests + self.last.requests;
        let failures = self.running.failures + self.last.failures;
        is_failure
            && requests >= u64::from(rule.requests_min.get())
            && failures * 100 >= requests * u64::from(rule.percent.get())
    }

    fn turn(&mut self, length: Duration, now: Moment) {
        let number = now.as_nanos() / nanos(length).max(1);
        if number <= self.number {
            return; // a caller whose present was read a little earlier
        }
        self.last = if number == self.number + 1 {
            self.running
        } else {
            Tally::default()
        };
        self.running = Tally::default();
        self.number = number;
    }
}
