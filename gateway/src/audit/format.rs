//! Events as lines of `audit.k8s.io/v1` JSON.
//!
//! The URI is written as it came: secrets do not belong in URIs, and Kubernetes puts none there.
//! Header values other than the user agent are never written.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::event::{AdminChange, Event};
use crate::identity::UserInfo;

/// An event as one line, without its end.
pub(super) fn line(event: &Event) -> Value {
    let mut out = Map::new();
    out.insert("kind".into(), "Event".into());
    out.insert("apiVersion".into(), "audit.k8s.io/v1".into());
    out.insert("level".into(), "Metadata".into());
    out.insert("auditID".into(), event.id.to_string().into());
    out.insert("stage".into(), "ResponseComplete".into());
    match (&event.info, event.raw.as_deref()) {
        (Some(info), _) => {
            out.insert("requestURI".into(), info.uri().as_str().into());
            out.insert("verb".into(), info.verb_name().into());
            if info.is_resource() {
                out.insert("objectRef".into(), object_ref(info));
            }
        }
        (None, Some((method, uri))) => {
            out.insert("requestURI".into(), uri.as_str().into());
            out.insert("verb".into(), method.to_lowercase().into());
        }
        (None, None) => {}
    }
    // With `--as`, `user` is who really made it, as in a kube-apiserver's audit.
    match (&event.user, &event.impersonator) {
        (Some(user), None) => out.insert("user".into(), user_json(user)),
        (Some(target), Some(real)) => {
            out.insert("impersonatedUser".into(), user_json(target));
            out.insert("user".into(), user_json(real))
        }
        (None, _) => out.insert("user".into(), json!({})),
    };
    out.insert("sourceIPs".into(), json!([event.source.ip().to_string()]));
    if let Some(agent) = event.user_agent.as_ref().and_then(|v| v.to_str().ok()) {
        out.insert("userAgent".into(), agent.into());
    }
    out.insert(
        "responseStatus".into(),
        json!({ "metadata": {}, "code": event.code }),
    );
    out.insert(
        "requestReceivedTimestamp".into(),
        timestamp(event.received).into(),
    );
    out.insert(
        "stageTimestamp".into(),
        timestamp(event.received + event.took).into(),
    );
    out.insert("annotations".into(), annotations(event));
    Value::Object(out)
}

/// A change by an operator as one line, without its end.
pub(super) fn admin_line(change: &AdminChange) -> Value {
    let sources: Vec<String> = change.source.iter().map(|s| s.ip().to_string()).collect();
    json!({
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": uuid::Uuid::new_v4().to_string(),
        "stage": "ResponseComplete",
        "requestURI": change.path,
        "verb": change.verb,
        "user": { "username": change.user, "groups": change.groups },
        "sourceIPs": sources,
        "responseStatus": { "metadata": {}, "code": change.code },
        "requestReceivedTimestamp": timestamp(change.at),
        "stageTimestamp": timestamp(change.at),
        "annotations": {
            "sluice.io/admin-target": change.target,
            "sluice.io/admin-reason": change.reason,
        },
    })
}

fn object_ref(info: &crate::request::RequestInfo) -> Value {
    let mut out = Map::new();
    for (field, text) in [
        ("resource", info.resource()),
        ("namespace", info.namespace()),
        ("name", info.name()),
        ("apiGroup", info.group()),
        ("apiVersion", info.version()),
        ("subresource", info.subresource()),
    ] {
        if !text.is_empty() {
            out.insert(field.into(), text.into());
        }
    }
    Value::Object(out)
}

fn user_json(user: &UserInfo) -> Value {
    let mut out = Map::new();
    out.insert("username".into(), user.name.as_str().into());
    if !user.uid.is_empty() {
        out.insert("uid".into(), user.uid.as_str().into());
    }
    out.insert("groups".into(), json!(user.groups));
    if !user.extra.is_empty() {
        let extra: Map<String, Value> = user
            .extra
            .iter()
            .map(|(k, v)| (k.clone(), json!(v)))
            .collect();
        out.insert("extra".into(), Value::Object(extra));
    }
    Value::Object(out)
}

fn annotations(event: &Event) -> Value {
    let facts = &event.facts;
    let mut out = Map::new();
    let mut put = |name: &str, text: Option<String>| {
        if let Some(text) = text {
            out.insert(format!("sluice.io/{name}"), text.into());
        }
    };
    put("cluster", facts.cluster.as_deref().map(str::to_owned));
    put("endpoint", facts.endpoint.as_deref().map(str::to_owned));
    put(
        "attempts",
        (facts.attempts > 1).then(|| facts.attempts.to_string()),
    );
    put("rule", facts.rule.as_deref().map(str::to_owned));
    put("refused-by", facts.refused_by.map(str::to_owned));
    put(
        "would-refuse",
        (!facts.would_refuse.is_empty()).then(|| facts.would_refuse.join(",")),
    );
    put("response-bytes", Some(event.sent.to_string()));
    put(
        "latency-seconds",
        Some(format!("{:.6}", event.head_took.as_secs_f64())),
    );
    put("broken-off", event.broken.then(|| "true".to_owned()));
    Value::Object(out)
}

/// RFC 3339 with microseconds, as `metav1.MicroTime`.
fn timestamp(since_epoch: Duration) -> String {
    let micros = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
