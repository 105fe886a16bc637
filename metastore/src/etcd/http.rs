//! Plain HTTP on the client port: version, probes and metrics, with etcd's paths, bodies and names.

use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::shared::{Shared, VERSION, VERSION_MINOR};

/// The plain paths.
pub(crate) fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/version", get(version))
        .route("/health", get(health))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shared)
}

async fn version() -> Response {
    let body = format!(
        r#"{{"etcdserver":"{VERSION}","etcdcluster":"{VERSION_MINOR}","storage":"{VERSION_MINOR}"}}"#
    );
    json(StatusCode::OK, body)
}

async fn health(State(shared): State<Arc<Shared>>) -> Response {
    match problem(&shared) {
        None => json(
            StatusCode::OK,
            r#"{"health":"true","reason":""}"#.to_owned(),
        ),
        Some(reason) => {
            // Quotes and backslashes are all that these texts could hold that JSON minds.
            let reason = reason.replace('\\', "\\\\").replace('"', "\\\"");
            let body = format!(r#"{{"health":"false","reason":"{reason}"}}"#);
            json(StatusCode::SERVICE_UNAVAILABLE, body)
        }
    }
}

/// Alive as long as it answers: a restart is no cure for a full disk.
async fn livez() -> Response {
    text(StatusCode::OK, "ok\n".to_owned())
}

async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    match problem(&shared) {
        None => text(StatusCode::OK, "ok\n".to_owned()),
        Some(reason) => text(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("[-]store: {reason}\n"),
        ),
    }
}

fn problem(shared: &Shared) -> Option<String> {
    if shared.stopping.is_cancelled() {
        return Some("draining".to_owned());
    }
    shared.store.failure()
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let size = shared.store.size();
    let counters = &shared.counters;
    let gauges = [
        ("etcd_server_has_leader", 1),
        ("etcd_server_is_leader", 1),
        (
            "etcd_server_health_success",
            i64::from(problem(&shared).is_none()),
        ),
        ("etcd_mvcc_db_total_size_in_bytes", signed(size.on_disk)),
        (
            "etcd_mvcc_db_total_size_in_use_in_bytes",
            signed(size.in_use),
        ),
        (
            "etcd_debugging_mvcc_current_revision",
            shared.store.revision().to_wire(),
        ),
        (
            "etcd_debugging_mvcc_compact_revision",
            shared.store.compacted().to_wire(),
        ),
        (
            "etcd_debugging_mvcc_watch_stream_total",
            counters.watch_streams.get(),
        ),
        ("etcd_debugging_mvcc_watcher_total", counters.watchers.get()),
        ("sluice_etcd_connections", counters.connections.get()),
    ];
    let counts = [
        ("etcd_mvcc_range_total", counters.ranges.get()),
        (
            "sluice_etcd_range_streams_total",
            counters.range_streams.get(),
        ),
        ("etcd_mvcc_put_total", counters.puts.get()),
        ("etcd_mvcc_delete_total", counters.deletes.get()),
        ("etcd_mvcc_txn_total", counters.txns.get()),
        ("etcd_debugging_mvcc_events_total", counters.events.get()),
        (
            "sluice_etcd_progress_pushed_total",
            counters.progress_pushed.get(),
        ),
    ];
    let mut page = String::with_capacity(2048);
    for (name, value) in gauges {
        append(&mut page, name, "gauge", &value);
    }
    for (name, value) in counts {
        append(&mut page, name, "counter", &value);
    }
    page.push_str("# TYPE etcd_server_version gauge\n");
    append_line(
        &mut page,
        &format!("etcd_server_version{{server_version=\"{VERSION}\"}}"),
        &1,
    );
    text(StatusCode::OK, page)
}

fn append(page: &mut String, name: &str, kind: &str, value: &dyn std::fmt::Display) {
    append_line(page, &format!("# TYPE {name}"), &kind);
    append_line(page, name, value);
}

fn append_line(page: &mut String, left: &str, right: &dyn std::fmt::Display) {
    writeln!(page, "{left} {right}").expect("a string takes any text");
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn json(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn text(status: StatusCode, body: String) -> Response {
    (
        status,
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        body,
    )
        .into_response()
}
