//! What is asked of a cluster that has controllers: nodes, a deployment's pods, and informers that
//! look on while others write.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::kubectl::Kubectl;
use crate::parts::Parts;
use crate::process::{Process, eventually};

/// How long anything that is waited for may take; only reached when it does not come.
const LIMIT: Duration = Duration::from_secs(180);

/// POSTs an object that must not be there yet.
///
/// # Panics
/// When it is not made.
pub async fn make(client: &Client, path: &str, object: &Value) -> Value {
    let answer = client.once("POST", path, object.to_string()).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 201, "{path}: {}", answer.json());
    answer.json()
}

/// Makes nodes `node-0` and so on, and waits until all nodes are ready.
///
/// # Panics
/// When they are not made, or not ready in time.
pub async fn nodes_become_ready(client: &Client, kubectl: &Kubectl, count: usize) {
    let connection = client.http2().await.expect("a connection");
    for n in 0..count {
        let name = format!("node-{n}");
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        let made = connection.send("POST", "/api/v1/nodes", node.to_string());
        assert_eq!(made.await.expect("an answer").status, 201);
    }
    let timeout = format!("--timeout={LIMIT:?}");
    kubectl.ok(&["wait", "--for=condition=Ready", "nodes", "--all", &timeout]);
}

/// Waits until exactly `count` pods of the deployment `web` are there, of this image, each running
/// on a node: those of an older image are gone.
///
/// # Panics
/// When they are not in time.
pub async fn running(client: &Client, image: &str, count: usize) {
    let what = format!("{count} pods of {image}");
    eventually(&what, LIMIT, || async {
        let path = "/api/v1/namespaces/default/pods?labelSelector=app%3Dweb";
        let answer = client.once("GET", path, "").await;
        let list = answer.map_err(|e| e.to_string())?.json();
        let pods = list.get("items").and_then(Value::as_array);
        let pods = pods.ok_or_else(|| list.to_string())?;
        let is_good = |pod: &&Value| {
            let text = |pointer| pod.pointer(pointer).and_then(Value::as_str);
            text("/spec/containers/0/image") == Some(image)
                && text("/status/phase") == Some("Running")
                && text("/spec/nodeName").is_some()
        };
        let good = pods.iter().filter(is_good).count();
        (good == count && pods.len() == count)
            .then_some(())
            .ok_or(format!("{good} of {} pods", pods.len()))
    })
    .await;
}

/// client-go's informers beside writers of what they watch; ends well when they saw all of it.
/// `config` is a kubeconfig, and `streams` says whether they stream their lists.
#[must_use]
pub fn informer(
    parts: &Parts,
    home: &Path,
    config: &Path,
    space: &str,
    streams: &str,
    writes: usize,
) -> Process {
    let mut command = Command::new(parts.path("informer"));
    command
        .env("KUBE_FEATURE_WatchListClient", streams)
        .arg(format!("-kubeconfig={}", config.display()))
        .arg(format!("-namespace={space}"))
        .arg(format!("-writes={writes}"));
    Process::start(space, home, &mut command)
}

/// Waits until an informer's writers have made so many writes, a whole number of hundreds.
///
/// # Panics
/// When they have not in time.
pub async fn written(client: &Process, wanted: usize) {
    let what = format!("{} to have {wanted} writes", client.log.display());
    eventually(&what, LIMIT, || async {
        let said = std::fs::read_to_string(&client.log).map_err(|e| e.to_string())?;
        let line = format!("written {wanted}\n");
        said.contains(&line).then_some(()).ok_or(said)
    })
    .await;
}

/// What an informer's process has asked for, and how many of its writes were not answered.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Lists.
    pub lists: u64,
    /// Watches without a list in them.
    pub watches: u64,
    /// Lists that came as a stream.
    pub streamed: u64,
    /// Writes that failed and were made again.
    pub failures: u64,
}

/// Waits for the end of an informer's process: each informer's store became what a fresh list says.
///
/// # Panics
/// When it did not, or not in time.
pub fn ended_well(client: &mut Process) -> Asked {
    let status = client.wait_exit(LIMIT);
    let said = client.log_tail(6);
    assert!(status.success(), "{said}");
    let count = |name: &str| {
        let rest = said.split(name).nth(1).unwrap_or_default();
        let digits = rest.split_whitespace().next().unwrap_or_default();
        digits
            .parse()
            .unwrap_or_else(|_| panic!("{name} in {said}"))
    };
    Asked {
        lists: count("lists="),
        watches: count("watches="),
        streamed: count("streamed="),
        failures: count("failures="),
    }
}

/// The custom kind that informers look at, defined and served.
///
/// # Panics
/// When it cannot be defined.
pub async fn define_gadgets(client: &Client) {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
    let definition = json!({
        "metadata": {"name": "gadgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    make(client, path, &definition).await;
}
