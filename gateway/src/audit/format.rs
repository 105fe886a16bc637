//! Events as lines of `audit.k8s.io/v1` JSON, written straight into a buffer: at thousands of
//! requests a second a tree of values a line would cost more than forwarding them.
//!
//! The URI is written as it came: secrets do not belong in URIs, and Kubernetes puts none there.
//! Header values other than the user agent are never written.

use std::io::Write as _;
use std::time::Duration;

use super::event::{AdminChange, Event, EventStage};
use crate::identity::UserInfo;
use crate::request::RequestInfo;

/// Appends an event as one line.
pub(super) fn line(out: &mut Vec<u8>, event: &Event) {
    let mut object = Object::begin(out);
    head(&mut object, event.stage);
    object.shown("auditID", event.id);
    match (&event.info, event.raw.as_deref()) {
        (Some(info), _) => {
            object.text("requestURI", info.uri().as_str());
            object.text("verb", info.verb_name());
            if info.is_resource() {
                object.field("objectRef", |out| object_ref(out, info));
            }
        }
        (None, Some((method, uri))) => {
            object.text("requestURI", uri);
            object.text("verb", &method.to_lowercase());
        }
        (None, None) => {}
    }
    // With `--as`, `user` is who really made it, as in a kube-apiserver's audit.
    match (&event.user, &event.impersonator) {
        (Some(user), None) => object.field("user", |out| user_json(out, user)),
        (Some(target), Some(real)) => {
            object.field("user", |out| user_json(out, real));
            object.field("impersonatedUser", |out| user_json(out, target));
        }
        (None, _) => object.raw("user", b"{}"),
    }
    object.shown_list("sourceIPs", event.source.ip());
    if let Some(agent) = event.user_agent.as_ref().and_then(|v| v.to_str().ok()) {
        object.text("userAgent", agent);
    }
    object.field("responseStatus", |out| status(out, event.code));
    object.shown("requestReceivedTimestamp", Timestamp(event.received));
    object.shown("stageTimestamp", Timestamp(event.received + event.took));
    object.field("annotations", |out| annotations(out, event));
    object.end();
    out.push(b'\n');
}

/// Appends a change by an operator as one line.
pub(super) fn admin_line(out: &mut Vec<u8>, change: &AdminChange) {
    let mut object = Object::begin(out);
    head(&mut object, EventStage::Complete);
    object.shown("auditID", uuid::Uuid::new_v4());
    object.text("requestURI", &change.path);
    object.text("verb", &change.verb);
    object.field("user", |out| {
        let mut user = Object::begin(out);
        user.text("username", &change.user);
        user.texts("groups", &change.groups);
        user.end();
    });
    match change.source {
        Some(source) => object.shown_list("sourceIPs", source.ip()),
        None => object.raw("sourceIPs", b"[]"),
    }
    object.field("responseStatus", |out| status(out, change.code));
    object.shown("requestReceivedTimestamp", Timestamp(change.at));
    object.shown("stageTimestamp", Timestamp(change.at));
    object.field("annotations", |out| {
        let mut annotations = Object::begin(out);
        annotations.text("sluice.io/admin-target", &change.target);
        annotations.text("sluice.io/admin-reason", &change.reason);
        annotations.end();
    });
    object.end();
    out.push(b'\n');
}

/// What every line begins with.
fn head(object: &mut Object<'_>, stage: EventStage) {
    object.raw("kind", b"\"Event\"");
    object.raw("apiVersion", b"\"audit.k8s.io/v1\"");
    object.raw("level", b"\"Metadata\"");
    object.raw(
        "stage",
        match stage {
            EventStage::Started => &b"\"ResponseStarted\""[..],
            EventStage::Complete => b"\"ResponseComplete\"",
        },
    );
}

fn object_ref(out: &mut Vec<u8>, info: &RequestInfo) {
    let mut object = Object::begin(out);
    for (field, text) in [
        ("resource", info.resource()),
        ("namespace", info.namespace()),
        ("name", info.name()),
        ("apiGroup", info.group()),
        ("apiVersion", info.version()),
        ("subresource", info.subresource()),
    ] {
        if !text.is_empty() {
            object.text(field, text);
        }
    }
    object.end();
}

fn user_json(out: &mut Vec<u8>, user: &UserInfo) {
    let mut object = Object::begin(out);
    object.text("username", &user.name);
    if !user.uid.is_empty() {
        object.text("uid", &user.uid);
    }
    object.texts("groups", &user.groups);
    if !user.extra.is_empty() {
        object.field("extra", |out| {
            let mut extra = Object::begin(out);
            for (key, values) in &user.extra {
                extra.texts(key, values);
            }
            extra.end();
        });
    }
    object.end();
}

fn status(out: &mut Vec<u8>, code: u16) {
    let mut object = Object::begin(out);
    object.raw("metadata", b"{}");
    object.number("code", u64::from(code));
    object.end();
}

fn annotations(out: &mut Vec<u8>, event: &Event) {
    let facts = &event.facts;
    let mut object = Object::begin(out);
    for (name, text) in [
        ("sluice.io/cluster", facts.cluster.as_deref()),
        ("sluice.io/endpoint", facts.endpoint.as_deref()),
        ("sluice.io/rule", facts.rule.as_deref()),
        ("sluice.io/refused-by", facts.refused_by),
    ] {
        if let Some(text) = text {
            object.text(name, text);
        }
    }
    if facts.attempts > 1 {
        object.shown("sluice.io/attempts", facts.attempts);
    }
    if !facts.would_refuse.is_empty() {
        object.text("sluice.io/would-refuse", &facts.would_refuse.join(","));
    }
    if event.broken {
        object.raw("sluice.io/broken-off", b"\"true\"");
    }
    object.shown("sluice.io/response-bytes", event.sent);
    if event.taken > 0 {
        object.shown("sluice.io/tunnel-bytes-taken", event.taken);
    }
    object.shown("sluice.io/latency-seconds", Seconds(event.head_took));
    object.end();
}

/// A JSON object being written; every field name here is plain ASCII or escaped as a text.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Object {
            out,
            is_first: true,
        }
    }

    fn end(self) {
        self.out.push(b'}');
    }

    fn name(&mut self, name: &str) {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(b',');
        }
        write_text(self.out, name);
        self.out.push(b':');
    }

    fn raw(&mut self, name: &str, json: &[u8]) {
        self.name(name);
        self.out.extend_from_slice(json);
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        write_text(self.out, text);
    }

    fn texts(&mut self, name: &str, texts: &[String]) {
        self.name(name);
        self.out.push(b'[');
        for (n, text) in texts.iter().enumerate() {
            if n > 0 {
                self.out.push(b',');
            }
            write_text(self.out, text);
        }
        self.out.push(b']');
    }

    fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        show(self.out, number);
    }

    /// A text of what is shown, which must hold nothing that JSON escapes.
    fn shown(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        self.out.push(b'"');
        show(self.out, value);
        self.out.push(b'"');
    }

    fn shown_list(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        self.out.extend_from_slice(b"[\"");
        show(self.out, value);
        self.out.extend_from_slice(b"\"]");
    }

    fn field(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.name(name);
        write(self.out);
    }
}

fn show(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("a buffer in memory takes everything");
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a text is JSON, and a buffer takes everything");
}

/// RFC 3339 with microseconds, as `metav1.MicroTime`.
struct Timestamp(Duration);

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{time:.6}")
    }
}

/// Seconds with microseconds.
struct Seconds(Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.6}", self.0.as_secs_f64())
    }
}
