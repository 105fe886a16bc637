//! Events as lines of `audit.k8s.io/v1` JSON, written straight into a buffer: at thousands of
//! requests a second a tree of values a line would cost more than forwarding them.
//!
//! The URI is written as it came: secrets do not belong in URIs, and Kubernetes puts none there.
//! Header values other than the user agent are never written.

use super::digits;
use super::event::{AdminChange, Event, EventStage};
use crate::identity::UserInfo;
use crate::request::RequestInfo;

/// Appends an event as one line.
pub(super) fn line(out: &mut Vec<u8>, event: &Event) {
    let mut object = Object::begin(out);
    head(&mut object, event.stage);
    object.quoted("auditID", |out| digits::uuid(out, event.id.0));
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
    object.address("sourceIPs", event.source.ip());
    if let Some(agent) = event.user_agent.as_ref().and_then(|v| v.to_str().ok()) {
        object.text("userAgent", agent);
    }
    object.field("responseStatus", |out| status(out, event.code));
    object.quoted("requestReceivedTimestamp", |out| {
        digits::time(out, event.received);
    });
    object.quoted("stageTimestamp", |out| {
        digits::time(out, event.received + event.took);
    });
    object.field("annotations", |out| annotations(out, event));
    object.end();
    out.push(b'\n');
}

/// Appends a change by an operator as one line.
pub(super) fn admin_line(out: &mut Vec<u8>, change: &AdminChange) {
    let mut object = Object::begin(out);
    head(&mut object, EventStage::Complete);
    object.quoted("auditID", |out| {
        digits::uuid(out, uuid::Uuid::new_v4().as_u128());
    });
    object.text("requestURI", &change.path);
    object.text("verb", &change.verb);
    object.field("user", |out| {
        let mut user = Object::begin(out);
        user.text("username", &change.user);
        user.texts("groups", &change.groups);
        user.end();
    });
    match change.source {
        Some(source) => object.address("sourceIPs", source.ip()),
        None => object.raw("sourceIPs", b"[]"),
    }
    object.field("responseStatus", |out| status(out, change.code));
    for name in ["requestReceivedTimestamp", "stageTimestamp"] {
        object.quoted(name, |out| digits::time(out, change.at));
    }
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
                extra.entry(key);
                texts(extra.out, values);
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
        object.quoted("sluice.io/attempts", |out| {
            digits::number(out, facts.attempts.into());
        });
    }
    if !facts.would_refuse.is_empty() {
        object.text("sluice.io/would-refuse", &facts.would_refuse.join(","));
    }
    if event.broken {
        object.raw("sluice.io/broken-off", b"\"true\"");
    }
    object.quoted("sluice.io/response-bytes", |out| {
        digits::number(out, event.sent);
    });
    if event.taken > 0 {
        object.quoted("sluice.io/tunnel-bytes-taken", |out| {
            digits::number(out, event.taken);
        });
    }
    object.quoted("sluice.io/latency-seconds", |out| {
        digits::seconds(out, event.head_took);
    });
    object.end();
}

/// A JSON object being written.
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

    /// A name of ours, in which there is nothing to escape.
    fn name(&mut self, name: &'static str) {
        let before: &[u8] = if std::mem::replace(&mut self.is_first, false) {
            b"\""
        } else {
            b",\""
        };
        self.out.extend_from_slice(before);
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// A name that somebody else has chosen.
    fn entry(&mut self, name: &str) {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(b',');
        }
        write_text(self.out, name);
        self.out.push(b':');
    }

    fn raw(&mut self, name: &'static str, json: &[u8]) {
        self.name(name);
        self.out.extend_from_slice(json);
    }

    fn text(&mut self, name: &'static str, text: &str) {
        self.name(name);
        write_text(self.out, text);
    }

    fn texts(&mut self, name: &'static str, list: &[String]) {
        self.name(name);
        texts(self.out, list);
    }

    fn number(&mut self, name: &'static str, number: u64) {
        self.name(name);
        digits::number(self.out, number);
    }

    /// A text in which there is nothing to escape.
    fn quoted(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        self.name(name);
        self.out.push(b'"');
        write(self.out);
        self.out.push(b'"');
    }

    /// A list of one address.
    fn address(&mut self, name: &'static str, address: std::net::IpAddr) {
        self.name(name);
        self.out.extend_from_slice(b"[\"");
        digits::address(self.out, address);
        self.out.extend_from_slice(b"\"]");
    }

    fn field(&mut self, name: &'static str, write: impl FnOnce(&mut Vec<u8>)) {
        self.name(name);
        write(self.out);
    }
}

fn texts(out: &mut Vec<u8>, texts: &[String]) {
    out.push(b'[');
    for (n, text) in texts.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write_text(out, text);
    }
    out.push(b']');
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    serde_json::to_writer(out, text).expect("a text is JSON, and a buffer takes everything");
}
