//! A connection over a pipe, driven as over a socket.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::sync::mpsc;
use tower::util::BoxCloneSyncService;

use super::super::driver::{Driver, Ended};
use super::super::orders::{Orders, Patience};
use super::{LIMITS, block, frame, get, open};
use crate::body::{Body, BodyError};
use crate::context::Connection;
use crate::http2::frames::{
    ACK, DATA, END_HEADERS, END_STREAM, HEAD_BYTES, HEADERS, Head, PING, PREFACE, RST_STREAM,
    SETTINGS, WINDOW_UPDATE,
};
use crate::listener::Handler;
use crate::listener::hurry::Hurry;

pub(super) const PATIENCE: Patience = Patience {
    first_request: Duration::from_secs(20),
    ping_interval: Duration::from_secs(20),
    ping_timeout: Duration::from_secs(20),
};

/// Answers with as many bytes as asked for, at once.
fn giving(bytes: usize) -> Handler {
    BoxCloneSyncService::new(tower::service_fn(move |_: Request<Body>| async move {
        Ok::<_, Infallible>(Response::new(Body::from(Bytes::from(vec![b'x'; bytes]))))
    }))
}

fn known() -> Arc<Connection> {
    let address = "127.0.0.1:1".parse().unwrap();
    Arc::new(Connection::new(address, address, Instant::now()))
}

/// A client's end of a pipe that holds `pipe` bytes, and how the connection ends.
pub(super) fn connect(
    pipe: usize,
    handler: Handler,
    patience: Patience,
) -> (DuplexStream, tokio::task::JoinHandle<Result<(), Ended>>) {
    let (near, far) = tokio::io::duplex(pipe);
    let orders = Orders::new(std::future::pending(), std::future::pending(), patience);
    let hurry = Hurry::new(100, Instant::now());
    let io = BufReader::new(near);
    let mut driver = Driver::new(io, LIMITS, handler, known(), orders, hurry);
    let driven = tokio::spawn(async move { poll_fn(|cx| driver.poll(cx)).await });
    (far, driven)
}

/// As [`connect`], and polled by the test alone.
fn held(pipe: usize, handler: Handler) -> (DuplexStream, Driver<'static, BufReader<DuplexStream>>) {
    let (near, far) = tokio::io::duplex(pipe);
    let orders = Orders::new(std::future::pending(), std::future::pending(), PATIENCE);
    let hurry = Hurry::new(100, Instant::now());
    let driver = Driver::new(
        BufReader::new(near),
        LIMITS,
        handler,
        known(),
        orders,
        hurry,
    );
    (far, driver)
}

pub(super) fn handler<F>(
    answer: impl Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
) -> Handler
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    BoxCloneSyncService::new(tower::service_fn(move |request| {
        answer(request).map(Ok::<_, Infallible>)
    }))
}

/// Says so when it is dropped.
struct Told(mpsc::UnboundedSender<&'static str>, &'static str);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send(self.1).ok();
    }
}

async fn told(words: &mut mpsc::UnboundedReceiver<&'static str>) -> &'static str {
    let said = tokio::time::timeout(Duration::from_secs(20), words.recv()).await;
    said.expect("it is said").expect("somebody lives")
}

fn hello() -> Vec<u8> {
    [PREFACE.as_slice(), &frame(SETTINGS, 0, 0, &[])].concat()
}

fn whole(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &get())
}

async fn next(stream: &mut (impl AsyncRead + Unpin)) -> (Head, Vec<u8>) {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await.unwrap();
    let head = Head::read(head);
    let mut content = vec![0; usize::try_from(head.length).unwrap()];
    stream.read_exact(&mut content).await.unwrap();
    (head, content)
}

async fn until(stream: &mut (impl AsyncRead + Unpin), wanted: impl Fn(Head) -> bool) -> Vec<u8> {
    let reading = async {
        loop {
            let (head, content) = next(stream).await;
            if wanted(head) {
                return content;
            }
        }
    };
    let read = tokio::time::timeout(Duration::from_secs(20), reading).await;
    read.expect("what is waited for comes")
}

/// Answers fill what may wait to be written, and are read a little or a lot at a time: whatever was
/// not listened to meanwhile is heard afterwards.
#[tokio::test]
async fn clients_that_read_late_are_heard_in_the_end() {
    for pipe in [1024, 100_000, 1 << 17, 1 << 20] {
        let (client, _driven) = connect(pipe, giving(100_000), PATIENCE);
        let mut client = BufReader::with_capacity(1 << 20, client);
        let wide = frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        let more = frame(WINDOW_UPDATE, 0, 0, &[0x70, 0, 0, 0]);
        let hello = [PREFACE.as_slice(), &wide, &more].concat();
        client.write_all(&hello).await.unwrap();
        for round in 0..20 {
            for place in 0..4 {
                client
                    .write_all(&whole(2 * (4 * round + place) + 1))
                    .await
                    .unwrap();
            }
            // Until there is nothing more that it could do but wait for its client.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            for _ in 0..4 {
                let is_end = |head: Head| head.kind == DATA && head.has(END_STREAM);
                until(&mut client, is_end).await;
            }
        }
    }
}

/// More waits to be written than lets us read, and then all of it goes out at once.
#[tokio::test]
async fn what_came_while_too_much_waited_is_read_once_it_is_gone() {
    const HEAD: usize = 35_000;
    let handler = BoxCloneSyncService::new(tower::service_fn(|_: Request<Body>| async {
        let response = Response::builder().header("a", "x".repeat(HEAD));
        Ok::<_, Infallible>(response.body(Body::Empty).unwrap())
    }));
    // Half of four heads, and a little.
    let (client, _driven) = connect(2 * HEAD + 2_000, handler, PATIENCE);
    let mut client = BufReader::with_capacity(1 << 20, client);
    client.write_all(&hello()).await.unwrap();
    let four: Vec<u8> = (0..4).flat_map(|it| whole(2 * it + 1)).collect();
    for bytes in [four, whole(9)] {
        client.write_all(&bytes).await.unwrap();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    until(&mut client, |head| head.stream == 9).await;
}

/// Streams without a window that are given up leave no trace in the lines of those who wait.
#[tokio::test]
async fn waiters_that_are_reset_do_not_wait_for_ever() {
    let (mut client, driven) = connect(1 << 16, giving(100), PATIENCE);
    let closed = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    client
        .write_all(&[PREFACE.as_slice(), &closed].concat())
        .await
        .unwrap();
    for number in 0..1000 {
        let id = 2 * number + 1;
        client.write_all(&whole(id)).await.unwrap();
        until(&mut client, |head| {
            head.kind == HEADERS && head.stream == id
        })
        .await;
        let reset = frame(RST_STREAM, 0, id, &[0, 0, 0, 8]);
        client.write_all(&reset).await.unwrap();
    }
    let open = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]);
    client
        .write_all(&[open, whole(2001)].concat())
        .await
        .unwrap();
    let content = until(&mut client, |head| head.kind == DATA && head.stream == 2001).await;
    assert_eq!(content.len(), 100);
    assert!(!driven.is_finished());
}

#[tokio::test]
async fn silence_ends_a_connection_and_a_sign_of_life_does_not() {
    let short = Duration::from_millis(50);
    let hasty = Patience {
        first_request: short,
        ..PATIENCE
    };
    let (_client, driven) = connect(1 << 16, giving(1), hasty);
    assert!(matches!(driven.await.unwrap(), Err(Ended::Unasked)));

    let pinging = Patience {
        ping_interval: short,
        ..PATIENCE
    };
    let (mut client, driven) = connect(1 << 16, giving(1), pinging);
    client
        .write_all(&[hello(), whole(1)].concat())
        .await
        .unwrap();
    let said = until(&mut client, |head| head.kind == PING).await;
    client.write_all(&frame(PING, 1, 0, &said)).await.unwrap();
    assert!(!driven.is_finished());

    let dead = Patience {
        ping_interval: short,
        ping_timeout: short,
        ..PATIENCE
    };
    let (mut client, driven) = connect(1 << 16, giving(1), dead);
    client
        .write_all(&[hello(), whole(1)].concat())
        .await
        .unwrap();
    assert!(matches!(driven.await.unwrap(), Err(Ended::Silent)));
}

/// A client that always leaves some answers unread.
#[tokio::test]
async fn what_was_written_is_not_kept_for_those_who_always_read_late() {
    let (mut client, mut driver) = held(1024, giving(0));
    client.write_all(&hello()).await.unwrap();
    let mut turn = async || {
        let polled = poll_fn(|cx| std::task::Poll::Ready(driver.poll(cx))).await;
        assert!(polled.is_pending(), "it goes on");
        driver.kept()
    };
    turn().await;
    for (head, _) in [next(&mut client).await, next(&mut client).await] {
        assert!(head.stream == 0, "settings and window");
    }
    let mut most = 0;
    for number in 0..5000 {
        client.write_all(&whole(2 * number + 1)).await.unwrap();
        most = most.max(turn().await);
        if number >= 100 {
            next(&mut client).await;
        }
    }
    assert!((1024..32_000).contains(&most), "{most}");
}

/// A content that is ready for ever and gives nothing: others on the thread, and on the connection,
/// get their turns.
#[tokio::test]
async fn contents_that_give_nothing_for_ever_leave_room_for_others() {
    let handler = handler(|request| async move {
        if request.method() == Method::POST {
            return Response::new(Body::from(Bytes::from("here")));
        }
        let nothing = || Some((Ok::<_, BodyError>(Frame::data(Bytes::new())), ()));
        let nothing = futures_util::stream::unfold((), move |()| std::future::ready(nothing()));
        Response::new(Body::boxed(StreamBody::new(nothing)))
    });
    let (mut client, _driven) = connect(1 << 16, handler, PATIENCE);
    let post = block(&[(":method", "POST"), (":scheme", "https"), (":path", "/")]);
    let post = frame(HEADERS, END_HEADERS | END_STREAM, 3, &post);
    client
        .write_all(&[hello(), whole(1), post].concat())
        .await
        .unwrap();
    until(&mut client, |head| head.kind == DATA && head.stream == 3).await;
}

#[tokio::test]
async fn requests_that_are_reset_are_given_up_and_so_are_their_contents() {
    let (words, mut heard) = mpsc::unbounded_channel();
    let handler = handler(move |request| {
        let words = words.clone();
        async move {
            let told = Told(words.clone(), "dropped");
            // As a client of an upstream does, which reads the content in a task of its own.
            tokio::spawn(async move {
                let broken = request.into_body().collect().await.is_err();
                words.send(if broken { "broken" } else { "whole" }).ok();
            });
            std::future::pending::<()>().await;
            drop(told);
            Response::new(Body::Empty)
        }
    });
    for is_reset in [true, false] {
        let (mut client, driven) = connect(1 << 16, handler.clone(), PATIENCE);
        let begun = [hello(), open(1), frame(DATA, 0, 1, b"some")].concat();
        client.write_all(&begun).await.unwrap();
        until(&mut client, |head| head.kind == SETTINGS && head.has(ACK)).await;
        if is_reset {
            let reset = frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]);
            client.write_all(&reset).await.unwrap();
        } else {
            drop(client);
        }
        let mut both = [told(&mut heard).await, told(&mut heard).await];
        both.sort_unstable();
        assert_eq!(both, ["broken", "dropped"]);
        assert_eq!(driven.is_finished(), !is_reset);
    }
}

/// A request that takes its turn's whole time makes the next ones go into tasks of their own; they
/// are answered, and given up, as others are.
#[tokio::test]
async fn long_turns_give_requests_tasks_of_their_own() {
    let (words, mut heard) = mpsc::unbounded_channel();
    let (tasks, mut ran) = mpsc::unbounded_channel();
    let handler = handler(move |request| {
        let (words, tasks) = (words.clone(), tasks.clone());
        async move {
            tasks.send(tokio::task::id()).unwrap();
            let told = Told(words, "dropped");
            if request.method() == Method::POST {
                std::future::pending::<()>().await;
            }
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(2) {}
            std::mem::forget(told);
            Response::new(Body::from(Bytes::from("made")))
        }
    });
    let (mut client, driven) = connect(1 << 16, handler, PATIENCE);
    client
        .write_all(&[hello(), whole(1)].concat())
        .await
        .unwrap();
    until(&mut client, |head| head.kind == DATA && head.stream == 1).await;
    assert_eq!(ran.recv().await, Some(driven.id()), "the connection's own");
    client.write_all(&whole(3)).await.unwrap();
    until(&mut client, |head| head.kind == DATA && head.stream == 3).await;
    assert_ne!(ran.recv().await, Some(driven.id()), "one of its own");
    let post = block(&[(":method", "POST"), (":scheme", "https"), (":path", "/")]);
    let post = frame(HEADERS, END_HEADERS, 5, &post);
    client.write_all(&post).await.unwrap();
    assert_ne!(ran.recv().await, Some(driven.id()), "one of its own");
    let reset = frame(RST_STREAM, 0, 5, &[0, 0, 0, 8]);
    client.write_all(&reset).await.unwrap();
    assert_eq!(told(&mut heard).await, "dropped");
}

/// Who asks for a head gets no content, nor does who is told that there is none; and nothing comes
/// before an answer.
#[tokio::test]
async fn answers_that_may_have_no_content_have_none() {
    for (method, status, expected) in [
        ("GET", 200, "head, data end"),
        ("HEAD", 200, "head end"),
        ("HEAD", 404, "head end"),
        ("GET", 204, "head end"),
        ("GET", 304, "head end"),
        ("GET", 101, "reset 2"),
    ] {
        let handler = handler(move |_| async move {
            let content = Body::from(Bytes::from("content"));
            let mut response = Response::new(content);
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        });
        let (mut client, _driven) = connect(1 << 16, handler, PATIENCE);
        let ask = block(&[(":method", method), (":scheme", "https"), (":path", "/")]);
        let ask = frame(HEADERS, END_HEADERS | END_STREAM, 1, &ask);
        let ping = frame(PING, 0, 0, &[1; 8]);
        client.write_all(&[hello(), ask].concat()).await.unwrap();
        let mut said = Vec::new();
        loop {
            let (head, content) = next(&mut client).await;
            let end = if head.has(END_STREAM) { " end" } else { "" };
            match head.kind {
                SETTINGS if head.has(ACK) => client.write_all(&ping).await.unwrap(),
                HEADERS => said.push(format!("head{end}")),
                DATA => said.push(format!("data{end}")),
                RST_STREAM => said.push(format!("reset {}", content[3])),
                PING => break,
                _ => {}
            }
        }
        assert_eq!(said.join(", "), expected, "{method} {status}");
    }
}
