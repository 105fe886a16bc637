//! How many requests of a cluster may be sent once more, so that retries do not multiply a fault.
//!
//! Every request pays in a fifth of a retry; the purse begins full, so that the requests in
//! flight on a connection that breaks may all be repeated at once. Retries of requests that never
//! left, or that the endpoint says it did not look at, cost nothing: they add no work.

use std::sync::atomic::{AtomicU32, Ordering};

/// A retry in units of the purse; a request pays in one.
const RETRY: u32 = 5;

/// As many retries as a full purse holds: twice the streams of two full connections.
const PURSE: u32 = 400 * RETRY;

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    units: AtomicU32,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            units: AtomicU32::new(PURSE),
        }
    }
}

impl Budget {
    /// A request is made for the first time.
    pub(crate) fn deposit(&self) {
        // Full is the common case, and then nothing is written.
        let units = self.units.load(Ordering::Relaxed);
        if units < PURSE {
            self.units.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether one may be made once more; if so, it is paid for.
    pub(crate) fn withdraw(&self) -> bool {
        let paid = |units: u32| units.checked_sub(RETRY);
        self.units
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, paid)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_requests_buy_a_retry() {
        let budget = Budget::default();
        let burst = (0..10_000).filter(|_| budget.withdraw()).count();
        assert_eq!(burst, 400);
        for _ in 0..1_000 {
            budget.deposit();
        }
        let more = (0..10_000).filter(|_| budget.withdraw()).count();
        assert_eq!(more, 200);
    }
}
