//! Lets `authn` put its questions to an upstream cluster, without either knowing the other.

use std::sync::Arc;

use bytes::Bytes;

use crate::authn::{ReviewFuture, Reviewer, ReviewerOutage};
use crate::upstream::{CallOptions, Cluster};

/// Asks a cluster with the gateway's own credential.
pub(super) struct ClusterReviewer(pub(super) Arc<Cluster>);

impl Reviewer for ClusterReviewer {
    fn post(&self, path: &'static str, review: Bytes) -> ReviewFuture<'_> {
        Box::pin(async move {
            let answer = self.0.call(path, review, CallOptions::default()).await;
            match answer {
                Ok((status, answer)) if status.is_success() => Ok(answer),
                // A refusal of the gateway's own credential is an outage too, and no verdict.
                Ok((status, _)) => Err(ReviewerOutage(format!("{path} answered {status}"))),
                Err(error) => Err(ReviewerOutage(error.to_string())),
            }
        })
    }
}
