//! How long something took, each time, in buckets: a millisecond, doubled thirteen times, and the
//! rest. These are etcd's buckets, so that its dashboards read ours.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bounded buckets.
const BOUNDS: usize = 14;
/// The bound of the first.
const FIRST: Duration = Duration::from_millis(1);

/// Times so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    counts: [u64; BOUNDS + 1],
    total: Duration,
}

impl Timings {
    /// Counts one more.
    pub fn add(&mut self, time: Duration) {
        if let Some(count) = self.counts.get_mut(bucket(time)) {
            *count += 1;
        }
        self.total += time;
    }

    /// Each bucket's greatest time, none for the last, and how many fell into it alone.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bounds = (0..BOUNDS).map(|place| Some(FIRST * (1 << place)));
        bounds.chain([None]).zip(self.counts)
    }

    /// All of them together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }
}

fn bucket(time: Duration) -> usize {
    (0..BOUNDS)
        .find(|place| time <= FIRST * (1 << place))
        .unwrap_or(BOUNDS)
}

/// The same, counted from several threads. Read while counted, it may be a time behind itself.
#[derive(Debug, Default)]
pub(crate) struct SharedTimings {
    counts: [AtomicU64; BOUNDS + 1],
    nanos: AtomicU64,
}

impl SharedTimings {
    pub(crate) fn add(&self, time: Duration) {
        if let Some(count) = self.counts.get(bucket(time)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Timings {
        Timings {
            counts: self
                .counts
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed)),
            total: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}
