//! Cells that are put together from more than one field.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;

/// Entries of a list shown before `...`; a cell is one line of a terminal.
const SHOWN_MAX: usize = 3;
const NONE: &str = "<none>";

/// The value at a dotted path.
pub(super) fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.')
        .try_fold(object, |value, field| value.get(field))
}

/// The entries of the list at a dotted path.
pub(super) fn list<'v>(object: &'v Value, path: &str) -> &'v [Value] {
    at(object, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The text at a dotted path, or nothing.
pub(super) fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number at a dotted path, or 0.
pub(super) fn number(object: &Value, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

/// A value as a person reads it: a text without quotes.
pub(super) fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn or_none(text: String) -> Value {
    if text.is_empty() {
        json!(NONE)
    } else {
        json!(text)
    }
}

/// All entries with a comma between them.
fn joined(parts: impl Iterator<Item = String>) -> Value {
    or_none(
        parts
            .filter(|p| !p.is_empty())
            .collect::<Vec<_>>()
            .join(","),
    )
}

/// The first entries, then how many more there are.
fn first_few(parts: Vec<String>) -> Value {
    let more = parts.len().saturating_sub(SHOWN_MAX);
    let shown: Vec<String> = parts.into_iter().take(SHOWN_MAX).collect();
    if more == 0 {
        or_none(shown.join(","))
    } else {
        json!(format!("{} + {more} more...", shown.join(",")))
    }
}

fn labels(map: Option<&Value>) -> Value {
    let map = map.and_then(Value::as_object);
    let pairs = map.into_iter().flatten();
    joined(pairs.map(|(key, value)| format!("{key}={}", as_text(value))))
}

/// A label selector as it is written on a command line.
fn shown_selector(selector: Option<&Value>) -> Value {
    let Some(selector) = selector else {
        return json!(NONE);
    };
    let equal = selector.get("matchLabels").and_then(Value::as_object);
    let pairs = equal.into_iter().flatten();
    let equal = pairs.map(|(key, value)| format!("{key}={}", as_text(value)));
    let expressions = list(selector, "matchExpressions").iter().map(|wanted| {
        let key = text(wanted, "key");
        let values: Vec<String> = list(wanted, "values").iter().map(as_text).collect();
        match text(wanted, "operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        }
    });
    joined(equal.chain(expressions))
}

pub(super) fn selector(object: &Value, _: Timestamp) -> Value {
    shown_selector(at(object, "spec.selector"))
}

pub(super) fn pod_selector(object: &Value, _: Timestamp) -> Value {
    shown_selector(at(object, "spec.podSelector"))
}

pub(super) fn plain_selector(object: &Value, _: Timestamp) -> Value {
    labels(at(object, "spec.selector"))
}

pub(super) fn node_selector(object: &Value, _: Timestamp) -> Value {
    labels(at(object, "spec.template.spec.nodeSelector"))
}

fn templates(object: &Value) -> &[Value] {
    let direct = list(object, "spec.template.spec.containers");
    if direct.is_empty() {
        list(object, "spec.jobTemplate.spec.template.spec.containers")
    } else {
        direct
    }
}

pub(super) fn containers(object: &Value, _: Timestamp) -> Value {
    joined(templates(object).iter().map(|c| text(c, "name").to_owned()))
}

pub(super) fn images(object: &Value, _: Timestamp) -> Value {
    joined(
        templates(object)
            .iter()
            .map(|c| text(c, "image").to_owned()),
    )
}

/// Ready of wished, as `1/3`; one is wished where nothing is said.
pub(super) fn ready_of_wished(object: &Value, _: Timestamp) -> Value {
    let wished = at(object, "spec.replicas")
        .and_then(Value::as_i64)
        .unwrap_or(1);
    json!(format!(
        "{}/{wished}",
        number(object, "status.readyReplicas")
    ))
}

pub(super) fn data_count(object: &Value, _: Timestamp) -> Value {
    let entries = |field| {
        object
            .get(field)
            .and_then(Value::as_object)
            .map_or(0, serde_json::Map::len)
    };
    json!((entries("data") + entries("binaryData")).to_string())
}

fn ready_condition(object: &Value) -> Option<&Value> {
    list(object, "status.conditions")
        .iter()
        .find(|condition| text(condition, "type") == "Ready")
}

pub(super) fn node_status(object: &Value, _: Timestamp) -> Value {
    let ready = match ready_condition(object).map(|c| text(c, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if at(object, "spec.unschedulable") == Some(&Value::Bool(true)) {
        json!(format!("{ready},SchedulingDisabled"))
    } else {
        json!(ready)
    }
}

pub(super) fn node_roles(object: &Value, _: Timestamp) -> Value {
    let labels = at(object, "metadata.labels").and_then(Value::as_object);
    joined(labels.into_iter().flatten().filter_map(|(key, value)| {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role.to_owned()),
            None => (key == "kubernetes.io/role").then(|| as_text(value)),
        }
    }))
}

fn address(object: &Value, wanted: &str) -> Value {
    let all = list(object, "status.addresses").iter();
    let mut of_type = all.filter(|a| text(a, "type") == wanted);
    or_none(
        of_type
            .next()
            .map_or_else(String::new, |a| text(a, "address").to_owned()),
    )
}

pub(super) fn internal_ip(object: &Value, _: Timestamp) -> Value {
    address(object, "InternalIP")
}

pub(super) fn external_ip(object: &Value, _: Timestamp) -> Value {
    address(object, "ExternalIP")
}

/// The first of the paths that holds a time.
fn first_time<'v>(object: &'v Value, paths: &[&str]) -> Option<&'v Value> {
    let mut times = paths.iter().filter_map(|path| at(object, path));
    times.find(|time| time.is_string())
}

pub(super) fn last_seen(object: &Value, now: Timestamp) -> Value {
    let paths = [
        "series.lastObservedTime",
        "lastTimestamp",
        "eventTime",
        "firstTimestamp",
    ];
    json!(age::since(first_time(object, &paths), now))
}

pub(super) fn first_seen(object: &Value, now: Timestamp) -> Value {
    json!(age::since(
        first_time(object, &["firstTimestamp", "eventTime"]),
        now
    ))
}

pub(super) fn event_object(object: &Value, _: Timestamp) -> Value {
    let kind = text(object, "involvedObject.kind").to_lowercase();
    json!(format!("{kind}/{}", text(object, "involvedObject.name")))
}

pub(super) fn event_source(object: &Value, _: Timestamp) -> Value {
    let component = match text(object, "source.component") {
        "" => text(object, "reportingComponent"),
        component => component,
    };
    match text(object, "source.host") {
        "" => json!(component),
        host => json!(format!("{component}, {host}")),
    }
}

pub(super) fn event_message(object: &Value, _: Timestamp) -> Value {
    json!(text(object, "message").trim())
}

pub(super) fn event_count(object: &Value, _: Timestamp) -> Value {
    let of_series = number(object, "series.count");
    let count = of_series.max(number(object, "count")).max(1);
    json!(count.to_string())
}

pub(super) fn service_external(object: &Value, _: Timestamp) -> Value {
    let ips = list(object, "spec.externalIPs").iter().map(as_text);
    match text(object, "spec.type") {
        "ExternalName" => json!(text(object, "spec.externalName")),
        "LoadBalancer" => match joined(balancers(object).into_iter().chain(ips)) {
            none if none == NONE => json!("<pending>"),
            shown => shown,
        },
        _ => joined(ips),
    }
}

pub(super) fn service_ports(object: &Value, _: Timestamp) -> Value {
    joined(list(object, "spec.ports").iter().map(|port| {
        let protocol = match text(port, "protocol") {
            "" => "TCP",
            protocol => protocol,
        };
        match (number(port, "port"), number(port, "nodePort")) {
            (own, 0) => format!("{own}/{protocol}"),
            (own, node) => format!("{own}:{node}/{protocol}"),
        }
    }))
}

pub(super) fn endpoints(object: &Value, _: Timestamp) -> Value {
    let mut all = Vec::new();
    for subset in list(object, "subsets") {
        for address in list(subset, "addresses") {
            let ip = text(address, "ip");
            let ports = list(subset, "ports").iter();
            all.extend(ports.map(|port| format!("{ip}:{}", number(port, "port"))));
        }
    }
    first_few(all)
}

pub(super) fn slice_ports(object: &Value, _: Timestamp) -> Value {
    let ports = list(object, "ports").iter();
    match first_few(ports.map(|port| number(port, "port").to_string()).collect()) {
        none if none == NONE => json!("<unset>"),
        shown => shown,
    }
}

pub(super) fn slice_addresses(object: &Value, _: Timestamp) -> Value {
    let endpoints = list(object, "endpoints").iter();
    let all = endpoints.flat_map(|e| list(e, "addresses")).map(as_text);
    match first_few(all.collect()) {
        none if none == NONE => json!("<unset>"),
        shown => shown,
    }
}

pub(super) fn access_modes(object: &Value, _: Timestamp) -> Value {
    let modes = list(object, "spec.accessModes").iter().map(|mode| {
        match mode.as_str().unwrap_or_default() {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        }
    });
    json!(modes.collect::<Vec<_>>().join(","))
}

pub(super) fn claim(object: &Value, _: Timestamp) -> Value {
    match at(object, "spec.claimRef") {
        Some(claim) => json!(format!(
            "{}/{}",
            text(claim, "namespace"),
            text(claim, "name")
        )),
        None => json!(""),
    }
}

pub(super) fn controller(object: &Value, _: Timestamp) -> Value {
    let owners = list(object, "metadata.ownerReferences").iter();
    let mut owners = owners.filter(|o| o.get("controller") == Some(&Value::Bool(true)));
    or_none(owners.next().map_or_else(String::new, |owner| {
        let group = text(owner, "apiVersion")
            .split_once('/')
            .map_or("", |(group, _)| group);
        let kind = text(owner, "kind").to_lowercase();
        let dot = if group.is_empty() { "" } else { "." };
        format!("{kind}{dot}{group}/{}", text(owner, "name"))
    }))
}

pub(super) fn job_status(object: &Value, _: Timestamp) -> Value {
    let holds = |wanted: &str| {
        list(object, "status.conditions")
            .iter()
            .any(|c| text(c, "type") == wanted && text(c, "status") == "True")
    };
    let status = if holds("Complete") {
        "Complete"
    } else if holds("Failed") {
        "Failed"
    } else if !text(object, "metadata.deletionTimestamp").is_empty() {
        "Terminating"
    } else if holds("Suspended") {
        "Suspended"
    } else if holds("FailureTarget") {
        "FailureTarget"
    } else if holds("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    json!(status)
}

pub(super) fn job_completions(object: &Value, _: Timestamp) -> Value {
    let done = number(object, "status.succeeded");
    let wished = at(object, "spec.completions").and_then(Value::as_i64);
    match (wished, number(object, "spec.parallelism")) {
        (Some(wished), _) => json!(format!("{done}/{wished}")),
        (None, many) if many > 1 => json!(format!("{done}/1 of {many}")),
        (None, _) => json!(format!("{done}/1")),
    }
}

pub(super) fn job_duration(object: &Value, now: Timestamp) -> Value {
    let time = |path| text(object, path).parse::<Timestamp>().ok();
    let Some(start) = time("status.startTime") else {
        return json!("");
    };
    let end = time("status.completionTime").unwrap_or(now);
    json!(age::short(
        end.as_second().saturating_sub(start.as_second())
    ))
}

pub(super) fn active_jobs(object: &Value, _: Timestamp) -> Value {
    json!(list(object, "status.active").len().to_string())
}

pub(super) fn last_schedule(object: &Value, now: Timestamp) -> Value {
    match at(object, "status.lastScheduleTime") {
        Some(time) => json!(age::since(Some(time), now)),
        None => json!(NONE),
    }
}

pub(super) fn scale_target(object: &Value, _: Timestamp) -> Value {
    let target = at(object, "spec.scaleTargetRef").unwrap_or(&Value::Null);
    json!(format!("{}/{}", text(target, "kind"), text(target, "name")))
}

pub(super) fn ingress_hosts(object: &Value, _: Timestamp) -> Value {
    let rules = list(object, "spec.rules").iter();
    let hosts: Vec<String> = rules
        .map(|rule| text(rule, "host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    if hosts.is_empty() {
        json!("*")
    } else {
        first_few(hosts)
    }
}

pub(super) fn ingress_ports(object: &Value, _: Timestamp) -> Value {
    if list(object, "spec.tls").is_empty() {
        json!("80")
    } else {
        json!("80, 443")
    }
}

fn balancers(object: &Value) -> Vec<String> {
    let entries = list(object, "status.loadBalancer.ingress").iter();
    entries
        .map(|entry| match text(entry, "ip") {
            "" => text(entry, "hostname").to_owned(),
            ip => ip.to_owned(),
        })
        .collect()
}

pub(super) fn balancer(object: &Value, _: Timestamp) -> Value {
    json!(balancers(object).join(","))
}

pub(super) fn role_ref(object: &Value, _: Timestamp) -> Value {
    let reference = object.get("roleRef").unwrap_or(&Value::Null);
    json!(format!(
        "{}/{}",
        text(reference, "kind"),
        text(reference, "name")
    ))
}

fn bound(object: &Value, kind: &str) -> Value {
    let subjects = list(object, "subjects").iter();
    let of_kind = subjects.filter(|subject| text(subject, "kind") == kind);
    let names = of_kind.map(|subject| match text(subject, "namespace") {
        "" => text(subject, "name").to_owned(),
        namespace => format!("{namespace}/{}", text(subject, "name")),
    });
    json!(names.collect::<Vec<_>>().join(", "))
}

pub(super) fn bound_users(object: &Value, _: Timestamp) -> Value {
    bound(object, "User")
}

pub(super) fn bound_groups(object: &Value, _: Timestamp) -> Value {
    bound(object, "Group")
}

pub(super) fn bound_accounts(object: &Value, _: Timestamp) -> Value {
    bound(object, "ServiceAccount")
}
