//! What the phases know of one request, handed on from one to the next.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use http::{HeaderName, HeaderValue};
use rustls_pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use crate::drain::ConnectionDrain;
use crate::identity::{RequestHeaders, UserInfo};
use crate::networks::Networks;

/// What a listener knows of a connection; shared by all its requests.
#[derive(Debug)]
pub struct Connection {
    /// The client's address: what the balancer said in front of the connection, where one speaks.
    pub peer: SocketAddr,
    /// The proxies whose word on where a request comes from counts; none unless the peer is one.
    pub forwarders: Option<Arc<Networks>>,
    /// The address it reached.
    pub local: SocketAddr,
    /// The server name of the TLS handshake, lower-case.
    pub server_name: Option<String>,
    /// The client's certificate chain, leaf first; not yet judged by any cluster's CA.
    pub client_chain: Vec<CertificateDer<'static>>,
    /// When it was accepted.
    pub accepted: Instant,
    /// What ends its watches and tunnels, and counts them.
    pub drain: ConnectionDrain,
    /// The header lines last made for a user of this connection: nearly all connections have one
    /// user, who is then spelt out once and not once a request.
    pub lines: ArcSwapOption<HeaderLines>,
    /// Whom the certificate was last found to stand for.
    pub known: ArcSwapOption<KnownCaller>,
    /// What was last found of it as a front proxy's.
    pub known_proxy: ArcSwapOption<KnownCaller>,
}

/// The verdict on a connection's client certificate.
#[derive(Debug)]
pub struct KnownCaller {
    /// Which loaded authority judged it.
    pub authority: u64,
    /// Until when that is so, as time since the Unix epoch: the certificate's end, if it holds.
    pub until: Duration,
    /// Whom it stands for, or why it does not hold.
    pub verdict: Result<Arc<UserInfo>, Arc<str>>,
}

/// Header lines made for one user, ready to be copied into a request.
#[derive(Debug)]
pub struct HeaderLines {
    /// Whom they stand for; compared by address.
    pub user: Arc<UserInfo>,
    /// From where.
    pub client: SocketAddr,
    /// In which of the forwarder's styles.
    pub style: u8,
    /// By which names; compared by address.
    pub names: Arc<RequestHeaders>,
    /// The lines, in order.
    pub lines: Vec<(HeaderName, HeaderValue)>,
}

impl Connection {
    /// A connection without TLS facts and without a drain; add what is known to it.
    #[must_use]
    pub fn new(peer: SocketAddr, local: SocketAddr, accepted: Instant) -> Self {
        Connection {
            peer,
            forwarders: None,
            local,
            server_name: None,
            client_chain: Vec::new(),
            accepted,
            drain: ConnectionDrain::default(),
            lines: ArcSwapOption::const_empty(),
            known: ArcSwapOption::const_empty(),
            known_proxy: ArcSwapOption::const_empty(),
        }
    }
}

/// The facts of one request that more than one phase needs. The request's attributes are in
/// `crate::request::RequestInfo`, handed beside it.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The connection it came on.
    pub connection: Arc<Connection>,
    /// Where it really comes from; see `crate::forwarded`.
    pub client: SocketAddr,
    /// Unique to the request; also its audit id.
    pub id: RequestId,
    /// When its head had been read.
    pub received: Instant,
    /// Who makes it. With `--as`, whom it is made as.
    pub user: Arc<UserInfo>,
    /// With `--as`, who really makes it.
    pub impersonator: Option<Arc<UserInfo>>,
    /// What ends it apart from others of its connection; long-running ones have one.
    pub tether: Option<Arc<Tether>>,
}

impl RequestContext {
    /// Cancelled when a watch or a tunnel has to end.
    #[must_use]
    pub fn ending(&self) -> CancellationToken {
        let tether = self.tether.as_ref().map(|tether| &tether.ending);
        tether.unwrap_or(&self.connection.drain.ending).clone()
    }

    /// Cancelled when what has no end of its own has to be given up.
    #[must_use]
    pub fn closing(&self) -> CancellationToken {
        let tether = self.tether.as_ref().map(|tether| &tether.closing);
        tether.unwrap_or(&self.connection.drain.closing).clone()
    }
}

/// What ends one long-running request: the end of its connection, or that its caller is nobody any
/// more.
#[derive(Debug)]
pub struct Tether {
    ending: CancellationToken,
    closing: CancellationToken,
    is_disowned: AtomicBool,
}

impl Tether {
    /// One that ends with the connection.
    #[must_use]
    pub fn new(drain: &ConnectionDrain) -> Arc<Self> {
        Arc::new(Tether {
            ending: drain.ending.child_token(),
            closing: drain.closing.child_token(),
            is_disowned: AtomicBool::new(false),
        })
    }

    /// Ends the request, whose caller is nobody any more.
    pub fn disown(&self) {
        self.is_disowned.store(true, Ordering::Release);
        self.ending.cancel();
        self.closing.cancel();
    }

    /// Whether that is why it ends.
    #[must_use]
    pub fn is_disowned(&self) -> bool {
        self.is_disowned.load(Ordering::Acquire)
    }
}

/// A request's number, unique over restarts: it is a random UUID in practice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u128);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        uuid::Uuid::from_u128(self.0).fmt(f)
    }
}
