//! Schemas: of metadata, which all kinds share, and of each kind and its list.

use serde_json::{Map, Value, json};

use crate::api::crd::Definitions;
use crate::api::resource::ResourceKind;

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const OWNER: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";

/// A reference to another schema of the document.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The kind as OpenAPI's extension names it.
pub(super) fn group_version_kind(kind: &ResourceKind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// A schema's name: the group from the top level domain down, as `io.k8s.api.apps.v1.Deployment`.
pub(super) fn name_of(kind: &ResourceKind) -> String {
    let ResourceKind {
        group,
        version,
        kind: name,
        ..
    } = kind;
    if kind.is_custom {
        let reversed: Vec<&str> = group.rsplit('.').collect();
        return format!("{}.{version}.{name}", reversed.join("."));
    }
    let short = match group.split('.').next() {
        None | Some("") => "core",
        Some(first) => first,
    };
    format!("io.k8s.api.{short}.{version}.{name}")
}

/// The name of the schema of a kind's list.
pub(super) fn list_name_of(kind: &ResourceKind) -> String {
    let name = name_of(kind);
    let package = name.strip_suffix(kind.kind.as_str()).unwrap_or_default();
    format!("{package}{}", kind.list_kind)
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn texts(description: &str) -> Value {
    json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}})
}

fn time(description: &str) -> Value {
    json!({"type": "string", "format": "date-time", "description": description})
}

/// The schemas every document holds.
pub(super) fn shared() -> Map<String, Value> {
    let metadata = json!({
        "type": "object",
        "description": "What every stored object has.",
        "properties": {
            "name": text("Unique among objects of the kind in the namespace; never changes."),
            "generateName": text("Beginning of a name that the server completes, when none is given."),
            "namespace": text("The space the name is unique in; empty for kinds of the whole cluster."),
            "uid": text("Unique over all time; set by the server."),
            "resourceVersion": text("The object's version; opaque. An update that carries it fails if it is not the newest."),
            "generation": {"type": "integer", "format": "int64", "description": "Counts changes of what is wanted; set by the server."},
            "creationTimestamp": time("When it was made; set by the server."),
            "deletionTimestamp": time("When its deletion was asked for; set by the server."),
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64", "description": "Seconds it has to end."},
            "labels": texts("Words to select objects by."),
            "annotations": texts("Words for tools; never selected by."),
            "finalizers": {"type": "array", "items": {"type": "string"}, "description": "Who must be done before it goes."},
            "ownerReferences": {"type": "array", "items": reference(OWNER), "description": "Objects it depends on."},
        },
    });
    let list = json!({
        "type": "object",
        "description": "What every list has.",
        "properties": {
            "resourceVersion": text("The version the list was read at; a watch may begin there."),
            "continue": text("Asks for the next page; empty on the last."),
            "remainingItemCount": {"type": "integer", "format": "int64", "description": "Objects on later pages."},
        },
    });
    let owner = json!({
        "type": "object",
        "description": "An object that another depends on.",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": text("Its group and version."),
            "kind": text("Its kind."),
            "name": text("Its name."),
            "uid": text("Its uid."),
            "controller": {"type": "boolean", "description": "Whether it manages the dependent."},
            "blockOwnerDeletion": {"type": "boolean", "description": "Whether it waits for the dependent in a foreground deletion."},
        },
    });
    let all = [(OBJECT_META, metadata), (LIST_META, list), (OWNER, owner)];
    all.into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

/// Adds the schemas of a kind and of its list.
pub(super) fn add(kind: &ResourceKind, definitions: &Definitions, into: &mut Map<String, Value>) {
    let given = definitions.schema(&kind.group, &kind.version, &kind.plural);
    let mut schema = given.unwrap_or_else(|| built_in(kind));
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("type".to_owned(), json!("object"));
        let own = json!([group_version_kind(kind)]);
        schema.insert("x-kubernetes-group-version-kind".to_owned(), own);
        let fields = schema.entry("properties").or_insert_with(|| json!({}));
        if let Some(fields) = fields.as_object_mut() {
            fields.insert(
                "apiVersion".to_owned(),
                text("Group and version of this form of the object."),
            );
            fields.insert("kind".to_owned(), text("What it is."));
            fields.insert("metadata".to_owned(), reference(OBJECT_META));
        }
    }
    let list = json!({
        "type": "object",
        "description": format!("A list of {}.", kind.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": text("Group and version of this form of the list."),
            "kind": text("What it is."),
            "metadata": reference(LIST_META),
            "items": {"type": "array", "items": reference(&name_of(kind))},
        },
        "x-kubernetes-group-version-kind": [
            {"group": kind.group, "version": kind.version, "kind": kind.list_kind},
        ],
    });
    into.insert(name_of(kind), schema);
    into.insert(list_name_of(kind), list);
}

/// What is known of a built-in kind: that it is an object, and whether it has a status.
fn built_in(kind: &ResourceKind) -> Value {
    let open = |description: &str| {
        json!({
            "type": "object",
            "description": description,
            "x-kubernetes-preserve-unknown-fields": true,
        })
    };
    let mut fields = Map::new();
    if kind.has_status {
        fields.insert("spec".to_owned(), open("What is wanted. Stored as given."));
        fields.insert(
            "status".to_owned(),
            open("What is. Written by controllers."),
        );
    }
    json!({
        "description": format!("{} objects are stored as given; fields are not checked.", kind.kind),
        "properties": fields,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
