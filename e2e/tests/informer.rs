//! client-go's own informers over a server that is killed under them: after any number of kill -9
//! and restarts each informer's store is what a fresh list says, with streamed lists and without.
//!
//! The informers, their writers and the comparison are `clients/informer`; this suite kills.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_e2e::client::Client;
use sluice_e2e::dev::Dev;
use sluice_e2e::parts::Parts;
use sluice_e2e::process::{Process, eventually};

/// How long anything that is waited for may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Writes of each client, and how many of them between two kills.
const WRITES: usize = 3000;
const BETWEEN_KILLS: usize = 700;
const KILLS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn informers_live_through_kills_and_hold_what_a_fresh_list_says() {
    let Some(parts) = Parts::find(&["informer"]) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut dev = Dev::new(home.path());
    dev.start().await;
    define_gadgets(&dev.client()).await;
    let modes = [("streamed", "true"), ("listed", "false")];
    let mut clients = Vec::new();
    for (space, streams) in modes {
        let object = json!({"metadata": {"name": space}});
        make(&dev.client(), "/api/v1/namespaces", &object).await;
        clients.push(start(&parts, home.path(), &dev, space, streams));
    }
    for kill in 1..=KILLS {
        for client in &clients {
            written(client, kill * BETWEEN_KILLS).await;
        }
        dev.end(rustix::process::Signal::KILL, LIMIT);
        dev.start().await;
    }
    for (client, (space, _)) in clients.iter_mut().zip(modes) {
        let started = Instant::now();
        let status = client.wait_exit(2 * LIMIT);
        let said = client.log_tail(6);
        assert!(status.success(), "{space}: {said}");
        println!(
            "{space}, {:?} after the last kill: {said}",
            started.elapsed()
        );
        let (streamed, failures) = (count(&said, "streamed="), count(&said, "failures="));
        assert_eq!(streamed > 0, space == "streamed", "{space}: {said}");
        assert!(failures > 0, "no kill was felt: {said}");
    }
}

fn start(parts: &Parts, home: &Path, dev: &Dev, space: &str, streams: &str) -> Process {
    let mut command = Command::new(parts.path("informer"));
    command
        .env("KUBE_FEATURE_WatchListClient", streams)
        .arg(format!(
            "-kubeconfig={}",
            dev.dir.join("kubeconfig").display()
        ))
        .arg(format!("-namespace={space}"))
        .arg(format!("-writes={WRITES}"));
    Process::start(space, home, &mut command)
}

async fn written(client: &Process, wanted: usize) {
    let what = format!("{} to have {wanted} writes", client.log.display());
    eventually(&what, LIMIT, || async {
        let said = std::fs::read_to_string(&client.log).unwrap();
        let line = format!("written {wanted}\n");
        said.contains(&line).then_some(()).ok_or(said)
    })
    .await;
}

fn count(said: &str, name: &str) -> u64 {
    let rest = said.split(name).nth(1).unwrap_or_default();
    let digits = rest.split_whitespace().next().unwrap_or_default();
    digits.parse().unwrap_or_default()
}

async fn make(client: &Client, path: &str, object: &Value) {
    let answer = client.once("POST", path, object.to_string()).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status, 201, "{:?}", answer.json());
}

async fn define_gadgets(client: &Client) {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    let object = json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    make(client, path, &object).await;
}
