//! What kubelets do and kwok does not: ask again. kwok takes a broken connection or a 502 for the
//! last word on a pod, with a gateway before the apiserver or without one, and looks at the pod
//! again when something of it changes. So what stays as it is gets an annotation.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_e2e::client::Client;
use tokio::task::JoinHandle;

const PODS: &str = "/api/v1/namespaces/default/pods";
/// A pod that has been on its way from one look to the next is one that kwok has given up.
const LOOK: Duration = Duration::from_secs(10);

/// Ends with this value.
pub(crate) struct Kubelets(JoinHandle<()>);

impl Kubelets {
    pub(crate) fn ask_again(front: &Client) -> Kubelets {
        Kubelets(tokio::spawn(ask_again(front.clone())))
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn ask_again(front: Client) {
    let mut before = BTreeSet::new();
    for look in 0.. {
        tokio::time::sleep(LOOK).await;
        let Ok(answer) = front.once("GET", PODS, "").await else {
            continue;
        };
        let list = answer.json();
        let pods = list["items"].as_array().into_iter().flatten();
        let now: BTreeSet<String> = pods.filter(|pod| is_on_its_way(pod)).map(name).collect();
        let given_up: Vec<&String> = now.intersection(&before).collect();
        if !given_up.is_empty() {
            println!("{} pods are asked for again", given_up.len());
        }
        for pod in given_up {
            let mark = json!({"metadata": {"annotations": {"look": look.to_string()}}});
            // One that has gone meanwhile needs nothing; another is asked for at the next look.
            let _ = front
                .once("PATCH", &format!("{PODS}/{pod}"), mark.to_string())
                .await;
        }
        before = now;
    }
}

/// A kubelet has something to do about it.
fn is_on_its_way(pod: &Value) -> bool {
    let is_bound = pod["spec"]["nodeName"].is_string();
    let is_going = pod["metadata"]["deletionTimestamp"].is_string();
    is_bound && (is_going || pod["status"]["phase"] != "Running")
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
