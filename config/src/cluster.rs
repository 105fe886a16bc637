//! `kind: UpstreamCluster`: a set of equal kube-apiservers, who may reach them, and how.

use serde::Deserialize;

use crate::address::{EndpointUrl, HostPattern};
use crate::balance::{Balance, Subset};
use crate::clients::Clients;
use crate::discovery::Discovery;
use crate::located::Located;
use crate::path::FilePath;
use crate::units::{Count, TimeSpan};

/// The name of an object.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Metadata {
    /// A DNS name, unique among objects of its kind.
    pub name: Located<String>,
}

/// A set of equal kube-apiservers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct UpstreamCluster {
    /// Always `sluice.io/v1alpha1`.
    pub api_version: String,
    /// Always `UpstreamCluster`.
    pub kind: String,
    /// Its name, by which rules, metrics and audit know it.
    pub metadata: Metadata,
    /// What it is.
    pub spec: ClusterSpec,
}

/// What a cluster is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The hosts under which clients reach it, by SNI and by Host. `*.` and a name stands for every
    /// name one label longer; an empty list leaves only the default; there is no negation.
    #[serde(default)]
    pub hosts: Vec<Located<HostPattern>>,
    /// Whether it serves requests for hosts that nobody names; one cluster at most.
    #[serde(default)]
    pub default: Located<bool>,
    /// The certificate shown to clients who name one of the hosts in their handshake; the listener's
    /// own without it.
    pub serving: Option<Located<Serving>>,
    /// Its apiservers; at least one, unless DNS knows them.
    #[serde(default)]
    pub endpoints: Located<Vec<Endpoint>>,
    /// Who else knows its apiservers.
    pub discovery: Option<Located<Discovery>>,
    /// Parts of the endpoints, to which rules may send requests.
    #[serde(default)]
    pub subsets: Vec<Subset>,
    /// How requests are spread over the endpoints.
    #[serde(default)]
    pub balance: Balance,
    /// How the endpoints' certificates are verified; needed for https.
    pub tls: Option<UpstreamTls>,
    /// The gateway's own credential there.
    pub credentials: Option<Located<Credentials>>,
    /// How it is told who the client is.
    #[serde(default)]
    pub identity: Identity,
    /// Who may come in, and how they are known.
    pub clients: Located<Clients>,
    /// How endpoints are probed.
    #[serde(default)]
    pub health: Health,
    /// When an endpoint that fails requests is left out for a while.
    #[serde(default)]
    pub ejection: Ejection,
    /// When an endpoint whose share of failures is high is left out.
    #[serde(default)]
    pub breaker: Breaker,
    /// How long the gateway waits.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Bounds of exec, attach, port-forward and proxied sockets.
    #[serde(default)]
    pub tunnels: Tunnels,
}

/// A certificate shown to the clients of one cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Serving {
    /// Certificate chain, PEM, leaf first.
    pub cert_file: FilePath,
    /// Its private key, PEM.
    pub key_file: FilePath,
}

/// One apiserver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Endpoint {
    /// `https://host:port`.
    pub url: Located<EndpointUrl>,
    /// Its share of requests relative to the others'.
    #[serde(default = "default_weight")]
    pub weight: Count,
    /// Where it stands. Requests stay in the gateway's own zone, the process file's `zone`, while
    /// half of its endpoints are in good standing; without either, zones do not matter.
    pub zone: Option<Located<String>>,
    /// Words by which subsets know it, such as `tier=big`. Exact text: no `*`, no negation; empty:
    /// known by its URL only.
    #[serde(default)]
    pub labels: Vec<Located<String>>,
}

/// How endpoints' certificates are verified.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct UpstreamTls {
    /// CAs of their certificates, PEM.
    pub ca_file: FilePath,
    /// The name their certificates must bear; each endpoint's own host without it.
    pub server_name: Option<String>,
}

/// The gateway's own credential: a client certificate or a bearer token, not both.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Credentials {
    /// Certificate chain, PEM, leaf first.
    pub client_cert_file: Option<FilePath>,
    /// Its private key, PEM.
    pub client_key_file: Option<FilePath>,
    /// A file that holds a bearer token; read anew when it changes.
    pub token_file: Option<FilePath>,
}

/// How a cluster is told who the client is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Identity {
    /// The way.
    #[serde(default)]
    pub mode: Located<IdentityMode>,
    /// The headers of front proxies: what this one says, and what it hears from others. A client's
    /// own copies of all of them are taken out in every mode.
    #[serde(default)]
    pub request_headers: RequestHeaders,
}

/// The headers in which front proxies tell who calls: the apiservers' `--requestheader-*` flags.
/// The first of each list is said, all are heard and taken out. Exact names: no `*`, no negation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct RequestHeaders {
    /// The user's name; an empty list is a fault.
    pub username: Vec<Located<String>>,
    /// The user's uid; an empty list tells none.
    pub uid: Vec<Located<String>>,
    /// A group, one line each; an empty list is a fault.
    pub group: Vec<Located<String>>,
    /// What names of extra headers begin with; an empty list tells none.
    pub extra_prefixes: Vec<Located<String>>,
}

impl Default for RequestHeaders {
    fn default() -> Self {
        let one = |name: &str| vec![Located::unwritten(name.to_owned())];
        RequestHeaders {
            username: one("X-Remote-User"),
            uid: one("X-Remote-Uid"),
            group: one("X-Remote-Group"),
            extra_prefixes: one("X-Remote-Extra-"),
        }
    }
}

/// Ways to tell a cluster who the client is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IdentityMode {
    /// `Impersonate-*` headers; the gateway's credential needs the right to impersonate.
    #[default]
    Impersonate,
    /// `X-Remote-*` headers; the gateway's certificate must be of the request-header CA.
    FrontProxy,
    /// The client's own bearer token.
    PassThrough,
}

/// How endpoints are probed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Health {
    /// The path asked for; it must begin with a slash.
    pub path: Located<String>,
    /// The time from one probe to the next.
    pub interval: Located<TimeSpan>,
    /// How long an answer may take.
    pub timeout: Located<TimeSpan>,
    /// How many good answers in a row make an endpoint ready.
    pub rise: Count,
    /// How many bad ones make it unready.
    pub fall: Count,
}

impl Default for Health {
    fn default() -> Self {
        Health {
            path: Located::unwritten("/readyz".to_owned()),
            interval: Located::unwritten(TimeSpan::from_secs(1)),
            timeout: Located::unwritten(TimeSpan::from_secs(2)),
            rise: const { Count::of(2) },
            fall: const { Count::of(2) },
        }
    }
}

/// When an endpoint that fails requests is left out for a while.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Ejection {
    /// How many failures in a row eject it.
    pub consecutive_failures: Count,
    /// For how long the first time; each further time is twice as long, up to a minute.
    pub base_time: Located<TimeSpan>,
}

impl Default for Ejection {
    fn default() -> Self {
        Ejection {
            consecutive_failures: const { Count::of(5) },
            base_time: Located::unwritten(TimeSpan::from_secs(5)),
        }
    }
}

/// When an endpoint whose share of failures is high is left out, as an ejection is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Breaker {
    /// The share of failures within a second, in percent, from which it opens; 0 switches it off.
    pub failure_percent: Located<u8>,
    /// With fewer requests than this in that second it stays closed.
    pub minimum_requests: Count,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker {
            failure_percent: Located::unwritten(50),
            minimum_requests: const { Count::of(20) },
        }
    }
}

/// How long the gateway waits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Timeouts {
    /// For a connection to an endpoint.
    pub connect: Located<TimeSpan>,
    /// For the head of the answer to a request that is not long-running, and for each further part
    /// of that answer. Longer than the minute
    /// after which a kube-apiserver itself gives up, so that the client gets the server's answer.
    pub head: Located<TimeSpan>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Located::unwritten(TimeSpan::from_secs(3)),
            head: Located::unwritten(TimeSpan::from_secs(65)),
        }
    }
}

/// Bounds of exec, attach, port-forward and proxied sockets.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Tunnels {
    /// How many may stand at once; those beyond are answered with 429.
    pub max: Count,
}

impl Default for Tunnels {
    fn default() -> Self {
        Tunnels {
            max: const { Count::of(10_000) },
        }
    }
}

pub(crate) fn default_weight() -> Count {
    const { Count::of(1) }
}

impl UpstreamCluster {
    /// Every path with its key; all of them must be there already.
    pub(crate) fn each_path(&mut self, visit: &mut dyn FnMut(&str, &mut FilePath, bool)) {
        let spec = &mut self.spec;
        if let Some(serving) = &mut spec.serving {
            visit("spec.serving.certFile", &mut serving.value.cert_file, true);
            visit("spec.serving.keyFile", &mut serving.value.key_file, true);
        }
        if let Some(tls) = &mut spec.tls {
            visit("spec.tls.caFile", &mut tls.ca_file, true);
        }
        if let Some(credentials) = &mut spec.credentials {
            for (key, path) in [
                (
                    "spec.credentials.clientCertFile",
                    &mut credentials.value.client_cert_file,
                ),
                (
                    "spec.credentials.clientKeyFile",
                    &mut credentials.value.client_key_file,
                ),
                (
                    "spec.credentials.tokenFile",
                    &mut credentials.value.token_file,
                ),
            ] {
                if let Some(path) = path {
                    visit(key, path, true);
                }
            }
        }
        spec.clients.value.each_path(visit);
    }
}
