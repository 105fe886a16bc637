//! What the listener is told when it is built, and why it may refuse to be.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

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

/// How the etcd listener is set up. Values only; files are read when it is bound.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Where to listen; port 0 takes a free one, see [`super::Listener::local_addr`].
    pub address: SocketAddr,
    /// Certificates; `None` is plain text and needs [`EtcdOptions::insecure_loopback`].
    pub tls: Option<EtcdTls>,
    /// Allows plain text, on a loopback address only.
    pub insecure_loopback: bool,
    /// How often a caught-up watch that asked for it hears how far it is; at least 100 ms.
    pub progress_interval: Duration,
    /// This member's name; never empty, or etcd's clients drop the member.
    pub name: String,
    /// URLs that clients are told to use; empty means the address listened on.
    pub advertise_urls: Vec<String>,
    /// How long a write may take before its outcome is reported as unknown.
    pub write_timeout: Duration,
    /// How long a drain waits for calls in flight.
    pub drain_timeout: Duration,
    /// The most connections held at once.
    pub connections_max: usize,
}

impl EtcdOptions {
    /// Defaults for an address: mutual TLS expected, 5 s between progress notices.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        EtcdOptions {
            address,
            tls: None,
            insecure_loopback: false,
            progress_interval: PROGRESS_INTERVAL,
            name: "sluice".to_owned(),
            advertise_urls: Vec::new(),
            write_timeout: WRITE_TIMEOUT,
            drain_timeout: DRAIN_TIMEOUT,
            connections_max: CONNECTIONS_MAX,
        }
    }
}

/// Where the certificates are; a client without one signed by `client_ca_file` is refused.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// PEM chain shown to clients.
    pub cert_file: PathBuf,
    /// PEM key of that chain.
    pub key_file: PathBuf,
    /// PEM certificates that sign clients.
    pub client_ca_file: PathBuf,
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
