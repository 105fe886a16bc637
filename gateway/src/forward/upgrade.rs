//! Tunnels: exec, attach, port-forward and proxied sockets, over SPDY or WebSocket.
//!
//! The request goes out on an HTTP/1.1 connection of its own, which is never pooled. Only when the
//! upstream has answered 101 with the protocol asked for are the two sockets joined, and nothing
//! the client sends before that is passed on (CVE-2018-1002105). Every other answer is an ordinary
//! response, after which the connection is closed. Redirects are errors (CVE-2020-8559). A tunnel
//! has no timeout; what it does once it stands is said in `tunnel`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, SEC_WEBSOCKET_PROTOCOL, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::beginning::Opened;
use super::body::{self, Hold};
use super::patience::Patience;
use super::tunnel::Tunnel;
use super::wire::Wire;
use super::{Served, Tenure, failure, headers};
use crate::body::Body;
use crate::clock;
use crate::context::RequestContext;
use crate::status::{Refusal, Stage};
use crate::upstream::{
    Cluster, ConnectError, Http1, IdentityMode, LoadClass, Outcome, Ticket, Tried, View, Wish,
};

/// For the upstream's answer to an upgrade; kubelets start containers' processes within it.
const HEAD_MAX: Duration = Duration::from_secs(60);

/// Where an upstream says which version of Kubernetes' own protocol it speaks within SPDY.
const SPDY_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// The subprotocol under which browsers show bearer tokens.
const BEARER_PROTOCOL: &[u8] = b"base64url.bearer.authorization.k8s.io.";

/// Forwards a request that asks for a tunnel.
pub(super) async fn forward(
    cluster: &Arc<Cluster>,
    view: &Arc<View>,
    ctx: &RequestContext,
    subset: Option<&str>,
    mut request: Request<Body>,
) -> Result<(Response<Body>, Served), Refusal> {
    let protocol = protocol(&request)?;
    let open = cluster.counters.tunnels_open.load(Ordering::Relaxed);
    if open >= u64::from(view.spec.tunnels_max.get()) {
        return Err(failure::too_many_tunnels(open));
    }
    let client = hyper::upgrade::on(&mut request);
    let subprotocols = subprotocols(request.headers(), view.spec.identity);
    headers::prepare(request.headers_mut(), view, ctx)?;
    let (mut parts, _) = request.into_parts();
    parts.headers.remove(SEC_WEBSOCKET_PROTOCOL);
    for subprotocol in subprotocols {
        parts.headers.append(SEC_WEBSOCKET_PROTOCOL, subprotocol);
    }
    parts
        .headers
        .insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    parts.headers.insert(UPGRADE, protocol.clone());

    let (ticket, sender, attempts) = connect(cluster, view, subset, &ctx.user.name).await?;
    let answer = ask(&ticket, sender, &parts).await;
    let outcome = match &answer {
        Ok(_) => Outcome::Success,
        Err(_) => Outcome::Failure,
    };
    ticket.endpoint.observe(outcome, &view.spec, clock::now());
    let answer = answer?;
    let served = Served {
        endpoint: Arc::clone(&ticket.endpoint.id),
        attempts,
        times: None,
    };
    let response = if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        join(cluster, ctx, client, answer, ticket, &protocol)?
    } else {
        relay(view, answer, ticket)?
    };
    Ok((response, served))
}

/// The protocol asked for, if it is one that Kubernetes speaks.
fn protocol(request: &Request<Body>) -> Result<HeaderValue, Refusal> {
    let refuse = |message| Err(Refusal::bad_request(Stage::Forward, message));
    if request.version() != Version::HTTP_11 {
        return refuse("a tunnel needs HTTP/1.1; offer no h2 in ALPN for it");
    }
    let headers = request.headers();
    let has_content = headers.contains_key(TRANSFER_ENCODING)
        || headers
            .get(CONTENT_LENGTH)
            .is_some_and(|length| length != "0")
        || !request.body().is_end_stream();
    if has_content {
        return refuse("a request for a tunnel has no content");
    }
    let mut asked = headers.get_all(UPGRADE).iter();
    match (asked.next(), asked.next()) {
        (Some(one), None) if is_known(one) => Ok(one.clone()),
        _ => refuse("only SPDY/3.1 and websocket can be upgraded to"),
    }
}

fn is_known(protocol: &HeaderValue) -> bool {
    let protocol = protocol.as_bytes();
    protocol.eq_ignore_ascii_case(b"SPDY/3.1") || protocol.eq_ignore_ascii_case(b"websocket")
}

/// The WebSocket subprotocols that travel on: all lines, but for a bearer token among them where
/// the gateway says who calls.
fn subprotocols(headers: &HeaderMap, mode: IdentityMode) -> Vec<HeaderValue> {
    let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    if mode == IdentityMode::PassThrough {
        return lines.cloned().collect();
    }
    let is_secret = |entry: &&[u8]| entry.trim_ascii().starts_with(BEARER_PROTOCOL);
    let sifted = lines.filter_map(|line| {
        let mut entries = line.as_bytes().split(|&b| b == b',');
        if !entries.any(|entry| is_secret(&entry)) {
            return Some(line.clone());
        }
        let entries = line.as_bytes().split(|&b| b == b',');
        let kept: Vec<&[u8]> = entries.filter(|entry| !is_secret(entry)).collect();
        let kept = kept.join(&b',');
        let kept = kept.trim_ascii();
        HeaderValue::from_bytes(kept).ok().filter(|v| !v.is_empty())
    });
    sifted.collect()
}

/// A fresh connection to the first endpoint that can be reached.
async fn connect(
    cluster: &Cluster,
    view: &Arc<View>,
    subset: Option<&str>,
    caller: &str,
) -> Result<(Ticket, Http1, u32), Refusal> {
    let wish = Wish {
        subset,
        caller: Some(caller),
        ..Wish::any(LoadClass::Long)
    };
    let mut tried = Tried::default();
    let mut last: Option<ConnectError> = None;
    for attempt in 0..view.len().min(super::ATTEMPTS_MAX as usize) {
        let random = cluster.random();
        let Some(ticket) = view.pick(&wish, &mut tried, random, clock::now()) else {
            break;
        };
        match view.connector.http1(&ticket.endpoint.address).await {
            Ok((sender, driver)) => {
                tokio::spawn(async move {
                    if let Err(error) = driver.with_upgrades().await {
                        tracing::debug!(%error, "connection for a tunnel broke");
                    }
                });
                let attempts = u32::try_from(attempt + 1).unwrap_or(u32::MAX);
                return Ok((ticket, sender, attempts));
            }
            Err(error) => {
                ticket
                    .endpoint
                    .observe(Outcome::Failure, &view.spec, clock::now());
                last = Some(error);
            }
        }
    }
    Err(last.map_or_else(failure::no_endpoint, |error| {
        failure::Failure::Connect(error).into_refusal("")
    }))
}

/// Sends the request and waits for the head of the answer.
async fn ask(
    ticket: &Ticket,
    mut sender: Http1,
    parts: &Parts,
) -> Result<Response<Incoming>, Refusal> {
    let endpoint = &ticket.endpoint;
    let path = parts.uri.path_and_query().cloned();
    let mut request = Request::new(Body::Empty);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = Uri::from(path.ok_or_else(failure::no_path)?);
    *request.headers_mut() = parts.headers.clone();
    let host = HeaderValue::from_str(endpoint.address.authority.as_str());
    let host = host.map_err(|_| failure::no_endpoint())?;
    request.headers_mut().insert(HOST, host);
    match tokio::time::timeout(HEAD_MAX, sender.send_request(request)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failure::Failure::Broken(error.into()).into_refusal(&endpoint.id)),
        Err(_) => Err(failure::Failure::Timeout(HEAD_MAX).into_refusal(&endpoint.id)),
    }
}

/// Answers 101 and joins the sockets.
fn join(
    cluster: &Cluster,
    ctx: &RequestContext,
    client: OnUpgrade,
    mut answer: Response<Incoming>,
    ticket: Ticket,
    protocol: &HeaderValue,
) -> Result<Response<Body>, Refusal> {
    let given = answer.headers().get(UPGRADE);
    let is_given = given.is_some_and(|g| g.as_bytes().eq_ignore_ascii_case(protocol.as_bytes()));
    if !is_given {
        return Err(Refusal::new(
            Stage::Forward,
            StatusCode::BAD_GATEWAY,
            "InternalError",
            "the upstream switched to a protocol that was not asked for",
        ));
    }
    let given = given.cloned();
    let upstream = hyper::upgrade::on(&mut answer);
    let tenure = Tenure::default();
    let chosen = answer.headers().get(SEC_WEBSOCKET_PROTOCOL);
    let chosen = chosen.or_else(|| answer.headers().get(SPDY_PROTOCOL));
    let wire = Wire::new(protocol.as_bytes(), chosen.map(HeaderValue::as_bytes));
    let tether = ctx.tether.clone();
    let tunnel = Tunnel::new(ticket, &cluster.counters, tenure.clone(), wire, tether);
    let tracker = &ctx.connection.drain.tracker;
    tracker.spawn(tunnel.run(client, upstream, ctx.ending()));
    let mut response = answer.map(|_| Body::Empty);
    response.extensions_mut().insert(tenure);
    let headers = response.headers_mut();
    strip_hops(headers);
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(given) = given {
        headers.insert(UPGRADE, given);
    }
    Ok(response)
}

/// Passes on an answer that is not 101; the connection closes behind it.
fn relay(
    view: &Arc<View>,
    answer: Response<Incoming>,
    ticket: Ticket,
) -> Result<Response<Body>, Refusal> {
    if answer.status().is_redirection() || answer.status().is_informational() {
        return Err(failure::foreign_redirect());
    }
    let hold = Hold::without_lease(view, ticket);
    let patience = Patience::of(view.spec.timeouts.head);
    let mut response =
        answer.map(|incoming| body::plain(Opened::at_once(incoming.into()), hold, patience));
    strip_hops(response.headers_mut());
    Ok(response)
}

fn strip_hops(headers: &mut HeaderMap) {
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ] {
        headers.remove(name);
    }
}
