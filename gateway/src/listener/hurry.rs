//! Counts the requests of a connection that are reset almost as soon as they are made.
//!
//! A client that opens and resets streams as fast as it can (CVE-2023-44487) makes the gateway
//! begin work for each. h2 bounds streams reset before they were handed on; this bounds those
//! reset after. A patient client that times out, even two hundred requests at once, is not meant:
//! only resets within [`MOMENT`] of the request count. Pure: time is an argument.

use std::time::{Duration, Instant};

/// A request given up sooner than this was never wanted.
const MOMENT: Duration = Duration::from_millis(100);

/// The window in which hasty resets add up.
const WINDOW: Duration = Duration::from_secs(10);

/// One connection's hasty resets.
#[derive(Debug)]
pub(super) struct Hurry {
    limit: u32,
    window_began: Instant,
    count: u32,
}

impl Hurry {
    pub(super) fn new(limit: u32, now: Instant) -> Self {
        Hurry {
            limit,
            window_began: now,
            count: 0,
        }
    }

    /// Notes the reset of a request made at `began`; true when the connection has to go.
    pub(super) fn observe_reset(&mut self, began: Instant, now: Instant) -> bool {
        if now.duration_since(began) >= MOMENT {
            return false;
        }
        if now.duration_since(self.window_began) >= WINDOW {
            self.window_began = now;
            self.count = 0;
        }
        self.count += 1;
        self.count > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hasty_resets_within_one_window_add_up() {
        let start = Instant::now();
        let mut hurry = Hurry::new(2, start);
        let patient = |h: &mut Hurry, at| h.observe_reset(at, at + MOMENT);
        let hasty = |h: &mut Hurry, at| h.observe_reset(at, at + MOMENT / 2);
        assert!((0..100).all(|_| !patient(&mut hurry, start)));
        assert!(!hasty(&mut hurry, start));
        assert!(!hasty(&mut hurry, start));
        assert!(!hasty(&mut hurry, start + WINDOW), "a new window");
        assert!(!hasty(&mut hurry, start + WINDOW));
        assert!(hasty(&mut hurry, start + WINDOW), "the third in one window");
    }
}
