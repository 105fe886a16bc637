//! Paths: where a kind is read and written, with the parameters clients look for.

use serde_json::{Map, Value, json};

use super::schemas::{group_version_kind, list_name_of, name_of, reference};
use crate::api::resource::ResourceKind;

/// Media types of a patch; see the module's documentation for the one that is missing.
const PATCHES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

fn query(name: &str, kind: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}})
}

fn in_path(name: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
}

/// Adds every path of a kind; `root` is `api/v1` or `apis/<group>/<version>`.
pub(super) fn add(kind: &ResourceKind, root: &str, into: &mut Map<String, Value>) {
    let plural = &kind.plural;
    let (home, mut outer) = if kind.is_namespaced() {
        let all = item(&[], vec![("get", list(kind))]);
        into.insert(format!("/{root}/{plural}"), all);
        (
            format!("/{root}/namespaces/{{namespace}}/{plural}"),
            vec!["namespace"],
        )
    } else {
        (format!("/{root}/{plural}"), Vec::new())
    };
    let collection = vec![
        ("get", list(kind)),
        ("post", write(kind, "post")),
        ("delete", plain(kind, "deletecollection")),
    ];
    into.insert(home.clone(), item(&outer, collection));
    outer.push("name");
    let object = vec![
        ("get", plain(kind, "get")),
        ("put", write(kind, "put")),
        ("patch", patch(kind)),
        ("delete", plain(kind, "delete")),
    ];
    into.insert(format!("{home}/{{name}}"), item(&outer, object));
    if kind.has_status {
        let status = vec![
            ("get", plain(kind, "get")),
            ("put", write(kind, "put")),
            ("patch", patch(kind)),
        ];
        into.insert(format!("{home}/{{name}}/status"), item(&outer, status));
    }
}

fn item(parameters: &[&str], operations: Vec<(&str, Value)>) -> Value {
    let mut path = Map::new();
    for (method, operation) in operations {
        path.insert(method.to_owned(), operation);
    }
    let parameters: Vec<Value> = parameters.iter().map(|name| in_path(name)).collect();
    path.insert("parameters".to_owned(), parameters.into());
    Value::Object(path)
}

fn operation(kind: &ResourceKind, action: &str, answers: &str, parameters: Vec<Value>) -> Value {
    json!({
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": group_version_kind(kind),
        "parameters": parameters,
        "responses": {"200": {
            "description": "OK",
            "content": {"application/json": {"schema": reference(answers)}},
        }},
    })
}

fn plain(kind: &ResourceKind, action: &str) -> Value {
    operation(kind, action, &name_of(kind), Vec::new())
}

fn list(kind: &ResourceKind) -> Value {
    let parameters = vec![
        query("labelSelector", "string"),
        query("fieldSelector", "string"),
        query("limit", "integer"),
        query("continue", "string"),
        query("resourceVersion", "string"),
        query("resourceVersionMatch", "string"),
        query("watch", "boolean"),
        query("allowWatchBookmarks", "boolean"),
        query("sendInitialEvents", "boolean"),
        query("timeoutSeconds", "integer"),
    ];
    operation(kind, "list", &list_name_of(kind), parameters)
}

fn writing() -> Vec<Value> {
    vec![
        query("dryRun", "string"),
        query("fieldManager", "string"),
        query("fieldValidation", "string"),
    ]
}

fn write(kind: &ResourceKind, action: &str) -> Value {
    let mut operation = operation(kind, action, &name_of(kind), writing());
    let content = json!({"application/json": {"schema": reference(&name_of(kind))}});
    if let Some(operation) = operation.as_object_mut() {
        let body = json!({"content": content, "required": true});
        operation.insert("requestBody".to_owned(), body);
    }
    operation
}

fn patch(kind: &ResourceKind) -> Value {
    let mut operation = operation(kind, "patch", &name_of(kind), writing());
    let content: Map<String, Value> = PATCHES
        .iter()
        .map(|media| ((*media).to_owned(), json!({"schema": {"type": "object"}})))
        .collect();
    if let Some(operation) = operation.as_object_mut() {
        let body = json!({"content": content, "required": true});
        operation.insert("requestBody".to_owned(), body);
    }
    operation
}
