//! When the refused should come back: each a little later than the one before.
//!
//! One constant hint keeps a herd in step: whoever was refused together returns together
//! (kubernetes/kubernetes#79805). So the hints are themselves spaced as the admissions will be:
//! the n-th refused is told the wait plus n intervals, and the row shortens by itself as time
//! passes. A row longer than [`ROW_MAX`] is answered at random within it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::moment::{Moment, nanos};

/// The longest row of hints beyond the wait itself: kube-apiserver's own hints end at 32 seconds,
/// and one bad client on a shared bucket must not send the others away for longer.
const ROW_MAX: Duration = Duration::from_secs(32);

/// The end of the row of hints, as nanoseconds since the epoch.
#[derive(Debug, Default)]
pub(crate) struct Spread(AtomicU64);

impl Spread {
    /// The hint of one more refused, who would have to wait for `wait` if there were no others,
    /// where one is admitted each `interval_nanos`.
    pub(crate) fn next(
        &self,
        now: Moment,
        wait: Duration,
        interval_nanos: u64,
        noise: u64,
    ) -> Duration {
        let first = now + wait;
        let last = first + ROW_MAX;
        let place = |end: u64| end.max(first.as_nanos());
        let advance = |end| {
            let next = place(end).saturating_add(interval_nanos);
            (next <= last.as_nanos()).then_some(next)
        };
        let hint = match self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance)
        {
            Ok(end) => Moment::from_nanos(place(end)).since(now),
            Err(_) => wait + fraction(ROW_MAX, noise),
        };
        // A quarter at random, so that neither are the whole seconds of a header hit in step.
        hint + fraction(hint / 4, noise.rotate_left(32))
    }
}

/// A part of `span` between none and all of it, by the low half of `noise`.
fn fraction(span: Duration, noise: u64) -> Duration {
    let part = u128::from(nanos(span)) * u128::from(noise & 0xffff_ffff);
    Duration::from_nanos(u64::try_from(part >> 32).unwrap_or(u64::MAX))
}
