//! Stored objects: what is encoded is read back whole, spliced out whole, and what is read without
//! parsing it is what parsing finds.

use std::sync::Arc;

use serde_json::{Map, Value};
use sluice_gateway::api::meta::Peek;
use sluice_gateway::api::object::{self, Opening};
use sluice_gateway::api::resource::{Registry, ResourceKind};
use sluice_gateway::api::seek;
use sluice_metastore::Revision;

use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

const SHAPE: Shape = Shape {
    cuts: b"{}[]:,\"",
    words: &[
        "\"metadata\"",
        "\"labels\"",
        "\"a\"",
        "\"name\"",
        "\"uid\"",
        "\"finalizers\"",
        "\"resourceVersion\"",
        "\"managedFields\"",
        "\"deletionTimestamp\"",
        "\"kind\"",
        "\"apiVersion\"",
        "\"spec\"",
        "{}",
        "[]",
        "null",
        "true",
        "1",
        "-0",
        "1e9",
        "1.5",
        "18446744073709551615",
        "\"\\u0000\"",
        "\"\\ud83d\\ude00\"",
        "{\"a\":1}",
        "\",\\\"metadata\\\":{\"",
    ],
    bytes_max: 1000,
};

pub(crate) fn target() -> Target {
    let kind = Registry::new()
        .resolve("apps", "v1", "deployments")
        .unwrap();
    Target {
        name: "object",
        shape: SHAPE,
        seeds: Vec::new(),
        check: Box::new(move |input| check(&kind, input)),
    }
}

fn check(kind: &Arc<ResourceKind>, input: &[u8]) -> Result<Verdict, String> {
    let Ok(object) = serde_json::from_slice::<Map<String, Value>>(input) else {
        return Ok(Verdict::Refused);
    };
    let stored = object::encode(kind, &object);
    let expected = expected(kind, object);
    let differs = |what: &str, found: &str| {
        let expected = Value::Object(expected.clone());
        Err(format!("{what}: {found} and not {expected}"))
    };
    let revision = Revision::new(7);
    let decoded = object::decode(kind, &stored, revision).ok_or("it is not read back")?;
    if decoded != expected {
        return differs("read back", &Value::Object(decoded).to_string());
    }
    let mut spliced = Vec::new();
    if !Opening::alone(kind).splice(&mut spliced, &stored, revision) {
        return Err("it is not spliced".to_owned());
    }
    if serde_json::from_slice::<Map<String, Value>>(&spliced)
        .ok()
        .as_ref()
        != Some(&expected)
    {
        return differs("spliced", &String::from_utf8_lossy(&spliced));
    }
    check_seek(&stored)?;
    check_peek(&stored, &expected)?;
    Ok(Verdict::Accepted)
}

/// The object as it must come out.
fn expected(kind: &ResourceKind, mut object: Map<String, Value>) -> Map<String, Value> {
    let metadata = object.remove("metadata");
    let mut metadata = match metadata {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    for dropped in ["managedFields", "selfLink"] {
        metadata.remove(dropped);
    }
    metadata.insert("resourceVersion".to_owned(), "7".into());
    object.insert("metadata".to_owned(), Value::Object(metadata));
    object.insert("kind".to_owned(), kind.kind.to_string().into());
    object.insert("apiVersion".to_owned(), kind.api_version().into());
    object
}

/// Single values, against a parse of the whole.
fn check_seek(stored: &[u8]) -> Result<(), String> {
    let whole: Map<String, Value> = serde_json::from_slice(stored).unwrap();
    let mut paths = vec!["metadata.name".to_owned(), "spec.a.b".to_owned()];
    for (key, value) in &whole {
        paths.push(key.clone());
        let inner = value.as_object().into_iter().flatten();
        paths.extend(inner.map(|(inner, _)| format!("{key}.{inner}")));
    }
    for path in paths {
        let mut value = Some(&Value::Null);
        for (n, part) in path.split('.').filter(|part| !part.is_empty()).enumerate() {
            value = match n {
                0 => whole.get(part),
                _ => value.and_then(|value| value.as_object()?.get(part)),
            };
        }
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            Some(plain @ (Value::Bool(_) | Value::Number(_))) => plain.to_string(),
            _ => String::new(),
        };
        let found = seek::text(stored, &seek::path(&path));
        if found != text {
            return Err(format!("{path} reads {found:?} and is {text:?}"));
        }
    }
    Ok(())
}

/// What selectors see, against the parsed metadata, where that has the types it must have.
fn check_peek(stored: &[u8], object: &Map<String, Value>) -> Result<(), String> {
    let metadata = &object["metadata"];
    let text = |field: &str| match metadata.get(field) {
        None => Some(""),
        Some(value) => value.as_str(),
    };
    let labels = match metadata.get("labels") {
        None => Some(Vec::new()),
        Some(Value::Object(labels)) => labels
            .iter()
            .map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect(),
        Some(_) => None,
    };
    let peek = Peek::of(stored);
    let (Some(labels), Some(name), Some(peek)) = (labels, text("name"), peek) else {
        return Ok(());
    };
    let mut found: Vec<(&str, &str)> = peek.labels.iter().map(|(k, v)| (&*k.0, &*v.0)).collect();
    found.sort_unstable();
    let mut labels = labels;
    labels.sort_unstable();
    if found != labels || peek.name != name {
        return Err(format!("seen as {} with {found:?}: {metadata}", peek.name));
    }
    Ok(())
}
