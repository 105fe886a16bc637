//! One accepted connection: socket options, TLS, then HTTP until it ends, is drained or is cut.
//!
//! HTTP/2 is spoken by [`http2`](super::http2), HTTP/1.1 by hyper.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt as _;
use tower::util::{BoxCloneSyncService, Oneshot};

use super::guard::Guarded;
use super::http2::{Driver, Ended, Limits, Orders, Patience};
use super::hurry::Hurry;
use super::proxied;
use super::{Handler, ListenerCounters, ListenerOptions, TlsSource};
use crate::body::Body;
use crate::clock;
use crate::context::Connection;
use crate::drain::{ConnectionDrain, Drain};
use crate::socket;

/// Sent bytes a client may leave unacknowledged: two lost probes of a slow mobile link.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(30);

type Http<'a> = auto::UpgradeableConnection<
    'a,
    TokioIo<Guarded<TlsStream<TcpStream>>>,
    PerConnection,
    TokioExecutor,
>;

/// What is left of a connection's life once it speaks HTTP.
type Life<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What all connections of a listener share.
pub(super) struct Serving {
    options: ListenerOptions,
    http: auto::Builder<TokioExecutor>,
    tls: Arc<TlsSource>,
    handler: Handler,
    drain: Drain,
    counters: Arc<ListenerCounters>,
    handshakes: Semaphore,
}

impl Serving {
    pub(super) fn new(
        options: ListenerOptions,
        tls: Arc<TlsSource>,
        handler: Handler,
        drain: Drain,
        counters: Arc<ListenerCounters>,
    ) -> Self {
        Serving {
            http: http_builder(&options),
            handshakes: Semaphore::new(options.handshakes_max),
            options,
            tls,
            handler,
            drain,
            counters,
        }
    }

    /// Serves one connection to its end. What its beginning takes is given back before it rests.
    pub(super) async fn connection(&self, tcp: TcpStream, peer: SocketAddr, part: ConnectionDrain) {
        let begun = Box::pin(self.begin(tcp, peer, part));
        if let Some(served) = begun.await {
            served.await;
        }
    }

    /// All up to HTTP, and the rest of the connection's life. `None` when it was none.
    async fn begin(
        &self,
        mut tcp: TcpStream,
        peer: SocketAddr,
        part: ConnectionDrain,
    ) -> Option<Life<'_>> {
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let accepted = clock::now();
        let deadline = tokio::time::Instant::now() + self.options.handshake_timeout;
        let local = tcp.local_addr().ok()?; // or it has gone already
        socket::tune(&tcp, UNACKNOWLEDGED_MAX);
        let peer = self.source(&mut tcp, peer, deadline).await?;
        let stream = self.handshake(tcp, peer, deadline).await?;
        let (_, session) = stream.get_ref();
        let mut facts = Connection::new(peer, local, accepted);
        facts.server_name = session.server_name().map(str::to_ascii_lowercase);
        if let Some(chain) = session.peer_certificates() {
            facts.client_chain = chain.iter().map(|c| c.clone().into_owned()).collect();
        }
        facts.drain = part;
        let forwarders = &self.options.forwarded_from;
        facts.forwarders = forwarders
            .contains(peer.ip())
            .then(|| Arc::clone(forwarders));
        // By ALPN, so that a client that sends nothing meets a timeout and no protocol sniffing.
        let is_h2 = session.alpn_protocol() == Some(b"h2");
        let facts = Arc::new(facts);
        Some(if is_h2 {
            self.http2(stream, facts)
        } else {
            Box::pin(self.http1(stream, facts))
        })
    }

    /// Boxed with its stream, so that a connection at rest is held once.
    fn http2(&self, stream: TlsStream<TcpStream>, facts: Arc<Connection>) -> Life<'_> {
        let options = &self.options;
        let limits = Limits {
            streams: options.streams_max,
            header_bytes: options.header_bytes_max,
            stream_window: options.stream_window,
            connection_window: options.connection_window,
        };
        let patience = Patience {
            first_request: options.first_request_timeout,
            ping_interval: options.ping_interval,
            ping_timeout: options.ping_timeout,
        };
        let part = facts.drain.clone();
        let leave = async move { self.paced(&part).await };
        let orders = Orders::new(self.drain.cut(), leave, patience);
        let hurry = Hurry::new(options.hasty_resets_max, facts.accepted);
        let (peer, handler) = (facts.peer, self.handler.clone());
        let mut driver = Driver::new(stream, limits, handler, facts, orders, hurry);
        Box::pin(async move {
            let ended = std::future::poll_fn(|cx| driver.poll(cx)).await;
            self.ended(ended, peer);
        })
    }

    fn ended(&self, ended: Result<(), Ended>, peer: SocketAddr) {
        match ended {
            Ok(()) => {}
            Err(Ended::Hasty) => {
                self.counters
                    .closed_for_hurry
                    .fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%peer, "closed: {}", Ended::Hasty);
            }
            Err(error) => tracing::debug!(%peer, %error, "connection ended"),
        }
    }

    /// Whose connection it is: the peer's, or that of whom a named balancer speaks for.
    async fn source(
        &self,
        tcp: &mut TcpStream,
        peer: SocketAddr,
        deadline: tokio::time::Instant,
    ) -> Option<SocketAddr> {
        if !self.options.proxied_from.contains(peer.ip()) {
            return Some(peer);
        }
        let reason = match tokio::time::timeout_at(deadline, proxied::source(tcp)).await {
            Ok(Ok(source)) => return Some(source.unwrap_or(peer)),
            Ok(Err(fault)) => fault.to_string(),
            Err(_) => "no PROXY header came in time".to_owned(),
        };
        let refused = &self.counters.headers_refused;
        let count = refused.fetch_add(1, Ordering::Relaxed) + 1;
        // Mostly a balancer set up wrongly, which then goes on for ever.
        if count.is_power_of_two() {
            tracing::warn!(%peer, count, "connection of a balancer refused: {reason}");
        }
        None
    }

    async fn handshake(
        &self,
        tcp: TcpStream,
        peer: SocketAddr,
        deadline: tokio::time::Instant,
    ) -> Option<TlsStream<TcpStream>> {
        let place = tokio::time::timeout_at(deadline, self.handshakes.acquire()).await;
        let Ok(Ok(_place)) = place else {
            self.counters
                .handshakes_shed
                .fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let acceptor = TlsAcceptor::from(self.tls.current());
        let done = tokio::time::timeout_at(deadline, acceptor.accept(tcp)).await;
        let reason = match done {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".to_owned(),
        };
        self.counters
            .handshake_failures
            .fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%peer, reason, "handshake failed");
        None
    }

    async fn http1(&self, stream: TlsStream<TcpStream>, facts: Arc<Connection>) {
        let watched = Arc::new(Watched {
            seen_request: AtomicBool::new(false),
            first_request: Notify::new(),
        });
        let service = PerConnection {
            handler: self.handler.clone(),
            facts: Arc::clone(&facts),
            watched: Arc::clone(&watched),
        };
        let head = usize::try_from(self.options.header_bytes_max).unwrap_or(usize::MAX);
        let stream = TokioIo::new(Guarded::new(stream, head));
        let http = self.http.clone().http1_only();
        let serving = http.serve_connection_with_upgrades(stream, service);
        self.until_over(pin!(serving), &facts, &watched).await;
    }

    /// Drives the connection; everything else that may end it is an arm here.
    async fn until_over(
        &self,
        mut serving: Pin<&mut Http<'_>>,
        facts: &Connection,
        watched: &Watched,
    ) {
        let mut first_request = pin!(tokio::time::sleep(self.options.first_request_timeout));
        let mut awaiting_first = true;
        let mut paced = pin!(self.paced(&facts.drain));
        let mut is_leaving = false;
        loop {
            tokio::select! {
                biased; // requests first, the rest is rare
                over = &mut serving => {
                    if let Err(error) = over {
                        tracing::debug!(peer = %facts.peer, %error, "connection broke");
                    }
                    return;
                }
                () = self.drain.cut() => return,
                () = &mut paced, if !is_leaving => {
                    is_leaving = true;
                    // hyper closes a connection that has had no request, although one may be on its
                    // way.
                    if watched.seen_request.load(Ordering::Relaxed) {
                        serving.as_mut().graceful_shutdown();
                    }
                }
                () = watched.first_request.notified(), if is_leaving => {
                    serving.as_mut().graceful_shutdown();
                }
                () = &mut first_request, if awaiting_first => {
                    awaiting_first = false;
                    if !watched.seen_request.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        }
    }

    /// Ends when this connection has to be told to leave; afterwards its watches are ended, too.
    async fn paced(&self, part: &ConnectionDrain) {
        self.drain.started().await;
        tokio::time::sleep(self.drain.goaway_after(part)).await;
        let rest = self.drain.watches_after(part) - self.drain.goaway_after(part);
        let ending = part.ending.clone();
        // A task of its own: it outlives the connection's HTTP/1.1 half when that was upgraded.
        tokio::spawn(async move {
            tokio::select! {
                () = ending.cancelled() => {}
                () = tokio::time::sleep(rest) => ending.cancel(),
            }
        });
    }
}

fn http_builder(options: &ListenerOptions) -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    let head = usize::try_from(options.header_bytes_max).unwrap_or(usize::MAX);
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.http1_idle_timeout)
        .half_close(false)
        .max_buf_size(head)
        .max_headers(options.header_count_max);
    http
}

/// What is known of a connection of HTTP/1.1.
struct Watched {
    seen_request: AtomicBool,
    first_request: Notify,
}

/// hyper's view of the handler.
struct PerConnection {
    handler: Handler,
    facts: Arc<Connection>,
    watched: Arc<Watched>,
}

impl Service<Request<Incoming>> for PerConnection {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        if !self.watched.seen_request.load(Ordering::Relaxed) {
            self.watched.seen_request.store(true, Ordering::Relaxed);
            self.watched.first_request.notify_one();
        }
        // What comes after a request for a tunnel is looked at by nobody.
        let asks_tunnel = request.version() <= Version::HTTP_11
            && (request.headers().contains_key(UPGRADE) || request.method() == Method::CONNECT);
        let mut request = request.map(Body::from);
        request.extensions_mut().insert(Arc::clone(&self.facts));
        Answering {
            answer: self.handler.clone().oneshot(request),
            asks_tunnel,
        }
    }
}

type Answer =
    Oneshot<BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>, Request<Body>>;

pin_project_lite::pin_project! {
    /// A request being answered.
    struct Answering {
        #[pin]
        answer: Answer,
        asks_tunnel: bool,
    }
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut answer = this.answer.poll(cx);
        if let (Poll::Ready(Ok(response)), true) = (&mut answer, *this.asks_tunnel)
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        answer
    }
}
