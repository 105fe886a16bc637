//! How many at once: a count of held permits, each given back when it is dropped.
//!
//! The maximum is an argument, so that a reload moves it with every permit still counted. A lower
//! one takes none back: it admits nobody until enough have finished. Nobody waits here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::decision::{Reason, Rejection};
use crate::moment::Moment;
use crate::spread::Spread;

/// How long one permit is taken to be held when a refused caller is told to come back: there is
/// no measure of it here, and Retry-After counts in seconds anyway.
const TURN_NANOS: u64 = 1_000_000_000;

/// A count of permits held.
#[derive(Debug, Default)]
pub struct InFlight {
    held: AtomicU32,
    spread: Spread,
}

impl InFlight {
    /// Takes a permit, if fewer than `max` are held. With a `max` of zero nobody is admitted.
    ///
    /// # Errors
    /// A [`Rejection`] when they are; `noise` spreads its hint.
    pub fn acquire(
        self: &Arc<Self>,
        max: u32,
        now: Moment,
        noise: u64,
    ) -> Result<Permit, Rejection> {
        let take = |held: u32| (held < max).then(|| held + 1);
        match self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            Ok(_) => Ok(Permit(Some(Arc::clone(self)))),
            Err(_) => Err(Rejection {
                retry_after: self.spread.next(
                    now,
                    Duration::from_nanos(TURN_NANOS),
                    TURN_NANOS / u64::from(max.max(1)),
                    noise,
                ),
                reason: Reason::InFlight,
            }),
        }
    }

    /// How many permits are held.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }
}

/// The right to be in flight; dropping it gives it back. Not `Clone`: it is counted once.
#[derive(Debug)]
pub struct Permit(Option<Arc<InFlight>>);

impl Permit {
    /// A permit of what has no limit.
    #[must_use]
    pub const fn unlimited() -> Self {
        Permit(None)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(counted) = &self.0 {
            counted.held.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
