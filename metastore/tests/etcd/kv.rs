//! Reads and single writes.

use tonic::Code;

use super::fixture::*;
use sluice_metastore::etcd::client::etcdserverpb as pb;

const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";

#[tokio::test]
async fn a_failed_create_takes_no_revision() {
    let member = Member::start().await;
    assert_eq!(revision(&member.range(get("/none")).await.header), 1);
    let key = "/registry/pods/a/x";
    let first = member.create(key, "1").await;
    assert!(first.succeeded && first.responses.len() == 1);
    assert_eq!(revision(&first.header), 2);
    let again = member.create(key, "1").await;
    assert!(!again.succeeded && again.responses.is_empty());
    assert_eq!(revision(&again.header), 2);
    let read = member.range(get(key)).await;
    assert_eq!(
        (revision(&read.header), read.count, read.more),
        (2, 1, false)
    );
    let kv = &read.kvs[0];
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 2, 1));
}

#[tokio::test]
async fn a_conflict_answers_with_the_winner() {
    let member = Member::start().await;
    let key = "/registry/pods/a/x";
    member.create(key, "1").await;
    assert_eq!(revision(&member.update(key, "2", 2).await.header), 3);
    for lost in [
        member.update(key, "3", 2).await,
        member.delete(key, 2).await,
    ] {
        assert!(!lost.succeeded);
        assert_eq!(revision(&lost.header), 3);
        let kv = &read_of(&lost).kvs[0];
        assert_eq!(&kv.value[..], b"2");
        assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 3, 2));
    }
}

#[tokio::test]
async fn a_deleted_key_begins_a_new_life() {
    let member = Member::start().await;
    let key = "/registry/pods/a/x";
    member.create(key, "1").await;
    member.update(key, "2", 2).await;
    let gone = member.delete(key, 3).await;
    assert!(gone.succeeded);
    assert_eq!(revision(&gone.header), 4);
    let Some(pb::response_op::Response::ResponseDeleteRange(deleted)) = &gone.responses[0].response
    else {
        panic!("a delete answer was due");
    };
    assert_eq!(deleted.deleted, 1);
    let late = member.update(key, "z", 3).await;
    assert!(!late.succeeded && read_of(&late).kvs.is_empty());
    assert_eq!(revision(&late.header), 4);
    assert_eq!(revision(&member.create(key, "n").await.header), 5);
    let kv = member.range(get(key)).await.kvs.remove(0);
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (5, 5, 1));
    let born = member.update("/registry/pods/a/y", "q", 0).await;
    assert!(born.succeeded);
    assert_eq!(revision(&born.header), 6);
}

#[tokio::test]
async fn each_of_a_thousand_writes_answers_its_own_revision() {
    let member = std::sync::Arc::new(Member::start().await);
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..1000 {
        let member = std::sync::Arc::clone(&member);
        writes.spawn(async move {
            let key = format!("/registry/pods/a/{n}");
            let at = revision(&member.create(&key, "v").await.header);
            (key, at)
        });
    }
    let mut answered = writes.join_all().await;
    answered.sort_by_key(|(_, at)| *at);
    for ((key, at), expected) in answered.iter().zip(2..) {
        assert_eq!(*at, expected, "revisions are dense");
        assert_eq!(member.range(get(key)).await.kvs[0].mod_revision, *at);
    }
}

#[tokio::test]
async fn revisions_outside_history_are_refused_with_etcds_texts() {
    let member = Member::start().await;
    for n in 2..=10 {
        assert_eq!(member.put("/k", &n.to_string()).await, n);
    }
    member.compact(5).await.unwrap();
    let read_at = async |revision| {
        member
            .kv()
            .range(pb::RangeRequest {
                revision,
                ..get("/k")
            })
            .await
    };
    assert_refused(read_at(11).await, Code::OutOfRange, FUTURE);
    assert_refused(read_at(4).await, Code::OutOfRange, COMPACTED);
    let floor = read_at(5).await.unwrap().into_inner();
    assert_eq!(&floor.kvs[0].value[..], b"5");
    assert_eq!(revision(&floor.header), 10);
    assert_refused(member.compact(5).await, Code::OutOfRange, COMPACTED);
    assert_refused(member.compact(11).await, Code::OutOfRange, FUTURE);
    assert_eq!(member.compact(10).await.unwrap(), 10);
}

#[tokio::test]
async fn options_of_a_read() {
    let member = Member::start().await;
    for (key, value) in [("a", "3"), ("b", "1"), ("c", "2"), ("a", "4")] {
        member.put(key, value).await;
    }
    let all = || pb::RangeRequest {
        key: text("\0"),
        range_end: text("\0"),
        ..Default::default()
    };
    let keys = async |request: pb::RangeRequest| {
        let read = member.range(request).await;
        read.kvs
            .iter()
            .map(|kv| String::from_utf8_lossy(&kv.key).into_owned())
            .collect::<String>()
    };
    use pb::range_request::{SortOrder, SortTarget};
    let sorted = |target: SortTarget, order: SortOrder| pb::RangeRequest {
        sort_target: target.into(),
        sort_order: order.into(),
        ..all()
    };
    assert_eq!(keys(all()).await, "abc");
    assert_eq!(
        keys(sorted(SortTarget::Key, SortOrder::Descend)).await,
        "cba"
    );
    assert_eq!(
        keys(sorted(SortTarget::Value, SortOrder::Ascend)).await,
        "bca"
    );
    assert_eq!(keys(sorted(SortTarget::Mod, SortOrder::None)).await, "bca");
    assert_eq!(
        keys(sorted(SortTarget::Version, SortOrder::Descend)).await,
        "abc"
    );
    assert_eq!(
        keys(pb::RangeRequest {
            max_create_revision: 2,
            ..all()
        })
        .await,
        "a"
    );
    assert_eq!(
        keys(pb::RangeRequest {
            min_mod_revision: 4,
            ..all()
        })
        .await,
        "ac"
    );
    let oldest = pb::RangeRequest {
        limit: 1,
        ..sorted(SortTarget::Create, SortOrder::Descend)
    };
    assert_eq!(keys(oldest).await, "c");
    let from = pb::RangeRequest {
        key: text("b"),
        range_end: text("\0"),
        ..Default::default()
    };
    assert_eq!(keys(from).await, "bc");
    let backwards = pb::RangeRequest {
        key: text("c"),
        range_end: text("a"),
        ..Default::default()
    };
    assert_eq!(member.range(backwards).await.count, 0);
    let bare = member
        .range(pb::RangeRequest {
            keys_only: true,
            ..all()
        })
        .await;
    assert!(
        bare.kvs
            .iter()
            .all(|kv| kv.value.is_empty() && kv.mod_revision > 0)
    );
    let count = member
        .range(pb::RangeRequest {
            count_only: true,
            ..all()
        })
        .await;
    assert_eq!((count.count, count.kvs.len(), count.more), (3, 0, false));
    let unknown_sort = pb::RangeRequest {
        sort_target: 9,
        ..all()
    };
    let outcome = member.kv().range(unknown_sort).await;
    assert_refused(
        outcome,
        Code::InvalidArgument,
        "etcdserver: invalid sort option",
    );
    let outcome = member.kv().range(pb::RangeRequest::default()).await;
    assert_refused(
        outcome,
        Code::InvalidArgument,
        "etcdserver: key is not provided",
    );
}

#[tokio::test]
async fn options_of_a_put() {
    let member = Member::start().await;
    let put = async |request: pb::PutRequest| member.kv().put(request).await;
    let of = |value: &str| pb::PutRequest {
        key: text("k"),
        value: text(value),
        ..Default::default()
    };
    let ignore_value = pb::PutRequest {
        ignore_value: true,
        ..of("")
    };
    let outcome = put(ignore_value.clone()).await;
    assert_refused(outcome, Code::InvalidArgument, "etcdserver: key not found");
    assert_eq!(
        revision(&put(of("1")).await.unwrap().into_inner().header),
        2
    );
    let second = put(pb::PutRequest {
        prev_kv: true,
        ..of("2")
    })
    .await
    .unwrap()
    .into_inner();
    assert_eq!(&second.prev_kv.unwrap().value[..], b"1");
    put(ignore_value).await.unwrap();
    let kv = member.range(get("k")).await.kvs.remove(0);
    assert_eq!((&kv.value[..], kv.version), (&b"2"[..], 3));
    for (request, text) in [
        (pb::PutRequest::default(), "etcdserver: key is not provided"),
        (
            pb::PutRequest {
                ignore_value: true,
                ..of("x")
            },
            "etcdserver: value is provided",
        ),
        (
            pb::PutRequest {
                ignore_lease: true,
                lease: 7,
                ..of("x")
            },
            "etcdserver: lease is provided",
        ),
    ] {
        assert_refused(put(request).await, Code::InvalidArgument, text);
    }
    let large = pb::PutRequest {
        value: vec![b'v'; 1_600_000].into(),
        ..of("")
    };
    assert_refused(
        put(large).await,
        Code::InvalidArgument,
        "etcdserver: request is too large",
    );
    assert_eq!(
        revision(&member.range(get("k")).await.header),
        4,
        "refusals take no revision"
    );
}

#[tokio::test]
async fn a_delete_of_a_range_is_one_revision() {
    let member = Member::start().await;
    for key in ["a1", "a2", "b"] {
        member.put(key, "v").await;
    }
    let request = |prefix: &str| pb::DeleteRangeRequest {
        key: text(prefix),
        range_end: end_of(prefix),
        prev_kv: true,
    };
    let gone = member
        .kv()
        .delete_range(request("a"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (gone.deleted, gone.prev_kvs.len(), revision(&gone.header)),
        (2, 2, 5)
    );
    let none = member
        .kv()
        .delete_range(request("a"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (none.deleted, revision(&none.header)),
        (0, 5),
        "deleting nothing is no write"
    );
}
