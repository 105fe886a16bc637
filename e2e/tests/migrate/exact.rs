//! From a real etcd into a data directory: every revision, version and lease as it was.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_e2e::etcd::Etcd;
use sluice_e2e::parts::Parts;
use sluice_e2e::process::Process;
use tempfile::TempDir;

use crate::moving::{LIMIT, Moved, begin, migrate, path, says, serve};
use crate::valve::Valve;
use crate::wire::{BARE_LEASE, LEASE, TTL, Wire, fill};

struct Bench {
    dir: TempDir,
    etcd: Etcd,
    source: Wire,
}

impl Bench {
    async fn start() -> Option<Bench> {
        let parts = Parts::find(&["etcd"])?;
        let dir = tempfile::tempdir().unwrap();
        let etcd = Etcd::start(&parts, dir.path()).await;
        let source = Wire::connect(&etcd.url).await;
        Some(Bench { dir, etcd, source })
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    async fn migrate(&self, more: &[&str]) -> Moved {
        let data = self.data();
        let args = ["--from", &self.etcd.url, "--data-dir", path(&data)];
        migrate(&[&args, more].concat()).await
    }

    /// Serves the data directory and holds it against the source; it is served for as long as the
    /// process that comes along lives.
    async fn same(&self) -> (Wire, Process) {
        let served = serve("served", &self.data()).await;
        let here = Wire::connect(&served.url).await;
        assert_eq!(here.all().await, self.source.all().await);
        assert!(
            !self.dir.path().join("data.migrate").exists(),
            "nothing is left over"
        );
        (here, served.process)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_becomes_a_data_directory_to_the_last_revision() {
    let Some(bench) = Bench::start().await else {
        return;
    };
    let revision = fill(&bench.source).await;
    let moved = bench.migrate(&[]).await.done();
    let told = format!("source at revision {revision}, here at {revision}");
    assert!(moved.out.contains(&told), "{}", moved.out);
    bench.migrate(&[]).await.refused("is not empty");
    bench
        .migrate(&["--resume"])
        .await
        .refused("no unfinished move");

    let served = serve("served", &bench.data()).await;
    let here = Wire::connect(&served.url).await;
    let (all, at) = here.all().await;
    assert_eq!(at, revision);
    assert!(all.len() > 150 && all.iter().any(|kv| kv.version > 1));
    assert_eq!((all, at), bench.source.all().await);
    // Whoever knew the revision before hears what the last one did, and no less.
    assert_eq!(
        here.events(revision, 5).await,
        bench.source.events(revision, 5).await
    );
    let below = here.range("", revision - 1).await.unwrap_err();
    assert!(below.message().contains("has been compacted"), "{below}");
    let (left, keys) = here.lease(LEASE).await;
    assert_eq!(keys, bench.source.lease(LEASE).await.1);
    assert_eq!(keys.len(), 40);
    assert!(left > TTL - 120 && left <= TTL, "{left}");
    assert!(here.lease(BARE_LEASE).await.0 > TTL - 120);
    assert_eq!(here.put("/next", "one").await, revision + 1);
}

/// Writes until told to stop: puts, deletes, several keys at once, on leases of its own.
async fn write(wire: Wire, stop: Arc<AtomicBool>) -> i64 {
    let mut last = 0;
    for n in 0_i64.. {
        if stop.load(Ordering::Relaxed) {
            return last;
        }
        let key = format!("/registry/busy/{}", n % 50);
        last = wire.put(key, format!("value {n}")).await;
        if n % 7 == 0 {
            wire.together(&["/registry/z", "/registry/a"]).await;
            last = wire.delete("/registry/busy/1", "/registry/busy/2").await;
        }
        if n % 20 == 0 {
            let lease = 1000 + n;
            wire.grant(lease, TTL).await;
            last = wire.put_on("/registry/leased", "busy", lease).await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_every_phase_while_the_source_is_written_to_it_arrives_whole() {
    let Some(bench) = Bench::start().await else {
        return;
    };
    let begun = fill(&bench.source).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn(write(bench.source.clone(), Arc::clone(&stop)));
    let data = bench.data();

    // In the middle of the scan, twice.
    for (name, bytes) in [("one", 300_000), ("two", 600_000)] {
        let valve = Valve::new(&bench.etcd.url, bytes).await;
        let args = ["--from", &valve.url, "--data-dir", path(&data), "--follow"];
        let mut moving = begin(name, bench.dir.path(), &args);
        valve.holds().await;
        moving.kill();
        assert!(!data.exists(), "nothing is there before all was read");
    }
    // While it follows.
    let args = [
        "--from",
        &bench.etcd.url,
        "--data-dir",
        path(&data),
        "--follow",
    ];
    let mut moving = begin("three", bench.dir.path(), &args);
    says(&moving, "caught up").await;
    let other = migrate(&args).await;
    other.refused("another process");
    moving.kill();
    let moving_on = begin("four", bench.dir.path(), &args);
    says(&moving_on, "going on with the unfinished move").await;
    says(&moving_on, "caught up").await;
    stop.store(true, Ordering::Relaxed);
    let last = writer.await.unwrap();
    assert!(last > begun);
    let mut moving = moving_on;
    let status = moving.terminate(LIMIT);
    let log = moving.log_tail(50);
    assert!(status.success(), "{log}");
    assert!(log.contains(&format!("here at {last}")), "{log}");
    assert!(log.contains("both sides are the same"), "{log}");

    let (here, _served) = bench.same().await;
    // The history since the scan came along, in the order made.
    let newest = bench.source.events(last - 20, 20).await;
    assert_eq!(here.events(last - 20, 20).await, newest);
    let held = bench.source.prefix("/registry/leased").await[0].lease;
    assert_eq!(here.lease(held).await.1, bench.source.lease(held).await.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_compacts_what_is_being_read_is_read_anew() {
    let Some(bench) = Bench::start().await else {
        return;
    };
    fill(&bench.source).await;
    let valve = Valve::new(&bench.etcd.url, 400_000).await;
    let data = bench.data();
    let args = [
        "--from",
        &valve.url,
        "--data-dir",
        path(&data),
        "--until-idle",
        "300ms",
    ];
    let mut moving = begin("moving", bench.dir.path(), &args);
    valve.holds().await;
    let revision = bench.source.put("/registry/pods/0", "meanwhile").await;
    bench.source.compact(revision).await;
    valve.open();
    let status = moving.wait_exit(LIMIT);
    let log = moving.log_tail(50);
    assert!(status.success(), "{log}");
    let told = format!("scanning anew at revision {revision}");
    assert!(log.contains(&told), "{log}");
    bench.same().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_moved_is_said_and_nothing_is_left() {
    let Some(mut bench) = Bench::start().await else {
        return;
    };
    let data = bench.data();
    let nobody = format!("http://127.0.0.1:{}", sluice_e2e::ports::free());
    let moved = migrate(&["--from", &nobody, "--data-dir", path(&data)]).await;
    moved.refused("cannot reach the source");
    let https = bench.etcd.url.replace("http:", "https:");
    let moved = migrate(&["--from", &https, "--data-dir", path(&data)]).await;
    moved.refused("--cacert");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("mine"), "precious").unwrap();
    bench.migrate(&[]).await.refused("is not empty");
    assert_eq!(
        std::fs::read_to_string(data.join("mine")).unwrap(),
        "precious"
    );
    assert!(!bench.dir.path().join("data.migrate").exists());
    std::fs::remove_dir_all(&data).unwrap();
    // An etcd that was never written to is a store that was never written to; one endpoint of two.
    let both = format!("{nobody},{}", bench.etcd.url);
    migrate(&["--from", &both, "--data-dir", path(&data)])
        .await
        .done();
    bench.same().await;
    bench.etcd.process.kill();
}
