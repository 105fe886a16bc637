//! Snapshots on a schedule: they come, old ones go, and what fails is tried again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_metastore::Store;
use sluice_metastore::backup::Schedule;
use sluice_metastore::backup::schedule::run;
use tokio_util::sync::CancellationToken;

use super::common::*;

fn schedule(dir: &Path, interval: Duration) -> Schedule {
    Schedule {
        dir: dir.to_owned(),
        interval,
        keep: 2,
        data_dir: PathBuf::from("/proc"),
    }
}

/// What lies in a folder, by name.
fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

async fn until(what: &str, store: &Store, is_so: impl Fn(&Store) -> bool) {
    for _ in 0..2000 {
        if is_so(store) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited 20 s for {what}: {:?}", store.stats());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_come_and_old_ones_go() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("made/when/absent");
    let store = lived_in().await;
    let stop = CancellationToken::new();
    let every = Duration::from_millis(1100);
    let task = tokio::spawn(run(store.clone(), schedule(&place, every), stop.clone()));
    until("the first", &store, |store| store.stats().snapshots >= 1).await;
    std::fs::write(place.join("notes.txt"), b"mine").unwrap();
    let leftover = place.join("sluice-20200101T000000Z-r1.db.part");
    std::fs::write(&leftover, b"killed").unwrap();
    let first = files(&place).into_iter().find(|name| name.ends_with(".db"));
    until("three more", &store, |store| store.stats().snapshots >= 4).await;
    stop.cancel();
    task.await.unwrap();
    let left = files(&place);
    assert_eq!(
        left.len(),
        3,
        "two snapshots and what is not ours: {left:?}"
    );
    assert!(left.contains(&"notes.txt".to_owned()) && !leftover.exists());
    assert!(!left.contains(&first.unwrap()));
    for name in left.iter().filter(|name| name.ends_with(".db")) {
        assert_eq!(read(&place.join(name)).unwrap().summary().total_keys, 121);
    }
    let stats = store.stats();
    assert!(stats.snapshot_at > 1_700_000_000 && stats.snapshots_failed == 0);

    // A process that starts anew goes on from the newest file, not from its own start.
    let stop = CancellationToken::new();
    let hour = Duration::from_secs(3600);
    let task = tokio::spawn(run(store.clone(), schedule(&place, hour), stop.clone()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    stop.cancel();
    task.await.unwrap();
    assert_eq!(files(&place), left);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_cannot_be_saved_is_tried_again_and_hurts_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let store = lived_in().await;
    // A file where the folder should be.
    let place = dir.path().join("folder");
    std::fs::write(&place, b"in the way").unwrap();
    let stop = CancellationToken::new();
    let every = Duration::from_millis(50);
    let task = tokio::spawn(run(store.clone(), schedule(&place, every), stop.clone()));
    until("failures", &store, |store| {
        store.stats().snapshots_failed >= 3
    })
    .await;
    put(&store, "/still/there", b"v").await;
    std::fs::remove_file(&place).unwrap();
    until("a success", &store, |store| store.stats().snapshots >= 1).await;
    stop.cancel();
    task.await.unwrap();
    assert!(files(&place).iter().all(|name| name.ends_with(".db")));
}
