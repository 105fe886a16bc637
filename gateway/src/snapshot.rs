//! The compiled configuration a request is served from: one immutable value, taken once.
//!
//! It holds what operators wrote, lowered, and handles to live parts found by stable name. A
//! reload builds another and swaps the pointer; requests that hold the old one finish with it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::ApiServer;
use crate::authn::Authenticator;
use crate::flow::FlowTable;
use crate::upstream::Cluster;

/// Who answers a cluster's requests.
#[derive(Clone)]
pub enum Target {
    /// Real kube-apiservers.
    Upstream(Arc<Cluster>),
    /// The Kubernetes API of our own.
    Api(Arc<ApiServer>),
}

/// One cluster as clients see it.
pub struct Route {
    /// The cluster's name.
    pub name: Arc<str>,
    /// Who answers.
    pub target: Target,
    /// Who may come in, and how they are known.
    pub authenticator: Arc<Authenticator>,
    /// Which limits and breakers hold.
    pub flows: Arc<FlowTable>,
}

/// All routes of one generation.
#[derive(Default)]
pub struct RoutingSnapshot {
    /// Grows with each reload that was applied.
    pub generation: u64,
    routes: Vec<Arc<Route>>,
    by_host: HashMap<Box<str>, Arc<Route>, foldhash::quality::RandomState>,
    /// Some host is a pattern.
    has_patterns: bool,
    default: Option<Arc<Route>>,
}

/// Why no route was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misrouted {
    /// No cluster has that host, and there is no default.
    Unknown,
    /// The TLS handshake was for another cluster than the request.
    Mismatch,
}

impl RoutingSnapshot {
    /// Puts routes together; each comes with its hosts, lower-case, and whether it is the default.
    #[must_use]
    pub fn new(generation: u64, routes: Vec<(Route, Vec<String>, bool)>) -> Self {
        let mut snapshot = RoutingSnapshot {
            generation,
            ..RoutingSnapshot::default()
        };
        for (route, hosts, is_default) in routes {
            let route = Arc::new(route);
            for host in hosts {
                snapshot.has_patterns |= host.starts_with("*.");
                snapshot.by_host.insert(host.into(), Arc::clone(&route));
            }
            if is_default {
                snapshot.default = Some(Arc::clone(&route));
            }
            snapshot.routes.push(route);
        }
        snapshot
    }

    /// The route of a request by the server name of its handshake and the host it names. A name
    /// that no cluster has stands for the default.
    ///
    /// # Errors
    /// [`Misrouted::Mismatch`] when the two name different clusters: a connection that was
    /// authenticated for one must not reach another.
    pub fn route(
        &self,
        server_name: Option<&str>,
        host: Option<&str>,
    ) -> Result<&Arc<Route>, Misrouted> {
        let by_name = server_name.and_then(|name| self.find(name));
        let by_host = host.and_then(|host| self.find(without_port(host)));
        match (by_name, by_host) {
            (Some(a), Some(b)) if !Arc::ptr_eq(a, b) => Err(Misrouted::Mismatch),
            (Some(route), _) | (None, Some(route)) => Ok(route),
            (None, None) => self.default.as_ref().ok_or(Misrouted::Unknown),
        }
    }

    /// Every route once, in the order in which they were given.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter()
    }

    /// The exact name, else the pattern that stands for names one label longer.
    fn find(&self, host: &str) -> Option<&Arc<Route>> {
        if self.by_host.is_empty() {
            return None;
        }
        if host.bytes().any(|b| b.is_ascii_uppercase()) {
            return self.find(&host.to_ascii_lowercase());
        }
        let exact = self.by_host.get(host);
        if exact.is_some() || !self.has_patterns {
            return exact;
        }
        let (_, parent) = host.split_once('.')?;
        self.by_host.get(format!("*.{parent}").as_str())
    }
}

/// A host without its port and without the brackets of an IPv6 address.
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    host.split(':').next().unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::AuthenticatorOptions;
    use crate::flow::{FlowSpec, LiveState};

    fn route(name: &str) -> Route {
        let live = LiveState::new(crate::clock::now(), 1);
        let spec = FlowSpec { rules: Vec::new() };
        let cluster = crate::upstream::ClusterSpec::new(name, ["http://127.0.0.1:1".to_owned()]);
        Route {
            name: name.into(),
            target: Target::Upstream(Cluster::spawn(cluster).unwrap()),
            authenticator: Arc::new(Authenticator::new(AuthenticatorOptions::default())),
            flows: Arc::new(FlowTable::compile(&spec, name, &live).unwrap()),
        }
    }

    #[tokio::test]
    async fn hosts_and_server_names_find_their_cluster_or_the_default() {
        let hosts = |list: &[&str]| list.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>();
        let snapshot = RoutingSnapshot::new(
            1,
            vec![
                (
                    route("a"),
                    hosts(&["a.example.com", "*.a.example.com"]),
                    false,
                ),
                (route("b"), hosts(&["b.example.com"]), true),
            ],
        );
        // A route with several hosts is one route.
        assert_eq!(snapshot.routes().count(), 2);
        let find = |name, host| snapshot.route(name, host).map(|route| &*route.name);
        assert_eq!(find(None, Some("a.example.com:6443")), Ok("a"));
        assert_eq!(find(None, Some("x.A.example.com")), Ok("a"));
        assert_eq!(find(None, Some("y.x.a.example.com")), Ok("b"));
        assert_eq!(find(Some("b.example.com"), None), Ok("b"));
        assert_eq!(find(None, Some("[::1]:6443")), Ok("b"));
        assert_eq!(
            find(Some("b.example.com"), Some("a.example.com")),
            Err(Misrouted::Mismatch)
        );
        let none = RoutingSnapshot::new(1, Vec::new());
        assert_eq!(none.route(None, Some("x")).err(), Some(Misrouted::Unknown));
    }
}
