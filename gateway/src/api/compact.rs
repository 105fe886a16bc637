//! Letting history go: nobody else compacts a store that no kube-apiserver stands behind.
//!
//! Every interval the revision of the interval before becomes the floor, so that watches can be
//! taken up and pages turned for one to two intervals.

use std::time::Duration;

use sluice_metastore::{Error, Revision, Store};

/// Compacts until the store has stopped.
pub(super) async fn run(store: Store, every: Duration) {
    let mut floor: Option<Revision> = None;
    loop {
        tokio::time::sleep(every).await;
        let next = store.revision();
        if let Some(at) = floor.filter(|at| *at > store.compacted()) {
            match store.compact(at).await {
                Ok(_) => tracing::debug!(revision = at.get(), "history compacted"),
                Err(Error::Stopped { .. }) => return,
                Err(error) => tracing::warn!(%error, "history could not be compacted"),
            }
        }
        floor = Some(next);
    }
}
