//! The one acceptance: a real client writes 2,000 objects through a gateway that is killed every
//! ten seconds, in front of two real kube-apiservers that store in that same gateway.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;
use sluice_e2e::kubectl::Credential;
use sluice_e2e::parts::Parts;
use sluice_e2e::process::Process;
use sluice_e2e::stack::{Stack, StackOptions};

const OBJECTS: usize = 2000;
const STANDING: usize = 20;
const SPREAD: Duration = Duration::from_secs(120);
const KILL_EVERY: Duration = Duration::from_secs(10);

/// A write whose outcome the client knows.
#[derive(Debug, Deserialize)]
struct Write {
    op: String,
    name: String,
    #[serde(default)]
    rv: String,
    #[serde(default)]
    settled: bool,
}

/// What the client's watch was shown.
#[derive(Debug, Deserialize)]
struct Seen {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    rv: String,
    value: String,
    session: u32,
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_objects_survive_a_gateway_killed_every_ten_seconds() {
    let names = ["kube-apiserver", "kubectl", "loop"];
    let Some(parts) = Parts::find(&names) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut stack = Stack::new(&parts, dir.path(), &StackOptions::default());
    stack.start().await;
    let kubectl = stack.kubectl(&parts, "admin", &Credential::Certificate(&stack.pki.admin));
    let before = shares(&stack).await;

    let (writes, events) = (
        dir.path().join("writes.jsonl"),
        dir.path().join("events.jsonl"),
    );
    let mut command = Command::new(parts.path("loop"));
    command
        .arg("-kubeconfig")
        .arg(&kubectl.config)
        .arg(format!("-objects={OBJECTS}"))
        .arg(format!("-spread={}s", SPREAD.as_secs()))
        .arg("-writes")
        .arg(&writes)
        .arg("-events")
        .arg(&events);
    let mut client = Process::start("loop", dir.path(), &mut command);
    let kills = kill_while(&mut stack, &mut client).await;
    assert!(kills >= 11, "the gateway was killed only {kills} times");
    let status = client.wait_exit(Duration::from_secs(180));
    assert!(
        status.success(),
        "the client gave up:\n{}",
        client.log_tail(5)
    );
    stack.gateway.ready().await;

    let writes: Vec<Write> = read_lines(&writes);
    let events: Vec<Seen> = read_lines(&events);
    let sessions = events.last().map_or(0, |e| e.session);
    println!(
        "{kills} kills, {} known writes ({} settled later), {} events over {sessions} watch sessions",
        writes.len(),
        writes.iter().filter(|w| w.settled).count(),
        events.len()
    );
    assert!(
        sessions > 1,
        "no watch was ever cut: the kills did not reach it"
    );
    every_object_went_its_way(&writes);
    no_version_is_given_twice(&writes, &events);
    the_watch_saw_each_change_once_and_in_order(&writes, &events);
    the_end_state_is_what_was_acknowledged(&stack, &writes).await;
    both_apiservers_served(&stack, &before).await;
}

/// Kills and restarts the gateway each ten seconds for two minutes, or until the client ends.
async fn kill_while(stack: &mut Stack, client: &mut Process) -> usize {
    let started = Instant::now();
    let mut kills = 0;
    while started.elapsed() < SPREAD && !client.has_ended() {
        tokio::time::sleep(KILL_EVERY).await;
        stack.kill_and_restart_gateway();
        kills += 1;
    }
    kills
}

fn read_lines<T: for<'a> Deserialize<'a>>(path: &Path) -> Vec<T> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Each object was created, changed and deleted, each known once.
fn every_object_went_its_way(writes: &[Write]) {
    let mut ways: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for write in writes {
        ways.entry(&write.name).or_default().push(&write.op);
    }
    let whole = ways
        .iter()
        .filter(|(name, ops)| name.starts_with("loop-") && **ops == ["create", "update", "delete"])
        .count();
    assert_eq!(
        whole, OBJECTS,
        "objects that were created, changed and deleted"
    );
}

/// Dense revisions: no two changes have one version, in answers or in events.
fn no_version_is_given_twice(writes: &[Write], events: &[Seen]) {
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    for write in writes.iter().filter(|w| !w.rv.is_empty()) {
        if let Some(other) = given.insert(&write.rv, &write.name) {
            panic!(
                "version {} was given to {other} and to {}",
                write.rv, write.name
            );
        }
    }
    let shown: BTreeSet<&str> = events.iter().map(|e| e.rv.as_str()).collect();
    assert_eq!(shown.len(), events.len(), "a version was shown twice");
}

/// Reliable, unique, ordered, resumable: over all sessions, the watch is one gapless history.
fn the_watch_saw_each_change_once_and_in_order(writes: &[Write], events: &[Seen]) {
    let mut last = 0;
    for event in events {
        let version: u64 = event.rv.parse().unwrap();
        assert!(
            version > last,
            "ordered: {version} ({}) was shown after {last}",
            event.name
        );
        last = version;
    }
    let by_version: BTreeMap<&str, &Seen> = events.iter().map(|e| (e.rv.as_str(), e)).collect();
    for write in writes.iter().filter(|w| !w.rv.is_empty()) {
        let event = by_version
            .get(write.rv.as_str())
            .unwrap_or_else(|| panic!("reliable: {write:?} was acknowledged and never shown"));
        let kind = if write.op == "create" {
            "ADDED"
        } else {
            "MODIFIED"
        };
        assert_eq!(
            (event.name.as_str(), event.kind.as_str()),
            (write.name.as_str(), kind)
        );
    }
    let mut lives: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for event in events {
        lives
            .entry(&event.name)
            .or_default()
            .push((&event.kind, &event.value));
    }
    for (name, life) in lives.iter().filter(|(name, _)| name.starts_with("loop-")) {
        let expected = [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")];
        assert_eq!(life, &expected, "unique: the life of {name} as shown");
    }
}

/// Every acknowledged write is there: what stands is what was left standing, at its last version.
async fn the_end_state_is_what_was_acknowledged(stack: &Stack, writes: &[Write]) {
    let path = "/api/v1/namespaces/default/configmaps";
    let list = stack.admin().once("GET", path, "").await.unwrap().json();
    let mut standing: BTreeMap<String, String> = BTreeMap::new();
    for item in list["items"].as_array().unwrap() {
        let name = item["metadata"]["name"].as_str().unwrap();
        if name != "kube-root-ca.crt" {
            let version = item["metadata"]["resourceVersion"].as_str().unwrap();
            standing.insert(name.to_owned(), version.to_owned());
        }
    }
    let mut expected: BTreeMap<String, String> = BTreeMap::new();
    for write in writes {
        if write.op == "delete" {
            expected.remove(&write.name);
        } else {
            expected.insert(write.name.clone(), write.rv.clone());
        }
    }
    assert_eq!(expected.len(), STANDING + 1);
    assert_eq!(standing, expected);
}

/// How many writes of ConfigMaps each apiserver has served, by its own count.
async fn shares(stack: &Stack) -> Vec<f64> {
    let mut all = Vec::new();
    for apiserver in &stack.apiservers {
        let mut sum = 0.0;
        for verb in ["POST", "PUT", "DELETE"] {
            let needles = ["resource=\"configmaps\"", &format!("verb=\"{verb}\"")];
            sum += apiserver.counter("apiserver_request_total", &needles).await;
        }
        all.push(sum);
    }
    all
}

async fn both_apiservers_served(stack: &Stack, before: &[f64]) {
    let after = shares(stack).await;
    let served: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let total: f64 = served.iter().sum();
    println!("writes served by each apiserver: {served:?}");
    for share in &served {
        assert!(
            *share > total * 0.4,
            "one apiserver served {share} of {total} writes"
        );
    }
}
