//! From valid rules to a routing snapshot: first everything is made that can fail, then the live
//! parts are moved over, then the caller swaps the pointer.
//!
//! Clusters are found by name and keep their endpoints' state; authenticators stay while nothing
//! about them has changed, and with them their verdicts. Bounded by what operators write. Blocking:
//! it reads certificates. Needs a tokio runtime around it, for new clusters' probes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use sluice_config::{Diagnostics, GatewayConfig, LOCAL_CLUSTER, RuleSet};

use super::clients::{self, ClientsFault};
use super::content::Digest;
use super::lower::{
    AuthnPlan, ClusterPlan, TlsPlan, lower_admin, lower_api, lower_cluster, lower_listen,
    lower_rates,
};
use crate::authn::Authenticator;
use crate::flow::{FlowTable, LiveState, SpecFault};
use crate::listener::{ClientCertificates, ServerIdentity, TlsError, TlsSource, TlsSpec};
use crate::material::Material;
use crate::snapshot::{Route, RoutingSnapshot, Target};
use crate::upstream::{Cluster, DiscoverySpec, UpstreamError};

/// Why valid files could not be put into force; nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The rule files have become faulty since they were loaded.
    #[error(transparent)]
    Faulty(#[from] Diagnostics),
    /// A cluster's own parts.
    #[error("cluster {name}: {source}")]
    Cluster {
        /// Which cluster.
        name: String,
        /// What does not fit.
        source: UpstreamError,
    },
    /// What clients are known by.
    #[error("clients of cluster {name}: {source}")]
    Clients {
        /// Which cluster.
        name: String,
        /// What does not fit.
        source: ClientsFault,
    },
    /// A limit.
    #[error(transparent)]
    Rule(#[from] SpecFault),
    /// A rate beyond what a bucket can hold.
    #[error("{0}; lower it")]
    Rate(String),
    /// A cluster's certificate towards clients.
    #[error("certificate for clients of cluster {name}: {source}")]
    Serving {
        /// Which cluster.
        name: String,
        /// What does not fit.
        source: TlsError,
    },
    /// A listener's certificate.
    #[error("listener: {0}")]
    Tls(#[from] TlsError),
    /// A file of a listener's certificate.
    #[error("{}: cannot be read: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The process file has an `api` and nobody serves it.
    #[error("the process file has an api, but no metastore API was started")]
    NoApi,
}

/// Handles to live parts, by name.
pub(super) struct Assembler {
    live: Arc<LiveState>,
    local: Option<Target>,
    clusters: HashMap<String, Arc<Cluster>>,
    authenticators: HashMap<String, Known>,
}

/// An authenticator and what it was made of.
#[derive(Clone)]
struct Known {
    plan: AuthnPlan,
    /// Who answers its questions; none for the API of our own.
    endpoints: Vec<String>,
    /// What its files hold.
    files: Digest,
    authenticator: Arc<Authenticator>,
}

/// A cluster that is ready to be moved over.
struct Prepared {
    plan: ClusterPlan,
    cluster: Arc<Cluster>,
    is_new: bool,
    known: Known,
    flows: Arc<FlowTable>,
}

impl Assembler {
    pub(super) fn new(live: Arc<LiveState>, local: Option<Target>) -> Self {
        Assembler {
            live,
            local,
            clusters: HashMap::new(),
            authenticators: HashMap::new(),
        }
    }

    /// Makes the snapshot of a generation, and moves clusters and listener over to it.
    pub(super) fn assemble(
        &mut self,
        generation: u64,
        process: &GatewayConfig,
        rules: &RuleSet,
        tls: &TlsSource,
    ) -> Result<RoutingSnapshot, AssembleError> {
        let flows = lower_rates(rules.rates.iter().map(|rates| &rates.value))
            .map_err(|fault| AssembleError::Rate(fault.to_string()))?;
        let mut prepared = Vec::new();
        for cluster in &rules.clusters {
            let plan = lower_cluster(cluster, zone(process));
            let flows = FlowTable::compile(&flows, &plan.name, &self.live)?;
            prepared.push(self.prepare(plan, Arc::new(flows))?);
        }
        let api = self.prepare_api(process, &flows)?;
        let tls_spec = listen_spec(process, rules)?;

        // From here on live parts change. Each step was tried above, so that only a file that
        // changed in between can still fail one.
        tls.replace(&tls_spec)?;
        for ready in prepared.iter().filter(|ready| !ready.is_new) {
            let applied = ready.cluster.apply(ready.plan.upstream.clone());
            applied.map_err(|source| in_cluster(&ready.plan, source))?;
        }
        self.clusters.clear();
        self.authenticators.clear();
        let mut routes = Vec::new();
        for ready in prepared {
            let name = ready.plan.name;
            let route = Route {
                name: name.as_str().into(),
                target: Target::Upstream(Arc::clone(&ready.cluster)),
                authenticator: Arc::clone(&ready.known.authenticator),
                flows: ready.flows,
            };
            routes.push((route, ready.plan.hosts, ready.plan.is_default));
            self.clusters.insert(name.clone(), ready.cluster);
            self.authenticators.insert(name, ready.known);
        }
        if let Some((route, hosts, is_default, known)) = api {
            self.authenticators.insert(LOCAL_CLUSTER.to_owned(), known);
            routes.push((route, hosts, is_default));
        }
        Ok(RoutingSnapshot::new(generation, routes))
    }

    /// The clusters in force, by name.
    pub(super) fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.clusters.values().map(Arc::clone).collect()
    }

    fn prepare(&self, plan: ClusterPlan, flows: Arc<FlowTable>) -> Result<Prepared, AssembleError> {
        let existing = self.clusters.get(&plan.name).map(Arc::clone);
        let is_new = existing.is_none();
        let cluster = match existing {
            Some(cluster) => Cluster::check(plan.upstream.clone()).map(|()| cluster),
            None => Cluster::spawn(plan.upstream.clone()),
        };
        let cluster = cluster.map_err(|source| in_cluster(&plan, source))?;
        let endpoints = plan.upstream.endpoints.iter();
        let named = match &plan.upstream.discovery {
            Some(DiscoverySpec::Dns { url, .. }) => Some(url.clone()),
            Some(DiscoverySpec::Kubernetes { .. }) | None => None,
        };
        let endpoints = endpoints.map(|endpoint| endpoint.url.clone());
        let endpoints = endpoints.chain(named).collect();
        let known = self.authenticator(&plan.name, &plan.authn, Some(&cluster), endpoints)?;
        Ok(Prepared {
            plan,
            cluster,
            is_new,
            known,
            flows,
        })
    }

    #[expect(clippy::type_complexity, reason = "the parts of one route, used once")]
    fn prepare_api(
        &self,
        process: &GatewayConfig,
        flows: &crate::flow::FlowSpec,
    ) -> Result<Option<(Route, Vec<String>, bool, Known)>, AssembleError> {
        let Some(plan) = lower_api(process) else {
            return Ok(None);
        };
        let target = self.local.clone().ok_or(AssembleError::NoApi)?;
        let known = self.authenticator(LOCAL_CLUSTER, &plan.authn, None, Vec::new())?;
        let route = Route {
            name: LOCAL_CLUSTER.into(),
            target,
            authenticator: Arc::clone(&known.authenticator),
            flows: Arc::new(FlowTable::compile(flows, LOCAL_CLUSTER, &self.live)?),
        };
        Ok(Some((route, plan.hosts, plan.is_default, known)))
    }

    /// The authenticator of a cluster; the one in force when nothing about it has changed.
    fn authenticator(
        &self,
        name: &str,
        plan: &AuthnPlan,
        cluster: Option<&Arc<Cluster>>,
        endpoints: Vec<String>,
    ) -> Result<Known, AssembleError> {
        let files = Digest::of(plan.files());
        let existing = self.authenticators.get(name);
        if let Some(known) = existing
            && known.files == files
            && known.plan == *plan
            && is_same_cluster(&known.endpoints, &endpoints)
        {
            return Ok(Known {
                endpoints,
                ..known.clone()
            });
        }
        let made = clients::authenticator(plan, cluster);
        let authenticator = made.map_err(|source| of_clients(name, source))?;
        Ok(Known {
            plan: plan.clone(),
            endpoints,
            files,
            authenticator: Arc::new(authenticator),
        })
    }
}

/// Whether a name stands for the cluster that it stood for. Without an endpoint in common it may be
/// another one, whose users the verdicts of the old one do not speak of.
fn is_same_cluster(old: &[String], new: &[String]) -> bool {
    old == new || old.iter().any(|url| new.contains(url))
}

/// What in well-written files cannot be used: every complaint that a start or a reload would make,
/// and more than one. Blocking; touches nothing that lives.
#[must_use]
pub fn unusable(process: &GatewayConfig, rules: &RuleSet) -> Vec<String> {
    let mut found: Vec<AssembleError> = Vec::new();
    let live = LiveState::new(crate::clock::now(), 0);
    let flows = lower_rates(rules.rates.iter().map(|rates| &rates.value));
    let flows = match flows {
        Ok(flows) => flows,
        Err(fault) => {
            found.push(AssembleError::Rate(fault.to_string()));
            crate::flow::FlowSpec::default()
        }
    };
    found.extend(
        FlowTable::compile(&flows, LOCAL_CLUSTER, &live)
            .err()
            .map(AssembleError::from),
    );
    let mut known_by = Vec::new();
    for cluster in &rules.clusters {
        let plan = lower_cluster(cluster, zone(process));
        let checked = Cluster::check(plan.upstream.clone());
        found.extend(checked.err().map(|source| in_cluster(&plan, source)));
        found.extend(serving(&plan).err());
        known_by.push((plan.name, plan.authn));
    }
    known_by.extend(lower_api(process).map(|api| (LOCAL_CLUSTER.to_owned(), api.authn)));
    for (name, plan) in known_by {
        let made = clients::authenticator(&plan, None);
        found.extend(made.err().map(|source| of_clients(&name, source)));
    }
    let listener = tls_spec(&lower_listen(process), &[]).and_then(|spec| {
        TlsSource::new(&spec)?;
        Ok(())
    });
    found.extend(listener.err());
    if let Some(plan) = lower_admin(process) {
        found.extend(admin_spec(&plan).err());
    }
    found.iter().map(ToString::to_string).collect()
}

/// Where the process stands.
fn zone(process: &GatewayConfig) -> Option<&str> {
    process.zone.as_ref().map(|zone| zone.as_str())
}

fn in_cluster(plan: &ClusterPlan, source: UpstreamError) -> AssembleError {
    AssembleError::Cluster {
        name: plan.name.clone(),
        source,
    }
}

fn of_clients(name: &str, source: ClientsFault) -> AssembleError {
    AssembleError::Clients {
        name: name.to_owned(),
        source,
    }
}

/// What the Kubernetes listener shows, and the authorities that it asks clients for: the union over
/// all clusters. Which of them a certificate is good for is judged later.
pub(super) fn listen_spec(
    process: &GatewayConfig,
    rules: &RuleSet,
) -> Result<TlsSpec, AssembleError> {
    let plan = lower_listen(process);
    let mut authorities: Vec<Material> = plan.client_ca_file.iter().cloned().collect();
    let of_clusters = rules.clusters.iter().map(|c| lower_cluster(c, None).authn);
    for authn in of_clusters.chain(lower_api(process).map(|api| api.authn)) {
        for authority in authn.authorities() {
            if !authorities.contains(authority) {
                authorities.push(authority.clone());
            }
        }
    }
    let mut spec = tls_spec(&plan, &authorities)?;
    for cluster in &rules.clusters {
        spec.identities
            .extend(serving(&lower_cluster(cluster, None))?);
    }
    // By the authenticator of the cluster that a request is for.
    spec.client_certificates = ClientCertificates::JudgedLater;
    Ok(spec)
}

/// A cluster's own certificate towards clients, tried out.
fn serving(plan: &ClusterPlan) -> Result<Option<ServerIdentity>, AssembleError> {
    let Some((cert_file, key_file)) = &plan.serving else {
        return Ok(None);
    };
    let identity = ServerIdentity {
        certificate_pem: read(cert_file)?,
        key_pem: read(key_file)?,
        names: plan.hosts.clone(),
    };
    let alone = TlsSpec {
        identities: vec![identity.clone()],
        ..TlsSpec::default()
    };
    match TlsSource::new(&alone) {
        Ok(_) => Ok(Some(identity)),
        Err(source) => Err(AssembleError::Serving {
            name: plan.name.clone(),
            source,
        }),
    }
}

/// What the admin listener shows and asks for, tried out: it may be put into force at the very end.
pub(super) fn admin_spec(plan: &TlsPlan) -> Result<TlsSpec, AssembleError> {
    let authorities: Vec<Material> = plan.client_ca_file.iter().cloned().collect();
    let spec = tls_spec(plan, &authorities)?;
    TlsSource::new(&spec)?;
    Ok(spec)
}

/// Reads a listener's files.
fn tls_spec(plan: &TlsPlan, authorities: &[Material]) -> Result<TlsSpec, AssembleError> {
    let identity = ServerIdentity {
        certificate_pem: read(&plan.cert_file)?,
        key_pem: read(&plan.key_file)?,
        names: Vec::new(),
    };
    let client_cas_pem = authorities.iter().map(read).collect::<Result<_, _>>()?;
    Ok(TlsSpec {
        identities: vec![identity],
        client_cas_pem,
        client_certificates: ClientCertificates::OfAuthorities,
    })
}

fn read(from: &Material) -> Result<Vec<u8>, AssembleError> {
    from.read().map_err(|source| AssembleError::File {
        path: from.place().to_owned(),
        source,
    })
}
