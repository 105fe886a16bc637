//! Letting history go: nobody else compacts a store that no kube-apiserver stands behind.
//!
//! Every interval the revision of the interval before becomes the floor, so that watches can be
//! taken up and pages turned for one to two intervals. When space runs short all history goes at
//! once: clients list anew, which is better than writes being refused.

use std::time::Duration;

use sluice_metastore::{Error, Revision, Store};
use tokio::time::Instant;

/// How often space is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long after history was let go for want of space it may be again: the space is back by then.
const PAUSE: Duration = Duration::from_secs(3);

/// Compacts until the store has stopped.
pub(super) async fn run(store: Store, every: Duration) {
    let mut floor: Option<Revision> = None;
    loop {
        let next = store.revision();
        let is_short = is_short_within(&store, every).await;
        let at = if is_short {
            Some(store.revision())
        } else {
            floor
        };
        if let Some(at) = at.filter(|at| *at > store.compacted()) {
            match store.compact(at).await {
                Ok(_) if is_short => {
                    tracing::warn!(revision = at.get(), "history compacted for want of space");
                }
                Ok(_) => tracing::debug!(revision = at.get(), "history compacted"),
                Err(Error::Stopped { .. }) => return,
                Err(error) => tracing::warn!(%error, "history could not be compacted"),
            }
        }
        if is_short {
            tokio::time::sleep(PAUSE.min(every)).await;
        } else {
            floor = Some(next);
        }
    }
}

/// Waits for an interval, or until space runs short while there is history to let go.
async fn is_short_within(store: &Store, every: Duration) -> bool {
    let end = Instant::now() + every;
    while Instant::now() < end {
        if store.is_nearly_full() && store.revision() > store.compacted() {
            return true;
        }
        let left = end.saturating_duration_since(Instant::now());
        tokio::time::sleep(left.min(LOOK_EVERY)).await;
    }
    false
}
