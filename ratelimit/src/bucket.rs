//! A token bucket: how often, by `governor`'s generic cell rate algorithm.
//!
//! The bucket keeps one word, the moment at which it will be full again, and the quota by which
//! that word is to be read. `governor`'s limiters cannot change their quota, and re-anchor their
//! time when they are made anew. Here each question makes a direct limiter on the stack (a few
//! instructions) over the kept word, with a clock that reads zero on the one call that
//! `RateLimiter::new` makes, and the caller's present thereafter: time and quota
//! are arguments, and all of a process counts from one epoch.
//!
//! When the quota differs from the last one, the word is rewritten first: what was left in the
//! bucket stays, in admissions, cut to the new burst. Raising a quota hence grants nothing at
//! once, and switching it to and fro grants nothing at all. A bucket learns of a new quota when it
//! is next asked; the time until then still counts at the old rate, up to the new burst.
//!
//! A decision under way while the quota changes may be judged by the old rate over the new word;
//! that is at most one admission for each such caller.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use governor::RateLimiter;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::direct::NotKeyed;
use governor::state::{InMemoryState, StateStore};
use parking_lot::Mutex;

use crate::decision::{Reason, Rejection};
use crate::moment::Moment;
use crate::quota::Quota;
use crate::spread::Spread;

/// A token bucket without its quota.
#[derive(Debug)]
pub struct Bucket {
    /// When the bucket is full again, in nanoseconds since the epoch; zero means never touched.
    full_at: InMemoryState,
    /// The quota by which `full_at` was written, in two words; a torn read equals no quota in use
    /// and so takes the lock.
    interval_nanos: AtomicU64,
    burst: AtomicU32,
    /// Held while the quota is exchanged, and then only.
    exchange: Mutex<()>,
    spread: Spread,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn new(quota: &Quota) -> Self {
        Bucket {
            full_at: InMemoryState::default(),
            interval_nanos: AtomicU64::new(quota.interval_nanos()),
            burst: AtomicU32::new(quota.burst().get()),
            exchange: Mutex::new(()),
            spread: Spread::default(),
        }
    }

    /// Takes one admission out.
    ///
    /// # Errors
    /// A [`Rejection`] when the bucket is empty; `noise` spreads its hint.
    pub fn check(&self, quota: &Quota, now: Moment, noise: u64) -> Result<(), Rejection> {
        self.adopt(quota, now);
        let limiter = self.limiter(quota, now);
        match limiter.check() {
            Ok(()) => Ok(()),
            Err(until) => Err(self.reject(quota, until.wait_time_from(word(now)), now, noise)),
        }
    }

    /// Takes several admissions out at once. A cost above the burst counts as the burst: it
    /// would otherwise never pass.
    ///
    /// # Errors
    /// A [`Rejection`] when there are not as many, and then takes none.
    pub fn check_cost(
        &self,
        quota: &Quota,
        cost: NonZeroU32,
        now: Moment,
        noise: u64,
    ) -> Result<(), Rejection> {
        self.adopt(quota, now);
        let limiter = self.limiter(quota, now);
        match limiter.check_n(cost.min(quota.burst())) {
            Ok(Ok(())) | Err(_) => Ok(()),
            Ok(Err(until)) => Err(self.reject(quota, until.wait_time_from(word(now)), now, noise)),
        }
    }

    /// Whether nothing would be lost by forgetting the bucket.
    #[must_use]
    pub fn is_full(&self, now: Moment) -> bool {
        self.full_at() <= now.as_nanos()
    }

    fn limiter<'a>(&'a self, quota: &Quota, now: Moment) -> Limiter<'a> {
        RateLimiter::new(quota.gcra(), Kept(&self.full_at), CallClock::at(now))
    }

    fn reject(&self, quota: &Quota, wait: Duration, now: Moment, noise: u64) -> Rejection {
        Rejection {
            retry_after: self.spread.next(now, wait, quota.interval_nanos(), noise),
            reason: Reason::Rate,
        }
    }

    fn full_at(&self) -> u64 {
        let peek = |at: Option<Nanos>| Err::<((), Nanos), _>(at);
        match self.full_at.measure_and_replace(&NotKeyed::NonKey, peek) {
            Ok(()) | Err(None) => 0,
            Err(Some(at)) => at.as_u64(),
        }
    }

    fn holds(&self, quota: &Quota) -> bool {
        self.interval_nanos.load(Ordering::Acquire) == quota.interval_nanos()
            && self.burst.load(Ordering::Acquire) == quota.burst().get()
    }

    fn adopt(&self, quota: &Quota, now: Moment) {
        if !self.holds(quota) {
            self.exchange(quota, now);
        }
    }

    #[cold]
    fn exchange(&self, quota: &Quota, now: Moment) {
        let _held = self.exchange.lock();
        if self.holds(quota) {
            return;
        }
        let interval = self.interval_nanos.load(Ordering::Acquire);
        let old = Filling {
            interval,
            fill: interval.saturating_mul(u64::from(self.burst.load(Ordering::Acquire))),
        };
        let new = Filling {
            interval: quota.interval_nanos(),
            fill: quota.fill_nanos(),
        };
        let rewrite = |at: Option<Nanos>| {
            let at = at.map_or(0, Nanos::as_u64);
            Ok::<_, ()>(((), Nanos::from(convert(at, old, new, now.as_nanos()))))
        };
        // The closure never fails, so neither does the exchange.
        let _ = self.full_at.measure_and_replace(&NotKeyed::NonKey, rewrite);
        self.interval_nanos.store(new.interval, Ordering::Release);
        self.burst.store(quota.burst().get(), Ordering::Release);
    }
}

/// A quota in nanoseconds: for one admission, and for all of the burst.
#[derive(Clone, Copy)]
struct Filling {
    interval: u64,
    fill: u64,
}

/// The moment of being full under `new`, where it was `full_at` under `old`: the admissions left
/// stay the same, rounded down, but for those above the new burst.
fn convert(full_at: u64, old: Filling, new: Filling, now: u64) -> u64 {
    let left = old.fill.saturating_sub(full_at.saturating_sub(now));
    let scaled = u128::from(left) * u128::from(new.interval) / u128::from(old.interval.max(1));
    let left = u64::try_from(scaled).unwrap_or(u64::MAX).min(new.fill);
    now.saturating_add(new.fill - left)
}

type Limiter<'a> = RateLimiter<NotKeyed, Kept<'a>, CallClock, NoOpMiddleware<Nanos>>;

/// The bucket's word, lent to a limiter for one decision.
struct Kept<'a>(&'a InMemoryState);

impl StateStore for Kept<'_> {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, key: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        self.0.measure_and_replace(key, decide)
    }
}

/// Reads zero once, for the limiter's birth, and the caller's present from then on.
struct CallClock {
    born: Cell<bool>,
    now: Nanos,
}

impl CallClock {
    fn at(now: Moment) -> Self {
        CallClock {
            born: Cell::new(false),
            now: word(now),
        }
    }
}

impl Clock for CallClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        if self.born.replace(true) {
            self.now
        } else {
            Nanos::new(0)
        }
    }
}

fn word(at: Moment) -> Nanos {
    Nanos::new(at.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recipe above leans on this; a release of governor that reads the clock more often, or
    /// less, fails here and not in production.
    #[test]
    fn a_limiter_reads_its_clock_once_when_made_and_once_a_check() {
        struct Counting(Cell<u32>);
        impl Clock for &Counting {
            type Instant = Nanos;
            fn now(&self) -> Nanos {
                self.0.set(self.0.get() + 1);
                Nanos::new(0)
            }
        }
        let clock = Counting(Cell::new(0));
        let quota = Quota::per_second(NonZeroU32::MIN, NonZeroU32::MIN).unwrap();
        let limiter = RateLimiter::direct_with_clock(quota.gcra(), &clock);
        assert_eq!(clock.0.get(), 1, "RateLimiter::new");
        limiter.check().unwrap();
        assert_eq!(clock.0.get(), 2, "check");
        let _ = limiter.check_n(NonZeroU32::MIN);
        assert_eq!(clock.0.get(), 3, "check_n");
    }
}
