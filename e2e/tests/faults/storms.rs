//! More at once than there is room for: informers that come back together, and load beyond a memory
//! that has an end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use sluice_e2e::client::Client;
use sluice_e2e::lines::Lines;
use sluice_e2e::process::eventually;
use sluice_e2e::site::Site;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::rig::{Front, LARGE, LIMIT, QUICK, full};

const OBJECTS: &str = "/api/v1/namespaces/default/configmaps";

/// Bytes of an object of the storm.
const OBJECT_BYTES: usize = 5_000;

/// Lists until it is answered.
async fn list(client: &Client) -> (Value, usize) {
    for refused in 0.. {
        if let Ok(answer) = client.once("GET", OBJECTS, "").await {
            if answer.status == 200 {
                return (answer.json(), refused);
            }
            assert!(
                [429, 503].contains(&answer.status.as_u16()),
                "{}",
                answer.status
            );
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    unreachable!("it is tried for ever")
}

/// An informer: lists, watches on, and after a break lists again, until it has seen `last`.
async fn inform(client: Client, synced: Arc<Barrier>, last: &'static str) -> usize {
    let mut lists = 0;
    let mut synced = Some(synced);
    loop {
        let (found, _) = list(&client).await;
        lists += 1;
        if found["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|o| o["metadata"]["name"] == last)
        {
            return lists;
        }
        let version = found["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned();
        drop(found);
        let path = format!("{OBJECTS}?watch=1&resourceVersion={version}");
        let Ok(mut watch) = Lines::open(&client, &path).await else {
            continue;
        };
        if let Some(synced) = synced.take() {
            synced.wait().await;
        }
        // The end, a break or an error event: as the worst of clients, it begins anew.
        while let Ok(Some(line)) = watch.next().await {
            let event: Value = serde_json::from_str(&line).unwrap();
            if event["object"]["metadata"]["name"] == last {
                return lists;
            }
            if event["type"] == "ERROR" {
                break;
            }
        }
    }
}

/// The gateway dies under informers that all list again: each of them is in step soon after, and the
/// memory stays within its bound.
#[tokio::test(flavor = "multi_thread")]
async fn fault_19_relist_storm() {
    let site = Site::make();
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    let user = site.user().http2().await.unwrap();
    let objects = full(100, 2_000);
    for number in 0..objects {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("o{number}")},
            "data": {"text": "x".repeat(OBJECT_BYTES)},
        });
        let made = user
            .send("POST", OBJECTS, object.to_string())
            .await
            .unwrap();
        assert_eq!(made.status, 201);
    }
    let informers = full(100, 5_000);
    let synced = Arc::new(Barrier::new(informers + 1));
    let mut all = JoinSet::new();
    for _ in 0..informers {
        all.spawn(inform(site.user(), Arc::clone(&synced), "last"));
    }
    tokio::time::timeout(LIMIT, synced.wait()).await.unwrap();
    gateway.kill();
    gateway.start();
    gateway.ready().await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "last"}});
    let made = site
        .user()
        .once("POST", OBJECTS, object.to_string())
        .await
        .unwrap();
    assert_eq!(made.status, 201);
    let lists: usize = all.join_all().await.into_iter().sum();
    let most = gateway.process().unwrap().usage().resident_max >> 20;
    println!("{informers} informers of {objects} objects: {lists} lists, {most} MiB at most");
    assert!(lists > informers, "they did come back");
    assert!(most <= 1024, "{most} MiB");
}

/// A memory cgroup of its own; gone with this value.
struct Capped(PathBuf);

impl Capped {
    /// `None` where none can be made.
    fn of(bytes: u64) -> Option<Capped> {
        let path = PathBuf::from(format!(
            "/sys/fs/cgroup/memory/sluice-{}",
            std::process::id()
        ));
        std::fs::create_dir(&path).ok()?;
        let capped = Capped(path);
        std::fs::write(capped.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(capped)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Capped {
    fn drop(&mut self) {
        // Refused while a process is in it, which is a failing test's then.
        let _ = std::fs::remove_dir(&self.0);
    }
}

const SHED: &str = "apiVersion: sluice.io/v1alpha1\nkind: RateRules\nmetadata: { name: limits }\nspec:\n\
                    \x20 cluster: main\n  rules:\n  - name: large\n    match: { verbs: [list] }\n\
                    \x20   inFlight: { max: 40 }\n";

/// With half a gigabyte and several times the load that its rule lets in: what is beyond is told to
/// wait, nothing is killed, and after it all is as before.
#[tokio::test(flavor = "multi_thread")]
async fn fault_20_memory_cap() {
    let Some(capped) = Capped::of(512 << 20) else {
        eprintln!("SKIPPED: a memory cap, as no cgroup can be made here");
        return;
    };
    let mut front = Front::of(1).await;
    front.site.write("rules/limits.yaml", SHED);
    let procs = capped.0.join("cgroup.procs");
    front
        .gateway
        .start_after(&format!("echo $$ > {}", procs.display()));
    front.gateway.ready().await;
    let clients = full(150, 2_000);
    let (mut refused, mut served) = (0, 0);
    for _ in 0..full(2, 100) {
        let mut all = JoinSet::new();
        let together = Arc::new(Barrier::new(clients));
        for _ in 0..clients {
            let (user, together) = (front.site.user(), Arc::clone(&together));
            all.spawn(async move {
                let connection = user.http2().await.unwrap();
                let request = user.request("GET", LARGE).body(Full::default()).unwrap();
                together.wait().await;
                let answer = connection.open(request).await.unwrap();
                let (status, headers) = (answer.status(), answer.headers().clone());
                if status == 200 {
                    // Not read for a while: it has to lie somewhere.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let whole = answer.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(whole.len(), crate::rig::LARGE_BYTES);
                    return true;
                }
                assert_eq!(status, 429);
                assert!(headers.contains_key("retry-after"));
                false
            });
        }
        for is_served in all.join_all().await {
            if is_served { served += 1 } else { refused += 1 }
        }
    }
    let most = capped.read("memory.max_usage_in_bytes");
    let most: u64 = most.trim().parse().unwrap();
    println!(
        "{served} served, {refused} refused, {} MiB at most",
        most >> 20
    );
    assert!(refused > 0 && served > 0);
    let killed = capped.read("memory.oom_control");
    assert!(
        !killed.contains("oom_kill ") || killed.contains("oom_kill 0"),
        "{killed}"
    );
    let process = front.gateway.process().unwrap();
    assert!(!process.has_ended());
    let user = front.site.user();
    eventually("all to be as before", LIMIT, || async {
        let answer = user
            .once("GET", QUICK, "")
            .await
            .map_err(|e| e.to_string())?;
        (answer.status == 200)
            .then_some(())
            .ok_or(answer.status.to_string())
    })
    .await;
    front.gateway.kill();
}
