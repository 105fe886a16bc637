//! Bodies in and out: JSON, and Kubernetes `Status` for errors and for changes that were made.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::status::{Refusal, Stage};

/// Requests hold a name, a reason and a duration.
const BODY_MAX: usize = 64 * 1024;

/// The longest duration that is no typing error.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

pub(super) fn refuse(
    code: StatusCode,
    reason: &'static str,
    message: impl Into<String>,
) -> Refusal {
    Refusal::new(Stage::Admin, code, reason, message)
}

pub(super) fn bad_request(message: impl Into<String>) -> Refusal {
    Refusal::bad_request(Stage::Admin, message)
}

pub(super) fn refusal(refusal: Refusal, headers: &HeaderMap) -> Response {
    refusal.into_response(headers).map(Body::new)
}

pub(super) fn json(value: &impl Serialize) -> Response {
    // Our own values have text keys and finite numbers; a handle's might not.
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(fault) => {
            let code = StatusCode::INTERNAL_SERVER_ERROR;
            let failed = refuse(code, "InternalError", format!("cannot show it: {fault}"));
            refusal(failed, &HeaderMap::new())
        }
    }
}

pub(super) fn items(items: &impl Serialize) -> Response {
    json(&serde_json::json!({ "items": items }))
}

/// A `Status` that says what was done.
pub(super) fn done(code: StatusCode, message: &str) -> Response {
    let status = serde_json::json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "message": message,
        "code": code.as_u16(),
    });
    (code, json(&status)).into_response()
}

/// Reads a request's body; a field that is not known is an error that names it.
pub(super) async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    let bytes = to_bytes(body, BODY_MAX).await.map_err(|_| {
        let message = format!("request body breaks off, or is longer than {BODY_MAX} bytes");
        bad_request(message)
    })?;
    serde_json::from_slice(&bytes).map_err(|fault| bad_request(format!("request body: {fault}")))
}

/// Reads a duration such as `90s`, `10m` or `1h30m`.
pub(super) fn duration(field: &str, text: &str) -> Result<Duration, Refusal> {
    let parsed = text.parse::<jiff::SignedDuration>().ok();
    let parsed = parsed.and_then(|it| Duration::try_from(it).ok());
    parsed.filter(|it| *it <= DURATION_MAX).ok_or_else(|| {
        bad_request(format!(
            "{field}: \"{text}\" is no duration up to a year; write 90s, 10m or 1h30m"
        ))
    })
}

pub(super) async fn no_such_path(request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("the admin API has no {path}");
    let not_found = refuse(StatusCode::NOT_FOUND, "NotFound", message);
    refusal(not_found, request.headers())
}

pub(super) async fn no_such_method(request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let message = format!("{path} does not take {method}");
    let code = StatusCode::METHOD_NOT_ALLOWED;
    refusal(refuse(code, "MethodNotAllowed", message), request.headers())
}
