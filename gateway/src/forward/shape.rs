//! What the forwarder needs to know of a request's attributes, and no more.

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
        }
    }
}

/// No aggregated server and no kubelet has a part in these.
fn is_own(info: &RequestInfo) -> bool {
    let is_whole = matches!(info.subresource(), "" | "status" | "scale");
    info.is_resource() && is_whole && is_built_in(info.group())
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
