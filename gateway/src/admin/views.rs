//! What is only shown, and what moves the process as a whole: reload and drain.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::AdminHandles;
use super::access::Caller;
use super::answer::{done, items, json, refusal, refuse};
use super::handles::AdminChange;

pub(super) async fn metrics(State(handles): State<AdminHandles>) -> Response {
    let media = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, media)], (handles.metrics)()).into_response()
}

pub(super) async fn flows(State(handles): State<AdminHandles>) -> Response {
    items(&(handles.flows)())
}

pub(super) async fn endpoints(State(handles): State<AdminHandles>) -> Response {
    items(&(handles.endpoints)())
}

pub(super) async fn profiles(State(handles): State<AdminHandles>) -> Response {
    items(&(handles.profiles)())
}

pub(super) async fn config(State(handles): State<AdminHandles>) -> Response {
    json(&handles.control.config())
}

pub(super) async fn reload(
    State(handles): State<AdminHandles>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    let control = Arc::clone(&handles.control);
    let reloaded = tokio::task::spawn_blocking(move || control.reload()).await;
    let reloaded = reloaded.unwrap_or_else(|fault| Err(format!("reload broke off: {fault}")));
    let outcome = reloaded.as_ref().map(|_| ()).map_err(String::clone);
    record(&handles, &caller, "reload", outcome);
    match reloaded {
        Ok(config) => json(&config),
        Err(fault) => {
            let code = StatusCode::UNPROCESSABLE_ENTITY;
            let message = format!("the configuration in force stays: {fault}");
            refusal(refuse(code, "Invalid", message), &headers)
        }
    }
}

pub(super) async fn drain(
    State(handles): State<AdminHandles>,
    Extension(caller): Extension<Caller>,
) -> Response {
    record(&handles, &caller, "drain", Ok(()));
    handles.control.drain();
    done(StatusCode::ACCEPTED, "draining")
}

fn record(
    handles: &AdminHandles,
    caller: &Caller,
    action: &'static str,
    outcome: Result<(), String>,
) {
    handles.audit.record(&AdminChange {
        who: Arc::clone(&caller.user),
        from: caller.address,
        action,
        target: String::new(),
        how: String::new(),
        reason: String::new(),
        outcome,
    });
}
