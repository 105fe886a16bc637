//! What a pod's row says: its status is the most telling of what its containers report.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cells::{at, list, number, text};

/// Whether an init container runs beside the others for the pod's whole life.
fn is_sidecar(pod: &Value, name: &str) -> bool {
    list(pod, "spec.initContainers")
        .iter()
        .any(|c| text(c, "name") == name && text(c, "restartPolicy") == "Always")
}

fn is_ready(status: &Value) -> bool {
    status.get("ready") == Some(&Value::Bool(true))
}

pub(super) fn ready(pod: &Value, _: Timestamp) -> Value {
    let sidecars = list(pod, "spec.initContainers")
        .iter()
        .filter(|c| text(c, "restartPolicy") == "Always")
        .count();
    let total = list(pod, "spec.containers").len() + sidecars;
    let own = list(pod, "status.containerStatuses").iter();
    let running = own.filter(|s| is_ready(s) && at(s, "state.running").is_some());
    let init = list(pod, "status.initContainerStatuses").iter();
    let beside = init.filter(|s| is_ready(s) && is_sidecar(pod, text(s, "name")));
    json!(format!("{}/{total}", running.count() + beside.count()))
}

/// Why a container ended, in a word.
fn ended(terminated: &Value) -> String {
    match (text(terminated, "reason"), number(terminated, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// What the first unfinished init container holds the pod up with.
fn initializing(pod: &Value) -> Option<String> {
    let statuses = list(pod, "status.initContainerStatuses");
    for (index, status) in statuses.iter().enumerate() {
        let terminated = at(status, "state.terminated");
        if terminated.is_some_and(|t| number(t, "exitCode") == 0) {
            continue;
        }
        let started = status.get("started") == Some(&Value::Bool(true));
        if started && is_sidecar(pod, text(status, "name")) {
            continue;
        }
        let waits = text(status, "state.waiting.reason");
        return Some(match terminated {
            Some(terminated) => format!("Init:{}", ended(terminated)),
            None if !waits.is_empty() && waits != "PodInitializing" => format!("Init:{waits}"),
            None => format!("Init:{index}/{}", list(pod, "spec.initContainers").len()),
        });
    }
    None
}

fn holds(pod: &Value, condition: &str) -> bool {
    list(pod, "status.conditions")
        .iter()
        .any(|c| text(c, "type") == condition && text(c, "status") == "True")
}

pub(super) fn status(pod: &Value, _: Timestamp) -> Value {
    let phase = text(pod, "status.phase");
    let own_reason = text(pod, "status.reason");
    let gated = list(pod, "status.conditions")
        .iter()
        .any(|c| text(c, "type") == "PodScheduled" && text(c, "reason") == "SchedulingGated");
    let mut word = match (gated, own_reason) {
        (true, _) => "SchedulingGated".to_owned(),
        (false, "") => phase.to_owned(),
        (false, reason) => reason.to_owned(),
    };
    let init = initializing(pod);
    if init.is_none() || holds(pod, "Initialized") {
        word = of_containers(pod, word);
    } else if let Some(init) = init {
        word = init;
    }
    if !text(pod, "metadata.deletionTimestamp").is_empty() {
        if own_reason == "NodeLost" {
            word = "Unknown".to_owned();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            word = "Terminating".to_owned();
        }
    }
    json!(word)
}

/// The word of the first container that has one, unless others still run.
fn of_containers(pod: &Value, otherwise: String) -> String {
    let mut word = otherwise;
    let mut failure = None;
    let mut any_running = false;
    for status in list(pod, "status.containerStatuses").iter().rev() {
        let waits = text(status, "state.waiting.reason");
        if !waits.is_empty() {
            waits.clone_into(&mut word);
        } else if let Some(terminated) = at(status, "state.terminated") {
            word = ended(terminated);
            if number(terminated, "exitCode") != 0 {
                failure = Some(word.clone());
            }
        } else if is_ready(status) && at(status, "state.running").is_some() {
            any_running = true;
        }
    }
    if word != "Completed" {
        return word;
    }
    match failure {
        _ if any_running && holds(pod, "Ready") => "Running".to_owned(),
        Some(failure) => failure,
        None if any_running => "NotReady".to_owned(),
        None => word,
    }
}

pub(super) fn restarts(pod: &Value, now: Timestamp) -> Value {
    let beside = list(pod, "status.initContainerStatuses").iter();
    let in_init = initializing(pod).is_some() && !holds(pod, "Initialized");
    let counted: Vec<&Value> = if in_init {
        beside.collect()
    } else {
        let own = list(pod, "status.containerStatuses").iter();
        beside
            .filter(|s| is_sidecar(pod, text(s, "name")))
            .chain(own)
            .collect()
    };
    let count: i64 = counted.iter().map(|s| number(s, "restartCount")).sum();
    // Timestamps of one format and zone: the greatest text is the latest.
    let ends = counted
        .iter()
        .filter_map(|s| at(s, "lastState.terminated.finishedAt"));
    match ends.max_by_key(|time| time.as_str()) {
        Some(last) if count > 0 => json!(format!("{count} ({} ago)", age::since(Some(last), now))),
        _ => json!(count.to_string()),
    }
}

pub(super) fn readiness_gates(pod: &Value, _: Timestamp) -> Value {
    let gates = list(pod, "spec.readinessGates");
    if gates.is_empty() {
        return json!("<none>");
    }
    let open = gates
        .iter()
        .filter(|gate| holds(pod, text(gate, "conditionType")))
        .count();
    json!(format!("{open}/{}", gates.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: &str, containers: Value, init: Value) -> Value {
        json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]},
            "status": {
                "phase": phase, "containerStatuses": containers, "initContainerStatuses": init,
            },
        })
    }

    #[test]
    fn status_is_the_most_telling_word() {
        let now = Timestamp::UNIX_EPOCH;
        let done = json!([{"name": "i", "state": {"terminated": {"exitCode": 0}}}]);
        let waits = json!([{"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        let failed = json!([{"name": "i", "state": {"terminated": {"exitCode": 2}}}]);
        let ends =
            json!([{"name": "a", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]);
        let fresh = json!([{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}]);
        let cases = [
            (pod("Pending", json!([]), json!([])), "Pending"),
            (pod("Running", waits, done.clone()), "CrashLoopBackOff"),
            (pod("Pending", json!([]), failed), "Init:ExitCode:2"),
            (pod("Pending", json!([]), fresh), "Init:0/1"),
            (pod("Succeeded", ends, done.clone()), "Completed"),
        ];
        for (pod, wanted) in cases {
            assert_eq!(status(&pod, now), wanted, "{pod}");
        }
        let mut leaving = pod("Running", json!([]), done);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(status(&leaving, now), "Terminating");
    }

    #[test]
    fn restarts_tell_when_the_last_was() {
        let containers = json!([
            {"restartCount": 2, "ready": true, "state": {"running": {}},
             "lastState": {"terminated": {"finishedAt": "2026-01-01T00:00:00Z"}}},
            {"restartCount": 0, "ready": false},
        ]);
        let running = pod("Running", containers, json!([]));
        let now = "2026-01-01T00:01:30Z".parse().expect("a time");
        assert_eq!(restarts(&running, now), "2 (90s ago)");
        assert_eq!(ready(&running, now), "1/2");
    }
}
