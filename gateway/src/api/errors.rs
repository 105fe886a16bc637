//! Refusals of the Kubernetes API, with the reasons and details that its clients look into.
//!
//! Each is a [`Refusal`] of [`Stage::Api`]; `crate::status` alone makes HTTP of it.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use sluice_metastore as metastore;

use super::resource::ResourceKind;
use crate::status::{Refusal, Stage};

/// One field that is wrong, as `details.causes` carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, ...
    pub reason: &'static str,
    /// For a person.
    pub message: String,
    /// The field's path, `metadata.name`.
    pub field: String,
}

impl Cause {
    /// A field whose value will not do.
    #[must_use]
    pub fn invalid(field: &str, value: &str, why: &str) -> Self {
        Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {}: {why}", Value::from(value)),
            field: field.to_owned(),
        }
    }

    /// A field that must be there.
    #[must_use]
    pub fn required(field: &str, why: &str) -> Self {
        Cause {
            reason: "FieldValueRequired",
            message: format!("Required value: {why}"),
            field: field.to_owned(),
        }
    }

    /// A field that must not be there.
    #[must_use]
    pub fn forbidden(field: &str, why: &str) -> Self {
        Cause {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {why}"),
            field: field.to_owned(),
        }
    }

    fn to_json(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

fn of(code: StatusCode, reason: &'static str, message: String) -> Refusal {
    Refusal::new(Stage::Api, code, reason, message)
}

fn details(kind: &ResourceKind, name: &str) -> Value {
    let mut details = json!({"kind": kind.plural});
    if let Some(map) = details.as_object_mut() {
        if !kind.group.is_empty() {
            map.insert("group".into(), kind.group.as_str().into());
        }
        if !name.is_empty() {
            map.insert("name".into(), name.into());
        }
    }
    details
}

fn about(mut refusal: Refusal, kind: &ResourceKind, name: &str) -> Refusal {
    refusal.details = Some(details(kind, name));
    refusal
}

/// 404 of an object.
#[must_use]
pub fn not_found(kind: &ResourceKind, name: &str) -> Refusal {
    let message = format!("{} {} not found", kind.qualified(), quoted(name));
    about(of(StatusCode::NOT_FOUND, "NotFound", message), kind, name)
}

/// 404 of a path that nothing serves.
#[must_use]
pub fn no_such_path() -> Refusal {
    let message = "the server could not find the requested resource".to_owned();
    of(StatusCode::NOT_FOUND, "NotFound", message)
}

/// 409: the name is taken.
#[must_use]
pub fn already_exists(kind: &ResourceKind, name: &str) -> Refusal {
    let message = format!("{} {} already exists", kind.qualified(), quoted(name));
    about(
        of(StatusCode::CONFLICT, "AlreadyExists", message),
        kind,
        name,
    )
}

/// 409: a precondition did not hold.
#[must_use]
pub fn conflict(kind: &ResourceKind, name: &str, why: &str) -> Refusal {
    let message = format!(
        "Operation cannot be fulfilled on {} {}: {why}",
        kind.qualified(),
        quoted(name)
    );
    about(of(StatusCode::CONFLICT, "Conflict", message), kind, name)
}

/// 409 of an update whose `resourceVersion` is not the present one.
#[must_use]
pub fn modified(kind: &ResourceKind, name: &str) -> Refusal {
    let why = "the object has been modified; please apply your changes to the latest version and try again";
    conflict(kind, name, why)
}

/// 403 of this API's own rules, as against those of an authorizer.
#[must_use]
pub fn forbidden(kind: &ResourceKind, name: &str, why: &str) -> Refusal {
    let message = format!("{} {} is forbidden: {why}", kind.qualified(), quoted(name));
    about(of(StatusCode::FORBIDDEN, "Forbidden", message), kind, name)
}

/// 422: fields are wrong.
#[must_use]
pub fn invalid(kind: &ResourceKind, name: &str, causes: &[Cause]) -> Refusal {
    invalid_as(&kind.group, &kind.kind, name, causes)
}

/// 422 of something that is no object of a served kind, such as `ListOptions`.
#[must_use]
pub fn invalid_as(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Refusal {
    let shown: Vec<String> = causes
        .iter()
        .map(|c| format!("{}: {}", c.field, c.message))
        .collect();
    let list = match shown.as_slice() {
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    let dotted = if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    };
    let message = format!("{dotted} {} is invalid: {list}", quoted(name));
    let mut refusal = of(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
    let causes: Vec<Value> = causes.iter().map(Cause::to_json).collect();
    refusal.details = Some(json!({"name": name, "group": group, "kind": kind, "causes": causes}));
    refusal
}

/// 400: it cannot be read.
#[must_use]
pub fn bad_request(message: impl Into<String>) -> Refusal {
    Refusal::bad_request(Stage::Api, message)
}

/// 405: this is not done to such things.
#[must_use]
pub fn method_not_allowed(kind: &ResourceKind, verb: &str) -> Refusal {
    let message = format!(
        "{verb} is not supported on resources of kind \"{}\"",
        kind.plural
    );
    let refusal = of(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
    about(refusal, kind, "")
}

/// 406: no encoding the client accepts can be made.
#[must_use]
pub fn not_acceptable(types: &str) -> Refusal {
    let message = format!("only the following media types are accepted: {types}");
    of(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

/// 413: a body or patch beyond its bound.
#[must_use]
pub fn too_large(limit: usize) -> Refusal {
    let message = format!("Request entity too large: limit is {limit}");
    of(
        StatusCode::PAYLOAD_TOO_LARGE,
        "RequestEntityTooLarge",
        message,
    )
}

/// 408: a body that does not come.
#[must_use]
pub fn too_slow(limit: Duration) -> Refusal {
    let message = format!("the request's content was not there within {limit:?}");
    of(StatusCode::REQUEST_TIMEOUT, "Timeout", message)
}

/// 415: a body of a type that is not read here.
#[must_use]
pub fn unsupported_media_type(message: impl Into<String>) -> Refusal {
    let code = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    of(code, "UnsupportedMediaType", message.into())
}

/// 410: that history is gone.
#[must_use]
pub fn expired(message: impl Into<String>) -> Refusal {
    of(StatusCode::GONE, "Expired", message.into())
}

/// 504: a version was asked for that the store has not reached (kubernetes-semantics 3.3).
#[must_use]
pub fn too_new(asked: u64, have: u64) -> Refusal {
    let message = format!("Timeout: Too large resource version: {asked}, current: {have}");
    let mut refusal = of(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
    refusal.retry_after = Some(1);
    refusal.details = Some(json!({"causes": [{
        "reason": "ResourceVersionTooLarge",
        "message": "Too large resource version",
    }]}));
    refusal
}

/// 500 that a client may try again: it lost a race too often.
#[must_use]
pub fn try_again(message: impl Into<String>) -> Refusal {
    let code = StatusCode::INTERNAL_SERVER_ERROR;
    let mut refusal = of(code, "ServerTimeout", message.into());
    refusal.retry_after = Some(2);
    refusal
}

/// 500: a broken promise of ours.
#[must_use]
pub fn internal(message: impl Into<String>) -> Refusal {
    let code = StatusCode::INTERNAL_SERVER_ERROR;
    of(code, "InternalError", message.into())
}

/// What a client is told of the store's refusals. A write whose fate is unknown carries no
/// `Retry-After`: clients would repeat it by themselves.
#[must_use]
pub fn from_store(error: &metastore::Error) -> Refusal {
    use metastore::Error as E;
    match error {
        E::Compacted { requested, .. } => expired(format!(
            "The resourceVersion for the provided list is too old. asked={requested}"
        )),
        E::Future { requested, current } => too_new(requested.get(), current.get()),
        E::TooLarge { limit, .. } => too_large(*limit),
        E::NoSpace => {
            let code = StatusCode::INSUFFICIENT_STORAGE;
            of(code, "InternalError", error.to_string())
        }
        E::Overloaded => {
            let code = StatusCode::TOO_MANY_REQUESTS;
            let mut refusal = of(code, "TooManyRequests", error.to_string());
            refusal.retry_after = Some(1);
            refusal
        }
        E::Uncertain { .. } => of(StatusCode::GATEWAY_TIMEOUT, "Timeout", error.to_string()),
        E::Stopped { .. } | E::Io { .. } => {
            let code = StatusCode::SERVICE_UNAVAILABLE;
            of(code, "ServiceUnavailable", error.to_string())
        }
        _ => internal(error.to_string()),
    }
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}
