//! Compaction by itself, over a running store.

use std::time::Duration;

use sluice_metastore::compactor::{self, Retention};
use sluice_metastore::{Error, Revision};
use tokio_util::sync::CancellationToken;

use crate::common::*;

#[tokio::test]
async fn history_older_than_what_is_kept_goes_by_itself() {
    let (_engine, store) = fresh();
    for n in 0..10 {
        put(&store, "/k", &n.to_string()).await;
    }
    let then = store.revision();
    let stop = CancellationToken::new();
    let kept = Retention::Time(Duration::from_millis(500));
    let running = tokio::spawn(compactor::run(store.clone(), kept, stop.clone()));
    let compacted = async {
        while store.compacted() < then {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let patience = Duration::from_secs(20);
    tokio::time::timeout(patience, compacted)
        .await
        .expect("it is compacted");
    let below = read_at(&store, key("/k"), then.get() - 1);
    assert!(matches!(below, Err(Error::Compacted { .. })));
    assert_eq!(read_at(&store, key("/k"), then.get()).unwrap().count, 1);
    stop.cancel();
    tokio::time::timeout(patience, running)
        .await
        .expect("it ends")
        .unwrap();
}

#[tokio::test]
async fn nothing_goes_where_all_is_kept() {
    let (_engine, store) = fresh();
    put(&store, "/k", "v").await;
    for all in [Retention::Time(Duration::ZERO), Retention::Revisions(0)] {
        // It returns at once: there will never be anything to do.
        compactor::run(store.clone(), all, CancellationToken::new()).await;
    }
    assert_eq!(store.compacted(), Revision::ZERO);
}
