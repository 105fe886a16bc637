//! Transactions in general: every compare, nesting, and what is refused.

use tonic::Code;

use super::fixture::*;
use pb::compare::{CompareResult as Is, CompareTarget, TargetUnion};
use pb::request_op::Request as Op;
use pb::response_op::Response as Answer;
use sluice_metastore::etcd::client::etcdserverpb as pb;

/// Key "k" stands at create 2, mod 3, version 2, value "b", no lease; "absent" does not exist.
async fn member() -> Member {
    let member = Member::start().await;
    member.put("k", "a").await;
    member.put("k", "b").await;
    member
}

fn compare(key: &str, result: Is, union: TargetUnion) -> pb::Compare {
    let target = match union {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    pb::Compare {
        key: text(key),
        result: result.into(),
        target: target.into(),
        target_union: Some(union),
        ..Default::default()
    }
}

#[tokio::test]
async fn every_target_and_relation() {
    let member = member().await;
    let holds = async |one: pb::Compare| {
        member
            .kv()
            .txn(txn(vec![one], vec![], vec![]))
            .await
            .unwrap()
            .into_inner()
            .succeeded
    };
    for (own, make) in [
        (2, TargetUnion::Version as fn(i64) -> TargetUnion),
        (2, TargetUnion::CreateRevision),
        (3, TargetUnion::ModRevision),
    ] {
        for (relation, given, expected) in [
            (Is::Equal, own, true),
            (Is::Equal, own + 1, false),
            (Is::NotEqual, own + 1, true),
            (Is::Greater, own - 1, true),
            (Is::Greater, own, false),
            (Is::Less, own + 1, true),
            (Is::Less, own, false),
        ] {
            assert_eq!(holds(compare("k", relation, make(given))).await, expected);
        }
        assert!(
            holds(compare("absent", Is::Equal, make(0))).await,
            "absent counts as zero"
        );
    }
    let value = |relation, text: &str| {
        compare(
            "k",
            relation,
            TargetUnion::Value(super::fixture::text(text)),
        )
    };
    assert!(holds(value(Is::Equal, "b")).await);
    assert!(holds(value(Is::Greater, "a")).await);
    assert!(holds(value(Is::Less, "c")).await);
    let absent = compare("absent", Is::NotEqual, TargetUnion::Value(text("x")));
    assert!(
        !holds(absent).await,
        "an absent key has no value to compare"
    );
    assert!(holds(compare("k", Is::Equal, TargetUnion::Lease(0))).await);
    assert!(!holds(compare("k", Is::Greater, TargetUnion::Lease(5))).await);
}

#[tokio::test]
async fn a_compare_over_a_range_holds_for_every_key() {
    let member = member().await;
    member.put("k2", "c").await;
    let over = |revision| pb::Compare {
        range_end: end_of("k"),
        ..compare("k", Is::Less, TargetUnion::ModRevision(revision))
    };
    let holds = async |one| {
        member
            .kv()
            .txn(txn(vec![one], vec![], vec![]))
            .await
            .unwrap()
            .into_inner()
            .succeeded
    };
    assert!(holds(over(5)).await);
    assert!(!holds(over(4)).await);
}

#[tokio::test]
async fn nested_operations_see_each_other_and_share_one_revision() {
    let member = member().await;
    let inner = txn(
        vec![mod_is("n", 0)],
        vec![put_op("inner", "yes"), get_op("n")],
        vec![],
    );
    let request = txn(
        vec![],
        vec![
            put_op("n", "1"),
            op(Op::RequestTxn(inner)),
            delete_op("k"),
            get_op("inner"),
        ],
        vec![],
    );
    let answer = member.kv().txn(request).await.unwrap().into_inner();
    assert!(answer.succeeded);
    assert_eq!(revision(&answer.header), 4);
    let Some(Answer::ResponseTxn(nested)) = &answer.responses[1].response else {
        panic!()
    };
    assert!(
        nested.succeeded,
        "compares, nested ones too, are of the state before"
    );
    let Some(Answer::ResponseRange(read)) = &nested.responses[1].response else {
        panic!()
    };
    assert_eq!(
        (&read.kvs[0].value[..], read.kvs[0].mod_revision),
        (&b"1"[..], 4)
    );
    let Some(Answer::ResponseDeleteRange(gone)) = &answer.responses[2].response else {
        panic!()
    };
    assert_eq!(gone.deleted, 1);
    let Some(Answer::ResponseRange(read)) = &answer.responses[3].response else {
        panic!()
    };
    assert_eq!(read.count, 1);
    let all = member
        .range(pb::RangeRequest {
            range_end: text("\0"),
            ..get("\0")
        })
        .await;
    assert_eq!((all.count, revision(&all.header)), (2, 4));
    assert!(all.kvs.iter().all(|kv| kv.mod_revision == 4));
}

#[tokio::test]
async fn reads_alone_take_no_revision_and_keep_their_options() {
    let member = member().await;
    let bare = pb::RangeRequest {
        keys_only: true,
        ..get("k")
    };
    let count = pb::RangeRequest {
        count_only: true,
        ..get("k")
    };
    let request = txn(
        vec![],
        vec![op(Op::RequestRange(bare)), op(Op::RequestRange(count))],
        vec![],
    );
    let answer = member.kv().txn(request).await.unwrap().into_inner();
    assert_eq!(revision(&answer.header), 3);
    let kv = &read_of(&answer).kvs[0];
    assert_eq!((kv.value.len(), kv.version), (0, 2));
    let Some(Answer::ResponseRange(count)) = &answer.responses[1].response else {
        panic!()
    };
    assert_eq!((count.count, count.kvs.len()), (1, 0));
}

#[tokio::test]
async fn what_a_transaction_may_not_hold() {
    let member = member().await;
    let refused = async |request, text: &str| {
        assert_refused(member.kv().txn(request).await, Code::InvalidArgument, text);
    };
    let duplicate = "etcdserver: duplicate key given in txn request";
    refused(
        txn(vec![], vec![put_op("d", "1"), put_op("d", "2")], vec![]),
        duplicate,
    )
    .await;
    refused(
        txn(vec![], vec![put_op("d", "1"), delete_op("d")], vec![]),
        duplicate,
    )
    .await;
    let inner = || {
        op(Op::RequestTxn(txn(
            vec![],
            vec![put_op("d", "1")],
            vec![put_op("d", "2")],
        )))
    };
    refused(
        txn(vec![], vec![put_op("d", "1"), inner()], vec![]),
        duplicate,
    )
    .await;
    let either = txn(vec![], vec![inner()], vec![]);
    assert!(
        member.kv().txn(either).await.is_ok(),
        "branches that exclude each other may both put"
    );
    let many = vec![get_op("k"); 129];
    refused(
        txn(vec![], many, vec![]),
        "etcdserver: too many operations in txn request",
    )
    .await;
    let keyless = "etcdserver: key is not provided";
    refused(txn(vec![mod_is("", 0)], vec![], vec![]), keyless).await;
    refused(txn(vec![], vec![], vec![put_op("", "v")]), keyless).await;
    let empty = pb::RequestOp { request: None };
    refused(
        txn(vec![], vec![empty], vec![]),
        "etcdserver: key not found",
    )
    .await;
    let large = put_op("d", &"v".repeat(1_600_000));
    refused(
        txn(vec![], vec![large], vec![]),
        "etcdserver: request is too large",
    )
    .await;
    let leased = op(Op::RequestPut(pb::PutRequest {
        key: text("d"),
        lease: 12345,
        ..Default::default()
    }));
    let outcome = member
        .kv()
        .txn(txn(vec![], vec![put_op("e", "1"), leased], vec![]))
        .await;
    assert_refused(
        outcome,
        Code::NotFound,
        "etcdserver: requested lease not found",
    );
    assert_eq!(
        member.range(get("e")).await.count,
        0,
        "a refused transaction has no effect"
    );
}

/// How apiservers agree on who compacts: a put compared by version, whose loser learns the winner's.
#[tokio::test]
async fn a_compaction_claim_has_one_winner() {
    let member = Member::start().await;
    let key = "compact_rev_key";
    let claim = async |version, value: &str| {
        let seen = compare(key, Is::Equal, TargetUnion::Version(version));
        let request = txn(vec![seen], vec![put_op(key, value)], vec![get_op(key)]);
        member.kv().txn(request).await.unwrap().into_inner()
    };
    let began = revision(&member.range(get(key)).await.header);
    let won = claim(0, "0").await;
    assert!(won.succeeded);
    let lost = claim(0, "0").await;
    assert!(!lost.succeeded);
    let seen = read_of(&lost);
    assert_eq!(
        (seen.kvs.len(), seen.kvs[0].version, &seen.kvs[0].value[..]),
        (1, 1, &b"0"[..])
    );

    let mut watching = member.watching().await;
    let watch = pb::WatchCreateRequest {
        key: text(key),
        start_revision: began,
        ..Default::default()
    };
    watching.create(watch).await;
    for n in 0..10 {
        member.put("/registry/pods/a/x", &n.to_string()).await;
    }
    let at = revision(&won.header);
    assert!(claim(1, &at.to_string()).await.succeeded);
    member.compact(at).await.unwrap();
    let values: Vec<i64> = watching
        .events(2)
        .await
        .iter()
        .map(|event| {
            let kv = event.kv.as_ref().unwrap();
            std::str::from_utf8(&kv.value).unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(values, [0, at]);
}
