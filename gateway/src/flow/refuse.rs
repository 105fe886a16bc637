//! The refusals of this phase, in the words a client reads.
//!
//! Nearly all of them are 429 `TooManyRequests` with a whole number of seconds, those of breakers too:
//! client-go answers 429 and 503 alike with a pause and a retry, but for the start of a watch,
//! where 429 makes an informer pause and go on from its resource version, and a 5xx makes it list
//! everything again. A breaker that is open to shed load must not ask for relists. The exception is
//! a rule that forbids: waiting would not help, so it is 403.

use std::time::Duration;

use http::StatusCode;
use sluice_ratelimit::{Reason, Rejection};

use super::breakers::Scope;
use super::spec::Refuse;
use crate::status::{Refusal, Stage};

/// The longest a client is sent away for: client-go sleeps as long as it is told, without a cap,
/// and would sleep through a raised limit or a reset breaker.
const RETRY_AFTER_MAX: u32 = 60;

/// Refused by a rule's limit; `limit` describes it.
pub(super) fn by_limit(rule: &str, limit: &str, rejection: &Rejection) -> Refusal {
    let message = match rejection.reason {
        Reason::InFlight => format!("too many requests at once: rule {rule} admits {limit}"),
        _ => format!("too many requests: rule {rule} admits {limit}"),
    };
    let mut refusal = refuse(Stage::Limit, message, rejection);
    refusal.rule = Some(rule.to_owned());
    refusal
}

/// How long a client is sent away for by a rule that refuses all: as long as it takes an operator
/// to look again, spread by `noise` so that they do not come back in step.
const ALWAYS_WAIT_SECONDS: u32 = 5;

/// Refused by a rule that refuses everything it matches.
pub(super) fn always(rule: &str, refuse: Refuse, noise: u64) -> Refusal {
    let mut refusal = match refuse {
        Refuse::Busy => {
            let message = format!("rule {rule} refuses this for now");
            let mut refusal = Refusal::new(
                Stage::Breaker,
                StatusCode::TOO_MANY_REQUESTS,
                "TooManyRequests",
                message,
            );
            let spread = u32::try_from(noise % u64::from(ALWAYS_WAIT_SECONDS)).unwrap_or(0);
            refusal.retry_after = Some(ALWAYS_WAIT_SECONDS + spread);
            refusal
        }
        Refuse::Forbidden => Refusal::new(
            Stage::Limit,
            StatusCode::FORBIDDEN,
            "Forbidden",
            format!("rule {rule} forbids this; ask whoever wrote it"),
        ),
    };
    refusal.rule = Some(rule.to_owned());
    refusal
}

/// Refused by a breaker, tripped for `cause`.
pub(super) fn by_breaker(scope: Scope, name: &str, cause: &str, rejection: &Rejection) -> Refusal {
    let state = match rejection.reason {
        Reason::BreakerRamp => "is ramping up",
        _ => "is open",
    };
    let scope = scope.as_str();
    let message = format!("circuit breaker of {scope} {name} {state}: {cause}");
    let mut refusal = refuse(Stage::Breaker, message, rejection);
    refusal.rule = Some(format!("breaker/{scope}/{name}"));
    refusal
}

fn refuse(stage: Stage, message: String, rejection: &Rejection) -> Refusal {
    let mut refusal = Refusal::new(
        stage,
        StatusCode::TOO_MANY_REQUESTS,
        "TooManyRequests",
        message,
    );
    refusal.retry_after = Some(whole_seconds(rejection.retry_after));
    refusal
}

/// Rounded up, since coming back early is in vain; at least one, since zero sends no header and
/// clients then do not come back at all.
fn whole_seconds(wait: Duration) -> u32 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    u32::try_from(seconds)
        .unwrap_or(RETRY_AFTER_MAX)
        .clamp(1, RETRY_AFTER_MAX)
}
