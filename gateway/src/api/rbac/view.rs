//! The authorizer: the index of roles and bindings, kept in step with the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::de::DeserializeOwned;

use super::index::{Index, Objects};
use super::objects::{Binding, Role};
use super::rule::Rule;
use super::{Attributes, Decision};
use crate::identity::UserInfo;

/// Answers who may do what; cheap to clone.
#[derive(Clone, Debug)]
pub struct Authorizer {
    index: Arc<ArcSwap<Index>>,
}

impl Authorizer {
    /// Whether `user` may do what is asked.
    #[must_use]
    pub fn authorize(&self, user: &UserInfo, asked: &Attributes<'_>) -> Decision {
        Decision::of_masters(user).unwrap_or_else(|| self.index.load().decide(user, asked))
    }

    /// Every rule of the user in a namespace, cluster-wide ones included.
    #[must_use]
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> Vec<Rule> {
        self.index.load().rules_for(user, namespace)
    }

    pub(super) fn index(&self) -> Arc<Index> {
        self.index.load_full()
    }

    #[cfg(test)]
    pub(super) fn fixed(objects: &Objects) -> Authorizer {
        Authorizer {
            index: Arc::new(ArcSwap::from_pointee(Index::compile(objects))),
        }
    }
}

/// Where the objects of the RBAC group lie; `<plural>/[<namespace>/]<name>` follows.
const PREFIX: &str = "/registry/rbac.authorization.k8s.io/";

/// The objects as decoded, and where their index is published.
struct Rbac {
    objects: Objects,
    index: Arc<ArcSwap<Index>>,
}

impl Rbac {
    /// Takes in one object, or with `None` its absence. An object that cannot be read grants
    /// nothing.
    fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Some((plural, place)) = place_of(key) else {
            return;
        };
        match plural {
            "roles" | "clusterroles" => put(&mut self.objects.roles, place, value),
            "rolebindings" | "clusterrolebindings" => {
                put(&mut self.objects.bindings, place, value);
            }
            _ => {}
        }
    }

    fn publish(&self) {
        self.index.store(Arc::new(Index::compile(&self.objects)));
    }
}

/// Plural, and (namespace, name), of a key under [`PREFIX`]; the namespace is empty exactly for
/// cluster-wide kinds.
fn place_of(key: &[u8]) -> Option<(&str, (String, String))> {
    let path = std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?;
    let (plural, place) = path.split_once('/')?;
    let (namespace, name) = if plural.starts_with("cluster") {
        ("", place)
    } else {
        place.split_once('/')?
    };
    Some((plural, (namespace.to_owned(), name.to_owned())))
}

fn put<T: DeserializeOwned>(
    map: &mut BTreeMap<(String, String), T>,
    place: (String, String),
    value: Option<&[u8]>,
) {
    match value.and_then(|bytes| serde_json::from_slice(bytes).ok()) {
        Some(object) => map.insert(place, object),
        None => map.remove(&place),
    };
}
