//! Lists that must be as new as the newest write and come from an apiserver's cache all the same:
//! what the store's progress notices are for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_e2e::apiserver::Apiserver;
use sluice_e2e::client::Client;
use sluice_e2e::lines::Lines;
use sluice_e2e::plane::Plane;
use sluice_e2e::workload::make;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const LISTS: usize = 100;
const READS: &str = "apiserver_watch_cache_consistent_read_total";
/// Without a notice at once a list waits for the next one that the apiserver asks for: 100 ms. Held
/// against lists that wait for nothing, taken in turn, so that a slow machine is no fault.
const WAIT_MAX: Duration = Duration::from_millis(60);

/// Writes that concern no list, one after another, until told to stop.
pub(crate) struct Writers {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Writers {
    pub(crate) async fn start(client: &Client, count: usize) -> Writers {
        let (stop, written) = (Arc::default(), Arc::default());
        let mut tasks = Vec::new();
        for n in 0..count {
            let secret = json!({"metadata": {"generateName": format!("written-{n}-")}});
            let made = make(client, "/api/v1/namespaces/default/secrets", &secret).await;
            let name = made["metadata"]["name"].as_str().unwrap();
            let path = format!("/api/v1/namespaces/default/secrets/{name}");
            let (stop, written) = (Arc::clone(&stop), Arc::clone(&written));
            tasks.push(tokio::spawn(write(client.clone(), path, stop, written)));
        }
        Writers {
            stop,
            written,
            tasks,
        }
    }

    /// How many writes were made.
    pub(crate) async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        self.written.load(Ordering::Relaxed)
    }
}

async fn write(client: Client, path: String, stop: Arc<AtomicBool>, written: Arc<AtomicU64>) {
    let connection = client.http2().await.unwrap();
    while !stop.load(Ordering::Relaxed) {
        let n = written.fetch_add(1, Ordering::Relaxed).to_string();
        let patch = json!({"metadata": {"annotations": {"n": n}}});
        let answer = connection.send("PATCH", &path, patch.to_string()).await;
        assert_eq!(answer.unwrap().status, 200);
    }
}

/// Each list shows the write before it, by whichever apiserver, and none falls back to the store.
pub(crate) async fn lists_are_consistent_and_from_the_cache(plane: &Plane) {
    let writers = Writers::start(&plane.apiservers[0].direct, 4).await;
    let pushed = "sluice_etcd_progress_pushed_total";
    let pushed_before = plane.store_metric(pushed).await;
    for n in 0..plane.apiservers.len() {
        let (from, to) = (&plane.apiservers[n], &plane.apiservers[1 - n]);
        let before = reads(from).await;
        let (newest, any) = timed(from, to).await;
        let after = reads(from).await;
        let (median, worst) = (newest[LISTS / 2], newest[LISTS - 1]);
        let least = any[LISTS / 2];
        println!(
            "consistent lists through apiserver-{n}: p50 {median:?}, worst {worst:?}; of any age: p50 {least:?}"
        );
        assert!(
            median < least + WAIT_MAX,
            "p50 {median:?} and {least:?}: progress is not pushed"
        );
        assert!(
            after.0 >= before.0 + LISTS as f64,
            "lists from the cache: {before:?} to {after:?}"
        );
        assert!(after.1 <= before.1, "lists from the store: {after:?}");
    }
    let written = writers.stop().await;
    assert!(written > 100, "{written} writes beside the lists");
    assert!(plane.store_metric(pushed).await > pushed_before);
}

/// Consistent reads of configmaps that the cache answered, and those that fell back to the store.
async fn reads(apiserver: &Apiserver) -> (f64, f64) {
    let of = ["resource=\"configmaps\""];
    let fallback = [of[0], "fallback=\"true\""];
    let cached = [of[0], "success=\"true\"", "fallback=\"false\""];
    (
        apiserver.counter(READS, &cached).await,
        apiserver.counter(READS, &fallback).await,
    )
}

/// A write through one apiserver before each tenth list by the other; how long lists took, of the
/// newest state and of whatever the cache held, each in order.
async fn timed(lists: &Apiserver, writes: &Apiserver) -> (Vec<Duration>, Vec<Duration>) {
    let listing = lists.direct.http2().await.unwrap();
    let writing = writes.direct.http2().await.unwrap();
    let object = json!({"metadata": {"generateName": "newest-"}});
    let made = make(&writes.direct, CONFIGMAPS, &object).await;
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("{CONFIGMAPS}/{name}");
    let mut newest = String::new();
    let (mut times, mut any) = (Vec::new(), Vec::new());
    for n in 0..LISTS {
        if n % 10 == 0 {
            let patch = json!({"data": {"n": n.to_string()}}).to_string();
            let answer = writing.send("PATCH", &path, patch).await.unwrap();
            assert_eq!(answer.status, 200);
            newest = n.to_string();
        }
        let started = Instant::now();
        let path = format!("{CONFIGMAPS}?resourceVersion=0");
        let answer = listing.send("GET", &path, "").await.unwrap();
        any.push(started.elapsed());
        assert_eq!(answer.status, 200);
        let started = Instant::now();
        let answer = listing.send("GET", CONFIGMAPS, "").await.unwrap();
        times.push(started.elapsed());
        let list = answer.json();
        let items = list["items"].as_array().unwrap();
        let shown = items
            .iter()
            .find(|i| i["metadata"]["name"] == name.as_str());
        assert_eq!(
            shown.unwrap()["data"]["n"],
            newest.as_str(),
            "a list is old"
        );
    }
    times.sort();
    any.sort();
    (times, any)
}

/// A streamed list ends with the mark of its end, and goes on as a watch of what comes after.
pub(crate) async fn lists_are_streamed(plane: &Plane) {
    for n in 0..plane.apiservers.len() {
        let (from, to) = (&plane.apiservers[n], &plane.apiservers[1 - n]);
        let path = format!(
            "{CONFIGMAPS}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
        );
        let object = json!({"metadata": {"generateName": "streamed-"}});
        let before = name(&make(&to.direct, CONFIGMAPS, &object).await);
        let mut lines = Lines::open(&from.direct, &path).await.unwrap();
        let mut listed = Vec::new();
        loop {
            let line = lines.next().await.unwrap().expect("the mark of the end");
            let event: Value = serde_json::from_str(&line).unwrap();
            let marks = &event["object"]["metadata"]["annotations"];
            match event["type"].as_str().unwrap() {
                "ADDED" => listed.push(name(&event["object"])),
                "BOOKMARK" if marks["k8s.io/initial-events-end"] == "true" => break,
                _ => panic!("{line}"),
            }
        }
        assert!(listed.contains(&before), "{before} is not in {listed:?}");
        let after = name(&make(&to.direct, CONFIGMAPS, &object).await);
        let (kind, seen, _) = lines.event().await;
        assert_eq!((kind.as_str(), seen), ("ADDED", after));
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}
