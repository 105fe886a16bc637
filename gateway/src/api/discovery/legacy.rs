//! Discovery list by list: `/api`, `/apis`, `/apis/<group>`, `/api/v1`, `/apis/<group>/<version>`.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::groups::{Group, GroupVersion, Resource, groups};
use crate::api::documents::Document;
use crate::api::resource::Table;

/// Every list, by path without a leading slash.
pub(crate) fn legacy(table: &Table) -> HashMap<String, Document> {
    let groups = groups(table);
    let mut documents = HashMap::new();
    let mut named = Vec::new();
    for group in &groups {
        for version in &group.versions {
            let path = path_of(&group.name, &version.version);
            documents.insert(path, Document::of(&resource_list(group, version)));
        }
        if !group.name.is_empty() {
            let described = described(group);
            let mut alone = json!({"kind": "APIGroup", "apiVersion": "v1"});
            if let (Some(alone), Some(described)) = (alone.as_object_mut(), described.as_object()) {
                alone.extend(described.clone());
            }
            documents.insert(format!("apis/{}", group.name), Document::of(&alone));
            named.push(described);
        }
    }
    let api = json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        // Empty: a client goes on with the address it came by.
        "serverAddressByClientCIDRs": [],
    });
    documents.insert("api".to_owned(), Document::of(&api));
    let apis = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": named});
    documents.insert("apis".to_owned(), Document::of(&apis));
    documents
}

/// `/`: the paths there are.
pub(crate) fn root(mut paths: Vec<String>) -> Value {
    paths.sort();
    json!({"paths": paths})
}

fn path_of(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn described(group: &Group) -> Value {
    let entry = |version: &GroupVersion| {
        json!({
            "groupVersion": group_version(&group.name, &version.version),
            "version": version.version,
        })
    };
    let versions: Vec<Value> = group.versions.iter().map(entry).collect();
    json!({
        "name": group.name,
        "versions": versions,
        "preferredVersion": versions.first(),
    })
}

fn resource_list(group: &Group, version: &GroupVersion) -> Value {
    let resources: Vec<Value> = version.resources.iter().flat_map(entries).collect();
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version(&group.name, &version.version),
        "resources": resources,
    })
}

/// The entry of a kind and those of its parts.
fn entries(resource: &Resource) -> Vec<Value> {
    let mut own = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.is_namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    });
    let lists = [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ];
    for (field, names) in lists {
        if let (false, Some(own)) = (names.is_empty(), own.as_object_mut()) {
            own.insert(field.to_owned(), json!(names));
        }
    }
    let parts = resource.subresources.iter().map(|part| {
        let mut entry = json!({
            "name": format!("{}/{}", resource.plural, part.name),
            "singularName": "",
            "namespaced": resource.is_namespaced,
            "kind": part.answers.map_or(resource.kind.as_str(), |(_, _, kind)| kind),
            "verbs": part.verbs,
        });
        if let (Some((group, version, _)), Some(entry)) = (part.answers, entry.as_object_mut()) {
            entry.insert("group".to_owned(), json!(group));
            entry.insert("version".to_owned(), json!(version));
        }
        entry
    });
    std::iter::once(own).chain(parts).collect()
}
