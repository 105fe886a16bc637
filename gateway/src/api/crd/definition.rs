//! One definition, read: the kinds it makes and their schemas.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::schema::Structural;
use crate::api::resource::{FieldLabel, Generation, ResourceKind, Scale, Schema, Scope};
use crate::api::table::Columns;

/// A stored definition, compiled.
#[derive(Debug)]
pub struct Definition {
    /// The group it adds to.
    pub group: String,
    /// The plural it serves.
    pub plural: String,
    /// The object itself, for names and status.
    pub object: Value,
    /// Its served versions, once it is established; none before that.
    pub kinds: Vec<Arc<ResourceKind>>,
    schemas: HashMap<String, Value>,
}

/// The text at a dotted path.
pub(super) fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The value at a dotted path.
pub(super) fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.')
        .try_fold(value, |value, field| value.get(field))
}

/// The entries of the list at a dotted path.
pub(super) fn list<'v>(value: &'v Value, path: &str) -> &'v [Value] {
    at(value, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The texts of the list at a dotted path.
pub(super) fn texts(value: &Value, path: &str) -> Vec<String> {
    let entries = list(value, path).iter();
    entries
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Whether the condition of this type is `True`.
pub(super) fn holds(object: &Value, condition: &str) -> bool {
    list(object, "status.conditions")
        .iter()
        .any(|c| text(c, "type") == condition && text(c, "status") == "True")
}

impl Definition {
    /// Compiles a definition; what cannot be used of it (it was checked when stored) is left out.
    #[must_use]
    pub fn read(object: Value) -> Definition {
        let mut definition = Definition {
            group: text(&object, "spec.group").to_owned(),
            plural: text(&object, "spec.names.plural").to_owned(),
            kinds: Vec::new(),
            schemas: HashMap::new(),
            object: Value::Null,
        };
        if holds(&object, "Established") {
            for version in list(&object, "spec.versions") {
                if version.get("served") == Some(&Value::Bool(true)) {
                    definition.add(&object, version);
                }
            }
        }
        definition.object = object;
        definition
    }

    fn add(&mut self, object: &Value, version: &Value) {
        let name = text(version, "name").to_owned();
        let schema = at(version, "schema.openAPIV3Schema").cloned();
        let columns = list(version, "additionalPrinterColumns");
        let columns = Columns::custom(columns).or_else(|_| Columns::custom(&[]));
        let compiled: Option<Arc<Schema>> = schema.as_ref().map(|schema| {
            let structural = Structural::read(schema);
            let apply = move |object: &mut Value| structural.apply(object);
            Arc::new(apply) as Arc<Schema>
        });
        if let Some(schema) = schema {
            self.schemas.insert(name.clone(), schema);
        }
        let is_namespaced = text(object, "spec.scope") == "Namespaced";
        self.kinds.push(Arc::new(ResourceKind {
            group: self.group.clone(),
            version: name,
            kind: text(object, "spec.names.kind").to_owned(),
            list_kind: text(object, "spec.names.listKind").to_owned(),
            plural: self.plural.clone(),
            singular: text(object, "spec.names.singular").to_owned(),
            short_names: texts(object, "spec.names.shortNames"),
            categories: texts(object, "spec.names.categories"),
            scope: if is_namespaced {
                Scope::Namespaced
            } else {
                Scope::Cluster
            },
            generation: Generation::Spec,
            has_status: at(version, "subresources.status").is_some(),
            scale: at(version, "subresources.scale").map(scale),
            field_labels: selectable(version),
            merge: None,
            schema: compiled,
            columns: columns.ok(),
            is_custom: true,
        }));
    }

    /// The schema of a version, as written.
    #[must_use]
    pub fn schema(&self, version: &str) -> Option<&Value> {
        self.schemas.get(version)
    }
}

/// Paths begin with a dot in definitions and without one in [`Scale`].
fn undotted(path: &str) -> String {
    path.strip_prefix('.').unwrap_or(path).to_owned()
}

fn scale(given: &Value) -> Scale {
    Scale {
        spec_replicas: undotted(text(given, "specReplicasPath")),
        status_replicas: undotted(text(given, "statusReplicasPath")),
        selector: undotted(text(given, "labelSelectorPath")),
    }
}

fn selectable(version: &Value) -> Vec<FieldLabel> {
    let fields = list(version, "selectableFields").iter();
    fields
        .map(|field| {
            let path = undotted(text(field, "jsonPath"));
            FieldLabel {
                label: path.clone(),
                path,
            }
        })
        .collect()
}
