//! Plain HTTP on the client port: version, probes and metrics, with etcd's paths, bodies and codes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::any;

use super::alarms;
use super::metrics;
use super::probes::{self, Probe};
use super::proto::etcdserverpb::AlarmType;
use super::shared::{Shared, VERSION, VERSION_MINOR};

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NOT_SNIFFED: (HeaderName, HeaderValue) = (
    header::X_CONTENT_TYPE_OPTIONS,
    HeaderValue::from_static("nosniff"),
);

/// The plain paths.
pub(crate) fn routes(shared: Arc<Shared>) -> Router {
    let mut router = Router::new()
        .route("/version", any(version))
        .route("/health", any(health))
        .route("/metrics", any(page));
    for probe in [Probe::Live, Probe::Ready] {
        let all = move |State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery| async move {
            let excluded = values(query.as_deref(), "exclude");
            let checks = probe.checks().iter().copied();
            let checks = checks.filter(|check| !excluded.contains(check));
            checked(&shared, probe, checks, query.as_deref())
        };
        router = router.route(probe.path(), any(all));
        for check in probe.checks() {
            let one = move |State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery| async move {
                checked(&shared, probe, std::iter::once(*check), query.as_deref())
            };
            router = router.route(&format!("{}/{check}", probe.path()), any(one));
        }
    }
    router.route_layer(from_fn(only_get)).with_state(shared)
}

async fn only_get(request: Request, next: Next) -> Response {
    if request.method() == Method::GET {
        return next.run(request).await;
    }
    let mut refusal = failure(
        StatusCode::METHOD_NOT_ALLOWED,
        "Method Not Allowed".to_owned(),
    );
    refusal
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("GET"));
    refusal
}

async fn version() -> Response {
    let body = format!(
        r#"{{"etcdserver":"{VERSION}","etcdcluster":"{VERSION_MINOR}","storage":"{VERSION_MINOR}"}}"#
    );
    ([(header::CONTENT_TYPE, JSON)], body).into_response()
}

async fn health(State(shared): State<Arc<Shared>>, RawQuery(query): RawQuery) -> Response {
    let query = query.as_deref();
    let excluded = values(query, "exclude");
    let is_local = values(query, "serializable") == ["true"];
    let Some(reason) = ill(&shared, &excluded, is_local) else {
        shared.counters.healthy.add(1);
        let body = r#"{"health":"true","reason":""}"#;
        return ([(header::CONTENT_TYPE, PLAIN)], body).into_response();
    };
    shared.counters.unhealthy.add(1);
    // Quotes and backslashes are all that these texts could hold that JSON minds.
    let reason = reason.replace('\\', "\\\\").replace('"', "\\\"");
    let body = format!(r#"{{"health":"false","reason":"{reason}"}}"#);
    failure(StatusCode::SERVICE_UNAVAILABLE, body)
}

/// Why it is not healthy: alarms first, as etcd looks.
fn ill(shared: &Shared, excluded: &[&str], is_local: bool) -> Option<String> {
    for alarm in alarms::list(shared) {
        let name = alarms::name(&alarm);
        if !excluded.contains(&name) {
            let is_known = alarm.alarm() != AlarmType::None;
            return Some(format!("ALARM {}", if is_known { name } else { "UNKNOWN" }));
        }
    }
    if is_local {
        return probes::local_read(shared).err();
    }
    probes::read(shared).err()
}

/// Runs checks and words them as etcd does: the reasons when one fails or all are asked for.
fn checked(
    shared: &Shared,
    probe: Probe,
    checks: impl Iterator<Item = &'static str>,
    query: Option<&str>,
) -> Response {
    let mut lines = String::new();
    let mut is_well = true;
    for check in checks {
        match probes::check(shared, probe, check) {
            Ok(()) => lines += &format!("[+]{check} ok\n"),
            Err(reason) => {
                is_well = false;
                lines += &format!("[-]{check} failed: {reason}\n");
            }
        }
    }
    if !is_well {
        return failure(StatusCode::SERVICE_UNAVAILABLE, lines);
    }
    if values(query, "verbose").is_empty() {
        lines.clear();
    }
    lines += "ok\n";
    ([(header::CONTENT_TYPE, PLAIN), NOT_SNIFFED], lines).into_response()
}

async fn page(State(shared): State<Arc<Shared>>) -> Response {
    // Some numbers are read from the system's files.
    let written = tokio::task::spawn_blocking(move || metrics::page(&shared)).await;
    match written {
        Ok(body) => ([(header::CONTENT_TYPE, METRICS)], body).into_response(),
        Err(lost) => failure(StatusCode::INTERNAL_SERVER_ERROR, lost.to_string()),
    }
}

/// A refusal as Go's own server words it: with a line end.
fn failure(code: StatusCode, body: String) -> Response {
    let headers = [(header::CONTENT_TYPE, PLAIN), NOT_SNIFFED];
    (code, headers, body + "\n").into_response()
}

/// What a query says under a name, an empty text for a name alone. Names and values here are plain
/// words, so nothing is decoded.
fn values<'a>(query: Option<&'a str>, name: &str) -> Vec<&'a str> {
    let pairs = query.unwrap_or_default().split('&');
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let named = pairs.filter(|(said, _)| *said == name);
    named.map(|(_, value)| value).collect()
}
