//! The Cluster service: one member, which is this process.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::errors;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::cluster_server::Cluster;
use super::shared::Shared;

const NO_MEMBERSHIP: &str =
    "members are not added or removed here: start and stop replicas instead";

/// The service.
pub(crate) struct ClusterService(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl Cluster for ClusterService {
    async fn member_list(
        &self,
        _request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        let member = &self.0.member;
        Ok(Response::new(pb::MemberListResponse {
            header: self.0.header_now(),
            members: vec![pb::Member {
                id: member.id,
                name: member.name.clone(),
                client_ur_ls: member.client_urls.clone(),
                ..Default::default()
            }],
        }))
    }

    async fn member_add(
        &self,
        _request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        Err(errors::unimplemented(NO_MEMBERSHIP))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        Err(self.refusal(request.into_inner().id))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        Err(self.refusal(request.into_inner().id))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        Err(self.refusal(request.into_inner().id))
    }
}

impl ClusterService {
    fn refusal(&self, id: u64) -> Status {
        if id == self.0.member.id {
            errors::unimplemented(NO_MEMBERSHIP)
        } else {
            errors::member_not_found()
        }
    }
}
