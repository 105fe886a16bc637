//! What kinds of object the API serves: the built-in table, and a registry that custom resource
//! definitions add to while the server runs.
//!
//! A [`ResourceKind`] is one served version of one kind. Versions of one kind share their place in
//! the store, since that is found by group and plural only. The registry is one immutable table,
//! swapped whole, so that a request sees all of a definition or none of it. It is bounded by the
//! definitions stored. It does not know who may use a kind, and holds no object.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use serde_json::Value;

use super::builtin;
use super::errors::Cause;
use super::merge::Shape;
use super::table::Columns;

/// Checks, prunes and defaults an object of a custom kind; what it returns makes a 422.
pub type Schema = dyn Fn(&mut Value) -> Vec<Cause> + Send + Sync;

/// Whether objects of a kind live in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// They do not.
    Cluster,
    /// They do.
    Namespaced,
}

/// Which changes raise `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// None: the kind has no such counter.
    Untracked,
    /// Any change but those of `metadata` and `status`.
    Spec,
}

/// Where the scale subresource of a kind finds its numbers, as dotted paths without a leading dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The wished count, `spec.replicas`.
    pub spec_replicas: String,
    /// The present count, `status.replicas`.
    pub status_replicas: String,
    /// The selector: a label selector object or a string. Empty for none.
    pub selector: String,
}

/// A field selector label beyond `metadata.name` and `metadata.namespace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLabel {
    /// As written in a selector.
    pub label: String,
    /// The dotted path it reads; most often the label itself.
    pub path: String,
}

/// One served version of one kind.
#[derive(Clone)]
pub struct ResourceKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Served version, such as `v1`.
    pub version: String,
    /// `Deployment`.
    pub kind: String,
    /// `DeploymentList`.
    pub list_kind: String,
    /// `deployments`, also the place in the store.
    pub plural: String,
    /// `deployment`.
    pub singular: String,
    /// `deploy`.
    pub short_names: Vec<String>,
    /// `all`.
    pub categories: Vec<String>,
    /// Whether its objects live in a namespace.
    pub scope: Scope,
    /// What raises `metadata.generation`.
    pub generation: Generation,
    /// Whether `status` is written through `/status` alone.
    pub has_status: bool,
    /// The scale subresource, if the kind has one.
    pub scale: Option<Scale>,
    /// Labels of field selectors beyond name and namespace.
    pub field_labels: Vec<FieldLabel>,
    /// How strategic merge treats its lists; `None` for kinds without published merge keys, whose
    /// clients are told 415 and use merge patch.
    pub merge: Option<&'static Shape>,
    /// For custom kinds with a schema: checks and prunes an object before it is stored.
    pub schema: Option<Arc<Schema>>,
    /// For custom kinds: the columns of its tables. `None` has those of the kind's name.
    pub columns: Option<Columns>,
    /// Whether a custom resource definition made it.
    pub is_custom: bool,
}

/// What can be done to the objects of every kind; see [`ResourceKind::verbs`] for the exception.
pub const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

impl ResourceKind {
    /// What can be done to its objects: all of [`VERBS`], but namespaces do not go in crowds.
    pub fn verbs(&self) -> impl Iterator<Item = &'static str> {
        let is_kept = self.group.is_empty() && self.plural == "namespaces";
        let all = VERBS.iter().copied();
        all.filter(move |verb| !(is_kept && *verb == "deletecollection"))
    }

    /// `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `pods` or `deployments.apps`, as messages name a kind.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether its objects live in a namespace.
    #[must_use]
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}

impl std::fmt::Debug for ResourceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.api_version(), self.kind)
    }
}

/// All kinds served at one moment.
#[derive(Debug, Default)]
pub struct Table {
    kinds: Vec<Arc<ResourceKind>>,
    by_path: HashMap<(String, String), Vec<Arc<ResourceKind>>>,
}

impl Table {
    fn new(kinds: Vec<Arc<ResourceKind>>) -> Self {
        let mut by_path: HashMap<_, Vec<Arc<ResourceKind>>> = HashMap::new();
        for kind in &kinds {
            let path = (kind.group.clone(), kind.version.clone());
            by_path.entry(path).or_default().push(Arc::clone(kind));
        }
        Table { kinds, by_path }
    }

    /// Every kind, built-in ones first, in the order of the table.
    #[must_use]
    pub fn kinds(&self) -> &[Arc<ResourceKind>] {
        &self.kinds
    }

    /// The kinds of one group and version, or `None` when nothing is served there.
    #[must_use]
    pub fn version(&self, group: &str, version: &str) -> Option<&[Arc<ResourceKind>]> {
        // A handful of versions: a scan needs no owned key.
        self.by_path
            .iter()
            .find(|((g, v), _)| g == group && v == version)
            .map(|(_, kinds)| kinds.as_slice())
    }
}

/// The kinds served, built-in and custom.
pub struct Registry {
    table: ArcSwap<Table>,
    /// What definitions are checked by; set once, before anything is served.
    definition_check: OnceLock<Arc<Schema>>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new()
    }
}

impl Registry {
    /// A registry of the built-in kinds.
    #[must_use]
    pub fn new() -> Self {
        Registry {
            table: ArcSwap::from_pointee(Table::new(builtin::kinds())),
            definition_check: OnceLock::new(),
        }
    }

    /// The kind served at a path, if any.
    #[must_use]
    pub fn resolve(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceKind>> {
        let table = self.table.load();
        let kinds = table.version(group, version)?;
        kinds.iter().find(|k| k.plural == plural).cloned()
    }

    /// The table as it is now.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Has every custom resource definition checked and completed by `check` before it is stored.
    /// The first call counts.
    pub fn check_definitions(&self, check: Arc<Schema>) {
        if self.definition_check.set(check).is_ok() {
            let custom = self
                .table()
                .kinds()
                .iter()
                .filter(|kind| kind.is_custom)
                .cloned()
                .collect();
            self.set_custom(custom);
        }
    }

    /// The built-in kinds, that of definitions with its check.
    fn built_in(&self) -> Vec<Arc<ResourceKind>> {
        let mut kinds = builtin::kinds();
        if let Some(check) = self.definition_check.get() {
            for kind in &mut kinds {
                if kind.group == "apiextensions.k8s.io"
                    && kind.plural == "customresourcedefinitions"
                {
                    Arc::make_mut(kind).schema = Some(Arc::clone(check));
                }
            }
        }
        kinds
    }

    /// Replaces all custom kinds by these; built-in ones stay, and win over a custom kind of the
    /// same path.
    pub fn set_custom(&self, custom: Vec<Arc<ResourceKind>>) {
        let mut kinds = self.built_in();
        let taken = |kinds: &[Arc<ResourceKind>], new: &ResourceKind| {
            kinds
                .iter()
                .any(|k| k.group == new.group && k.version == new.version && k.plural == new.plural)
        };
        for kind in custom {
            if !taken(&kinds, &kind) {
                kinds.push(kind);
            }
        }
        self.table.store(Arc::new(Table::new(kinds)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_kinds_survive_custom_ones() {
        let registry = Registry::new();
        let pods = registry.resolve("", "v1", "pods").expect("built in");
        let mut fake = ResourceKind::clone(&pods);
        fake.kind = "Fake".into();
        let mut widget = ResourceKind::clone(&pods);
        widget.group = "example.com".into();
        widget.plural = "widgets".into();
        registry.set_custom(vec![Arc::new(fake), Arc::new(widget)]);
        let again = registry.resolve("", "v1", "pods").expect("still there");
        assert_eq!(again.kind, "Pod");
        assert!(registry.resolve("example.com", "v1", "widgets").is_some());
        registry.set_custom(Vec::new());
        assert!(registry.resolve("example.com", "v1", "widgets").is_none());
    }
}
