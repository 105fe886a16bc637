//! A store whose data is larger than its memory.
//!
//! The test runs itself as the process to measure: four times as many bytes of values as may stay
//! in memory are written, changed, listed, watched, compacted and read back after a restart and
//! after a kill, and the process's memory is looked at throughout. `DESIGN.md` section 14 says what
//! comes on top of the limit.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use sluice_metastore::engine::Engine;
use sluice_metastore::engine::embedded::faulty::FaultyDisk;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::events::{Change, Watch};
use sluice_metastore::read::{At, Range};
use sluice_metastore::txn::{Compare, Delete, Op, OpAnswer, Put, Relation, Target, Txn};
use sluice_metastore::{Error, KeyRange, LeaseId, Record, Revision, Store, StoreOptions};

/// Where the child finds its directory and what to do; without it, the child's test does nothing.
const DIR: &str = "SLUICE_COLD_TEST_DIR";
const TASK: &str = "SLUICE_COLD_TEST_TASK";

const LIMIT: usize = 8 << 20;
const VALUE_BYTES: usize = 8 << 10;
/// Four times the limit.
const KEYS: usize = 4 * LIMIT / VALUE_BYTES;
/// What comes on top: the process itself, two pieces of a checkpoint or batches in flight, pages of
/// answers, 600 bytes a key, and what the allocator holds back (a quarter of the limit).
const ON_TOP: usize = (22 << 20) + LIMIT / 4 + KEYS * 600;

fn options() -> StoreOptions {
    StoreOptions {
        memory_limit_bytes: Some(LIMIT),
        checkpoint_every_bytes: 8 << 20,
        ..StoreOptions::default()
    }
}

fn open(dir: &Path) -> Store {
    let mut engine = EmbeddedOptions::new(dir);
    engine.segment_bytes = 4 << 20;
    Store::open(Embedded::open(engine).unwrap(), options()).unwrap()
}

fn name(number: usize) -> Bytes {
    Bytes::from(format!("/registry/pods/n-{:02}/p-{number:06}", number % 7))
}

/// A value that tells whose it is and cannot be guessed from another's.
fn value(number: usize, round: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(VALUE_BYTES + 8);
    let mut word = (number as u64) << 20 | (round as u64 + 1);
    while bytes.len() < VALUE_BYTES {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ number as u64;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    Bytes::from(bytes)
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

fn check_memory(what: &str) {
    let bytes = resident_bytes();
    say(&format!("memory {what} {}", bytes >> 20));
    assert!(
        bytes <= LIMIT + ON_TOP,
        "{what}: {bytes} bytes are resident, the limit is {LIMIT} and {ON_TOP} on top"
    );
}

/// One line, whole, past any buffer of this process.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@ {line}").unwrap();
    out.flush().unwrap();
}

fn put_op(number: usize, value: Option<Bytes>, want_previous: bool) -> Op {
    Op::Put(Put {
        key: name(number),
        value,
        lease: Some(LeaseId::NONE),
        want_previous,
    })
}

fn is_value(number: usize, round: usize) -> Compare {
    Compare {
        range: KeyRange::Key(name(number)),
        relation: Relation::Equal,
        target: Target::Value(value(number, round)),
    }
}

async fn put(store: &Store, number: usize, round: usize) -> Revision {
    let op = put_op(number, Some(value(number, round)), false);
    let txn = Txn {
        success: vec![op],
        ..Txn::default()
    };
    store.txn(txn).await.unwrap().revision
}

async fn put_all(store: &Store, round: usize) {
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in (writer..KEYS).step_by(16) {
                    put(&store, number, round).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

fn number_of(record: &Record) -> usize {
    let text = std::str::from_utf8(record.key()).unwrap();
    text.rsplit('-').next().unwrap().parse().unwrap()
}

/// Lists everything in pages; each value must be of its key and round.
async fn check_list(store: &Store, at: At, round: impl Fn(usize) -> usize) -> usize {
    let mut query = Range::of(KeyRange::All);
    query.limit = Some(100);
    query.at = at;
    let mut seen = 0;
    loop {
        let answer = store.read(&query).await.unwrap();
        for record in &answer.records {
            let number = number_of(record);
            assert_eq!(record.value(), &value(number, round(number)), "{number}");
            seen += 1;
        }
        let Some(last) = answer.records.last().filter(|_| answer.more) else {
            return seen;
        };
        let mut next = last.key().to_vec();
        next.push(0);
        query.range = KeyRange::From(Bytes::from(next));
    }
}

/// Watches from `start`; each event must carry its value and what was before.
async fn check_watch(store: &Store, start: Revision, round: usize) {
    let watch = Watch {
        range: KeyRange::prefix(b"/registry/pods/"),
        start: Some(start),
        want_previous: true,
    };
    let mut watcher = store.watch(watch).unwrap();
    let mut seen = 0;
    while seen < KEYS {
        for event in watcher.next().await.unwrap().events {
            let Change::Put(record) = &event.change else {
                panic!("nothing was deleted");
            };
            let number = number_of(record);
            assert_eq!(record.value(), &value(number, round));
            let before = event.previous.unwrap();
            assert_eq!(before.value(), &value(number, round - 1));
            seen += 1;
        }
    }
}

/// Every kind of transaction that needs a value which is not in memory.
async fn check_txns(store: &Store, round: usize) {
    let holds = Txn {
        compares: vec![is_value(5, round)],
        success: vec![put_op(5, None, true)],
        failure: vec![],
    };
    let answer = store.txn(holds).await.unwrap();
    assert!(answer.succeeded);
    let [OpAnswer::Put(Some(before))] = answer.answers.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!(before.value(), &value(5, round));
    let kept = store
        .read(&Range::of(KeyRange::Key(name(5))))
        .await
        .unwrap();
    assert_eq!(kept.records[0].value(), &value(5, round), "ignore_value");
    assert_eq!(kept.records[0].mod_revision(), answer.revision);
    let fails = Txn {
        compares: vec![is_value(12, round + 1)],
        // Would be refused, did it run: the branch is not chosen before the value is known.
        success: vec![put_op(KEYS, None, false)],
        failure: vec![Op::Range(Range::of(KeyRange::Key(name(12))))],
    };
    let answer = store.txn(fails).await.unwrap();
    assert!(!answer.succeeded);
    let [OpAnswer::Range(read)] = answer.answers.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!(read.records[0].value(), &value(12, round));
    // A delete makes room in the page of the read behind it.
    let range = KeyRange::Between(name(14), name(70));
    let mut page = Range::of(range.clone());
    page.limit = Some(2);
    let rest = Txn {
        compares: vec![],
        success: vec![
            Op::Delete(Delete {
                range: KeyRange::Between(name(14), name(35)),
                want_previous: true,
            }),
            Op::Range(page),
        ],
        failure: vec![],
    };
    let answer = store.txn(rest).await.unwrap();
    let [OpAnswer::Delete(3, gone), OpAnswer::Range(read)] = answer.answers.as_slice() else {
        panic!("{answer:?}");
    };
    assert!(
        gone.iter()
            .all(|r| *r.value() == value(number_of(r), round))
    );
    let numbers: Vec<usize> = read.records.iter().map(number_of).collect();
    assert_eq!(numbers, [35, 42]);
    assert!(
        read.records
            .iter()
            .all(|r| *r.value() == value(number_of(r), round))
    );
    for number in [5, 14, 21, 28] {
        put(store, number, round).await;
    }
}

fn run(task: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(task);
}

#[test]
fn child_with_little_memory() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let dir = Path::new(&dir);
    let task = std::env::var(TASK).unwrap();
    let store = open(dir);
    check_memory("opened");
    run(async {
        match task.as_str() {
            "fill" => fill(&store).await,
            "look" => look(&store).await,
            _ => write_for_ever(&store).await,
        }
        store.close().await;
    });
    say("done");
}

async fn fill(store: &Store) {
    put_all(store, 0).await;
    check_memory("written");
    let before = store.revision();
    put_all(store, 1).await;
    check_memory("updated");
    assert_eq!(check_list(store, At::Latest, |_| 1).await, KEYS);
    assert_eq!(check_list(store, At::Exactly(before), |_| 0).await, KEYS);
    check_memory("listed");
    check_watch(store, before.next(), 1).await;
    check_memory("watched");
    check_txns(store, 1).await;
    let stats = store.stats();
    assert!(stats.values_evicted > KEYS as u64 && stats.values_loaded > KEYS as u64);
    assert!(stats.checkpoints > 2, "{stats:?}");
    store.compact(store.revision()).await.unwrap();
    put_all(store, 2).await;
    assert_eq!(check_list(store, At::Latest, |_| 2).await, KEYS);
    check_memory("compacted");
}

async fn look(store: &Store) {
    let stats = store.stats();
    assert_eq!(stats.values_loaded, 0, "opening needs no value");
    assert_eq!(stats.resident_bytes, 0, "and keeps none");
    assert_eq!(check_list(store, At::Latest, |_| 2).await, KEYS);
    check_txns(store, 2).await;
    check_memory("listed");
}

async fn write_for_ever(store: &Store) {
    for number in (0..KEYS).cycle() {
        put(store, number, 3).await;
        say(&format!("put {number}"));
    }
}

/// Runs the child; it is killed after so many puts were acknowledged. Answers how many were.
fn child(dir: &Path, task: &str, kill_after: Option<usize>) -> usize {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_with_little_memory", "--nocapture"])
        .env(DIR, dir)
        .env(TASK, task)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut puts, mut is_done) = (0, false);
    let out = BufReader::new(child.stdout.take().unwrap());
    for line in out.lines() {
        let line = line.unwrap();
        puts += usize::from(line.starts_with("@ put "));
        is_done |= line == "@ done";
        if line.starts_with("@ memory") {
            println!("{task}: {line}");
        }
        if kill_after == Some(puts) {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert_eq!(is_done, kill_after.is_none(), "{task} ended otherwise");
    puts
}

#[test]
fn four_times_the_memory_is_written_read_and_recovered() {
    let dir = tempfile::tempdir().unwrap();
    child(dir.path(), "fill", None);
    child(dir.path(), "look", None);
    let puts = child(dir.path(), "write", Some(KEYS / 3));
    run(async {
        let store = open(dir.path());
        assert_eq!(store.stats().values_loaded, 0);
        // The next one may have been written and not acknowledged.
        let query = Range::of(KeyRange::Key(name(puts)));
        let next = store.read(&query).await.unwrap().records.remove(0);
        let is_next_new = *next.value() == value(puts, 3);
        let newest = move |number| {
            let is_new = number < puts || (number == puts && is_next_new);
            if is_new { 3 } else { 2 }
        };
        assert_eq!(check_list(&store, At::Latest, newest).await, KEYS);
        store.close().await;
    });
}

/// Waits until something holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(20);
    tokio::time::timeout(patience, waiting).await.expect(what);
}

/// A store over files in memory that may keep next to nothing, with one checkpoint and one batch.
async fn small(disk: &FaultyDisk) -> Store {
    let mut engine = EmbeddedOptions::new("");
    engine.segment_bytes = 64 << 10;
    let engine = Embedded::open_over(Arc::new(disk.clone()), engine).unwrap();
    let options = StoreOptions {
        memory_limit_bytes: Some(1),
        checkpoint_every_bytes: 20 << 10,
        ..StoreOptions::default()
    };
    Store::open(engine, options).unwrap()
}

/// Flips a byte of a value wherever it lies.
fn damage(disk: &FaultyDisk, number: usize, round: usize) {
    let wanted = value(number, round);
    let mut count = 0;
    for file in disk.names() {
        // A spare is renamed as it is made.
        let Some(mut content) = disk.content(&file) else {
            continue;
        };
        let found = content.windows(64).position(|part| part == &wanted[..64]);
        if let Some(at) = found {
            content[at + 70] ^= 1;
            disk.overwrite(&file, content);
            count += 1;
        }
    }
    assert!(count > 0, "the value is nowhere");
}

/// What a disk did to bytes that lie there is told to whoever reads them, and to nobody else.
#[tokio::test]
async fn damage_is_an_error_of_the_read_that_meets_it() {
    let disk = FaultyDisk::new();
    let store = small(&disk).await;
    for number in 0..8 {
        put(&store, number, 0).await;
    }
    store.close().await;
    let store = small(&disk).await;
    damage(&disk, 3, 0);
    for number in 0..8 {
        let read = store.read(&Range::of(KeyRange::Key(name(number)))).await;
        match (number, read) {
            (3, Err(Error::Corrupt { reason })) => {
                assert!(
                    reason.contains("/faulty/") && reason.contains("offset="),
                    "{reason}"
                );
                assert!(reason.contains("restore from a backup"), "{reason}");
            }
            (3, other) => panic!("{other:?}"),
            (_, read) => assert_eq!(read.unwrap().records[0].value(), &value(number, 0)),
        }
    }
    let list = store.read(&Range::of(KeyRange::All)).await;
    assert!(matches!(list, Err(Error::Corrupt { .. })));
    let compare = Txn {
        compares: vec![is_value(3, 0)],
        success: vec![put_op(3, None, false)],
        failure: vec![],
    };
    let refused = store.txn(compare).await;
    assert!(matches!(refused, Err(Error::Corrupt { .. })));
    let watch = Watch {
        range: KeyRange::Key(name(3)),
        start: Some(Revision::FIRST),
        want_previous: false,
    };
    let mut watcher = store.watch(watch).unwrap();
    assert!(matches!(watcher.next().await, Err(Error::Corrupt { .. })));
    // What needs no value goes on, and writing it anew mends it.
    let mut keys = Range::of(KeyRange::All);
    keys.projection = sluice_metastore::read::Projection::KeysOnly;
    assert_eq!(store.read(&keys).await.unwrap().records.len(), 8);
    put(&store, 3, 1).await;
    let mended = store
        .read(&Range::of(KeyRange::Key(name(3))))
        .await
        .unwrap();
    assert_eq!(mended.records[0].value(), &value(3, 1));
    store.close().await;
}

/// A checkpoint that would have to hold damaged bytes is not made, so that the damage stays where
/// it can be found.
#[tokio::test]
async fn damage_does_not_get_into_a_checkpoint() {
    let disk = FaultyDisk::new();
    let store = small(&disk).await;
    put(&store, 0, 0).await;
    store.close().await;
    let store = small(&disk).await;
    damage(&disk, 0, 0);
    for round in 0..8 {
        put(&store, 1, round).await;
    }
    until("the checkpoint fails", || {
        store.stats().checkpoints_failed > 0
    })
    .await;
    assert_eq!(store.stats().checkpoints, 0);
    put(&store, 2, 0).await;
    store.close().await;
}

/// Files that no value is read from any more go: what a store holds on to is what is in use.
#[tokio::test]
async fn files_go_once_their_values_have_moved() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = EmbeddedOptions::new(dir.path());
    engine.segment_bytes = 256 << 10;
    let engine = Embedded::open(engine).unwrap();
    let options = StoreOptions {
        memory_limit_bytes: Some(1),
        checkpoint_every_bytes: 512 << 10,
        ..StoreOptions::default()
    };
    let store = Store::open(Arc::clone(&engine) as _, options).unwrap();
    for round in 0..40 {
        for number in 0..10 {
            put(&store, number, round).await;
        }
        store.compact(store.revision()).await.unwrap();
    }
    let open_files = || {
        let own = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = own.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        let ours = |target: &std::path::PathBuf| target.starts_with(dir.path());
        targets.filter(ours).count()
    };
    until("old files are let go", || {
        store.stats().checkpoints >= 2 && open_files() <= 12
    })
    .await;
    assert!(engine.size() < 3 << 20, "{} bytes are held", engine.size());
    for number in 0..10 {
        let read = store.read(&Range::of(KeyRange::Key(name(number)))).await;
        assert_eq!(read.unwrap().records[0].value(), &value(number, 39));
    }
    store.close().await;
}
