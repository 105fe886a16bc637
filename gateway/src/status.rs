//! Refusals of the gateway's own making, and the one place where they become HTTP.
//!
//! Each is a Kubernetes `Status`, in JSON or in protobuf as the client accepts, and is marked by
//! the [`ORIGIN_HEADER`], so that nobody takes it for an upstream's answer.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use serde_json::Value;

use crate::body::Body;

/// Marks an answer as made by the gateway; its value is the phase that made it.
pub const ORIGIN_HEADER: HeaderName = HeaderName::from_static("x-sluice-origin");

/// Which phase refused; a closed set, shared with metrics and audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reading what was asked.
    Request,
    /// Finding out who asks.
    Authn,
    /// Whether they may (the Kubernetes API of our own).
    Authz,
    /// A circuit breaker.
    Breaker,
    /// A limit.
    Limit,
    /// Choosing where to send it.
    Route,
    /// Sending it.
    Forward,
    /// The Kubernetes API of our own.
    Api,
    /// The admin API.
    Admin,
}

impl Stage {
    /// The stage's name, as in the header, metrics and audit.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Request => "request",
            Stage::Authn => "authn",
            Stage::Authz => "authz",
            Stage::Breaker => "breaker",
            Stage::Limit => "limit",
            Stage::Route => "route",
            Stage::Forward => "forward",
            Stage::Api => "api",
            Stage::Admin => "admin",
        }
    }
}

/// Why a request was not served, as the client is told it.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Who refused.
    pub stage: Stage,
    /// The HTTP code; never a success.
    pub code: StatusCode,
    /// Kubernetes' machine-readable word: `TooManyRequests`, `Unauthorized`, ...
    pub reason: &'static str,
    /// For a person; no secret in it.
    pub message: String,
    /// Whole seconds after which the client may try again.
    pub retry_after: Option<u32>,
    /// The rule, breaker or limit that refused.
    pub rule: Option<String>,
    /// `Status.details`, already JSON, where Kubernetes' clients look into it.
    pub details: Option<Value>,
    /// `Status.metadata`, already JSON; boxed, for only a list whose version is gone has one.
    pub metadata: Option<Box<Value>>,
}

impl Refusal {
    /// A refusal without extras.
    #[must_use]
    pub fn new(
        stage: Stage,
        code: StatusCode,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Refusal {
            stage,
            code,
            reason,
            message: message.into(),
            retry_after: None,
            rule: None,
            details: None,
            metadata: None,
        }
    }

    /// 400: the request cannot be read one way only.
    #[must_use]
    pub fn bad_request(stage: Stage, message: impl Into<String>) -> Self {
        Refusal::new(stage, StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 503 with a short wait: something behind the gateway is out.
    #[must_use]
    pub fn unavailable(stage: Stage, message: impl Into<String>) -> Self {
        let mut refusal = Refusal::new(
            stage,
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        );
        refusal.retry_after = Some(1);
        refusal
    }

    /// The answer, in the encoding that the request's headers accept.
    #[must_use]
    pub fn into_response(self, request_headers: &HeaderMap) -> Response<Body> {
        let protobuf = prefers_protobuf(request_headers);
        let (media, body) = if protobuf {
            (
                "application/vnd.kubernetes.protobuf",
                self.encode_protobuf(),
            )
        } else {
            ("application/json", self.encode_json())
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        headers.insert(ORIGIN_HEADER, HeaderValue::from_static(self.stage.as_str()));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn details_json(&self) -> Value {
        let mut details = self
            .details
            .clone()
            .unwrap_or_else(|| serde_json::json!({}));
        if let Some(object) = details.as_object_mut() {
            if let Some(seconds) = self.retry_after {
                object.insert("retryAfterSeconds".into(), seconds.into());
            }
            if let Some(rule) = &self.rule {
                let cause = serde_json::json!({"reason": "SluiceRule", "message": rule});
                object.insert("causes".into(), serde_json::json!([cause]));
            }
        }
        details
    }

    pub(crate) fn encode_json(&self) -> Bytes {
        let metadata = self.metadata.as_deref().cloned();
        let metadata = metadata.unwrap_or_else(|| serde_json::json!({}));
        let status = serde_json::json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details_json(),
            "code": self.code.as_u16(),
        });
        Bytes::from(status.to_string())
    }

    /// `runtime.Unknown` around `meta/v1.Status` (kubernetes-semantics 5.1): magic, then fields.
    fn encode_protobuf(&self) -> Bytes {
        let mut status = Vec::new();
        put_field(&mut status, 1, &metadata_protobuf(self.metadata.as_deref()));
        put_field(&mut status, 2, b"Failure");
        put_field(&mut status, 3, self.message.as_bytes());
        put_field(&mut status, 4, self.reason.as_bytes());
        put_field(&mut status, 5, &details_protobuf(&self.details_json()));
        put_number(&mut status, 6, u64::from(self.code.as_u16()));
        let mut type_meta = Vec::new();
        put_field(&mut type_meta, 1, b"v1");
        put_field(&mut type_meta, 2, b"Status");
        let mut out = b"k8s\0".to_vec();
        put_field(&mut out, 1, &type_meta);
        put_field(&mut out, 2, &status);
        put_field(&mut out, 3, b"");
        put_field(&mut out, 4, b"");
        Bytes::from(out)
    }
}

/// `meta/v1.ListMeta`.
fn metadata_protobuf(metadata: Option<&Value>) -> Vec<u8> {
    let mut out = Vec::new();
    let metadata = metadata.unwrap_or(&Value::Null);
    put_texts(
        &mut out,
        metadata,
        &[(2, "resourceVersion"), (3, "continue")],
    );
    if let Some(count) = metadata.get("remainingItemCount").and_then(Value::as_u64) {
        put_number(&mut out, 4, count);
    }
    out
}

/// `meta/v1.StatusDetails`: clients find in its causes what a code does not say.
fn details_protobuf(details: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_texts(&mut out, details, &[(1, "name"), (2, "group"), (3, "kind")]);
    for cause in details
        .get("causes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let mut told = Vec::new();
        put_texts(
            &mut told,
            cause,
            &[(1, "reason"), (2, "message"), (3, "field")],
        );
        put_field(&mut out, 4, &told);
    }
    if let Some(seconds) = details.get("retryAfterSeconds").and_then(Value::as_u64) {
        put_number(&mut out, 5, seconds);
    }
    put_texts(&mut out, details, &[(6, "uid")]);
    out
}

/// The text fields that `object` has, by their numbers.
fn put_texts(buf: &mut Vec<u8>, object: &Value, fields: &[(u8, &str)]) {
    for (number, field) in fields {
        if let Some(text) = object.get(field).and_then(Value::as_str) {
            put_field(buf, *number, text.as_bytes());
        }
    }
}

/// Whether the first media type the client names, that we can make, is protobuf.
fn prefers_protobuf(headers: &HeaderMap) -> bool {
    let Some(accept) = headers.get(ACCEPT).and_then(|v| v.to_str().ok()) else {
        return false;
    };
    for entry in accept.split(',') {
        let media = entry.split(';').next().unwrap_or_default().trim();
        match media {
            "application/vnd.kubernetes.protobuf" => return true,
            "application/json" | "*/*" | "application/*" => return false,
            _ => {}
        }
    }
    false
}

fn put_field(buf: &mut Vec<u8>, number: u8, content: &[u8]) {
    buf.push((number << 3) | 2);
    put_varint(buf, content.len() as u64);
    buf.extend_from_slice(content);
}

fn put_number(buf: &mut Vec<u8>, field: u8, number: u64) {
    buf.push(field << 3);
    put_varint(buf, number);
}

fn put_varint(buf: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            buf.push(low);
            return;
        }
        buf.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_acceptable_media_type_decides() {
        let mut headers = HeaderMap::new();
        assert!(!prefers_protobuf(&headers));
        let accept = "application/vnd.kubernetes.protobuf;as=x, application/json";
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        assert!(prefers_protobuf(&headers));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*"));
        assert!(!prefers_protobuf(&headers));
    }

    #[test]
    fn refusal_names_its_rule_and_wait() {
        let mut refusal = Refusal::new(
            Stage::Limit,
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            "slow",
        );
        refusal.retry_after = Some(3);
        refusal.rule = Some("noisy".into());
        let json: Value = serde_json::from_slice(&refusal.encode_json()).unwrap();
        assert_eq!(json["details"]["retryAfterSeconds"], 3);
        assert_eq!(json["details"]["causes"][0]["message"], "noisy");
        let response = refusal.into_response(&HeaderMap::new());
        assert_eq!(response.headers()[RETRY_AFTER], "3");
        assert_eq!(response.headers()[ORIGIN_HEADER], "limit");
    }

    /// Both encodings of refusals, with everything that one can say.
    fn samples() -> Vec<(&'static str, Refusal)> {
        let slow = "too many requests: rule a/noisy admits one each 1s, 1 in a burst";
        let code = StatusCode::TOO_MANY_REQUESTS;
        let mut limit = Refusal::new(Stage::Limit, code, "TooManyRequests", slow);
        limit.retry_after = Some(300);
        limit.rule = Some("a/noisy".into());
        let code = StatusCode::GONE;
        let mut expired = Refusal::new(Stage::Api, code, "Expired", "too old");
        let metadata = serde_json::json!({"continue": "t", "remainingItemCount": 1234});
        expired.metadata = Some(Box::new(metadata));
        let details = serde_json::json!({
            "name": "n", "group": "apps", "kind": "deployments", "uid": "7",
            "causes": [
                {"reason": "FieldValueInvalid", "message": "no \u{e9}", "field": "spec.replicas"},
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"},
            ],
        });
        let code = StatusCode::UNPROCESSABLE_ENTITY;
        let mut invalid = Refusal::new(Stage::Api, code, "Invalid", "it is \u{201c}bad\u{201d}");
        invalid.details = Some(details);
        let unknown = Refusal::new(
            Stage::Authn,
            StatusCode::UNAUTHORIZED,
            "Unauthorized",
            "who?",
        );
        vec![
            ("expired", expired),
            ("invalid", invalid),
            ("limit", limit),
            ("unauthorized", unknown),
        ]
    }

    /// The fixtures are read by Kubernetes' own decoder in the suite `protobuf`.
    #[test]
    fn protobuf_says_all_that_json_says() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/status");
        for (name, refusal) in samples() {
            let fixture = |kind| std::fs::read(format!("{folder}/{name}.{kind}")).unwrap();
            let json: Value = serde_json::from_slice(&refusal.encode_json()).unwrap();
            let expected: Value = serde_json::from_slice(&fixture("json")).unwrap();
            assert_eq!(json, expected, "{name}");
            assert_eq!(refusal.encode_protobuf(), fixture("pb"), "{name}");
        }
    }
}
