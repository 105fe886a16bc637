//! How fast the store creates, updates and reads in this process, over the embedded engine.
//!
//! `cargo run --release -p sluice-metastore --example store_load -- DIR [CLIENTS] [KEYS]`
//!
//! Prints one line a phase. Says nothing about the wire: callers are tasks of the same process. The
//! disk decides much of it, so the plain rate of syncs of the directory is printed first.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::read::{Projection, Range};
use sluice_metastore::txn::{Compare, Op, Put, Relation, Target, Txn};
use sluice_metastore::{Error, KeyRange, LeaseId, Revision, Store, StoreOptions};

const VALUE_BYTES: usize = 512;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("say the directory to write in")?);
    let clients: u64 = args.next().map_or(Ok(100), |text| text.parse())?;
    let keys: u64 = args.next().map_or(Ok(200_000), |text| text.parse())?;
    sync_rate(&dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let options = EmbeddedOptions::new(dir.join("store"));
    let started = Instant::now();
    let store = Store::open(Embedded::open(options)?, StoreOptions::default())?;
    println!(
        "open: {:?} at revision {}",
        started.elapsed(),
        store.revision()
    );
    runtime.block_on(async {
        write(&store, "create", clients, keys, create).await;
        write(&store, "update", clients, keys, update).await;
        write(&store, "update by one", 1, keys / 20, update).await;
        read(&store, keys);
        store.close().await;
    });
    Ok(())
}

/// Overwrites of one block with a sync each, as the log does them.
fn sync_rate(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join("sync-rate");
    let mut file = File::create(&path)?;
    file.write_all(&[0; 1 << 16])?;
    file.sync_all()?;
    let started = Instant::now();
    let mut count = 0u32;
    while started.elapsed() < Duration::from_secs(1) {
        file.write_all_at(&[1; 4096], 0)?;
        file.sync_data()?;
        count += 1;
    }
    println!("sync: {count}/s of 4 KiB");
    std::fs::remove_file(path)
}

fn name(number: u64) -> Bytes {
    Bytes::from(format!(
        "/registry/configmaps/namespace-{:03}/object-{number:032}",
        number % 100
    ))
}

fn compare_and_put(number: u64, at: Revision) -> Txn {
    let key = name(number);
    Txn {
        compares: vec![Compare {
            range: KeyRange::Key(key.clone()),
            relation: Relation::Equal,
            target: Target::Mod(at),
        }],
        success: vec![Op::Put(Put {
            key: key.clone(),
            value: Some(Bytes::from(vec![7; VALUE_BYTES])),
            lease: Some(LeaseId::NONE),
            want_previous: false,
        })],
        failure: vec![Op::Range(Range::of(KeyRange::Key(key)))],
    }
}

fn create(_store: &Store, number: u64) -> Txn {
    compare_and_put(number, Revision::ZERO)
}

fn update(store: &Store, number: u64) -> Txn {
    let found = store.range(&Range::of(KeyRange::Key(name(number))));
    let at = found
        .ok()
        .and_then(|found| found.records.first().map(|r| r.mod_revision()));
    compare_and_put(number, at.unwrap_or_default())
}

async fn write(store: &Store, what: &str, clients: u64, keys: u64, txn: fn(&Store, u64) -> Txn) {
    let next = Arc::new(AtomicU64::new(0));
    let before = store.stats();
    let (started, cpu) = (Instant::now(), cpu_time());
    let writers: Vec<_> = (0..clients)
        .map(|_| {
            let (store, next) = (store.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= keys {
                        return Ok::<_, Error>(taken);
                    }
                    let sent = Instant::now();
                    store.txn(txn(&store, number)).await?;
                    taken.push(sent.elapsed());
                }
            })
        })
        .collect();
    let mut taken = Vec::new();
    for writer in writers {
        match writer.await {
            Ok(Ok(times)) => taken.extend(times),
            other => println!("{what}: a writer failed: {other:?}"),
        }
    }
    taken.sort_unstable();
    let seconds = started.elapsed().as_secs_f64();
    let at = |share: usize| {
        taken
            .get(taken.len() * share / 1000)
            .copied()
            .unwrap_or_default()
    };
    let batches = store.stats().batches - before.batches;
    println!(
        "{what}: {keys} by {clients}: {:.0}/s p50 {:?} p99 {:?} cpu {:.1} us each, {:.1} a batch",
        keys as f64 / seconds,
        at(500),
        at(990),
        (cpu_time() - cpu).as_secs_f64() * 1e6 / keys as f64,
        keys as f64 / batches as f64,
    );
}

fn read(store: &Store, keys: u64) {
    let all = KeyRange::prefix(b"/registry/configmaps/");
    let mut count = Range::of(all.clone());
    count.projection = Projection::CountOnly;
    let mut page = Range::of(all.clone());
    page.limit = Some(500);
    for (what, query, times) in [
        ("count", count, 10_000u32),
        ("page of 500", page, 2_000),
        ("list of all", Range::of(all), 3),
    ] {
        let started = Instant::now();
        let mut found = 0;
        for _ in 0..times {
            found = store.range(&query).map_or(0, |answer| answer.count);
        }
        println!(
            "{what}: {:?} each of {keys}, counted {found}",
            started.elapsed() / times
        );
    }
    let started = Instant::now();
    for number in 0..keys {
        let _found = store.range(&Range::of(KeyRange::Key(name(number * 7919 % keys))));
    }
    let each = started.elapsed() / u32::try_from(keys).unwrap_or(u32::MAX);
    println!("get: {each:?} each");
}

/// User and system time of this process so far.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .filter_map(|f| f.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}
