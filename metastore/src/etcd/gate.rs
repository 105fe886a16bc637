//! What stands between a connection and the calls on it: the right of whoever is at the other end,
//! and the count of what was asked.
//!
//! Everything about the client is settled when it connects; a call costs a look at a table, a few
//! counters, and no lock that another connection could hold.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use tonic::{Code, Status};

use super::access::Right;
use super::calls::Requests;
use super::errors;
use super::methods::{self, Method, Shape};
use super::shared::Shared;

/// What a client's library says of itself.
const CLIENT_VERSION: &str = "client-api-version";
/// Set to `true` by clients that would rather be refused than answered by a member without leader.
const REQUIRE_LEADER: &str = "hasleader";
const GRPC_STATUS: &str = "grpc-status";

/// Who is at the other end.
pub(crate) struct Visit {
    shared: Arc<Shared>,
    right: Right,
    /// The version it last said, and where that is counted.
    version: Mutex<Option<(HeaderValue, Arc<Requests>)>>,
}

/// What to do with a request.
pub(crate) enum Entry {
    /// It is no call: nothing is counted, and only plain paths answer.
    Plain,
    /// To be answered, and its end to be told.
    Call(Counted),
    Refused(Status),
}

impl Visit {
    pub(crate) fn new(shared: Arc<Shared>, right: Right) -> Self {
        Visit {
            shared,
            right,
            version: Mutex::default(),
        }
    }

    /// Lets a request in and counts it, or says why not: `PermissionDenied` by the right of the
    /// certificate, `Unavailable` where a leader is required and the store takes no more writes.
    pub(crate) fn enter(&self, parts: &mut Parts) -> Entry {
        let Some((place, method)) = methods::of(parts.uri.path()) else {
            if is_grpc(&parts.headers) {
                return Entry::Refused(unknown(parts.uri.path()));
            }
            return Entry::Plain;
        };
        self.shared.calls.started(place);
        let mut counted = Counted {
            shared: Arc::clone(&self.shared),
            place,
            is_over: false,
        };
        match self.admit(method, parts) {
            Ok(()) => Entry::Call(counted),
            Err(refusal) => {
                counted.ended(refusal.code());
                Entry::Refused(refusal)
            }
        }
    }

    fn admit(&self, method: &Method, parts: &mut Parts) -> Result<(), Status> {
        self.count(method, &parts.headers)?;
        if self.shared.store.has_failed() {
            let required = parts.headers.get(REQUIRE_LEADER);
            if required.is_some_and(|value| value == "true") {
                return Err(errors::no_leader());
            }
        }
        self.right.admit(method.effect, &mut parts.extensions)?;
        if self.shared.alarms.is_corrupt() && method.is_write_of_data() {
            return Err(errors::corrupt());
        }
        Ok(())
    }

    fn count(&self, method: &Method, headers: &HeaderMap) -> Result<(), Status> {
        let said = headers.get(CLIENT_VERSION);
        let mut last = self.version.lock();
        let requests = match (&*last, said) {
            (Some((version, requests)), Some(said)) if version == said => requests,
            _ => {
                let said = said.cloned();
                let said = said.unwrap_or(HeaderValue::from_static("unknown"));
                let Ok(name) = std::str::from_utf8(said.as_bytes()) else {
                    return Err(errors::invalid_client_version());
                };
                let requests = self.shared.calls.requests_of(name);
                &last.insert((said, requests)).1
            }
        };
        match method.shape {
            Shape::Unary => requests.unary.add(1),
            Shape::ServerStream | Shape::BidiStream => requests.stream.add(1),
        }
        Ok(())
    }
}

/// What is not served, in the words of Go's own library.
fn unknown(path: &str) -> Status {
    let path = path.trim_start_matches('/');
    let (service, call) = path.split_once('/').unwrap_or((path, ""));
    let is_known = methods::METHODS.iter().any(|one| one.names().0 == service);
    Status::unimplemented(if is_known {
        format!("unknown method {call} for service {service}")
    } else {
        format!("unknown service {service}")
    })
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The status that a head or what stands behind an answer tells, if it does.
pub(crate) fn code_of(headers: &HeaderMap) -> Option<Code> {
    let value = headers.get(GRPC_STATUS)?;
    Some(Code::from_bytes(value.as_bytes()))
}

/// A call whose end is to be counted. Dropped before that, its client went away.
pub(crate) struct Counted {
    shared: Arc<Shared>,
    place: usize,
    is_over: bool,
}

impl Counted {
    /// Counts how the call ended, the first time it is told.
    pub(crate) fn ended(&mut self, code: Code) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.shared.calls.ended(self.place, code);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.ended(Code::Cancelled);
    }
}
