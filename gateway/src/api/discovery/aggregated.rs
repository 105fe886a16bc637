//! Discovery in one answer: `APIGroupDiscoveryList`, at `/api` for the core group and at `/apis` for
//! all others.

use std::collections::HashMap;

use http::HeaderMap;
use http::header::ACCEPT;
use serde_json::{Map, Value, json};

use super::groups::{Group, Resource, groups};
use crate::api::documents::Document;
use crate::api::resource::Table;

/// The version of the discovery API itself; both have the same fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Version {
    V2,
    V2beta1,
}

impl Version {
    /// The first one the client asks for, if it asks for aggregated discovery in JSON before it
    /// asks for a plain list.
    pub(crate) fn asked(headers: &HeaderMap) -> Option<Version> {
        let lines = headers.get_all(ACCEPT).into_iter();
        let texts = lines.filter_map(|value| value.to_str().ok());
        for clause in texts.flat_map(|line| line.split(',')) {
            let mut parts = clause.split(';').map(str::trim);
            if parts.next() != Some("application/json") {
                continue;
            }
            let parts: Vec<&str> = parts.collect();
            let has = |wanted: &str| parts.contains(&wanted);
            if !parts.iter().any(|part| part.starts_with("as=")) {
                return None;
            }
            if has("as=APIGroupDiscoveryList") && has("g=apidiscovery.k8s.io") {
                if has("v=v2") {
                    return Some(Version::V2);
                } else if has("v=v2beta1") {
                    return Some(Version::V2beta1);
                }
            }
        }
        None
    }

    /// The `Content-Type` of the answer.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Version::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Version::V2beta1 => {
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
            }
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Version::V2 => "apidiscovery.k8s.io/v2",
            Version::V2beta1 => "apidiscovery.k8s.io/v2beta1",
        }
    }
}

/// Both answers in both versions, by path without a leading slash.
pub(crate) fn aggregated(table: &Table) -> HashMap<(String, Version), Document> {
    let groups = groups(table);
    let (core, named): (Vec<&Group>, Vec<&Group>) = groups.iter().partition(|g| g.name.is_empty());
    let mut documents = HashMap::new();
    for version in [Version::V2, Version::V2beta1] {
        for (path, groups) in [("api", &core), ("apis", &named)] {
            let items: Vec<Value> = groups.iter().map(|group| item(group)).collect();
            let list = json!({
                "kind": "APIGroupDiscoveryList",
                "apiVersion": version.api_version(),
                "metadata": {},
                "items": items,
            });
            documents.insert((path.to_owned(), version), Document::of(&list));
        }
    }
    documents
}

fn item(group: &Group) -> Value {
    let versions = group.versions.iter().map(|version| {
        let resource = |resource| described(resource, &group.name, &version.version);
        let resources: Vec<Value> = version.resources.iter().map(resource).collect();
        json!({"version": version.version, "resources": resources, "freshness": "Current"})
    });
    let metadata = if group.name.is_empty() {
        json!({})
    } else {
        json!({"name": group.name})
    };
    json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
}

fn described(resource: &Resource, group: &str, version: &str) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let own = kind(group, version, &resource.kind);
    let scope = if resource.is_namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    let mut entry = Map::new();
    entry.insert("resource".to_owned(), json!(resource.plural));
    entry.insert("responseKind".to_owned(), own.clone());
    entry.insert("scope".to_owned(), json!(scope));
    entry.insert("singularResource".to_owned(), json!(resource.singular));
    entry.insert("verbs".to_owned(), json!(resource.verbs));
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".to_owned(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".to_owned(), json!(resource.categories));
    }
    let parts = resource.subresources.iter().map(|part| {
        let answers = part.answers.map_or(own.clone(), |(g, v, k)| kind(g, v, k));
        json!({"subresource": part.name, "responseKind": answers, "verbs": part.verbs})
    });
    if !resource.subresources.is_empty() {
        entry.insert("subresources".to_owned(), parts.collect());
    }
    Value::Object(entry)
}
