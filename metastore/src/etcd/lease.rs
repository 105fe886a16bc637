//! The Lease service. Times are whole seconds on the wire; an unknown lease is an answer here, not
//! an error, wherever etcd has it so.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use tonic::{Request, Response, Status, Streaming};

use super::errors;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::lease_server::Lease;
use super::shared::Shared;
use crate::{Error, LeaseId};

/// The time to live of a lease that does not exist, in an answer about its time.
const TTL_UNKNOWN: i64 = -1;

/// The service.
pub(crate) struct LeaseService(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl Lease for LeaseService {
    type LeaseKeepAliveStream =
        Pin<Box<dyn Stream<Item = Result<pb::LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let request = request.into_inner();
        let ttl = Duration::from_secs(u64::try_from(request.ttl).unwrap_or(0));
        let grant = self.0.store.lease_grant(LeaseId(request.id), ttl);
        let (id, ttl) = self.0.settle(grant).await?;
        self.0.counters.leases_granted.add(1);
        Ok(Response::new(pb::LeaseGrantResponse {
            header: self.0.header_now(),
            id: id.0,
            ttl: seconds(ttl),
            error: String::new(),
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let id = LeaseId(request.into_inner().id);
        let revision = self.0.settle(self.0.store.lease_revoke(id)).await?;
        self.0.counters.leases_revoked.add(1);
        Ok(Response::new(pb::LeaseRevokeResponse {
            header: self.0.header(revision),
        }))
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let state = Some((Arc::clone(&self.0), request.into_inner()));
        let renewals = stream::unfold(state, |state| async {
            let (shared, mut requests) = state?;
            let asked = tokio::select! {
                biased;
                // First, so that a drain is not put off by renewals.
                () = shared.stopping.cancelled() => Err(errors::stopped()),
                asked = requests.message() => asked,
            };
            let outcome = match asked {
                Ok(None) => return None,
                Ok(Some(request)) => renewed(&shared, LeaseId(request.id)).await,
                Err(status) => Err(status),
            };
            let rest = outcome.is_ok().then_some((shared, requests));
            Some((outcome, rest))
        });
        Ok(Response::new(Box::pin(renewals)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let request = request.into_inner();
        let mut answer = pb::LeaseTimeToLiveResponse {
            header: self.0.header_now(),
            id: request.id,
            ttl: TTL_UNKNOWN,
            ..Default::default()
        };
        match self.0.store.lease_remaining(LeaseId(request.id)) {
            Ok(view) => {
                answer.ttl = seconds(view.remaining);
                answer.granted_ttl = seconds(view.granted);
                if request.keys {
                    answer.keys = view.keys;
                }
            }
            Err(Error::LeaseNotFound) => {}
            Err(error) => return Err(errors::status(&error)),
        }
        Ok(Response::new(answer))
    }

    async fn lease_leases(
        &self,
        _request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let leases = self.0.store.leases();
        Ok(Response::new(pb::LeaseLeasesResponse {
            header: self.0.header_now(),
            leases: leases
                .into_iter()
                .map(|id| pb::LeaseStatus { id: id.0 })
                .collect(),
        }))
    }
}

/// A renewal; a lease that is gone has no time left, which is how a client learns of it.
async fn renewed(shared: &Shared, id: LeaseId) -> Result<pb::LeaseKeepAliveResponse, Status> {
    let outcome = tokio::time::timeout(shared.write_timeout, shared.store.lease_renew(id)).await;
    let ttl = match outcome {
        Ok(Ok(ttl)) => {
            shared.counters.leases_renewed.add(1);
            seconds(ttl)
        }
        Ok(Err(Error::LeaseNotFound)) => 0,
        Ok(Err(error)) => return Err(errors::status(&error)),
        Err(_elapsed) => return Err(errors::timed_out()),
    };
    Ok(pb::LeaseKeepAliveResponse {
        header: shared.header_now(),
        id: id.0,
        ttl,
    })
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
