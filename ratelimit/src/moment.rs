//! Points in time as one word: nanoseconds since the process's epoch.
//!
//! Buckets keep such words in atomics over reloads, so all of a process must count from one
//! [`Epoch`]. A word lasts 584 years. Wall-clock time does not appear.

use std::ops::Add;
use std::time::{Duration, Instant};

/// Where a process counts its [`Moment`]s from; made once, then copied.
#[derive(Clone, Copy, Debug)]
pub struct Epoch(Instant);

impl Epoch {
    /// Counts from `start`; earlier instants read as the start.
    #[must_use]
    pub fn new(start: Instant) -> Self {
        Epoch(start)
    }

    /// The moment of an instant.
    #[must_use]
    pub fn moment(self, at: Instant) -> Moment {
        Moment::ZERO + at.saturating_duration_since(self.0)
    }

    /// The instant of a moment, where the platform's clock reaches so far.
    #[must_use]
    pub fn instant(self, at: Moment) -> Option<Instant> {
        self.0.checked_add(Duration::from_nanos(at.0))
    }
}

/// Nanoseconds since the process's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The epoch itself.
    pub const ZERO: Moment = Moment(0);

    /// So many nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    /// Saturates at the end of the word.
    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(span)))
    }
}

/// A span in nanoseconds, saturating.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
