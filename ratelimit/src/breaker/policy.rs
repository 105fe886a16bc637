//! By what a breaker trips, and how it lets go. Plain values; any combination is valid.

use std::num::NonZeroU32;
use std::time::Duration;

/// A share in per cent, from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

impl Percent {
    /// None of it.
    pub const NONE: Percent = Percent(0);
    /// All of it.
    pub const ALL: Percent = Percent(100);

    /// The share, unless it is above 100.
    #[must_use]
    pub const fn new(percent: u8) -> Option<Self> {
        if percent <= 100 {
            Some(Percent(percent))
        } else {
            None
        }
    }

    /// The number, 0 to 100.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// In hundredths of a per cent.
    pub(super) const fn basis_points(self) -> u64 {
        self.0 as u64 * 100
    }
}

/// How a breaker closes: a share of requests passes at first, growing evenly to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    /// The share at the start.
    pub from: Percent,
    /// Until all pass; zero closes at once.
    pub over: Duration,
}

/// Too many failures among enough requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureRatio {
    /// The share of failures that trips.
    pub percent: Percent,
    /// Fewer requests in the window than this say nothing.
    pub requests_min: NonZeroU32,
    /// What is looked back upon: the running window of this length and the one before, so
    /// between one and two lengths.
    pub window: Duration,
}

/// When a breaker trips by itself, and how it lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Trips after so many failures without a success between them; `None` does not.
    pub consecutive: Option<NonZeroU32>,
    /// Trips by the share of failures; `None` does not.
    pub ratio: Option<FailureRatio>,
    /// How long it stays open when it tripped by itself.
    pub open_for: Duration,
    /// Half-open, so many probes must succeed.
    pub probes: NonZeroU32,
    /// The way from half-open to closed, and from a trip by hand that ran out.
    pub ramp: Ramp,
}

impl BreakerPolicy {
    /// Trips by hand only, and closes at once when that runs out.
    pub const BY_HAND: BreakerPolicy = BreakerPolicy {
        consecutive: None,
        ratio: None,
        open_for: Duration::ZERO,
        probes: NonZeroU32::MIN,
        ramp: Ramp {
            from: Percent::ALL,
            over: Duration::ZERO,
        },
    };
}
