//! The admin listener: TLS, HTTP/1.1 and HTTP/2, few connections.
//!
//! The TLS configuration given must verify client certificates against the admin API's own
//! authority, and let connections without one in, for health checks. Each connection's [`Peer`]
//! is put into its requests' extensions.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::access::Peer;
use super::handles::Source;

/// Connections at once: operators, dashboards, scrapers and probes. Whoever opens more waits in
/// the kernel's queue, and does not touch the data path.
const CONNECTIONS_MAX: usize = 256;

/// Until the handshake must be done, and each request's head have come.
const PATIENCE: Duration = Duration::from_secs(10);

/// Until open requests must be answered once `drain` is cancelled: none takes longer.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// After an accept failed (file descriptors have run out, mostly), before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `drain` is cancelled and open requests are answered. `tls` is asked anew for each
/// connection, so that reloaded certificates hold for the next one.
pub async fn serve(
    listener: TcpListener,
    tls: Source<Arc<ServerConfig>>,
    router: Router,
    drain: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    loop {
        let slot = tokio::select! {
            biased;
            () = drain.cancelled() => break, // first, or a busy listener would never end
            slot = Arc::clone(&slots).acquire_owned() => slot,
        };
        let Ok(slot) = slot else { break }; // never closed
        let accepted = tokio::select! {
            biased;
            () = drain.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                let acceptor = TlsAcceptor::from(tls());
                let connection = Connection {
                    stream,
                    address,
                    router: router.clone(),
                    _slot: slot,
                };
                tokio::spawn(connection.run(acceptor, graceful.watcher()));
            }
            Err(fault) => {
                tracing::warn!(error = %fault, "admin listener cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let _ = tokio::time::timeout(DRAIN_MAX, graceful.shutdown()).await;
}

struct Connection {
    stream: TcpStream,
    address: std::net::SocketAddr,
    router: Router,
    _slot: OwnedSemaphorePermit,
}

impl Connection {
    async fn run(self, acceptor: TlsAcceptor, watcher: Watcher) {
        let Connection {
            stream,
            address,
            router,
            _slot,
        } = self;
        let handshake = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await;
        let Ok(Ok(stream)) = handshake else {
            tracing::debug!(peer = %address, "admin handshake failed");
            return;
        };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let peer = Peer::of_verified_chain(address, chain);
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            router.clone().oneshot(request)
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(32);
        let serving = builder.serve_connection(TokioIo::new(stream), service);
        if let Err(fault) = watcher.watch(serving).await {
            tracing::debug!(peer = %address, error = fault, "admin connection broke");
        }
    }
}
