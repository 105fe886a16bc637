//! Reading and checking `metadata`.
//!
//! Two ways: [`Peek`] reads a stored object's metadata alone, for selectors, without the rest being
//! parsed; the free functions work on an object that is parsed anyhow.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::errors::Cause;
use super::names;
use super::object;

/// All annotations of an object together, as in a kube-apiserver: what is read with every get and
/// watched with every change must stay small.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// A text borrowed where it has no escapes.
#[derive(Debug, Deserialize, PartialEq, Eq, Hash)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// What selectors and the namespace's end look at.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Peek<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Its uid.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// Its labels.
    #[serde(borrow)]
    pub labels: HashMap<Text<'a>, Text<'a>>,
    /// When its deletion began.
    #[serde(borrow)]
    pub deletion_timestamp: Option<Cow<'a, str>>,
    /// What holds its deletion up.
    pub finalizers: Vec<String>,
}

impl<'a> Peek<'a> {
    /// Reads the metadata of a stored object and stops there.
    #[must_use]
    pub fn of(stored: &'a [u8]) -> Option<Self> {
        // The opening brace is the byte before the first field.
        let at = object::metadata_at(stored)?.checked_sub(1)?;
        let mut reader = serde_json::Deserializer::from_slice(stored.get(at..)?);
        Peek::deserialize(&mut reader).ok()
    }
}

/// The object's metadata; an object without one reads as empty.
#[must_use]
pub fn of(object: &Map<String, Value>) -> Option<&Map<String, Value>> {
    object.get("metadata").and_then(Value::as_object)
}

/// The object's metadata, made if need be.
pub fn of_mut(object: &mut Map<String, Value>) -> &mut Map<String, Value> {
    let entry = object.entry("metadata");
    let value = entry.or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("was just made an object"),
    }
}

/// A text field of the metadata; absent is empty.
#[must_use]
pub fn text<'o>(object: &'o Map<String, Value>, field: &str) -> &'o str {
    let value = of(object).and_then(|m| m.get(field));
    value.and_then(Value::as_str).unwrap_or_default()
}

/// Sets a text field of the metadata.
pub fn set(object: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    of_mut(object).insert(field.to_owned(), value.into());
}

/// The finalizers, in their order.
#[must_use]
pub fn finalizers(object: &Map<String, Value>) -> Vec<&str> {
    let list = of(object).and_then(|m| m.get("finalizers"));
    let list = list.and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Whether its deletion began.
#[must_use]
pub fn is_deleting(object: &Map<String, Value>) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// What is wrong with labels, annotations, finalizers and owners.
#[must_use]
pub fn check(object: &Map<String, Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(metadata) = of(object) else {
        return causes;
    };
    check_texts(metadata, "labels", &mut causes, |value| {
        names::is_label_value(value)
    });
    check_texts(metadata, "annotations", &mut causes, |_| true);
    check_annotations_size(metadata, &mut causes);
    if let Some(list) = metadata.get("finalizers").filter(|v| !v.is_null()) {
        let all_named = list.as_array().is_some_and(|l| {
            l.iter()
                .all(|f| f.as_str().is_some_and(names::is_qualified))
        });
        if !all_named {
            let why = "finalizers must be a list of qualified names";
            causes.push(Cause::invalid(
                "metadata.finalizers",
                &list.to_string(),
                why,
            ));
        }
    }
    check_owners(metadata, &mut causes);
    causes
}

fn check_annotations_size(metadata: &Map<String, Value>, causes: &mut Vec<Cause>) {
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    let size = |(k, v): (&String, &Value)| k.len() + v.as_str().map_or(0, str::len);
    let total: usize = annotations.into_iter().flatten().map(size).sum();
    if total > ANNOTATIONS_BYTES_MAX {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes"),
            field: "metadata.annotations".into(),
        });
    }
}

fn check_texts(
    metadata: &Map<String, Value>,
    field: &str,
    causes: &mut Vec<Cause>,
    value_ok: impl Fn(&str) -> bool,
) {
    let path = format!("metadata.{field}");
    let map = match metadata.get(field) {
        None | Some(Value::Null) => return,
        Some(Value::Object(map)) => map,
        Some(other) => {
            causes.push(Cause::invalid(
                &path,
                &other.to_string(),
                "must be a map of texts",
            ));
            return;
        }
    };
    for (key, value) in map {
        if !names::is_qualified(&key.to_ascii_lowercase()) {
            let why = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
            causes.push(Cause::invalid(&path, key, why));
        }
        match value.as_str() {
            Some(text) if value_ok(text) => {}
            Some(text) => {
                let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
                causes.push(Cause::invalid(&path, text, why));
            }
            None => causes.push(Cause::invalid(&path, &value.to_string(), "must be a text")),
        }
    }
}

fn check_owners(metadata: &Map<String, Value>, causes: &mut Vec<Cause>) {
    let owners = match metadata.get("ownerReferences") {
        None | Some(Value::Null) => return,
        Some(Value::Array(owners)) => owners,
        Some(_) => {
            let why = "must be a list";
            causes.push(Cause::invalid("metadata.ownerReferences", "", why));
            return;
        }
    };
    for (index, owner) in owners.iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            let present = owner.get(field).and_then(Value::as_str);
            if present.is_none_or(str::is_empty) {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                causes.push(Cause::required(&path, "must not be empty"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::resource::Registry;
    use super::*;
    use serde_json::json;

    #[test]
    fn peek_reads_metadata_and_nothing_else() {
        let kind = Registry::new().resolve("", "v1", "configmaps").unwrap();
        let object = json!({
            "metadata": {"name": "a", "labels": {"x": "1", "y": "q\"uote"}},
            "data": {"labels": "no"},
        });
        let stored = object::encode(&kind, object.as_object().unwrap());
        let peek = Peek::of(&stored).unwrap();
        assert_eq!(peek.name, "a");
        assert_eq!(peek.labels.get("y").unwrap().0, "q\"uote");
        assert!(peek.deletion_timestamp.is_none());
    }

    #[test]
    fn wrong_metadata_is_named_field_by_field() {
        let object = json!({"metadata": {
            "labels": {"ok": "x", "bad key": "x", "y": "-"},
            "annotations": {"n": 1},
            "finalizers": ["a b"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x"}],
        }});
        let causes = check(object.as_object().unwrap());
        let fields: Vec<_> = causes.iter().map(|c| c.field.as_str()).collect();
        let expected = [
            "metadata.labels",
            "metadata.labels",
            "metadata.annotations",
            "metadata.finalizers",
            "metadata.ownerReferences[0].uid",
        ];
        assert_eq!(fields, expected);
    }
}
