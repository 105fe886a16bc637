//! The built-in kinds, as one table.
//!
//! Left out on purpose: webhook configurations, API services, certificate requests and flow
//! control, which would be stored and obeyed by nobody.

use std::sync::Arc;

use super::merge::{self, Shape};
use super::resource::{FieldLabel, Generation, ResourceKind, Scale, Scope};

/// One row: group, version, kind, plural, short names, categories, traits, merge shape.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
    &'static Shape,
);

// Traits: n namespaced, s status subresource, g counts generations, r scales by replicas.
const ALL: &[&str] = &["all"];
const NO: &[&str] = &[];
const EXTENSIONS: &[&str] = &["api-extensions"];
const RBAC: &str = "rbac.authorization.k8s.io";
const NET: &str = "networking.k8s.io";
const STORAGE: &str = "storage.k8s.io";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("", "v1", "ConfigMap", "configmaps", &["cm"], NO, "n", &merge::PLAIN),
    ("", "v1", "Endpoints", "endpoints", &["ep"], NO, "n", &merge::PLAIN),
    ("", "v1", "Event", "events", &["ev"], NO, "n", &merge::PLAIN),
    ("", "v1", "LimitRange", "limitranges", &["limits"], NO, "n", &merge::PLAIN),
    ("", "v1", "Namespace", "namespaces", &["ns"], NO, "s", &merge::PLAIN),
    ("", "v1", "Node", "nodes", &["no"], NO, "s", &merge::NODE),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], NO, "ns", &merge::PLAIN),
    ("", "v1", "PersistentVolume", "persistentvolumes", &["pv"], NO, "s", &merge::PLAIN),
    ("", "v1", "Pod", "pods", &["po"], ALL, "nsg", &merge::POD),
    ("", "v1", "PodTemplate", "podtemplates", NO, NO, "n", &merge::BARE_TEMPLATE),
    ("", "v1", "ReplicationController", "replicationcontrollers", &["rc"], ALL, "nsgr", &merge::TEMPLATED),
    ("", "v1", "ResourceQuota", "resourcequotas", &["quota"], NO, "ns", &merge::PLAIN),
    ("", "v1", "Secret", "secrets", NO, NO, "n", &merge::PLAIN),
    ("", "v1", "ServiceAccount", "serviceaccounts", &["sa"], NO, "n", &merge::SERVICE_ACCOUNT),
    ("", "v1", "Service", "services", &["svc"], ALL, "ns", &merge::SERVICE),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", &["crd", "crds"], EXTENSIONS, "sg", &merge::PLAIN),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", NO, NO, "n", &merge::PLAIN),
    ("apps", "v1", "DaemonSet", "daemonsets", &["ds"], ALL, "nsg", &merge::TEMPLATED),
    ("apps", "v1", "Deployment", "deployments", &["deploy"], ALL, "nsgr", &merge::TEMPLATED),
    ("apps", "v1", "ReplicaSet", "replicasets", &["rs"], ALL, "nsgr", &merge::TEMPLATED),
    ("apps", "v1", "StatefulSet", "statefulsets", &["sts"], ALL, "nsgr", &merge::TEMPLATED),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], ALL, "ns", &merge::PLAIN),
    ("batch", "v1", "CronJob", "cronjobs", &["cj"], ALL, "nsg", &merge::CRON_JOB),
    ("batch", "v1", "Job", "jobs", NO, ALL, "nsg", &merge::TEMPLATED),
    ("coordination.k8s.io", "v1", "Lease", "leases", NO, NO, "n", &merge::PLAIN),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", NO, NO, "ng", &merge::PLAIN),
    (NET, "v1", "IngressClass", "ingressclasses", NO, NO, "g", &merge::PLAIN),
    (NET, "v1", "Ingress", "ingresses", &["ing"], NO, "nsg", &merge::PLAIN),
    (NET, "v1", "NetworkPolicy", "networkpolicies", &["netpol"], NO, "ng", &merge::PLAIN),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", NO, NO, "", &merge::PLAIN),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], NO, "nsg", &merge::PLAIN),
    (RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", NO, NO, "", &merge::PLAIN),
    (RBAC, "v1", "ClusterRole", "clusterroles", NO, NO, "", &merge::PLAIN),
    (RBAC, "v1", "RoleBinding", "rolebindings", NO, NO, "n", &merge::PLAIN),
    (RBAC, "v1", "Role", "roles", NO, NO, "n", &merge::PLAIN),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", &["pc"], NO, "g", &merge::PLAIN),
    (STORAGE, "v1", "CSIDriver", "csidrivers", NO, NO, "", &merge::PLAIN),
    (STORAGE, "v1", "CSINode", "csinodes", NO, NO, "", &merge::PLAIN),
    (STORAGE, "v1", "CSIStorageCapacity", "csistoragecapacities", NO, NO, "n", &merge::PLAIN),
    (STORAGE, "v1", "StorageClass", "storageclasses", &["sc"], NO, "", &merge::PLAIN),
    (STORAGE, "v1", "VolumeAttachment", "volumeattachments", NO, NO, "s", &merge::PLAIN),
];

/// Field selector labels of built-in kinds, by group and plural (kubernetes-semantics 4.15).
#[rustfmt::skip]
const FIELD_LABELS: &[(&str, &str, &[&str])] = &[
    ("", "pods", &[
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
    ]),
    ("", "nodes", &["spec.unschedulable"]),
    ("", "events", &[
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
        "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion",
        "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
    ]),
    ("", "secrets", &["type"]),
    ("", "namespaces", &["status.phase"]),
    ("", "services", &["spec.clusterIP", "spec.type"]),
    ("", "replicationcontrollers", &["status.replicas"]),
    ("apps", "replicasets", &["status.replicas"]),
    ("batch", "jobs", &["status.successful"]),
];

/// Labels that read another path than their own.
const ALIASES: &[(&str, &str)] = &[
    ("source", "source.component"),
    ("status.successful", "status.succeeded"),
];

/// The built-in kinds, sorted by group, then by plural.
pub(crate) fn kinds() -> Vec<Arc<ResourceKind>> {
    let mut all: Vec<_> = ROWS.iter().map(lower).map(Arc::new).collect();
    all.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
    all
}

fn lower(row: &Row) -> ResourceKind {
    let (group, version, kind, plural, short_names, categories, traits, merge) = *row;
    let owned = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    let has = |flag: char| traits.contains(flag);
    ResourceKind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        plural: plural.into(),
        singular: kind.to_ascii_lowercase(),
        short_names: owned(short_names),
        categories: owned(categories),
        scope: if has('n') {
            Scope::Namespaced
        } else {
            Scope::Cluster
        },
        generation: if has('g') {
            Generation::Spec
        } else {
            Generation::Untracked
        },
        has_status: has('s'),
        scale: has('r').then(|| Scale {
            spec_replicas: "spec.replicas".into(),
            status_replicas: "status.replicas".into(),
            selector: "spec.selector".into(),
        }),
        field_labels: field_labels(group, plural),
        merge: Some(merge),
        schema: None,
        columns: None,
        is_custom: false,
    }
}

fn field_labels(group: &str, plural: &str) -> Vec<FieldLabel> {
    let Some((_, _, labels)) = FIELD_LABELS
        .iter()
        .find(|(g, p, _)| *g == group && *p == plural)
    else {
        return Vec::new();
    };
    let path = |label: &str| {
        let alias = ALIASES.iter().find(|(l, _)| *l == label);
        alias.map_or(label, |(_, path)| path).to_owned()
    };
    labels
        .iter()
        .map(|label| FieldLabel {
            label: (*label).to_owned(),
            path: path(label),
        })
        .collect()
}
