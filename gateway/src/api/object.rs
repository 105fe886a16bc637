//! How objects are written into the store, and how they leave it without being parsed.
//!
//! A stored object is JSON that begins `{"kind":K,"apiVersion":V,"metadata":{`, without
//! `resourceVersion`: that is the store's own mod revision, spliced in right behind that opening on
//! the way out. Neither kind nor version can hold a quote, so the first `,"metadata":{` is the one.
//! In the place of the opening goes that of the version asked for, so that versions without a
//! conversion between them are served from the same bytes.
//!
//! It does not know whether an object is right, only where its parts are.

use bytes::Bytes;
use serde_json::{Map, Value};
use sluice_metastore::Revision;

use super::resource::ResourceKind;

/// `metadata` fields in the order of the API's own types; others follow them.
const METADATA_ORDER: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];
/// Never stored: the first is the store's, the others are of no use here.
const METADATA_DROPPED: [&str; 3] = ["resourceVersion", "managedFields", "selfLink"];
/// Levels of lists and maps in an object. The parser reads 127 and no more: a deeper object could
/// be stored and then neither be changed nor deleted.
pub const DEPTH_MAX: usize = 120;
/// What ends a stored object's opening.
const METADATA_OPENS: &[u8] = b",\"metadata\":{";
/// An opening is two short words; a value that has none by here was not written by this API.
const OPENING_MAX: usize = 1024;

/// How many levels of lists and maps a value has; plain values have none.
#[must_use]
pub fn depth(value: &Value) -> usize {
    let inside: usize = match value {
        Value::Array(list) => list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => map.values().map(depth).max().unwrap_or(0),
        _ => return 0,
    };
    inside + 1
}

/// The levels of a whole object.
#[must_use]
pub fn depth_of(object: &Map<String, Value>) -> usize {
    object.values().map(depth).max().unwrap_or(0) + 1
}

/// Writes an object as it is stored.
#[must_use]
pub fn encode(kind: &ResourceKind, object: &Map<String, Value>) -> Bytes {
    let mut out = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{{",
        kind.kind,
        kind.api_version()
    )
    .into_bytes();
    let empty = Map::new();
    let metadata = object.get("metadata").and_then(Value::as_object);
    let metadata = metadata.unwrap_or(&empty);
    let mut first = true;
    for name in METADATA_ORDER {
        if let Some(value) = metadata.get(name) {
            put_field(&mut out, &mut first, name, value);
        }
    }
    for (name, value) in metadata {
        let name = name.as_str();
        if !METADATA_ORDER.contains(&name) && !METADATA_DROPPED.contains(&name) {
            put_field(&mut out, &mut first, name, value);
        }
    }
    out.push(b'}');
    first = false;
    for (name, value) in body_order(object) {
        put_field(&mut out, &mut first, name, value);
    }
    out.push(b'}');
    Bytes::from(out)
}

/// Top-level fields but the opening's, `spec` first and `status` last as people expect them.
fn body_order(object: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let rank = |name: &str| match name {
        "spec" => 0,
        "status" => 2,
        _ => 1,
    };
    let mut fields: Vec<_> = object
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion" | "metadata"))
        .collect();
    fields.sort_by_key(|(name, _)| rank(name));
    fields.into_iter()
}

fn put_field(out: &mut Vec<u8>, first: &mut bool, name: &str, value: &Value) {
    if !std::mem::take(first) {
        out.push(b',');
    }
    out.extend_from_slice(Value::from(name).to_string().as_bytes());
    out.push(b':');
    out.extend_from_slice(value.to_string().as_bytes());
}

/// Where `metadata`'s first field begins in a stored object; `None` if it was not written by
/// [`encode`].
#[must_use]
pub fn metadata_at(stored: &[u8]) -> Option<usize> {
    let head = stored.get(..stored.len().min(OPENING_MAX))?;
    if !head.starts_with(b"{\"kind\":\"") {
        return None;
    }
    let opens = METADATA_OPENS.len();
    let at = head.windows(opens).position(|w| w == METADATA_OPENS)?;
    Some(at + opens)
}

/// How objects of a kind begin on their way out.
#[derive(Clone, Debug)]
pub struct Opening(Vec<u8>);

impl Opening {
    /// Of an object by itself: with kind and version.
    #[must_use]
    pub fn alone(kind: &ResourceKind) -> Self {
        Opening(
            format!(
                "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{{",
                kind.kind,
                kind.api_version()
            )
            .into_bytes(),
        )
    }

    /// Of an item in a list: items of built-in lists have neither kind nor version.
    #[must_use]
    pub fn item(kind: &ResourceKind) -> Self {
        if kind.is_custom {
            Opening::alone(kind)
        } else {
            Opening(b"{\"metadata\":{".to_vec())
        }
    }

    /// Appends a stored object with its resource version. Nothing is appended and `false` answered
    /// for a value that this API did not write.
    pub fn splice(&self, out: &mut Vec<u8>, stored: &[u8], revision: Revision) -> bool {
        let Some(rest) = metadata_at(stored).and_then(|at| stored.get(at..)) else {
            return false;
        };
        out.reserve(self.0.len() + 48 + rest.len());
        out.extend_from_slice(&self.0);
        // What a dry run made has no version.
        if revision != Revision::ZERO {
            out.extend_from_slice(b"\"resourceVersion\":\"");
            put_number(out, revision.get());
            out.push(b'"');
            if !rest.starts_with(b"}") {
                out.push(b',');
            }
        }
        out.extend_from_slice(rest);
        true
    }
}

/// Appends a decimal number.
pub fn put_number(out: &mut Vec<u8>, number: u64) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    let mut rest = number;
    for (index, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        at = index;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// Reads a stored object whole, its resource version in place and its version the one asked for.
#[must_use]
pub fn decode(
    kind: &ResourceKind,
    stored: &[u8],
    revision: Revision,
) -> Option<Map<String, Value>> {
    let mut object: Map<String, Value> = serde_json::from_slice(stored).ok()?;
    object.insert("apiVersion".into(), kind.api_version().into());
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("resourceVersion".into(), revision.to_string().into());
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::super::resource::Registry;
    use super::*;
    use serde_json::json;

    fn sample() -> (std::sync::Arc<ResourceKind>, Map<String, Value>) {
        let kind = Registry::new()
            .resolve("apps", "v1", "deployments")
            .unwrap();
        // A field that looks like the splice's landmark must not be taken for it.
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "annotations": {"a": ",\"metadata\":{\"resourceVersion\":\"7\""},
                "name": "web", "namespace": "d", "resourceVersion": "1", "managedFields": [],
            },
            "spec": {"template": {"metadata": {}}},
        });
        (kind, object.as_object().unwrap().clone())
    }

    #[test]
    fn splice_gives_back_what_was_stored() {
        let (kind, mut object) = sample();
        let stored = encode(&kind, &object);
        assert!(!String::from_utf8_lossy(&stored).contains("managedFields"));
        let mut out = Vec::new();
        assert!(Opening::alone(&kind).splice(&mut out, &stored, Revision::new(1234)));
        let back: Map<String, Value> = serde_json::from_slice(&out).unwrap();
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.insert("resourceVersion".into(), "1234".into());
        assert_eq!(back, object);
        assert_eq!(decode(&kind, &stored, Revision::new(1234)), Some(object));
    }

    #[test]
    fn list_items_of_built_in_kinds_carry_no_type() {
        let (kind, object) = sample();
        let stored = encode(&kind, &object);
        let mut out = Vec::new();
        assert!(Opening::item(&kind).splice(&mut out, &stored, Revision::new(5)));
        assert!(out.starts_with(b"{\"metadata\":{\"resourceVersion\":\"5\",\"name\":\"web\","));
    }

    #[test]
    fn foreign_value_is_refused() {
        let (kind, _) = sample();
        let mut out = Vec::new();
        for foreign in [b"".as_ref(), b"k8s\0x", b"{}", b"{\"kind\":\"X\"}"] {
            assert!(!Opening::alone(&kind).splice(&mut out, foreign, Revision::new(5)));
        }
        assert!(out.is_empty());
    }

    #[test]
    fn numbers_are_decimal() {
        for n in [0, 9, 10, u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, n);
            assert_eq!(out, n.to_string().into_bytes());
        }
    }
}
