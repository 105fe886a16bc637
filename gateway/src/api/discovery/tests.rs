//! Discovery against what is written down: the lists of one group and the aggregated form, in files
//! that a change has to touch on purpose.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use serde_json::Value;

use super::groups::by_priority;
use super::{Version, aggregated, legacy};
use crate::api::resource::{Registry, ResourceKind};
use std::sync::Arc;

/// The built-in kinds and one custom kind in two versions.
fn registry() -> Registry {
    let registry = Registry::new();
    let base = registry.resolve("", "v1", "configmaps").expect("built in");
    let version = |version: &str| {
        let mut kind = ResourceKind::clone(&base);
        kind.group = "example.com".into();
        kind.version = version.into();
        kind.kind = "Widget".into();
        kind.plural = "widgets".into();
        kind.singular = "widget".into();
        kind.short_names = vec!["wd".into()];
        kind.has_status = true;
        kind.is_custom = true;
        Arc::new(kind)
    };
    registry.set_custom(vec![version("v1beta1"), version("v1")]);
    registry
}

fn read(body: &[u8]) -> Value {
    serde_json::from_slice(body).expect("json")
}

#[test]
fn lists_are_as_written_down() {
    let documents = legacy(&registry().table());
    let get = |path: &str| read(&documents.get(path).expect(path).body);
    let golden = read(include_bytes!("golden/legacy.json"));
    for path in [
        "api",
        "apis/apps",
        "apis/example.com",
        "apis/autoscaling/v2",
        "apis/example.com/v1",
    ] {
        assert_eq!(get(path), golden[path], "{path}");
    }
    let groups = get("apis");
    let names: Vec<&str> = groups["groups"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|g| g["name"].as_str())
        .collect();
    assert_eq!(names.first(), Some(&"apiextensions.k8s.io"));
    assert_eq!(
        names.last(),
        Some(&"example.com"),
        "custom groups come last"
    );
}

#[test]
fn the_aggregated_form_is_as_written_down() {
    let documents = aggregated(&registry().table());
    let golden = read(include_bytes!("golden/aggregated.json"));
    let apis = read(&documents[&("apis".to_owned(), Version::V2)].body);
    let items = apis["items"].as_array().expect("a list");
    let named = |name: &str| {
        items
            .iter()
            .find(|i| i["metadata"]["name"] == name)
            .expect("there")
    };
    for name in ["apps", "authorization.k8s.io", "example.com"] {
        assert_eq!(named(name), &golden[name], "{name}");
    }
    let core = read(&documents[&("api".to_owned(), Version::V2beta1)].body);
    assert_eq!(core["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    assert_eq!(core["items"].as_array().map(Vec::len), Some(1));
}

#[test]
fn the_aggregated_form_is_asked_for_by_name() {
    let asked = |accept: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        Version::asked(&headers)
    };
    let v2 =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let beta = "application/json;v=v2beta1;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
    assert_eq!(asked(v2), Some(Version::V2));
    assert_eq!(asked(beta), Some(Version::V2beta1));
    assert_eq!(asked("application/json"), None);
    assert_eq!(
        asked("application/json;as=Other;g=apidiscovery.k8s.io;v=v2,application/json"),
        None
    );
}

#[test]
fn versions_are_in_kubernetes_order() {
    let mut versions = [
        "v1beta1",
        "foo",
        "v11alpha2",
        "v2",
        "v1",
        "v12alpha1",
        "v1beta2",
        "bar",
    ];
    versions.sort_by(|a, b| by_priority(a, b));
    assert_eq!(
        versions,
        [
            "v2",
            "v1",
            "v1beta2",
            "v1beta1",
            "v12alpha1",
            "v11alpha2",
            "bar",
            "foo"
        ]
    );
}
