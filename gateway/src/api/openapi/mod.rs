//! OpenAPI documents, as far as clients lean on them: an index and one document a group version
//! (version 3), and a short version 2.
//!
//! kubectl looks here for the parameter `fieldValidation` before it lets the server check an
//! object, and `kubectl explain` for fields. Custom kinds have the schema of their definition. Of
//! built-in kinds the documents know metadata and the top level only: the API stores them without
//! knowing their fields.
//!
//! No strategic merge patch is announced, although it is served for built-in kinds: a client that
//! found it here would look for merge keys in schemas that do not have them, where without it it
//! uses its own.

mod paths;
mod schemas;

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::crd::Definitions;
use super::documents::Document;
use super::resource::{ResourceKind, Table};
use super::version;

/// Adds the documents of a table, by path without a leading slash.
pub(crate) fn build(
    table: &Table,
    definitions: &Definitions,
    documents: &mut HashMap<String, Document>,
) {
    let mut by_version: BTreeMap<String, Vec<&ResourceKind>> = BTreeMap::new();
    for kind in table.kinds() {
        by_version.entry(root_of(kind)).or_default().push(kind);
    }
    let mut index = Map::new();
    for (root, kinds) in by_version {
        let document = Document::of(&group_version(&kinds, definitions));
        let url = format!("/openapi/v3/{root}?hash={}", document.hash);
        index.insert(root.clone(), json!({"serverRelativeURL": url}));
        documents.insert(format!("openapi/v3/{root}"), document);
    }
    documents.insert(
        "openapi/v3".to_owned(),
        Document::of(&json!({"paths": index})),
    );
    documents.insert("openapi/v2".to_owned(), Document::of(&second(table)));
}

/// `api/v1` or `apis/<group>/<version>`.
fn root_of(kind: &ResourceKind) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
}

fn group_version(kinds: &[&ResourceKind], definitions: &Definitions) -> Value {
    let mut all_paths = Map::new();
    let mut all_schemas = schemas::shared();
    for kind in kinds {
        paths::add(kind, &root_of(kind), &mut all_paths);
        schemas::add(kind, definitions, &mut all_schemas);
    }
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": all_paths,
        "components": {"schemas": all_schemas},
    })
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": version::GIT_VERSION})
}

/// The second version: built-in kinds by name, for clients that only ask whether a kind is known.
fn second(table: &Table) -> Value {
    let mut definitions = Map::new();
    for kind in table.kinds().iter().filter(|kind| !kind.is_custom) {
        let known = json!({
            "type": "object",
            "x-kubernetes-group-version-kind": [schemas::group_version_kind(kind)],
        });
        definitions.insert(schemas::name_of(kind), known);
    }
    json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": definitions})
}
