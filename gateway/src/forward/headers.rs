//! Takes out of a request's headers what a client must not say to an upstream, then says what the
//! gateway has to.
//!
//! The order is the point: hop-by-hop headers and those that `Connection` names go first, the
//! gateway's own lines come last, so that no `Connection: impersonate-user` can take them away.

use std::sync::Arc;

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, SEC_WEBSOCKET_PROTOCOL as SUBPROTOCOL, TE,
    TRANSFER_ENCODING, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{failure, identity};
use crate::context::{HeaderLines, RequestContext};
use crate::identity::{ANONYMOUS, REMOTE_PREFIX, RequestHeaders, begins};
use crate::status::{Refusal, Stage};
use crate::upstream::{IdentityMode, View};

pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

const IMPERSONATE_PREFIX: &str = "impersonate-";

/// Names removed in one go; more of them only take another round.
const ROUND: usize = 8;

/// Makes the headers of a client's request those of the gateway's.
pub(super) fn prepare(
    headers: &mut HeaderMap,
    view: &View,
    ctx: &RequestContext,
) -> Result<(), Refusal> {
    let mode = view.spec.identity;
    check(headers)?;
    let takes_trailers = headers.get(TE).is_some_and(|te| te == "trailers");
    strip(headers, mode, &view.spec.request_headers);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    say(headers, view, ctx)
}

/// Refuses what two readers may understand differently, and what has been here before.
fn check(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(Refusal::bad_request(
            Stage::Forward,
            "more than one host header",
        ));
    }
    if headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH) {
        let message = "both content-length and transfer-encoding are given";
        return Err(Refusal::bad_request(Stage::Forward, message));
    }
    let ours = identity::via().as_bytes();
    let is_ours = |entry: &[u8]| entry.trim_ascii() == ours;
    let mut vias = headers.get_all(VIA).iter();
    if vias.any(|value| value.as_bytes().split(|&b| b == b',').any(is_ours)) {
        return Err(failure::loop_detected());
    }
    Ok(())
}

/// Removes everything that does not travel on.
fn strip(headers: &mut HeaderMap, mode: IdentityMode, names: &RequestHeaders) {
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    loop {
        let mut doomed: [Option<HeaderName>; ROUND] = Default::default();
        let names = headers
            .keys()
            .filter(|name| !travels(name, mode) || names.is_unusual(name));
        let mut count = 0;
        for (place, name) in doomed.iter_mut().zip(names) {
            *place = Some(name.clone());
            count += 1;
        }
        for name in doomed.into_iter().flatten() {
            headers.remove(name);
        }
        if count < ROUND {
            return;
        }
    }
}

/// The headers `Connection` lists. The two that frame and address the request are not its to name.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut named = Vec::new();
    for value in headers.get_all(CONNECTION) {
        for name in value.as_bytes().split(|&b| b == b',') {
            if let Ok(name) = HeaderName::from_bytes(name.trim_ascii())
                && name != CONTENT_LENGTH
                && name != HOST
            {
                named.push(name);
            }
        }
    }
    named
}

/// Whether a client's header reaches the upstream.
fn travels(name: &HeaderName, mode: IdentityMode) -> bool {
    let passes_credentials = mode == IdentityMode::PassThrough;
    let text = name.as_str();
    match text.as_bytes().first() {
        Some(b'a') => match text {
            "authorization" => passes_credentials,
            "audit-id" | "audit_id" => false,
            _ => true,
        },
        Some(b'c') => text != "connection",
        Some(b'e') => text != "expect",
        Some(b'f') => text != "forwarded",
        Some(b'h') => text != "host" && text != "http2-settings",
        Some(b'i') => passes_credentials || !begins(text, IMPERSONATE_PREFIX),
        Some(b'k') => text != "keep-alive",
        Some(b'p') => !begins(text, "proxy-"),
        // A browser's bearer token; a tunnel's own part of it is put back by `upgrade`.
        Some(b's') => passes_credentials || text != "sec-websocket-protocol",
        Some(b't') => !matches!(text, "te" | "trailer" | "transfer-encoding"),
        Some(b'u') => text != "upgrade",
        Some(b'x') => {
            let is_address = begins(text, "x-forwarded-") || begins(text, "x-real-ip");
            !is_address
                && !begins(text, "x-kubernetes-peer-proxied")
                && !begins(text, REMOTE_PREFIX)
        }
        _ => true,
    }
}

/// The families that say who is asking; no client's copy may live, in trailers neither.
pub(super) fn is_identity(names: &RequestHeaders, name: &HeaderName) -> bool {
    let text = name.as_str();
    begins(text, IMPERSONATE_PREFIX) || begins(text, REMOTE_PREFIX) || names.is_unusual(name)
}

/// Adds the gateway's own lines.
fn say(headers: &mut HeaderMap, view: &View, ctx: &RequestContext) -> Result<(), Refusal> {
    let mode = view.spec.identity;
    match mode {
        IdentityMode::Impersonate => {
            if let Some(bearer) = &view.bearer {
                headers.insert(AUTHORIZATION, bearer.clone());
            }
        }
        // The client certificate speaks alone: beside a token, a certificate that the upstream
        // does not take for a front proxy's would make everyone the gateway itself.
        IdentityMode::FrontProxy => {}
        IdentityMode::PassThrough => {
            // Where there is no Authorization, the token was a WebSocket's subprotocol if anything:
            // certificates are not known here.
            let shows = headers.contains_key(AUTHORIZATION) || headers.contains_key(SUBPROTOCOL);
            if !shows && ctx.user.name != ANONYMOUS {
                return Err(not_passable());
            }
        }
    }
    let style = identity::style(mode);
    let names = &view.spec.request_headers;
    let cached = ctx.connection.lines.load();
    match cached.as_ref() {
        Some(lines)
            if lines.style == style
                && lines.client == ctx.client
                && Arc::ptr_eq(&lines.user, &ctx.user)
                && Arc::ptr_eq(&lines.names, names) =>
        {
            copy(headers, lines);
        }
        _ => {
            let lines = identity::lines(&ctx.user, mode, names, ctx.client)?;
            copy(headers, &lines);
            ctx.connection.lines.store(Some(Arc::new(lines)));
        }
    }
    headers.insert(AUDIT_ID, audit_id(ctx)?);
    Ok(())
}

fn copy(headers: &mut HeaderMap, lines: &HeaderLines) {
    headers.reserve(lines.lines.len() + 1);
    for (name, value) in &lines.lines {
        headers.append(name.clone(), value.clone());
    }
}

fn audit_id(ctx: &RequestContext) -> Result<HeaderValue, Refusal> {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    let id = uuid::Uuid::from_u128(ctx.id.0).hyphenated();
    let text = id.encode_lower(&mut text);
    HeaderValue::from_str(text)
        .map_err(|_| Refusal::bad_request(Stage::Forward, "the request has no usable id"))
}

fn not_passable() -> Refusal {
    Refusal::new(
        Stage::Forward,
        StatusCode::UNAUTHORIZED,
        "Unauthorized",
        "this cluster is told who calls by the caller's own bearer token only; show one",
    )
}
