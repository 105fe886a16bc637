//! Sends a request to an endpoint of its cluster and streams the answer back.
//!
//! ```text
//!   strip the client's identity and hop-by-hop headers, then set the gateway's
//!   pick an endpoint -> a stream on a connection -> send
//!     never left, or refused unseen ....... again elsewhere, any verb
//!     broke before the head, GET or HEAD .. again elsewhere, within the budget
//!     broke before the head, else ......... 502: its fate is not known
//!     a read's 502, 503, 504 or 500 ....... once elsewhere, within the budget: see `doubt`
//!     broke before any content of a read's answer: as before its head
//!   content came: stream the body; a broken one is reset, a broken watch ends between two events
//! ```
//! Upgrades take a connection of their own (`upgrade`). The URI's bytes are never touched. It
//! knows clusters and endpoints, and nothing of rules, limits or audit.

mod beginning;
mod body;
mod doubt;
mod failure;
mod framing;
mod headers;
mod identity;
mod patience;
mod shape;
mod tenure;
mod tunnel;
mod upgrade;
mod wire;

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;

use crate::body::Body;
use crate::clock;
use crate::context::RequestContext;
use crate::request::RequestInfo;
use crate::status::Refusal;
use crate::upstream::{
    Ask, Cluster, IdentityMode, Kept, Lease, LoadClass, Outcome, Received, SendBody, SendFailure,
    Ticket, Tried, View, Wish,
};
use beginning::Opened;
use body::{Hold, Size};
use doubt::Doubt;
use failure::Failure;
use patience::Patience;

pub use shape::Shape;
pub use tenure::{Tenure, Traffic};

/// Attempts for one request, free ones included: more only happen when everything is leaving.
const ATTEMPTS_MAX: u32 = 5;

/// Replays of a request that may have been carried out.
const REPLAYS_MAX: u32 = 1;

/// Which endpoint answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its URL.
    pub endpoint: Arc<str>,
    /// Endpoints or connections tried, this one included.
    pub attempts: u32,
    /// When what happened in the last attempt, where the request has asked for it.
    pub times: Option<Times>,
}

/// Asks for [`Served::times`], as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub struct Timed;

/// The steps of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A connection was asked for.
    pub began: Instant,
    /// It was there.
    pub connected: Instant,
    /// The answer had begun.
    pub answered: Instant,
}

/// Forwards `request` to an endpoint of `cluster`, on behalf of `ctx.user`. Which one answered is an
/// extension of the response.
///
/// # Errors
/// A [`Refusal`] of stage `forward` when no endpoint gave an answer.
///
/// # Cancellation
/// Dropping the future resets the request upstream.
pub async fn forward(
    cluster: &Arc<Cluster>,
    ctx: &RequestContext,
    info: &RequestInfo,
    request: Request<Body>,
) -> Result<Response<Body>, Refusal> {
    forward_shaped(cluster, ctx, Shape::of(info), request).await
}

/// Forwards a request to one of a subset of the endpoints, where one is named, and says which
/// answered; see [`forward`]. The name of a subset that the cluster does not have stands for all of
/// them.
///
/// # Errors
/// A [`Refusal`] of stage `forward` when no endpoint gave an answer.
///
/// # Cancellation
/// Dropping the future resets the request upstream.
pub async fn forward_to(
    cluster: &Arc<Cluster>,
    ctx: &RequestContext,
    info: &RequestInfo,
    subset: Option<&str>,
    request: Request<Body>,
) -> Result<(Response<Body>, Served), Refusal> {
    run(cluster, ctx, Shape::of(info), subset, request).await
}

/// Forwards a request whose shape is known; see [`forward`].
///
/// # Errors
/// A [`Refusal`] of stage `forward` when no endpoint gave an answer.
pub async fn forward_shaped(
    cluster: &Arc<Cluster>,
    ctx: &RequestContext,
    shape: Shape,
    request: Request<Body>,
) -> Result<Response<Body>, Refusal> {
    let (mut response, served) = run(cluster, ctx, shape, None, request).await?;
    response.extensions_mut().insert(served);
    Ok(response)
}

async fn run(
    cluster: &Arc<Cluster>,
    ctx: &RequestContext,
    shape: Shape,
    subset: Option<&str>,
    mut request: Request<Body>,
) -> Result<(Response<Body>, Served), Refusal> {
    let view = cluster.view();
    if request.method() == Method::CONNECT || request.method() == Method::TRACE {
        return Err(failure::method_refused(request.method()));
    }
    if shape.is_upgrade {
        return Box::pin(upgrade::forward(cluster, &view, ctx, subset, request)).await;
    }
    headers::prepare(request.headers_mut(), &view, ctx)?;
    if shape.is_watch {
        // Where events end cannot be seen in an encoded stream, so that it could not end between
        // two; apiservers since 1.37 encode the watches that begin with a list.
        request.headers_mut().remove(ACCEPT_ENCODING);
    }
    let (parts, body) = request.into_parts();
    let mut outgoing = Outgoing::new(cluster, &view, parts, body, shape)?;
    cluster.budget.deposit();
    cluster.doubts.deposit();
    let wish = wish(cluster, &shape, subset, ctx);
    outgoing.run(cluster, &view, ctx, &wish).await
}

/// What the request asks of the choice of its endpoint.
fn wish<'a>(
    cluster: &Cluster,
    shape: &Shape,
    subset: Option<&'a str>,
    ctx: &'a RequestContext,
) -> Wish<'a> {
    let class = if shape.is_long_running {
        LoadClass::Long
    } else {
        LoadClass::Short
    };
    Wish {
        class,
        subset,
        // A client is a user at an address: the thousand agents of one service account are many.
        client: shape.reads_cache.then(|| {
            let hasher = foldhash::quality::FixedState::default();
            hasher.hash_one((&ctx.user.name, ctx.connection.peer.ip()))
        }),
        caller: Some(&ctx.user.name),
        cost: cluster.estimates.cost(shape.list_kind),
        is_resumed: shape.is_resumed,
    }
}

/// A request on its way, with all that another attempt would need.
struct Outgoing {
    shape: Shape,
    method: Method,
    path: PathAndQuery,
    /// Each attempt spells it out.
    headers: HeaderMap,
    content: Option<Kept>,
    tried: Tried,
    attempts: u32,
    replays: u32,
    doubt: Doubt,
    is_timed: bool,
    times: Option<Times>,
}

impl Outgoing {
    fn new(
        cluster: &Arc<Cluster>,
        view: &View,
        parts: Parts,
        body: Body,
        shape: Shape,
    ) -> Result<Self, Refusal> {
        let is_timed = parts.extensions.get::<Timed>().is_some();
        let path = parts.uri.into_parts().path_and_query;
        let content = (!body.is_end_stream()).then(|| {
            let keeper = Arc::clone(&cluster.keeper);
            let names = Arc::clone(&view.spec.request_headers);
            Kept::new(body, keeper, (headers::is_identity, names))
        });
        Ok(Outgoing {
            shape,
            method: parts.method,
            path: path.ok_or_else(failure::no_path)?,
            headers: parts.headers,
            content,
            tried: Tried::default(),
            attempts: 0,
            replays: 0,
            doubt: Doubt::default(),
            is_timed,
            times: None,
        })
    }

    fn is_safe(&self) -> bool {
        self.method == Method::GET || self.method == Method::HEAD
    }

    async fn run(
        &mut self,
        cluster: &Arc<Cluster>,
        view: &Arc<View>,
        ctx: &RequestContext,
        wish: &Wish<'_>,
    ) -> Result<(Response<Body>, Served), Refusal> {
        loop {
            self.attempts += 1;
            let random = cluster.random();
            let ticket = view
                .pick(wish, &mut self.tried, random, clock::now())
                .ok_or_else(failure::no_endpoint)?;
            match self.attempt(view, &ticket).await {
                Ok((response, lease)) => {
                    if self.is_worth_another(cluster, view, &ticket, wish, &response) {
                        continue;
                    }
                    let kind = self.shape.list_kind;
                    let size = (kind != 0).then(|| Size {
                        estimates: Arc::clone(&cluster.estimates),
                        kind,
                        bytes: 0,
                    });
                    let hold = Hold::new(view, ticket, lease, size);
                    return self.respond(view, ctx, response, hold);
                }
                Err(failure) => {
                    let outcome = self.doubt.judge(false, failure.outcome(), (cluster, view));
                    ticket.endpoint.observe(outcome, &view.spec, clock::now());
                    tracing::debug!(endpoint = &*ticket.endpoint.id, %failure, "attempt failed");
                    self.may_repeat(cluster, view, &failure)
                        .then_some(())
                        .ok_or_else(|| failure.into_refusal(&ticket.endpoint.id))?;
                }
            }
            cluster.counters.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One try.
    async fn attempt(
        &mut self,
        view: &View,
        ticket: &Ticket,
    ) -> Result<(Response<Opened>, Lease), Failure> {
        let endpoint = &ticket.endpoint;
        let asked = self.is_timed.then(clock::now);
        let lease = endpoint
            .pool
            .lease(&endpoint.address, &view.connector)
            .await
            .map_err(Failure::Connect)?;
        let body = self.body().ok_or(Failure::ContentGone)?;
        let ask = Ask {
            method: &self.method,
            is_tls: endpoint.address.is_tls,
            authority: &endpoint.address.authority,
            path: &self.path,
            headers: &self.headers,
            length: None,
        };
        let began = clock::now();
        let head_max = view.spec.timeouts.head;
        let sent = if self.shape.is_long_running {
            lease.send(ask, body, None).await
        } else if self.content.is_none() {
            lease.send(ask, body, Some((began + head_max).into())).await
        } else {
            match tokio::time::timeout(head_max, lease.send(ask, body, None)).await {
                Ok(sent) => sent,
                // Who sends slowly says nothing of who has to wait for it.
                Err(_) if self.content.as_ref().is_some_and(|it| !it.is_read()) => {
                    return Err(Failure::SlowContent(head_max));
                }
                Err(_) => return Err(Failure::Timeout(head_max)),
            }
        };
        match sent {
            Ok(response) => {
                self.times = asked.map(|asked| Times {
                    began: asked,
                    connected: began,
                    answered: clock::now(),
                });
                if self.shape.is_point_read {
                    let now = clock::now();
                    endpoint.measure(now.saturating_duration_since(began), now);
                }
                Ok((self.open(response).await?, lease))
            }
            Err(SendFailure::NeverSent) => Err(Failure::NeverSent),
            Err(SendFailure::Refused { .. }) => Err(Failure::Refused),
            Err(SendFailure::TimedOut) => Err(Failure::Timeout(head_max)),
            Err(SendFailure::Broken(error)) => Err(Failure::Broken(error.into())),
        }
    }

    /// What is asked for with GET and ends is waited for: see `beginning`.
    async fn open(&self, response: Response<Received>) -> Result<Response<Opened>, Failure> {
        let is_held = self.method == Method::GET && !self.shape.is_long_running;
        let (parts, incoming) = response.into_parts();
        let opened = if is_held {
            Opened::held(incoming).await.map_err(Failure::Broken)?
        } else {
            Opened::at_once(incoming)
        };
        Ok(Response::from_parts(parts, opened))
    }

    fn body(&self) -> Option<SendBody> {
        match &self.content {
            None => Some(SendBody::Empty),
            Some(kept) => kept.attempt().map(SendBody::Kept),
        }
    }

    /// The retry rule.
    fn may_repeat(&mut self, cluster: &Cluster, view: &View, failure: &Failure) -> bool {
        if self.attempts >= ATTEMPTS_MAX {
            return false;
        }
        match failure {
            // An endpoint that cannot be reached will not be reached a moment later.
            Failure::Connect(_) => (self.attempts as usize) < view.len(),
            Failure::NeverSent | Failure::Refused => true,
            Failure::Broken(_) => self.is_safe() && self.may_replay(cluster),
            Failure::Timeout(_) | Failure::SlowContent(_) | Failure::ContentGone => false,
        }
    }

    fn may_replay(&mut self, cluster: &Cluster) -> bool {
        if self.replays >= REPLAYS_MAX {
            return false;
        }
        if !cluster.budget.withdraw() {
            let refused = &cluster.counters.retries_refused;
            refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.replays += 1;
        true
    }

    /// Notes what an answer says of its endpoint; true when another one should be asked instead.
    fn is_worth_another(
        &mut self,
        cluster: &Cluster,
        view: &View,
        ticket: &Ticket,
        wish: &Wish<'_>,
        response: &Response<Opened>,
    ) -> bool {
        let status = response.status();
        let is_fault = self.shape.is_telling && self.is_safe() && status.is_server_error();
        if status == StatusCode::TOO_MANY_REQUESTS {
            let outcome = self.doubt.judge(false, Outcome::Success, (cluster, view));
            ticket.endpoint.observe(outcome, &view.spec, clock::now());
            return self.is_told_to_wait(cluster, view, ticket, wish, response.headers());
        }
        let is_500 = is_fault && status == StatusCode::INTERNAL_SERVER_ERROR;
        let is_gone = matches!(
            status,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        );
        let repeats = is_fault
            && (is_gone || is_500)
            && self.content.is_none()
            && view.has_other(wish, self.tried, clock::now())
            && (is_gone || (self.replays == 0 && cluster.doubts.withdraw()))
            && self.may_replay(cluster);
        if repeats {
            cluster.counters.retries.fetch_add(1, Ordering::Relaxed);
        }
        if repeats && is_500 {
            self.doubt.hold(ticket);
            return true;
        }
        let said = if is_fault {
            Outcome::Failure
        } else {
            Outcome::Success
        };
        let outcome = self.doubt.judge(is_500, said, (cluster, view));
        ticket.endpoint.observe(outcome, &view.spec, clock::now());
        repeats
    }

    /// Notes that the caller has to stay away from an endpoint; true when another one can be asked
    /// meanwhile. Nothing was carried out.
    fn is_told_to_wait(
        &mut self,
        cluster: &Cluster,
        view: &View,
        ticket: &Ticket,
        wish: &Wish<'_>,
        headers: &HeaderMap,
    ) -> bool {
        let Some(wait) = refusal_of_load(headers, self.shape.is_telling) else {
            return false;
        };
        let now = clock::now();
        if let Some(caller) = wish.caller {
            ticket.endpoint.told_to_wait(caller, wait, now);
        }
        let repeats = self.attempts < ATTEMPTS_MAX
            && self.content.as_ref().is_none_or(Kept::is_there)
            && view.has_other(wish, self.tried, now)
            && cluster.budget.withdraw();
        if repeats {
            cluster.counters.retries.fetch_add(1, Ordering::Relaxed);
        }
        repeats
    }

    fn respond(
        &self,
        view: &View,
        ctx: &RequestContext,
        response: Response<Opened>,
        hold: Hold,
    ) -> Result<(Response<Body>, Served), Refusal> {
        if let Some(kept) = &self.content {
            kept.forget();
        }
        let (mut parts, opened) = response.into_parts();
        if parts.status.is_redirection() && !self.shape.is_proxied {
            refuse_foreign_redirect(&parts.headers)?;
        }
        // The caller is known: it is the gateway's own credential that did not hold.
        let is_callers = view.spec.identity == IdentityMode::PassThrough || !self.shape.is_own;
        if parts.status == StatusCode::UNAUTHORIZED && !is_callers {
            return Err(failure::not_let_in(&hold.endpoint_id(), self.is_safe()));
        }
        parts.version = Version::HTTP_11;
        let served = Served {
            endpoint: hold.endpoint_id(),
            attempts: self.attempts,
            times: self.times,
        };
        let body = if self.shape.is_watch && parts.status == StatusCode::OK {
            let ending = ctx.ending();
            body::watch(opened.incoming, hold, &parts.headers, ending)
        } else {
            let patience = if self.shape.is_long_running {
                Patience::until(ctx.closing())
            } else {
                Patience::of(view.spec.timeouts.head)
            };
            body::plain(opened, hold, patience)
        };
        Ok((Response::from_parts(parts, body), served))
    }
}

/// How long a 429 asks to wait, where it is about the apiserver's load: its flow control answers in
/// plain text before anything is looked at. One in JSON is the answer of what was asked, as a
/// disruption budget's to an eviction, but for reads: those are of a cache that is not there yet.
fn refusal_of_load(headers: &HeaderMap, is_read: bool) -> Option<Duration> {
    let media = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_text = media.is_some_and(|media| media.starts_with(b"text/plain"));
    let wait = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let seconds = wait.trim().parse().ok()?;
    (is_text || is_read).then(|| Duration::from_secs(seconds))
}

/// A client that follows a redirect takes its credentials along (CVE-2022-3172).
fn refuse_foreign_redirect(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(location) = headers.get(LOCATION) else {
        return Ok(());
    };
    // Browsers read a backslash as a slash.
    let is_local = match location.as_bytes() {
        [b'/', after @ ..] => !matches!(after.first(), Some(b'/' | b'\\')),
        _ => false,
    };
    if is_local {
        Ok(())
    } else {
        Err(failure::foreign_redirect())
    }
}
