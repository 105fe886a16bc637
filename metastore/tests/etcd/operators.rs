//! What operators and their tools ask: status, members, alarms, hashes, probes, and what there is
//! not.

use tonic::Code;

use super::fixture::*;
use pb::auth_client::AuthClient;
use pb::cluster_client::ClusterClient;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::health::HealthCheckRequest;
use sluice_metastore::etcd::client::health::health_check_response::ServingStatus;
use sluice_metastore::etcd::client::health::health_client::HealthClient;

#[tokio::test]
async fn status_parses_as_a_version_kube_apiserver_trusts() {
    let member = Member::start().await;
    member.put("k", "v").await;
    let status = member
        .maintenance()
        .status(pb::StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    let numbers: Vec<u64> = status
        .version
        .split('.')
        .map(|part| part.parse().unwrap())
        .collect();
    assert!(numbers.len() == 3 && numbers >= vec![3, 5, 13]);
    assert_eq!(status.leader, status.header.as_ref().unwrap().member_id);
    assert!(status.db_size > 0 && status.db_size_in_use > 0 && status.db_size_quota > 0);
    assert!(status.raft_term > 0 && status.raft_index >= 2 && !status.is_learner);
    assert!(status.errors.is_empty());
}

#[tokio::test]
async fn one_named_member_with_a_url() {
    let member = Member::start().await;
    let mut cluster = ClusterClient::new(member.channel.clone());
    let list = pb::MemberListRequest { linearizable: true };
    let members = cluster
        .member_list(list)
        .await
        .unwrap()
        .into_inner()
        .members;
    assert_eq!(members.len(), 1);
    assert!(!members[0].name.is_empty() && members[0].id != 0);
    assert_eq!(
        members[0].client_ur_ls,
        [format!("http://{}", member.address)]
    );
    let unknown = cluster
        .member_remove(pb::MemberRemoveRequest { id: 1 })
        .await;
    assert_refused(unknown, Code::NotFound, "etcdserver: member not found");
    let own = cluster
        .member_remove(pb::MemberRemoveRequest { id: members[0].id })
        .await;
    assert_eq!(own.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn there_are_no_alarms_on_a_fresh_store_and_defragmenting_succeeds() {
    let member = Member::start().await;
    let alarms = member
        .maintenance()
        .alarm(pb::AlarmRequest::default())
        .await
        .unwrap();
    assert!(alarms.into_inner().alarms.is_empty());
    let raise = pb::AlarmRequest {
        action: 1,
        ..Default::default()
    };
    let refused = member.maintenance().alarm(raise).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    member
        .maintenance()
        .defragment(pb::DefragmentRequest {})
        .await
        .unwrap();
}

#[tokio::test]
async fn a_hash_is_of_the_content_at_a_revision() {
    let (one, other) = (Member::start().await, Member::start().await);
    for member in [&one, &other] {
        for n in 0..50 {
            member.put(&format!("k{}", n % 7), &n.to_string()).await;
        }
    }
    other.put("k0", "more").await;
    let hash = async |member: &Member, revision| {
        let request = pb::HashKvRequest { revision };
        member
            .maintenance()
            .hash_kv(request)
            .await
            .unwrap()
            .into_inner()
    };
    assert_eq!(hash(&one, 51).await.hash, hash(&other, 51).await.hash);
    assert_ne!(hash(&one, 0).await.hash, hash(&other, 0).await.hash);
    assert_eq!(hash(&other, 0).await.hash_revision, 52);
}

#[tokio::test]
async fn there_are_no_users() {
    let member = Member::start().await;
    let mut auth = AuthClient::new(member.channel.clone());
    assert!(
        !auth
            .auth_status(pb::AuthStatusRequest {})
            .await
            .unwrap()
            .into_inner()
            .enabled
    );
    let outcome = auth.authenticate(pb::AuthenticateRequest::default()).await;
    let text = "etcdserver: authentication is not enabled";
    assert_refused(outcome, Code::FailedPrecondition, text);
    let refused = auth
        .user_add(pb::AuthUserAddRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().starts_with("sluice: "));
    let listed = auth.user_list(pb::AuthUserListRequest {}).await.unwrap();
    assert!(listed.into_inner().users.is_empty());
}

#[tokio::test]
async fn the_health_service_serves() {
    let member = Member::start().await;
    let mut health = HealthClient::new(member.channel.clone());
    let whole = health
        .check(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(whole.status(), ServingStatus::Serving);
    let part = health
        .check(HealthCheckRequest {
            service: "nothing".to_owned(),
        })
        .await;
    assert_eq!(part.unwrap_err().code(), Code::NotFound);
}
