//! Breakers: list, trip, reset, ramp. Those of clusters, rules and clients are in the live state of
//! [`crate::flow`], those of endpoints behind a handle.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use sluice_ratelimit::{Percent, Ramp};

use super::AdminHandles;
use super::access::Caller;
use super::answer::{bad_request, done, duration, items, read, refusal, refuse};
use super::handles::{AdminChange, BreakerError, BreakerRow};
use crate::clock;
use crate::flow::{BreakerFault, Heartbeats, Scope, Trip};
use crate::status::Refusal;

/// Names listed when one is not known: enough to see the typing error.
const HINTS_MAX: usize = 10;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum ScopeWord {
    Cluster,
    Rule,
    Client,
    Endpoint,
}

impl ScopeWord {
    fn as_str(self) -> &'static str {
        match self {
            ScopeWord::Cluster => "cluster",
            ScopeWord::Rule => "rule",
            ScopeWord::Client => "client",
            ScopeWord::Endpoint => "endpoint",
        }
    }

    /// `None` for an endpoint, which is not moved here.
    fn flow(self) -> Option<Scope> {
        match self {
            ScopeWord::Cluster => Some(Scope::Cluster),
            ScopeWord::Rule => Some(Scope::Rule),
            ScopeWord::Client => Some(Scope::Client),
            ScopeWord::Endpoint => None,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HeartbeatsWord {
    #[default]
    Spare,
    Stop,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TripBody {
    scope: ScopeWord,
    name: String,
    reason: String,
    duration: Option<String>,
    #[serde(default)]
    heartbeats: HeartbeatsWord,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ResetBody {
    scope: ScopeWord,
    name: String,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RampBody {
    scope: ScopeWord,
    name: String,
    /// In per cent.
    from: u8,
    over: String,
    #[serde(default)]
    reason: String,
}

/// One move of one breaker, as it is written down.
struct Move {
    action: &'static str,
    scope: ScopeWord,
    name: String,
    how: String,
    reason: String,
}

pub(super) async fn list(State(handles): State<AdminHandles>) -> Response {
    let by_hand = handles.live.breakers().list(clock::now());
    let mut rows: Vec<BreakerRow> = by_hand.into_iter().map(BreakerRow::from).collect();
    rows.extend(handles.endpoint_breakers.list());
    items(&rows)
}

pub(super) async fn trip(
    State(handles): State<AdminHandles>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answered = async {
        let body: TripBody = read(body).await?;
        if body.reason.trim().is_empty() {
            return Err(bad_request("reason: say why; clients are told"));
        }
        let lasting = body
            .duration
            .as_deref()
            .map(|text| duration("duration", text))
            .transpose()?;
        if lasting.is_some_and(|it| it.is_zero()) {
            return Err(bad_request(
                "duration: is none; leave it out to trip until reset",
            ));
        }
        let how = body
            .duration
            .map_or("until reset".to_owned(), |text| format!("for {text}"));
        let step = Move {
            action: "breaker.trip",
            scope: body.scope,
            name: body.name,
            how,
            reason: body.reason,
        };
        let moved = check_name(&handles, step.scope, &step.name)
            .and_then(|()| trip_one(&handles, &caller, &step, lasting, body.heartbeats));
        finish(&handles, &caller, step, moved)
    };
    answered
        .await
        .unwrap_or_else(|it: Refusal| refusal(it, &headers))
}

fn trip_one(
    handles: &AdminHandles,
    caller: &Caller,
    step: &Move,
    lasting: Option<Duration>,
    heartbeats: HeartbeatsWord,
) -> Result<(), BreakerError> {
    let by = caller.user.name.clone();
    let Some(scope) = step.scope.flow() else {
        let breakers = &handles.endpoint_breakers;
        return breakers.trip(&step.name, &step.reason, lasting, &by);
    };
    let trip = Trip {
        reason: step.reason.clone(),
        lasting,
        by,
        heartbeats: match heartbeats {
            HeartbeatsWord::Spare => Heartbeats::Spare,
            HeartbeatsWord::Stop => Heartbeats::Stop,
        },
    };
    let breakers = handles.live.breakers();
    breakers
        .trip(scope, &step.name, trip, clock::now())
        .map_err(error)
}

pub(super) async fn reset(
    State(handles): State<AdminHandles>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answered = async {
        let body: ResetBody = read(body).await?;
        let step = Move {
            action: "breaker.reset",
            scope: body.scope,
            name: body.name,
            how: String::new(),
            reason: body.reason,
        };
        let moved = match step.scope.flow() {
            Some(scope) => handles
                .live
                .breakers()
                .reset(scope, &step.name)
                .map_err(error),
            None => handles.endpoint_breakers.reset(&step.name),
        };
        finish(&handles, &caller, step, moved)
    };
    answered
        .await
        .unwrap_or_else(|it: Refusal| refusal(it, &headers))
}

pub(super) async fn ramp(
    State(handles): State<AdminHandles>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let answered = async {
        let body: RampBody = read(body).await?;
        let from = Percent::new(body.from)
            .ok_or_else(|| bad_request("from: is a share in per cent, 0 to 100"))?;
        let over = duration("over", &body.over)?;
        let step = Move {
            action: "breaker.ramp",
            scope: body.scope,
            name: body.name,
            how: format!("from {}% over {}", body.from, body.over),
            reason: body.reason,
        };
        let moved = check_name(&handles, step.scope, &step.name)
            .and_then(|()| ramp_one(&handles, &caller, &step, Ramp { from, over }));
        finish(&handles, &caller, step, moved)
    };
    answered
        .await
        .unwrap_or_else(|it: Refusal| refusal(it, &headers))
}

fn ramp_one(
    handles: &AdminHandles,
    caller: &Caller,
    step: &Move,
    ramp: Ramp,
) -> Result<(), BreakerError> {
    let by = &caller.user.name;
    match step.scope.flow() {
        None => handles.endpoint_breakers.ramp(&step.name, ramp, by),
        Some(scope) => {
            let breakers = handles.live.breakers();
            breakers
                .ramp(scope, &step.name, ramp, by, clock::now())
                .map_err(error)
        }
    }
}

/// A typing error must not look like a breaker that was tripped. Clients and endpoints are not
/// known here: the former come and go, the latter's breakers check for themselves.
fn check_name(handles: &AdminHandles, scope: ScopeWord, name: &str) -> Result<(), BreakerError> {
    let mut known = match scope {
        ScopeWord::Cluster => handles.control.clusters(),
        ScopeWord::Rule => {
            let flows = (handles.flows)();
            flows
                .iter()
                .map(|flow| flow.counts.rule.to_string())
                .collect()
        }
        ScopeWord::Client | ScopeWord::Endpoint => return Ok(()),
    };
    if known.iter().any(|it| it == name) {
        return Ok(());
    }
    known.sort();
    known.dedup();
    let count = known.len();
    known.truncate(HINTS_MAX);
    let known = known.join(", ");
    let scope = scope.as_str();
    Err(BreakerError::NotFound(format!(
        "there is no {scope} \"{name}\"; there are {count}: {known}"
    )))
}

fn error(fault: BreakerFault) -> BreakerError {
    match fault {
        BreakerFault::Closed { .. } => BreakerError::NotFound(fault.to_string()),
        BreakerFault::TooMany | BreakerFault::Name(_) => BreakerError::Conflict(fault.to_string()),
    }
}

/// Writes the move down and answers it.
fn finish(
    handles: &AdminHandles,
    caller: &Caller,
    step: Move,
    moved: Result<(), BreakerError>,
) -> Result<Response, Refusal> {
    let target = format!("{}/{}", step.scope.as_str(), step.name);
    handles.audit.record(&AdminChange {
        who: Arc::clone(&caller.user),
        from: caller.address,
        action: step.action,
        target: target.clone(),
        how: step.how.clone(),
        reason: step.reason,
        outcome: moved.as_ref().copied().map_err(ToString::to_string),
    });
    match moved {
        Ok(()) => {
            let message = format!("{} {target} {}", step.action, step.how);
            Ok(done(StatusCode::OK, message.trim_end()))
        }
        Err(fault) => Err(answer_fault(&fault)),
    }
}

fn answer_fault(fault: &BreakerError) -> Refusal {
    let (code, reason) = match fault {
        BreakerError::NotFound(_) => (StatusCode::NOT_FOUND, "NotFound"),
        BreakerError::Conflict(_) => (StatusCode::CONFLICT, "Conflict"),
    };
    refuse(code, reason, fault.to_string())
}
