//! The Maintenance service: what operators ask of a member.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::errors;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::alarm_request::AlarmAction;
use super::proto::etcdserverpb::maintenance_server::Maintenance;
use super::shared::{Shared, TERM, VERSION, VERSION_MINOR};

/// The service.
pub(crate) struct MaintenanceService(pub(crate) Arc<Shared>);

impl MaintenanceService {
    fn alarms(&self) -> Vec<pb::AlarmMember> {
        if !self.0.is_full() {
            return Vec::new();
        }
        vec![pb::AlarmMember {
            member_id: self.0.member.id,
            alarm: pb::AlarmType::Nospace.into(),
        }]
    }
}

#[tonic::async_trait]
impl Maintenance for MaintenanceService {
    type SnapshotStream = super::snapshot::Pieces;

    /// Alarms follow the state of the store and clear themselves with it, so disarming one changes
    /// nothing and raising one by hand is refused.
    async fn alarm(
        &self,
        request: Request<pb::AlarmRequest>,
    ) -> Result<Response<pb::AlarmResponse>, Status> {
        if request.into_inner().action() == AlarmAction::Activate {
            return Err(errors::unimplemented(
                "alarms are raised by the store alone",
            ));
        }
        let alarms = self.alarms();
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
        if !self.alarms().is_empty() {
            problems.push(format!("memberID:{} alarm:NOSPACE ", self.0.member.id));
        }
        Ok(Response::new(pb::StatusResponse {
            header: self.0.header(revision),
            version: VERSION.to_owned(),
            db_size: bytes(size.on_disk),
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

    /// The store gives space back by itself with each checkpoint; there is nothing to do and no
    /// pause to take, so this succeeds at once.
    async fn defragment(
        &self,
        _request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        Ok(Response::new(pb::DefragmentResponse {
            header: self.0.header_now(),
        }))
    }

    async fn hash(
        &self,
        _request: Request<pb::HashRequest>,
    ) -> Result<Response<pb::HashResponse>, Status> {
        Err(errors::unimplemented(
            "there is no backend file to hash: use HashKV",
        ))
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

    async fn move_leader(
        &self,
        _request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        Err(errors::bad_transferee())
    }

    async fn downgrade(
        &self,
        _request: Request<pb::DowngradeRequest>,
    ) -> Result<Response<pb::DowngradeResponse>, Status> {
        Err(errors::unimplemented(
            "this store has one format and no version to go back to",
        ))
    }
}

fn bytes(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}
