//! Calls as bytes over HTTP/2: what a library would never send, and the forms it may choose.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request};
use prost::Message;
use sluice_metastore::engine::memory::{Gate, Memory, Script};
use sluice_metastore::etcd::EtcdOptions;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::*;

const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";

/// A bare HTTP/2 client.
pub(crate) async fn raw(member: &Member) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(member.address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client
}

/// What came back of a call.
#[derive(Debug)]
struct Answer {
    body: Bytes,
    /// Head and trailers together.
    headers: HeaderMap,
}

impl Answer {
    /// The code and the text behind it.
    fn status(&self) -> (i32, String) {
        let text = |name| {
            let value = self.headers.get(name);
            value.map_or("", |value| value.to_str().unwrap()).to_owned()
        };
        let code = text("grpc-status")
            .parse()
            .expect("every answer has a status");
        (code, decoded(&text("grpc-message")))
    }
}

/// Undoes the percent-encoding of a message.
fn decoded(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('%') {
        let (code, tail) = escaped.split_at(2);
        out.push_str(plain);
        out.push(char::from(u8::from_str_radix(code, 16).unwrap()));
        rest = tail;
    }
    out + rest
}

/// Calls `path` with a body that comes in these pieces, each after the one before has left.
async fn call(
    client: &SendRequest<Bytes>,
    path: &str,
    extra: &[(&'static str, &'static str)],
    pieces: Vec<Bytes>,
) -> Answer {
    let mut client = client.clone().ready().await.unwrap();
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://member{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in extra {
        request = request.header(*name, *value);
    }
    let (response, mut body) = client
        .send_request(request.body(()).unwrap(), false)
        .unwrap();
    for piece in pieces {
        let mut piece = piece;
        while !piece.is_empty() {
            body.reserve_capacity(piece.len());
            let granted = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
            // A server that refuses a call early takes no more of it.
            let Some(Ok(room)) = granted else { break };
            let part = piece.split_to(room.min(piece.len()));
            if body.send_data(part, false).is_err() {
                break;
            }
        }
        tokio::task::yield_now().await;
    }
    let _early = body.send_data(Bytes::new(), true);
    let response = response.await.unwrap();
    let mut headers = response.headers().clone();
    let mut stream = response.into_body();
    let mut read = BytesMut::new();
    while let Some(data) = stream.data().await {
        let data = data.unwrap();
        stream.flow_control().release_capacity(data.len()).unwrap();
        read.extend_from_slice(&data);
    }
    headers.extend(stream.trailers().await.unwrap().unwrap_or_default());
    Answer {
        body: read.freeze(),
        headers,
    }
}

pub(crate) fn frame(flag: u8, message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(flag);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

fn put(key: &str, value: &[u8]) -> Vec<u8> {
    let request = pb::PutRequest {
        key: text(key),
        value: Bytes::copy_from_slice(value),
        ..Default::default()
    };
    request.encode_to_vec()
}

async fn value_of(member: &Member, key: &str) -> Option<Bytes> {
    let answer = member.range(get(key)).await;
    answer.kvs.first().map(|kv| kv.value.clone())
}

#[tokio::test]
async fn a_body_may_come_in_any_pieces() {
    let member = Member::start().await;
    let client = raw(&member).await;
    let value = vec![b'v'; 100_000];
    let whole = frame(0, &put("k", &value));
    for size in [1000, 4, 70_000, whole.len()] {
        let mut pieces: Vec<Bytes> = vec![whole.slice(..3), whole.slice(3..5)];
        let mut left = whole.slice(5..);
        while !left.is_empty() && pieces.len() < 300 {
            pieces.push(left.split_to(size.min(left.len())));
        }
        pieces.push(left);
        let answer = call(&client, PUT, &[], pieces).await;
        assert_eq!(answer.status(), (0, String::new()), "pieces of {size}");
        assert_eq!(answer.headers["content-type"], "application/grpc");
        let response = pb::PutResponse::decode(answer.body.slice(5..)).unwrap();
        assert!(revision(&response.header) > 1);
        assert_eq!(value_of(&member, "k").await.unwrap(), value);
    }
}

/// What is no plain call gets the library's own refusal, on every hot path alike; only a message too
/// large to be read is refused in the words of etcd's library.
#[tokio::test]
async fn odd_calls_are_refused_as_by_the_library() {
    let member = Member::start().await;
    let client = raw(&member).await;
    let message = put("k", b"v");
    let gzip = &[("grpc-encoding", "gzip")][..];
    let too_long = frame(0, &put("k", &vec![0; 3 * 1024 * 1024]));
    let cut = frame(0, &message).slice(..9);
    let cases: [(&[_], Vec<Bytes>, i32, &str); 6] = [
        (
            gzip,
            vec![frame(1, &message)],
            12,
            "Content is compressed with `gzip` which isn't supported",
        ),
        (
            &[],
            vec![frame(1, &message)],
            13,
            "compressed-flag but no grpc-encoding",
        ),
        (
            &[],
            vec![frame(7, &message)],
            13,
            "invalid compression flag: 7",
        ),
        (&[], vec![], 13, "Missing request message."),
        (
            &[],
            vec![frame(0, b"\xff\xff\xff")],
            13,
            "failed to decode Protobuf message",
        ),
        (
            &[],
            vec![too_long],
            8,
            "grpc: received message larger than max (3145736 vs. 2097152)",
        ),
    ];
    for path in [PUT, RANGE, TXN, "/etcdserverpb.KV/DeleteRange"] {
        for (extra, pieces, code, part) in &cases {
            let answer = call(&client, path, extra, pieces.clone()).await;
            let (found, said) = answer.status();
            assert_eq!(found, *code, "{path}: {said}");
            assert!(said.contains(part), "{path}: {said}");
        }
        let answer = call(&client, path, &[], vec![cut.clone()]).await;
        assert_eq!(answer.status().0, 13, "{path}: {answer:?}");
    }
    assert_eq!(value_of(&member, "k").await, None, "nothing of it was done");
}

#[tokio::test]
async fn refusals_are_worded_as_etcds() {
    let member = Member::start().await;
    let client = raw(&member).await;
    let large = frame(0, &put("k", &vec![0; 1_600_000]));
    let answer = call(&client, PUT, &[], vec![large]).await;
    assert_eq!(
        answer.status(),
        (3, "etcdserver: request is too large".to_owned())
    );
    let answer = call(&client, PUT, &[], vec![frame(0, &put("", b"v"))]).await;
    assert_eq!(
        answer.status(),
        (3, "etcdserver: key is not provided".to_owned())
    );
    assert_eq!(answer.headers["content-type"], "application/grpc");
    let answer = call(
        &client,
        "/etcdserverpb.KV/Nothing",
        &[],
        vec![frame(0, b"")],
    )
    .await;
    assert_eq!(answer.status().0, 12);
}

/// A unary call has one message; libraries pass over what follows, and so does this.
#[tokio::test]
async fn what_follows_the_message_is_passed_over() {
    let member = Member::start().await;
    let client = raw(&member).await;
    let two = [frame(0, &put("k", b"one")), frame(0, &put("k", b"two"))];
    let answer = call(&client, PUT, &[], two.to_vec()).await;
    assert_eq!(answer.status().0, 0);
    assert_eq!(value_of(&member, "k").await.unwrap(), "one");
    let answer = call(&client, PUT, &[("grpc-encoding", "identity")], two.to_vec()).await;
    assert_eq!(answer.status().0, 0);
}

#[tokio::test]
async fn a_reset_call_leaves_the_others_alone() {
    let member = Member::start().await;
    let client = raw(&member).await;
    for n in 0..200 {
        let mut ready = client.clone().ready().await.unwrap();
        let request = Request::post(format!("http://member{PUT}"))
            .header("content-type", "application/grpc")
            .body(())
            .unwrap();
        let (_response, mut body) = ready.send_request(request, false).unwrap();
        let message = frame(0, &put(&format!("k{n}"), b"v"));
        // Half of them are taken back before they are whole, half while they are written.
        let sent = if n % 2 == 0 {
            message.slice(..4)
        } else {
            message
        };
        body.send_data(sent, n % 2 == 1).unwrap();
        body.send_reset(h2::Reason::CANCEL);
    }
    let answer = call(&client, PUT, &[], vec![frame(0, &put("last", b"v"))]).await;
    assert_eq!(answer.status().0, 0);
    assert_eq!(value_of(&member, "k0").await, None);
}

/// Opens a call and sends a body without ending it.
async fn unfinished(
    client: &SendRequest<Bytes>,
    path: &str,
    body: Bytes,
) -> h2::client::ResponseFuture {
    let mut ready = client.clone().ready().await.unwrap();
    let request = Request::post(format!("http://member{path}"))
        .header("content-type", "application/grpc")
        .body(())
        .unwrap();
    let (response, mut stream) = ready.send_request(request, false).unwrap();
    let mut left = body;
    while !left.is_empty() {
        stream.reserve_capacity(left.len());
        let granted = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let Some(Ok(room)) = granted else { break };
        let part = left.split_to(room.min(left.len()));
        if stream.send_data(part, false).is_err() {
            break;
        }
    }
    // Kept open: dropping it would take the call back.
    tokio::spawn(async move {
        let _reset = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
    });
    response
}

/// A client may open as many calls as it likes, but what they hold unfinished has an end: of those
/// answered here, and of those that go on to the library.
#[tokio::test]
async fn unfinished_bodies_of_a_connection_are_bounded() {
    for path in [PUT, "/etcdserverpb.KV/Compact"] {
        unfinished_bodies_are_bounded(path).await;
    }
}

async fn unfinished_bodies_are_bounded(path: &str) {
    const BODY: usize = 1_900_000;
    let member = Member::start().await;
    let client = raw(&member).await;
    let mut calls = Vec::new();
    let body = frame(0, &put("k", &vec![0; 2_000_000])).slice(..BODY);
    // Those that fit, and one more.
    for _ in 0..64 * 1024 * 1024 / BODY + 1 {
        calls.push(unfinished(&client, path, body.clone()).await);
    }
    let refused = tokio::time::timeout(PATIENCE, futures_util::future::select_all(calls)).await;
    let (answer, _, others) = refused.expect("one of them is refused");
    let headers = answer.unwrap().headers().clone();
    let answer = Answer {
        body: Bytes::new(),
        headers,
    };
    let text = "etcdserver: too many requests".to_owned();
    assert_eq!(answer.status(), (8, text));
    // Others on the same connection are served, and what is taken back makes room again.
    let answer = call(&client, PUT, &[], vec![frame(0, &put("k", b"v"))]).await;
    assert_eq!(answer.status().0, 0);
    drop(others);
}

/// A body that never ends is given up as a write that never ends is.
#[tokio::test]
async fn a_body_that_drips_is_given_up() {
    let member = Member::with_write_timeout(Duration::from_millis(50)).await;
    let client = raw(&member).await;
    let body = frame(0, &put("k", b"value")).slice(..8);
    let answer = tokio::time::timeout(PATIENCE, unfinished(&client, PUT, body).await).await;
    let headers = answer.expect("it is refused").unwrap().headers().clone();
    let answer = Answer {
        body: Bytes::new(),
        headers,
    };
    let text = "etcdserver: request timed out".to_owned();
    assert_eq!(answer.status(), (14, text));
}

/// The first bytes of an HTTP/2 client, and its empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A peer that vanished is asked and then given up; one that answers stays, however quiet.
#[tokio::test]
async fn a_silent_peer_is_given_up_and_a_quiet_one_is_not() {
    let member = Member::with_options(EtcdOptions {
        keepalive_interval: Some(Duration::from_millis(50)),
        keepalive_timeout: Duration::from_millis(500),
        ..plain()
    })
    .await;
    // Its connection answers pings, and it says nothing else.
    let quiet = raw(&member).await;
    let mut silent = TcpStream::connect(member.address).await.unwrap();
    silent.write_all(HELLO).await.unwrap();
    let mut heard = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut heard)).await;
    ended.expect("it is given up").unwrap();
    let is_ping = |frame: &[u8]| frame.starts_with(&[0, 0, 8, 6, 0]);
    assert!(heard.windows(9).any(is_ping), "it was asked first");
    let answer = call(&quiet, PUT, &[], vec![frame(0, &put("k", b"v"))]).await;
    assert_eq!(
        answer.status().0,
        0,
        "the quiet one was asked more than once by now"
    );
}

/// A pong waits for the answer to a write, to go out with it, and not longer than a moment.
#[tokio::test]
async fn a_write_that_waits_for_the_disk_holds_up_neither_reads_nor_pings() {
    let (engine, gate) = (Memory::new(), Gate::new());
    engine.script([Script::Slow(gate.clone()), Script::Durable]);
    let member = Member::with_engine(engine).await;
    let stream = TcpStream::connect(member.address).await.unwrap();
    let (client, mut connection) = h2::client::handshake(stream).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    let writer = client.clone();
    let written =
        tokio::spawn(async move { call(&writer, PUT, &[], vec![frame(0, &put("k", b"v"))]).await });
    let reached = gate.clone();
    tokio::task::spawn_blocking(move || reached.wait_reached())
        .await
        .unwrap();
    let pong = tokio::time::timeout(PATIENCE, pings.ping(h2::Ping::opaque())).await;
    pong.expect("the ping is answered").unwrap();
    let read = call(
        &client,
        RANGE,
        &[],
        vec![frame(0, &get("k").encode_to_vec())],
    );
    let read = tokio::time::timeout(PATIENCE, read).await.unwrap();
    assert_eq!(read.status().0, 0);
    assert!(!written.is_finished(), "it was not durable");
    gate.release();
    let written = tokio::time::timeout(PATIENCE, written).await.unwrap();
    assert_eq!(written.unwrap().status().0, 0);
    assert_eq!(value_of(&member, "k").await.as_deref(), Some(&b"v"[..]));
}

#[tokio::test]
async fn plain_paths_are_served_over_http2_too() {
    let member = Member::start().await;
    let mut client = raw(&member).await.ready().await.unwrap();
    let request = Request::get("http://member/health").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(
        response.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
    let mut body = response.into_body();
    let data = body.data().await.unwrap().unwrap();
    assert_eq!(data, r#"{"health":"true","reason":""}"#);
}
