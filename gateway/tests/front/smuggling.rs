//! Requests that two readers may see differently: each is refused or its connection is closed, and
//! nothing of it reaches the upstream.
//!
//! HTTP/1.1 over raw sockets, with a second request behind the first that would be somebody else's
//! if it were read; and HTTP/2 frame by frame, where what HTTP/1.1 cannot carry must not be written
//! out by whoever speaks it behind.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fake::{Fake, Options, answer, content, fine, script};
use crate::frames::{self, Came, DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, RST_STREAM};
use crate::rig::{Rig, until};

/// What comes behind each first request, and must never be read as a request.
const SECOND: &str = "GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// All that a connection answers before it ends.
async fn answers(rig: &Rig, bytes: &[u8]) -> String {
    let mut stream = rig.tls(&[b"http/1.1"]).await;
    // It may be closed while this is still being written.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = async { while let Ok(1..) = stream.read_buf(&mut answer).await {} };
    let ended = tokio::time::timeout(Duration::from_secs(5), read).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(ended.is_ok(), "open after {bytes:?} and {text:?}");
    text
}

#[tokio::test]
async fn what_http1_may_mean_twice_is_refused() {
    let fake = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([fake.url()]).await;
    let get = |fields: &str| format!("GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    let post = |fields: &str, content: &str| {
        format!("POST /api/v1/pods HTTP/1.1\r\nHost: x\r\n{fields}\r\n{content}")
    };
    for first in [
        // Lengths beside chunks, either first, and lengths that differ or are none.
        post(
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
        ),
        post(
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "0\r\n\r\n",
        ),
        post("Content-Length: 0\r\nContent-Length: 5\r\n", ""),
        post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
        post("Content-Length: 5, 5\r\n", "hello"),
        post("Content-Length: +5\r\n", "hello"),
        post("Content-Length: -1\r\n", ""),
        post("Content-Length: 0x5\r\n", "hello"),
        post("Content-Length: 5 5\r\n", "hello"),
        post("Content-Length:\r\n", ""),
        post("Content-Length: 99999999999999999999\r\n", ""),
        // Encodings that one reader knows and another does not.
        post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding: identity\r\n", ""),
        post(
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "0\r\n\r\n",
        ),
        post("Transfer-Encoding:\u{b}chunked\r\n", "0\r\n\r\n"),
        post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
        post(" Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        // Lines.
        get("Content-Length : 5\r\n"),
        get("A: b\r\n folded: c\r\n"),
        get("A: b\r\n\tfolded\r\n"),
        get("A: b\nContent-Length: 5\r\n"),
        get("A: b\rContent-Length: 5\r\n"),
        get("A: b\0c\r\n"),
        get("A b: c\r\n"),
        get("A(b): c\r\n"),
        get(": b\r\n"),
        get("A\r\n"),
        "GET /api/v1/pods HTTP/1.1\nHost: x\n\n".to_owned(),
        "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\n".to_owned(),
        "\r\n\r\n\r\nGET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        // First lines.
        "GET  /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        "GET /api/v1/pods /x HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        "GET\t/api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        "GET /api/v1/pods#f HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        "GET /api/v1/p\u{e4} HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        "GET /api/v1/pods\r\nHost: x\r\n\r\n".to_owned(),
        "GET /api/v1/pods HTTP/2.0\r\nHost: x\r\n\r\n".to_owned(),
        "GET /api/v1/pods HTTP/1.2\r\nHost: x\r\n\r\n".to_owned(),
        "G@T /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        // Hosts: none, two, another than the target's.
        "GET /api/v1/pods HTTP/1.1\r\nA: b\r\n\r\n".to_owned(),
        get("Host: y\r\n"),
        get("host: x\r\n"),
    ] {
        let text = answers(&rig, format!("{first}{SECOND}").as_bytes()).await;
        let heads = text.matches("HTTP/1.1 ").count();
        let is_refused = text.is_empty() || text.starts_with("HTTP/1.1 4");
        assert!(is_refused && heads <= 1, "{first:?} became {text:?}");
    }
    assert_eq!(fake.requests(), 0);
}

/// An upstream that reads what it is sent, and how many requests began and were whole.
async fn reader() -> (Fake, Arc<Mutex<(usize, usize)>>) {
    let whole = Arc::new(Mutex::new((0, 0)));
    let seen = Arc::clone(&whole);
    let act = move |mut exchange: crate::fake::Exchange| {
        let seen = Arc::clone(&seen);
        async move {
            content(&mut exchange.request).await;
            let is_whole = exchange.request.body().is_end_stream();
            {
                let mut seen = seen.lock();
                *seen = (seen.0 + 1, seen.1 + usize::from(is_whole));
            }
            answer(exchange, StatusCode::OK, "{}").await;
        }
    };
    (Fake::start(Options::default(), script(act)).await, whole)
}

/// Their heads were fine and may be under way; whoever serves them never sees them end.
#[tokio::test]
async fn chunks_that_may_end_in_two_places_are_never_whole() {
    let (fake, whole) = reader().await;
    let rig = Rig::of([fake.url()]).await;
    let chunked = |content: &str| {
        let head = "POST /api/v1/pods HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{head}{content}")
    };
    let length = SECOND.len();
    for first in [
        chunked("5;a=b\r\nhello\r\n0\r\n\r\n"),
        chunked("0x5\r\nhello\r\n0\r\n\r\n"),
        chunked(" 5\r\nhello\r\n0\r\n\r\n"),
        chunked("5 \r\nhello\r\n0\r\n\r\n"),
        chunked("5\nhello\r\n0\r\n\r\n"),
        chunked("5\r\nhello0\r\n\r\n"),
        chunked("5\r\nhello!\r\n0\r\n\r\n"),
        chunked("ffffffffffffffffff\r\nhello\r\n"),
        chunked("\r\n"),
        chunked("0\r\nContent-Length: 5\r\n\r\n"),
        chunked("0\r\nA: b\n\r\n"),
        chunked(&format!("{length:x}\r\n{SECOND}0\r\n\r\n")),
    ] {
        let text = answers(&rig, format!("{first}{SECOND}").as_bytes()).await;
        let heads = text.matches("HTTP/1.1 ").count();
        let is_refused = !text.starts_with("HTTP/1.1 2") && heads <= 1;
        assert!(is_refused, "{first:?} became {text:?}");
    }
    until(|| whole.lock().0 == fake.requests()).await;
    assert_eq!(whole.lock().1, 0);
}

#[tokio::test]
async fn a_target_with_another_host_is_refused_and_the_same_is_not() {
    let fake = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([fake.url()]).await;
    let close = "Connection: close\r\n\r\n";
    for (target, host, expected) in [
        ("http://a/api/v1/pods", "Host: b\r\n", "400"),
        ("http://a:1/api/v1/pods", "Host: a\r\n", "400"),
        ("http://u@a/api/v1/pods", "Host: a\r\n", "400"),
        ("http://A/api/v1/pods", "Host: a\r\n", "200"),
        ("/api/v1/pods", "Host: a\r\n", "200"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\n{host}{close}");
        let text = answers(&rig, request.as_bytes()).await;
        let status = format!("HTTP/1.1 {expected}");
        assert!(text.starts_with(&status), "{target} {host}: {text:?}");
    }
    assert_eq!(fake.requests(), 2);
}

/// What becomes of a stream: `ok`, another status' first byte, or a word for its end.
async fn verdict(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let reading = async {
        loop {
            let Some(Came { kind, content, .. }) = frames::next(stream).await else {
                return "closed".to_owned();
            };
            match (kind, content.first()) {
                (HEADERS, Some(0x88)) => return "ok".to_owned(),
                (HEADERS, Some(0x8c)) => return "400".to_owned(),
                (HEADERS, first) => return format!("status {first:?}"),
                (RST_STREAM, _) => return "reset".to_owned(),
                (GOAWAY, _) => return "goaway".to_owned(),
                _ => {}
            }
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(5), reading).await;
    in_time.unwrap_or_else(|_| "nothing".to_owned())
}

/// The head of a GET with one field replaced, and others after it.
fn get_but(swap: Option<(&str, &str)>, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = GET.map(|(name, value)| match swap {
        Some((swapped, new)) if swapped == name => (name, new.to_owned()),
        _ => (name, value.to_owned()),
    });
    let kept = fields.iter().filter(|(_, value)| value != "-");
    let mut bytes: Vec<u8> = kept.flat_map(|(name, v)| frames::field(name, v)).collect();
    bytes.extend(frames::block(more));
    bytes
}

#[tokio::test]
async fn what_http1_cannot_carry_does_not_come_out_of_http2() {
    let fake = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([fake.url()]).await;
    let reordered = frames::block(&[("a", "b"), (":method", "GET"), (":path", "/api/v1/pods")]);
    for (name, block) in [
        ("no method", get_but(Some((":method", "-")), &[])),
        ("no path", get_but(Some((":path", "-")), &[])),
        ("no scheme", get_but(Some((":scheme", "-")), &[])),
        ("empty path", get_but(Some((":path", "")), &[])),
        (
            "path without slash",
            get_but(Some((":path", "api/v1/pods")), &[]),
        ),
        (
            "path with a space",
            get_but(Some((":path", "/api/v1/pods HTTP/1.1")), &[]),
        ),
        (
            "path with CRLF",
            get_but(Some((":path", "/a\r\nA: b")), &[]),
        ),
        (
            "path of another host",
            get_but(Some((":path", "http://evil/a")), &[]),
        ),
        (
            "method with a space",
            get_but(Some((":method", "GET /x HTTP/1.1\r\nA:")), &[]),
        ),
        ("two paths", get_but(None, &[(":path", "/b")])),
        ("two methods", get_but(None, &[(":method", "POST")])),
        ("an unknown pseudo field", get_but(None, &[(":evil", "b")])),
        (
            "a response's pseudo field",
            get_but(None, &[(":status", "200")]),
        ),
        ("pseudo fields behind others", reordered),
        ("upper case", get_but(None, &[("A", "b")])),
        ("connection", get_but(None, &[("connection", "keep-alive")])),
        ("keep-alive", get_but(None, &[("keep-alive", "1")])),
        (
            "proxy-connection",
            get_but(None, &[("proxy-connection", "close")]),
        ),
        (
            "transfer-encoding",
            get_but(None, &[("transfer-encoding", "chunked")]),
        ),
        ("upgrade", get_but(None, &[("upgrade", "websocket")])),
        ("te", get_but(None, &[("te", "gzip")])),
        ("CRLF in a value", get_but(None, &[("a", "b\r\nc: d")])),
        ("LF in a value", get_but(None, &[("a", "b\nc: d")])),
        ("NUL in a value", get_but(None, &[("a", "b\0")])),
        ("CRLF in a name", get_but(None, &[("a: b\r\nc", "d")])),
        ("a colon in a name", get_but(None, &[("a:b", "c")])),
        ("a space in a name", get_but(None, &[("a b", "c")])),
        ("an empty name", get_but(None, &[("", "c")])),
        ("another host", get_but(None, &[("host", "evil")])),
        (
            "two hosts",
            get_but(None, &[("host", "localhost"), ("host", "localhost")]),
        ),
        (
            "a user in the authority",
            get_but(Some((":authority", "u@localhost")), &[]),
        ),
        (
            "a length and no content",
            get_but(None, &[("content-length", "5")]),
        ),
        (
            "a length that is none",
            get_but(None, &[("content-length", "+0")]),
        ),
        (
            "two lengths",
            get_but(None, &[("content-length", "0"), ("content-length", "5")]),
        ),
    ] {
        let mut stream = frames::connect(&rig).await;
        let head = frames::frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        stream.write_all(&head).await.unwrap();
        let verdict = verdict(&mut stream).await;
        let is_refused = ["400", "reset", "goaway", "closed"].contains(&verdict.as_str());
        assert!(is_refused, "{name}: {verdict}");
    }
    assert_eq!(fake.requests(), 0);
}

#[tokio::test]
async fn what_http2_says_in_its_own_way_passes_as_one_request() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let fake = Fake::start(
        Options::default(),
        script(move |exchange| {
            let head = exchange.request.headers().clone();
            seen.lock().push((exchange.request.uri().clone(), head));
            answer(exchange, StatusCode::OK, "{}")
        }),
    )
    .await;
    let rig = Rig::of([fake.url()]).await;
    for block in [
        get_but(None, &[("te", "trailers")]),
        get_but(None, &[("cookie", "a=1"), ("cookie", "b=2")]),
        get_but(None, &[("host", "localhost")]),
        get_but(Some((":path", "/api/v1/pods#f")), &[]),
    ] {
        let mut stream = frames::connect(&rig).await;
        let head = frames::frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        stream.write_all(&head).await.unwrap();
        assert_eq!(verdict(&mut stream).await, "ok");
    }
    let heads = heads.lock();
    assert_eq!(heads.len(), 4);
    let is_plain = |uri: &http::Uri| uri.path_and_query().unwrap() == "/api/v1/pods";
    assert!(heads.iter().all(|(uri, _)| is_plain(uri)), "{heads:?}");
    assert_eq!(heads[1].1.get_all("cookie").iter().count(), 2);
}

/// Its head was fine when it was passed on; whoever serves it never sees it end.
#[tokio::test]
async fn content_of_another_length_than_it_says_is_never_whole() {
    let (fake, whole) = reader().await;
    let rig = Rig::of([fake.url()]).await;
    for (length, sent) in [("5", "four"), ("3", "four"), ("0", "four")] {
        let mut stream = frames::connect(&rig).await;
        let block = get_but(Some((":method", "POST")), &[("content-length", length)]);
        let mut bytes = frames::frame(HEADERS, END_HEADERS, 1, &block);
        bytes.extend(frames::frame(DATA, END_STREAM, 1, sent.as_bytes()));
        stream.write_all(&bytes).await.unwrap();
        let verdict = verdict(&mut stream).await;
        let is_refused = ["400", "reset", "goaway", "closed"].contains(&verdict.as_str());
        assert!(is_refused, "{length} {sent}: {verdict}");
    }
    let begun = fake.requests();
    until(|| whole.lock().0 == begun).await;
    assert_eq!(whole.lock().1, 0);
}
