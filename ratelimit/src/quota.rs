//! How often something may happen: a rate, and how much of it may be saved up.
//!
//! `Quota::new(10, 1 s, 20)` lets ten a second pass in the long run, and twenty at once after a
//! pause of two seconds. The same average with a burst of one spaces them 100 ms apart. Rates are
//! kept as the whole nanoseconds between two admissions, so a rate that does not divide a second
//! (three a second) is met to a part in 10^8; [`Quota::new`] refuses those met to less than one
//! in a hundred.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::moment::nanos;

/// The shortest time between two admissions: below it, rounding to nanoseconds would cost more
/// than one per cent of accuracy.
const INTERVAL_MIN: Duration = Duration::from_nanos(100);

/// The longest time an empty bucket may take to fill: a month. Longer ones are a mistake in a
/// unit, and the bound keeps every sum of nanoseconds far from the end of its word.
const FILL_MAX: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// Why a quota is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// More than ten million a second.
    #[error("rate is above 10 million a second: give a smaller one, or no limit")]
    TooFast,
    /// Filling the burst would take more than a month, or the period is none.
    #[error("burst takes more than 31 days to fill: give a higher rate or a smaller burst")]
    TooSlow,
}

/// A rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Invariant: [`INTERVAL_MIN`] and longer, and times the burst at most [`FILL_MAX`].
    gcra: governor::Quota,
}

impl Quota {
    /// `count` in each `period` in the long run, at most `burst` at once.
    ///
    /// # Errors
    /// [`QuotaError`] when the rate lies outside what the arithmetic keeps exact.
    pub fn new(count: NonZeroU32, period: Duration, burst: NonZeroU32) -> Result<Self, QuotaError> {
        Quota::every(period / count.get(), burst)
    }

    /// One each `interval` in the long run, at most `burst` at once.
    ///
    /// # Errors
    /// As [`Quota::new`].
    pub fn every(interval: Duration, burst: NonZeroU32) -> Result<Self, QuotaError> {
        if interval < INTERVAL_MIN {
            return Err(QuotaError::TooFast);
        }
        if interval
            .checked_mul(burst.get())
            .is_none_or(|fill| fill > FILL_MAX)
        {
            return Err(QuotaError::TooSlow);
        }
        let gcra = governor::Quota::with_period(interval).ok_or(QuotaError::TooFast)?;
        Ok(Quota {
            gcra: gcra.allow_burst(burst),
        })
    }

    /// `count` a second in the long run, at most `burst` at once.
    ///
    /// # Errors
    /// As [`Quota::new`].
    pub fn per_second(count: NonZeroU32, burst: NonZeroU32) -> Result<Self, QuotaError> {
        Quota::new(count, Duration::from_secs(1), burst)
    }

    /// The time in which one admission comes back.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.gcra.replenish_interval()
    }

    /// How many may pass at once after a pause.
    #[must_use]
    pub fn burst(&self) -> NonZeroU32 {
        self.gcra.burst_size()
    }

    /// Nanoseconds between two admissions.
    pub(crate) fn interval_nanos(&self) -> u64 {
        nanos(self.interval())
    }

    /// Nanoseconds in which an empty bucket fills; the constructor keeps it in its word.
    pub(crate) fn fill_nanos(&self) -> u64 {
        self.interval_nanos() * u64::from(self.burst().get())
    }

    pub(crate) fn gcra(self) -> governor::Quota {
        self.gcra
    }
}
