//! What users ask of a cluster and controllers do: nodes, deployments, jobs, custom kinds, and the
//! end of a namespace.

use serde_json::json;
use sluice_e2e::plane::Plane;
use sluice_e2e::process::eventually;
use sluice_e2e::workload::{self, make};

use crate::LIMIT;

const TIMEOUT: &str = "--timeout=120s";
const GADGETS: &str = "/apis/example.com/v1/namespaces/default/gadgets";

pub(crate) async fn nodes_become_ready(plane: &Plane, count: usize) {
    let (first, second) = (&plane.apiservers[0].direct, &plane.kubectl[1]);
    workload::nodes_become_ready(first, second, count).await;
}

/// Made through one apiserver and looked at through the other.
pub(crate) async fn deployments_roll(plane: &Plane) {
    let (first, second) = (&plane.kubectl[0], &plane.kubectl[1]);
    let create = [
        "create",
        "deployment",
        "web",
        "--image=web:1",
        "--replicas=4",
    ];
    first.ok(&create);
    second.ok(&["rollout", "status", "deployment/web", TIMEOUT]);
    running(plane, "web:1", 4).await;
    second.ok(&["scale", "deployment/web", "--replicas=7"]);
    first.ok(&["rollout", "status", "deployment/web", TIMEOUT]);
    running(plane, "web:1", 7).await;
    first.ok(&["expose", "deployment/web", "--port=80"]);
    second.ok(&["set", "image", "deployment/web", "web=web:2"]);
    first.ok(&["rollout", "status", "deployment/web", TIMEOUT]);
    running(plane, "web:2", 7).await;
    addresses(plane, "web", 7).await;
}

/// As [`workload::running`], by the second apiserver.
pub(crate) async fn running(plane: &Plane, image: &str, count: usize) {
    workload::running(&plane.apiservers[1].direct, image, count).await;
}

async fn addresses(plane: &Plane, service: &str, count: usize) {
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{service}"
    );
    eventually("a service's addresses", LIMIT, || async {
        let answer = plane.apiservers[0].direct.once("GET", &path, "").await;
        let list = answer.map_err(|e| e.to_string())?.json();
        let slices = list["items"].as_array().ok_or_else(|| list.to_string())?;
        let ends = slices.iter().filter_map(|s| s["endpoints"].as_array());
        let ready = ends.flatten().filter(|e| e["conditions"]["ready"] == true);
        let ready = ready.count();
        (ready == count).then_some(()).ok_or(format!("{ready}"))
    })
    .await;
}

pub(crate) fn jobs_and_daemons_run(plane: &Plane) {
    let pod = json!({"containers": [{"name": "c", "image": "c:1"}], "restartPolicy": "Never"});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "sum"},
        "spec": {"completions": 5, "parallelism": 2, "template": {"spec": pod}}});
    let labels = json!({"app": "agent"});
    let daemons = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "c:1"}]}}}});
    let both = json!({"apiVersion": "v1", "kind": "List", "items": [job, daemons]});
    let kubectl = &plane.kubectl[0];
    kubectl.ok_with(&["apply", "--server-side", "-f=-"], &both.to_string());
    kubectl.ok(&["wait", "--for=condition=complete", "job/sum", TIMEOUT]);
    kubectl.ok(&["rollout", "status", "daemonset/agent", TIMEOUT]);
    kubectl.ok(&[
        "delete",
        "job/sum",
        "daemonset/agent",
        "--cascade=foreground",
    ]);
}

pub(crate) async fn custom_kinds_come(plane: &Plane) {
    workload::define_gadgets(&plane.apiservers[0].direct).await;
    for apiserver in &plane.apiservers {
        eventually("the custom kind to be served", LIMIT, || async {
            let answer = apiserver.direct.once("GET", GADGETS, "").await;
            let status = answer.map_err(|e| e.to_string())?.status;
            (status == 200).then_some(()).ok_or(status.to_string())
        })
        .await;
    }
    for n in 0..20 {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Gadget",
            "metadata": {"name": format!("kept-{n}")}, "spec": {"size": n}});
        make(&plane.apiservers[n % 2].direct, GADGETS, &object).await;
    }
}

/// The definition's end takes its objects with it, out of the store.
pub(crate) async fn custom_kinds_go(plane: &Plane) {
    let keys = || plane.etcdctl(&["get", "--prefix", "/registry/example.com/", "--keys-only"]);
    let before = keys();
    assert!(
        before.matches("gadgets/default/kept-").count() == 20,
        "{before}"
    );
    plane.kubectl[1].ok(&["delete", "crd/gadgets.example.com", TIMEOUT]);
    assert_eq!(keys().trim(), "", "nothing of the kind is left");
    let answer = plane.apiservers[1].direct.once("GET", GADGETS, "").await;
    assert_eq!(answer.unwrap().status, 404);
}

/// A finalizer holds it up; when that is taken off, nothing of it is left in the store.
pub(crate) async fn a_namespace_ends_with_all_in_it(plane: &Plane) {
    let (first, second) = (&plane.kubectl[0], &plane.kubectl[1]);
    first.ok(&["create", "namespace", "shop"]);
    first.ok(&[
        "-n=shop",
        "create",
        "deployment",
        "till",
        "--image=till:1",
        "--replicas=3",
    ]);
    first.ok(&[
        "-n=shop",
        "create",
        "secret",
        "generic",
        "key",
        "--from-literal=a=b",
    ]);
    first.ok(&[
        "-n=shop",
        "create",
        "configmap",
        "held",
        "--from-literal=a=b",
    ]);
    let hold = r#"{"metadata":{"finalizers":["example.com/hold"]}}"#;
    first.ok(&["-n=shop", "patch", "configmap/held", "-p", hold]);
    second.ok(&["-n=shop", "rollout", "status", "deployment/till", TIMEOUT]);
    second.ok(&["delete", "namespace/shop", "--wait=false"]);
    let left = || plane.etcdctl(&["get", "--prefix", "/registry/", "--keys-only"]);
    let of_shop = |keys: &str| -> Vec<String> {
        let keys = keys.lines().filter(|key| key.contains("/shop/"));
        keys.map(str::to_owned).collect()
    };
    eventually("all but the held object to go", LIMIT, || async {
        let keys = of_shop(&left());
        (keys == ["/registry/configmaps/shop/held"])
            .then_some(())
            .ok_or(format!("{keys:?}"))
    })
    .await;
    let phase = second.ok(&["get", "namespace/shop", "-o=jsonpath={.status.phase}"]);
    assert_eq!(phase, "Terminating");
    let release = r#"{"metadata":{"finalizers":null}}"#;
    second.ok(&[
        "-n=shop",
        "patch",
        "configmap/held",
        "--type=merge",
        "-p",
        release,
    ]);
    first.ok(&["wait", "--for=delete", "namespace/shop", TIMEOUT]);
    assert_eq!(of_shop(&left()), Vec::<String>::new());
}
