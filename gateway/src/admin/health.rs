//! `/livez` and `/readyz`, in the form of kube-apiserver's: `ok`, or with `?verbose` a line a
//! check; `?exclude=` leaves checks out, and `/readyz/<check>` asks one.
//!
//! Checks answer from what is known already and never wait. Reasons are shown only to callers of
//! the admin API; anybody else learns which check failed.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use parking_lot::RwLock;

use super::AdminHandles;
use super::access::Caller;

/// Which question a check answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Only whether requests should be sent here.
    Ready,
    /// Whether the process can go on at all; being ready needs that too.
    LiveAndReady,
}

type CheckFn = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

struct Check {
    name: &'static str,
    probe: Probe,
    run: CheckFn,
}

/// The registered checks, in order. Bounded by the parts of the process.
#[derive(Default)]
pub struct HealthChecks(RwLock<Vec<Check>>);

impl HealthChecks {
    /// Without checks: alive and ready.
    #[must_use]
    pub fn new() -> Self {
        HealthChecks::default()
    }

    /// Adds a check. It must not wait, and its reason must hold no secret.
    pub fn register(
        &self,
        name: &'static str,
        probe: Probe,
        run: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let run = Box::new(run);
        self.0.write().push(Check { name, probe, run });
    }

    /// The names of failing checks with their reasons, for logs.
    #[must_use]
    pub fn failures(&self) -> Vec<(&'static str, String)> {
        let checks = self.0.read();
        let fail = |it: &Check| (it.run)().err().map(|reason| (it.name, reason));
        checks.iter().filter_map(fail).collect()
    }
}

/// `/livez` or `/readyz`.
#[derive(Clone, Copy)]
enum Question {
    Live,
    Ready,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Question::Live => "livez",
            Question::Ready => "readyz",
        }
    }

    fn asks(self, probe: Probe) -> bool {
        match self {
            Question::Live => probe == Probe::LiveAndReady,
            Question::Ready => true,
        }
    }
}

pub(super) async fn live(
    State(handles): State<AdminHandles>,
    RawQuery(query): RawQuery,
    caller: Option<Extension<Caller>>,
) -> Response {
    all(
        &handles.health,
        Question::Live,
        query.as_deref(),
        caller.is_some(),
    )
}

pub(super) async fn ready(
    State(handles): State<AdminHandles>,
    RawQuery(query): RawQuery,
    caller: Option<Extension<Caller>>,
) -> Response {
    all(
        &handles.health,
        Question::Ready,
        query.as_deref(),
        caller.is_some(),
    )
}

pub(super) async fn live_one(
    State(handles): State<AdminHandles>,
    Path(check): Path<String>,
    caller: Option<Extension<Caller>>,
) -> Response {
    one(&handles.health, Question::Live, &check, caller.is_some())
}

pub(super) async fn ready_one(
    State(handles): State<AdminHandles>,
    Path(check): Path<String>,
    caller: Option<Extension<Caller>>,
) -> Response {
    one(&handles.health, Question::Ready, &check, caller.is_some())
}

fn all(
    health: &HealthChecks,
    question: Question,
    query: Option<&str>,
    shows_reasons: bool,
) -> Response {
    let pairs = || query.unwrap_or_default().split('&');
    let is_verbose = pairs().any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    let is_excluded = |name| pairs().any(|pair| pair.strip_prefix("exclude=") == Some(name));
    let mut lines = String::from("[+]ping ok\n");
    let mut is_ok = true;
    for check in health.0.read().iter() {
        if !question.asks(check.probe) {
            continue;
        }
        let name = check.name;
        // Writing into a String cannot fail.
        let _ = match (check.run)() {
            _ if is_excluded(name) => writeln!(lines, "[+]{name} excluded: ok"),
            Ok(()) => writeln!(lines, "[+]{name} ok"),
            Err(reason) => {
                is_ok = false;
                let reason = if shows_reasons {
                    &*reason
                } else {
                    "reason withheld"
                };
                writeln!(lines, "[-]{name} failed: {reason}")
            }
        };
    }
    let outcome = if is_ok { "passed" } else { "failed" };
    lines += &format!("{} check {outcome}\n", question.name());
    match (is_ok, is_verbose) {
        (true, false) => text(StatusCode::OK, "ok".to_owned()),
        (true, true) => text(StatusCode::OK, lines),
        (false, _) => text(StatusCode::INTERNAL_SERVER_ERROR, lines),
    }
}

fn one(health: &HealthChecks, question: Question, name: &str, shows_reasons: bool) -> Response {
    if name == "ping" {
        return text(StatusCode::OK, "ok".to_owned());
    }
    let checks = health.0.read();
    let found = checks
        .iter()
        .find(|it| it.name == name && question.asks(it.probe));
    match found.map(|check| (check.run)()) {
        None => text(StatusCode::NOT_FOUND, format!("no check named {name}\n")),
        Some(Ok(())) => text(StatusCode::OK, "ok".to_owned()),
        Some(Err(reason)) => {
            let reason = if shows_reasons {
                &*reason
            } else {
                "reason withheld"
            };
            let body = format!("internal server error: {reason}\n");
            text(StatusCode::INTERNAL_SERVER_ERROR, body)
        }
    }
}

fn text(code: StatusCode, body: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (code, headers, body).into_response()
}
