//! The authorizer: the index of roles and bindings, kept in step with the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::de::DeserializeOwned;
use sluice_metastore::events::Change;
use sluice_metastore::store::Store;
use sluice_metastore::{Error, Record, Revision};

use super::index::{Index, Objects};
use super::objects::GROUP;
use super::rule::Rule;
use super::{Attributes, Decision};
use crate::api::follow::{Follower, View};
use crate::api::keys;
use crate::identity::UserInfo;

/// Answers who may do what; cheap to clone.
#[derive(Clone, Debug)]
pub struct Authorizer {
    index: Arc<ArcSwap<Index>>,
    follower: Option<Arc<Follower>>,
}

impl Authorizer {
    /// Loads the roles and bindings and follows them from then on; when this returns, decisions
    /// rest on all of them.
    ///
    /// # Errors
    /// Whatever the store answers to a read of its newest revision.
    pub fn open(store: Store) -> Result<Authorizer, Error> {
        let index = Arc::new(ArcSwap::from_pointee(Index::default()));
        let view = Rbac {
            objects: Objects::default(),
            index: Arc::clone(&index),
        };
        let follower = Follower::spawn(store, keys::range(&prefix()), view)?;
        Ok(Authorizer {
            index,
            follower: Some(Arc::new(follower)),
        })
    }

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

    /// Waits until the write of a role or binding at `revision` is in force.
    pub async fn reached(&self, revision: Revision) {
        if let Some(follower) = &self.follower {
            follower.reached(revision).await;
        }
    }

    pub(super) fn index(&self) -> Arc<Index> {
        self.index.load_full()
    }

    #[cfg(test)]
    pub(super) fn fixed(objects: &Objects) -> Authorizer {
        Authorizer {
            index: Arc::new(ArcSwap::from_pointee(Index::compile(objects))),
            follower: None,
        }
    }
}

/// Where the objects of the RBAC group lie; `<plural>/[<namespace>/]<name>` follows.
fn prefix() -> String {
    format!("{}{GROUP}/", keys::ROOT)
}

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

impl View for Rbac {
    fn reset(&mut self, records: &[Record]) {
        self.objects = Objects::default();
        for record in records {
            self.set(record.key(), Some(record.value()));
        }
        self.publish();
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(record) => self.set(record.key(), Some(record.value())),
                Change::Delete { key, .. } => self.set(key, None),
            }
        }
        self.publish();
    }
}

/// Plural, and (namespace, name), of a key under [`prefix`]; the namespace is empty exactly for
/// cluster-wide kinds.
fn place_of(key: &[u8]) -> Option<(&str, (String, String))> {
    let path = std::str::from_utf8(key)
        .ok()?
        .strip_prefix(prefix().as_str())?;
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
