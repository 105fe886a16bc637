//! What a cluster is told to be: plain values, lowered from configuration by whoever reads that.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::identity::RequestHeaders;
use crate::material::Material;

/// A set of equal kube-apiservers.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    /// For logs, metrics and messages.
    pub name: String,
    /// At least one, unless they are found.
    pub endpoints: Vec<EndpointSpec>,
    /// Where more of them are found.
    pub discovery: Option<DiscoverySpec>,
    /// Parts of them that requests may be sent to.
    pub subsets: Vec<SubsetSpec>,
    /// Where the gateway itself stands; its endpoints there are preferred.
    pub zone: Option<String>,
    /// How long an endpoint that has come back takes to its full share.
    pub slow_start: Duration,
    /// How `https` endpoints are verified.
    pub tls: UpstreamTlsSpec,
    /// What the gateway shows as its own.
    pub credentials: CredentialsSpec,
    /// How a caller's identity travels.
    pub identity: IdentityMode,
    /// The headers it travels in from a front proxy; a client's own are taken out in every mode.
    pub request_headers: Arc<RequestHeaders>,
    /// Active probes.
    pub health: HealthSpec,
    /// Leaving out endpoints that fail in a row.
    pub ejection: EjectionSpec,
    /// Leaving out endpoints that fail too often.
    pub breaker: BreakerSpec,
    /// Bounds of waiting.
    pub timeouts: TimeoutSpec,
    /// Tunnels that may stand at once.
    pub tunnels_max: NonZeroU32,
}

impl ClusterSpec {
    /// A cluster of these URLs with defaults for the rest.
    #[must_use]
    pub fn new(name: impl Into<String>, urls: impl IntoIterator<Item = String>) -> Self {
        ClusterSpec {
            name: name.into(),
            endpoints: urls.into_iter().map(EndpointSpec::new).collect(),
            discovery: None,
            subsets: Vec::new(),
            zone: None,
            slow_start: Duration::ZERO,
            tls: UpstreamTlsSpec::default(),
            credentials: CredentialsSpec::default(),
            identity: IdentityMode::Impersonate,
            request_headers: Arc::default(),
            health: HealthSpec::default(),
            ejection: EjectionSpec::default(),
            breaker: BreakerSpec::default(),
            timeouts: TimeoutSpec::default(),
            tunnels_max: TUNNELS_MAX,
        }
    }
}

/// A tunnel is two sockets and two tasks: some 100 KiB, so that this is a gigabyte.
const TUNNELS_MAX: NonZeroU32 = NonZeroU32::MIN.saturating_add(9_999);

/// One address of a cluster.
#[derive(Clone, Debug)]
pub struct EndpointSpec {
    /// `https://host:port`, or `http://` for HTTP/2 without TLS; nothing after the port.
    pub url: String,
    /// Its share relative to the others'.
    pub weight: NonZeroU32,
    /// Where it stands.
    pub zone: Option<String>,
    /// Words by which subsets know it.
    pub labels: Vec<String>,
    /// The name its certificate must bear, where it is not the host of the URL.
    pub tls_name: Option<String>,
    /// Used only when no other can be.
    pub is_reserve: bool,
}

impl EndpointSpec {
    /// An endpoint of weight one.
    #[must_use]
    pub fn new(url: String) -> Self {
        EndpointSpec {
            url,
            weight: NonZeroU32::MIN,
            zone: None,
            labels: Vec::new(),
            tls_name: None,
            is_reserve: false,
        }
    }
}

/// Where endpoints are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoverySpec {
    /// The addresses of a name.
    Dns {
        /// `https://name:port`.
        url: String,
        /// From one question to the next.
        interval: Duration,
    },
    /// The EndpointSlice that kube-apiservers keep of themselves.
    Kubernetes {
        /// From one question to the next.
        interval: Duration,
    },
}

/// Some of a cluster's endpoints, under a name.
#[derive(Clone, Debug)]
pub struct SubsetSpec {
    /// Unique within the cluster.
    pub name: String,
    /// Which.
    pub members: SubsetMembers,
    /// Whether its requests stay in it when none of its endpoints is in good standing.
    pub is_strict: bool,
}

/// Which endpoints a subset has.
#[derive(Clone, Debug)]
pub enum SubsetMembers {
    /// Those of these URLs.
    Listed(Vec<String>),
    /// Those with all of these labels.
    Labelled(Vec<String>),
}

/// How `https` endpoints are verified. There is no way to skip it.
#[derive(Clone, Debug, Default)]
pub struct UpstreamTlsSpec {
    /// PEM bundle of the authorities; needed for `https`.
    pub ca_file: Option<Material>,
    /// The name to verify, where it is not the host of the URL.
    pub server_name: Option<String>,
}

/// The gateway's own credentials; files are read again while the cluster runs.
#[derive(Clone, Debug, Default)]
pub struct CredentialsSpec {
    /// PEM chain of the client certificate; goes with `client_key_file`.
    pub client_cert_file: Option<Material>,
    /// PEM key of the client certificate.
    pub client_key_file: Option<Material>,
    /// A file that holds a bearer token.
    pub token_file: Option<Material>,
}

/// How a caller's identity reaches the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdentityMode {
    /// `Impersonate-*` headers under the gateway's own credential.
    Impersonate,
    /// `X-Remote-*` headers under the gateway's front-proxy client certificate.
    FrontProxy,
    /// The caller's own bearer token.
    PassThrough,
}

/// Active probes.
#[derive(Clone, Debug)]
pub struct HealthSpec {
    /// Asked with GET and the gateway's credential.
    pub path: String,
    /// Between probes.
    pub interval: Duration,
    /// For one probe, connecting included.
    pub timeout: Duration,
    /// Good probes in a row that make an unready endpoint ready.
    pub rise: NonZeroU32,
    /// Bad probes in a row that make a ready endpoint unready.
    pub fall: NonZeroU32,
}

const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

impl Default for HealthSpec {
    fn default() -> Self {
        HealthSpec {
            path: "/readyz".to_owned(),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(2),
            rise: TWO,
            fall: TWO,
        }
    }
}

/// Leaving out endpoints that fail in a row.
#[derive(Clone, Copy, Debug)]
pub struct EjectionSpec {
    /// Failures in a row that eject.
    pub consecutive_failures: NonZeroU32,
    /// The first ejection's length; each further one is twice as long, up to a minute.
    pub base_time: Duration,
}

impl Default for EjectionSpec {
    fn default() -> Self {
        EjectionSpec {
            consecutive_failures: NonZeroU32::MIN.saturating_add(4),
            base_time: Duration::from_secs(5),
        }
    }
}

/// Leaving out endpoints that fail too often: the endpoint breaker.
#[derive(Clone, Copy, Debug)]
pub struct BreakerSpec {
    /// Share of failures in a second's window that trips it, in percent; 0 switches it off.
    pub failure_percent: u32,
    /// Requests in the window before the share means anything.
    pub requests_min: NonZeroU32,
}

impl Default for BreakerSpec {
    fn default() -> Self {
        BreakerSpec {
            failure_percent: 50,
            requests_min: NonZeroU32::MIN.saturating_add(19),
        }
    }
}

/// Bounds of waiting.
#[derive(Clone, Copy, Debug)]
pub struct TimeoutSpec {
    /// For a connection: TCP, TLS and the first SETTINGS.
    pub connect: Duration,
    /// For the response head of a request that is not long-running, and for each further part of
    /// its answer; kube-apiserver itself gives up after 60 s.
    pub head: Duration,
}

impl Default for TimeoutSpec {
    fn default() -> Self {
        TimeoutSpec {
            connect: Duration::from_secs(3),
            head: Duration::from_secs(65),
        }
    }
}

/// A spec that cannot be used; nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No endpoint is named.
    #[error("cluster={cluster} has no endpoint; name at least one")]
    NoEndpoint {
        /// Which cluster.
        cluster: String,
    },
    /// An endpoint is named twice.
    #[error("endpoint url={url} is named twice; use a weight instead")]
    Duplicate {
        /// Which.
        url: String,
    },
    /// An URL of the wrong form.
    #[error("endpoint url={url} is not of the form https://host:port")]
    Url {
        /// Which.
        url: String,
    },
    /// A name that no certificate can carry.
    #[error("server name={name} is neither a host name nor an address")]
    ServerName {
        /// Which.
        name: String,
    },
    /// `https` without authorities.
    #[error("cluster={cluster} has https endpoints but no tls.caFile to verify them; name it")]
    NoCa {
        /// Which cluster.
        cluster: String,
    },
    /// A file that cannot be read or holds the wrong thing.
    #[error("cannot use file={}: {reason}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Half a pair.
    #[error("a client certificate needs both its file and its key's file")]
    HalfPair,
    /// What rustls objects to.
    #[error("tls configuration refused: {0}")]
    Tls(#[from] rustls::Error),
}
