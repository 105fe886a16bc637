//! The outcome of asking: a permit, or when to come back and why.

use std::sync::Arc;
use std::time::Duration;

use crate::bucket::Bucket;
use crate::inflight::{InFlight, Permit};
use crate::moment::Moment;
use crate::quota::Quota;

/// Which limit rejected; a closed set, fit for labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Too often.
    Rate,
    /// Too many at once.
    InFlight,
    /// Too much was used before.
    Debt,
    /// A breaker is open.
    BreakerOpen,
    /// A breaker is half-open and its probes are under way.
    BreakerHalfOpen,
    /// A breaker is ramping up, and the lot fell on this one.
    BreakerRamp,
}

impl Reason {
    /// The reason as one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Rate => "rate",
            Reason::InFlight => "in-flight",
            Reason::Debt => "debt",
            Reason::BreakerOpen => "breaker-open",
            Reason::BreakerHalfOpen => "breaker-half-open",
            Reason::BreakerRamp => "breaker-ramp",
        }
    }
}

/// Not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// When to come back: no promise, but spread over those who were refused.
    pub retry_after: Duration,
    /// What was short.
    pub reason: Reason,
}

/// What was decided.
#[derive(Debug)]
pub enum Decision {
    /// Go on; hold the permit while at it.
    Admit(Permit),
    /// Come back later.
    Reject(Rejection),
}

/// The limits one decision is made by; each may be missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'a> {
    /// How often.
    pub rate: Option<(&'a Bucket, &'a Quota)>,
    /// How many at once.
    pub in_flight: Option<(&'a Arc<InFlight>, u32)>,
}

/// Asks all limits. The permit comes first, since it can be given back: nothing is taken out of a
/// bucket for one who is rejected.
#[must_use]
pub fn decide(limits: Limits<'_>, now: Moment, noise: u64) -> Decision {
    let permit = match limits.in_flight {
        None => Permit::unlimited(),
        Some((in_flight, max)) => match in_flight.acquire(max, now, noise) {
            Ok(permit) => permit,
            Err(rejection) => return Decision::Reject(rejection),
        },
    };
    if let Some((bucket, quota)) = limits.rate
        && let Err(rejection) = bucket.check(quota, now, noise)
    {
        return Decision::Reject(rejection);
    }
    Decision::Admit(permit)
}
