//! The ordinary acceptance cases that can be asked of the handle, by their numbers.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::*;
use sluice_metastore::txn::{Op, Put, Target};
use sluice_metastore::{Error, KeyRange, LeaseId};

const X: &str = "/registry/pods/a/x";

#[tokio::test]
async fn case_01_create_duplicate_header() {
    let (_engine, store) = fresh();
    assert_eq!(store.revision(), rev(1), "a fresh store stands at 1");
    let first = create(&store, X, "1").await;
    assert!(first.succeeded);
    assert_eq!((first.revision, first.answers.len()), (rev(2), 1));
    let again = create(&store, X, "1").await;
    assert!(!again.succeeded);
    assert_eq!((again.revision, again.answers.len()), (rev(2), 0));
    let answer = read(&store, key(X));
    let record = &answer.records[0];
    assert_eq!((answer.count, answer.revision), (1, rev(2)));
    assert_eq!(record.create_revision(), rev(2));
    assert_eq!((record.mod_revision(), record.version()), (rev(2), 1));
}

#[tokio::test]
async fn case_02_conflict_returns_the_winner() {
    let (_engine, store) = fresh();
    create(&store, X, "1").await;
    assert_eq!(update(&store, X, "2", 2).await.revision, rev(3));
    for lost in [update(&store, X, "3", 2).await, delete(&store, X, 2).await] {
        assert!(!lost.succeeded);
        assert_eq!(lost.revision, rev(3));
        let winner = found(&lost).unwrap();
        assert_eq!(winner.value(), &bytes("2"));
        assert_eq!(
            (winner.mod_revision(), winner.create_revision()),
            (rev(3), rev(2))
        );
        assert_eq!(winner.version(), 2);
    }
    assert_eq!(count(&store, key(X), None), 1);
}

#[tokio::test]
async fn case_03_delete_and_rebirth() {
    let (_engine, store) = fresh();
    create(&store, X, "1").await;
    update(&store, X, "2", 2).await;
    let gone = delete(&store, X, 3).await;
    assert_eq!(gone.revision, rev(4));
    assert!(matches!(
        gone.answers[0],
        sluice_metastore::txn::OpAnswer::Delete(1, _)
    ));
    let late = update(&store, X, "z", 3).await;
    assert!(!late.succeeded && found(&late).is_none());
    assert_eq!(late.revision, rev(4));
    assert_eq!(create(&store, X, "n").await.revision, rev(5));
    let record = read(&store, key(X)).records[0].clone();
    assert_eq!((record.create_revision(), record.version()), (rev(5), 1));
    let born = update(&store, "/registry/pods/a/y", "q", 0).await;
    assert_eq!((born.succeeded, born.revision), (true, rev(6)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_04_own_revision_under_group_commit() {
    let (_engine, store) = fresh();
    let writers: Vec<_> = (0..1000)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let name = format!("/registry/pods/a/{number}");
                (create(&store, &name, "v").await.revision, name)
            })
        })
        .collect();
    let mut revisions = BTreeSet::new();
    for writer in writers {
        let (revision, name) = writer.await.unwrap();
        assert_eq!(read(&store, key(&name)).records[0].mod_revision(), revision);
        revisions.insert(revision.get());
    }
    assert!(revisions.into_iter().eq(2..=1001));
}

#[tokio::test]
async fn case_05_paging_pinned_to_a_revision() {
    let (_engine, store) = fresh();
    let name = |number: usize| format!("/registry/pods/{number:05}");
    for number in 0..1200 {
        create(&store, &name(number * 2), "v").await;
    }
    let all = prefix("/registry/pods/");
    let first = page(&store, all.clone(), None, 500);
    assert_eq!((first.records.len(), first.count), (500, 1200));
    assert_eq!((first.more, first.revision), (true, rev(1201)));
    store
        .txn(txn(vec![], vec![delete_op(key(name(599 * 2)))], vec![]))
        .await
        .unwrap();
    put(&store, &name(1), "v").await;
    put(&store, &name(3), "v").await;
    let end = all.end().unwrap().to_vec();
    let after = |last: &[u8]| KeyRange::Between([last, b"\0"].concat().into(), end.clone().into());
    let second = page(&store, after(first.records[499].key()), Some(1201), 500);
    assert_eq!((second.records.len(), second.count), (500, 700));
    assert_eq!((second.more, second.revision), (true, rev(1204)));
    assert_eq!(second.records[0].key(), &bytes(name(1000)));
    assert_eq!(
        second.records[99].key(),
        &bytes(name(1198)),
        "the deleted one is there"
    );
    let third = page(&store, after(second.records[499].key()), Some(1201), 500);
    assert_eq!(
        (third.records.len(), third.count, third.more),
        (200, 200, false)
    );
    assert_eq!(count(&store, all.clone(), None), 1201);
    assert_eq!(count(&store, all, Some(1201)), 1200);
}

#[tokio::test]
async fn case_06_revision_bounds() {
    let (_engine, store) = fresh();
    for number in 2..=10 {
        assert_eq!(put(&store, X, &number.to_string()).await, number);
    }
    store.compact(rev(5)).await.unwrap();
    let read = |at| read_at(&store, key(X), at);
    assert!(matches!(read(11), Err(Error::Future { .. })));
    assert!(matches!(read(4), Err(Error::Compacted { .. })));
    assert_eq!(read(5).unwrap().records[0].value(), &bytes("5"));
    assert!(matches!(
        store.compact(rev(5)).await,
        Err(Error::Compacted { .. })
    ));
    assert!(matches!(
        store.compact(rev(11)).await,
        Err(Error::Future { .. })
    ));
    assert_eq!(store.compact(rev(10)).await.unwrap(), rev(10));
}

#[tokio::test]
async fn case_07_watch_content() {
    let (_engine, store) = fresh();
    let mut wide = watch(&store, prefix("/registry/pods/"), 2);
    let mut one = watch(&store, key(X), 2);
    create(&store, X, "1").await;
    update(&store, X, "2", 2).await;
    delete(&store, X, 3).await;
    create(&store, "/registry/pods/a/x2", "other").await;
    let lines: Vec<String> = take(&mut wide, 4).await.iter().map(line).collect();
    let expected = [
        "put /registry/pods/a/x 1 create=2 mod=2 version=1 previous=-",
        "put /registry/pods/a/x 2 create=2 mod=3 version=2 previous=1",
        "delete /registry/pods/a/x mod=4 previous=2",
        "put /registry/pods/a/x2 other create=5 mod=5 version=1 previous=-",
    ];
    assert_eq!(lines, expected);
    let lines: Vec<String> = take(&mut one, 3).await.iter().map(line).collect();
    assert_eq!(lines, expected[..3]);
    assert!(one.poll_now().unwrap().is_none());
    assert_eq!(one.through(), rev(5));
}

#[tokio::test]
async fn case_08_atomic_revision() {
    let (_engine, store) = fresh();
    let mut watcher = watch(&store, prefix("/registry/"), 2);
    let ops = ["/registry/c", "/registry/a", "/registry/b"];
    let ops = ops.map(|name| put_op(name, "v", LeaseId::NONE)).to_vec();
    let answer = store.txn(txn(vec![], ops, vec![])).await.unwrap();
    assert_eq!((answer.revision, answer.answers.len()), (rev(2), 3));
    let batch = next(&mut watcher).await.unwrap();
    assert_eq!((batch.events.len(), batch.through), (3, rev(2)));
    assert!(batch.events.iter().all(|e| e.change.revision() == rev(2)));
}

#[tokio::test]
async fn case_09_compacted_watch() {
    let (_engine, store) = fresh();
    for number in 2..=7 {
        put(&store, "/registry/fill", &number.to_string()).await;
    }
    assert_eq!(put(&store, "/registry/pods/x", "old").await, 8);
    assert_eq!(put(&store, "/registry/pods/gone", "was").await, 9);
    let ops = vec![
        put_op("/registry/pods/x", "new", LeaseId::NONE),
        delete_op(key("/registry/pods/gone")),
    ];
    store.txn(txn(vec![], ops, vec![])).await.unwrap();
    for _ in 11..=20 {
        put(&store, "/registry/fill", "more").await;
    }
    let mut lagging = watch(&store, prefix("/registry/"), 2);
    store.compact(rev(10)).await.unwrap();
    let early = try_watch(&store, prefix("/registry/pods/"), 9);
    assert!(matches!(early, Err(Error::Compacted { compacted, .. }) if compacted == rev(10)));
    assert!(matches!(lagging.poll_now(), Err(Error::Compacted { .. })));
    // Whether the sweep has come by must make no difference.
    for _ in 0..2 {
        let mut watcher = watch(&store, prefix("/registry/pods/"), 10);
        let lines: Vec<String> = take(&mut watcher, 2).await.iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "put /registry/pods/x new create=8 mod=10 version=2 previous=-",
                "delete /registry/pods/gone mod=10 previous=-",
            ]
        );
        put(&store, "/registry/fill", "once more").await;
    }
}

#[tokio::test]
async fn case_10_future_watch() {
    let (_engine, store) = fresh();
    for _ in 2..=5 {
        put(&store, X, "v").await;
    }
    let mut watcher = watch(&store, key(X), 100);
    for number in 6..=99 {
        put(&store, X, &number.to_string()).await;
        assert!(watcher.poll_now().unwrap().is_none());
        assert_eq!(
            watcher.through(),
            rev(99),
            "nothing of it is below its start"
        );
    }
    assert_eq!(put(&store, X, "100").await, 100);
    let batch = next(&mut watcher).await.unwrap();
    assert_eq!(batch.events.len(), 1);
    assert_eq!(batch.events[0].change.revision(), rev(100));
}

#[tokio::test]
async fn case_13_leases() {
    let clock = Clock::new();
    let (_engine, store) = fresh_with(clock.options());
    let (short, ttl) = store
        .lease_grant(LeaseId::NONE, Duration::from_secs(1))
        .await
        .unwrap();
    assert_eq!(ttl, Duration::from_secs(2), "a shorter time is raised");
    let mut watcher = watch(&store, prefix("/registry/"), 2);
    let names = ["/registry/b", "/registry/a", "/registry/c"];
    let ops = names.map(|name| put_op(name, name, short)).to_vec();
    store.txn(txn(vec![], ops, vec![])).await.unwrap();
    take(&mut watcher, 3).await;
    assert_eq!(store.lease_remaining(short).unwrap().keys.len(), 3);
    clock.advance(Duration::from_secs(3));
    let batch = next(&mut watcher).await.unwrap();
    let lines: Vec<String> = batch.events.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "delete /registry/a mod=3 previous=/registry/a",
            "delete /registry/b mod=3 previous=/registry/b",
            "delete /registry/c mod=3 previous=/registry/c",
        ]
    );
    assert!(matches!(
        store.lease_remaining(short),
        Err(Error::LeaseNotFound)
    ));

    let two = Duration::from_secs(2);
    store.lease_grant(LeaseId(101), two).await.unwrap();
    store
        .lease_grant(LeaseId(102), Duration::from_secs(60))
        .await
        .unwrap();
    let put = |lease| store.txn(txn(vec![], vec![put_op("/k", "v", lease)], vec![]));
    put(LeaseId(101)).await.unwrap();
    clock.advance(Duration::from_secs(1));
    put(LeaseId(102)).await.unwrap();
    assert_eq!(store.lease_remaining(LeaseId(101)).unwrap().keys.len(), 0);
    clock.advance(Duration::from_secs(9));
    let mut ends = store.subscribe();
    while store.leases().contains(&LeaseId(101)) {
        // The end of a lease without keys takes no revision: any later write comes after it.
        put(LeaseId(102)).await.unwrap();
        ends.changed().await.unwrap();
    }
    assert_eq!(count(&store, key("/k"), None), 1);

    let before = store.revision();
    let unknown = store
        .txn(txn(vec![], vec![put_op("/n", "v", LeaseId(12345))], vec![]))
        .await;
    assert!(matches!(unknown, Err(Error::LeaseNotFound)));
    assert_eq!(store.revision(), before);
    let again = store.lease_grant(LeaseId(102), two).await;
    assert!(matches!(again, Err(Error::LeaseExists)));
    let long = store
        .lease_grant(LeaseId::NONE, Duration::from_secs(9_000_000_001))
        .await;
    assert!(matches!(long, Err(Error::LeaseTtlTooLarge)));
}

#[tokio::test]
async fn case_14_compaction_claim() {
    const CLAIM: &str = "compact_rev_key";
    let (_engine, store) = fresh();
    let claim = |version: u64, revision: u64| {
        let compare = vec![is(CLAIM, Target::Version(version))];
        let put = vec![put_op(CLAIM, revision.to_string(), LeaseId::NONE)];
        store.txn(txn(compare, put, vec![get_op(CLAIM)]))
    };
    put(&store, X, "v").await;
    let start = store.revision().get();
    let mut watcher = watch(&store, key(CLAIM), start);
    assert!(claim(0, 0).await.unwrap().succeeded);
    let lost = claim(0, 0).await.unwrap();
    assert!(!lost.succeeded);
    let record = found(&lost).unwrap();
    assert_eq!((record.version(), record.value()), (1, &b"0"[..]));
    assert!(claim(1, start).await.unwrap().succeeded);
    store.compact(rev(start)).await.unwrap();
    let events = take(&mut watcher, 2).await;
    assert!(line(&events[0]).starts_with("put compact_rev_key 0 "));
    assert!(line(&events[1]).starts_with(&format!("put compact_rev_key {start} ")));
}

#[tokio::test]
async fn kept_values_and_leases_need_a_key() {
    let (_engine, store) = fresh();
    let keep = |value: Option<&str>, lease| {
        store.put(Put {
            key: bytes("/k"),
            value: value.map(bytes),
            lease,
            want_previous: true,
        })
    };
    assert!(matches!(
        keep(None, Some(LeaseId::NONE)).await,
        Err(Error::KeyNotFound)
    ));
    assert!(matches!(
        keep(Some("v"), None).await,
        Err(Error::KeyNotFound)
    ));
    store
        .lease_grant(LeaseId(7), Duration::from_secs(60))
        .await
        .unwrap();
    keep(Some("v"), Some(LeaseId(7))).await.unwrap();
    keep(Some("w"), None).await.unwrap();
    let record = read(&store, key("/k")).records[0].clone();
    assert_eq!((record.value(), record.lease()), (&b"w"[..], LeaseId(7)));
    keep(None, Some(LeaseId::NONE)).await.unwrap();
    let record = read(&store, key("/k")).records[0].clone();
    assert_eq!((record.value(), record.lease()), (&b"w"[..], LeaseId::NONE));
    assert!(store.lease_remaining(LeaseId(7)).unwrap().keys.is_empty());
}

#[tokio::test]
async fn a_txn_without_effect_takes_no_revision() {
    let (_engine, store) = fresh();
    put(&store, X, "v").await;
    let nothing = txn(vec![], vec![delete_op(prefix("/none/")), get_op(X)], vec![]);
    let answer = store.txn(nothing).await.unwrap();
    assert_eq!(answer.revision, rev(2));
    assert_eq!(put(&store, X, "w").await, 3);
}

#[tokio::test]
async fn ops_see_those_before_them_and_nested_compares_do_not() {
    let (_engine, store) = fresh();
    let inner = txn(
        vec![is("/a", Target::Version(0))],
        vec![put_op("/b", "inner", LeaseId::NONE)],
        vec![],
    );
    let ops = vec![
        put_op("/a", "1", LeaseId::NONE),
        get_op("/a"),
        Op::Txn(inner),
        Op::Range(sluice_metastore::read::Range::of(prefix("/"))),
    ];
    let answer = store.txn(txn(vec![], ops, vec![])).await.unwrap();
    let counts: Vec<u64> = answer
        .answers
        .iter()
        .filter_map(|answer| match answer {
            sluice_metastore::txn::OpAnswer::Range(range) => Some(range.count),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [1, 2]);
    assert_eq!((answer.revision, store.revision()), (rev(2), rev(2)));
}
