//! What a cluster starts with: its namespaces, and the roles and bindings without which nobody but
//! `system:masters` could even ask what is served.
//!
//! Each is written at a start that does not find it: what an operator changed stays changed, what
//! was deleted comes back. Only the Kubernetes API does this: a store that serves nothing but
//! etcd's protocol starts at its first revision, untouched.

use std::sync::Arc;

use serde_json::{Value, json};

use super::errors;
use super::resource::{Registry, ResourceKind};
use super::storage::{Object, Storage, Target, WriteOptions};
use crate::status::Refusal;

const RBAC: &str = "rbac.authorization.k8s.io";
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// Writes what is absent.
///
/// # Errors
/// Whatever the store refuses.
pub async fn ensure(storage: &Storage, registry: &Registry) -> Result<(), Refusal> {
    let kind = |group: &str, plural: &str| {
        let kind = registry.resolve(group, "v1", plural);
        kind.ok_or_else(|| errors::internal(format!("{plural} are not served")))
    };
    let namespaces = kind("", "namespaces")?;
    for name in NAMESPACES {
        create(storage, &namespaces, name, json!({})).await?;
    }
    let roles = kind(RBAC, "clusterroles")?;
    for (name, role) in cluster_roles().into_iter().chain(system_roles()) {
        create(storage, &roles, name, role).await?;
    }
    let bindings = kind(RBAC, "clusterrolebindings")?;
    for (name, groups) in BINDINGS {
        create(storage, &bindings, name, binding(name, groups)).await?;
    }
    Ok(())
}

async fn create(
    storage: &Storage,
    kind: &Arc<ResourceKind>,
    name: &str,
    body: Value,
) -> Result<(), Refusal> {
    let target = Target {
        kind,
        namespace: "",
        name,
    };
    match storage.get(target) {
        Ok(_) => return Ok(()),
        Err(refusal) if refusal.code == http::StatusCode::NOT_FOUND => {}
        Err(refusal) => return Err(refusal),
    }
    let mut object: Object = body.as_object().cloned().unwrap_or_default();
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("name".to_owned(), json!(name));
    }
    match storage
        .create(target, object, WriteOptions::internal())
        .await
    {
        Ok(_) => Ok(()),
        // Another server of the same store was first.
        Err(refusal) if refusal.code == http::StatusCode::CONFLICT => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// Cluster role of the same name, to these groups.
const BINDINGS: [(&str, &[&str]); 4] = [
    ("cluster-admin", &["system:masters"]),
    ("system:discovery", &["system:authenticated"]),
    ("system:basic-user", &["system:authenticated"]),
    (
        "system:public-info-viewer",
        &["system:authenticated", "system:unauthenticated"],
    ),
];

fn binding(role: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|group| json!({"apiGroup": RBAC, "kind": "Group", "name": group}))
        .collect();
    json!({
        "metadata": {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn role(rules: Vec<Value>) -> Value {
    json!({
        "metadata": {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
        "rules": rules,
    })
}

/// A role that others add to by a label, and that adds to the next greater one by its own.
fn aggregate(name: &str, greater: Option<&str>, rules: Vec<Value>) -> Value {
    let label = |role: &str| format!("rbac.authorization.k8s.io/aggregate-to-{role}");
    let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    if let (Some(greater), Some(labels)) = (greater, labels.as_object_mut()) {
        labels.insert(label(greater), json!("true"));
    }
    json!({
        "metadata": {"labels": labels},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label(name): "true"}}]},
        "rules": rules,
    })
}

const WORKLOADS: [&str; 8] = [
    "",
    "apps",
    "autoscaling",
    "batch",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "networking.k8s.io",
    "policy",
];

/// What `view` sees and `edit` writes in a namespace; secrets are among the latter only.
const CONTENT: [&str; 36] = [
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "persistentvolumeclaims",
    "persistentvolumeclaims/status",
    "pods",
    "pods/log",
    "pods/status",
    "podtemplates",
    "replicationcontrollers",
    "replicationcontrollers/scale",
    "replicationcontrollers/status",
    "resourcequotas",
    "resourcequotas/status",
    "serviceaccounts",
    "services",
    "services/status",
    "controllerrevisions",
    "daemonsets",
    "daemonsets/status",
    "deployments",
    "deployments/scale",
    "deployments/status",
    "replicasets",
    "replicasets/scale",
    "replicasets/status",
    "statefulsets",
    "statefulsets/scale",
    "statefulsets/status",
    "horizontalpodautoscalers",
    "cronjobs",
    "jobs",
    "leases",
    "endpointslices",
    "ingresses",
];

const EDITED: [&str; 27] = [
    "configmaps",
    "endpoints",
    "events",
    "persistentvolumeclaims",
    "pods",
    "pods/attach",
    "pods/eviction",
    "pods/exec",
    "pods/portforward",
    "pods/proxy",
    "replicationcontrollers",
    "replicationcontrollers/scale",
    "secrets",
    "serviceaccounts",
    "services",
    "services/proxy",
    "daemonsets",
    "deployments",
    "deployments/scale",
    "replicasets",
    "replicasets/scale",
    "statefulsets",
    "statefulsets/scale",
    "horizontalpodautoscalers",
    "cronjobs",
    "jobs",
    "leases",
];

fn cluster_roles() -> Vec<(&'static str, Value)> {
    let anything = vec![
        rule(&["*"], &["*"], &["*"]),
        json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
    ];
    let view = vec![
        rule(&WORKLOADS, &CONTENT, &READ),
        rule(&[""], &["namespaces"], &READ),
        rule(&["networking.k8s.io"], &["networkpolicies"], &READ),
        rule(&["policy"], &["poddisruptionbudgets"], &READ),
    ];
    let edit = vec![
        rule(&WORKLOADS, &EDITED, &WRITE),
        rule(&[""], &["secrets"], &READ),
        rule(
            &["networking.k8s.io"],
            &["ingresses", "networkpolicies"],
            &WRITE,
        ),
        rule(&["policy"], &["poddisruptionbudgets"], &WRITE),
        rule(&[""], &["serviceaccounts"], &["impersonate"]),
    ];
    let admin = vec![
        rule(
            &[RBAC],
            &["roles", "rolebindings"],
            &[&READ[..], &WRITE[..]].concat(),
        ),
        rule(
            &["authorization.k8s.io"],
            &["localsubjectaccessreviews"],
            &["create"],
        ),
    ];
    vec![
        ("cluster-admin", role(anything)),
        ("admin", aggregate("admin", None, admin)),
        ("edit", aggregate("edit", Some("admin"), edit)),
        ("view", aggregate("view", Some("edit"), view)),
    ]
}

/// What everybody may ask.
fn system_roles() -> Vec<(&'static str, Value)> {
    let paths = |paths: &[&str]| json!({"nonResourceURLs": paths, "verbs": ["get"]});
    vec![
        (
            "system:discovery",
            role(vec![paths(&[
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
                "/version/",
            ])]),
        ),
        (
            "system:basic-user",
            role(vec![
                rule(
                    &["authorization.k8s.io"],
                    &["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                    &["create"],
                ),
                rule(
                    &["authentication.k8s.io"],
                    &["selfsubjectreviews"],
                    &["create"],
                ),
            ]),
        ),
        (
            "system:public-info-viewer",
            role(vec![paths(&[
                "/healthz",
                "/livez",
                "/readyz",
                "/version",
                "/version/",
            ])]),
        ),
    ]
}
