//! Accepts the connections of clients: TCP, TLS, HTTP/1.1 and HTTP/2, and hands each request to
//! one boxed handler.
//!
//! Each request carries its [`Connection`](crate::context::Connection) as an `Arc` in its
//! extensions. A client certificate is asked for and not required; who it stands for is judged
//! later, per cluster, by `authn`. Bounds: connections, handshakes at once, header size, streams
//! of a connection, resets in a hurry, idle frames, time to the first request. HTTP/1.1 is held to
//! the letter. The listener knows no routes,
//! no users, and no configuration.

mod connection;
mod guard;
mod http2;
mod hurry;
mod options;
mod proxied;
mod tls;
mod unjudged;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::util::BoxCloneSyncService;

pub use options::ListenerOptions;
pub use tls::{ClientCertificates, ServerIdentity, TlsError, TlsSource, TlsSpec};

use crate::body::Body;
use crate::drain::Drain;
use connection::Serving;

/// What answers requests; cloned for each.
pub type Handler = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// How long the listener rests when the process is out of file descriptors: long enough not to
/// spin, short enough to be back within the second in which some are freed.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// How long connections are still taken once the end was asked for: those that wait in the kernel's
/// queue would be reset with the socket.
const LAST_CALL: Duration = Duration::from_millis(100);

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; free the address or choose another one")]
pub struct BindError {
    /// The address asked for.
    pub address: SocketAddr,
    /// What the system says.
    pub source: std::io::Error,
}

/// What a listener has met since it began; all only grow.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections that left before they had shown TLS.
    pub handshake_failures: AtomicU64,
    /// Connections given up since no handshake place came free in time.
    pub handshakes_shed: AtomicU64,
    /// Connections of named balancers that had no PROXY header to be understood.
    pub headers_refused: AtomicU64,
    /// Connections closed for resetting too many requests in a hurry.
    pub closed_for_hurry: AtomicU64,
}

/// A bound address, not yet serving.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    options: ListenerOptions,
    counters: Arc<ListenerCounters>,
}

impl Listener {
    /// Binds `address`; port 0 takes a free one, see [`Listener::address`].
    ///
    /// # Errors
    /// [`BindError`] when the address is taken or not ours.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Listener::bind_with(address, ListenerOptions::default()).await
    }

    /// As [`Listener::bind`], with bounds of one's own.
    ///
    /// # Errors
    /// [`BindError`] when the address is taken or not ours.
    pub async fn bind_with(
        address: SocketAddr,
        options: ListenerOptions,
    ) -> Result<Self, BindError> {
        let fault = |source| BindError { address, source };
        let socket = TcpListener::bind(address).await.map_err(fault)?;
        let address = socket.local_addr().map_err(fault)?;
        Ok(Listener::of(socket, address, options))
    }

    /// Serves on a socket that listens already and does not block.
    ///
    /// # Errors
    /// When the system does not know it.
    pub fn over(socket: std::net::TcpListener, options: ListenerOptions) -> std::io::Result<Self> {
        let address = socket.local_addr()?;
        Ok(Listener::of(
            TcpListener::from_std(socket)?,
            address,
            options,
        ))
    }

    fn of(socket: TcpListener, address: SocketAddr, options: ListenerOptions) -> Self {
        Listener {
            socket,
            address,
            options,
            counters: Arc::default(),
        }
    }

    /// Where it listens, with the port it got.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has met so far; stays readable while it serves.
    #[must_use]
    pub fn counters(&self) -> Arc<ListenerCounters> {
        Arc::clone(&self.counters)
    }

    /// Accepts until `drain` starts, and what had connected by then; connections live on as tasks of the drain's tracker.
    pub async fn serve(self, tls: Arc<TlsSource>, handler: Handler, drain: Drain) {
        let places = Arc::new(Semaphore::new(self.options.connections_max));
        let serving = Arc::new(Serving::new(
            self.options,
            tls,
            handler,
            drain.clone(),
            self.counters,
        ));
        let mut last_call = pin!(async {
            drain.started().await;
            if !drain.is_handed_over() {
                tokio::time::sleep(LAST_CALL).await;
            }
        });
        loop {
            let accepted = tokio::select! {
                biased; // the wish to stop comes before new work
                () = drain.cut() => return,
                () = &mut last_call => return,
                accepted = accept(&self.socket, &places) => accepted,
            };
            let Some((tcp, peer, place)) = accepted else {
                tokio::time::sleep(ACCEPT_REST).await;
                continue;
            };
            let serving = Arc::clone(&serving);
            let part = drain.connection();
            let tracker = part.tracker.clone();
            tracker.spawn(async move {
                let _place = place;
                serving.connection(tcp, peer, part).await;
            });
        }
    }
}

type Place = tokio::sync::OwnedSemaphorePermit;

/// The next connection, once there is a place for it. `None` when the system has none to give.
async fn accept(
    socket: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, Place)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match socket.accept().await {
        Ok((stream, peer)) => Some((stream, peer, place)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            None
        }
    }
}
