//! The checker is checked: each known fault of such stores, brought back in a store of its own, is
//! found, and by its right name; the same store without one is clean.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_e2e::history::Guarantee;
use sluice_e2e::robust::run::{Cast, Run, Verdict};
use sluice_e2e::robust::server::There;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use Guarantee as G;

/// A fault, whether a kill brings it out, and the names under which it may be found first.
type Row = (&'static str, bool, &'static [Guarantee]);

const FAULTS: [Row; 26] = [
    ("reply-before-sync", true, &[G::AcknowledgedWrites]),
    ("revision-reused", true, &[G::RevisionUnique]),
    ("batch-revision", false, &[G::OwnRevision]),
    ("lost-compare-takes-revision", false, &[G::Dense]),
    ("half-of-transaction", true, &[G::Responses]),
    ("progress-ahead", false, &[G::WatchBookmarkable]),
    ("slow-stream-loses", false, &[G::WatchReliable]),
    ("events-twice", false, &[G::WatchUnique]),
    ("events-swapped", false, &[G::WatchOrdered]),
    ("resume-skips", false, &[G::WatchResumable]),
    ("delete-at-floor-lost", false, &[G::WatchResumable]),
    ("delete-lost", false, &[G::WatchReliable]),
    ("floor-forgotten", true, &[G::CompactionFloor]),
    ("floor-swept-away", false, &[G::Responses]),
    ("future-watch-told", false, &[G::WatchResumable]),
    ("stale-read", false, &[G::RealTime]),
    ("wrong-previous", false, &[G::WatchPrevKv]),
    ("update-looks-new", false, &[G::WatchCreate]),
    ("revision-split", false, &[G::WatchAtomic]),
    ("filter-leaks", false, &[G::WatchFilter]),
    ("expiry-in-parts", false, &[G::LeaseAtomic]),
    ("put-does-not-detach", false, &[G::LeaseDetach]),
    ("lease-early", false, &[G::LeaseEarly]),
    ("lease-forgotten", true, &[G::LeaseSurvives]),
    ("count-is-page", false, &[G::Paging]),
    ("wrong-text", false, &[G::Refusals]),
];

/// Runs until a fault must have been found: far more than any needs.
const ROUNDS: u64 = 10;
/// Stores at a time.
const ABREAST: usize = 4;

/// The program that shows a fault.
fn program() -> PathBuf {
    let built = sluice_e2e::sluice::binary();
    let path = built.parent().unwrap().join("examples/faulty");
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --workspace --example faulty --features \
         sluice-gateway/injected-faults`",
        path.display()
    );
    path
}

async fn run(name: &str, is_killed: bool, seed: u64) -> Verdict {
    let dir = tempfile::tempdir().unwrap();
    let arguments = |address: std::net::SocketAddr, data: &Path| {
        let data = data.display().to_string();
        let address = address.to_string();
        let all = ["--data-dir", &data, "--listen", &address, "--fault", name];
        all.map(str::to_owned).to_vec()
    };
    let mut server = There::program(dir.path(), program(), arguments);
    server.start().await;
    let cast = Cast {
        pace: Duration::from_millis(3),
        crowd: if name == "slow-stream-loses" { 80 } else { 0 },
        ..Cast::new(seed)
    };
    let run = Run::start(cast, &server.url);
    tokio::time::sleep(Duration::from_millis(1000)).await;
    if is_killed {
        server.kill();
        server.start().await;
        run.moved(&server.url);
        run.probe_floor().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    run.probe_floor().await;
    run.finish().await
}

/// Runs until the fault is found, and says how long that took.
async fn find((name, is_killed, by): Row) -> Result<(), String> {
    let began = Instant::now();
    let mut reports = Vec::new();
    for seed in 1..=ROUNDS {
        let report = run(name, is_killed, seed).await.report;
        let broken: Vec<String> = report.broken().iter().map(ToString::to_string).collect();
        if by.iter().any(|guarantee| report.has(*guarantee)) {
            let took = began.elapsed();
            println!(
                "{name}: found in round {seed} after {took:.1?}: {}",
                broken.join(" ")
            );
            return Ok(());
        }
        reports.push(broken.join(" "));
    }
    Err(format!(
        "{name} was not found as {by:?} in {ROUNDS} rounds, but as {reports:?}"
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_known_fault_is_found_by_its_name() {
    let turns = Arc::new(Semaphore::new(ABREAST));
    let mut searches = JoinSet::new();
    for row in FAULTS {
        let turns = Arc::clone(&turns);
        searches.spawn(async move {
            let _turn = turns.acquire_owned().await.unwrap();
            find(row).await
        });
    }
    let mut missed = Vec::new();
    while let Some(found) = searches.join_next().await {
        missed.extend(found.unwrap().err());
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_store_without_a_fault_is_clean() {
    for is_killed in [false, true] {
        let counts = run("none", is_killed, 1).await.hold("no fault");
        assert!(counts.writes > 0, "{counts:?}");
    }
}
