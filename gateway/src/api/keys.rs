//! Where objects lie in the store: `/registry/<group or core>/<plural>/[<namespace>/]<name>`.
//!
//! All versions of a kind share a place. The part after the plural is laid out as a kube-apiserver
//! lays it out, so that continue tokens mean the same on both. Names are validated before they get
//! here: none holds a slash.

use bytes::Bytes;
use sluice_metastore::KeyRange;

use super::crd;
use super::resource::ResourceKind;

/// Before everything this API stores.
pub const ROOT: &str = "/registry/";

/// Before every object of a kind.
#[must_use]
pub fn prefix(kind: &ResourceKind) -> String {
    place(&kind.group, &kind.plural)
}

/// Before every object of a group and plural.
#[must_use]
pub fn place(group: &str, plural: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    format!("{ROOT}{group}/{plural}/")
}

/// Before every object of a kind in a namespace; all of them when `namespace` is empty.
#[must_use]
pub fn prefix_in(kind: &ResourceKind, namespace: &str) -> String {
    let mut key = prefix(kind);
    if kind.is_namespaced() && !namespace.is_empty() {
        key.push_str(namespace);
        key.push('/');
    }
    key
}

/// One object's key.
#[must_use]
pub fn object(kind: &ResourceKind, namespace: &str, name: &str) -> Bytes {
    let mut key = prefix_in(kind, namespace);
    key.push_str(name);
    Bytes::from(key)
}

/// The key of a namespace itself.
#[must_use]
pub fn namespace(name: &str) -> Bytes {
    Bytes::from(place("", "namespaces") + name)
}

/// The key of a custom kind's definition.
#[must_use]
pub fn definition(kind: &ResourceKind) -> Bytes {
    let ResourceKind { group, plural, .. } = kind;
    Bytes::from(place(crd::GROUP, crd::PLURAL) + &format!("{plural}.{group}"))
}

/// All keys below a prefix.
#[must_use]
pub fn range(prefix: &str) -> KeyRange {
    KeyRange::prefix(prefix.as_bytes())
}

/// The part of a range behind one of its keys.
#[must_use]
pub fn after(range: KeyRange, key: &[u8]) -> KeyRange {
    let mut next = key.to_vec();
    next.push(0);
    from(range, Bytes::from(next))
}

/// The part of a range from a key on.
#[must_use]
pub fn from(range: KeyRange, start: Bytes) -> KeyRange {
    match range {
        KeyRange::Between(first, end) if first < start => {
            KeyRange::Between(start.min(end.clone()), end)
        }
        // What is behind a single key is nothing.
        KeyRange::Key(only) if only < start => KeyRange::Between(only.clone(), only),
        other => other,
    }
}

/// Namespace and name of a key of this kind; the namespace is empty for cluster-wide kinds.
#[must_use]
pub fn parse<'k>(kind: &ResourceKind, prefix: &str, key: &'k [u8]) -> Option<(&'k str, &'k str)> {
    let rest = std::str::from_utf8(key.get(prefix.len()..)?).ok()?;
    if kind.is_namespaced() {
        rest.split_once('/')
    } else {
        Some(("", rest))
    }
}
