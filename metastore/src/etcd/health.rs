//! The standard gRPC health service, over the same judgement as the HTTP probes.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use tonic::{Request, Response, Status};

use super::proto::health::health_check_response::ServingStatus;
use super::proto::health::health_server::Health;
use super::proto::health::{HealthCheckRequest, HealthCheckResponse};
use super::shared::Shared;

/// The service.
pub(crate) struct HealthService(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        // The whole server is the only thing that has a health of its own.
        if !request.get_ref().service.is_empty() {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(now(&self.0)))
    }

    /// The state now, and once more when the listener drains.
    async fn watch(
        &self,
        _request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let shared = Arc::clone(&self.0);
        let first = now(&shared);
        let last = stream::once(async move {
            shared.stopping.cancelled().await;
            Ok(state(ServingStatus::NotServing))
        });
        Ok(Response::new(Box::pin(
            stream::iter([Ok(first)]).chain(last),
        )))
    }
}

fn now(shared: &Shared) -> HealthCheckResponse {
    let is_well = !shared.store.has_failed() && !shared.stopping.is_cancelled();
    state(if is_well {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    })
}

fn state(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}
