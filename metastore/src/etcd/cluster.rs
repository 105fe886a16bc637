//! The Cluster service: one member, which is this process.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::errors;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::cluster_server::Cluster;
use super::shared::Shared;
use crate::Revision;

const NO_MEMBERSHIP: &str = "there is one member, and there are no others to add, remove or move";

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
            header: self.header(),
            members: vec![pb::Member {
                id: member.id,
                name: member.name.clone(),
                peer_ur_ls: member.peer_urls.clone(),
                client_ur_ls: member.client_urls.clone(),
                ..Default::default()
            }],
        }))
    }

    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        let urls = request.into_inner().peer_ur_ls;
        if urls.is_empty() || !urls.iter().all(|url| is_peer_url(url)) {
            return Err(errors::member_bad_urls());
        }
        Err(errors::not_capable(NO_MEMBERSHIP))
    }

    /// etcd lets no cluster go below its quorum: the one member stays.
    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        self.check(request.into_inner().id)?;
        Err(errors::members_too_few())
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        self.check(request.into_inner().id)?;
        Err(errors::not_capable(NO_MEMBERSHIP))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        self.check(request.into_inner().id)?;
        Err(errors::member_not_learner())
    }
}

impl ClusterService {
    fn check(&self, id: u64) -> Result<(), Status> {
        if id == self.0.member.id {
            Ok(())
        } else {
            Err(errors::member_not_found())
        }
    }

    /// Membership has no revision, so its headers have none, as etcd's.
    fn header(&self) -> Option<pb::ResponseHeader> {
        self.0.header(Revision::ZERO)
    }
}

/// What etcd takes for the URL of a peer.
fn is_peer_url(url: &str) -> bool {
    let rest = url
        .split_once("://")
        .and_then(|(scheme, rest)| match scheme {
            "http" | "https" => rest.rsplit_once(':'),
            _ => None,
        });
    rest.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
