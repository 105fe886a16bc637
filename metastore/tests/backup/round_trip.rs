//! What comes out of a store goes back into one, exactly.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_metastore::backup::{Bump, Snapshot};
use sluice_metastore::events::Watch;
use sluice_metastore::{Error, KeyRange, LeaseId};

use super::common::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_store_shows_what_the_first_one_did() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.db");
    let store = lived_in().await;
    let at = save(&store, &file);
    let floor = store.compacted().get();

    let contents = read(&file).unwrap();
    let summary = contents.summary();
    assert_eq!((summary.revision, summary.compacted), (rev(at), rev(floor)));
    assert_eq!(summary.total_keys, 121);
    assert_eq!((summary.leases, summary.version.as_str()), (2, "3.6.0"));
    assert!(!summary.has_users);
    assert_eq!(contents.digest(&mut |_, _| {}).unwrap(), digest(&store, at));

    let made = restore(&file, &dir.path().join("data")).unwrap();
    assert_eq!((made.revision, made.compacted), (rev(at), rev(floor)));
    assert_eq!(made.made.digest, digest(&store, at));
    let restored = open(&dir.path().join("data"));
    assert_eq!(restored.revision(), rev(at));
    assert_eq!(restored.compacted(), rev(floor));
    for revision in [floor, floor + 1, at - 30, at] {
        assert_eq!(records(&restored, revision), records(&store, revision));
    }
    assert_eq!(
        changes(&restored, floor, at).await,
        changes(&store, floor, at).await
    );
    let below = restored.watch(Watch {
        range: KeyRange::All,
        start: Some(rev(floor - 1)),
        want_previous: false,
    });
    assert!(matches!(below, Err(Error::Compacted { .. })));
    for id in [LeaseId(77), LeaseId(-5)] {
        let (one, other) = (
            store.lease_remaining(id).unwrap(),
            restored.lease_remaining(id).unwrap(),
        );
        assert_eq!((one.granted, one.keys), (other.granted, other.keys));
    }
    let grant = |store| async move {
        let store: &sluice_metastore::Store = store;
        let ttl = Duration::from_secs(60);
        store.lease_grant(LeaseId::NONE, ttl).await.unwrap().0
    };
    assert_eq!(grant(&restored).await, grant(&store).await);

    // The same bytes again: nothing was lost on the way, and nothing of the way is left.
    let again = dir.path().join("again.db");
    let fresh = dir.path().join("fresh");
    restore(&file, &fresh).unwrap();
    save(&open(&fresh), &again);
    assert!(std::fs::read(&file).unwrap() == std::fs::read(&again).unwrap());
    assert_eq!(put(&restored, "/next", b"n").await, at + 1);
    restored.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_of_one_revision_while_writes_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = lived_in().await;
    let stop = AtomicBool::new(false);
    let writer = async {
        let mut number = 0_u32;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let key = |place: u32| format!("/registry/pods/{:04}", (number + place) % 150);
            let ops = vec![
                put_op(&key(9), &number.to_be_bytes(), 77),
                put_op(&key(3), b"", 0),
                delete_op(&key(5)),
            ];
            let at = run(&store, ops).await;
            if number.is_multiple_of(40) {
                // Races the snapshot's look at the order of changes.
                store.compact(rev(at - 20)).await.unwrap();
            }
        }
        number
    };
    let place = dir.path().to_owned();
    let saver = async {
        for round in 0..12 {
            let (store, file) = (store.clone(), place.join(round.to_string()));
            let task = tokio::task::spawn_blocking(move || save(&store, &file));
            task.await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (written, ()) = tokio::join!(writer, saver);
    assert!(written > 12, "{written} writes are not beside anything");
    for round in 0..12 {
        let file = dir.path().join(round.to_string());
        let data = dir.path().join(format!("data-{round}"));
        let made = restore(&file, &data).unwrap();
        let restored = open(&data);
        let (at, floor) = (made.revision.get(), made.compacted.get());
        if at >= store.compacted().get() {
            assert_eq!(records(&restored, at), records(&store, at));
        }
        let from = floor.max(store.compacted().get());
        if from <= at {
            let expected = changes(&store, from, at).await;
            assert_eq!(changes(&restored, from, at).await, expected);
        }
        // All there is from its floor on, whatever became of the first store.
        changes(&restored, floor, at).await;
    }
}

#[tokio::test]
async fn an_empty_store_and_one_that_forgot_all_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = fresh();
    let file = dir.path().join("empty");
    assert_eq!(save(&store, &file), 1);
    let data = dir.path().join("data");
    restore(&file, &data).unwrap();
    let restored = open(&data);
    assert_eq!(
        (restored.revision(), restored.compacted()),
        (rev(1), rev(0))
    );
    assert_eq!(put(&restored, "/a", b"").await, 2);

    put(&store, "/a", b"").await;
    let at = run(&store, vec![delete_op("/a")]).await;
    store.compact(rev(at)).await.unwrap();
    let file = dir.path().join("forgotten");
    save(&store, &file);
    let data = dir.path().join("data-2");
    assert_eq!(restore(&file, &data).unwrap().revision, rev(at));
    assert_eq!(open(&data).revision(), rev(at));
}

#[tokio::test]
async fn a_raised_revision_makes_watches_begin_anew() {
    let dir = tempfile::tempdir().unwrap();
    let store = lived_in().await;
    let file = dir.path().join("snapshot");
    let at = save(&store, &file);
    let data = dir.path().join("data");
    let bump = Bump { by: 1_000_000 };
    let contents = read(&file).unwrap();
    let made = contents
        .restore(&data, "test", bump, &mut |_, _| {})
        .unwrap();
    let raised = at + 1_000_000;
    assert_eq!((made.revision, made.compacted), (rev(raised), rev(raised)));
    let restored = open(&data);
    assert_eq!(records(&restored, raised), records(&store, at));
    assert_eq!(put(&restored, "/next", b"").await, raised + 1);
    // And a snapshot of that one keeps the revision, though nothing was changed at it.
    restored.close().await;
    let data_2 = dir.path().join("data-2");
    let made = contents
        .restore(&data_2, "test", bump, &mut |_, _| {})
        .unwrap();
    let file = dir.path().join("raised");
    assert_eq!(save(&open(&data_2), &file), raised);
    let data = dir.path().join("data-3");
    let again = restore(&file, &data).unwrap();
    assert_eq!(
        (again.revision, again.compacted),
        (made.revision, made.compacted)
    );
    let beyond = Bump { by: u64::MAX };
    let refused = contents.restore(&dir.path().join("x"), "test", beyond, &mut |_, _| {});
    assert!(matches!(refused, Err(Error::Import { .. })));
}

#[tokio::test]
async fn a_writer_that_stops_stops_the_snapshot() {
    let store = lived_in().await;
    let snapshot = Snapshot::take(&store).unwrap();
    let mut pieces = 0;
    let ended = snapshot.write(&mut |_, _| {
        pieces += 1;
        Err(Error::NoSpace)
    });
    assert!(matches!(ended, Err(Error::NoSpace)));
    assert_eq!(pieces, 1);
}
