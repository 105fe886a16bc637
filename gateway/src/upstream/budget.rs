//! How many requests of a cluster may be sent once more, so that retries do not multiply a fault.
//!
//! Every request pays in a fifth of a retry; the purse begins full, so that the requests in
//! flight on a connection that breaks may all be repeated at once. Retries of requests that never
//! left, or that the endpoint says it did not look at, cost nothing: they add no work.
//!
//! Doubts of a 500 have a purse of their own besides: who was right to doubt is given back what it
//! cost, so that endpoints that all say 500 are soon asked once, and one that does is not believed.

use std::sync::atomic::{AtomicU32, Ordering};

/// A retry in units of the purse; a request pays in one.
const RETRY: u32 = 5;

/// As many retries as a full purse holds: twice the streams of two full connections.
const RETRIES_MAX: u32 = 400;

/// A doubt that was wrong: reads of what no apiserver can read add a twentieth at most.
const DOUBT: u32 = 20;

/// Doubts at once: half the streams of a connection.
const DOUBTS_MAX: u32 = 50;

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    units: AtomicU32,
    price: u32,
    purse: u32,
}

impl Budget {
    /// For retries.
    pub(super) const fn of_retries() -> Budget {
        Budget::full(RETRY, RETRIES_MAX)
    }

    /// For doubts.
    pub(super) const fn of_doubts() -> Budget {
        Budget::full(DOUBT, DOUBTS_MAX)
    }

    const fn full(price: u32, times: u32) -> Budget {
        Budget {
            units: AtomicU32::new(price * times),
            price,
            purse: price * times,
        }
    }

    /// A request is made for the first time.
    pub(crate) fn deposit(&self) {
        self.pay_in(1);
    }

    /// What was paid for is given back.
    pub(crate) fn refund(&self) {
        self.pay_in(self.price);
    }

    fn pay_in(&self, units: u32) {
        // Full is the common case, and then nothing is written.
        if self.units.load(Ordering::Relaxed) < self.purse {
            self.units.fetch_add(units, Ordering::Relaxed);
        }
    }

    /// Whether one may be made once more; if so, it is paid for.
    pub(crate) fn withdraw(&self) -> bool {
        let paid = |units: u32| units.checked_sub(self.price);
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
        let budget = Budget::of_retries();
        let burst = (0..10_000).filter(|_| budget.withdraw()).count();
        assert_eq!(burst, 400);
        for _ in 0..1_000 {
            budget.deposit();
        }
        let more = (0..10_000).filter(|_| budget.withdraw()).count();
        assert_eq!(more, 200);
    }

    #[test]
    fn doubts_that_were_right_cost_nothing() {
        let doubts = Budget::of_doubts();
        for _ in 0..10_000 {
            assert!(doubts.withdraw());
            doubts.refund();
        }
        let wrong = (0..10_000).filter(|_| doubts.withdraw()).count();
        assert_eq!(wrong, 50);
        for _ in 0..1_000 {
            doubts.deposit();
        }
        assert_eq!((0..10_000).filter(|_| doubts.withdraw()).count(), 50);
    }
}
