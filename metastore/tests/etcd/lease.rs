//! Leases: expiry is one revision, a put moves a key from lease to lease, unknown ones are answers.

use tonic::Code;

use super::fixture::*;
use pb::lease_client::LeaseClient;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::mvccpb::event::EventType;
use tonic::transport::Channel;

async fn grant(mut client: LeaseClient<Channel>, ttl: i64, id: i64) -> pb::LeaseGrantResponse {
    client
        .lease_grant(pb::LeaseGrantRequest { ttl, id })
        .await
        .unwrap()
        .into_inner()
}

fn put(key: &str, lease: i64) -> pb::PutRequest {
    pb::PutRequest {
        key: text(key),
        value: text("v"),
        lease,
        ..Default::default()
    }
}

#[tokio::test]
async fn an_expired_lease_takes_its_keys_in_one_revision() {
    let member = Member::start().await;
    let lease = grant(member.lease(), 1, 0).await;
    assert_eq!(lease.ttl, 2, "the least time to live is two seconds");
    assert!(
        lease.id > 0 && revision(&lease.header) == 1,
        "a grant takes no revision"
    );
    for key in ["/l/b", "/l/a", "/l/c"] {
        member.kv().put(put(key, lease.id)).await.unwrap();
    }
    let mut watching = member.watching().await;
    watching.create(watch_prefix("/l/", 5)).await;
    let expired = watching.next().await;
    assert_eq!(expired.events.len(), 3);
    for (event, key) in expired.events.iter().zip(["/l/a", "/l/b", "/l/c"]) {
        let (kv, before) = (event.kv.as_ref().unwrap(), event.prev_kv.as_ref().unwrap());
        assert_eq!((event.r#type(), kv.mod_revision), (EventType::Delete, 5));
        assert_eq!((&kv.key, before.lease), (&text(key), lease.id));
    }
    assert_eq!(member.range(list("/l/")).await.count, 0);
}

#[tokio::test]
async fn a_put_moves_its_key_to_the_new_lease() {
    let member = Member::start().await;
    let (short, long) = (
        grant(member.lease(), 2, 0).await.id,
        grant(member.lease(), 60, 0).await.id,
    );
    member.kv().put(put("/l/moved", short)).await.unwrap();
    member.kv().put(put("/l/stays", short)).await.unwrap();
    member.kv().put(put("/l/moved", long)).await.unwrap();
    let mut watching = member.watching().await;
    watching.create(watch_prefix("/l/", 5)).await;
    let expired = watching.events(1).await;
    assert_eq!(expired[0].kv.as_ref().unwrap().key, text("/l/stays"));
    let kept = member.range(get("/l/moved")).await.kvs.remove(0);
    assert_eq!(kept.lease, long);
}

#[tokio::test]
async fn unknown_leases() {
    let member = Member::start().await;
    let outcome = member.kv().put(put("k", 12345)).await;
    assert_refused(
        outcome,
        Code::NotFound,
        "etcdserver: requested lease not found",
    );
    assert_eq!(revision(&member.range(get("k")).await.header), 1);
    let revoke = pb::LeaseRevokeRequest { id: 12345 };
    let outcome = member.lease().lease_revoke(revoke).await;
    assert_refused(
        outcome,
        Code::NotFound,
        "etcdserver: requested lease not found",
    );
    let about = pb::LeaseTimeToLiveRequest {
        id: 12345,
        keys: true,
    };
    let unknown = member
        .lease()
        .lease_time_to_live(about)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (unknown.id, unknown.ttl, unknown.granted_ttl),
        (12345, -1, 0)
    );
    let requests = tokio_stream::iter([pb::LeaseKeepAliveRequest { id: 12345 }]);
    let mut renewals = member
        .lease()
        .lease_keep_alive(requests)
        .await
        .unwrap()
        .into_inner();
    let answer = renewals.message().await.unwrap().unwrap();
    assert_eq!((answer.id, answer.ttl), (12345, 0));
    assert!(
        renewals.message().await.unwrap().is_none(),
        "the stream ends with the client's"
    );
    let too_long = pb::LeaseGrantRequest {
        ttl: 9_000_000_001,
        id: 0,
    };
    let outcome = member.lease().lease_grant(too_long).await;
    assert_refused(outcome, Code::OutOfRange, "etcdserver: too large lease TTL");
}

#[tokio::test]
async fn a_lease_is_seen_renewed_listed_and_revoked() {
    let member = Member::start().await;
    assert_eq!(grant(member.lease(), 100, 77).await.id, 77);
    let again = member
        .lease()
        .lease_grant(pb::LeaseGrantRequest { ttl: 100, id: 77 })
        .await;
    assert_refused(
        again,
        Code::FailedPrecondition,
        "etcdserver: lease already exists",
    );
    member.kv().put(put("/l/a", 77)).await.unwrap();
    member.kv().put(put("/l/b", 77)).await.unwrap();
    let about = pb::LeaseTimeToLiveRequest { id: 77, keys: true };
    let view = member
        .lease()
        .lease_time_to_live(about)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(view.granted_ttl, 100);
    assert!((95..=100).contains(&view.ttl));
    assert_eq!(view.keys, [text("/l/a"), text("/l/b")]);
    let requests = tokio_stream::iter([pb::LeaseKeepAliveRequest { id: 77 }]);
    let mut renewals = member
        .lease()
        .lease_keep_alive(requests)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(renewals.message().await.unwrap().unwrap().ttl, 100);
    let listed = member
        .lease()
        .lease_leases(pb::LeaseLeasesRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        listed
            .leases
            .iter()
            .map(|lease| lease.id)
            .collect::<Vec<_>>(),
        [77]
    );
    let gone = member
        .lease()
        .lease_revoke(pb::LeaseRevokeRequest { id: 77 })
        .await
        .unwrap();
    assert_eq!(
        revision(&gone.into_inner().header),
        4,
        "both keys went in one revision"
    );
    assert_eq!(member.range(list("/l/")).await.count, 0);
}
