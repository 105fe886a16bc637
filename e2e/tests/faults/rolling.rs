//! Real kube-apiservers restarted one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use sluice_e2e::client::Client;
use sluice_e2e::etcd::Etcd;
use sluice_e2e::lines::Lines;
use sluice_e2e::load::Load;
use sluice_e2e::parts::Parts;
use sluice_e2e::stack::{Stack, StackOptions, Store};
use tokio::task::{JoinHandle, JoinSet};

use crate::rig::full;

const OBJECTS: &str = "/api/v1/namespaces/default/configmaps";

/// Watchers, each of which sees all that is made.
const WATCHERS: usize = 20;

/// What a watcher has been through.
#[derive(Debug, Default)]
struct Seen {
    resumed: usize,
    relisted: usize,
}

/// Watches from version to version until an object called `last` is seen; all that is made before it
/// has to come, in order and once.
async fn watch(client: Client, mut version: u64, count: Arc<AtomicUsize>) -> Seen {
    let mut seen = Seen::default();
    let mut made = 0;
    loop {
        let path = format!("{OBJECTS}?watch=1&resourceVersion={version}");
        let Ok(mut lines) = Lines::open(&client, &path).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        while let Ok(Some(line)) = lines.next().await {
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["type"] == "ERROR" {
                seen.relisted += 1;
                break;
            }
            let meta = &event["object"]["metadata"];
            let next: u64 = meta["resourceVersion"].as_str().unwrap().parse().unwrap();
            assert!(next > version, "{next} after {version}");
            version = next;
            let name = meta["name"].as_str().unwrap();
            if name == "last" {
                assert_eq!(made, count.load(Ordering::Relaxed), "all of them");
                return seen;
            }
            made += usize::from(name.starts_with("made-"));
        }
        seen.resumed += 1;
    }
}

/// Makes objects one by one; those of an unknown outcome are said.
struct Making {
    stop: Arc<AtomicBool>,
    working: JoinHandle<(usize, Vec<u16>)>,
}

impl Making {
    fn start(client: Client, how: &'static str) -> Making {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let working = tokio::spawn(async move {
            let connection = client.http2().await.unwrap();
            let (mut made, mut unknown) = (0, Vec::new());
            for number in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("made-{how}-{number}");
                let object = serde_json::json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                });
                let answer = connection
                    .send("POST", OBJECTS, object.to_string())
                    .await
                    .unwrap();
                match answer.status.as_u16() {
                    201 => made += 1,
                    status => {
                        assert!(
                            [502, 503, 504].contains(&status),
                            "{status}: {}",
                            answer.json()
                        );
                        unknown.push(status);
                    }
                }
            }
            (made, unknown)
        });
        Making { stop, working }
    }

    async fn end(self) -> (usize, Vec<u16>) {
        self.stop.store(true, Ordering::Relaxed);
        self.working.await.unwrap()
    }
}

/// Gracefully, then hard: no read fails, a write fails only where it was on its way and says so, and
/// watches go on from where they were.
#[tokio::test(flavor = "multi_thread")]
async fn fault_24_rolling_restart() {
    let Some(parts) = Parts::find(&["kube-apiserver", "etcd"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(&parts, dir.path()).await;
    let options = StackOptions {
        store: Store::Etcd(etcd.url.clone()),
        apiservers: full(2, 3),
        // Time for the gateway's probes to see that it is not ready any more.
        apiserver_flags: &[
            "--shutdown-delay-duration=3s",
            "--shutdown-watch-termination-grace-period=5s",
        ],
        ..StackOptions::default()
    };
    let mut stack = Stack::new(&parts, dir.path(), &options);
    stack.start().await;
    let listed = stack.admin().once("GET", OBJECTS, "").await.unwrap().json();
    let version = listed["metadata"]["resourceVersion"].as_str().unwrap();
    let version: u64 = version.parse().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let mut watchers = JoinSet::new();
    for _ in 0..WATCHERS {
        watchers.spawn(watch(stack.admin(), version, Arc::clone(&count)));
    }
    let reads = Load::start(&stack.admin(), &format!("{OBJECTS}?limit=1"));
    reads.more(50).await;

    let making = Making::start(stack.admin(), "gracefully");
    for apiserver in &mut stack.apiservers {
        let process = apiserver.process().unwrap();
        process.signal(rustix::process::Signal::TERM);
        let process = apiserver.process().unwrap();
        tokio::task::block_in_place(|| process.wait_exit(Duration::from_secs(120)));
        apiserver.start();
        apiserver.ready().await;
        reads.more(50).await;
    }
    let (graceful, lost) = making.end().await;
    println!("graceful: {graceful} writes, others: {lost:?}");
    assert_eq!(lost, [0_u16; 0], "graceful: none fails");

    let making = Making::start(stack.admin(), "hard");
    for apiserver in &mut stack.apiservers {
        apiserver.kill();
        reads.more(100).await;
        apiserver.start();
        apiserver.ready().await;
        reads.more(50).await;
    }
    let (hard, lost) = making.end().await;
    println!("hard: {hard} writes, others: {lost:?}");
    // One is on its way at a time.
    assert!(lost.len() <= stack.apiservers.len(), "{lost:?}");
    reads.end("reads while apiservers are restarted").await;

    // What was made although nobody could say so is made all the same.
    let listed = stack.admin().once("GET", OBJECTS, "").await.unwrap().json();
    let items = listed["items"].as_array().unwrap().iter();
    let names = items.map(|item| item["metadata"]["name"].as_str().unwrap());
    let there = names.filter(|name| name.starts_with("made-")).count();
    println!("{there} are there");
    count.store(there, Ordering::Relaxed);
    let last = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "last"},
    });
    let made = stack
        .admin()
        .once("POST", OBJECTS, last.to_string())
        .await
        .unwrap();
    assert_eq!(made.status, 201);
    let seen = watchers.join_all().await;
    let resumed: usize = seen.iter().map(|seen| seen.resumed).sum();
    let relisted: usize = seen.iter().map(|seen| seen.relisted).sum();
    println!("{WATCHERS} watches resumed {resumed} times, relisted {relisted}");
    assert!(resumed > 0 && relisted * 100 <= resumed, "{seen:?}");
}
