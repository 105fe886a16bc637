//! One port for gRPC and plain HTTP: accept, TLS, HTTP/2 or HTTP/1.1, drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

use super::admission::{self, Room};
use super::auth::AuthService;
use super::cluster::ClusterService;
use super::connection::{self, HANDSHAKE_TIMEOUT, Site};
use super::counters::Counters;
use super::health::HealthService;
use super::http;
use super::kv::{KvService, REQUEST_BYTES_MAX};
use super::lease::LeaseService;
use super::maintenance::MaintenanceService;
use super::options::{EtcdOptions, ListenError, PROGRESS_INTERVAL_MIN};
use super::proto::etcdserverpb::auth_server::AuthServer;
use super::proto::etcdserverpb::cluster_server::ClusterServer;
use super::proto::etcdserverpb::kv_server::KvServer;
use super::proto::etcdserverpb::lease_server::LeaseServer;
use super::proto::etcdserverpb::maintenance_server::MaintenanceServer;
use super::proto::etcdserverpb::watch_server::WatchServer;
use super::proto::health::health_server::HealthServer;
use super::shared::{Member, Shared};
use super::tls;
use super::watch::WatchService;
use super::watch::nudge::Nudges;
use crate::store::Store;

/// etcd reads a message up to its request limit and half a mebibyte around it.
pub(crate) const MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + 512 * 1024;
/// Pause after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound port, not yet served.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    options: EtcdOptions,
}

impl Listener {
    /// Takes the port and reads the certificates, so that what is wrong with either shows at start.
    ///
    /// # Errors
    /// [`ListenError`]: plain text where it is not allowed, certificates that cannot be used, a
    /// port that is taken.
    pub async fn bind(options: EtcdOptions) -> Result<Listener, ListenError> {
        let address = options.address;
        let tls = match &options.tls {
            Some(files) => Some(TlsAcceptor::from(tls::server_config(files)?)),
            None if !options.insecure_loopback => return Err(ListenError::NoTls { address }),
            None if !address.ip().is_loopback() => {
                return Err(ListenError::NotLoopback { address });
            }
            None => None,
        };
        let bound = TcpListener::bind(address).await;
        let socket = bound.map_err(|source| ListenError::Bind { address, source })?;
        let address = socket
            .local_addr()
            .map_err(|source| ListenError::Bind { address, source })?;
        Ok(Listener {
            socket,
            address,
            tls,
            options,
        })
    }

    /// Where it listens, with the port that was taken.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves `store` until `shutdown` is cancelled, then drains: no new connections, endless
    /// streams end with `Unavailable`, calls in flight may finish within the drain timeout.
    pub async fn serve(self, store: Store, shutdown: CancellationToken) {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let urls = if self.options.advertise_urls.is_empty() {
            vec![format!("{scheme}://{}", self.address)]
        } else {
            self.options.advertise_urls.clone()
        };
        let stopping = shutdown.child_token();
        let shared = Arc::new(Shared {
            store,
            member: Member::new(self.options.name.clone(), urls),
            counters: Counters::default(),
            nudges: Nudges::default(),
            room: Room::default(),
            snapshots: super::snapshot::Desk::default(),
            stopping: stopping.clone(),
            progress_interval: self.options.progress_interval.max(PROGRESS_INTERVAL_MIN),
            write_timeout: self.options.write_timeout,
        });
        let connections = TaskTracker::new();
        let room = Arc::new(Semaphore::new(self.options.connections_max));
        let site = Site {
            routes: routes(&shared),
            shared: Arc::clone(&shared),
        };
        loop {
            // Waiting for room before accepting leaves further clients in the kernel's queue.
            let Ok(seat) = Arc::clone(&room).acquire_owned().await else {
                break;
            };
            let accepted = tokio::select! {
                biased;
                // First: a drain takes no more clients.
                () = stopping.cancelled() => break,
                accepted = self.socket.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an etcd client");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (shared, tls, site) = (Arc::clone(&shared), self.tls.clone(), site.clone());
            connections.spawn(async move {
                shared.counters.connections.up();
                welcome(stream, peer, tls, site).await;
                shared.counters.connections.down();
                drop(seat);
            });
        }
        drop(self.socket);
        connections.close();
        if tokio::time::timeout(self.options.drain_timeout, connections.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                left = connections.len(),
                "etcd connections outlived the drain"
            );
        }
    }
}

/// Every service on one router; gRPC paths are told apart from plain ones by name alone.
fn routes(shared: &Arc<Shared>) -> axum::Router {
    let kv = KvServer::new(KvService(Arc::clone(shared)));
    let watch = WatchServer::new(WatchService(Arc::clone(shared)));
    Routes::new(kv.max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(watch.max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(LeaseServer::new(LeaseService(Arc::clone(shared))))
        .add_service(MaintenanceServer::new(MaintenanceService(Arc::clone(
            shared,
        ))))
        .add_service(ClusterServer::new(ClusterService(Arc::clone(shared))))
        .add_service(AuthServer::new(AuthService(Arc::clone(shared))))
        .add_service(HealthServer::new(HealthService(Arc::clone(shared))))
        .prepare()
        .into_axum_router()
        .layer(axum::middleware::map_response(admission::hold))
        .merge(http::routes(Arc::clone(shared)))
}

async fn welcome(stream: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>, site: Site) {
    // Replies are written whole, so waiting to fill a packet only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set nodelay");
    }
    let Some(tls) = tls else {
        return connection::serve(stream, peer, site).await;
    };
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => connection::serve(stream, peer, site).await,
        Ok(Err(error)) => tracing::info!(%peer, %error, "refused an etcd client's handshake"),
        Err(_elapsed) => tracing::info!(%peer, "an etcd client's handshake took too long"),
    }
}
