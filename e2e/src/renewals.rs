//! An eye on every lease and every node of a cluster: how long leases went without being renewed,
//! and which nodes were not ready at any look.
//!
//! What is measured is the time between two looks that saw another renewal, so that it holds what a
//! kube-controller-manager would have waited at most; looks are a quarter of a second apart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::client::{Client, Http2};

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(250);

/// How often a lease was renewed, and the longest time between two renewals that were seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Renewed {
    /// How often.
    pub count: usize,
    /// The longest time between two.
    pub apart_max: Duration,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Each lease by its name, but those of apiservers.
    pub leases: BTreeMap<String, Renewed>,
    /// Names of nodes that were not ready, one for each look that saw it.
    pub unready: Vec<String>,
}

impl Seen {
    /// The leases of nodes: those whose name begins as theirs do.
    #[must_use]
    pub fn of_nodes(&self) -> Vec<Renewed> {
        let nodes = self.leases.iter().filter(|(name, _)| is_node(name));
        nodes.map(|(_, renewed)| *renewed).collect()
    }

    /// The longest time that a node's lease was not renewed.
    #[must_use]
    pub fn nodes_apart_max(&self) -> Duration {
        let all = self.of_nodes();
        all.iter().map(|it| it.apart_max).max().unwrap_or_default()
    }

    /// The leases by which leaders are known, and whatever else is no node's.
    pub fn of_leaders(&self) -> impl Iterator<Item = (&str, Renewed)> {
        let others = self.leases.iter().filter(|(name, _)| !is_node(name));
        others.map(|(name, renewed)| (name.as_str(), *renewed))
    }
}

fn is_node(lease: &str) -> bool {
    lease.starts_with("node-")
}

/// Looks until told to stop.
pub struct Renewals {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Seen>,
}

impl Renewals {
    /// Begins. `age` is how old an answer may be, as lists are asked: `resourceVersion=0` comes
    /// from an apiserver's cache and so also while its store does not answer.
    #[must_use]
    pub fn watch(client: &Client, age: &'static str) -> Renewals {
        let stop: Arc<AtomicBool> = Arc::default();
        let task = tokio::spawn(look(client.clone(), age, Arc::clone(&stop)));
        Renewals { stop, task }
    }

    /// Ends, and tells what was seen.
    ///
    /// # Panics
    /// When the watching itself panicked.
    pub async fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the eye stays open")
    }
}

async fn look(client: Client, age: &'static str, stop: Arc<AtomicBool>) -> Seen {
    let connection = client.http2().await.expect("a connection");
    let mut last: BTreeMap<String, (String, Instant)> = BTreeMap::new();
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        let path = format!("/apis/coordination.k8s.io/v1/leases?{age}");
        for lease in items(&connection, &path).await {
            let name = text(&lease, "/metadata/name");
            // Of the apiservers: they are two of one machine's name and take it from each other.
            if !name.starts_with("apiserver-") {
                seen.note(name, text(&lease, "/spec/renewTime"), &mut last);
            }
        }
        for node in items(&connection, &format!("/api/v1/nodes?{age}")).await {
            if !is_ready(&node) {
                seen.unready.push(text(&node, "/metadata/name"));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    seen
}

impl Seen {
    fn note(
        &mut self,
        name: String,
        renewed: String,
        last: &mut BTreeMap<String, (String, Instant)>,
    ) {
        let now = Instant::now();
        let before = last
            .entry(name.clone())
            .or_insert_with(|| (renewed.clone(), now));
        let entry = self.leases.entry(name).or_default();
        // Times of one form, so that text order is theirs. An older one is another cache's.
        if renewed > before.0 {
            entry.count += 1;
            entry.apart_max = entry.apart_max.max(now - before.1);
            *before = (renewed, now);
        }
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let mut all = conditions.into_iter().flatten();
    all.any(|one| text(one, "/type") == "Ready" && text(one, "/status") == "True")
}

fn text(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Nothing while nobody has anything to say.
async fn items(connection: &Http2, path: &str) -> Vec<Value> {
    match connection.send("GET", path, "").await {
        Ok(answer) if answer.status == 200 => {
            let mut list = answer.json();
            match list.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}
