//! Lists in pages and in streams: whatever happens meanwhile, they are of one revision.

use tonic::{Code, Status};

use super::fixture::*;
use sluice_metastore::etcd::client::etcdserverpb as pb;

const PREFIX: &str = "/registry/pods/";

async fn filled(keys: usize) -> Member {
    let member = Member::start().await;
    for n in 0..keys {
        member
            .put(&format!("{PREFIX}{n:05}"), &format!("value {n}"))
            .await;
    }
    member
}

fn page(start: &[u8], limit: i64, revision: i64) -> pb::RangeRequest {
    pb::RangeRequest {
        key: start.to_vec().into(),
        limit,
        revision,
        ..list(PREFIX)
    }
}

fn after(answer: &pb::RangeResponse) -> Vec<u8> {
    let mut key = answer.kvs.last().unwrap().key.to_vec();
    key.push(0);
    key
}

#[tokio::test]
async fn pages_stay_at_the_revision_of_the_first() {
    let member = filled(1200).await;
    let first = member.range(page(PREFIX.as_bytes(), 500, 0)).await;
    assert_eq!(
        (first.kvs.len(), first.count, first.more),
        (500, 1200, true)
    );
    assert_eq!(revision(&first.header), 1201);

    let gone = pb::DeleteRangeRequest {
        key: text("/registry/pods/00600"),
        ..Default::default()
    };
    member.kv().delete_range(gone).await.unwrap();
    member.put("/registry/pods/00000a", "new").await;
    member.put("/registry/pods/00000b", "new").await;

    let second = member.range(page(&after(&first), 500, 1201)).await;
    assert_eq!(
        (second.kvs.len(), second.count, second.more),
        (500, 700, true)
    );
    assert_eq!(revision(&second.header), 1204, "the header is about now");
    assert!(second.kvs.iter().any(|kv| kv.key == "/registry/pods/00600"));
    let third = member.range(page(&after(&second), 500, 1201)).await;
    assert_eq!(
        (third.kvs.len(), third.count, third.more),
        (200, 200, false)
    );

    let count = async |revision| {
        let request = pb::RangeRequest {
            count_only: true,
            revision,
            ..list(PREFIX)
        };
        member.range(request).await.count
    };
    assert_eq!((count(0).await, count(1201).await), (1201, 1200));
}

async fn streamed(
    member: &Member,
    request: pb::RangeRequest,
) -> Result<Vec<pb::RangeResponse>, Status> {
    let mut chunks = member.kv().range_stream(request).await?.into_inner();
    let mut read = Vec::new();
    while let Some(chunk) = chunks.message().await? {
        read.push(
            chunk
                .range_response
                .expect("a chunk carries a part of the answer"),
        );
    }
    Ok(read)
}

#[tokio::test]
async fn a_streamed_list_is_the_unary_one_in_parts() {
    let member = filled(1000).await;
    member.put("/elsewhere", "v").await;
    for (limit, revision) in [(0, 0), (300, 0), (7, 0), (0, 500)] {
        let request = pb::RangeRequest {
            limit,
            revision,
            ..list(PREFIX)
        };
        let whole = member.range(request.clone()).await;
        let parts = streamed(&member, request).await.unwrap();
        let (last, others) = parts.split_last().unwrap();
        assert!(
            others.iter().all(|part| part.header.is_none()
                && !part.kvs.is_empty()
                && part.count == 0
                && !part.more),
            "only the last part says how the list ends"
        );
        assert_eq!((last.count, last.more), (whole.count, whole.more));
        assert_eq!(last.header, whole.header);
        let joined: Vec<_> = parts.iter().flat_map(|part| part.kvs.clone()).collect();
        assert_eq!(joined, whole.kvs, "limit {limit} at {revision}");
        if limit == 0 {
            assert!(others.len() >= 2, "a long list comes in several parts");
        }
    }
    let counted = pb::RangeRequest {
        count_only: true,
        ..list(PREFIX)
    };
    let parts = streamed(&member, counted).await.unwrap();
    assert_eq!(
        (parts.len(), parts[0].count, parts[0].kvs.len()),
        (1, 1000, 0)
    );
    let nothing = streamed(&member, list("/nothing/")).await.unwrap();
    assert_eq!((nothing.len(), revision(&nothing[0].header)), (1, 1002));
}

#[tokio::test]
async fn what_a_stream_cannot_do_is_unimplemented() {
    let member = filled(1).await;
    let sorted = pb::RangeRequest {
        sort_order: 2,
        ..list(PREFIX)
    };
    let text = "RangeStream does not support custom sort orders";
    assert_refused(streamed(&member, sorted).await, Code::Unimplemented, text);
    let bounded = pb::RangeRequest {
        min_mod_revision: 1,
        ..list(PREFIX)
    };
    let text = "RangeStream does not support revision filters";
    assert_refused(streamed(&member, bounded).await, Code::Unimplemented, text);
    let future = pb::RangeRequest {
        revision: 99,
        ..list(PREFIX)
    };
    let text = "etcdserver: mvcc: required revision is a future revision";
    assert_refused(streamed(&member, future).await, Code::OutOfRange, text);
}

/// etcd takes a field without an order for ascending; within one answer that can be kept.
#[tokio::test]
async fn a_field_without_an_order_sorts_a_stream_as_it_sorts_a_list() {
    let member = Member::start().await;
    for n in 0..40 {
        member
            .put(&format!("{PREFIX}{n:02}"), &format!("{:02}", 39 - n))
            .await;
    }
    for limit in [0, 15] {
        let request = pb::RangeRequest {
            // By value.
            sort_target: 4,
            limit,
            ..list(PREFIX)
        };
        let whole = member.range(request.clone()).await;
        assert_eq!(whole.kvs[0].value, b"00".as_slice());
        let parts = streamed(&member, request).await.unwrap();
        assert_eq!(parts, [whole], "limit {limit}");
    }
}

/// The list is made as the client takes it, so most of it is still unread when the first part is.
#[tokio::test]
async fn a_stream_ends_with_the_compacted_error_and_never_short() {
    let member = Member::start().await;
    let value = "v".repeat(20_000);
    for n in 0..1500 {
        member.put(&format!("{PREFIX}{n:05}"), &value).await;
    }
    let mut chunks = member
        .kv()
        .range_stream(list(PREFIX))
        .await
        .unwrap()
        .into_inner();
    let first = chunks
        .message()
        .await
        .unwrap()
        .unwrap()
        .range_response
        .unwrap();
    assert!(first.header.is_none());
    let now = member.put("/elsewhere", "v").await;
    member.compact(now).await.unwrap();
    let end = loop {
        match chunks.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("30 MB of list cannot have fitted the client's windows"),
            Err(status) => break status,
        }
    };
    assert_eq!(
        end.message(),
        "etcdserver: mvcc: required revision has been compacted"
    );
}
