//! Who was told by an endpoint to come back later, and until when.
//!
//! A kube-apiserver's 429 is about one caller's share of it, so it says nothing against the
//! endpoint and nothing about others: it is kept by caller. A table of fixed size without locks;
//! a caller that loses its place is sent there once more, and told so again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Callers remembered an endpoint: those that are being throttled at one time.
const CALLERS_MAX: usize = 256;

/// The longest that is believed: an apiserver says one second, or a little more.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Bits of a slot that are the time, in milliseconds: 34 years.
const TIME_BITS: u32 = 40;

/// See the module.
#[derive(Debug)]
pub(super) struct Busy {
    base: Instant,
    /// When the last one of all may come back.
    last: AtomicU64,
    /// The upper bits of a caller's number, and until when.
    slots: Box<[AtomicU64]>,
}

impl Busy {
    pub(super) fn new(now: Instant) -> Self {
        Busy {
            base: now,
            last: AtomicU64::new(0),
            slots: (0..CALLERS_MAX).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Takes note of an answer.
    pub(super) fn tell(&self, caller: u64, wait: Duration, now: Instant) {
        let until = self.millis(now + wait.min(WAIT_MAX));
        self.last.fetch_max(until, Ordering::Relaxed);
        if let Some(slot) = self.slot(caller) {
            slot.store(tag(caller) | until, Ordering::Relaxed);
        }
    }

    /// Whether anybody is to stay away: nearly always nobody.
    pub(super) fn has_any(&self, now: Instant) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        last != 0 && self.millis(now) < last
    }

    /// Whether that one is.
    pub(super) fn has(&self, caller: u64, now: Instant) -> bool {
        let Some(slot) = self.slot(caller) else {
            return false;
        };
        let told = slot.load(Ordering::Relaxed);
        let until = told & ((1 << TIME_BITS) - 1);
        told != 0 && told & !((1 << TIME_BITS) - 1) == tag(caller) && self.millis(now) < until
    }

    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.base).as_millis();
        u64::try_from(since).unwrap_or(0) & ((1 << TIME_BITS) - 1)
    }

    fn slot(&self, caller: u64) -> Option<&AtomicU64> {
        let place = caller % (CALLERS_MAX as u64);
        self.slots.get(usize::try_from(place).ok()?)
    }
}

fn tag(caller: u64) -> u64 {
    caller >> TIME_BITS << TIME_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_stays_away_for_its_time_and_no_other() {
        let now = Instant::now();
        let busy = Busy::new(now);
        let (alice, bob) = (5 << 40 | 1, 6 << 40 | 1);
        assert!(!busy.has_any(now) && !busy.has(alice, now));
        busy.tell(alice, Duration::from_secs(2), now);
        assert!(busy.has_any(now) && busy.has(alice, now));
        assert!(!busy.has(bob, now));
        let later = now + Duration::from_secs(2);
        assert!(!busy.has_any(later) && !busy.has(alice, later));
        busy.tell(alice, Duration::from_secs(9_999), now);
        assert!(!busy.has(alice, now + WAIT_MAX));
    }
}
