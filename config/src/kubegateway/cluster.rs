//! Whom the peer's cluster calls, how, and whom it lets in.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Said;
use super::shape::{self, ClientConfig, SecureServing, Text};
use crate::address::{EndpointUrl, HostPattern, Scheme};
use crate::balance::Balance;
use crate::clients::{Clients, TokenReview};
use crate::cluster::{
    Breaker, ClusterSpec, Credentials, Ejection, Endpoint, Health, Identity, Metadata, Serving,
    Timeouts, Tunnels, UpstreamCluster, UpstreamTls,
};
use crate::located::{Located, Position};
use crate::path::FilePath;
use crate::units::Count;

/// `None` when it cannot be one of ours; why is said.
pub(super) fn translate(shape: &shape::Cluster, said: &mut Said<'_>) -> Option<UpstreamCluster> {
    let name = &shape.metadata.name;
    let nothing = ClientConfig::default();
    let no_serving = SecureServing::default();
    let calls = shape.spec.client_config.as_ref();
    let (calls, calls_at) = calls.map_or((&nothing, name.at), |it| (&it.value, it.at));
    let serving = shape.spec.secure_serving.as_ref();
    let (shown, shown_at) = serving.map_or((&no_serving, name.at), |it| (&it.value, it.at));
    let endpoints = endpoints(shape, said);
    let has_https = endpoints
        .iter()
        .flat_map(|list| list.iter())
        .any(|endpoint| endpoint.url.scheme() == Scheme::Https);
    let tls = has_https.then(|| upstream_tls(calls, (name, calls_at), said));
    let spec = ClusterSpec {
        hosts: hosts(name, shown, said),
        default: Located::unwritten(false),
        endpoints: endpoints?,
        discovery: None,
        subsets: Vec::new(),
        balance: Balance::default(),
        tls: tls.flatten(),
        credentials: credentials(calls, calls_at, said),
        identity: Identity::default(),
        clients: clients(shown, shown_at, said),
        serving: own_certificate(shown, shown_at, said),
        health: Health::default(),
        ejection: Ejection::default(),
        breaker: Breaker::default(),
        timeouts: Timeouts::default(),
        tunnels: Tunnels::default(),
    };
    own_calls(calls, said);
    said.differs(
        spec.endpoints.at,
        "servers are asked for /readyz each second, two answers in a row decide",
        "there for /healthz each 5s and one decides, so that a server that drains keeps its traffic",
    );
    Some(UpstreamCluster {
        api_version: crate::decode::API_VERSION.to_owned(),
        kind: "UpstreamCluster".to_owned(),
        metadata: Metadata { name: name.clone() },
        spec,
    })
}

/// Its name and its server names.
fn hosts(
    name: &Located<String>,
    shown: &SecureServing,
    said: &mut Said<'_>,
) -> Vec<Located<HostPattern>> {
    let own = name.to_ascii_lowercase();
    let more = shown.server_names.iter().flatten();
    let more = more.filter(|host| host.to_ascii_lowercase() != own);
    let mut hosts = Vec::new();
    for host in std::iter::once(name).chain(more) {
        match host.parse() {
            Ok(value) => hosts.push(Located { value, at: host.at }),
            Err(why) => said.fault(
                host.at,
                why,
                "clients name a cluster by DNS name or address",
            ),
        }
    }
    hosts
}

/// The servers that are not disabled.
fn endpoints(shape: &shape::Cluster, said: &mut Said<'_>) -> Option<Located<Vec<Endpoint>>> {
    let Some(servers) = &shape.spec.servers else {
        let help = "give at least one `endpoint`";
        said.fault(shape.metadata.name.at, "spec.servers is missing", help);
        return None;
    };
    let mut endpoints = Vec::new();
    for server in servers.iter() {
        let at = server.endpoint.at;
        match server.endpoint.parse::<EndpointUrl>() {
            Ok(_) if server.disabled == Some(true) => {}
            Ok(value) => endpoints.push(Endpoint {
                url: Located { value, at },
                weight: const { Count::of(1) },
                zone: None,
                labels: Vec::new(),
            }),
            Err(why) => {
                let (message, help) = why.split_once("; ").unwrap_or((&why, ""));
                said.fault(at, message, help);
            }
        }
    }
    if endpoints.is_empty() && said.faults.is_empty() {
        let help = "enable one, or remove the object";
        said.fault(servers.at, "spec.servers has none that is enabled", help);
    }
    Some(Located {
        value: endpoints,
        at: servers.at,
    })
}

fn upstream_tls(
    calls: &ClientConfig,
    (name, at): (&Located<String>, Position),
    said: &mut Said<'_>,
) -> Option<UpstreamTls> {
    let is_insecure = calls.insecure.as_ref().filter(|it| it.value);
    if let Some(insecure) = is_insecure {
        let why = "this gateway never sends a credential to a server that it has not verified";
        match given(&calls.ca_data) {
            Some(_) => said.differs(insecure.at, "insecure is not followed", why),
            None => {
                let help = "give `caData`, the CA of the servers' certificates";
                said.fault(
                    insecure.at,
                    "clientConfig.insecure would believe any server",
                    help,
                );
                return None;
            }
        }
    }
    let Some(ca) = given(&calls.ca_data) else {
        let help = "add the CA of the servers' certificates";
        said.fault(at, "clientConfig.caData is missing for https servers", help);
        return None;
    };
    let server_name = given(&calls.server_name).unwrap_or(name);
    Some(UpstreamTls {
        ca_file: data("clientConfig.caData", ca, said)?,
        server_name: Some(server_name.value.clone()),
    })
}

fn credentials(
    calls: &ClientConfig,
    at: Position,
    said: &mut Said<'_>,
) -> Option<Located<Credentials>> {
    let cert = text_data("clientConfig.certData", &calls.cert_data, said);
    let key = text_data("clientConfig.keyData", &calls.key_data, said);
    let token = text_data("clientConfig.bearerToken", &calls.bearer_token, said);
    let wrote = |text: &Text| given(text).is_some();
    if wrote(&calls.cert_data) != wrote(&calls.key_data) {
        let help = "give both, or neither";
        said.fault(at, "clientConfig has one of certData and keyData", help);
        return None;
    }
    if !wrote(&calls.cert_data) && !wrote(&calls.bearer_token) {
        let help = "give `certData` and `keyData`, or `bearerToken`, of one who may impersonate";
        said.fault(at, "clientConfig has no credential of the gateway", help);
        return None;
    }
    if let (Some(_), Some(token)) = (&cert, &token) {
        said.differs(
            token.at(),
            "bearerToken is left out beside a certificate",
            "a kube-apiserver looks at the certificate first",
        );
    }
    let value = Credentials {
        token_file: if cert.is_some() { None } else { token },
        client_cert_file: cert,
        client_key_file: key,
    };
    Some(Located { value, at })
}

fn clients(shown: &SecureServing, at: Position, said: &mut Said<'_>) -> Located<Clients> {
    let client_ca_file = text_data("secureServing.clientCAData", &shown.client_ca_data, said);
    if client_ca_file.is_none() {
        said.differs(
            at,
            "without clientCAData no client certificate is taken",
            "there those of the gateway's own client CA are, for every such cluster",
        );
    }
    said.differs(
        at,
        "a token that held is asked for again after 2m",
        "there after 10m, for which a revoked one goes on",
    );
    let value = Clients {
        client_ca_file,
        front_proxy: None,
        token_review: Some(TokenReview::default()),
        service_accounts: None,
        oidc: Vec::new(),
        anonymous: true,
    };
    Located { value, at }
}

fn own_certificate(
    shown: &SecureServing,
    at: Position,
    said: &mut Said<'_>,
) -> Option<Located<Serving>> {
    let cert = text_data("secureServing.certData", &shown.cert_data, said);
    let key = text_data("secureServing.keyData", &shown.key_data, said);
    match (cert, key) {
        (Some(cert_file), Some(key_file)) => Some(Located {
            value: Serving {
                cert_file,
                key_file,
            },
            at,
        }),
        (None, None) => None,
        _ => {
            let help = "give both, or neither for the listener's own certificate";
            said.fault(at, "secureServing has one of certData and keyData", help);
            None
        }
    }
}

/// Limits on the gateway's own calls.
fn own_calls(calls: &ClientConfig, said: &mut Said<'_>) {
    let limits = [&calls.qps, &calls.burst, &calls.qps_divisor];
    if let Some(first) = limits.into_iter().flatten().next() {
        said.differs(
            first.at,
            "qps, burst and qpsDivisor are not followed",
            "they slow that gateway's own calls; here those are few, cached and asked once at a time",
        );
    }
}

fn text_data(key: &str, text: &Text, said: &mut Said<'_>) -> Option<FilePath> {
    data(key, given(text)?, said)
}

/// What is written and not empty: its server makes empty text of what is absent.
fn given(text: &Text) -> Option<&Located<String>> {
    text.as_ref().filter(|text| !text.is_empty())
}

/// What stands in the object as base64.
fn data(key: &str, text: &Located<String>, said: &mut Said<'_>) -> Option<FilePath> {
    let bare: String = text.split_ascii_whitespace().collect();
    match STANDARD.decode(bare) {
        Ok(bytes) => {
            let file = said.source.file.display();
            let place = format!("{file}:{}:{}", text.at.line, text.at.column);
            Some(FilePath::inline(PathBuf::from(place), text.at, bytes))
        }
        // Without the text: it may be a key.
        Err(_) => {
            let help = "write what `base64 -w0` makes of the file";
            said.fault(text.at, format!("{key} is not base64"), help);
            None
        }
    }
}
