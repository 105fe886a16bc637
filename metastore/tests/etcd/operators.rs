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
    let empty = member.maintenance().status(pb::StatusRequest {}).await;
    // etcdctl's table divides by it.
    assert!(empty.unwrap().into_inner().db_size > 0);
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
    let own = pb::MemberRemoveRequest { id: members[0].id };
    let text = "etcdserver: re-configuration failed due to not enough started members";
    assert_refused(cluster.member_remove(own).await, Code::Unknown, text);
    let promote = pb::MemberPromoteRequest { id: members[0].id };
    let text = "etcdserver: can only promote a learner member";
    let outcome = cluster.member_promote(promote).await;
    assert_refused(outcome, Code::FailedPrecondition, text);
    for (url, code, text) in [
        (
            "127.0.0.1:1",
            Code::InvalidArgument,
            "etcdserver: given member URLs are invalid",
        ),
        (
            "http://127.0.0.1:1",
            Code::FailedPrecondition,
            "etcdserver: not capable",
        ),
    ] {
        let add = pb::MemberAddRequest {
            peer_ur_ls: vec![url.to_owned()],
            is_learner: false,
        };
        assert_refused(cluster.member_add(add).await, code, text);
    }
}

/// An alarm request; 1 raises and 2 clears, 1 is NOSPACE and 2 is CORRUPT.
async fn alarm(member: &Member, action: i32, alarm: i32) -> Vec<(i32, u64)> {
    alarm_of(7, member, action, alarm).await
}

async fn alarm_of(member_id: u64, member: &Member, action: i32, alarm: i32) -> Vec<(i32, u64)> {
    let request = pb::AlarmRequest {
        action,
        member_id,
        alarm,
    };
    let answer = member.maintenance().alarm(request).await.unwrap();
    let alarms = answer.into_inner().alarms;
    alarms
        .iter()
        .map(|one| (one.alarm, one.member_id))
        .collect()
}

#[tokio::test]
async fn alarms_raised_by_hand_stop_what_they_stop_in_etcd() {
    let member = Member::start().await;
    assert_eq!(alarm(&member, 0, 0).await, []);
    assert_eq!(
        alarm(&member, 1, 0).await,
        [],
        "no alarm is raised by no name"
    );
    let put = || pb::PutRequest {
        key: text("k"),
        value: text("v"),
        ..Default::default()
    };
    let grant = || pb::LeaseGrantRequest { ttl: 60, id: 0 };

    assert_eq!(alarm(&member, 1, 1).await, [(1, 7)]);
    assert_eq!(alarm(&member, 0, 2).await, [], "another kind is not listed");
    let full = "etcdserver: mvcc: database space exceeded";
    assert_refused(member.kv().put(put()).await, Code::ResourceExhausted, full);
    let outcome = member.lease().lease_grant(grant()).await;
    assert_refused(outcome, Code::ResourceExhausted, full);
    let update = txn(vec![], vec![put_op("k", "v")], vec![]);
    let outcome = member.kv().txn(update.clone()).await;
    assert_refused(outcome, Code::ResourceExhausted, full);
    let delete = txn(vec![], vec![delete_op("k")], vec![]);
    assert!(member.kv().txn(delete).await.is_ok(), "deletes make room");
    let status = member.maintenance().status(pb::StatusRequest {}).await;
    assert_eq!(
        status.unwrap().into_inner().errors,
        ["memberID:7  alarm:NOSPACE"]
    );
    assert_eq!(alarm(&member, 2, 1).await, [(1, 7)]);
    assert_eq!(alarm(&member, 2, 1).await, [], "it is gone already");
    member.put("k", "v").await;

    assert_eq!(alarm(&member, 1, 2).await, [(2, 7)]);
    let corrupt = "etcdserver: corrupt cluster";
    assert_refused(member.kv().put(put()).await, Code::DataLoss, corrupt);
    assert_refused(member.kv().txn(update).await, Code::DataLoss, corrupt);
    let outcome = member.lease().lease_grant(grant()).await;
    assert_refused(outcome, Code::DataLoss, corrupt);
    assert_eq!(
        member.range(get("k")).await.count,
        1,
        "what is there can be read"
    );
    assert_eq!(alarm(&member, 0, 0).await, [(2, 7)]);
    assert_eq!(alarm(&member, 2, 2).await, [(2, 7)]);
    member.put("k", "v").await;
}

#[tokio::test]
async fn a_put_that_finds_no_room_raises_the_alarm_until_there_is_some() {
    let member = Member::with_quota(20_000).await;
    let large = "v".repeat(7_000);
    let refused = async || {
        let request = pb::PutRequest {
            key: text("large"),
            value: text(&large),
            ..Default::default()
        };
        let full = "etcdserver: mvcc: database space exceeded";
        let by_put = member.kv().put(request).await;
        assert_refused(by_put, Code::ResourceExhausted, full);
        let update = txn(vec![], vec![put_op("large", &large)], vec![]);
        assert_refused(member.kv().txn(update).await, Code::ResourceExhausted, full);
    };
    let status = async || {
        let status = member.maintenance().status(pb::StatusRequest {}).await;
        status.unwrap().into_inner()
    };
    member.put("large", &large).await;
    member.put("large", &large).await;
    assert_eq!(alarm(&member, 0, 0).await, []);
    refused().await;
    let id = status().await.leader;
    assert_eq!(alarm(&member, 0, 0).await, [(1, id)]);
    let problems = status().await.errors;
    assert_eq!(problems, [format!("memberID:{id}  alarm:NOSPACE")]);

    let at = member.put("small", "v").await;
    member.compact(at).await.unwrap();
    let request = pb::DefragmentRequest {};
    member.maintenance().defragment(request).await.unwrap();
    assert_eq!(alarm(&member, 0, 0).await, [], "it ended by itself");
    member.put("large", &large).await;

    refused().await;
    assert_eq!(alarm_of(id, &member, 2, 1).await, [(1, id)], "or by hand");
    assert_eq!(alarm(&member, 0, 0).await, []);
    assert_eq!(alarm_of(id, &member, 2, 1).await, [], "it is gone already");
    refused().await;
    assert_eq!(alarm(&member, 0, 0).await, [(1, id)]);
}

#[tokio::test]
async fn defragmenting_leaves_behind_what_was_compacted() {
    let member = Member::start().await;
    // Of some size: none below that of an empty store is said.
    let value = |n: usize| format!("{n:02048}");
    for n in 0..50 {
        member.put("k", &value(n)).await;
    }
    member.compact(51).await.unwrap();
    let size = async || {
        let status = member.maintenance().status(pb::StatusRequest {}).await;
        status.unwrap().into_inner().db_size
    };
    let before = size().await;
    let request = pb::DefragmentRequest {};
    member.maintenance().defragment(request).await.unwrap();
    let after = size().await;
    assert!(after * 5 < before, "{before} bytes became {after}");
    assert_eq!(member.range(get("k")).await.kvs[0].value, text(&value(49)));
}

#[tokio::test]
async fn leadership_and_downgrades_answer_as_a_lone_etcd() {
    let member = Member::start().await;
    let mut maintenance = member.maintenance();
    let bad = maintenance
        .move_leader(pb::MoveLeaderRequest { target_id: 1 })
        .await;
    let text = "etcdserver: bad leader transferee";
    assert_refused(bad, Code::FailedPrecondition, text);
    let status = maintenance.status(pb::StatusRequest {}).await.unwrap();
    let target_id = status.into_inner().leader;
    maintenance
        .move_leader(pb::MoveLeaderRequest { target_id })
        .await
        .unwrap();
    for (action, version, text) in [
        (0, "x", "etcdserver: wrong downgrade target version format"),
        (0, "3", "etcdserver: wrong downgrade target version format"),
        (1, "3.5", "etcdserver: invalid downgrade target version"),
        (1, "3.6.0", "etcdserver: invalid downgrade target version"),
    ] {
        let version = version.to_owned();
        let outcome = maintenance
            .downgrade(pb::DowngradeRequest { action, version })
            .await;
        assert_refused(outcome, Code::InvalidArgument, text);
    }
    let cancel = pb::DowngradeRequest {
        action: 2,
        version: String::new(),
    };
    let cancelled = maintenance.downgrade(cancel).await.unwrap();
    assert_eq!(cancelled.into_inner().version, "3.7");
}

#[tokio::test]
async fn the_hash_of_all_follows_keys_and_leases() {
    let member = Member::start().await;
    let hash = async || {
        let answer = member.maintenance().hash(pb::HashRequest {}).await;
        answer.unwrap().into_inner().hash
    };
    let empty = hash().await;
    member.put("k", "v").await;
    let with_key = hash().await;
    let grant = pb::LeaseGrantRequest { ttl: 60, id: 5 };
    member.lease().lease_grant(grant).await.unwrap();
    let with_lease = hash().await;
    assert_ne!(empty, 0, "etcd's clients take zero for no hash");
    assert!(empty != with_key && with_key != with_lease);
    assert_eq!(with_lease, hash().await);
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
    other.compact(40).await.unwrap();
    let refused = async |revision| {
        let request = pb::HashKvRequest { revision };
        other.maintenance().hash_kv(request).await
    };
    let text = "etcdserver: mvcc: required revision is a future revision";
    assert_refused(refused(53).await, Code::OutOfRange, text);
    let text = "etcdserver: mvcc: required revision has been compacted";
    assert_refused(refused(39).await, Code::OutOfRange, text);
    assert_eq!(refused(40).await.unwrap().into_inner().compact_revision, 40);
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
    let nameless = auth.user_add(pb::AuthUserAddRequest::default()).await;
    assert_refused(
        nameless,
        Code::InvalidArgument,
        "etcdserver: user name is empty",
    );
    let add = pb::AuthUserAddRequest {
        name: "root".to_owned(),
        ..Default::default()
    };
    let text = "etcdserver: not capable";
    assert_refused(auth.user_add(add).await, Code::FailedPrecondition, text);
    let unknown = auth.user_get(pb::AuthUserGetRequest::default()).await;
    let text = "etcdserver: user name not found";
    assert_refused(unknown, Code::FailedPrecondition, text);
    let enable = auth.auth_enable(pb::AuthEnableRequest {}).await;
    let text = "etcdserver: root user does not exist";
    assert_refused(enable, Code::FailedPrecondition, text);
    auth.auth_disable(pb::AuthDisableRequest {}).await.unwrap();
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
