//! One accepted connection: socket options, TLS, then HTTP until it ends, is drained or is cut.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use tower::util::{BoxCloneSyncService, Oneshot};

use super::guard::Guarded;
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

    /// Serves one connection to its end.
    pub(super) async fn connection(
        &self,
        mut tcp: TcpStream,
        peer: SocketAddr,
        part: ConnectionDrain,
    ) {
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let accepted = clock::now();
        let deadline = tokio::time::Instant::now() + self.options.handshake_timeout;
        let Ok(local) = tcp.local_addr() else {
            return; // it has gone already
        };
        socket::tune(&tcp, UNACKNOWLEDGED_MAX);
        let Some(peer) = self.source(&mut tcp, peer, deadline).await else {
            return;
        };
        let Some(stream) = self.handshake(tcp, peer, deadline).await else {
            return;
        };
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
        self.http(stream, Arc::new(facts)).await;
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

    async fn http(&self, stream: TlsStream<TcpStream>, facts: Arc<Connection>) {
        // By ALPN, so that a client that sends nothing meets a timeout and no protocol sniffing.
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let http = if is_h2 {
            self.http.clone().http2_only()
        } else {
            self.http.clone().http1_only()
        };
        let watched = Arc::new(Watched {
            seen_request: AtomicBool::new(false),
            first_request: Notify::new(),
            hurry: Mutex::new(Hurry::new(self.options.hasty_resets_max, facts.accepted)),
            too_hasty: CancellationToken::new(),
        });
        let service = PerConnection {
            handler: self.handler.clone(),
            facts: Arc::clone(&facts),
            watched: Arc::clone(&watched),
        };
        let stream = if is_h2 {
            Guarded::http2(stream, facts.accepted)
        } else {
            let head = usize::try_from(self.options.header_bytes_max).unwrap_or(usize::MAX);
            Guarded::http1(stream, head)
        };
        let serving = http.serve_connection_with_upgrades(TokioIo::new(stream), service);
        self.until_over(pin!(serving), is_h2, &facts, &watched)
            .await;
    }

    /// Drives the connection; everything else that may end it is an arm here.
    async fn until_over(
        &self,
        mut serving: Pin<&mut Http<'_>>,
        is_h2: bool,
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
                () = watched.too_hasty.cancelled() => {
                    self.counters.closed_for_hurry.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(peer = %facts.peer, "closed: too many requests reset in a hurry");
                    return;
                }
                () = self.drain.cut() => return,
                () = &mut paced, if !is_leaving => {
                    is_leaving = true;
                    // hyper closes an HTTP/1.1 connection that has had no request, although one may
                    // be on its way; HTTP/2 has a word for it.
                    if is_h2 || watched.seen_request.load(Ordering::Relaxed) {
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
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(options.ping_interval)
        .keep_alive_timeout(options.ping_timeout)
        .max_header_list_size(options.header_bytes_max)
        .max_concurrent_streams(options.streams_max)
        .max_send_buf_size(options.stream_send_bytes)
        .initial_stream_window_size(options.stream_window)
        .initial_connection_window_size(options.connection_window);
    http
}

/// Watches a connection for bad manners.
struct Watched {
    seen_request: AtomicBool,
    first_request: Notify,
    hurry: Mutex<Hurry>,
    too_hasty: CancellationToken,
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
            began: clock::now(),
            watched: Arc::clone(&self.watched),
            is_done: false,
            asks_tunnel,
        }
    }
}

type Answer =
    Oneshot<BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>, Request<Body>>;

pin_project_lite::pin_project! {
    /// A request being answered; dropped before its answer, it was reset by the client.
    struct Answering {
        #[pin]
        answer: Answer,
        began: Instant,
        watched: Arc<Watched>,
        is_done: bool,
        asks_tunnel: bool,
    }

    impl PinnedDrop for Answering {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if *this.is_done {
                return;
            }
            if this.watched.hurry.lock().observe_reset(*this.began, clock::now()) {
                this.watched.too_hasty.cancel();
            }
        }
    }
}

impl Future for Answering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut answer = this.answer.poll(cx);
        *this.is_done = answer.is_ready();
        if let (Poll::Ready(Ok(response)), true) = (&mut answer, *this.asks_tunnel)
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        answer
    }
}
