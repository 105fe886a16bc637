//! The guarantees of watches, by name, under concurrent writers and compaction.
//!
//! Writers note what they were told they wrote; that is the truth. Watchers of several ranges
//! start anywhere, some pause, some are overtaken by compaction and begin again at the floor; what
//! each was handed is held against the truth. A failure prints the guarantee's sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_metastore::events::{Change, Event, EventBatch};
use sluice_metastore::{Error, KeyRange, LeaseId, Record, Revision, Store, StoreOptions};

use crate::common::*;

const ORDERED: &str = "ordered: events come in the order of their revisions";
const UNIQUE: &str = "unique: no event comes twice";
const ATOMIC: &str = "atomic: all events of a revision come in one batch";
const RELIABLE: &str = "reliable: no event between the first and the last is left out";
const RESUMABLE: &str = "resumable: a watch begins exactly at the revision asked for";
const BOOKMARKABLE: &str =
    "bookmarkable: at a mark of R every event up to R was handed out, and none follows";
const FILTERED: &str = "filtered: only events of the range come";
const PREVIOUS: &str =
    "previous value right: it is what was there before, or withheld at the floor";
const CREATE: &str = "create flag right: set exactly when the key was not there before";

/// One write as its writer knows it: key to value, or to nothing for a delete.
type Write = BTreeMap<Bytes, Option<Bytes>>;

/// What was acknowledged, by revision.
#[derive(Default)]
struct Truth {
    writes: Mutex<BTreeMap<u64, Write>>,
    /// Every revision that was the floor at some time.
    floors: Mutex<BTreeSet<Revision>>,
}

impl Truth {
    /// The value a key had before a revision.
    fn before(&self, key: &Bytes, revision: u64) -> Option<Bytes> {
        let writes = self.writes.lock();
        let mut earlier = writes.range(..revision).rev();
        earlier
            .find_map(|(_, write)| write.get(key).cloned())
            .flatten()
    }
}

/// What one watcher saw between two (re)starts.
struct Seen {
    range: KeyRange,
    start: u64,
    floor: Revision,
    batches: Vec<EventBatch>,
    /// The cursor at the end.
    through: u64,
}

/// Writes until told to stop; every third write touches several keys, some delete.
async fn write(store: Store, truth: Arc<Truth>, seed: u64, rounds: u64) {
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for round in 0..rounds {
        let names = [
            "/registry/pods/",
            "/registry/leases/",
            "/registry/nodes/a/",
            "odd",
        ];
        let mut write = Write::new();
        for _ in 0..=random(3) {
            let name = names[usize::try_from(random(4)).unwrap()];
            let name = bytes(format!("{name}{}", random(6)));
            let value = bytes(format!("{seed}-{round}"));
            write.insert(name, (random(4) > 0).then_some(value));
        }
        let ops = write.iter().map(|(name, value)| match value {
            Some(value) => sluice_metastore::txn::Op::Put(sluice_metastore::txn::Put {
                key: name.clone(),
                value: Some(value.clone()),
                lease: Some(LeaseId::NONE),
                want_previous: false,
            }),
            None => delete_op(KeyRange::Key(name.clone())),
        });
        let answer = store.txn(txn(vec![], ops.collect(), vec![])).await.unwrap();
        let deletes = answer
            .answers
            .iter()
            .zip(write.clone())
            .filter_map(|(answer, (name, _))| {
                let is_nothing = matches!(answer, sluice_metastore::txn::OpAnswer::Delete(0, _));
                is_nothing.then_some(name)
            });
        for name in deletes {
            write.remove(&name);
        }
        if !write.is_empty() {
            truth.writes.lock().insert(answer.revision.get(), write);
        }
    }
}

/// Compacts now and then to somewhere behind the newest revision.
async fn compact(store: Store, truth: Arc<Truth>, is_over: Arc<AtomicBool>, behind: u64) {
    let mut newest = store.subscribe();
    let mut next = behind * 2;
    while !is_over.load(Ordering::Acquire) {
        if newest.changed().await.is_err() {
            return;
        }
        let revision = newest.borrow_and_update().get();
        if revision >= next {
            next = revision + behind / 2;
            truth.floors.lock().insert(rev(revision - behind));
            store.compact(rev(revision - behind)).await.unwrap();
        }
    }
}

/// Watches to the end; a slow one gives way between pulls, and so may be overtaken.
async fn observe(store: Store, range: KeyRange, start: u64, end: u64, pauses: u64) -> Vec<Seen> {
    let mut all = Vec::new();
    let mut start = start;
    loop {
        let mut watcher = match try_watch(&store, range.clone(), start) {
            Ok(watcher) => watcher,
            Err(Error::Compacted { compacted, .. }) => {
                start = compacted.get();
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        // At least as high as the floor the watch began with.
        let floor = store.compacted();
        let mut batches = Vec::new();
        let overtaken = loop {
            if watcher.through().get() >= end {
                break None;
            }
            for _ in 0..pauses {
                tokio::task::yield_now().await;
            }
            match watcher.poll_now() {
                Ok(Some(batch)) => batches.push(batch),
                Ok(None) => tokio::task::yield_now().await,
                Err(Error::Compacted { compacted, .. }) => break Some(compacted.get()),
                Err(error) => panic!("{error}"),
            }
        };
        let through = watcher.through().get();
        let range = range.clone();
        all.push(Seen {
            range,
            start,
            floor,
            batches,
            through,
        });
        match overtaken {
            None => return all,
            Some(floor) => start = floor,
        }
    }
}

fn value_of(record: &Option<Record>) -> Option<Bytes> {
    record.as_ref().map(|record| record.value_bytes())
}

fn check_order(seen: &Seen) {
    let mut last = (0, BTreeSet::new());
    for batch in &seen.batches {
        let mut mark = last.0;
        for event in &batch.events {
            let revision = event.change.revision().get();
            assert!(
                revision >= seen.start,
                "{RESUMABLE}: {revision} before {}",
                seen.start
            );
            assert!(revision >= last.0, "{ORDERED}: {revision} after {}", last.0);
            assert!(
                revision > mark || mark == 0 || revision == last.0,
                "{ORDERED}"
            );
            if revision > last.0 {
                last = (revision, BTreeSet::new());
            } else {
                assert!(revision > mark, "{ATOMIC}: revision {revision} was split");
            }
            assert!(
                last.1.insert(Bytes::copy_from_slice(event.change.key())),
                "{UNIQUE}: {}",
                line(event)
            );
        }
        mark = batch.through.get();
        assert!(
            mark >= last.0,
            "{BOOKMARKABLE}: mark {mark} below {}",
            last.0
        );
        // What follows must lie past the mark.
        last = (mark.max(last.0), BTreeSet::new());
    }
}

fn check_events(seen: &Seen, truth: &Truth) {
    let mut expected = BTreeMap::new();
    for (revision, write) in truth
        .writes
        .lock()
        .range(seen.start..seen.through.max(seen.start - 1) + 1)
    {
        for (name, value) in write {
            if seen.range.contains(name) {
                expected.insert((*revision, name.clone()), value.clone());
            }
        }
    }
    for event in seen.batches.iter().flat_map(|batch| &batch.events) {
        assert!(
            seen.range.contains(event.change.key()),
            "{FILTERED}: {}",
            line(event)
        );
        check_event(event, seen, truth, &mut expected);
    }
    assert!(expected.is_empty(), "{RELIABLE}: {expected:?} did not come");
}

fn check_event(
    event: &Event,
    seen: &Seen,
    truth: &Truth,
    expected: &mut BTreeMap<(u64, Bytes), Option<Bytes>>,
) {
    let (name, revision) = (
        Bytes::copy_from_slice(event.change.key()),
        event.change.revision(),
    );
    let value = expected.remove(&(revision.get(), name.clone()));
    let before = truth.before(&name, revision.get());
    match (&event.change, value) {
        (Change::Put(record), Some(Some(value))) => {
            assert_eq!(record.value(), &value, "{RELIABLE}");
            assert_eq!(
                record.is_create(),
                before.is_none(),
                "{CREATE}: {}",
                line(event)
            );
        }
        (Change::Delete { .. }, Some(None)) => {
            assert!(before.is_some(), "{CREATE}: {}", line(event));
        }
        (_, other) => panic!(
            "{RELIABLE}: {} is not what was written: {other:?}",
            line(event)
        ),
    }
    let withheld = event.previous.is_none();
    if revision > seen.floor && !withheld {
        assert_eq!(
            value_of(&event.previous),
            before,
            "{PREVIOUS}: {}",
            line(event)
        );
    }
    if revision > seen.floor && withheld && before.is_some() {
        // A floor may have come to stand at the event before it was handed out.
        let was_floor = truth.floors.lock().contains(&revision);
        assert!(
            was_floor,
            "{PREVIOUS}: {} had {before:?} before",
            line(event)
        );
    }
}

async fn run(options: StoreOptions, behind: u64) {
    let (_engine, store) = fresh_with(options);
    let truth = Arc::new(Truth::default());
    let is_over = Arc::new(AtomicBool::new(false));
    put(&store, "odd", "first").await;
    let first = Write::from([(bytes("odd"), Some(bytes("first")))]);
    truth.writes.lock().insert(2, first);
    // Far fewer revisions than writes come: some writes only delete what is not there.
    let end = 700;
    let ranges = [
        prefix("/registry/pods/"),
        prefix("/registry/nodes/a/"),
        prefix("/registry/"),
        key("/registry/leases/3"),
        key("odd2"),
        KeyRange::All,
    ];
    let compactor = tokio::spawn(compact(
        store.clone(),
        Arc::clone(&truth),
        Arc::clone(&is_over),
        behind,
    ));
    let writers: Vec<_> = (0..4)
        .map(|seed| tokio::spawn(write(store.clone(), Arc::clone(&truth), seed, 300)))
        .collect();
    let mut observers = Vec::new();
    for range in ranges {
        for (start, pauses) in [(1, 0), (2, 40), (150, 0), (400, 3)] {
            let observer = observe(store.clone(), range.clone(), start, end, pauses);
            observers.push(tokio::spawn(observer));
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(store.revision() >= rev(end), "too few writes had an effect");
    is_over.store(true, Ordering::Release);
    for observer in observers {
        for seen in observer.await.unwrap() {
            check_order(&seen);
            check_events(&seen, &truth);
        }
    }
    put(&store, "odd", "wakes the compactor").await;
    compactor.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn guarantees_hold_out_of_the_ring() {
    run(StoreOptions::default(), 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn guarantees_hold_out_of_the_index() {
    let options = StoreOptions {
        ring_bytes: 2000,
        ..StoreOptions::default()
    };
    run(options, 100_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn guarantees_hold_when_compaction_overtakes() {
    let options = StoreOptions {
        ring_bytes: 5000,
        ..StoreOptions::default()
    };
    run(options, 40).await;
}

#[tokio::test]
async fn foreign_events_do_not_wake_a_watcher_and_its_cursor_still_moves() {
    let (_engine, store) = fresh();
    let mut quiet = watch(&store, prefix("/registry/pods/"), 2);
    let waiting = tokio::spawn(async move {
        let batch = quiet.next().await.unwrap();
        (batch, quiet)
    });
    for number in 0..200 {
        put(&store, &format!("/registry/leases/{number}"), "v").await;
    }
    store.compact(rev(150)).await.unwrap();
    assert!(
        !waiting.is_finished(),
        "compaction of what it does not watch is not its concern"
    );
    put(&store, "/registry/pods/x", "v").await;
    let (batch, quiet) = waiting.await.unwrap();
    assert_eq!((batch.events.len(), batch.through), (1, rev(202)));
    assert_eq!(quiet.through(), rev(202));
}
