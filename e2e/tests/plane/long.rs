//! The long tier: minutes of kills, an upgrade over three minor versions, and many nodes. It runs
//! where `SLUICE_PLANE_SECONDS` says for how long.

use std::time::{Duration, Instant};

use serde_json::json;
use sluice_e2e::client::Client;
use sluice_e2e::parts::Parts;
use sluice_e2e::plane::{PARTS, Plane, PlaneOptions};
use sluice_e2e::process::eventually;
use sluice_e2e::renewals::{Renewals, Seen};
use sluice_e2e::workload::{ended_well, informer, make, written};

use crate::faults::{WRITES, filled, leaders};
use crate::work::{nodes_become_ready, running};
use crate::{Clock, LIMIT, lists, options, parts, storage, work};

const BETWEEN_KILLS: Duration = Duration::from_secs(20);
/// As Kubernetes' own: a leader gives up when it could not renew for 4/5 of this.
const LEASE: Duration = Duration::from_secs(15);
/// A node is lost when its lease was not renewed for this long.
const NODE_LEASE: Duration = Duration::from_secs(40);
/// Lists from an apiserver's cache, which answers while the store does not.
const CACHED: &str = "resourceVersion=0";
/// Each apiserver compares its caches with the store every 5 to 7.5 minutes.
const CHECKED_AFTER: Duration = Duration::from_mins(10);
/// The oldest version comes first; the step to each is one minor version. Others by
/// `SLUICE_PLANE_UPGRADE`.
const VERSIONS: &str = "1.35.4 1.36.2 1.37.2";
/// How long to go on; `None`, after saying so, in the gate.
fn length() -> Option<Duration> {
    let text = std::env::var("SLUICE_PLANE_SECONDS").ok();
    if text.is_none() {
        println!("SKIPPED: long; SLUICE_PLANE_SECONDS says for how long to run it");
    }
    text.map(|text| Duration::from_secs(text.parse().expect("a number of seconds")))
}

/// As an operator would set it up: an hour of events, five minutes of history.
fn usual() -> PlaneOptions {
    PlaneOptions {
        apiserver_flags: Vec::new(),
        lease: LEASE,
        ..options()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_hold_while_the_store_is_killed_each_20_seconds() {
    let Some((length, parts)) = length().zip(parts(&[])) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut plane = Plane::new(&parts, home.path(), &usual());
    plane.start().await;
    nodes_become_ready(&plane, 20).await;
    work::deployments_roll(&plane).await;
    let before = (leaders(&plane).await, filled(&plane).await);
    let watched = Renewals::watch(&plane.apiservers[1].direct, CACHED);
    let began = Instant::now();
    let (mut kills, mut longest) = (0, Duration::ZERO);
    while began.elapsed() < length {
        let killed = Instant::now();
        plane.kill_store().await;
        kills += 1;
        takes_a_write(&plane.apiservers[0].direct, kills).await;
        let without = killed.elapsed();
        longest = longest.max(without);
        let image = format!("web=web:{}", kills + 2);
        plane.kubectl[0].ok(&["set", "image", "deployment/web", &image]);
        running(&plane, &format!("web:{}", kills + 2), 7).await;
        tokio::time::sleep(BETWEEN_KILLS.saturating_sub(killed.elapsed())).await;
    }
    let seen = watched.stop().await;
    println!(
        "{kills} kills in {:?}, writes taken again after at most {longest:?}",
        began.elapsed()
    );
    for (lease, renewed) in seen.of_leaders() {
        println!("{lease}: {renewed:?}");
        let worst = renewed.apart_max;
        assert!(renewed.count > 10 && worst < LEASE * 4 / 5, "{lease}");
    }
    nodes_were_kept(&seen);
    let after = (leaders(&plane).await, filled(&plane).await);
    assert_eq!(before, after, "leaders, and times the caches were filled");
    checks_found_nothing(&plane, length).await;
    assert_eq!(plane.ended(), Vec::<String>::new(), "parts that ended");
    storage::logs_are_clean(&plane);
}

/// No node's lease ran out, and none was not ready.
fn nodes_were_kept(seen: &Seen) {
    let (count, worst) = (seen.of_nodes().len(), seen.nodes_apart_max());
    println!("{count} nodes' leases: at most {worst:?} apart");
    assert!(count > 0 && worst < NODE_LEASE, "a node's lease: {worst:?}");
    assert_eq!(
        seen.unready,
        Vec::<String>::new(),
        "nodes that were not ready"
    );
}

/// Waits until a write is taken.
async fn takes_a_write(client: &Client, n: usize) {
    let path = "/api/v1/namespaces/default/configmaps";
    eventually("a write after the kill", LIMIT, || async {
        let object = json!({"metadata": {"generateName": format!("kill-{n}-")}}).to_string();
        let answer = client.once("POST", path, object).await;
        let status = answer.map_err(|e| e.to_string())?.status;
        (status == 201).then_some(()).ok_or(status.to_string())
    })
    .await;
}

async fn checks_found_nothing(plane: &Plane, length: Duration) {
    for apiserver in &plane.apiservers {
        let metric = "apiserver_storage_consistency_checks_total";
        let good = apiserver.counter(metric, &["success"]).await;
        let bad = apiserver.counter(metric, &["failure"]).await;
        println!("consistency checks by an apiserver: {good} passed, {bad} failed");
        assert_eq!(bad, 0.0);
        assert!(
            good > 0.0 || length < CHECKED_AFTER,
            "no check in {length:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apiservers_are_upgraded_one_by_one_on_the_same_data() {
    if length().is_none() {
        return;
    }
    let own = [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ];
    let versions = std::env::var("SLUICE_PLANE_UPGRADE").unwrap_or(VERSIONS.to_owned());
    let versions: Vec<&str> = versions.split_whitespace().collect();
    let mut all = Vec::new();
    for version in &versions {
        let rest = Parts::find(&[&PARTS[..], &["informer"]].concat());
        let Some((of, rest)) = Parts::find_kubernetes(version, &own).zip(rest) else {
            return;
        };
        all.push(rest.with(of));
    }
    let home = tempfile::tempdir().unwrap();
    let mut plane = Plane::new(&all[0], home.path(), &usual());
    let mut clock = Clock::start();
    plane.start().await;
    work::nodes_become_ready(&plane, 3).await;
    work::deployments_roll(&plane).await;
    work::custom_kinds_come(&plane).await;
    let kept = kept(&plane);
    check(&plane, versions[0]).await;
    clock.lap(versions[0]);
    for (version, parts) in versions.iter().zip(&all).skip(1) {
        upgrade(&mut plane, parts, version).await;
        check(&plane, version).await;
        assert_eq!(self::kept(&plane), kept, "what was made before the upgrade");
        clock.lap(version);
    }
    work::custom_kinds_go(&plane).await;
    work::a_namespace_ends_with_all_in_it(&plane).await;
    storage::logs_are_clean(&plane);
}

/// What users wrote at the first version, as the second apiserver shows it.
fn kept(plane: &Plane) -> String {
    let path =
        "-o=jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.spec.size}{\"\\n\"}{end}";
    let gadgets = plane.kubectl[1].ok(&["get", "gadgets", path]);
    assert_eq!(gadgets.lines().count(), 20, "{gadgets}");
    gadgets
}

/// One apiserver after the other, then those that must not be newer than they are. Informers whose
/// apiserver goes away go on at the newer one and miss nothing.
async fn upgrade(plane: &mut Plane, parts: &Parts, version: &str) {
    for (n, streams) in (0..plane.apiservers.len()).zip(["true", "false"]) {
        let space = format!("upgraded-{n}-to-{}", version.replace('.', "-"));
        plane.kubectl[n].ok(&["create", "namespace", &space]);
        let config = &plane.kubectl[n].config;
        let mut client = informer(parts, &plane.dir, config, &space, streams, WRITES);
        written(&client, 100).await;
        plane.apiservers[n].terminate();
        plane.apiservers[n].change_version(parts);
        plane.apiservers[n].start();
        plane.apiservers[n].ready().await;
        // Old and new side by side: what one writes the other shows at once.
        let object = json!({"metadata": {"generateName": "beside-"}});
        let path = "/api/v1/namespaces/default/configmaps";
        let made = make(&plane.apiservers[n].direct, path, &object).await;
        let path = format!("{path}/{}", made["metadata"]["name"].as_str().unwrap());
        let other = &plane.apiservers[1 - n].direct;
        assert_eq!(other.once("GET", &path, "").await.unwrap().json(), made);
        println!("informers: {:?}", ended_well(&mut client));
    }
    for component in plane.managers.iter_mut().chain([&mut plane.scheduler]) {
        component.kill();
        component.change_version(parts);
        component.start();
    }
}

async fn check(plane: &Plane, version: &str) {
    for apiserver in &plane.apiservers {
        let answer = apiserver.direct.once("GET", "/version", "").await.unwrap();
        assert_eq!(answer.json()["gitVersion"], format!("v{version}"));
    }
    lists::lists_are_consistent_and_from_the_cache(plane).await;
    lists::lists_are_streamed(plane).await;
    let image = format!("web:{version}");
    plane.kubectl[1].ok(&["set", "image", "deployment/web", &format!("web={image}")]);
    running(plane, &image, 7).await;
    storage::lists_come_by_a_stream_where_asked(plane).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_many_nodes_fits() {
    let Some((length, parts)) = length().zip(parts(&[])) else {
        return;
    };
    let nodes = std::env::var("SLUICE_PLANE_NODES").map_or(500, |n| n.parse().unwrap());
    let home = tempfile::tempdir().unwrap();
    let mut options = usual();
    options.managers = 1;
    let mut plane = Plane::new(&parts, home.path(), &options);
    let mut clock = Clock::start();
    plane.start().await;
    nodes_become_ready(&plane, nodes).await;
    clock.lap(&format!("{nodes} nodes are ready"));
    let replicas = format!("--replicas={}", nodes * 2);
    plane.kubectl[0].ok(&["create", "deployment", "web", "--image=web:1", &replicas]);
    running(&plane, "web:1", nodes * 2).await;
    clock.lap(&format!("{} pods run", nodes * 2));
    let watched = Renewals::watch(&plane.apiservers[1].direct, CACHED);
    let began = Instant::now();
    let mut before = sample(&plane).await;
    while began.elapsed() < length {
        tokio::time::sleep(Duration::from_secs(20)).await;
        before = report(&plane, before).await;
    }
    nodes_were_kept(&watched.stop().await);
    let peak = plane.store.process.as_ref().unwrap().usage().resident_max;
    assert!(peak < MEMORY_MAX, "the store took {} MiB", peak >> 20);
    assert_eq!(plane.ended(), Vec::<String>::new(), "parts that ended");
    storage::logs_are_clean(&plane);
}

/// A store of 500 nodes and 1000 pods with five minutes of lease renewals: some 40 MB of values.
const MEMORY_MAX: u64 = 512 << 20;

/// When, the revision, and the store's time on a processor.
type Sample = (Instant, f64, Duration);

async fn sample(plane: &Plane) -> Sample {
    let revision = plane
        .store_metric("etcd_debugging_mvcc_current_revision")
        .await;
    let usage = plane.store.process.as_ref().unwrap().usage();
    (Instant::now(), revision, usage.cpu)
}

async fn report(plane: &Plane, before: Sample) -> Sample {
    let now = sample(plane).await;
    let seconds = (now.0 - before.0).as_secs_f64();
    let usage = plane.store.process.as_ref().unwrap().usage();
    println!(
        "store: {:.0} revisions/s, {:.1} % of a core, {} MiB (at most {})",
        (now.1 - before.1) / seconds,
        (now.2 - before.2).as_secs_f64() / seconds * 100.0,
        usage.resident >> 20,
        usage.resident_max >> 20,
    );
    now
}
