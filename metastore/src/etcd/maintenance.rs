//! The Maintenance service: what operators ask of a member.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::downgrade_request::DowngradeAction;
use super::proto::etcdserverpb::maintenance_server::Maintenance;
use super::shared::{CLUSTER_VERSION, Shared, TERM, VERSION, VERSION_MINOR};
use super::{access, alarms, errors};

/// What an empty store takes: its lock file. etcdctl divides by this size, so that it is never none.
const EMPTY_BYTES: u64 = 8192;

/// The service.
pub(crate) struct MaintenanceService(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    type SnapshotStream = super::snapshot::Pieces;

    async fn alarm(
        &self,
        request: Request<pb::AlarmRequest>,
    ) -> Result<Response<pb::AlarmResponse>, Status> {
        access::check_alarm(request.extensions(), request.get_ref())?;
        let alarms = alarms::act(&self.0, request.get_ref());
        Ok(Response::new(pb::AlarmResponse {
            header: self.0.header_now(),
            alarms,
        }))
    }

    async fn status(
        &self,
        _request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        let revision = self.0.store.revision();
        let size = self.0.store.size();
        let mut problems: Vec<String> = self.0.store.failure().into_iter().collect();
        for alarm in alarms::list(&self.0) {
            let (id, name) = (alarm.member_id, alarms::name(&alarm));
            problems.push(format!("memberID:{id}  alarm:{name}"));
        }
        Ok(Response::new(pb::StatusResponse {
            header: self.0.header(revision),
            version: VERSION.to_owned(),
            db_size: bytes(size.on_disk.max(EMPTY_BYTES)),
            leader: self.0.member.id,
            // There is no raft: the revision is the one order there is.
            raft_index: revision.get(),
            raft_applied_index: revision.get(),
            raft_term: TERM,
            errors: problems,
            db_size_in_use: bytes(size.in_use),
            is_learner: false,
            storage_version: VERSION_MINOR.to_owned(),
            db_size_quota: bytes(self.0.store.quota_bytes()),
            downgrade_info: Some(pb::DowngradeInfo::default()),
        }))
    }

    /// Writes a checkpoint and gives back the log behind it. The store does so by itself as well,
    /// and serves on meanwhile. As from etcd, there is no header.
    async fn defragment(
        &self,
        _request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        let done = self.0.store.defragment().await;
        done.map_err(|error| errors::status(&error))?;
        Ok(Response::new(pb::DefragmentResponse { header: None }))
    }

    /// Over all keys and leases, now.
    async fn hash(
        &self,
        _request: Request<pb::HashRequest>,
    ) -> Result<Response<pb::HashResponse>, Status> {
        super::hash::of_all(&self.0).await.map(Response::new)
    }

    async fn hash_kv(
        &self,
        request: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvResponse>, Status> {
        super::hash::at(&self.0, request.into_inner().revision)
            .await
            .map(Response::new)
    }

    async fn snapshot(
        &self,
        _request: Request<pb::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        super::snapshot::stream(&self.0).map(Response::new)
    }

    /// The one member leads: to it leadership can be moved, to no other.
    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        if request.get_ref().target_id != self.0.member.id {
            return Err(errors::bad_transferee());
        }
        Ok(Response::new(pb::MoveLeaderResponse { header: None }))
    }

    /// There is one format and no version to go back to, so no target is a good one; a downgrade
    /// that never began can be given up, as in etcd.
    async fn downgrade(
        &self,
        request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        let request = request.into_inner();
        if request.action() != DowngradeAction::Cancel {
            return Err(if is_version(&request.version) {
                errors::downgrade_target()
            } else {
                errors::downgrade_format()
            });
        }
        Ok(Response::new(pb::DowngradeResponse {
            header: self.0.header_now(),
            version: CLUSTER_VERSION.to_owned(),
        }))
    }
}

/// Whether it reads as `3.6` or `3.6.0`.
fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let is_number = |part: &&str| part.parse::<u32>().is_ok();
    (2..=3).contains(&parts.len()) && parts.iter().all(is_number)
}

fn bytes(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
