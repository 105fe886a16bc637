//! What the forwarder needs to know of a request's attributes, and no more.

use std::hash::BuildHasher as _;

use crate::request::{RequestInfo, Verb};

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// It asks for a tunnel, on a path where there are tunnels.
    pub is_upgrade: bool,
    /// It asks for a stream of events.
    pub is_watch: bool,
    /// No bound for its answer's head or length.
    pub is_long_running: bool,
    /// The apiserver itself answers it, but for what admission webhooks refuse.
    pub is_own: bool,
    /// A 5xx to it speaks against the endpoint: its own, and a read.
    pub is_telling: bool,
    /// A server behind the apiserver answers it, with redirects of its own.
    pub is_proxied: bool,
    /// It reads one object of the apiserver's own: how long that takes tells of the endpoint.
    pub is_point_read: bool,
    /// It takes what an apiserver's cache has, which may be older than what another's showed.
    pub reads_cache: bool,
    /// It goes on with a watch from a version.
    pub is_resumed: bool,
    /// A number for lists of its kind, by what decides on their size; zero for what is no list.
    pub list_kind: u64,
}

impl Shape {
    /// Reads it off the request's attributes.
    #[must_use]
    pub fn of(info: &RequestInfo) -> Self {
        let has_tunnels = matches!(
            info.subresource(),
            "exec" | "attach" | "portforward" | "proxy"
        );
        Shape {
            is_upgrade: info.is_upgrade() && (has_tunnels || info.is_watch()),
            is_watch: info.is_watch(),
            is_long_running: info.is_long_running(),
            is_own: is_own(info),
            is_telling: is_own(info) && is_read(info),
            is_proxied: info.is_proxied() || info.verb() == Verb::Proxy,
            is_point_read: is_own(info) && info.verb() == Verb::Get,
            reads_cache: reads_cache(info),
            is_resumed: info.is_watch() && !matches!(info.resource_version(), "" | "0"),
            list_kind: list_kind(info),
        }
    }
}

/// No aggregated server and no kubelet has a part in these.
fn is_own(info: &RequestInfo) -> bool {
    let is_whole = matches!(info.subresource(), "" | "status" | "scale");
    info.is_resource() && is_whole && is_built_in(info.group())
}

fn list_kind(info: &RequestInfo) -> u64 {
    if !info.is_list() {
        return 0;
    }
    let what = (info.group(), info.resource(), info.namespace());
    let which = (info.label_selector(), info.field_selector(), info.limit());
    foldhash::quality::FixedState::default().hash_one((what, which))
}

/// Without a version reads are as new as the store, on whichever apiserver; a page and an exact
/// version are what they are.
fn reads_cache(info: &RequestInfo) -> bool {
    let version = info.resource_version();
    match info.verb() {
        Verb::Get => !version.is_empty(),
        Verb::List => {
            let is_exact = info.resource_version_match() == "Exact"
                || !info.continue_token().is_empty()
                || (info.limit().is_some() && version != "0");
            !version.is_empty() && !is_exact
        }
        Verb::Watch => version == "0",
        _ => false,
    }
}

/// No admission webhook has a part in these.
fn is_read(info: &RequestInfo) -> bool {
    matches!(info.verb(), Verb::Get | Verb::List | Verb::Watch)
}

fn is_built_in(group: &str) -> bool {
    match group.strip_suffix(".k8s.io") {
        Some(name) => matches!(
            name,
            "admissionregistration"
                | "apiextensions"
                | "apiregistration"
                | "authentication"
                | "authorization"
                | "certificates"
                | "coordination"
                | "discovery"
                | "events"
                | "flowcontrol.apiserver"
                | "internal.apiserver"
                | "networking"
                | "node"
                | "rbac.authorization"
                | "resource"
                | "scheduling"
                | "storage"
                | "storagemigration"
        ),
        None => matches!(group, "" | "apps" | "autoscaling" | "batch" | "policy"),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, Method};

    use super::*;

    fn shape(method: &Method, uri: &str, headers: &HeaderMap) -> Shape {
        Shape::of(&RequestInfo::parse(method, &uri.parse().unwrap(), headers).unwrap())
    }

    #[test]
    fn tunnels_only_where_there_are_some() {
        let mut headers = HeaderMap::new();
        headers.insert(
            "connection",
            HeaderValue::from_static("keep-alive, Upgrade"),
        );
        headers.insert("upgrade", HeaderValue::from_static("h2c"));
        let cases = [
            ("/api/v1/namespaces/n/pods/p/exec?command=sh", true),
            ("/api/v1/namespaces/n/services/s:80/proxy/ws", true),
            ("/api/v1/pods?watch=true", true),
            ("/api/v1/namespaces/n/pods/p", false),
            ("/version", false),
        ];
        for (uri, expected) in cases {
            assert_eq!(
                shape(&Method::GET, uri, &headers).is_upgrade,
                expected,
                "{uri}"
            );
            assert!(
                !shape(&Method::GET, uri, &HeaderMap::new()).is_upgrade,
                "{uri}"
            );
        }
    }

    #[test]
    fn reads_of_a_cache_and_resumed_watches_are_told_apart() {
        let cases = [
            ("/api/v1/nodes/n?resourceVersion=0", true, false),
            ("/api/v1/nodes/n", false, false),
            ("/api/v1/pods?resourceVersion=0&limit=500", true, false),
            ("/api/v1/pods?resourceVersion=7", true, false),
            ("/api/v1/pods?resourceVersion=7&limit=500", false, false),
            (
                "/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact",
                false,
                false,
            ),
            ("/api/v1/pods?limit=500", false, false),
            ("/api/v1/pods?watch=1&resourceVersion=0", true, false),
            ("/api/v1/pods?watch=1&resourceVersion=7", false, true),
            ("/api/v1/pods?watch=1", false, false),
        ];
        for (uri, reads_cache, is_resumed) in cases {
            let shape = shape(&Method::GET, uri, &HeaderMap::new());
            assert_eq!(
                (shape.reads_cache, shape.is_resumed),
                (reads_cache, is_resumed),
                "{uri}"
            );
        }
    }

    #[test]
    fn only_what_an_apiserver_answers_itself_tells_of_it() {
        let cases = [
            ("/api/v1/pods", true),
            ("/apis/apps/v1/namespaces/n/deployments/d/scale", true),
            ("/apis/metrics.k8s.io/v1beta1/nodes", false),
            ("/apis/example.com/v1/things", false),
            ("/api/v1/namespaces/n/pods/p/log", false),
            ("/api/v1/nodes/n/proxy/metrics", false),
            ("/readyz", false),
        ];
        for (uri, expected) in cases {
            let shape = shape(&Method::GET, uri, &HeaderMap::new());
            assert_eq!(shape.is_telling, expected, "{uri}");
        }
        let write = shape(
            &Method::POST,
            "/api/v1/namespaces/n/pods",
            &HeaderMap::new(),
        );
        assert!(!write.is_telling, "webhooks have a part in writes");
    }
}
