//! What the phases know of one request, handed on from one to the next.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use rustls_pki_types::CertificateDer;

use crate::identity::UserInfo;

/// What a listener knows of a connection; shared by all its requests.
#[derive(Debug)]
pub struct Connection {
    /// The client's address.
    pub peer: SocketAddr,
    /// The address it reached.
    pub local: SocketAddr,
    /// The server name of the TLS handshake, lower-case.
    pub server_name: Option<String>,
    /// The client's certificate chain, leaf first; not yet judged by any cluster's CA.
    pub client_chain: Vec<CertificateDer<'static>>,
    /// When it was accepted.
    pub accepted: Instant,
}

/// The facts of one request that more than one phase needs. The request's attributes are in
/// `crate::request::RequestInfo`, handed beside it.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The connection it came on.
    pub connection: Arc<Connection>,
    /// Unique to the request; also its audit id.
    pub id: RequestId,
    /// When its head had been read.
    pub received: Instant,
    /// Who makes it. With `--as`, whom it is made as.
    pub user: Arc<UserInfo>,
    /// With `--as`, who really makes it.
    pub impersonator: Option<Arc<UserInfo>>,
}

/// A request's number, unique over restarts: it is a random UUID in practice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u128);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        uuid::Uuid::from_u128(self.0).fmt(f)
    }
}
