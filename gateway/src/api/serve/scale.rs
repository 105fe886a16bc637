//! The scale subresource: one number of an object, as an `autoscaling/v1` Scale.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::body::{self, Expected, FieldValidation};
use super::patch::Patch;
use super::{Call, form};
use crate::api::errors::{self, Cause};
use crate::api::meta;
use crate::api::object;
use crate::api::protobuf::TypeMeta;
use crate::api::resource::Scale;
use crate::api::seek;
use crate::api::storage::{Object, Part, Stored};
use crate::body::Body;
use crate::request::Verb;
use crate::status::Refusal;

const SCALE: Expected<'static> = Expected::Other(TypeMeta {
    api_version: "autoscaling/v1",
    kind: "Scale",
});

/// Get, update or patch of a scale.
pub(crate) async fn serve(call: Call<'_>, body: Body) -> Result<Response<Body>, Refusal> {
    let Some(scale) = &call.kind.scale else {
        return Err(errors::no_such_path());
    };
    let storage = call.server.storage();
    let stored = match call.info.verb() {
        Verb::Get => storage.get(call.target())?,
        Verb::Update => {
            let bytes = body::collect(body).await?;
            let sent = body::decode(call.headers, &bytes, FieldValidation::Ignore, SCALE)?.object;
            write(&call, scale, |_| Ok(sent.clone())).await?
        }
        Verb::Patch => {
            let bytes = body::collect(body).await?;
            let patch = Patch::read(call.kind, body::media_type(call.headers), &bytes)?;
            write(&call, scale, |shown| patch.apply(call.target(), shown)).await?
        }
        _ => return Err(errors::method_not_allowed(call.kind, call.info.verb_name())),
    };
    let whole = object::decode(call.kind, &stored.value, stored.revision);
    let whole = whole.ok_or_else(|| errors::internal("stored value is not an object"))?;
    let shown = Value::Object(show(scale, &whole)).to_string();
    Ok(form::json(StatusCode::OK, Body::from(shown.into_bytes())))
}

async fn write(
    call: &Call<'_>,
    scale: &Scale,
    next: impl Fn(&Object) -> Result<Object, Refusal>,
) -> Result<Stored, Refusal> {
    let check = |_: &Object| Ok(());
    let options = call.write_options(&check)?;
    let change = |old: &Object| {
        let wanted = next(&show(scale, old))?;
        let mut new = old.clone();
        // An empty version is "whatever is there"; the present one is never refused.
        let version = meta::text(&wanted, "resourceVersion");
        if !version.is_empty() {
            meta::set(&mut new, "resourceVersion", version);
        }
        let replicas = seek::value(&wanted, "spec.replicas").and_then(Value::as_i64);
        let replicas = replicas.unwrap_or(0);
        if replicas < 0 {
            let why = "must be greater than or equal to 0";
            let cause = Cause::invalid("spec.replicas", &replicas.to_string(), why);
            let name = call.info.name();
            return Err(errors::invalid_as("autoscaling", "Scale", name, &[cause]));
        }
        seek::put(&mut new, &scale.spec_replicas, replicas.into());
        Ok(new)
    };
    call.server
        .storage()
        .update(call.target(), Part::Main, options, change)
        .await
}

/// The scale of an object.
fn show(scale: &Scale, object: &Object) -> Object {
    let count = |path: &str| {
        seek::value(object, path)
            .and_then(Value::as_i64)
            .unwrap_or(0)
    };
    let mut metadata = serde_json::Map::new();
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        let text = meta::text(object, field);
        if !text.is_empty() {
            metadata.insert(field.into(), text.into());
        }
    }
    let mut status = json!({"replicas": count(&scale.status_replicas)});
    let selector = seek::value(object, &scale.selector).map(selector_text);
    if let (Some(map), Some(text)) = (status.as_object_mut(), selector) {
        map.insert("selector".into(), text.into());
    }
    let shown = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": count(&scale.spec_replicas)},
        "status": status,
    });
    shown.as_object().cloned().unwrap_or_default()
}

/// A selector as text: as it is, or made of a label selector object or a plain map.
fn selector_text(selector: &Value) -> String {
    let Some(map) = selector.as_object() else {
        return selector.as_str().unwrap_or_default().to_owned();
    };
    let is_plain = !map.contains_key("matchLabels") && !map.contains_key("matchExpressions");
    let labels = if is_plain {
        Some(map)
    } else {
        map.get("matchLabels").and_then(Value::as_object)
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut terms: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    let expressions = map.get("matchExpressions").and_then(Value::as_array);
    for expression in expressions.into_iter().flatten() {
        let key = expression.get("key").map(text).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_array);
        let values: Vec<String> = values.into_iter().flatten().map(text).collect();
        let values = values.join(",");
        terms.push(match expression.get("operator").and_then(Value::as_str) {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key,
        });
    }
    terms.join(",")
}
