//! The questions put to a cluster itself, with the gateway's own credential.

use std::pin::Pin;

use bytes::Bytes;
use serde_json::Value;

/// Nobody could be asked: an outage, never a verdict.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReviewerOutage(pub String);

/// An answer on its way.
pub type ReviewFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Bytes, ReviewerOutage>> + Send + 'a>>;

/// Whoever answers `TokenReview` and `SubjectAccessReview`: an upstream cluster, or a store.
pub trait Reviewer: Send + Sync {
    /// Posts a review and hands back the body of a successful answer. Any other answer is an
    /// outage: a verdict is inside a success.
    fn post(&self, path: &'static str, review: Bytes) -> ReviewFuture<'_>;
}

/// Posts a review and reads its `status`.
pub(super) async fn ask(
    reviewer: &dyn Reviewer,
    path: &'static str,
    review: &Value,
) -> Result<Value, ReviewerOutage> {
    let body = reviewer.post(path, Bytes::from(review.to_string())).await?;
    let mut answer: Value = serde_json::from_slice(&body)
        .map_err(|e| ReviewerOutage(format!("the answer of {path} is not JSON: {e}")))?;
    match answer.get_mut("status").map(Value::take) {
        Some(status) if status.is_object() => Ok(status),
        _ => Err(ReviewerOutage(format!(
            "the answer of {path} has no status"
        ))),
    }
}
