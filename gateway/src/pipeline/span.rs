//! How a request looks in a trace: one span of a server, and its parts below it.
//!
//! ```text
//! list pods                       cluster, rule, endpoint, attempts, code, audit id
//!   authn | match | limit wait    the last where it had to wait for its turn
//!   connect | upstream            of the attempt that was answered: a connection, the first byte
//!   body                          from the answer's head to its last byte
//! ```
//! Neither users nor names of objects are told: collectors are read by more people than the audit,
//! whose event is found by the id.

use std::time::Instant;

use opentelemetry::trace::SpanKind;

use crate::audit::Event;
use crate::forward::Times;
use crate::telemetry::RequestSpan;

pub(super) const AUTHN: &str = "authn";
pub(super) const MATCH: &str = "match";
pub(super) const LIMIT_WAIT: &str = "limit wait";
const CONNECT: &str = "connect";
const UPSTREAM: &str = "upstream";
const BODY: &str = "body";

pub(super) fn part(span: &RequestSpan, name: &'static str, from: Instant, to: Instant) {
    span.part(name, SpanKind::Internal, from, to);
}

pub(super) fn attempt(span: &RequestSpan, times: Times) {
    let Times {
        began,
        connected,
        answered,
    } = times;
    part(span, CONNECT, began, connected);
    span.part(UPSTREAM, SpanKind::Client, connected, answered);
}

/// Ends it by what the audit says; `began` and `now` are its own times.
pub(super) fn end(span: &RequestSpan, event: &Event, (began, now): (Instant, Instant)) {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let facts = &event.facts;
    let words = [
        ("sluice.cluster", facts.cluster.as_deref()),
        ("sluice.rule", facts.rule.as_deref()),
        ("sluice.endpoint", facts.endpoint.as_deref()),
        ("sluice.refused_by", facts.refused_by),
    ];
    for (key, word) in words {
        if let Some(word) = word {
            span.fact(key, word.to_owned());
        }
    }
    span.fact("sluice.audit_id", event.id.to_string());
    span.fact("http.response.status_code", i64::from(event.code));
    span.fact("http.response.body.size", number(event.sent));
    if facts.attempts > 0 {
        span.fact("sluice.attempts", i64::from(facts.attempts));
    }
    let mut name = "request".to_owned();
    if let Some(info) = &event.info {
        name = format!("{} {}", info.verb_name(), what(info));
        span.fact("k8s.verb", info.verb_name().to_owned());
        if !info.namespace().is_empty() {
            span.fact("k8s.namespace.name", info.namespace().to_owned());
        }
    }
    part(span, BODY, began + event.head_took, now);
    let fault = if event.broken {
        Some("the answer broke off")
    } else {
        (event.code >= 500).then_some("the answer is an error")
    };
    span.end(name, fault, now);
}

/// The resource, or that it is none: paths have no end.
fn what(info: &crate::request::RequestInfo) -> String {
    match (info.resource(), info.subresource()) {
        ("", _) => "path".to_owned(),
        (resource, "") => resource.to_owned(),
        (resource, subresource) => format!("{resource}/{subresource}"),
    }
}
