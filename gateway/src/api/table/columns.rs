//! What the rows of a kind show: the columns people know for built-in kinds, those a custom
//! definition names for its own, and name and age for the rest.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::{self, at};
use super::jsonpath::{JsonPath, PathError};
use super::{age, pods};
use crate::api::resource::ResourceKind;

/// The columns of one kind; cheap to clone.
#[derive(Clone, Debug)]
pub struct Columns(Arc<[Column]>);

#[derive(Clone, Debug)]
struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    cell: Cell,
}

#[derive(Clone, Debug)]
enum Cell {
    Fixed(Fixed),
    Path(JsonPath),
}

/// How a built-in column finds its value.
#[derive(Clone, Copy, Debug)]
enum Fixed {
    /// The text at a dotted path, else this word.
    Text(&'static str, &'static str),
    /// The number at a dotted path, else 0.
    Number(&'static str),
    /// The boolean at a dotted path, else false.
    Flag(&'static str),
    /// How long ago the time at a dotted path was.
    Since(&'static str),
    /// Anything else.
    Made(fn(&Value, Timestamp) -> Value),
}

use Fixed::{Flag, Made, Number, Since, Text};

/// Heading, priority (1 is shown by `-o wide` only), value.
type Row = (&'static str, i64, Fixed);

const NAME: Row = ("Name", 0, Text("metadata.name", ""));
const AGE: Row = ("Age", 0, Since("metadata.creationTimestamp"));
const CONTAINERS: Row = ("Containers", 1, Made(cells::containers));
const IMAGES: Row = ("Images", 1, Made(cells::images));
const SELECTOR: Row = ("Selector", 1, Made(cells::selector));
const ROLE_REF: Row = ("Role", 0, Made(cells::role_ref));
const CREATED: Row = (
    "Created At",
    0,
    Text("metadata.creationTimestamp", "<unknown>"),
);

/// Where the columns of a kind are found: group, plural, columns.
type Entry = (&'static str, &'static str, &'static [Row]);

#[rustfmt::skip]
const BUILT_IN: &[Entry] = &[
    ("", "pods", &[
        NAME, ("Ready", 0, Made(pods::ready)), ("Status", 0, Made(pods::status)),
        ("Restarts", 0, Made(pods::restarts)), AGE, ("IP", 1, Text("status.podIP", "<none>")),
        ("Node", 1, Text("spec.nodeName", "<none>")),
        ("Nominated Node", 1, Text("status.nominatedNodeName", "<none>")),
        ("Readiness Gates", 1, Made(pods::readiness_gates)),
    ]),
    ("", "nodes", &[
        NAME, ("Status", 0, Made(cells::node_status)), ("Roles", 0, Made(cells::node_roles)), AGE,
        ("Version", 0, Text("status.nodeInfo.kubeletVersion", "")),
        ("Internal-IP", 1, Made(cells::internal_ip)), ("External-IP", 1, Made(cells::external_ip)),
        ("OS-Image", 1, Text("status.nodeInfo.osImage", "<unknown>")),
        ("Kernel-Version", 1, Text("status.nodeInfo.kernelVersion", "<unknown>")),
        ("Container-Runtime", 1, Text("status.nodeInfo.containerRuntimeVersion", "<unknown>")),
    ]),
    ("", "events", &[
        ("Last Seen", 0, Made(cells::last_seen)), ("Type", 0, Text("type", "")),
        ("Reason", 0, Text("reason", "")), ("Object", 0, Made(cells::event_object)),
        ("Subobject", 1, Text("involvedObject.fieldPath", "")),
        ("Source", 1, Made(cells::event_source)), ("Message", 0, Made(cells::event_message)),
        ("First Seen", 1, Made(cells::first_seen)), ("Count", 1, Made(cells::event_count)),
        ("Name", 1, Text("metadata.name", "")),
    ]),
    ("", "namespaces", &[NAME, ("Status", 0, Text("status.phase", "")), AGE]),
    ("", "configmaps", &[NAME, ("Data", 0, Made(cells::data_count)), AGE]),
    ("", "secrets", &[
        NAME, ("Type", 0, Text("type", "Opaque")), ("Data", 0, Made(cells::data_count)), AGE,
    ]),
    ("", "services", &[
        NAME, ("Type", 0, Text("spec.type", "ClusterIP")),
        ("Cluster-IP", 0, Text("spec.clusterIP", "<none>")),
        ("External-IP", 0, Made(cells::service_external)), ("Port(s)", 0, Made(cells::service_ports)),
        AGE, ("Selector", 1, Made(cells::plain_selector)),
    ]),
    ("", "endpoints", &[NAME, ("Endpoints", 0, Made(cells::endpoints)), AGE]),
    ("", "replicationcontrollers", &[
        NAME, ("Desired", 0, Number("spec.replicas")), ("Current", 0, Number("status.replicas")),
        ("Ready", 0, Number("status.readyReplicas")), AGE, CONTAINERS, IMAGES,
        ("Selector", 1, Made(cells::plain_selector)),
    ]),
    ("", "persistentvolumes", &[
        NAME, ("Capacity", 0, Text("spec.capacity.storage", "")),
        ("Access Modes", 0, Made(cells::access_modes)),
        ("Reclaim Policy", 0, Text("spec.persistentVolumeReclaimPolicy", "")),
        ("Status", 0, Text("status.phase", "")), ("Claim", 0, Made(cells::claim)),
        ("StorageClass", 0, Text("spec.storageClassName", "")),
        ("VolumeAttributesClass", 0, Text("spec.volumeAttributesClassName", "<unset>")),
        ("Reason", 0, Text("status.reason", "")), AGE,
        ("VolumeMode", 1, Text("spec.volumeMode", "<unset>")),
    ]),
    ("", "persistentvolumeclaims", &[
        NAME, ("Status", 0, Text("status.phase", "")), ("Volume", 0, Text("spec.volumeName", "")),
        ("Capacity", 0, Text("status.capacity.storage", "")),
        ("Access Modes", 0, Made(cells::access_modes)),
        ("StorageClass", 0, Text("spec.storageClassName", "")),
        ("VolumeAttributesClass", 0, Text("spec.volumeAttributesClassName", "<unset>")), AGE,
        ("VolumeMode", 1, Text("spec.volumeMode", "<unset>")),
    ]),
    ("apps", "deployments", &[
        NAME, ("Ready", 0, Made(cells::ready_of_wished)),
        ("Up-to-date", 0, Number("status.updatedReplicas")),
        ("Available", 0, Number("status.availableReplicas")), AGE, CONTAINERS, IMAGES, SELECTOR,
    ]),
    ("apps", "replicasets", &[
        NAME, ("Desired", 0, Number("spec.replicas")), ("Current", 0, Number("status.replicas")),
        ("Ready", 0, Number("status.readyReplicas")), AGE, CONTAINERS, IMAGES, SELECTOR,
    ]),
    ("apps", "statefulsets", &[
        NAME, ("Ready", 0, Made(cells::ready_of_wished)), AGE, CONTAINERS, IMAGES,
    ]),
    ("apps", "daemonsets", &[
        NAME, ("Desired", 0, Number("status.desiredNumberScheduled")),
        ("Current", 0, Number("status.currentNumberScheduled")),
        ("Ready", 0, Number("status.numberReady")),
        ("Up-to-date", 0, Number("status.updatedNumberScheduled")),
        ("Available", 0, Number("status.numberAvailable")),
        ("Node Selector", 0, Made(cells::node_selector)), AGE, CONTAINERS, IMAGES, SELECTOR,
    ]),
    ("apps", "controllerrevisions", &[
        NAME, ("Controller", 0, Made(cells::controller)), ("Revision", 0, Number("revision")), AGE,
    ]),
    ("batch", "jobs", &[
        NAME, ("Status", 0, Made(cells::job_status)),
        ("Completions", 0, Made(cells::job_completions)), ("Duration", 0, Made(cells::job_duration)),
        AGE, CONTAINERS, IMAGES, SELECTOR,
    ]),
    ("batch", "cronjobs", &[
        NAME, ("Schedule", 0, Text("spec.schedule", "")),
        ("Timezone", 0, Text("spec.timeZone", "<none>")), ("Suspend", 0, Flag("spec.suspend")),
        ("Active", 0, Made(cells::active_jobs)), ("Last Schedule", 0, Made(cells::last_schedule)),
        AGE, CONTAINERS, IMAGES,
    ]),
    ("coordination.k8s.io", "leases", &[NAME, ("Holder", 0, Text("spec.holderIdentity", "")), AGE]),
    ("autoscaling", "horizontalpodautoscalers", &[
        NAME, ("Reference", 0, Made(cells::scale_target)),
        ("MinPods", 0, Text("spec.minReplicas", "<unset>")),
        ("MaxPods", 0, Number("spec.maxReplicas")),
        ("Replicas", 0, Number("status.currentReplicas")), AGE,
    ]),
    ("discovery.k8s.io", "endpointslices", &[
        NAME, ("AddressType", 0, Text("addressType", "")), ("Ports", 0, Made(cells::slice_ports)),
        ("Endpoints", 0, Made(cells::slice_addresses)), AGE,
    ]),
    ("networking.k8s.io", "ingresses", &[
        NAME, ("Class", 0, Text("spec.ingressClassName", "<none>")),
        ("Hosts", 0, Made(cells::ingress_hosts)), ("Address", 0, Made(cells::balancer)),
        ("Ports", 0, Made(cells::ingress_ports)), AGE,
    ]),
    ("networking.k8s.io", "ingressclasses", &[
        NAME, ("Controller", 0, Text("spec.controller", "")),
        ("Parameters", 0, Text("spec.parameters.name", "<none>")), AGE,
    ]),
    ("networking.k8s.io", "networkpolicies", &[
        NAME, ("Pod-Selector", 0, Made(cells::pod_selector)), AGE,
    ]),
    ("node.k8s.io", "runtimeclasses", &[NAME, ("Handler", 0, Text("handler", "")), AGE]),
    ("policy", "poddisruptionbudgets", &[
        NAME, ("Min Available", 0, Text("spec.minAvailable", "N/A")),
        ("Max Unavailable", 0, Text("spec.maxUnavailable", "N/A")),
        ("Allowed Disruptions", 0, Number("status.disruptionsAllowed")), AGE,
    ]),
    ("rbac.authorization.k8s.io", "roles", &[NAME, CREATED]),
    ("rbac.authorization.k8s.io", "clusterroles", &[NAME, CREATED]),
    ("rbac.authorization.k8s.io", "rolebindings", &[
        NAME, ROLE_REF, AGE, ("Users", 1, Made(cells::bound_users)),
        ("Groups", 1, Made(cells::bound_groups)), ("ServiceAccounts", 1, Made(cells::bound_accounts)),
    ]),
    ("rbac.authorization.k8s.io", "clusterrolebindings", &[
        NAME, ROLE_REF, AGE, ("Users", 1, Made(cells::bound_users)),
        ("Groups", 1, Made(cells::bound_groups)), ("ServiceAccounts", 1, Made(cells::bound_accounts)),
    ]),
    ("scheduling.k8s.io", "priorityclasses", &[
        NAME, ("Value", 0, Number("value")), ("Global-Default", 0, Flag("globalDefault")), AGE,
        ("PreemptionPolicy", 0, Text("preemptionPolicy", "PreemptLowerPriority")),
    ]),
    ("storage.k8s.io", "storageclasses", &[
        NAME, ("Provisioner", 0, Text("provisioner", "")),
        ("ReclaimPolicy", 0, Text("reclaimPolicy", "Delete")),
        ("VolumeBindingMode", 0, Text("volumeBindingMode", "Immediate")),
        ("AllowVolumeExpansion", 0, Flag("allowVolumeExpansion")), AGE,
    ]),
    ("storage.k8s.io", "volumeattachments", &[
        NAME, ("Attacher", 0, Text("spec.attacher", "")),
        ("PV", 0, Text("spec.source.persistentVolumeName", "")),
        ("Node", 0, Text("spec.nodeName", "")), ("Attached", 0, Flag("status.attached")), AGE,
    ]),
    ("apiextensions.k8s.io", "customresourcedefinitions", &[NAME, CREATED]),
];

impl Fixed {
    fn kind(self) -> &'static str {
        match self {
            Number(_) => "integer",
            Flag(_) => "boolean",
            Text(..) | Since(_) | Made(_) => "string",
        }
    }

    fn value(self, object: &Value, now: Timestamp) -> Value {
        match self {
            Text(path, otherwise) => match at(object, path) {
                Some(Value::String(text)) if !text.is_empty() => json!(text),
                None | Some(Value::Null | Value::String(_)) => json!(otherwise),
                Some(other) => json!(other.to_string()),
            },
            Number(path) => at(object, path).cloned().unwrap_or(json!(0)),
            Flag(path) => at(object, path).cloned().unwrap_or(json!(false)),
            Since(path) => json!(age::since(at(object, path), now)),
            Made(make) => make(object, now),
        }
    }
}

impl Column {
    fn fixed(&(name, priority, cell): &Row) -> Column {
        Column {
            name: name.to_owned(),
            kind: cell.kind().to_owned(),
            // Clients find the name's column by this.
            format: if name == "Name" { "name" } else { "" }.to_owned(),
            description: String::new(),
            priority,
            cell: Cell::Fixed(cell),
        }
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    fn value(&self, object: &Value, now: Timestamp) -> Value {
        let path = match &self.cell {
            Cell::Fixed(fixed) => return fixed.value(object, now),
            Cell::Path(path) => path,
        };
        let found = path.find(object);
        let Some(first) = found.first() else {
            return Value::Null;
        };
        match self.kind.as_str() {
            "string" => {
                let texts: Vec<String> = found.iter().map(|v| cells::as_text(v)).collect();
                json!(texts.join(" "))
            }
            "date" => json!(age::since(Some(first), now)),
            "integer" => match first.as_i64() {
                Some(number) => json!(number),
                // A count written as 3.0 is still a count.
                None => first.as_f64().map_or(Value::Null, |n| json!(n.trunc())),
            },
            "number" if first.is_number() => (*first).clone(),
            "boolean" if first.is_boolean() => (*first).clone(),
            _ => Value::Null,
        }
    }
}

impl Columns {
    /// The columns of a kind that no definition speaks of.
    #[must_use]
    pub fn of(kind: &ResourceKind) -> Columns {
        let known = BUILT_IN
            .iter()
            .find(|(group, plural, _)| *group == kind.group && *plural == kind.plural);
        let rows = known.map_or(&[NAME, AGE] as &[Row], |(_, _, rows)| rows);
        Columns(rows.iter().map(Column::fixed).collect())
    }

    /// The columns a definition's version names (`additionalPrinterColumns`); name, and age when it
    /// names none.
    ///
    /// # Errors
    /// The index of the column whose path cannot be used, and why.
    pub fn custom(printer_columns: &[Value]) -> Result<Columns, (usize, PathError)> {
        if printer_columns.is_empty() {
            return Ok(Columns([NAME, AGE].iter().map(Column::fixed).collect()));
        }
        let mut columns = vec![Column::fixed(&NAME)];
        for (index, given) in printer_columns.iter().enumerate() {
            let text = |field: &str| given.get(field).and_then(Value::as_str).unwrap_or_default();
            let path = JsonPath::parse(text("jsonPath")).map_err(|error| (index, error))?;
            columns.push(Column {
                name: text("name").to_owned(),
                kind: text("type").to_owned(),
                format: text("format").to_owned(),
                description: text("description").to_owned(),
                priority: given.get("priority").and_then(Value::as_i64).unwrap_or(0),
                cell: Cell::Path(path),
            });
        }
        Ok(Columns(columns.into()))
    }

    pub(super) fn definitions(&self) -> Value {
        self.0.iter().map(Column::definition).collect()
    }

    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.0
            .iter()
            .map(|column| column.value(object, now))
            .collect()
    }
}
