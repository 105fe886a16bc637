//! The definitions stored, and their kinds in the registry, kept in step with the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use serde_json::Value;
use sluice_metastore::events::Change;
use sluice_metastore::{Error, Record, Revision};

use super::admit::admit;
use super::definition::{holds, text, texts};
use super::{Definition, GROUP, PLURAL, cleanup};
use crate::api::follow::{Follower, View};
use crate::api::keys;
use crate::api::resource::{Registry, ResourceKind};
use crate::api::storage::Storage;

/// By name, `<plural>.<group>`.
pub(super) type ByName = BTreeMap<String, Arc<Definition>>;

/// Which names of a definition are taken by another one.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// All definitions.
#[derive(Debug)]
pub struct Definitions {
    by_name: Arc<ArcSwap<ByName>>,
    follower: Option<Follower>,
}

impl Definitions {
    /// Loads the definitions into the registry and follows them from then on; when this returns,
    /// the kinds of all of them are served.
    ///
    /// # Errors
    /// Whatever the store answers to a read of its newest revision.
    pub fn open(storage: &Storage, registry: Arc<Registry>) -> Result<Definitions, Error> {
        let by_name = Arc::new(ArcSwap::from_pointee(ByName::new()));
        let view = Following {
            by_name: Arc::clone(&by_name),
            now: ByName::new(),
            registry: Arc::clone(&registry),
            storage: storage.clone(),
            ending: Vec::new(),
        };
        let range = keys::range(&keys::place(GROUP, PLURAL));
        let follower = Follower::spawn(storage.store().clone(), range, view)?;
        let (known, sources) = (Arc::clone(&by_name), storage.sources().clone());
        registry.check_definitions(Arc::new(move |object: &mut Value| {
            let now = (sources.now)();
            // To the second, as all of Kubernetes' times are.
            let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
            admit(object, &known.load(), &now.to_string())
        }));
        Ok(Definitions {
            by_name,
            follower: Some(follower),
        })
    }

    /// No definitions, and none to come.
    #[must_use]
    pub fn none() -> Definitions {
        Definitions {
            by_name: Arc::new(ArcSwap::from_pointee(ByName::new())),
            follower: None,
        }
    }

    /// Waits until the write of a definition at `revision` is in force.
    pub async fn reached(&self, revision: Revision) {
        if let Some(follower) = &self.follower {
            follower.reached(revision).await;
        }
    }

    /// The definition of a group and plural.
    #[must_use]
    pub fn get(&self, group: &str, plural: &str) -> Option<Arc<Definition>> {
        self.by_name
            .load()
            .get(&format!("{plural}.{group}"))
            .cloned()
    }

    /// The schema of a custom kind, as written.
    #[must_use]
    pub fn schema(&self, group: &str, version: &str, plural: &str) -> Option<Value> {
        self.get(group, plural)?.schema(version).cloned()
    }

    /// Names of fields that the schema of a custom kind does not know, as dotted paths; they are
    /// dropped from what is stored. For strict validation.
    #[must_use]
    pub fn unknown_fields(&self, kind: &ResourceKind, object: &Value) -> Vec<String> {
        let schema = self.schema(&kind.group, &kind.version, &kind.plural);
        schema.map_or_else(Vec::new, |schema| {
            super::schema::Structural::read(&schema).unknown(object)
        })
    }
}

/// The first name of this definition that another established one of its group has.
pub(super) fn conflict(all: &ByName, object: &Value) -> Option<Conflict> {
    let name = text(object, "metadata.name");
    let others = all.iter().filter(|(other_name, other)| {
        other_name.as_str() != name
            && other.group == text(object, "spec.group")
            && holds(&other.object, "Established")
    });
    let kinds_of = |object: &Value| {
        ["spec.names.kind", "spec.names.listKind"].map(|path| text(object, path).to_owned())
    };
    let (own_kinds, own_words) = (kinds_of(object), words(object));
    for (_, other) in others {
        let kinds = kinds_of(&other.object);
        let words = words(&other.object);
        let kind = own_kinds.iter().find(|kind| kinds.contains(kind));
        let word = own_words.iter().find(|word| words.contains(word));
        let (reason, taken) = match (kind, word) {
            (Some(kind), _) => ("KindConflict", kind),
            (None, Some(word)) => ("NamesConflict", word),
            (None, None) => continue,
        };
        let message = format!("\"{taken}\" is already in use");
        return Some(Conflict { reason, message });
    }
    None
}

/// Plural, singular and short names.
fn words(object: &Value) -> Vec<String> {
    let mut words = texts(object, "spec.names.shortNames");
    words.push(text(object, "spec.names.plural").to_owned());
    words.push(text(object, "spec.names.singular").to_owned());
    words
}

struct Following {
    by_name: Arc<ArcSwap<ByName>>,
    now: ByName,
    registry: Arc<Registry>,
    storage: Storage,
    /// Uids of definitions whose clean-up was begun.
    ending: Vec<String>,
}

impl Following {
    fn put(&mut self, record: &Record) {
        match serde_json::from_slice::<Value>(record.value()) {
            Ok(object) => {
                let name = text(&object, "metadata.name").to_owned();
                self.now.insert(name, Arc::new(Definition::read(object)));
            }
            Err(error) => tracing::warn!(%error, "stored definition cannot be read"),
        }
    }

    fn remove(&mut self, key: &[u8]) {
        let key = std::str::from_utf8(key).unwrap_or_default();
        if let Some((_, name)) = key.rsplit_once('/')
            && let Some(gone) = self.now.remove(name)
        {
            let uid = text(&gone.object, "metadata.uid");
            self.ending.retain(|ending| ending != uid);
        }
    }

    /// Definitions first: who finds a kind in the registry finds its columns and schema too.
    fn publish(&mut self) {
        self.by_name.store(Arc::new(self.now.clone()));
        let kinds = self.now.values().flat_map(|d| d.kinds.iter().cloned());
        self.registry.set_custom(kinds.collect());
        for definition in self.now.values() {
            let object = &definition.object;
            let uid = text(object, "metadata.uid").to_owned();
            let is_ending = !text(object, "metadata.deletionTimestamp").is_empty();
            if is_ending && !self.ending.contains(&uid) {
                self.ending.push(uid);
                cleanup::spawn(self.storage.clone(), Arc::clone(definition));
            }
        }
    }
}

impl View for Following {
    fn reset(&mut self, records: &[Record]) {
        self.now.clear();
        records.iter().for_each(|record| self.put(record));
        self.publish();
    }

    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(record) => self.put(record),
                Change::Delete { key, .. } => self.remove(key),
            }
        }
        self.publish();
    }
}
