//! `kind: UpstreamCluster`.

use std::sync::Arc;

use sluice_config as config;

use super::AuthnPlan;
use super::clients::{authn, request_headers};
use crate::material::Material;
use crate::upstream::{
    BreakerSpec, ClusterSpec, CredentialsSpec, DiscoverySpec, EjectionSpec, EndpointSpec,
    HealthSpec, IdentityMode, SubsetMembers, SubsetSpec, TimeoutSpec, UpstreamTlsSpec,
};

/// A cluster as it will be.
#[derive(Clone, Debug)]
pub(in crate::control) struct ClusterPlan {
    pub(in crate::control) name: String,
    pub(in crate::control) hosts: Vec<String>,
    pub(in crate::control) is_default: bool,
    /// Certificate and key shown under its hosts.
    pub(in crate::control) serving: Option<(Material, Material)>,
    pub(in crate::control) upstream: ClusterSpec,
    pub(in crate::control) authn: AuthnPlan,
}

/// `zone` is the gateway's own.
pub(in crate::control) fn lower_cluster(
    cluster: &config::UpstreamCluster,
    zone: Option<&str>,
) -> ClusterPlan {
    let config::UpstreamCluster {
        api_version: _,
        kind: _,
        metadata: config::Metadata { name },
        spec,
    } = cluster;
    let config::ClusterSpec {
        hosts,
        default,
        serving,
        endpoints,
        discovery,
        subsets,
        balance: config::Balance { slow_start },
        tls,
        credentials,
        identity: config::Identity {
            mode,
            request_headers: names,
        },
        clients,
        health,
        ejection,
        breaker,
        timeouts,
        tunnels: config::Tunnels { max: tunnels_max },
    } = spec;
    let identity = identity(**mode);
    let names = Arc::new(request_headers(names));
    ClusterPlan {
        name: name.value.clone(),
        hosts: hosts.iter().map(|host| host.as_str().to_owned()).collect(),
        is_default: **default,
        serving: serving.as_ref().map(|serving| {
            let config::Serving {
                cert_file,
                key_file,
            } = &**serving;
            (material(cert_file), material(key_file))
        }),
        upstream: ClusterSpec {
            name: name.value.clone(),
            endpoints: endpoints.iter().map(endpoint).collect(),
            discovery: discovery.as_ref().and_then(|it| finder(it)),
            subsets: subsets.iter().map(subset).collect(),
            zone: zone.map(str::to_owned),
            slow_start: slow_start.get(),
            tls: tls.as_ref().map(upstream_tls).unwrap_or_default(),
            credentials: credentials
                .as_ref()
                .map(|credentials| own_credentials(credentials))
                .unwrap_or_default(),
            identity,
            request_headers: Arc::clone(&names),
            health: probes(health),
            ejection: ejections(ejection),
            breaker: endpoint_breaker(breaker),
            timeouts: waits(timeouts),
            tunnels_max: tunnels_max.get(),
        },
        authn: authn(clients, identity, &names),
    }
}

/// A file, or the text that stands for one.
pub(in crate::control) fn material(file: &config::FilePath) -> Material {
    let place = file.as_path().to_owned();
    match file.as_inline() {
        Some(text) => Material::inline(place, Arc::clone(text)),
        None => Material::from(place),
    }
}

fn endpoint(endpoint: &config::Endpoint) -> EndpointSpec {
    let config::Endpoint {
        url,
        weight,
        zone,
        labels,
    } = endpoint;
    EndpointSpec {
        url: url.to_string(),
        weight: weight.get(),
        zone: zone.as_ref().map(|zone| zone.value.clone()),
        tls_name: None,
        is_reserve: false,
        labels: labels.iter().map(|label| label.value.clone()).collect(),
    }
}

/// Validation leaves one of the two.
fn finder(discovery: &config::Discovery) -> Option<DiscoverySpec> {
    let config::Discovery { dns, kubernetes } = discovery;
    if let Some(config::Dns { url, interval }) = dns {
        return Some(DiscoverySpec::Dns {
            url: url.to_string(),
            interval: interval.get(),
        });
    }
    let config::Slice { interval } = kubernetes.as_ref()?;
    Some(DiscoverySpec::Kubernetes {
        interval: interval.get(),
    })
}

/// Validation leaves a subset with either listed endpoints or labels.
fn subset(subset: &config::Subset) -> SubsetSpec {
    let config::Subset {
        name,
        endpoints,
        labels,
        strict,
    } = subset;
    let members = if labels.is_empty() {
        SubsetMembers::Listed(endpoints.iter().map(|url| url.to_string()).collect())
    } else {
        SubsetMembers::Labelled(labels.iter().map(|label| label.value.clone()).collect())
    };
    SubsetSpec {
        name: name.value.clone(),
        members,
        is_strict: *strict,
    }
}

fn upstream_tls(tls: &config::UpstreamTls) -> UpstreamTlsSpec {
    let config::UpstreamTls {
        ca_file,
        server_name,
    } = tls;
    UpstreamTlsSpec {
        ca_file: Some(material(ca_file)),
        server_name: server_name.clone(),
    }
}

fn own_credentials(credentials: &config::Credentials) -> CredentialsSpec {
    let config::Credentials {
        client_cert_file,
        client_key_file,
        token_file,
    } = credentials;
    CredentialsSpec {
        client_cert_file: client_cert_file.as_ref().map(material),
        client_key_file: client_key_file.as_ref().map(material),
        token_file: token_file.as_ref().map(material),
    }
}

fn identity(mode: config::IdentityMode) -> IdentityMode {
    match mode {
        config::IdentityMode::Impersonate => IdentityMode::Impersonate,
        config::IdentityMode::FrontProxy => IdentityMode::FrontProxy,
        config::IdentityMode::PassThrough => IdentityMode::PassThrough,
    }
}

fn probes(health: &config::Health) -> HealthSpec {
    let config::Health {
        path,
        interval,
        timeout,
        rise,
        fall,
    } = health;
    HealthSpec {
        path: path.value.clone(),
        interval: interval.get(),
        timeout: timeout.get(),
        rise: rise.get(),
        fall: fall.get(),
    }
}

fn ejections(ejection: &config::Ejection) -> EjectionSpec {
    let config::Ejection {
        consecutive_failures,
        base_time,
    } = ejection;
    EjectionSpec {
        consecutive_failures: consecutive_failures.get(),
        base_time: base_time.get(),
    }
}

fn endpoint_breaker(breaker: &config::Breaker) -> BreakerSpec {
    let config::Breaker {
        failure_percent,
        minimum_requests,
    } = breaker;
    BreakerSpec {
        failure_percent: u32::from(**failure_percent),
        requests_min: minimum_requests.get(),
    }
}

fn waits(timeouts: &config::Timeouts) -> TimeoutSpec {
    let config::Timeouts { connect, head } = timeouts;
    TimeoutSpec {
        connect: connect.get(),
        head: head.get(),
    }
}
