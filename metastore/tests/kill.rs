//! A process killed while it writes: what it acknowledged is there, once, at the revision it said.
//!
//! The test runs itself as the process to kill: many writers over the embedded engine, with small
//! segments, frequent checkpoints and compactions and most values out of memory, each printing what was acknowledged to it.
//! It is killed without notice after a number of lines, the directory is opened, and everything
//! it said is looked up. Then the next one goes on where it ended.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::events::{Change, Watch};
use sluice_metastore::read::{At, Range};
use sluice_metastore::txn::Put;
use sluice_metastore::{KeyRange, LeaseId, Revision, Store, StoreOptions};

/// Bytes of values that may stay in memory: far fewer than there are.
const LIMIT: usize = 64 << 10;
/// Where the child finds its directory; without it, the child's test does nothing.
const DIR: &str = "SLUICE_CRASH_TEST_DIR";
const WRITERS: usize = 24;
const KILLS: u64 = 12;

/// Every process has most of its values on the disk alone, and those who check have it by turns.
fn open(dir: &Path, memory_limit_bytes: Option<usize>) -> Store {
    let mut engine = EmbeddedOptions::new(dir);
    engine.segment_bytes = 64 << 10;
    let options = StoreOptions {
        checkpoint_every_bytes: 100 << 10,
        memory_limit_bytes,
        ..StoreOptions::default()
    };
    Store::open(Embedded::open(engine).unwrap(), options).unwrap()
}

#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    let store = open(Path::new(&dir), Some(LIMIT));
    runtime.block_on(async {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| tokio::spawn(write(store.clone(), number)))
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

async fn write(store: Store, number: usize) {
    for round in 0u64.. {
        let key = format!("/k/{number}/{}", round % 7);
        let value = format!("{number}-{round}-{}", "x".repeat(number * 20));
        let put = Put {
            key: Bytes::from(key.clone()),
            value: Some(Bytes::from(value.clone())),
            lease: Some(LeaseId::NONE),
            want_previous: false,
        };
        let revision = store.put(put).await.unwrap().revision;
        say(&format!("put {revision} {key} {value}"));
        if number == 0 && round % 20 == 19 {
            let floor = Revision::new(revision.get() - 100);
            if store.compact(floor).await.is_ok() {
                say(&format!("floor {floor}"));
            }
        }
    }
}

/// One line, whole, past any buffer of this process.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@ {line}").unwrap();
    out.flush().unwrap();
}

/// What a process said before it was killed.
#[derive(Default)]
struct Said {
    puts: BTreeMap<u64, (String, String)>,
    floor: u64,
}

fn run_and_kill(dir: &Path, lines: u64) -> Said {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "child_that_writes_until_it_is_killed",
            "--nocapture",
        ])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Said::default();
    let mut count = 0;
    let out = BufReader::new(child.stdout.take().unwrap());
    for line in out.lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["@", "put", revision, key, value] => {
                let write = ((*key).to_owned(), (*value).to_owned());
                let again = said.puts.insert(revision.parse().unwrap(), write);
                assert!(again.is_none(), "revision {revision} was given twice");
            }
            ["@", "floor", floor] => said.floor = said.floor.max(floor.parse().unwrap()),
            _ => continue,
        }
        count += 1;
        if count == lines {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(count >= lines, "the process ended by itself");
    said
}

fn check(store: &Store, said: &Said, before: Revision) {
    let (newest, floor) = (store.revision(), store.compacted());
    assert!(
        floor.get() >= said.floor,
        "the acknowledged floor {} fell to {floor}",
        said.floor
    );
    let last = said.puts.keys().next_back().copied().unwrap_or_default();
    assert!(newest.get() >= last, "acknowledged {last}, found {newest}");
    let first = said.puts.keys().next().copied().unwrap_or(u64::MAX);
    assert!(first > before.get(), "revision {first} was given before");
    let unsaid = newest.get() - before.get() - said.puts.len() as u64;
    assert!(
        unsaid <= WRITERS as u64,
        "{unsaid} writes nobody can have asked for"
    );
    for (revision, (key, value)) in &said.puts {
        if *revision >= floor.get() {
            let mut query = Range::of(KeyRange::Key(Bytes::from(key.clone())));
            query.at = At::Exactly(Revision::new(*revision));
            let records = store.range(&query).unwrap().records;
            let record = records.first().expect("an acknowledged write is there");
            assert_eq!(record.mod_revision().get(), *revision);
            assert_eq!(record.value(), value.as_bytes());
        }
    }
    let mut watcher = store
        .watch(Watch {
            range: KeyRange::All,
            start: Some(floor),
            want_previous: true,
        })
        .unwrap();
    let mut expected = floor.max(Revision::new(2));
    while let Some(batch) = watcher.poll_now().unwrap() {
        for event in batch.events {
            assert!(matches!(event.change, Change::Put(_)));
            assert_eq!(event.change.revision(), expected, "revisions are dense");
            expected = expected.next();
        }
    }
    assert_eq!(expected, newest.next());
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    let mut newest = Revision::FIRST;
    for kill in 0..KILLS {
        // From the very first writes to well past some checkpoints.
        let said = run_and_kill(dir.path(), 1 + kill * kill * 12);
        let store = open(dir.path(), Some(LIMIT).filter(|_| kill % 2 == 1));
        check(&store, &said, newest);
        newest = store.revision();
        runtime.block_on(store.close());
    }
    let engine = Embedded::open(EmbeddedOptions::new(dir.path())).unwrap();
    let last = Store::open(Arc::clone(&engine) as _, StoreOptions::default()).unwrap();
    assert_eq!(last.revision(), newest);
    assert!(
        newest.get() > 5000,
        "too little was written to mean much: {newest}"
    );
    runtime.block_on(last.close());
}
