//! One client connection, from its first byte to its last.
//!
//! ```text
//!            first bytes -> HTTP/1.1 -> router: plain paths
//!                        -> HTTP/2  -> hot call -> store, answered by the connection's own task
//!                                   -> any other -> router: tonic's services, plain paths
//! ```
//!
//! A gRPC library costs more than the store does, so the four calls a kube-apiserver makes all day
//! are answered without one: the task that reads a connection decodes them, asks the store, and
//! writes all answers that are ready in one write ([`mod@line`]). Whatever is odd about such a call
//! (compressed, broken, too large, trailing bytes) is handed to the library as it came ([`bridge`]),
//! so that there is one judge of what is wrong.
//!
//! Bounds: those of HTTP/2 ([`http2`]); what calls hold that are not read to their end
//! ([`reading`]); and writes on their way hold room of the store's inbox.

mod bridge;
mod http2;
mod hush;
mod keepalive;
mod line;
mod reading;
mod reply;
mod sniff;
mod unary;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};

use super::gate::Visit;
use super::meter::Metered;
use super::options::EtcdOptions;
use super::shared::Shared;

/// How long a client may take for the handshake of TLS, to say what it speaks, and to send a
/// request's head over HTTP/1.1. A peer that takes longer holds a connection for nothing.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a connection is served with.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) shared: Arc<Shared>,
    pub(super) options: Arc<EtcdOptions>,
    pub(super) routes: axum::Router,
    /// Those of them that need no gRPC. Nothing else is served over HTTP/1.1: who may write is asked
    /// where calls come in, over HTTP/2.
    pub(super) http: axum::Router,
    /// Who this connection is of.
    pub(super) visit: Arc<Visit>,
}

/// Serves one connection to its end.
pub(super) async fn serve<S>(io: S, peer: SocketAddr, site: Site)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut io = Metered::new(io, Arc::clone(&site.shared));
    let mut ahead = BytesMut::new();
    let told = tokio::select! {
        biased;
        // First: a drain does not wait for a client that has not even begun.
        () = site.shared.stopping.cancelled() => return,
        told = tokio::time::timeout(HANDSHAKE_TIMEOUT, sniff::is_http2(&mut io, &mut ahead)) => told,
    };
    let outcome = match told {
        Ok(Ok(true)) => http2::serve(io, ahead, site).await,
        Ok(Ok(false)) => http1(sniff::Rewound::new(ahead, io), site).await,
        Ok(Err(error)) => Err(error.to_string()),
        Err(_elapsed) => Err("it did not say what it speaks".to_owned()),
    };
    if let Err(error) = outcome {
        tracing::debug!(%peer, error, "an etcd client's connection broke");
    }
}

async fn http1<S>(io: S, site: Site) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Site { shared, http, .. } = site;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT);
    let service = TowerToHyperService::new(http);
    let mut served = pin!(builder.serve_connection(TokioIo::new(io), service));
    let outcome = tokio::select! {
        biased;
        // First, so that the drain is told before more requests are read.
        () = shared.stopping.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
        outcome = served.as_mut() => outcome,
    };
    outcome.map_err(|error| error.to_string())
}
