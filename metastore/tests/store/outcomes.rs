//! Each thing an engine can answer, and what callers, readers and watchers then see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use sluice_metastore::engine::embedded::faulty::{FaultyDisk, Survival};
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::engine::memory::{Gate, Script};
use sluice_metastore::txn::TxnAnswer;
use sluice_metastore::{Error, LeaseId, Store, StoreOptions};
use tokio::task::JoinHandle;

type Answer = JoinHandle<Result<TxnAnswer, Error>>;

/// Sends a write on its way without waiting for it.
fn start(store: &Store, request: sluice_metastore::txn::Txn) -> Answer {
    let store = store.clone();
    tokio::spawn(async move { store.txn(request).await })
}

fn start_put(store: &Store, name: &str) -> Answer {
    start(
        store,
        txn(vec![], vec![put_op(name, "v", LeaseId::NONE)], vec![]),
    )
}

/// Lets the gate's append through once it is there.
async fn reached(gate: &Gate) {
    let gate = gate.clone();
    tokio::task::spawn_blocking(move || gate.wait_reached())
        .await
        .unwrap();
}

/// Waits until the sequencer has taken so many requests.
async fn taken(store: &Store, requests: u64) {
    while store.stats().requests < requests {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nothing_is_visible_before_it_is_durable() {
    let (engine, store) = fresh();
    let gate = Gate::new();
    engine.script([Script::Slow(gate.clone())]);
    let mut watcher = watch(&store, prefix("/"), 2);
    let newest = store.subscribe();
    let pending = start_put(&store, "/a");
    reached(&gate).await;
    assert_eq!(store.revision(), rev(1));
    assert_eq!(count(&store, prefix("/"), None), 0);
    assert!(watcher.poll_now().unwrap().is_none());
    assert!(!newest.has_changed().unwrap());
    assert!(!pending.is_finished());
    gate.release();
    assert_eq!(pending.await.unwrap().unwrap().revision, rev(2));
    assert_eq!(count(&store, prefix("/"), None), 1);
    assert_eq!(take(&mut watcher, 1).await.len(), 1);
}

#[tokio::test]
async fn an_answer_waits_for_the_undecided_write_it_looked_at() {
    let (engine, store) = fresh();
    create(&store, "/old", "v").await;
    let gate = Gate::new();
    engine.script([Script::Slow(gate.clone())]);
    let first = start(&store, create_txn("/new", "1"));
    reached(&gate).await;
    let beaten = start(&store, create_txn("/new", "2"));
    taken(&store, 3).await;
    // One that looked only at what is durable is answered at once, at the visible revision.
    let other = store.txn(create_txn("/old", "2")).await.unwrap();
    assert_eq!((other.succeeded, other.revision), (false, rev(2)));
    assert!(
        !beaten.is_finished(),
        "a crash could take back what it was told"
    );
    gate.release();
    assert!(first.await.unwrap().unwrap().succeeded);
    let beaten = beaten.await.unwrap().unwrap();
    assert_eq!((beaten.succeeded, beaten.revision), (false, rev(3)));
}

#[tokio::test]
async fn an_uncertain_batch_holds_the_window_and_keeps_its_revision() {
    for first in [Script::UncertainApplied, Script::UncertainLost] {
        let (engine, store) = fresh();
        let (one, two) = (Gate::new(), Gate::new());
        let again = Script::UncertainLost;
        engine.script([
            Script::Slow(one.clone()),
            first,
            again,
            Script::Slow(two.clone()),
        ]);
        let mut watcher = watch(&store, prefix("/"), 2);
        let a = start_put(&store, "/a");
        reached(&one).await;
        let b = start_put(&store, "/b");
        taken(&store, 2).await;
        one.release();
        reached(&two).await;
        assert_eq!(store.revision(), rev(1), "the window is held");
        assert!(watcher.poll_now().unwrap().is_none());
        assert!(!a.is_finished() && !b.is_finished());
        assert!(store.stats().uncertain >= 2);
        two.release();
        assert_eq!(a.await.unwrap().unwrap().revision, rev(2));
        assert_eq!(b.await.unwrap().unwrap().revision, rev(3));
        let lines: Vec<String> = take(&mut watcher, 2).await.iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "put /a v create=2 mod=2 version=1 previous=-",
                "put /b v create=3 mod=3 version=1 previous=-",
            ]
        );
        assert!(store.failure().is_none());
        store.close().await;
        let again = Store::open(engine.reopened(), StoreOptions::default()).unwrap();
        assert_eq!(again.revision(), rev(3), "it is in the log once");
        assert_eq!(count(&again, prefix("/"), None), 2);
    }
}

#[tokio::test]
async fn a_full_engine_refuses_what_grows_and_revisions_stay_dense() {
    let (engine, store) = fresh();
    create(&store, "/old", "v").await;
    let gate = Gate::new();
    engine.script([Script::Slow(gate.clone()), Script::NoSpace]);
    let a = start_put(&store, "/a");
    reached(&gate).await;
    // Behind the refused batch: a put that built on it, a delete, and a compare that lost to it.
    let b = start(&store, update_txn("/a", "2", 3));
    let gone = start(&store, delete_txn("/old", 2));
    let beaten = start(&store, create_txn("/a", "3"));
    // The last may still be queued: the window takes three batches.
    taken(&store, 4).await;
    gate.release();
    assert!(matches!(a.await.unwrap(), Err(Error::NoSpace)));
    assert!(matches!(b.await.unwrap(), Err(Error::NoSpace)));
    let gone = gone.await.unwrap().unwrap();
    assert_eq!((gone.succeeded, gone.revision), (true, rev(3)));
    // What it lost to never was: asked anew, it wins.
    assert!(beaten.await.unwrap().unwrap().succeeded);
    assert!(store.failure().is_none());
    let next = put(&store, "/c", "v").await;
    assert_eq!(next, 5);
    store.close().await;
    let again = Store::open(engine.reopened(), StoreOptions::default()).unwrap();
    assert_eq!(
        (again.revision(), count(&again, prefix("/"), None)),
        (rev(5), 2)
    );
}

#[tokio::test]
async fn a_fenced_store_stops_and_says_that_nothing_was_written() {
    let (engine, store) = fresh();
    create(&store, "/old", "v").await;
    let gate = Gate::new();
    engine.script([Script::Slow(gate.clone()), Script::Fenced]);
    let mut watcher = watch(&store, prefix("/"), 2);
    let a = start_put(&store, "/a");
    reached(&gate).await;
    let b = start_put(&store, "/b");
    taken(&store, 3).await;
    gate.release();
    for pending in [a, b] {
        assert!(matches!(pending.await.unwrap(), Err(Error::Stopped { .. })));
    }
    assert!(store.failure().unwrap().contains("lock"));
    let later = store.txn(create_txn("/c", "v")).await;
    assert!(matches!(later, Err(Error::Stopped { .. })));
    assert_eq!(count(&store, prefix("/"), None), 1, "reads go on");
    assert_eq!(
        take(&mut watcher, 1).await.len(),
        1,
        "what was visible is handed on"
    );
    let end = next(&mut watcher).await;
    assert!(
        matches!(end, Err(Error::Stopped { .. })),
        "then the watch ends"
    );
}

#[tokio::test]
async fn a_doubted_write_is_never_called_failed() {
    for (script, applied) in [
        (Script::UncertainApplied, true),
        (Script::UncertainLost, false),
    ] {
        let (engine, store) = fresh();
        engine.script([script, Script::Fenced]);
        let pending = store.txn(create_txn("/a", "v")).await;
        assert!(
            matches!(pending, Err(Error::Uncertain { .. })),
            "{pending:?}"
        );
        let again = Store::open(engine.reopened(), StoreOptions::default()).unwrap();
        assert_eq!(count(&again, key("/a"), None), u64::from(applied));
        assert_eq!(put(&again, "/b", "v").await, 2 + u64::from(applied));
    }
}

#[tokio::test]
async fn a_failed_sync_stops_writes_for_good() {
    let (engine, store) = fresh();
    create(&store, "/old", "v").await;
    engine.script([Script::Failed]);
    let pending = store.txn(create_txn("/a", "v")).await;
    assert!(
        matches!(pending, Err(Error::Uncertain { .. })),
        "it may be on disk"
    );
    assert!(store.failure().unwrap().contains("script"));
    assert_eq!(count(&store, key("/a"), None), 0);
    assert!(matches!(
        store.compact(rev(2)).await,
        Err(Error::Stopped { .. })
    ));
    assert!(matches!(
        store
            .lease_grant(LeaseId::NONE, Duration::from_secs(9))
            .await,
        Err(Error::Stopped { .. })
    ));
    store.close().await;
}

#[tokio::test]
async fn a_full_line_is_told_so_and_those_in_it_are_served() {
    let options = StoreOptions {
        queue_units: 4,
        ..StoreOptions::default()
    };
    let (engine, store) = fresh_with(options);
    let gate = Gate::new();
    engine.script([Script::Slow(gate.clone())]);
    let pending: Vec<Answer> = (0..100)
        .map(|n| start_put(&store, &format!("/{n}")))
        .collect();
    reached(&gate).await;
    while pending.iter().filter(|answer| answer.is_finished()).count() < 100 - 12 {
        tokio::task::yield_now().await;
    }
    gate.release();
    let mut refused = 0;
    let mut revisions = Vec::new();
    for answer in pending {
        match answer.await.unwrap() {
            Ok(answer) => revisions.push(answer.revision.get()),
            Err(Error::Overloaded) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    revisions.sort_unstable();
    assert_eq!(refused, 88, "four at work and eight in line are served");
    assert!(revisions.into_iter().eq(2..=13));
}

#[tokio::test]
async fn a_closed_store_answers_what_was_queued_and_ends_watches() {
    let (_engine, store) = fresh();
    let mut watcher = watch(&store, prefix("/"), 2);
    let pending: Vec<Answer> = (0..50)
        .map(|n| start_put(&store, &format!("/{n}")))
        .collect();
    taken(&store, 1).await;
    let other = store.clone();
    store.close().await;
    let mut written = 0;
    for answer in pending {
        match answer.await.unwrap() {
            Ok(_) => written += 1,
            Err(Error::Stopped { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(count(&other, prefix("/"), None), written);
    assert_eq!(
        take(&mut watcher, usize::try_from(written).unwrap())
            .await
            .len() as u64,
        written
    );
    assert!(matches!(
        next(&mut watcher).await,
        Err(Error::Stopped { .. })
    ));
    assert_eq!(other.failure().unwrap(), "the store was closed");
}

/// Once, the thread's panic left its inbox open: later writers put their requests there and waited
/// for ever, and so did whoever closed the store.
#[tokio::test]
async fn a_panic_of_the_thread_stops_the_store_and_says_so() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let clock = Arc::clone(&is_broken);
    let options = StoreOptions {
        // The one place where the thread runs code of the caller's.
        now: Arc::new(move || {
            let of_store = std::thread::current().name() == Some("sluice-store");
            assert!(!(of_store && clock.load(Ordering::SeqCst)), "clock broke");
            Instant::now()
        }),
        ..StoreOptions::default()
    };
    let (engine, store) = fresh_with(options);
    create(&store, "/old", "v").await;
    let gate = Gate::new();
    engine.script([Script::Slow(gate.clone())]);
    let mut watcher = watch(&store, prefix("/"), 2);
    let sent = start_put(&store, "/a");
    reached(&gate).await;
    is_broken.store(true, Ordering::SeqCst);
    let queued = start_put(&store, "/b").await.unwrap();
    assert!(
        matches!(&queued, Err(Error::Stopped { reason }) if reason.contains("clock broke")),
        "{queued:?}"
    );
    let sent = sent.await.unwrap();
    assert!(matches!(sent, Err(Error::Uncertain { .. })), "{sent:?}");
    let later = store.txn(create_txn("/c", "v")).await;
    assert!(
        matches!(&later, Err(Error::Stopped { reason }) if reason.contains("clock broke")),
        "{later:?}"
    );
    assert!(store.failure().unwrap().contains("clock broke"));
    assert_eq!(count(&store, prefix("/"), None), 1, "reads go on");
    assert_eq!(take(&mut watcher, 1).await.len(), 1);
    let end = next(&mut watcher).await;
    assert!(matches!(end, Err(Error::Stopped { .. })));
    gate.release();
    let closed = tokio::time::timeout(Duration::from_secs(10), store.close()).await;
    closed.expect("it lets the engine go");
    let again = Store::open(engine.reopened(), StoreOptions::default()).unwrap();
    assert_eq!(count(&again, key("/b"), None), 0, "Stopped was the truth");
}

/// Once, a panic of an engine's thread took the word about an append with it: whoever had sent it
/// waited for ever, and so did whoever closed the store.
#[tokio::test]
async fn a_panic_of_the_engine_stops_the_store_and_says_so() {
    let disk = FaultyDisk::new();
    let engine = Embedded::open_over(Arc::new(disk.clone()), EmbeddedOptions::new("")).unwrap();
    let store = Store::open(engine, StoreOptions::default()).unwrap();
    create(&store, "/old", "v").await;
    disk.observe(Some(Arc::new(|_: &FaultyDisk| {
        // Whoever writes the log, be it its own thread or the sequencer's.
        let name = std::thread::current().name().map(str::to_owned);
        let writes = ["metastore-log", "sluice-store"].map(Some);
        assert!(!writes.contains(&name.as_deref()), "the disk broke");
    })));
    let sent = tokio::time::timeout(Duration::from_secs(10), store.txn(create_txn("/a", "v")));
    let sent = sent.await.expect("an answer");
    assert!(
        matches!(&sent, Err(Error::Uncertain { reason }) if reason.contains("panicked")),
        "{sent:?}"
    );
    let later = store.txn(create_txn("/b", "v")).await;
    assert!(matches!(later, Err(Error::Stopped { .. })), "{later:?}");
    assert!(store.failure().unwrap().contains("panicked"));
    assert_eq!(count(&store, prefix("/"), None), 1, "reads go on");
    let closed = tokio::time::timeout(Duration::from_secs(10), store.close()).await;
    closed.expect("it lets the engine go");
    disk.observe(None);
    let found = disk.power_cut(Survival::Everything);
    let engine = Embedded::open_over(Arc::new(found), EmbeddedOptions::new("")).unwrap();
    let again = Store::open(engine, StoreOptions::default()).unwrap();
    assert_eq!(count(&again, key("/old"), None), 1);
    assert_eq!(count(&again, key("/b"), None), 0, "Stopped was the truth");
}
