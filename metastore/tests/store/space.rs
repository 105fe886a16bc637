//! Compaction, checkpoints, quota and restart: what is let go, and what never is.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use sluice_metastore::engine::Engine;
use sluice_metastore::engine::embedded::faulty::FaultyDisk;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::{Error, KeyRange, LeaseId, Store, StoreOptions};

#[tokio::test]
async fn compaction_lets_go_of_what_nobody_can_read() {
    let (_engine, store) = fresh();
    for round in 0..20 {
        for number in 0..100 {
            put(&store, &format!("/k/{number:03}"), &format!("{round:02}")).await;
        }
    }
    let gone = txn(vec![], vec![delete_op(prefix("/k/05"))], vec![]);
    let last = store.txn(gone).await.unwrap().revision;
    let before = store.size().in_use;
    store.compact(last).await.unwrap();
    // 2000 versions of one size; 90 keys keep one each.
    until(&store, "the sweep ends", |store| {
        store.size().in_use <= before / 20
    })
    .await;
    assert_eq!(store.size().in_use * 2000 / before, 90);
    assert_eq!(count(&store, prefix("/k/"), None), 90);
    assert_eq!(
        read_at(&store, prefix("/k/"), last.get()).unwrap().count,
        90
    );
    let mut watcher = watch(&store, prefix("/k/"), last.get());
    assert_eq!(
        take(&mut watcher, 10).await.len(),
        10,
        "deletes at the floor stay"
    );
}

/// More versions of one key than a step of the sweep lets go, and the key gone at the end.
#[tokio::test]
async fn a_key_of_very_many_versions_is_swept_in_parts_and_whole() {
    let (_engine, store) = fresh();
    put(&store, "/other", "stays").await;
    let alone = store.size().in_use;
    let mut at = 0;
    for round in 0..3000 {
        at = put(&store, "/k", &format!("{round:04}")).await;
    }
    delete(&store, "/k", at).await;
    let last = put(&store, "/end", "").await;
    store.compact(rev(last)).await.unwrap();
    until(&store, "the sweep ends", |store| {
        store.size().in_use < 2 * alone
    })
    .await;
    assert_eq!(count(&store, prefix("/"), None), 2);
}

#[tokio::test]
async fn the_floor_survives_a_restart_and_never_falls() {
    let (engine, store) = fresh();
    for _ in 0..20 {
        put(&store, "/k", "v").await;
    }
    store.compact(rev(15)).await.unwrap();
    store.close().await;
    let again = Store::open(engine.reopened(), StoreOptions::default()).unwrap();
    assert_eq!((again.revision(), again.compacted()), (rev(21), rev(15)));
    let below = read_at(&again, key("/k"), 14);
    assert!(matches!(below, Err(Error::Compacted { .. })));
    assert_eq!(read_at(&again, key("/k"), 15).unwrap().count, 1);
    let lower = again.compact(rev(12)).await;
    assert!(matches!(lower, Err(Error::Compacted { .. })));
    let mut watcher = watch(&again, key("/k"), 15);
    assert_eq!(take(&mut watcher, 7).await.len(), 7);
}

#[tokio::test]
async fn a_checkpoint_bounds_the_log_and_keeps_history() {
    let options = StoreOptions {
        checkpoint_every_bytes: 20_000,
        ..StoreOptions::default()
    };
    let (engine, store) = fresh_with(options.clone());
    store
        .lease_grant(LeaseId(9), Duration::from_secs(100))
        .await
        .unwrap();
    let (chosen, _) = store
        .lease_grant(LeaseId::NONE, Duration::from_secs(100))
        .await
        .unwrap();
    store.lease_revoke(chosen).await.unwrap();
    let value = "v".repeat(500);
    for number in 0..300 {
        let lease = if number % 3 == 0 {
            LeaseId(9)
        } else {
            LeaseId::NONE
        };
        let op = put_op(format!("/k/{:02}", number % 20), &value, lease);
        store.txn(txn(vec![], vec![op], vec![])).await.unwrap();
        if number % 50 == 0 {
            until(&store, "checkpoints are made", |store| {
                store.stats().checkpoints >= number / 100
            })
            .await;
        }
    }
    assert!(store.stats().checkpoints >= 2);
    let old = read_at(&store, prefix("/k/"), 150).unwrap();
    let hanging = store.lease_remaining(LeaseId(9)).unwrap().keys;
    store.close().await;
    let again = Store::open(engine.reopened(), options).unwrap();
    assert_eq!(again.revision(), rev(301));
    let read = read_at(&again, prefix("/k/"), 150).unwrap();
    assert_eq!(read.records, old.records);
    assert_eq!(again.lease_remaining(LeaseId(9)).unwrap().keys, hanging);
    let (next, _) = again
        .lease_grant(LeaseId::NONE, Duration::from_secs(100))
        .await
        .unwrap();
    assert!(next > chosen, "a forgotten id is not given out again");
    let mut watcher = watch(&again, prefix("/k/"), 2);
    assert_eq!(take(&mut watcher, 300).await.len(), 300);
}

/// All events but those of "fill", as `revision key`, in the order handed out.
fn order(store: &Store) -> Vec<String> {
    let mut watcher = watch(store, KeyRange::All, 2);
    let mut all = Vec::new();
    while let Some(batch) = watcher.poll_now().unwrap() {
        all.extend(batch.events.iter().map(|event| {
            let name = String::from_utf8_lossy(event.change.key()).into_owned();
            format!("{} {name}", event.change.revision())
        }));
    }
    all.retain(|line| !line.ends_with(" fill"));
    all
}

/// A transaction put `c`, then `a`. Watchers saw `c`, `a`; the store was killed, and
/// whoever then watched the same revision saw `a`, `c`: changes were read back from the index,
/// which knows keys and revisions but not which change of a revision came first. A client that
/// resumes a watch in the middle of such a history sees one that never happened.
#[tokio::test]
async fn changes_of_one_revision_keep_their_order_over_restarts() {
    let options = |checkpoint_every_bytes, ring_bytes| StoreOptions {
        checkpoint_every_bytes,
        ring_bytes,
        ..StoreOptions::default()
    };
    let roomy = StoreOptions::default().ring_bytes;
    // Out of the ring, the index, the log, and a checkpoint that stands for the whole log.
    for (every, ring) in [(u64::MAX, roomy), (u64::MAX, 0), (2000, 0)] {
        let (mut engine, store) = fresh_with(options(every, ring));
        let lease = LeaseId(7);
        let hour = Duration::from_secs(3600);
        store.lease_grant(lease, hour).await.unwrap();
        let puts = ["/d", "/b", "/c", "/a"].map(|name| put_op(name, "v", lease));
        let mixed = [
            put_op("/x", "v", LeaseId::NONE),
            delete_op(key("/d")),
            put_op("/e", "v", LeaseId::NONE),
        ];
        let wide = [
            put_op("zz", "v", LeaseId::NONE),
            delete_op(prefix("/")),
            put_op("z", "v", LeaseId::NONE),
        ];
        for ops in [puts.to_vec(), mixed.to_vec()] {
            store.txn(txn(vec![], ops, vec![])).await.unwrap();
        }
        store.lease_revoke(lease).await.unwrap();
        store.txn(txn(vec![], wide.to_vec(), vec![])).await.unwrap();
        let expected = [
            "2 /d", "2 /b", "2 /c", "2 /a", "3 /x", "3 /d", "3 /e", "4 /a", "4 /b", "4 /c", "5 zz",
            "5 /e", "5 /x", "5 z",
        ];
        assert_eq!(order(&store), expected, "as made");
        if every < u64::MAX {
            let before = store.stats().checkpoints;
            for number in 0.. {
                put(&store, "fill", &"v".repeat(500)).await;
                // The second one since then was begun after it.
                if store.stats().checkpoints >= before + 2 {
                    break;
                }
                assert!(number < 10_000, "checkpoints are made");
            }
        }
        store.close().await;
        for _ in 0..2 {
            engine = engine.reopened();
            let again = Store::open(engine.clone(), options(every, ring)).unwrap();
            assert_eq!(order(&again), expected, "read back, every={every}");
            again.close().await;
        }
    }
}

#[tokio::test]
async fn above_the_quota_only_puts_are_refused_and_compaction_makes_room() {
    let options = StoreOptions {
        quota_bytes: 50_000,
        ..StoreOptions::default()
    };
    let (engine, store) = fresh_with(options);
    let value = "v".repeat(1000);
    let mut written = 0;
    let refused = loop {
        let op = put_op(format!("/k/{}", written % 5), &value, LeaseId::NONE);
        match store.txn(txn(vec![], vec![op], vec![])).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace));
    assert!(written > 40);
    let gone = txn(vec![], vec![delete_op(key("/k/0"))], vec![]);
    let at = store.txn(gone).await.unwrap().revision;
    assert_eq!(at.get(), written + 2, "the refused put took no revision");
    store.compact(at).await.unwrap();
    until(&store, "a checkpoint makes room", |_| {
        engine.size() < 50_000
    })
    .await;
    assert_eq!(put(&store, "/k/0", "again").await, at.get() + 1);
}

#[tokio::test]
async fn leases_begin_anew_at_a_restart() {
    let clock = Clock::new();
    let (engine, store) = fresh_with(clock.options());
    store
        .lease_grant(LeaseId(5), Duration::from_secs(10))
        .await
        .unwrap();
    let op = put_op("/k", "v", LeaseId(5));
    store.txn(txn(vec![], vec![op], vec![])).await.unwrap();
    clock.advance(Duration::from_secs(8));
    assert_eq!(
        store.lease_remaining(LeaseId(5)).unwrap().remaining,
        Duration::from_secs(2)
    );
    store.close().await;
    let again = Store::open(engine.reopened(), clock.options()).unwrap();
    let lease = again.lease_remaining(LeaseId(5)).unwrap();
    assert_eq!(
        lease.remaining,
        Duration::from_secs(10),
        "it never ends early"
    );
    assert_eq!(
        again.lease_renew(LeaseId(5)).await.unwrap(),
        Duration::from_secs(10)
    );
    assert!(matches!(
        again.lease_renew(LeaseId(6)).await,
        Err(Error::LeaseNotFound)
    ));
    let mut watcher = watch(&again, key("/k"), 3);
    clock.advance(Duration::from_secs(11));
    assert!(line(&take(&mut watcher, 1).await.pop().unwrap()).starts_with("delete /k mod=3"));
}

#[tokio::test]
async fn an_id_the_store_chose_never_comes_back() {
    let (mut engine, mut store) = fresh_with(StoreOptions {
        checkpoint_every_bytes: 500,
        ..StoreOptions::default()
    });
    let hour = Duration::from_secs(3600);
    let mut known = std::collections::BTreeSet::new();
    // Of the caller's choice, in the store's span and out of it.
    for given in [3, 7, i64::MAX, i64::MIN, -1] {
        store.lease_grant(LeaseId(given), hour).await.unwrap();
        store.lease_revoke(LeaseId(given)).await.unwrap();
        known.insert(LeaseId(given));
    }
    for round in 0..12 {
        for _ in 0..3 {
            let (id, _) = store.lease_grant(LeaseId::NONE, hour).await.unwrap();
            assert!(known.insert(id), "{id:?} was given before");
            store.lease_revoke(id).await.unwrap();
        }
        if round % 3 == 0 {
            // Enough for a checkpoint that stands for the grants, and the log without them.
            let before = store.stats().checkpoints;
            while store.stats().checkpoints < before + 2 {
                put(&store, "/fill", &"v".repeat(300)).await;
            }
        }
        if round % 2 == 0 {
            store.close().await;
            engine = engine.reopened();
            store = Store::open(
                engine.clone(),
                StoreOptions {
                    checkpoint_every_bytes: 500,
                    ..StoreOptions::default()
                },
            )
            .unwrap();
            assert!(store.leases().is_empty());
        }
    }
}

const ROOM: usize = (8 << 10) + (64 << 10) + 12 * (16 << 10) + (8 << 10);

/// A store on a disk that holds twelve segments and the reserve.
fn on_small_disk(disk: &FaultyDisk) -> Store {
    let mut engine = EmbeddedOptions::new("");
    engine.segment_bytes = 16 << 10;
    engine.spares = 0;
    engine.reserve_bytes = 64 << 10;
    let engine = Embedded::open_over(Arc::new(disk.clone()), engine).unwrap();
    Store::open(engine, StoreOptions::default()).unwrap()
}

/// Puts until there is no room; answers how many there was room for.
async fn fill(store: &Store) -> usize {
    let value = "v".repeat(1000);
    for number in 0.. {
        let op = put_op(format!("/k/{number:04}"), &value, LeaseId::NONE);
        match store.txn(txn(vec![], vec![op], vec![])).await {
            Ok(_) => {}
            Err(Error::NoSpace) => return number,
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!("the disk is small");
}

async fn put_fails(store: &Store) -> bool {
    let op = put_op("/more", "v", LeaseId::NONE);
    let refused = store.txn(txn(vec![], vec![op], vec![])).await;
    matches!(refused, Err(Error::NoSpace))
}

/// Once, a full disk refused deletes and compaction too: they have to be written before they make
/// room, and there was nothing to write them to.
#[tokio::test]
async fn a_full_disk_takes_deletes_and_compaction_and_ends_by_itself() {
    let disk = FaultyDisk::new();
    disk.set_room(Some(ROOM));
    let store = on_small_disk(&disk);
    let set_aside = || disk.names().iter().any(|name| name == "reserve");
    until(&store, "the reserve is set aside", |_| set_aside()).await;
    assert!(!store.is_full());
    let written = fill(&store).await;
    assert!(written > 100, "{written} keys do not fill the disk");
    assert!(store.is_full() && put_fails(&store).await);
    assert_eq!(count(&store, prefix("/k/"), None), written as u64, "reads");
    store.close().await;
    // The reserve outlives the process, so that the next one can still make room.
    let store = on_small_disk(&disk);
    assert!(put_fails(&store).await);
    assert!(store.is_full());
    let gone = txn(vec![], vec![delete_op(prefix("/k/0"))], vec![]);
    let at = store.txn(gone).await.unwrap().revision;
    assert!(!set_aside(), "it was written to the reserve");
    assert!(put_fails(&store).await, "the reserve is for deletes alone");
    assert_eq!(count(&store, prefix("/k/"), None), 0);
    assert_eq!(store.compact(at).await.unwrap(), at);
    until(&store, "the checkpoint makes room", |store| {
        !store.is_full()
    })
    .await;
    put(&store, "/more", "v").await;
    until(&store, "the reserve is there again", |_| set_aside()).await;
    assert!(fill(&store).await > 100, "the room is there again");
    store.close().await;
}

#[tokio::test]
async fn puts_go_on_once_somebody_else_makes_room() {
    let disk = FaultyDisk::new();
    disk.set_room(Some(ROOM));
    let store = on_small_disk(&disk);
    fill(&store).await;
    assert!(store.is_full());
    disk.set_room(None);
    until(&store, "the engine looks again", |store| !store.is_full()).await;
    put(&store, "/more", "v").await;
    store.close().await;
}
