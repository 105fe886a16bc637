//! What the listener is told when it is built, and why it may refuse to be.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::access::EtcdAccess;
use super::admission::ROOM_BYTES;
use super::convert::TXN_OPS_MAX;
use super::kv::REQUEST_BYTES_MAX;

/// etcd's own default of ten minutes is far too long for kube-apiserver's watch cache; kubeadm
/// passes five seconds, and so do we.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// etcd refuses shorter ones: below it the notices cost more than they tell.
pub(crate) const PROGRESS_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// How long a drain waits for calls in flight; etcd's own clients give up on a call after five.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// etcd's deadline of a write: five seconds and two elections of one.
const WRITE_TIMEOUT: Duration = Duration::from_secs(7);
/// A fleet of 50 apiservers opens some 80 connections each, and one more per CRD.
const CONNECTIONS_MAX: usize = 16 * 1024;
/// One connection carries every watch and call of a client; etcd's own limit is the largest number.
const STREAMS_MAX: u32 = 1 << 20;
/// A peer that vanished is noticed in about two minutes; one ping a connection is cheap.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(120);
/// etcd's own patience for the answer to a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// How the etcd listener is set up. Values only; files are read when it is bound.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Where to listen; at least one.
    pub sockets: Vec<EtcdSocket>,
    /// Certificates; `None` is plain text and needs [`EtcdOptions::insecure_loopback`].
    pub tls: Option<EtcdTls>,
    /// Allows plain text, on a loopback address only.
    pub insecure_loopback: bool,
    /// Serves clients without a certificate wherever they are: plain text beyond loopback, and TLS
    /// without a client CA.
    pub insecure_anonymous: bool,
    /// Who may do what; `None` lets every certificate of the client CA write.
    pub access: Option<EtcdAccess>,
    /// How often a caught-up watch that asked for it hears how far it is; at least 100 ms.
    pub progress_interval: Duration,
    /// This member's name; never empty, or etcd's clients drop the member.
    pub name: String,
    /// URLs that clients are told to use; empty means the addresses listened on.
    pub advertise_urls: Vec<String>,
    /// Peer URLs shown with the member; nothing listens there.
    pub peer_urls: Vec<String>,
    /// Operations a transaction may have along one path.
    pub txn_ops_max: usize,
    /// Bytes a request may have.
    pub request_bytes_max: usize,
    /// Calls and watches open at once on one connection.
    pub streams_max: u32,
    /// How often a quiet connection is asked whether it is still there; `None` never asks.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to that may take.
    pub keepalive_timeout: Duration,
    /// Bytes of large answers on their way at once; beyond it they wait, then are refused.
    pub answer_bytes_max: usize,
    /// How long a write may take before its outcome is reported as unknown.
    pub write_timeout: Duration,
    /// How long a drain waits for calls in flight.
    pub drain_timeout: Duration,
    /// The most connections held at once.
    pub connections_max: usize,
}

/// One address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdSocket {
    /// Where; port 0 takes a free one, see [`super::Listener::local_addr`].
    pub address: SocketAddr,
    /// Plain text although there are certificates.
    pub is_plain: bool,
    /// Only `/metrics`, `/version` and the probes, which need no client certificate in plain text.
    pub only_http: bool,
}

impl EtcdSocket {
    /// Everything, with TLS where there are certificates.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        EtcdSocket {
            address,
            is_plain: false,
            only_http: false,
        }
    }
}

impl EtcdOptions {
    /// Defaults for an address: mutual TLS expected, 5 s between progress notices.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        EtcdOptions {
            sockets: vec![EtcdSocket::new(address)],
            tls: None,
            insecure_loopback: false,
            insecure_anonymous: false,
            access: None,
            progress_interval: PROGRESS_INTERVAL,
            name: "sluice".to_owned(),
            advertise_urls: Vec::new(),
            peer_urls: Vec::new(),
            txn_ops_max: TXN_OPS_MAX,
            request_bytes_max: REQUEST_BYTES_MAX,
            streams_max: STREAMS_MAX,
            keepalive_interval: Some(KEEPALIVE_INTERVAL),
            keepalive_timeout: KEEPALIVE_TIMEOUT,
            answer_bytes_max: ROOM_BYTES,
            write_timeout: WRITE_TIMEOUT,
            drain_timeout: DRAIN_TIMEOUT,
            connections_max: CONNECTIONS_MAX,
        }
    }
}

/// Where the certificates are. The files are looked at again as clients come, so that new ones are
/// used without a restart; what is open stays.
#[derive(Clone, Debug, Default)]
pub struct EtcdTls {
    /// PEM chain shown to clients.
    pub cert_file: PathBuf,
    /// PEM key of that chain.
    pub key_file: PathBuf,
    /// PEM certificates that sign clients: one without a certificate of theirs is refused. `None`
    /// asks for none and needs [`EtcdOptions::insecure_anonymous`].
    pub client_ca_file: Option<PathBuf>,
    /// PEM list of client certificates that are no longer good.
    pub client_crl_file: Option<PathBuf>,
    /// Names of the TLS 1.2 suites to offer; empty offers all that are sound.
    pub cipher_suites: Vec<String>,
    /// Which versions to offer.
    pub versions: TlsVersions,
}

/// TLS versions offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersions {
    /// 1.2 and 1.3.
    #[default]
    Both,
    /// 1.2 alone.
    Only12,
    /// 1.3 alone.
    Only13,
}

/// Why the listener cannot be had; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Neither certificates nor leave to do without.
    #[error(
        "the etcd listener on {address} has no certificates: give a certificate, a key and a client \
         CA, or allow plain text on a loopback address explicitly"
    )]
    NoTls {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// Plain text was allowed, but others could reach it.
    #[error(
        "the etcd listener refuses plain text on {address}, which is not a loopback address: give \
         certificates, or listen on 127.0.0.1"
    )]
    NotLoopback {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// Certificates, but no CA to know clients by.
    #[error(
        "the etcd listener has no client CA: whoever reaches it could write. Give the CA that signs \
         clients, or allow clients without a certificate explicitly"
    )]
    NoClientCa,
    /// Access by name where no name is shown.
    #[error(
        "access by certificate name needs certificates: {address} would serve clients without one"
    )]
    AccessWithoutNames {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen for etcd clients on {address}: {source}")]
    Bind {
        /// Where it was to listen.
        address: SocketAddr,
        /// The refusal.
        source: std::io::Error,
    },
    /// A certificate file cannot be read or used.
    #[error("cannot use {path}: {reason}")]
    Certificate {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificates do not fit together.
    #[error("certificates of the etcd listener do not fit together: {reason}")]
    Tls {
        /// What does not fit.
        reason: String,
    },
}
