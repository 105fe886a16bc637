//! What the server itself writes into an object, and what it does not let a client change.
//!
//! These are the rules that hold for every kind, and the few that the built-in kinds need to be of
//! use as plain storage: a secret's `stringData`, a namespace's finalizer, phases. Everything else
//! that a kube-apiserver fills in or checks in the built-in kinds' specs is left as the client
//! wrote it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Object, Part, Sources, Target};
use crate::api::errors::{self, Cause};
use crate::api::meta;
use crate::api::names;
use crate::api::object::{DEPTH_MAX, depth_of};
use crate::api::resource::{Generation, ResourceKind};
use crate::api::seek;
use crate::status::Refusal;

/// What a namespace holds on to until its content is gone.
pub(crate) const NAMESPACE_FINALIZER: &str = "kubernetes";
/// The label every namespace has its name in.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";
/// What the server alone writes into `metadata`.
const SYSTEM_METADATA: [&str; 6] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Whether it is the kind of that group and plural.
pub(crate) fn is(kind: &ResourceKind, group: &str, plural: &str) -> bool {
    kind.group == group && kind.plural == plural
}

fn is_namespace(kind: &ResourceKind) -> bool {
    is(kind, "", "namespaces")
}

/// Makes a new object of what a client sent; its name comes in [`finish_create`].
pub(super) fn create(
    target: Target<'_>,
    mut object: Object,
    sources: &Sources,
) -> Result<Object, Refusal> {
    let kind = target.kind;
    if !matches!(meta::text(&object, "resourceVersion"), "" | "0") {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(errors::bad_request(message));
    }
    let has_name = ["name", "generateName"].map(|f| meta::text(&object, f));
    if has_name.iter().all(|name| name.is_empty()) {
        let cause = Cause::required("metadata.name", "name or generateName is required");
        return Err(errors::invalid(kind, "", &[cause]));
    }
    let metadata = meta::of_mut(&mut object);
    drop_nulls(metadata);
    for field in SYSTEM_METADATA.iter().skip(1).chain(&["generation"]) {
        metadata.remove(*field);
    }
    metadata.insert("uid".into(), sources.uid().into());
    metadata.insert("creationTimestamp".into(), sources.timestamp().into());
    if kind.is_namespaced() {
        metadata.insert("namespace".into(), target.namespace.into());
    }
    if kind.generation == Generation::Spec {
        metadata.insert("generation".into(), 1.into());
    }
    if kind.has_status {
        object.remove("status");
    }
    Ok(object)
}

/// The kind's own touches on a new object that has its name, and its checks.
pub(super) fn finish_create(
    kind: &ResourceKind,
    name: &str,
    object: &mut Object,
) -> Result<(), Refusal> {
    if is_namespace(kind) {
        object.insert("spec".into(), json!({"finalizers": [NAMESPACE_FINALIZER]}));
        object.insert("status".into(), json!({"phase": "Active"}));
    } else if is(kind, "", "pods") {
        object.insert("status".into(), json!({"phase": "Pending"}));
    }
    settle(kind, name, object);
    let mut causes: Vec<Cause> = names::check(kind, name).into_iter().collect();
    validate(kind, object, &mut causes);
    refuse(kind, name, &causes)?;
    check_depth(object)
}

/// Makes `new` what may follow on `old`.
pub(super) fn update(
    target: Target<'_>,
    part: Part,
    old: &Object,
    new: &mut Object,
) -> Result<(), Refusal> {
    let kind = target.kind;
    let mut causes = Vec::new();
    keep_other_parts(kind, part, old, new);
    drop_nulls(meta::of_mut(new));
    for field in SYSTEM_METADATA {
        keep(meta::of(old), meta::of_mut(new), field);
    }
    keep(meta::of(old), meta::of_mut(new), "generation");
    settle(kind, target.name, new);
    if meta::is_deleting(old) {
        let held = meta::finalizers(old);
        if meta::finalizers(new).iter().any(|f| !held.contains(f)) {
            let why = "no new finalizers can be added if the object is being deleted";
            causes.push(Cause::forbidden("metadata.finalizers", why));
        }
    }
    check_immutable(kind, old, new, &mut causes);
    validate(kind, new, &mut causes);
    refuse(kind, target.name, &causes)?;
    check_depth(new)?;
    if kind.generation == Generation::Spec && !same_spec(kind, old, new) {
        raise_generation(new);
    }
    Ok(())
}

/// One more.
pub(super) fn raise_generation(object: &mut Object) {
    let metadata = meta::of_mut(object);
    let now = metadata.get("generation").and_then(Value::as_i64);
    metadata.insert(
        "generation".into(),
        now.unwrap_or(0).saturating_add(1).into(),
    );
}

/// The last word on what is about to be stored: nobody could read an object beyond the bound again,
/// whichever way (a patch, a default of a schema) it became one.
fn check_depth(object: &Object) -> Result<(), Refusal> {
    if depth_of(object) > DEPTH_MAX {
        let message = format!("the object is nested too deeply: the limit is {DEPTH_MAX} levels");
        return Err(errors::bad_request(message));
    }
    Ok(())
}

fn refuse(kind: &ResourceKind, name: &str, causes: &[Cause]) -> Result<(), Refusal> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(errors::invalid(kind, name, causes))
    }
}

fn keep(old: Option<&Map<String, Value>>, new: &mut Map<String, Value>, field: &str) {
    match old.and_then(|old| old.get(field)) {
        Some(value) => new.insert(field.to_owned(), value.clone()),
        None => new.remove(field),
    };
}

/// A null is an absent field, as `labels:` with nothing behind it is in many a manifest.
fn drop_nulls(metadata: &mut Map<String, Value>) {
    metadata.retain(|_, value| !value.is_null());
}

/// Takes from the old object what a write of this part does not reach.
fn keep_other_parts(kind: &ResourceKind, part: Part, old: &Object, new: &mut Object) {
    match part {
        Part::Main => {
            if kind.has_status {
                keep(Some(old), new, "status");
            }
            if is_namespace(kind) {
                keep(Some(old), new, "spec");
            }
        }
        Part::Status => {
            let status = new.remove("status");
            let metadata = new.remove("metadata");
            *new = old.clone();
            // The core kinds' agents write labels and annotations along with the status.
            if let (true, Some(metadata)) = (kind.group.is_empty(), metadata) {
                new.insert("metadata".into(), metadata);
            }
            match status {
                Some(status) => new.insert("status".into(), status),
                None => new.remove("status"),
            };
        }
        Part::Finalizers => {
            let finalizers = seek::value(new, "spec.finalizers").cloned();
            *new = old.clone();
            seek::put(
                new,
                "spec.finalizers",
                finalizers.unwrap_or_else(|| json!([])),
            );
        }
        Part::Internal => {}
    }
}

/// Conversions of what is written for convenience into what is stored.
fn settle(kind: &ResourceKind, name: &str, object: &mut Object) {
    if is(kind, "", "secrets") {
        if let Some(Value::Object(texts)) = object.remove("stringData") {
            let data = object.entry("data").or_insert_with(|| json!({}));
            for (key, text) in texts {
                let encoded = STANDARD.encode(text.as_str().unwrap_or_default());
                if let Some(data) = data.as_object_mut() {
                    data.insert(key, encoded.into());
                }
            }
        }
        object.entry("type").or_insert_with(|| "Opaque".into());
    } else if is_namespace(kind) {
        let labels = meta::of_mut(object)
            .entry("labels")
            .or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(NAMESPACE_LABEL.into(), name.into());
        }
    } else if kind.scale.is_some()
        && !kind.is_custom
        && object.get("spec").is_some_and(Value::is_object)
        && seek::value(object, "spec.replicas").is_none_or(Value::is_null)
    {
        seek::put(object, "spec.replicas", 1.into());
    }
}

fn validate(kind: &ResourceKind, object: &mut Object, causes: &mut Vec<Cause>) {
    causes.extend(meta::check(object));
    if is(kind, "", "secrets") || is(kind, "", "configmaps") {
        check_data(kind, object, causes);
    }
    if let Some(schema) = &kind.schema {
        let mut value = Value::Object(std::mem::take(object));
        causes.extend(schema(&mut value));
        if let Value::Object(checked) = value {
            *object = checked;
        }
    }
}

/// Keys are file names; values are texts, in base64 where they stand for bytes.
fn check_data(kind: &ResourceKind, object: &Object, causes: &mut Vec<Cause>) {
    for (field, is_bytes) in [("data", kind.plural == "secrets"), ("binaryData", true)] {
        let map = match object.get(field) {
            None | Some(Value::Null) => continue,
            Some(Value::Object(map)) => map,
            // Typed clients could not read it, nor any list that it is in.
            Some(other) => {
                causes.push(Cause::invalid(field, &other.to_string(), "must be a map"));
                continue;
            }
        };
        for (key, value) in map {
            let path = format!("{field}[{key}]");
            let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if key.is_empty() || key.len() > 253 || !key.bytes().all(fits) || key == ".." {
                let why =
                    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
                causes.push(Cause::invalid(&path, key, why));
            }
            match value.as_str() {
                Some(text) if is_bytes && STANDARD.decode(text).is_err() => {
                    causes.push(Cause::invalid(&path, text, "must be base64"));
                }
                Some(_) => {}
                None => causes.push(Cause::invalid(&path, &value.to_string(), "must be a text")),
            }
        }
    }
}

fn check_immutable(kind: &ResourceKind, old: &Object, new: &Object, causes: &mut Vec<Cause>) {
    let mut fixed: Vec<(&str, &str)> = Vec::new();
    if is(kind, "", "secrets") {
        fixed.push(("type", "field is immutable"));
    }
    if kind.group == "rbac.authorization.k8s.io" {
        fixed.push(("roleRef", "cannot change roleRef"));
    }
    let is_sealed = old.get("immutable") == Some(&Value::Bool(true));
    if is_sealed && (is(kind, "", "secrets") || is(kind, "", "configmaps")) {
        let why = "field is immutable when `immutable` is set";
        fixed.extend([("data", why), ("binaryData", why), ("immutable", why)]);
    }
    for (field, why) in fixed {
        if old.get(field) != new.get(field) {
            causes.push(Cause::forbidden(field, why));
        }
    }
}

/// Whether everything but metadata, and status where it is a part of its own, is the same.
fn same_spec(kind: &ResourceKind, old: &Object, new: &Object) -> bool {
    let outside = |name: &str| {
        matches!(name, "metadata" | "kind" | "apiVersion") || (kind.has_status && name == "status")
    };
    let inside = |object: &Object| -> usize { object.keys().filter(|k| !outside(k)).count() };
    inside(old) == inside(new)
        && old
            .iter()
            .filter(|(name, _)| !outside(name))
            .all(|(name, value)| new.get(name) == Some(value))
}
