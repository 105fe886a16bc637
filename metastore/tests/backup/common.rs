//! Stores to take snapshots of, and what is compared.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_metastore::backup::{Bump, Contents, HashCheck, Restored, Snapshot};
use sluice_metastore::digest::Digest;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::events::{Change, Watch};
use sluice_metastore::read::{At, Range};
use sluice_metastore::txn::{Delete, Op, Put, Txn};
use sluice_metastore::{Error, KeyRange, LeaseId, Revision, Store, StoreOptions};

pub(crate) fn rev(number: u64) -> Revision {
    Revision::new(number)
}

pub(crate) fn fresh() -> Store {
    Store::open(Memory::new(), StoreOptions::default()).unwrap()
}

pub(crate) fn put_op(key: &str, value: &[u8], lease: i64) -> Op {
    Op::Put(Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(Bytes::copy_from_slice(value)),
        lease: Some(LeaseId(lease)),
        want_previous: false,
    })
}

pub(crate) fn delete_op(key: &str) -> Op {
    Op::Delete(Delete {
        range: KeyRange::Key(Bytes::copy_from_slice(key.as_bytes())),
        want_previous: false,
    })
}

pub(crate) async fn run(store: &Store, ops: Vec<Op>) -> u64 {
    let txn = Txn {
        compares: vec![],
        success: ops,
        failure: vec![],
    };
    store.txn(txn).await.unwrap().revision.get()
}

pub(crate) async fn put(store: &Store, key: &str, value: &[u8]) -> u64 {
    run(store, vec![put_op(key, value, 0)]).await
}

/// Some of everything: many keys, large values, leases, deletions, revisions of several changes out
/// of key order, and a past that is compacted in part.
pub(crate) async fn lived_in() -> Store {
    let store = fresh();
    for (id, seconds) in [(77, 3600), (-5, 60)] {
        let ttl = Duration::from_secs(seconds);
        store.lease_grant(LeaseId(id), ttl).await.unwrap();
    }
    for round in 0..3 {
        for number in 0..120 {
            let key = format!("/registry/pods/{number:04}");
            let value = vec![b'a' + round; 40 + number * 3];
            put(&store, &key, &value).await;
        }
        let large = vec![b'L' + round; 5000 + 4096 * usize::from(round) * 3];
        let ops = vec![
            put_op("/z/last", b"z", 77),
            put_op("/a/first", &large, -5),
            delete_op("/registry/pods/0007"),
        ];
        run(&store, ops).await;
    }
    let at = store.revision();
    store.compact(rev(at.get() - 140)).await.unwrap();
    store
}

/// Writes a snapshot of now into a file; answers its revision.
pub(crate) fn save(store: &Store, file: &Path) -> u64 {
    let snapshot = Snapshot::take(store).unwrap();
    let mut bytes = Vec::new();
    let mut pieces = 0_u64;
    snapshot
        .write(&mut |piece, left| {
            bytes.extend_from_slice(&piece);
            pieces += 1;
            let sent = bytes.len() as u64;
            assert_eq!(left, snapshot.database_bytes().saturating_sub(sent));
            Ok(())
        })
        .unwrap();
    assert_eq!(bytes.len() as u64, snapshot.bytes());
    assert_eq!(bytes.len() % 512, 32, "etcdctl takes no other");
    assert!(pieces >= 2);
    std::fs::write(file, bytes).unwrap();
    snapshot.revision().get()
}

pub(crate) fn read(file: &Path) -> Result<Contents, Error> {
    Contents::read(file, HashCheck::Wanted, &mut |_, _| {})
}

pub(crate) fn restore(file: &Path, dir: &Path) -> Result<Restored, Error> {
    read(file)?.restore(dir, "test", Bump::default(), &mut |_, _| {})
}

pub(crate) fn open(dir: &Path) -> Store {
    let options = EmbeddedOptions {
        spares: 0,
        segment_bytes: 64 << 10,
        ..EmbeddedOptions::new(dir)
    };
    let engine: Arc<Embedded> = Embedded::open(options).unwrap();
    Store::open(engine, StoreOptions::default()).unwrap()
}

/// Every record at a revision, in one line each.
pub(crate) fn records(store: &Store, at: u64) -> Vec<String> {
    let mut query = Range::of(KeyRange::All);
    query.at = At::Exactly(rev(at));
    let found = store.range(&query).unwrap().records;
    let line = |record: &sluice_metastore::Record| {
        format!(
            "{} create={} mod={} version={} lease={} bytes={:x}",
            record.key().escape_ascii(),
            record.create_revision(),
            record.mod_revision(),
            record.version(),
            record.lease().0,
            crc32c::crc32c(record.value()),
        )
    };
    found.iter().map(line).collect()
}

pub(crate) fn digest(store: &Store, at: u64) -> Digest {
    let mut query = Range::of(KeyRange::All);
    query.at = At::Exactly(rev(at));
    let mut digest = Digest::default();
    let found = store.range(&query).unwrap();
    found.records.iter().for_each(|record| digest.add(record));
    digest
}

/// Every change from a revision to another, in the order made.
pub(crate) async fn changes(store: &Store, from: u64, to: u64) -> Vec<String> {
    let mut watcher = store
        .watch(Watch {
            range: KeyRange::All,
            start: Some(rev(from)),
            want_previous: false,
        })
        .unwrap();
    let mut lines = Vec::new();
    let patience = Duration::from_secs(20);
    loop {
        let batch = tokio::time::timeout(patience, watcher.next());
        let batch = batch.await.expect("a batch in time").unwrap();
        for event in batch.events {
            let revision = event.change.revision();
            if revision <= rev(to) {
                lines.push(match event.change {
                    Change::Put(record) => format!("put {}", record.encoded().escape_ascii()),
                    Change::Delete { key, revision } => {
                        format!("delete {} {revision}", key.escape_ascii())
                    }
                });
            }
        }
        if batch.through >= rev(to) {
            return lines;
        }
    }
}
