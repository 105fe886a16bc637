//! All-in-one as a newcomer has it: `sluice run --dev` and a real kubectl on the kubeconfig that it
//! wrote.
//!
//! One process serves all cases of the first test; each case is a function that says what it shows
//! and keeps to names of its own.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::Full;
use serde_json::{Value, json};
use sluice_e2e::dev::Dev;
use sluice_e2e::kubectl::Kubectl;
use sluice_e2e::lines::Lines;
use sluice_e2e::parts::Parts;
use sluice_e2e::process::{Process, eventually};
use sluice_e2e::sluice::binary;

/// The drain budget that the development file gives.
const DRAIN: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(60);

const CONFIGMAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: { name: applied, labels: { app: shop } }
data: { colour: red, size: small }
";

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, labels: { app: web } }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      containers:
      - { name: main, image: \"web:1\", env: [{ name: A, value: a }] }
      - { name: side, image: \"side:1\" }
";

const WIDGETS: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: widgets.example.com }
spec:
  group: example.com
  scope: Namespaced
  names: { plural: widgets, singular: widget, kind: Widget, shortNames: [wd] }
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{ name: Size, type: integer, jsonPath: .spec.size }]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: { type: object, properties: { size: { type: integer, description: how large } } }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_and_a_real_kubectl() {
    let Some(parts) = Parts::find(&["kubectl", "etcdctl"]) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut dev = Dev::new(home.path());
    let greeting = dev.start().await;
    let kubeconfig = dev.dir.join("kubeconfig").display().to_string();
    assert!(
        greeting.contains(&format!("kubeconfig: {kubeconfig}\n")),
        "{greeting}"
    );
    assert!(
        !greeting.contains('\u{1b}'),
        "colours in a file: {greeting:?}"
    );
    let kubectl = dev.kubectl(&parts);

    objects_are_made_in_all_the_ways_kubectl_has(&kubectl);
    lists_are_shown_in_all_forms(&kubectl);
    apply_creates_then_changes_then_leaves_alone(&kubectl);
    a_deployment_is_applied_patched_and_scaled(&kubectl);
    labels_annotations_replace_and_patches(&kubectl);
    what_is_not_served_says_so(&kubectl);
    deletion_waits_for_finalizers(&kubectl, &dev);
    a_namespace_goes_with_what_is_in_it(&kubectl);
    the_api_is_described(&kubectl);
    who_may_do_what(&kubectl);
    a_kind_of_ones_own(&kubectl);
    events_and_leases(&kubectl);
    kubectl_watches(&kubectl, &dev).await;
    a_watch_resumes_where_it_was(&kubectl, &dev).await;
    etcdctl_reads_the_same_store(&parts, &dev, &kubectl);
    an_operator_trips_and_resets_a_breaker(&dev, &kubectl).await;
}

/// What kubectl said when it failed, as it has to.
fn fails(kubectl: &Kubectl, args: &[&str]) -> String {
    let output = kubectl.run(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{args:?} should fail: {output:?}");
    said
}

fn says(text: &str, wanted: &[&str]) {
    for want in wanted {
        assert!(text.contains(want), "{want:?} is not in:\n{text}");
    }
}

fn objects_are_made_in_all_the_ways_kubectl_has(kubectl: &Kubectl) {
    let typed: [&[&str]; 13] = [
        &["namespace", "typed"],
        &["configmap", "typed", "--from-literal=a=b"],
        &["secret", "generic", "typed", "--from-literal=user=me"],
        &["deployment", "typed", "--image=web:1", "--replicas=2"],
        &["service", "clusterip", "typed", "--tcp=80:8080"],
        &["serviceaccount", "typed"],
        &["job", "typed", "--image=web:1"],
        &["cronjob", "typed", "--image=web:1", "--schedule=0 0 * * *"],
        &["ingress", "typed", "--rule=example.com/=typed:80"],
        &["role", "typed", "--verb=get", "--resource=configmaps"],
        &[
            "clusterrole",
            "typed",
            "--verb=get",
            "--resource=configmaps",
        ],
        &["quota", "typed", "--hard=pods=3"],
        &["priorityclass", "typed", "--value=7"],
    ];
    for form in typed {
        let said = kubectl.ok(&[&["create"], form].concat());
        says(&said, &["typed created"]);
    }
    kubectl.ok(&["run", "typed", "--image=web:1", "--labels=app=typed"]);
    assert_eq!(
        kubectl.ok(&["get", "configmap", "typed", "-o=jsonpath={.data.a}"]),
        "b"
    );
    assert_eq!(
        kubectl.ok(&["get", "secret", "typed", "-o=jsonpath={.data.user}"]),
        "bWU="
    );
    let path = "-o=jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image}";
    assert_eq!(kubectl.ok(&["get", "deployment", "typed", path]), "2 web:1");
    // A second one is a conflict that names it; a dry run leaves nothing.
    let said = fails(kubectl, &["create", "configmap", "typed"]);
    says(&said, &["configmaps \"typed\" already exists"]);
    kubectl.ok(&["create", "configmap", "dry", "--dry-run=server"]);
    says(
        &fails(kubectl, &["get", "configmap", "dry"]),
        &["NotFound", "\"dry\" not found"],
    );
    let said = fails(kubectl, &["-n=nowhere", "create", "configmap", "lost"]);
    says(&said, &["namespaces \"nowhere\" not found"]);
}

fn lists_are_shown_in_all_forms(kubectl: &Kubectl) {
    for n in 0..5 {
        let label = if n % 2 == 0 { "even" } else { "odd" };
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("row-{n}"), "namespace": "typed", "labels": {"half": label}}});
        kubectl.ok_with(&["create", "-f=-"], &object.to_string());
    }
    let get = |args: &[&str]| kubectl.ok(&[&["-n=typed", "get", "configmaps"], args].concat());
    says(&get(&[]), &["NAME", "DATA", "AGE", "row-4"]);
    assert_eq!(get(&["--chunk-size=2", "-o=name"]).lines().count(), 5);
    assert_eq!(
        get(&["-l=half=even", "-o=jsonpath={.items[*].metadata.name}"]),
        "row-0 row-2 row-4"
    );
    assert_eq!(get(&["-l=half!=even", "-o=name"]).lines().count(), 2);
    assert_eq!(
        get(&["--field-selector=metadata.name=row-3", "-o=name"]),
        "configmap/row-3\n"
    );
    says(
        &get(&["row-1", "-o=yaml"]),
        &["name: row-1", "half: odd", "uid: "],
    );
    let all: Value = serde_json::from_str(&get(&["-o=json"])).unwrap();
    assert_eq!(
        all.pointer("/items")
            .and_then(Value::as_array)
            .unwrap()
            .len(),
        5
    );
    says(
        &kubectl.ok(&["get", "pods", "-o=wide"]),
        &["READY", "NODE", "Pending"],
    );
    says(
        &kubectl.ok(&["get", "deployments", "-o=wide"]),
        &["CONTAINERS", "web:1", "0/2"],
    );
    says(
        &kubectl.ok(&["get", "namespaces", "--show-labels"]),
        &["STATUS", "Active"],
    );
    says(
        &kubectl.ok(&["get", "configmaps", "-A"]),
        &["NAMESPACE", "row-0"],
    );
    says(
        &kubectl.ok(&["describe", "deployment", "typed"]),
        &["Replicas:", "2 desired"],
    );
}

fn apply_creates_then_changes_then_leaves_alone(kubectl: &Kubectl) {
    let apply = |text: &str| kubectl.ok_with(&["apply", "-f=-"], text);
    says(&apply(CONFIGMAP), &["configmap/applied created"]);
    let changed = CONFIGMAP
        .replace("red", "blue")
        .replace(", size: small", "");
    says(&apply(&changed), &["configmap/applied configured"]);
    let data = kubectl.ok(&["get", "configmap", "applied", "-o=jsonpath={.data}"]);
    assert_eq!(
        data, r#"{"colour":"blue"}"#,
        "what is gone from the file goes"
    );
    says(&apply(&changed), &["configmap/applied unchanged"]);
}

fn a_deployment_is_applied_patched_and_scaled(kubectl: &Kubectl) {
    let apply = |text: &str| kubectl.ok_with(&["apply", "-f=-"], text);
    says(&apply(DEPLOYMENT), &["deployment.apps/web created"]);
    // Somebody else scales; the file says nothing new about it.
    kubectl.ok(&["scale", "deployment", "web", "--replicas=4"]);
    says(
        &apply(
            &DEPLOYMENT
                .replace("web:1", "web:2")
                .replace("  replicas: 2\n", ""),
        ),
        &["configured"],
    );
    let images = "-o=jsonpath={.spec.template.spec.containers[*].image}";
    assert_eq!(
        kubectl.ok(&["get", "deployment", "web", images]),
        "web:2 side:1"
    );
    kubectl.ok(&["set", "image", "deployment/web", "side=side:2"]);
    assert_eq!(
        kubectl.ok(&["get", "deployment", "web", images]),
        "web:2 side:2"
    );
    kubectl.ok(&["set", "env", "deployment/web", "-c=main", "B=b"]);
    let env = "-o=jsonpath={.spec.template.spec.containers[0].env[*].name}";
    assert_eq!(kubectl.ok(&["get", "deployment", "web", env]), "A B");
    let generation = "-o=jsonpath={.metadata.generation}";
    let before = kubectl.ok(&["get", "deployment", "web", generation]);
    kubectl.ok(&["annotate", "deployment", "web", "note=none"]);
    assert_eq!(
        kubectl.ok(&["get", "deployment", "web", generation]),
        before
    );
    kubectl.ok(&["delete", "deployment", "web", "--wait"]);
}

fn labels_annotations_replace_and_patches(kubectl: &Kubectl) {
    kubectl.ok(&["create", "configmap", "one", "--from-literal=a=1"]);
    kubectl.ok(&["label", "configmap", "one", "tier=first"]);
    says(
        &fails(kubectl, &["label", "configmap", "one", "tier=second"]),
        &["--overwrite"],
    );
    kubectl.ok(&["label", "configmap", "one", "tier=second", "--overwrite"]);
    assert_eq!(
        kubectl.ok(&["get", "configmaps", "-l=tier=second", "-o=name"]),
        "configmap/one\n"
    );
    kubectl.ok(&["annotate", "configmap", "one", "note=kept"]);
    let patch = |kind: &str, text: &str| {
        kubectl.ok(&["patch", "configmap", "one", "--type", kind, "-p", text]);
    };
    patch("merge", r#"{"data":{"a":null,"b":"2"}}"#);
    patch(
        "json",
        r#"[{"op":"test","path":"/data/b","value":"2"},{"op":"add","path":"/data/c","value":"3"}]"#,
    );
    patch("strategic", r#"{"data":{"d":"4"}}"#);
    let data = "-o=jsonpath={.data} {.metadata.annotations.note}";
    let now = kubectl.ok(&["get", "configmap", "one", data]);
    assert_eq!(now, r#"{"b":"2","c":"3","d":"4"} kept"#);
    let said = fails(
        kubectl,
        &[
            "patch",
            "configmap",
            "one",
            "--type=json",
            "-p",
            r#"[{"op":"test","path":"/data/b","value":"9"}]"#,
        ],
    );
    says(&said, &["/data/b"]);
    // Replace by a version that is no longer the newest is a conflict; by the newest it goes.
    let stale = kubectl.ok(&["get", "configmap", "one", "-o=json"]);
    patch("merge", r#"{"data":{"e":"5"}}"#);
    let file = kubectl.config.with_file_name("stale.json");
    std::fs::write(&file, &stale).unwrap();
    let said = fails(kubectl, &["replace", "-f", file.to_str().unwrap()]);
    says(&said, &["Conflict", "the object has been modified"]);
    let fresh = kubectl.ok(&["get", "configmap", "one", "-o=json"]);
    kubectl.ok_with(&["replace", "-f=-"], &fresh.replace("\"5\"", "\"6\""));
    assert_eq!(
        kubectl.ok(&["get", "configmap", "one", "-o=jsonpath={.data.e}"]),
        "6"
    );
}

fn what_is_not_served_says_so(kubectl: &Kubectl) {
    let file = kubectl.config.with_file_name("applied.yaml");
    std::fs::write(&file, CONFIGMAP).unwrap();
    let file = file.to_str().unwrap();
    let said = fails(kubectl, &["apply", "--server-side", "-f", file]);
    says(
        &said,
        &[
            "server-side apply is not served here",
            "without --server-side",
        ],
    );
    // No kubelet runs anything here.
    for args in [&["logs", "typed"][..], &["exec", "typed", "--", "ls"]] {
        let said = fails(kubectl, args);
        println!("{args:?}: {said}");
        assert!(!said.contains("panic") && said.len() < 600, "{said}");
    }
    let said = fails(kubectl, &["get", "gizmos"]);
    says(&said, &["doesn't have a resource type \"gizmos\""]);
    let said = fails(kubectl, &["create", "configmap", "Not_A_Name"]);
    says(&said, &["Not_A_Name"]);
}

fn deletion_waits_for_finalizers(kubectl: &Kubectl, dev: &Dev) {
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    kubectl.ok_with(&["create", "-f=-"], &held.to_string());
    let mut command = kubectl.command(&["delete", "configmap", "held", "--wait"]);
    let mut deleting = Process::start("delete", &dev.dir, &mut command);
    kubectl.ok(&[
        "wait",
        "configmap/held",
        "--for=jsonpath={.metadata.deletionTimestamp}",
        "--timeout=60s",
    ]);
    assert!(!deleting.has_ended(), "it is still held");
    kubectl.ok(&[
        "patch",
        "configmap",
        "held",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ]);
    assert!(
        deleting.wait_exit(LIMIT).success(),
        "{}",
        deleting.log_tail(5)
    );
    says(
        &fails(kubectl, &["get", "configmap", "held"]),
        &["not found"],
    );
    kubectl.ok(&["delete", "pod", "typed", "--now"]);
    kubectl.ok(&["delete", "configmap", "none", "--ignore-not-found"]);
}

fn a_namespace_goes_with_what_is_in_it(kubectl: &Kubectl) {
    kubectl.ok(&["-n=typed", "create", "secret", "generic", "s"]);
    kubectl.ok(&["delete", "namespace", "typed", "--wait", "--timeout=60s"]);
    says(
        &fails(kubectl, &["get", "namespace", "typed"]),
        &["not found"],
    );
    // Made anew it is empty.
    kubectl.ok(&["create", "namespace", "typed"]);
    assert_eq!(
        kubectl.ok(&["-n=typed", "get", "configmaps,secrets", "-o=name"]),
        ""
    );
    let said = fails(kubectl, &["delete", "namespace", "default"]);
    says(&said, &["Forbidden"]);
}

fn the_api_is_described(kubectl: &Kubectl) {
    says(
        &kubectl.ok(&["version"]),
        &["Server Version: v1.36", "sluice"],
    );
    says(
        &kubectl.ok(&["api-versions"]),
        &["apps/v1\n", "\nv1\n", "rbac.authorization.k8s.io/v1"],
    );
    let resources = kubectl.ok(&["api-resources", "-o=wide"]);
    says(
        &resources,
        &[
            "configmaps",
            "cm",
            "deployments",
            "true",
            "customresourcedefinitions",
            "patch",
        ],
    );
    says(
        &kubectl.ok(&["explain", "deployment.metadata"]),
        &["KIND:       Deployment", "ObjectMeta"],
    );
    says(&kubectl.ok(&["cluster-info"]), &["is running at"]);
    assert_eq!(kubectl.ok(&["get", "--raw", "/readyz"]), "ok");
}

fn who_may_do_what(kubectl: &Kubectl) {
    let me = kubectl.ok(&[
        "auth",
        "whoami",
        "-o=jsonpath={.status.userInfo.username} {.status.userInfo.groups}",
    ]);
    assert_eq!(
        me,
        r#"sluice-admin ["system:masters","system:authenticated"]"#
    );
    assert_eq!(kubectl.ok(&["auth", "can-i", "delete", "nodes"]), "yes\n");
    let jane = ["create", "configmaps", "--as=jane", "--as-group=dev"];
    let can_i = |namespace: &str| {
        let output = kubectl.run(&[&["auth", "can-i", "-n", namespace], &jane[..]].concat());
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(can_i("default"), "no");
    let said = fails(kubectl, &["get", "configmaps", "--as=jane"]);
    says(
        &said,
        &[
            "Forbidden",
            "User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"",
        ],
    );
    kubectl.ok(&[
        "create",
        "rolebinding",
        "dev",
        "--clusterrole=edit",
        "--group=dev",
    ]);
    assert_eq!(can_i("default"), "yes");
    assert_eq!(
        can_i("kube-system"),
        "no",
        "a RoleBinding ends at its namespace"
    );
    kubectl.ok(&[
        "create",
        "configmap",
        "janes",
        "--as=jane",
        "--as-group=dev",
    ]);
    let whoami = [
        "auth",
        "whoami",
        "--as=jane",
        "-o=jsonpath={.status.userInfo.username}",
    ];
    assert_eq!(kubectl.ok(&whoami), "jane");
    says(
        &kubectl.ok(&["auth", "can-i", "--list", "--as=jane", "--as-group=dev"]),
        &["configmaps"],
    );
    // Who may hand out roles may still not hand out what it does not hold.
    kubectl.ok(&[
        "create",
        "rolebinding",
        "ada",
        "--clusterrole=admin",
        "--user=ada",
    ]);
    let bind = ["create", "rolebinding", "more", "--user=jane", "--as=ada"];
    kubectl.ok(&[&bind[..], &["--clusterrole=view", "--dry-run=server"]].concat());
    let said = fails(
        kubectl,
        &[&bind[..], &["--clusterrole=cluster-admin"]].concat(),
    );
    says(
        &said,
        &["attempting to grant RBAC permissions not currently held"],
    );
}

fn a_kind_of_ones_own(kubectl: &Kubectl) {
    kubectl.ok_with(&["create", "-f=-"], WIDGETS);
    kubectl.ok(&[
        "wait",
        "--for=condition=Established",
        "crd/widgets.example.com",
        "--timeout=60s",
    ]);
    let widget = |size: &str| {
        format!(
            "apiVersion: example.com/v1\nkind: Widget\nmetadata: {{ name: w }}\nspec: {{ size: {size} }}\n"
        )
    };
    says(
        &kubectl.ok_with(&["apply", "-f=-"], &widget("3")),
        &["widget.example.com/w created"],
    );
    says(
        &kubectl.ok_with(&["apply", "-f=-"], &widget("4")),
        &["configured"],
    );
    says(&kubectl.ok(&["get", "wd"]), &["NAME", "SIZE", "4"]);
    let file = kubectl.config.with_file_name("widget.yaml");
    std::fs::write(&file, widget("big")).unwrap();
    let said = fails(kubectl, &["apply", "-f", file.to_str().unwrap()]);
    says(&said, &["invalid", "spec.size", "integer"]);
    kubectl.ok(&[
        "patch",
        "widget",
        "w",
        "--type=merge",
        "-p",
        r#"{"spec":{"size":5}}"#,
    ]);
    assert_eq!(
        kubectl.ok(&["get", "widget", "w", "-o=jsonpath={.spec.size}"]),
        "5"
    );
    says(
        &kubectl.ok(&["explain", "widget.spec.size"]),
        &["<integer>", "how large"],
    );
    says(
        &kubectl.ok(&["api-resources", "--api-group=example.com"]),
        &["widgets", "wd"],
    );
    kubectl.ok(&["delete", "widget", "w"]);
    kubectl.ok(&[
        "delete",
        "crd",
        "widgets.example.com",
        "--wait",
        "--timeout=60s",
    ]);
    fails(kubectl, &["get", "widgets"]);
}

fn events_and_leases(kubectl: &Kubectl) {
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "namespace": "default"},
        "reason": "Tested", "message": "it happened", "type": "Normal", "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"});
    kubectl.ok_with(&["create", "-f=-"], &event.to_string());
    says(
        &kubectl.ok(&["get", "events"]),
        &["LAST SEEN", "Tested", "configmap/one", "it happened"],
    );
    says(
        &kubectl.ok(&["events", "--for=configmap/one"]),
        &["it happened"],
    );
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}});
    kubectl.ok_with(&["create", "-f=-"], &lease.to_string());
    kubectl.ok(&[
        "patch",
        "lease",
        "l",
        "--type=merge",
        "-p",
        r#"{"spec":{"holderIdentity":"you"}}"#,
    ]);
    says(&kubectl.ok(&["get", "leases"]), &["HOLDER", "you"]);
}

async fn kubectl_watches(kubectl: &Kubectl, dev: &Dev) {
    let args = [
        "get",
        "configmaps",
        "-w",
        "--output-watch-events",
        "-l=seen=yes",
    ];
    let watch = Process::start("watch", &dev.dir, &mut kubectl.command(&args));
    let shows = |wanted: &'static str| {
        let log = watch.log.clone();
        async move {
            eventually(wanted, LIMIT, || async {
                let text = std::fs::read_to_string(&log).unwrap();
                let words: Vec<Vec<&str>> = text
                    .lines()
                    .map(|l| l.split_whitespace().collect())
                    .collect();
                let found = words.iter().any(|w| w.join(" ").starts_with(wanted));
                found.then_some(()).ok_or(text)
            })
            .await;
        }
    };
    kubectl.ok(&["create", "configmap", "unseen"]);
    let seen = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen", "labels": {"seen": "yes"}}});
    kubectl.ok_with(&["create", "-f=-"], &seen.to_string());
    shows("ADDED seen 0").await;
    kubectl.ok(&[
        "patch",
        "configmap",
        "seen",
        "--type=merge",
        "-p",
        r#"{"data":{"a":"1"}}"#,
    ]);
    shows("MODIFIED seen 1").await;
    kubectl.ok(&["label", "configmap", "unseen", "seen=yes"]);
    shows("ADDED unseen 0").await;
    kubectl.ok(&["label", "configmap", "unseen", "seen-"]);
    shows("DELETED unseen 0").await;
    kubectl.ok(&["delete", "configmap", "seen"]);
    shows("DELETED seen 1").await;
}

fn watch_path(version: u64) -> String {
    format!(
        "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={version}&labelSelector=watched"
    )
}

/// Changes the watched object `count` times and hands back the versions, in order.
fn change(kubectl: &Kubectl, count: usize) -> Vec<u64> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let one = |_| {
        // A patch that changes nothing makes no version.
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let patch = format!(r#"{{"data":{{"n":"{n}"}}}}"#);
        let version = "-o=jsonpath={.metadata.resourceVersion}";
        let args = [
            "patch",
            "configmap",
            "watched",
            "--type=merge",
            version,
            "-p",
        ];
        let said = kubectl.ok(&[&args[..], &[&patch]].concat());
        said.parse().unwrap()
    };
    (0..count).map(one).collect()
}

async fn a_watch_resumes_where_it_was(kubectl: &Kubectl, dev: &Dev) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "watched", "labels": {"watched": ""}}});
    let version = "-o=jsonpath={.metadata.resourceVersion}";
    let start: u64 = kubectl
        .ok_with(&["create", "-f=-", version], &object.to_string())
        .parse()
        .unwrap();
    let made = change(kubectl, 4);
    let mut watch = Lines::open(&dev.client(), &watch_path(start))
        .await
        .unwrap();
    let mut seen = vec![watch.event().await.2, watch.event().await.2];
    drop(watch);
    let more = change(kubectl, 2);
    let mut watch = Lines::open(&dev.client(), &watch_path(*seen.last().unwrap()))
        .await
        .unwrap();
    while seen.len() < 6 {
        let (kind, name, version) = watch.event().await;
        assert_eq!((kind.as_str(), name.as_str()), ("MODIFIED", "watched"));
        seen.push(version);
    }
    assert_eq!(seen, [made, more].concat(), "each change once and in order");
}

fn etcdctl_reads_the_same_store(parts: &Parts, dev: &Dev, kubectl: &Kubectl) {
    let run = |leaf: &str, args: &[&str]| {
        let leaf = dev.leaf(leaf);
        Command::new(parts.path("etcdctl"))
            .env_clear()
            .arg(format!("--endpoints=https://127.0.0.1:{}", dev.etcd))
            .arg(format!("--cacert={}", dev.pki("ca.crt").display()))
            .arg(format!("--cert={}", leaf.cert.display()))
            .arg(format!("--key={}", leaf.key.display()))
            .args(args)
            .output()
            .unwrap()
    };
    let keys = run(
        "etcd-client",
        &[
            "get",
            "--prefix",
            "/registry/core/configmaps/default/",
            "--keys-only",
        ],
    );
    let keys = String::from_utf8_lossy(&keys.stdout).into_owned();
    says(&keys, &["/registry/core/configmaps/default/applied\n"]);
    let object = run(
        "etcd-client",
        &[
            "get",
            "--print-value-only",
            "/registry/core/configmaps/default/applied",
        ],
    );
    let object: Value = serde_json::from_slice(&object.stdout).unwrap();
    assert_eq!(object.pointer("/data/colour"), Some(&json!("blue")));
    // One revision: what the API calls version is the store's revision of the key.
    let fields = run(
        "etcd-client",
        &[
            "get",
            "/registry/core/configmaps/default/applied",
            "-w=fields",
        ],
    );
    let fields = String::from_utf8_lossy(&fields.stdout).into_owned();
    let version = kubectl.ok(&[
        "get",
        "configmap",
        "applied",
        "-o=jsonpath={.metadata.resourceVersion}",
    ]);
    says(&fields, &[&format!("\"ModRevision\" : {version}\n")]);
}

/// With the certificates that are the command's defaults beside a development directory.
async fn an_operator_trips_and_resets_a_breaker(dev: &Dev, kubectl: &Kubectl) {
    let breaker = |args: &[&str]| {
        let output = Command::new(binary())
            .arg("breaker")
            .args(args)
            .arg(format!("--server=https://127.0.0.1:{}", dev.admin))
            .current_dir(dev.dir.parent().unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    std::os::unix::fs::symlink(&dev.dir, dev.dir.with_file_name(".sluice")).unwrap();
    breaker(&[
        "trip",
        "client",
        "jane",
        "--reason=too much of a good thing",
    ]);
    says(
        &breaker(&["list"]),
        &["client", "jane", "too much of a good thing"],
    );
    // kubectl would wait and ask again, as Retry-After says: the answer itself is looked at.
    let connection = dev.client().http2().await.unwrap();
    let as_jane = || {
        let request = dev
            .client()
            .request("GET", "/api/v1/namespaces/default/configmaps");
        let request = request
            .header("impersonate-user", "jane")
            .header("impersonate-group", "dev");
        connection.exchange(request.body(Full::default()).unwrap())
    };
    let answer = as_jane().await.unwrap();
    assert_eq!(answer.status, 429, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"));
    says(&answer.json().to_string(), &["too much of a good thing"]);
    // Others go on, and so does jane once she is let in again.
    kubectl.ok(&["get", "configmaps"]);
    breaker(&["reset", "client", "jane"]);
    assert_eq!(as_jane().await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_in_good_order_and_finds_its_data_again() {
    let Some(parts) = Parts::find(&["kubectl"]) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut dev = Dev::new(home.path());
    dev.start().await;
    let kubectl = dev.kubectl(&parts);
    kubectl.ok(&["create", "configmap", "kept", "--from-literal=a=b"]);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "watched", "labels": {"watched": ""}}});
    kubectl.ok_with(&["create", "-f=-"], &object.to_string());
    a_second_one_on_the_directory_says_who_holds_it(&dev);
    says(&kubectl.ok(&["get", "configmap", "kept"]), &["kept"]);

    let mut last = change(&kubectl, 1).remove(0);
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let mut watch = Lines::open(&dev.client(), &watch_path(last - 1))
            .await
            .unwrap();
        assert_eq!(watch.event().await.2, last);
        let started = Instant::now();
        let code = dev.end(signal, LIMIT);
        println!(
            "{signal:?} with an open watch: ended after {:?}",
            started.elapsed()
        );
        assert_eq!(code, Some(0), "{signal:?}");
        assert!(
            started.elapsed() < DRAIN + Duration::from_secs(5),
            "the drain kept to its budget"
        );
        let end = watch.next().await;
        assert!(
            matches!(end, Ok(None)),
            "the watch ends between two events: {end:?}"
        );

        dev.start().await;
        assert_eq!(
            kubectl.ok(&["get", "configmap", "kept", "-o=jsonpath={.data.a}"]),
            "b"
        );
        // The watch goes on over the restart: the next change is the next event.
        let next = change(&kubectl, 1).remove(0);
        let mut watch = Lines::open(&dev.client(), &watch_path(last)).await.unwrap();
        assert_eq!(watch.event().await.2, next);
        last = next;
    }
}

/// It must also leave the files of the one that runs as they are: kubectl goes on working.
fn a_second_one_on_the_directory_says_who_holds_it(dev: &Dev) {
    let before = std::fs::read(dev.dir.join("kubeconfig")).unwrap();
    let output = dev.another().command().output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let id = dev.id().to_string();
    says(&said, &["sluice: ", &dev.dir.display().to_string(), &id]);
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(std::fs::read(dev.dir.join("kubeconfig")).unwrap(), before);
}

const OBJECTS: usize = 200;
const SPREAD: Duration = Duration::from_secs(20);
const KILLS: usize = 3;

/// client-go's reflector and writes with retries, as controllers use them, while the one process
/// behind them is killed.
#[tokio::test(flavor = "multi_thread")]
async fn controllers_go_on_over_kills() {
    let Some(parts) = Parts::find(&["loop"]) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut dev = Dev::new(home.path());
    dev.start().await;
    let (writes, events) = (home.path().join("writes"), home.path().join("events"));
    let mut command = Command::new(parts.path("loop"));
    command
        .arg("-kubeconfig")
        .arg(dev.dir.join("kubeconfig"))
        .arg(format!("-objects={OBJECTS}"))
        .arg(format!("-spread={}s", SPREAD.as_secs()))
        .arg("-writes")
        .arg(&writes)
        .arg("-events")
        .arg(&events);
    let mut client = Process::start("loop", home.path(), &mut command);
    for kill in 1..=KILLS {
        // Kills are spread over the writes by what has been written.
        let due = OBJECTS * 3 * kill / (KILLS + 1);
        eventually("the client to be that far", LIMIT, || async {
            let far = read_lines(&writes).len();
            if far >= due {
                Ok(())
            } else {
                Err(format!("{far} of {due}"))
            }
        })
        .await;
        dev.kill_and_restart().await;
    }
    let status = client.wait_exit(LIMIT);
    assert!(
        status.success(),
        "the client gave up: {}",
        client.log_tail(5)
    );
    let (writes, events) = (read_lines(&writes), read_lines(&events));
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let versions: Vec<u64> = events
        .iter()
        .map(|e| text(e, "rv").parse().unwrap())
        .collect();
    assert!(
        versions.is_sorted_by(|a, b| a < b),
        "each change once and in order: {versions:?}"
    );
    let known = writes
        .iter()
        .map(|w| text(w, "rv"))
        .filter(|rv| !rv.is_empty());
    let lost: Vec<String> = known
        .filter(|rv| versions.binary_search(&rv.parse().unwrap()).is_err())
        .collect();
    assert_eq!(lost, Vec::<String>::new(), "acknowledged and never shown");
    for n in 0..OBJECTS {
        let name = format!("loop-{n:05}");
        let of = events.iter().filter(|e| text(e, "name") == name);
        let life: Vec<String> = of.map(|e| text(e, "type")).collect();
        assert_eq!(life, ["ADDED", "MODIFIED", "DELETED"], "the life of {name}");
    }
}

fn read_lines(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may be half written while the client runs.
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
