//! How everything that lives on connections comes to its end when the process stops.
//!
//! ```text
//!   running --leave--> leaving --start(budget)--> draining --end--> ending --cut--> gone
//!              not ready,           no new             watches end     what is left
//!              all is served        connections,       at a frame      is dropped
//!                                   GOAWAY, paced      boundary
//! ```
//! The listener starts it and counts connections; tunnels and watches hold a [`ConnectionDrain`].
//! Ends are spread over the budget by connection number, so that a thousand informers do not come
//! back to the next replica in one instant. It knows nothing of HTTP.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long after the budget watches and tunnels have to say goodbye before they are cut: one
/// frame and a close notice need milliseconds, a slow client's window up to a second.
const END_GRACE: Duration = Duration::from_secs(1);

/// The process's wish to stop; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    leaving: AtomicBool,
    handed_over: AtomicBool,
    started: CancellationToken,
    ending: CancellationToken,
    cut: CancellationToken,
    budget: OnceLock<Duration>,
    tracker: TaskTracker,
    connections: AtomicU32,
}

/// One connection's part of a [`Drain`].
#[derive(Clone, Debug, Default)]
pub struct ConnectionDrain {
    /// Cancelled when the connection's watches and tunnels have to end.
    pub ending: CancellationToken,
    /// Cancelled for all connections at once, when what has no end of its own has to be given up:
    /// the budget is spent.
    pub closing: CancellationToken,
    /// Counts what lives longer than a request: connections and tunnels.
    pub tracker: TaskTracker,
    /// Where in the spread this connection's end lies, 0 to 1.
    share: f64,
}

/// What a drain left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections and tunnels that had to be cut.
    pub cut: usize,
}

impl Drain {
    /// A drain that has not been asked for.
    #[must_use]
    pub fn new() -> Self {
        Drain::default()
    }

    /// A new connection's part.
    #[must_use]
    pub fn connection(&self) -> ConnectionDrain {
        let number = self.inner.connections.fetch_add(1, Ordering::Relaxed);
        ConnectionDrain {
            ending: self.inner.ending.child_token(),
            closing: self.inner.ending.clone(),
            tracker: self.inner.tracker.clone(),
            share: spread(number),
        }
    }

    /// Says that the end is near, so that nobody is sent here any more; all is served as before.
    pub fn leave(&self) {
        self.inner.leaving.store(true, Ordering::Relaxed);
    }

    /// Whether the end is near, or under way.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.inner.leaving.load(Ordering::Relaxed) || self.is_started()
    }

    /// Asks for the end: nothing new is accepted from now on. Later calls change nothing.
    pub fn start(&self, budget: Duration) {
        self.inner.budget.get_or_init(|| budget);
        self.inner.started.cancel();
    }

    /// As [`Drain::start`], where another process accepts from now on: what waits is its.
    pub fn hand_over(&self, budget: Duration) {
        self.inner.handed_over.store(true, Ordering::Relaxed);
        self.start(budget);
    }

    /// Whether another process accepts what comes.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.inner.handed_over.load(Ordering::Relaxed)
    }

    /// Whether the end has been asked for.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.inner.started.is_cancelled()
    }

    /// Waits until the end is asked for.
    pub async fn started(&self) {
        self.inner.started.cancelled().await;
    }

    /// Waits until what is left has to be dropped.
    pub async fn cut(&self) {
        self.inner.cut.cancelled().await;
    }

    /// Connections and tunnels alive.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.inner.tracker.len()
    }

    /// Starts, waits for everything to end, and cuts what outlives the budget.
    pub async fn finish(&self, budget: Duration) -> Drained {
        self.start(budget);
        self.inner.tracker.close();
        if tokio::time::timeout(budget, self.inner.tracker.wait())
            .await
            .is_ok()
        {
            return Drained { cut: 0 };
        }
        self.inner.ending.cancel();
        if tokio::time::timeout(END_GRACE, self.inner.tracker.wait())
            .await
            .is_ok()
        {
            return Drained { cut: 0 };
        }
        let cut = self.alive();
        self.inner.cut.cancel();
        Drained { cut }
    }

    /// Drops everything at once: whoever asks twice does not want to wait.
    pub fn cut_now(&self) {
        self.start(Duration::ZERO);
        self.inner.tracker.close();
        self.inner.ending.cancel();
        self.inner.cut.cancel();
    }

    fn budget(&self) -> Duration {
        self.inner.budget.get().copied().unwrap_or_default()
    }

    /// When a connection is told to leave: within the first half of the budget.
    pub(crate) fn goaway_after(&self, connection: &ConnectionDrain) -> Duration {
        self.budget().mul_f64(connection.share * 0.5)
    }

    /// When its watches end: within the second half, with a rest left for the ending itself.
    pub(crate) fn watches_after(&self, connection: &ConnectionDrain) -> Duration {
        self.budget().mul_f64(0.5 + connection.share * 0.4)
    }
}

/// Numbers in a row land far from each other and evenly over 0 to 1: the bits, mirrored.
fn spread(number: u32) -> f64 {
    f64::from(number.reverse_bits()) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_end_apart() {
        let shares: Vec<f64> = (0..4).map(spread).collect();
        assert_eq!(shares, [0.0, 0.5, 0.25, 0.75]);
    }

    #[tokio::test]
    async fn what_ends_by_itself_is_not_cut() {
        let drain = Drain::new();
        let part = drain.connection();
        let ending = part.ending.clone();
        part.tracker.spawn(async move { ending.cancelled().await });
        let drained = drain.finish(Duration::from_millis(20)).await;
        assert_eq!((drained, drain.alive()), (Drained { cut: 0 }, 0));
    }

    #[tokio::test]
    async fn whoever_leaves_still_serves() {
        let drain = Drain::new();
        drain.leave();
        assert!(drain.is_leaving() && !drain.is_started());
        let part = drain.connection();
        let whole = drain.clone();
        let task = part.tracker.spawn(async move { whole.cut().await });
        drain.cut_now();
        assert!(drain.is_started() && part.ending.is_cancelled());
        task.await.unwrap();
    }

    #[tokio::test]
    async fn what_stays_is_cut_and_counted() {
        let drain = Drain::new();
        let part = drain.connection();
        let whole = drain.clone();
        part.tracker.spawn(async move { whole.cut().await });
        assert_eq!(
            drain.finish(Duration::from_millis(20)).await,
            Drained { cut: 1 }
        );
    }
}
