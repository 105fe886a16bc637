//! Clients that mean harm, or are broken: what they can hold is bounded, and others are served
//! meanwhile and afterwards.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::join_all;
use h2::RecvStream;
use http::Request;
use prost::Message;
use sluice_metastore::etcd::EtcdOptions;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

use super::calls::{frame, raw};
use super::fixture::*;
use pb::watch_request::RequestUnion;

const MIB: usize = 1024 * 1024;

/// Asks for a range and reads nothing of the answer beyond its head.
async fn stalled(member: &Member, request: &pb::RangeRequest) -> RecvStream {
    let client = raw(member).await;
    let mut client = client.ready().await.unwrap();
    let request_head = Request::post("http://member/etcdserverpb.KV/Range")
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let (response, mut body) = client.send_request(request_head, false).unwrap();
    body.send_data(frame(0, &request.encode_to_vec()), true)
        .unwrap();
    response.await.unwrap().into_body()
}

/// Keys of a mebibyte each under `/large/`.
async fn fill(member: &Member, count: usize) {
    let value = "x".repeat(MIB);
    for n in 0..count {
        member.put(&format!("/large/{n:02}"), &value).await;
    }
}

#[tokio::test]
async fn answers_that_nobody_reads_give_their_room_to_those_who_do() {
    let member = Member::with_options(EtcdOptions {
        answer_bytes_max: 20 * MIB,
        ..plain()
    })
    .await;
    fill(&member, 8).await;
    let large = list("/large/");
    let (one, other) = (
        stalled(&member, &large).await,
        stalled(&member, &large).await,
    );
    // What is left does not take a third; small answers pass it.
    let begun = Instant::now();
    let mut kv = member.kv();
    let third = kv.range(large.clone());
    let small = async {
        for _ in 0..20 {
            assert_eq!(member.range(get("/large/00")).await.count, 1);
        }
        begun.elapsed()
    };
    let (third, small) = tokio::join!(third, small);
    let text = "etcdserver: too many requests";
    assert_refused(third, Code::ResourceExhausted, text);
    assert!(
        small < begun.elapsed(),
        "small reads do not wait for large ones"
    );
    // The overload ends by itself, though neither client reads nor goes.
    let answer = loop {
        match member.kv().range(large.clone()).await {
            Ok(answer) => break answer.into_inner(),
            Err(status) => assert_eq!(status.message(), text),
        }
        assert!(begun.elapsed() < PATIENCE, "the room comes back");
    };
    assert_eq!((answer.kvs.len(), answer.count), (8, 8));
    let mut cut = 0;
    for mut body in [one, other] {
        let outcome = loop {
            match body.data().await {
                Some(Ok(data)) => body.flow_control().release_capacity(data.len()).unwrap(),
                Some(Err(error)) => break Err(error),
                None => break Ok(()),
            }
        };
        cut += usize::from(outcome.is_err());
    }
    assert!(cut > 0, "one of them lost its answer for it");
}

#[tokio::test]
async fn a_transaction_of_many_large_reads_takes_room_too() {
    let member = Member::with_options(EtcdOptions {
        answer_bytes_max: 20 * MIB,
        ..plain()
    })
    .await;
    fill(&member, 8).await;
    let _stalled = (
        stalled(&member, &list("/large/")).await,
        stalled(&member, &list("/large/")).await,
    );
    let read = || op(pb::request_op::Request::RequestRange(list("/large/")));
    let reads = txn(vec![], vec![read(), read(), read()], vec![]);
    let refused = member.kv().txn(reads.clone()).await.unwrap_err();
    assert_eq!(refused.message(), "etcdserver: request timed out");
    drop(_stalled);
    let answer = member.kv().txn(reads).await.unwrap().into_inner();
    assert_eq!(answer.responses.len(), 3);
}

#[tokio::test]
async fn a_watch_that_is_not_read_holds_little_and_loses_nothing() {
    let member = Member::start().await;
    let client = raw(&member).await;
    let mut client = client.ready().await.unwrap();
    let head = Request::post("http://member/etcdserverpb.Watch/Watch")
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let (response, mut asks) = client.send_request(head, false).unwrap();
    let create = pb::WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(watch_prefix("/large/", 0))),
    };
    asks.send_data(frame(0, &create.encode_to_vec()), false)
        .unwrap();
    let mut body = response.await.unwrap().into_body();
    let created = body.data().await.unwrap().unwrap();
    assert!(!created.is_empty());
    let sent = async || {
        let mut stream = TcpStream::connect(member.address).await.unwrap();
        let ask = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        let name = "etcd_network_client_grpc_sent_bytes_total ";
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let count: usize = line.unwrap().parse().unwrap();
        count
    };
    let before = sent().await;
    fill(&member, 32).await;
    let after = sent().await;
    // The client's window is 64 KiB; the rest is answers to puts and pages of metrics.
    assert!(
        after - before < MIB,
        "{} bytes went to who does not read",
        after - before
    );
    body.flow_control().release_capacity(created.len()).unwrap();
    let mut read = BytesMut::new();
    let mut revisions = Vec::new();
    while revisions.len() < 32 {
        let data = tokio::time::timeout(PATIENCE, body.data()).await;
        let data = data.expect("events are due").unwrap().unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        read.extend_from_slice(&data);
        while let Some(message) = next_message(&mut read) {
            let response = pb::WatchResponse::decode(message).unwrap();
            let events = response.events.iter();
            revisions.extend(events.map(|event| event.kv.as_ref().unwrap().mod_revision));
        }
    }
    assert_eq!(revisions, (2..34).collect::<Vec<_>>());
}

/// The first whole message of a stream, taken off it.
fn next_message(read: &mut BytesMut) -> Option<Bytes> {
    let length = <[u8; 4]>::try_from(read.get(1..5)?).ok()?;
    let end = 5 + usize::try_from(u32::from_be_bytes(length)).ok()?;
    (read.len() >= end).then(|| read.split_to(end).freeze().slice(5..))
}

#[tokio::test]
async fn watches_on_one_stream_are_bounded_and_the_rest_go_on() {
    const WATCHES: usize = 16 * 1024;
    let member = Member::start().await;
    let mut watching = member.watching().await;
    let mut refused = 0;
    for n in 0..WATCHES + 100 {
        let key = format!("/w/{n}");
        let request = pb::WatchCreateRequest {
            key: text(&key),
            ..Default::default()
        };
        watching.send_create(request).await;
        let answer = watching.next().await;
        assert!(answer.created);
        if answer.canceled {
            refused += 1;
            let text = "sluice: too many watches on one stream: open another connection";
            assert_eq!(answer.cancel_reason, text);
        }
    }
    assert_eq!(refused, 100);
    member.put(&format!("/w/{}", WATCHES - 1), "v").await;
    assert_eq!(watching.events(1).await.len(), 1);
    // A cancelled one makes room.
    watching.cancel(0).await;
    assert!(watching.next().await.canceled);
    watching.create(watch_prefix("/x/", 0)).await;
}

#[tokio::test]
async fn transactions_nested_beyond_measure_are_refused() {
    let member = Member::start().await;
    // Built as bytes: a value so deep could not be dropped.
    let mut message = BytesMut::new();
    for _ in 0..20_000 {
        // TxnRequest.success = RequestOp { request_txn = message }
        let inner = lengthened(0x22, &message);
        message = lengthened(0x12, &inner);
        if message.len() > MIB {
            break;
        }
    }
    let mut client = raw(&member).await.ready().await.unwrap();
    let head = Request::post("http://member/etcdserverpb.KV/Txn")
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let (response, mut body) = client.send_request(head, false).unwrap();
    body.send_data(frame(0, &message), true).unwrap();
    let response = response.await.unwrap();
    assert_ne!(response.headers().get("grpc-status").unwrap(), "0");
    // As deep as a message is read, but with more operations than there may be.
    let mut deep = txn(vec![], vec![put_op("k", "v")], vec![]);
    for _ in 0..45 {
        let inner = pb::request_op::Request::RequestTxn(deep);
        deep = txn(vec![], vec![op(inner), get_op("a"), get_op("b")], vec![]);
    }
    let text = "etcdserver: too many operations in txn request";
    assert_refused(member.kv().txn(deep).await, Code::InvalidArgument, text);
    member.put("k", "v").await;
}

fn lengthened(tag: u8, message: &[u8]) -> BytesMut {
    let mut out = BytesMut::with_capacity(message.len() + 11);
    out.put_u8(tag);
    prost::encoding::encode_varint(message.len() as u64, &mut out);
    out.put_slice(message);
    out
}

#[tokio::test]
async fn numbers_beyond_all_sense_are_answered() {
    let member = Member::start().await;
    let revision = member.put("k", "v").await;
    for number in [i64::MIN, -1] {
        let request = pb::RangeRequest {
            limit: number,
            revision: number,
            min_mod_revision: number,
            ..list("k")
        };
        let answer = member.range(request).await;
        assert_eq!((answer.count, answer.kvs.len(), answer.more), (1, 1, false));
        let text = "etcdserver: mvcc: required revision has been compacted";
        assert_refused(member.compact(number).await, Code::OutOfRange, text);
        let never = txn(vec![mod_is("k", number)], vec![delete_op("k")], vec![]);
        assert!(!member.kv().txn(never).await.unwrap().into_inner().succeeded);
        let lease = pb::LeaseGrantRequest {
            ttl: number,
            id: number,
        };
        let granted = member
            .lease()
            .lease_grant(lease)
            .await
            .unwrap()
            .into_inner();
        assert!(granted.id == number && granted.ttl > 0, "{granted:?}");
        let mut watching = member.watching().await;
        watching.send_create(watch_prefix("k", number)).await;
        let answer = watching.next().await;
        assert!(answer.created && answer.canceled && answer.watch_id == -1);
    }
    let future = "etcdserver: mvcc: required revision is a future revision";
    for number in [revision + 1, i64::MAX] {
        let request = pb::RangeRequest {
            revision: number,
            ..get("k")
        };
        assert_refused(member.kv().range(request).await, Code::OutOfRange, future);
        assert_refused(member.compact(number).await, Code::OutOfRange, future);
        let hash = pb::HashKvRequest { revision: number };
        let outcome = member.maintenance().hash_kv(hash).await;
        assert_refused(outcome, Code::OutOfRange, future);
        let mut watching = member.watching().await;
        let answer = watching.create(watch_prefix("k", number)).await;
        assert!(!answer.canceled, "what is to come can be waited for");
        watching.nothing_before_now().await;
    }
    let greatest = pb::RangeRequest {
        limit: i64::MAX,
        min_mod_revision: i64::MAX,
        ..list("k")
    };
    assert_eq!(member.range(greatest).await.kvs.len(), 0);
    let long = pb::LeaseGrantRequest {
        ttl: i64::MAX,
        id: 1,
    };
    let text = "etcdserver: too large lease TTL";
    assert_refused(
        member.lease().lease_grant(long).await,
        Code::OutOfRange,
        text,
    );
    assert_eq!(
        member.put("k", "2").await,
        revision + 1,
        "none of it took a revision"
    );
}

#[tokio::test]
async fn a_flood_of_leases_holds_nobody_up() {
    let member = Member::start().await;
    let flood = (0..4000).map(|_| {
        let mut lease = member.lease();
        async move {
            let request = pb::LeaseGrantRequest { ttl: 3600, id: 0 };
            lease.lease_grant(request).await.unwrap().into_inner().id
        }
    });
    let meanwhile = async {
        for n in 0..20 {
            member.put("k", &n.to_string()).await;
        }
    };
    let (ids, ()) = tokio::join!(join_all(flood), meanwhile);
    let listed = member.lease().lease_leases(pb::LeaseLeasesRequest {}).await;
    assert_eq!(listed.unwrap().into_inner().leases.len(), 4000);
    let mut ids = ids;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4000);
}

#[tokio::test]
async fn clients_beyond_the_seats_wait_and_silent_ones_lose_theirs() {
    let member = Member::with_options(EtcdOptions {
        connections_max: 3,
        ..plain()
    })
    .await;
    // The fixture's own channel has one; these two say nothing, or half a greeting.
    let _silent = TcpStream::connect(member.address).await.unwrap();
    let mut half = TcpStream::connect(member.address).await.unwrap();
    half.write_all(b"PRI * HTTP/2").await.unwrap();
    let begun = Instant::now();
    member.put("k", "v").await;
    let waiting = connect(member.address).await;
    let mut kv = pb::kv_client::KvClient::new(waiting);
    let answer = tokio::time::timeout(PATIENCE, kv.range(get("k"))).await;
    assert_eq!(
        answer
            .expect("a seat comes free")
            .unwrap()
            .into_inner()
            .count,
        1
    );
    let waited = begun.elapsed();
    assert!(
        waited > Duration::from_secs(5),
        "it was let in after {waited:?}"
    );
    let mut rest = Vec::new();
    assert_eq!(
        half.read_to_end(&mut rest).await.unwrap_or(0),
        0,
        "it was closed"
    );
}
