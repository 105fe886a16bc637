//! A bucket charged afterwards: for bytes and other costs known only when the work is done.
//!
//! One is admitted while the bucket is not overdrawn, and charged whatever it cost; the next wait
//! until that is paid back. `governor` has neither debits nor refunds. The state is one word: the
//! moment at which all that was charged will be paid.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::decision::{Reason, Rejection};
use crate::moment::{Moment, nanos};

/// The most that is owed beyond the burst: one enormous answer should calm its maker, not shut
/// him out for longer than an operator looks at a graph.
const DEBT_MAX: Duration = Duration::from_secs(60);

const SECOND_NANOS: u128 = 1_000_000_000;

/// A bucket that may be overdrawn.
#[derive(Debug, Default)]
pub struct Debt {
    paid_at: AtomicU64,
}

impl Debt {
    /// Whether one may go on: what is owed fits in `burst` units at `per_second` units.
    ///
    /// # Errors
    /// A [`Rejection`] with the time until it does.
    pub fn check(&self, per_second: NonZeroU64, burst: u64, now: Moment) -> Result<(), Rejection> {
        let owed = self.owed(now);
        let free = Duration::from_nanos(cost_nanos(burst, per_second));
        if owed <= free {
            return Ok(());
        }
        Err(Rejection {
            retry_after: owed - free,
            reason: Reason::Debt,
        })
    }

    /// Charges what it cost, in units.
    pub fn charge(&self, cost: u64, per_second: NonZeroU64, burst: u64, now: Moment) {
        let price = cost_nanos(cost, per_second);
        let most = cost_nanos(burst, per_second).saturating_add(nanos(DEBT_MAX));
        let pay = |at: u64| {
            let start = at.max(now.as_nanos());
            let ceiling = now.as_nanos().saturating_add(most).max(start);
            Some(start.saturating_add(price).min(ceiling))
        };
        // The closure always answers, so the update cannot fail.
        let _ = self
            .paid_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
    }

    /// The time in which all will be paid.
    #[must_use]
    pub fn owed(&self, now: Moment) -> Duration {
        Moment::from_nanos(self.paid_at.load(Ordering::Relaxed)).since(now)
    }
}

fn cost_nanos(units: u64, per_second: NonZeroU64) -> u64 {
    let span = u128::from(units) * SECOND_NANOS / u128::from(per_second.get());
    u64::try_from(span).unwrap_or(u64::MAX)
}
