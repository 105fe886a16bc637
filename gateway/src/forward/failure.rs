//! Why an attempt came to nothing, and what the client is told when it was the last one.
//!
//! `Retry-After` is set only where the request cannot have been carried out: client-go repeats
//! any verb on it.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::status::{Refusal, Stage};
use crate::upstream::{ConnectError, Outcome, ReceiveError};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No connection.
    #[error(transparent)]
    Connect(ConnectError),
    /// The connection had ended before it took the request.
    #[error("the connection had ended before it took the request")]
    NeverSent,
    /// The endpoint says that it did not look at it.
    #[error("the endpoint refused it unseen")]
    Refused,
    /// The connection broke before the head came.
    #[error("the connection broke: {0}")]
    Broken(ReceiveError),
    /// No head in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The client has not sent all of its content by then.
    #[error("the client's content did not come within {0:?}")]
    SlowContent(Duration),
    /// It would have to be sent again, and its content is no longer there.
    #[error("its content is no longer there")]
    ContentGone,
}

impl Failure {
    /// What it says of the endpoint. Going away is no fault.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Failure::Connect(_) | Failure::Broken(_) | Failure::Timeout(_) => Outcome::Failure,
            Failure::NeverSent
            | Failure::Refused
            | Failure::SlowContent(_)
            | Failure::ContentGone => Outcome::Neutral,
        }
    }

    pub(super) fn into_refusal(self, endpoint: &str) -> Refusal {
        match self {
            Failure::Connect(error) => Refusal::unavailable(
                Stage::Forward,
                format!("no upstream can be reached: {error}"),
            ),
            Failure::NeverSent | Failure::Refused => {
                let message = "every upstream is going away; nothing was carried out, try again";
                Refusal::unavailable(Stage::Forward, message)
            }
            Failure::ContentGone => {
                let message = "the upstream went away before it looked at the request, whose \
                               content is too large to have been kept; nothing was carried out, \
                               try again";
                Refusal::unavailable(Stage::Forward, message)
            }
            Failure::Broken(_) => Refusal::new(
                Stage::Forward,
                StatusCode::BAD_GATEWAY,
                "InternalError",
                format!(
                    "the connection to upstream={endpoint} broke before it answered; the request \
                     may have been carried out"
                ),
            ),
            Failure::Timeout(after) => Refusal::new(
                Stage::Forward,
                StatusCode::GATEWAY_TIMEOUT,
                "Timeout",
                format!(
                    "upstream={endpoint} has not answered within {after:?}; the request may have \
                     been carried out"
                ),
            ),
            Failure::SlowContent(after) => Refusal::new(
                Stage::Forward,
                StatusCode::REQUEST_TIMEOUT,
                "Timeout",
                format!("the request's content was not there within {after:?}"),
            ),
        }
    }
}

pub(super) fn no_endpoint() -> Refusal {
    Refusal::unavailable(Stage::Route, "the cluster has no endpoint")
}

pub(super) fn no_path() -> Refusal {
    Refusal::bad_request(Stage::Forward, "the request has no path")
}

pub(super) fn method_refused(method: &Method) -> Refusal {
    Refusal::new(
        Stage::Forward,
        StatusCode::METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        format!("method={method} is not forwarded"),
    )
}

pub(super) fn foreign_redirect() -> Refusal {
    Refusal::new(
        Stage::Forward,
        StatusCode::BAD_GATEWAY,
        "InternalError",
        "the upstream's answer would send the client, with its credentials, to another host",
    )
}

/// The upstream's 401 to the gateway: told as one, it would make clients throw good credentials
/// away and ask their issuers for new ones. A wait is only told for reads, which a webhook's
/// verdict cannot be behind.
pub(super) fn not_let_in(endpoint: &str, is_read: bool) -> Refusal {
    let mut refusal = Refusal::unavailable(
        Stage::Forward,
        format!(
            "upstream={endpoint} does not accept the gateway's own credential; renew the one that \
             the cluster's `credentials` name"
        ),
    );
    refusal.retry_after = refusal.retry_after.filter(|_| is_read);
    refusal
}

pub(super) fn too_many_tunnels(open: u64) -> Refusal {
    let mut refusal = Refusal::new(
        Stage::Forward,
        StatusCode::TOO_MANY_REQUESTS,
        "TooManyRequests",
        format!("{open} tunnels to the cluster are open, as many as `tunnels.max` allows"),
    );
    refusal.retry_after = Some(1);
    refusal
}

pub(super) fn loop_detected() -> Refusal {
    Refusal::new(
        Stage::Forward,
        StatusCode::LOOP_DETECTED,
        "InternalError",
        "the request has passed this gateway before: an endpoint of the cluster leads back to it",
    )
}
