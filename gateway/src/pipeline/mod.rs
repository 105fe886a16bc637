//! The life of a request, in order: read it, find its cluster, find out who makes it, break and
//! limit, serve, write it down.
//!
//! ```text
//! request info -> route -> identity -> breaker, limit -> forward | api -> audit, metrics
//! ```
//! A request takes one snapshot, once. A phase that is against it answers with a refusal, which
//! becomes HTTP in one place. Nothing here names a configuration type.

mod span;
mod standing;
mod trace;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{ACCEPT, CONTENT_LENGTH, HOST, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;

use crate::audit::Recorder;
use crate::body::Body;
use crate::clock;
use crate::context::{Connection, RequestContext, RequestId, Tether};
use crate::flow::{Admission, Entry};
use crate::forward;
use crate::forwarded;
use crate::request::RequestInfo;
use crate::snapshot::{Misrouted, Route, RoutingSnapshot, Target};
use crate::status::{Refusal, Stage};
use crate::telemetry::{RequestMetrics, Traces};
use standing::{Caller, Standing};
use trace::{Ids, Trace};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// What serves every request of a process.
pub struct Gateway {
    snapshot: Arc<ArcSwap<RoutingSnapshot>>,
    recorder: Recorder,
    metrics: RequestMetrics,
    traces: Option<Traces>,
    ids: Ids,
    rejudge_every: Duration,
}

impl Gateway {
    /// Puts it together around the published snapshot.
    #[must_use]
    pub fn new(
        snapshot: Arc<ArcSwap<RoutingSnapshot>>,
        recorder: Recorder,
        metrics: RequestMetrics,
    ) -> Arc<Self> {
        Gateway::rejudging(snapshot, recorder, metrics, standing::REJUDGE_EVERY)
    }

    /// As [`Gateway::new`], with a time of one's own after which the caller of a long-running request
    /// is judged again.
    #[must_use]
    pub fn rejudging(
        snapshot: Arc<ArcSwap<RoutingSnapshot>>,
        recorder: Recorder,
        metrics: RequestMetrics,
        rejudge_every: Duration,
    ) -> Arc<Self> {
        Arc::new(Gateway {
            snapshot,
            recorder,
            metrics,
            traces: None,
            ids: Ids::new(),
            rejudge_every,
        })
    }

    /// As [`Gateway::new`], with traces of requests.
    #[must_use]
    pub fn tracing(
        snapshot: Arc<ArcSwap<RoutingSnapshot>>,
        recorder: Recorder,
        metrics: RequestMetrics,
        traces: Option<Traces>,
    ) -> Arc<Self> {
        Arc::new(Gateway {
            snapshot,
            recorder,
            metrics,
            traces,
            ids: Ids::new(),
            rejudge_every: standing::REJUDGE_EVERY,
        })
    }

    /// The handler a listener serves.
    #[must_use]
    pub fn handler(self: Arc<Self>) -> crate::listener::Handler {
        let service = tower::service_fn(move |request: Request<Body>| {
            let gateway = Arc::clone(&self);
            async move { Ok::<_, Infallible>(gateway.handle(request).await) }
        });
        tower::util::BoxCloneSyncService::new(service)
    }

    async fn handle(&self, mut request: Request<Body>) -> Response<Body> {
        let Some(connection) = request.extensions_mut().remove::<Arc<Connection>>() else {
            let refusal = Refusal::bad_request(Stage::Request, "the connection is unknown");
            return refusal.into_response(request.headers());
        };
        let id = self.ids.next();
        let agent = request.headers().get(USER_AGENT).cloned();
        let client = forwarded::client(&connection, request.headers());
        let mut trace = Trace::new(
            id,
            client,
            agent,
            self.recorder.clone(),
            self.metrics.clone(),
        );
        if let Some(traces) = &self.traces {
            trace.traced(traces.begin(request.headers_mut(), trace.received()));
        }
        // The head goes away with the request: keep what a refusal is encoded by.
        let accept = request.headers().get(ACCEPT).cloned();
        let is_head = request.method() == Method::HEAD;
        match self.phases(request, (connection, client), &mut trace).await {
            Ok((response, admission)) => trace.served(fit(response, is_head), admission),
            Err(refusal) => {
                trace.refused(&refusal);
                if refusal.code.is_server_error() {
                    let Refusal {
                        stage,
                        code,
                        message,
                        ..
                    } = &refusal;
                    let stage = stage.as_str();
                    tracing::warn!(request = %id, stage, code = code.as_u16(), "refused: {message}");
                }
                let mut accepted = HeaderMap::new();
                if let Some(accept) = accept {
                    accepted.insert(ACCEPT, accept);
                }
                let mut response = refusal.into_response(&accepted);
                response.headers_mut().insert(AUDIT_ID, spell(id));
                trace.served(fit(response, is_head), Admission::default())
            }
        }
    }

    async fn phases(
        &self,
        mut request: Request<Body>,
        (connection, client): (Arc<Connection>, SocketAddr),
        trace: &mut Trace,
    ) -> Result<(Response<Body>, Admission), Refusal> {
        let info = RequestInfo::parse(request.method(), request.uri(), request.headers());
        let info = match info {
            Ok(info) => trace.asked(info),
            Err(refusal) => {
                trace.unreadable(request.method(), request.uri());
                return Err(refusal);
            }
        };
        let snapshot = self.snapshot.load_full();
        let route = route(&snapshot, &connection, &request)?;
        trace.routed(&route.name);
        let mark = trace.mark();
        let verdict = route
            .authenticator
            .authenticate_from(client.ip(), &connection, request.headers(), trace.wall())
            .await;
        trace.part(span::AUTHN, mark);
        let mut verdict = verdict?;
        trace.known(&verdict);
        let judged = info.is_long_running().then(|| Arc::clone(&verdict.user));
        // In front of a cluster the authenticator has asked it; the API of our own answers itself.
        if let Target::Api(api) = &route.target
            && let Some(user) = api.acting(&verdict.user, request.headers()).await?
        {
            let caller = std::mem::replace(&mut verdict.user, user);
            verdict.impersonator = Some(caller);
            trace.known(&verdict);
        }
        let agent = trace.user_agent();
        // A client that is stopped is stopped under whatever name it acts.
        let mark = trace.mark();
        let entry = route.flows.enter(
            &info,
            &verdict.user,
            verdict.impersonator.as_deref(),
            agent,
            clock::now(),
        );
        trace.part(span::MATCH, mark);
        let admission = match entry? {
            Entry::Admitted(admission) => admission,
            Entry::Waiting(waiting) => {
                let mark = trace.mark();
                let turn = waiting.turn(clock::now).await;
                trace.part(span::LIMIT_WAIT, mark);
                turn?
            }
        };
        trace.admitted(&admission);
        let tether = judged.map(|user| {
            let tether = Tether::new(&connection.drain);
            let caller = Caller {
                connection: Arc::clone(&connection),
                source: client.ip(),
                headers: request.headers().clone(),
                info: info.clone(),
                user,
                route: Arc::clone(&route.name),
            };
            let (snapshot, every) = (Arc::clone(&self.snapshot), self.rejudge_every);
            trace.stands(Standing::of(caller, snapshot, every, Arc::clone(&tether)));
            tether
        });
        let context = RequestContext {
            connection,
            client,
            id: trace.id(),
            received: trace.received(),
            user: verdict.user,
            impersonator: verdict.impersonator,
            tether,
        };
        let response = match &route.target {
            Target::Upstream(cluster) => {
                let subset = admission.subset();
                if trace.is_traced() {
                    request.extensions_mut().insert(forward::Timed);
                }
                let forwarding = forward::forward_to(cluster, &context, &info, subset, request);
                let (response, served) = forwarding.await?;
                trace.endpoint(served);
                response
            }
            Target::Api(api) => api.serve(&context, &info, request).await,
        };
        Ok((response, admission))
    }
}

fn route<'a>(
    snapshot: &'a RoutingSnapshot,
    connection: &Connection,
    request: &Request<Body>,
) -> Result<&'a Arc<Route>, Refusal> {
    let host = request
        .uri()
        .authority()
        .map(http::uri::Authority::as_str)
        .or_else(|| request.headers().get(HOST).and_then(|v| v.to_str().ok()));
    snapshot.route(connection.server_name.as_deref(), host).map_err(|misrouted| {
        let host = host.unwrap_or_default();
        let text = match misrouted {
            Misrouted::Unknown => format!(
                "no cluster is known by the host {host:?} and none is the default; name one of the hosts of an UpstreamCluster"
            ),
            Misrouted::Mismatch => format!(
                "the connection was made for another cluster than {host:?}; open one for that host"
            ),
        };
        Refusal::new(Stage::Route, StatusCode::MISDIRECTED_REQUEST, "BadRequest", text)
    })
}

/// Leaves only the head of an answer to HEAD, with the length of what is left out: over HTTP/2
/// nobody else does.
fn fit(mut response: Response<Body>, is_head: bool) -> Response<Body> {
    if !is_head || response.body().is_end_stream() {
        return response;
    }
    let body = std::mem::take(response.body_mut());
    if let Some(length) = body.size_hint().exact() {
        let headers = response.headers_mut();
        headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
    response
}

/// A request's number as a header value.
fn spell(id: RequestId) -> HeaderValue {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    let text = uuid::Uuid::from_u128(id.0)
        .hyphenated()
        .encode_lower(&mut text);
    HeaderValue::from_str(text).expect("a UUID is plain text")
}
