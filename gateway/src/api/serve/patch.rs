//! The three patch formats that are understood, and the text for the one that is not.

use http::StatusCode;
use json_patch::PatchOperation;
use serde_json::Value;

use super::body::BODY_BYTES_MAX;
use super::strategic;
use crate::api::errors;
use crate::api::merge::Shape;
use crate::api::object::{self, DEPTH_MAX};
use crate::api::resource::ResourceKind;
use crate::api::storage::{Object, Target};
use crate::status::{Refusal, Stage};

/// Operations of one JSON patch, as in a kube-apiserver.
const OPERATIONS_MAX: usize = 10_000;

/// Levels an object may pass through while a patch is applied; what comes out is held to
/// [`DEPTH_MAX`] like any object.
const REACH_MAX: usize = 4 * DEPTH_MAX;

/// A patch, read once and applied to each state that it meets.
#[derive(Debug)]
pub(crate) enum Patch {
    /// RFC 6902.
    Json(json_patch::Patch),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own, by the kind's merge keys.
    Strategic(Object, &'static Shape),
}

impl Patch {
    /// Reads a patch of the media type given.
    ///
    /// # Errors
    /// 415 for a type that the kind cannot be patched by, 400 for what cannot be read.
    pub(crate) fn read(kind: &ResourceKind, media: &str, bytes: &[u8]) -> Result<Self, Refusal> {
        match media {
            "application/json-patch+json" => {
                let patch: json_patch::Patch = parse(bytes)?;
                if patch.len() > OPERATIONS_MAX {
                    return Err(errors::too_large(OPERATIONS_MAX));
                }
                Ok(Patch::Json(patch))
            }
            "application/merge-patch+json" => Ok(Patch::Merge(parse(bytes)?)),
            "application/strategic-merge-patch+json" => match kind.merge {
                Some(shape) => Ok(Patch::Strategic(parse(bytes)?, shape)),
                None => Err(errors::unsupported_media_type(format!(
                    "{} has no merge keys for a strategic merge patch; accepted media types: application/json-patch+json, application/merge-patch+json",
                    kind.qualified()
                ))),
            },
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                Err(errors::unsupported_media_type(
                    "server-side apply is not served here: field ownership is not kept; apply on the client's side (kubectl apply without --server-side)",
                ))
            }
            other => Err(errors::unsupported_media_type(format!(
                "the body of the request was in an unknown format: media type \"{other}\"; accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json"
            ))),
        }
    }

    /// What the patch makes of an object.
    ///
    /// # Errors
    /// 422 when it does not fit the object.
    pub(crate) fn apply(&self, target: Target<'_>, old: &Object) -> Result<Object, Refusal> {
        let mut new = Value::Object(old.clone());
        match self {
            Patch::Json(patch) => {
                apply_json(&mut new, patch).map_err(|why| refuse(target, &why))?
            }
            Patch::Merge(patch) => json_patch::merge(&mut new, patch),
            Patch::Strategic(patch, shape) => {
                let mut merged = old.clone();
                strategic::merge(&mut merged, patch, shape).map_err(|why| refuse(target, &why))?;
                new = Value::Object(merged);
            }
        }
        match new {
            Value::Object(object) => Ok(object),
            _ => Err(refuse(target, "the patch leaves no object")),
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| errors::bad_request(format!("error decoding patch: {error}")))
}

/// Applies all operations or none. Copies are counted, since a few of them double an object again
/// and again; so is depth, since a value is taken apart by recursion, on a stack.
fn apply_json(object: &mut Value, patch: &json_patch::Patch) -> Result<(), String> {
    let mut copied = 0;
    let mut reach = object::depth(object);
    for operation in patch.iter() {
        reach = reach.max(reach_of(operation, reach));
        if reach > REACH_MAX {
            // Moves back and forth make it seem deeper than it is.
            reach = reach_of(operation, object::depth(object));
        }
        if reach > REACH_MAX {
            return Err(format!(
                "the patch nests too deeply: the limit is {DEPTH_MAX} levels"
            ));
        }
        if let PatchOperation::Copy(copy) = operation {
            let from = object.pointer(copy.from.as_str());
            copied += from.map_or(0, |value| value.to_string().len());
            if copied > BODY_BYTES_MAX {
                return Err("the patch's copies are too large".into());
            }
        }
        json_patch::patch(object, std::slice::from_ref(operation)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// How deep an operation may leave an object that is no deeper than `depth`.
fn reach_of(operation: &PatchOperation, depth: usize) -> usize {
    let inside = match operation {
        PatchOperation::Add(add) => object::depth(&add.value),
        PatchOperation::Replace(replace) => object::depth(&replace.value),
        PatchOperation::Copy(_) | PatchOperation::Move(_) => depth,
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return depth,
    };
    depth.max(operation.path().count() + inside)
}

fn refuse(target: Target<'_>, why: &str) -> Refusal {
    let message = format!(
        "{} \"{}\" could not be patched: {why}",
        target.kind.qualified(),
        target.name
    );
    Refusal::new(
        Stage::Api,
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        message,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::resource::Registry;
    use serde_json::json;

    #[test]
    fn formats_are_told_apart() {
        let registry = Registry::new();
        let kind = registry.resolve("", "v1", "configmaps").unwrap();
        let mut custom = ResourceKind::clone(&kind);
        custom.merge = None;
        let strategic = "application/strategic-merge-patch+json";
        assert!(Patch::read(&kind, strategic, b"{}").is_ok());
        for (kind, media) in [
            (&custom, strategic),
            (&*kind, "application/apply-patch+yaml"),
        ] {
            let refused = Patch::read(kind, media, b"{}").unwrap_err();
            assert_eq!(
                (refused.code.as_u16(), refused.reason),
                (415, "UnsupportedMediaType")
            );
        }
    }

    #[test]
    fn copies_cannot_grow_without_bound() {
        let copy = json!({"op": "copy", "from": "/a", "path": "/a/b"});
        let patch: json_patch::Patch = serde_json::from_value(json!(vec![copy; 200])).unwrap();
        let mut object = json!({"a": {"x": "y".repeat(1000)}});
        assert!(
            apply_json(&mut object, &patch)
                .unwrap_err()
                .contains("copies")
        );
    }
}
