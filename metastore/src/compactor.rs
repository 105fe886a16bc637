//! Compaction by itself: what is kept is a length of time, or a number of revisions.
//!
//! By time, the revision is noted ten times within the length kept, or within an hour if that is
//! shorter; what was newest a whole length ago becomes the floor. Until the process has seen such a
//! length pass nothing is compacted: how old the revisions before it are is not known. This is what
//! etcd does, interval by interval, so that a client that relies on history sees the same.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::store::Store;
use crate::{Error, Revision};

/// A length is looked at so many times.
const STEPS: u32 = 10;
/// The longest between two compactions by time.
const PERIOD_MAX: Duration = Duration::from_secs(3600);
/// Between two looks when revisions are counted.
const COUNT_EVERY: Duration = Duration::from_secs(300);

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// What was there so long ago can still be read.
    Time(Duration),
    /// So many revisions can still be read.
    Revisions(u64),
}

impl Retention {
    /// How often there is something to look at.
    fn interval(self) -> Duration {
        match self {
            Retention::Time(kept) => kept.min(PERIOD_MAX) / STEPS,
            Retention::Revisions(_) => COUNT_EVERY,
        }
    }
}

/// Compacts a store until `stop` is cancelled. Returns at once when nothing is ever to go.
pub async fn run(store: Store, retention: Retention, stop: CancellationToken) {
    let mut plan = match retention {
        Retention::Time(Duration::ZERO) | Retention::Revisions(0) => return,
        kept => Plan::new(kept, Instant::now()),
    };
    plan.note(store.revision());
    let mut ticks = tokio::time::interval(retention.interval());
    ticks.tick().await;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let due = plan.due(Instant::now(), store.revision());
        plan.note(store.revision());
        let Some(at) = due else { continue };
        match store.compact(at).await {
            Ok(_) | Err(Error::Compacted { .. }) => {
                tracing::info!(revision = %at, "compacted by retention");
                plan.done(at, Instant::now());
            }
            Err(error) => {
                tracing::warn!(revision = %at, %error, "cannot compact by retention, tried again");
            }
        }
    }
}

/// When what is to go, over a `now` that is handed in.
struct Plan {
    retention: Retention,
    /// Revisions at the last looks, oldest first.
    noted: VecDeque<Revision>,
    last: Revision,
    last_at: Instant,
    /// How long after the last one the next may come.
    pause: Duration,
}

impl Plan {
    fn new(retention: Retention, now: Instant) -> Self {
        let pause = match retention {
            Retention::Time(kept) => kept,
            Retention::Revisions(_) => Duration::ZERO,
        };
        Plan {
            retention,
            noted: VecDeque::new(),
            last: Revision::ZERO,
            last_at: now,
            pause,
        }
    }

    /// Remembers the newest revision of now.
    fn note(&mut self, revision: Revision) {
        if let Retention::Time(kept) = self.retention {
            let looks = kept.as_nanos() / self.retention.interval().as_nanos().max(1);
            self.noted.push_back(revision);
            while self.noted.len() as u128 > looks + 1 {
                self.noted.pop_front();
            }
        }
    }

    /// Up to where history may go now.
    fn due(&self, now: Instant, newest: Revision) -> Option<Revision> {
        let at = match self.retention {
            Retention::Time(_) => *self.noted.front()?,
            Retention::Revisions(kept) => Revision::new(newest.get().saturating_sub(kept)),
        };
        let is_early = now.saturating_duration_since(self.last_at) < self.pause;
        (!is_early && at > self.last && at > Revision::ZERO).then_some(at)
    }

    fn done(&mut self, at: Revision, now: Instant) {
        self.last = at;
        self.last_at = now;
        if let Retention::Time(kept) = self.retention {
            self.pause = kept.min(PERIOD_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks for so many intervals, one revision more at each; answers interval and floor of each
    /// compaction.
    fn compactions(retention: Retention, intervals: u32) -> Vec<(u32, u64)> {
        let start = Instant::now();
        let mut plan = Plan::new(retention, start);
        let mut found = Vec::new();
        plan.note(Revision::new(1));
        for n in 1..=intervals {
            let now = start + retention.interval() * n;
            let newest = Revision::new(u64::from(n) + 1);
            if let Some(at) = plan.due(now, newest) {
                found.push((n, at.get()));
                plan.done(at, now);
            }
            plan.note(newest);
        }
        found
    }

    /// The cases of etcd's own tests: two hours, then hourly; five minutes, then every five.
    #[test]
    fn times_are_kept_as_etcd_keeps_them() {
        let hours = Retention::Time(Duration::from_secs(2 * 3600));
        assert_eq!(hours.interval(), Duration::from_secs(360));
        assert_eq!(
            compactions(hours, 50),
            [(20, 1), (30, 10), (40, 20), (50, 30)]
        );
        let minutes = Retention::Time(Duration::from_secs(300));
        assert_eq!(minutes.interval(), Duration::from_secs(30));
        assert_eq!(compactions(minutes, 30), [(10, 1), (20, 10), (30, 20)]);
    }

    #[test]
    fn revisions_are_counted_from_the_newest() {
        let kept = Retention::Revisions(10);
        assert_eq!(compactions(kept, 12), [(10, 1), (11, 2), (12, 3)]);
    }

    #[test]
    fn a_quiet_store_is_compacted_once() {
        let start = Instant::now();
        let mut plan = Plan::new(Retention::Revisions(10), start);
        let newest = Revision::new(100);
        assert_eq!(plan.due(start, newest), Some(Revision::new(90)));
        plan.done(Revision::new(90), start);
        assert_eq!(plan.due(start + COUNT_EVERY, newest), None);
    }
}
