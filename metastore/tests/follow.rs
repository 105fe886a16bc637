//! A store that is carried on under the revisions of another is that other store.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::events::{Change, Watch};
use sluice_metastore::follow::Follower;
use sluice_metastore::read::Range;
use sluice_metastore::txn::{Delete, Op, Put, Txn};
use sluice_metastore::{Error, KeyRange, LeaseId, Record, Revision, Store, StoreOptions};

const TTL: Duration = Duration::from_secs(77);

fn rev(number: u64) -> Revision {
    Revision::new(number)
}

/// As a new process would.
fn open(engine: &mut Arc<Memory>) -> Follower {
    *engine = engine.reopened();
    Follower::open(engine.clone(), "test").unwrap()
}

fn put(key: &str, at: u64, lease: i64) -> Change {
    let (key, at) = (key.as_bytes(), rev(at));
    Change::Put(Record::new(key, b"v", at, at, 1, LeaseId(lease)))
}

fn op(key: String, lease: i64) -> Op {
    Op::Put(Put {
        key: Bytes::from(key),
        value: Some(Bytes::from_static(b"v")),
        lease: Some(LeaseId(lease)),
        want_previous: false,
    })
}

/// Every write of it: single ones, several in one revision, updates, range deletes, a lease's end.
async fn written() -> Store {
    let store = Store::open(Memory::new(), StoreOptions::default()).unwrap();
    store.lease_grant(LeaseId(5), TTL).await.unwrap();
    for n in 0..200 {
        let mut txn = Txn::default();
        txn.success.push(op(format!("/b/{}", n % 31), 0));
        if n % 3 == 0 {
            txn.success.push(op(format!("/a/{}", n % 17), 5));
        }
        if n % 50 == 49 {
            txn.success.push(Op::Delete(Delete {
                range: KeyRange::prefix(b"/b/1"),
                want_previous: false,
            }));
            txn.success.remove(0);
        }
        store.txn(txn).await.unwrap();
    }
    store
}

async fn changes(store: &Store, from: u64) -> Vec<Change> {
    let mut watcher = store
        .watch(Watch {
            range: KeyRange::All,
            start: Some(rev(from)),
            want_previous: false,
        })
        .unwrap();
    let mut changes = Vec::new();
    loop {
        let batch = watcher.next().await.unwrap();
        changes.extend(batch.events.into_iter().map(|event| event.change));
        if batch.through >= store.revision() {
            return changes;
        }
    }
}

fn told(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| format!("{change:?}")).collect()
}

fn content(store: &Store) -> Vec<Record> {
    store.range(&Range::of(KeyRange::All)).unwrap().records
}

#[tokio::test]
async fn what_was_followed_is_the_other_store() {
    let source = written().await;
    let all = changes(&source, 2).await;
    let mut engine = Memory::new();
    let mut follower = open(&mut engine);
    assert_eq!(follower.revision(), Revision::ZERO, "it holds nothing");
    drop(follower);
    // A store that stands at 1 is what an import of an empty source makes.
    engine = engine.reopened();
    let fresh = Store::open(engine.clone(), StoreOptions::default()).unwrap();
    fresh.lease_grant(LeaseId(9), TTL).await.unwrap();
    fresh.close().await;
    follower = open(&mut engine);
    assert_eq!(follower.revision(), Revision::FIRST);
    let half = all.partition_point(|change| change.revision() <= rev(100));
    let leases = [(LeaseId(5), TTL)];
    follower.append(&leases, &all[..half]).await.unwrap();
    assert_eq!(follower.revision(), rev(100));
    drop(follower);
    follower = open(&mut engine);
    assert_eq!(follower.revision(), rev(100), "it goes on where it was");
    follower.append(&[], &all[half..]).await.unwrap();
    // A lease begins anew with what is left of it.
    let left = Duration::from_secs(3);
    follower.append(&[(LeaseId(5), left)], &[]).await.unwrap();
    drop(follower);

    let store = Store::open(engine.reopened(), StoreOptions::default()).unwrap();
    assert_eq!(store.revision(), source.revision());
    assert_eq!(content(&store), content(&source));
    assert_eq!(told(&changes(&store, 2).await), told(&all));
    let lease = store.lease_remaining(LeaseId(5)).unwrap();
    assert_eq!(lease.granted, left);
    let keys = source.lease_remaining(LeaseId(5)).unwrap().keys;
    assert!(!keys.is_empty());
    assert_eq!(lease.keys, keys);
}

#[tokio::test]
async fn what_does_not_follow_is_refused_and_nothing_of_it_written() {
    let mut engine = Memory::new();
    let fresh = Store::open(engine.clone(), StoreOptions::default()).unwrap();
    let mut txn = Txn::default();
    txn.success.push(op("/first".to_owned(), 0));
    fresh.txn(txn).await.unwrap();
    fresh.close().await;
    let mut follower = open(&mut engine);
    assert_eq!(follower.revision(), rev(2));
    let twice = [put("/a", 3, 0), put("/a", 3, 0)];
    let gap = [put("/a", 3, 0), put("/b", 5, 0)];
    let back = [put("/a", 3, 0), put("/b", 4, 0), put("/c", 3, 0)];
    let again = [put("/a", 2, 0)];
    for (wrong, word) in [
        (&twice[..], "twice"),
        (&gap, "does not follow"),
        (&back, "does not follow"),
        (&again, "does not follow"),
    ] {
        let error = follower.append(&[], wrong).await.unwrap_err();
        assert!(
            matches!(&error, Error::Import { reason } if reason.contains(word)),
            "{error}"
        );
        assert_eq!(follower.revision(), rev(2));
    }
    follower.append(&[], &[put("/a", 3, 0)]).await.unwrap();
    drop(follower);
    let store = Store::open(engine.reopened(), StoreOptions::default()).unwrap();
    assert_eq!(store.revision(), rev(3));
    assert_eq!(content(&store).len(), 2);
}
