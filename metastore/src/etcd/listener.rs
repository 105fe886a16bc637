//! The ports, each for gRPC and plain HTTP: accept, TLS, HTTP/2 or HTTP/1.1, drain.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConnection;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::{self, AccessEvent, AccessLog, BreakGlass, Right};
use super::admission::{Budget, Room};
use super::alarms::Alarms;
use super::calls::Calls;
use super::connection::{self, HANDSHAKE_TIMEOUT, Site};
use super::counters::Counters;
use super::gate::Visit;
use super::options::{EtcdOptions, ListenError, PROGRESS_INTERVAL_MIN};
use super::routes::{http_routes, routes};
use super::shared::{Member, Shared};
use super::tls::Certificates;
use super::watch::nudge::Nudges;
use crate::store::Store;

/// Pause after a failed accept, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bound ports, not yet served.
pub struct Listener {
    bound: Vec<Bound>,
    certificates: Option<Arc<Certificates>>,
    options: EtcdOptions,
    access_log: Option<Arc<dyn AccessLog>>,
}

/// One port.
struct Bound {
    socket: TcpListener,
    address: SocketAddr,
    is_tls: bool,
    only_http: bool,
}

impl Listener {
    /// Takes the ports and reads the certificates, so that what is wrong with either shows at
    /// start.
    ///
    /// # Errors
    /// [`ListenError`]: plain text where it is not allowed, certificates that cannot be used, a
    /// port that is taken.
    pub async fn bind(options: EtcdOptions) -> Result<Listener, ListenError> {
        Listener::over(options, Vec::new()).await
    }

    /// As [`Listener::bind`], with ports that were taken before: the first of `taken` is for the
    /// first socket of the options, and so on; what is missing is bound.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub async fn over(
        options: EtcdOptions,
        taken: Vec<TcpListener>,
    ) -> Result<Listener, ListenError> {
        let mut taken = taken.into_iter();
        let certificates = match &options.tls {
            Some(files) => Some(Arc::new(Certificates::read(files)?)),
            None => None,
        };
        let mut bound = Vec::with_capacity(options.sockets.len());
        for socket in &options.sockets {
            let address = socket.address;
            let used = certificates.as_deref().filter(|_| !socket.is_plain);
            if !socket.only_http {
                check(address, used, &options)?;
            }
            let listening = match taken.next() {
                Some(socket) => Ok(socket),
                None => TcpListener::bind(address).await,
            };
            let listening = listening.and_then(|socket| Ok((socket.local_addr()?, socket)));
            let (address, listening) =
                listening.map_err(|source| ListenError::Bind { address, source })?;
            bound.push(Bound {
                socket: listening,
                address,
                is_tls: used.is_some(),
                only_http: socket.only_http,
            });
        }
        Ok(Listener {
            bound,
            certificates,
            options,
            access_log: None,
        })
    }

    /// Tells `log` of who comes in by broken glass; without it the process's log does.
    #[must_use]
    pub fn with_access_log(mut self, log: Arc<dyn AccessLog>) -> Self {
        self.access_log = Some(log);
        self
    }

    /// Where it listens first, with the port that was taken.
    ///
    /// # Panics
    /// When it was given no socket at all.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        let first = self.bound.first().map(|bound| bound.address);
        first.expect("options name a socket")
    }

    /// All it listens on, in the order given, with the ports that were taken.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.bound.iter().map(|bound| bound.address).collect()
    }

    /// Serves `store` until `shutdown` is cancelled, then drains: no new connections, endless
    /// streams end with `Unavailable`, calls in flight may finish within the drain timeout.
    pub async fn serve(self, store: Store, shutdown: CancellationToken) {
        let drain_timeout = self.options.drain_timeout;
        let shared = Arc::new(self.shared(store, shutdown.child_token()));
        let glass = self.options.access.as_ref();
        if let Some(glass) = glass.and_then(|access| access.break_glass.as_ref()) {
            self.note(&AccessEvent::Broken { glass });
        }
        let connections = TaskTracker::new();
        let accepting = TaskTracker::new();
        let seats = Arc::new(Semaphore::new(self.options.connections_max));
        let all = routes(&shared);
        let http = http_routes(&shared);
        let Listener {
            bound,
            certificates,
            options,
            access_log,
        } = self;
        let options = Arc::new(options);
        for bound in bound {
            let port = Port {
                shared: Arc::clone(&shared),
                certificates: certificates.clone().filter(|_| bound.is_tls),
                routes: if bound.only_http {
                    http.clone()
                } else {
                    all.clone()
                },
                http: http.clone(),
                only_http: bound.only_http,
                options: Arc::clone(&options),
                access_log: access_log.clone(),
            };
            accepting.spawn(accept(
                bound.socket,
                Arc::new(port),
                Arc::clone(&seats),
                connections.clone(),
            ));
        }
        accepting.close();
        accepting.wait().await;
        connections.close();
        if tokio::time::timeout(drain_timeout, connections.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                left = connections.len(),
                "etcd connections outlived the drain"
            );
        }
    }

    fn note(&self, event: &AccessEvent<'_>) {
        note(self.access_log.as_ref(), event);
    }

    fn shared(&self, store: Store, stopping: CancellationToken) -> Shared {
        let options = &self.options;
        let urls = if options.advertise_urls.is_empty() {
            let of = |bound: &Bound| {
                let scheme = if bound.is_tls { "https" } else { "http" };
                format!("{scheme}://{}", bound.address)
            };
            let bound = self.bound.iter().filter(|bound| !bound.only_http);
            bound.map(of).collect()
        } else {
            options.advertise_urls.clone()
        };
        Shared {
            store,
            member: Member::new(options.name.clone(), urls, options.peer_urls.clone()),
            counters: Counters::default(),
            calls: Calls::default(),
            alarms: Alarms::default(),
            nudges: Nudges::default(),
            room: Room::new(options.answer_bytes_max),
            snapshots: super::snapshot::Desk::default(),
            bodies: Budget::default(),
            stopping,
            progress_interval: options.progress_interval.max(PROGRESS_INTERVAL_MIN),
            write_timeout: options.write_timeout,
            txn_ops_max: options.txn_ops_max,
            request_bytes_max: options.request_bytes_max,
        }
    }
}

/// Whether an address may serve all that an etcd member serves.
fn check(
    address: SocketAddr,
    certificates: Option<&Certificates>,
    options: &EtcdOptions,
) -> Result<(), ListenError> {
    let is_loopback = address.ip().is_loopback();
    let has_names = certificates.is_some_and(Certificates::asks_for_names);
    match certificates {
        _ if options.access.is_some() && !has_names => {
            Err(ListenError::AccessWithoutNames { address })
        }
        Some(_) if !has_names && !options.insecure_anonymous => Err(ListenError::NoClientCa),
        Some(_) => Ok(()),
        None if options.insecure_anonymous => Ok(()),
        None if !options.insecure_loopback => Err(ListenError::NoTls { address }),
        None if !is_loopback => Err(ListenError::NotLoopback { address }),
        None => Ok(()),
    }
}

fn note(log: Option<&Arc<dyn AccessLog>>, event: &AccessEvent<'_>) {
    if let Some(log) = log {
        return log.note(event);
    }
    match event {
        AccessEvent::Broken { glass } => {
            tracing::warn!(reason = glass.reason, until = ?glass.until, "the glass is broken");
        }
        AccessEvent::Admitted { glass, name, peer } => {
            tracing::warn!(reason = glass.reason, name, %peer, "admitted by broken glass");
        }
    }
}

/// What the connections of one port share.
struct Port {
    shared: Arc<Shared>,
    certificates: Option<Arc<Certificates>>,
    /// All that it serves; over HTTP/1.1 only what needs no gRPC.
    routes: axum::Router,
    http: axum::Router,
    only_http: bool,
    options: Arc<EtcdOptions>,
    access_log: Option<Arc<dyn AccessLog>>,
}

async fn accept(
    socket: TcpListener,
    port: Arc<Port>,
    seats: Arc<Semaphore>,
    connections: TaskTracker,
) {
    loop {
        // Waiting for room before accepting leaves further clients in the kernel's queue.
        let seat = tokio::select! {
            biased;
            // First: a drain takes no more clients.
            () = port.shared.stopping.cancelled() => return,
            seat = Arc::clone(&seats).acquire_owned() => seat,
        };
        // The semaphore is never closed.
        let Ok(seat) = seat else { return };
        let accepted = tokio::select! {
            biased;
            () = port.shared.stopping.cancelled() => return,
            accepted = socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                connections.spawn(connection(stream, peer, Arc::clone(&port), seat));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an etcd client");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    port: Arc<Port>,
    seat: OwnedSemaphorePermit,
) {
    let counters = &port.shared.counters;
    counters.connections.up();
    // Replies are written whole, so waiting to fill a packet only delays them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set nodelay");
    }
    match &port.certificates {
        None => connection::serve(stream, peer, port.site(None, peer)).await,
        Some(certificates) => {
            let handshake = certificates.acceptor().accept(stream);
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
                Ok(Ok(stream)) => {
                    let name = name_of(stream.get_ref().1);
                    let site = port.site(name.as_deref(), peer);
                    connection::serve(stream, peer, site).await;
                }
                // What is said by TLS comes as this kind, and all else of the connection: a
                // kube-apiserver that starts leaves dozens of those behind.
                Ok(Err(error)) if error.kind() == ErrorKind::InvalidData => {
                    tracing::info!(%peer, %error, "refused an etcd client's handshake");
                }
                Ok(Err(error)) => {
                    tracing::debug!(%peer, %error, "an etcd client left before its handshake");
                }
                Err(_elapsed) => {
                    tracing::info!(%peer, "an etcd client's handshake took too long");
                }
            }
        }
    }
    counters.connections.down();
    drop(seat);
}

fn name_of(session: &ServerConnection) -> Option<String> {
    let shown = session.peer_certificates()?;
    access::common_name(shown.first()?)
}

impl Port {
    fn site(&self, name: Option<&str>, peer: SocketAddr) -> Site {
        let right = self.right(name, peer);
        Site {
            shared: Arc::clone(&self.shared),
            options: Arc::clone(&self.options),
            routes: self.routes.clone(),
            http: self.http.clone(),
            visit: Arc::new(Visit::new(Arc::clone(&self.shared), right)),
        }
    }

    /// What the client may do; who comes in by broken glass is noted.
    fn right(&self, name: Option<&str>, peer: SocketAddr) -> Right {
        if self.only_http {
            // Nobody was asked who they are, so whatever calls come are refused.
            return Right::Nothing;
        }
        let right = Right::of(name, self.options.access.as_ref());
        if let Right::Glass(glass, _) = &right
            && glass.is_broken_at(std::time::SystemTime::now())
        {
            let glass: &BreakGlass = glass;
            let name = name.unwrap_or_default();
            note(
                self.access_log.as_ref(),
                &AccessEvent::Admitted { glass, name, peer },
            );
        }
        right
    }
}
