//! A connection over a pipe, driven as over a socket, with an endpoint that is written by hand.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::time::Instant;

use super::super::driver::Ended;
use super::super::{Answer, Ask, Closed, Http2, Http2Driver, Outlet, StreamError, begin};
use super::{frame, goodbye, ok, reset, settings, whole};
use crate::http2::frames::{
    DATA, END_STREAM, GOAWAY, HEAD_BYTES, HEADERS, Head, PING, PREFACE, RST_STREAM,
};
use crate::upstream::io::Stream;

/// A connection that has begun, and the endpoint's end of it.
pub(super) async fn connect(pipe: usize) -> (Http2, Http2Driver, DuplexStream) {
    let (near, far) = tokio::io::duplex(pipe);
    let (sender, driver) = begin(Stream::Pipe(BufReader::new(near)));
    (sender, driver, far)
}

pub(super) async fn send(
    sender: &Http2,
    method: &Method,
    has_content: bool,
    deadline: Option<Instant>,
) -> Result<(Answer, Option<Outlet>), Closed> {
    let ask = Ask {
        method,
        is_tls: true,
        authority: &Authority::from_static("a"),
        path: &PathAndQuery::from_static("/p"),
        headers: &HeaderMap::new(),
        length: None,
    };
    poll_fn(|cx| sender.poll_send(&ask, has_content, deadline, cx)).await
}

async fn next(stream: &mut DuplexStream) -> (Head, Vec<u8>) {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await.unwrap();
    let head = Head::read(head);
    let mut content = vec![0; usize::try_from(head.length).unwrap()];
    stream.read_exact(&mut content).await.unwrap();
    (head, content)
}

async fn until(stream: &mut DuplexStream, kind: u8) -> (Head, Vec<u8>) {
    let reading = async {
        loop {
            let (head, content) = next(stream).await;
            if head.kind == kind {
                return (head, content);
            }
        }
    };
    let read = tokio::time::timeout(Duration::from_secs(20), reading).await;
    read.expect("what is waited for comes")
}

async fn hello(stream: &mut DuplexStream) {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await.unwrap();
    assert_eq!(&preface, PREFACE);
    stream.write_all(&settings(&[(3, 100)])).await.unwrap();
}

async fn begun() -> (
    Http2,
    tokio::task::JoinHandle<Result<(), Ended>>,
    DuplexStream,
) {
    let (sender, mut driver, mut far) = connect(1 << 16).await;
    let settled = poll_fn(|cx| {
        assert!(Pin::new(&mut driver).poll(cx).is_pending());
        if driver.streams_max() > 0 {
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    });
    tokio::join!(hello(&mut far), settled);
    let driven = tokio::spawn(driver);
    tokio::task::yield_now().await;
    (sender, driven, far)
}

#[tokio::test]
async fn an_answer_comes_with_its_content_and_trailers() {
    let (sender, driven, mut far) = begun().await;
    let (answer, outlet) = send(&sender, &Method::GET, false, None).await.unwrap();
    assert!(outlet.is_none());
    let (asked, _) = until(&mut far, HEADERS).await;
    assert_eq!((asked.stream, asked.has(END_STREAM)), (1, true));
    far.write_all(&ok(1)).await.unwrap();
    let (head, mut content) = answer.await.unwrap();
    assert_eq!(head.status, 200);
    assert!(!content.is_over());
    let rest = [frame(DATA, 0, 1, b"hello"), whole(1, &[("a", "b")])].concat();
    far.write_all(&rest).await.unwrap();
    let first = poll_fn(|cx| content.poll_next(cx)).await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "hello");
    let second = poll_fn(|cx| content.poll_next(cx)).await.unwrap().unwrap();
    assert_eq!(second.into_trailers().unwrap()["a"], "b");
    assert!(content.is_over());
    assert!(poll_fn(|cx| content.poll_next(cx)).await.is_none());
    // With the sender it ends, in peace.
    drop(sender);
    until(&mut far, GOAWAY).await;
    driven.await.unwrap().unwrap();
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
}

/// A request that meets a quiet connection is on its way before anybody else gets a turn.
#[tokio::test]
async fn the_first_of_a_burst_does_not_wait_for_the_last() {
    let (sender, _driven, mut far) = begun().await;
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(send(&sender, &Method::GET, false, None).await.unwrap());
    }
    let now = until(&mut far, HEADERS).now_or_never();
    assert_eq!(now.expect("it was written at once").0.stream, 1);
    while until(&mut far, HEADERS).await.0.stream < 39 {}
}

#[tokio::test]
async fn readers_who_leave_and_endpoints_that_refuse() {
    let (sender, _driven, mut far) = begun().await;
    let (answer, _) = send(&sender, &Method::GET, false, None).await.unwrap();
    drop(answer);
    let (reset_of, code) = until(&mut far, RST_STREAM).await;
    assert_eq!((reset_of.stream, code), (1, vec![0, 0, 0, 8]));
    let (refused, _) = send(&sender, &Method::GET, false, None).await.unwrap();
    let (late, _) = send(&sender, &Method::GET, false, None).await.unwrap();
    far.write_all(&[reset(3, 7), goodbye(3)].concat())
        .await
        .unwrap();
    let refused = refused.await.err().unwrap();
    assert!(matches!(refused, StreamError::Unseen { is_leaving: false }));
    let late = late.await.err().unwrap();
    assert!(matches!(late, StreamError::Unseen { is_leaving: true }));
    assert!(sender.is_over());
    assert!(send(&sender, &Method::GET, false, None).await.is_err());
}

#[tokio::test]
async fn uploads_wait_for_the_endpoint_and_hear_that_it_wants_no_more() {
    let (sender, _driven, mut far) = begun().await;
    let (answer, outlet) = send(&sender, &Method::POST, true, None).await.unwrap();
    let outlet = outlet.unwrap();
    let piece = Bytes::from(vec![0; 50_000]);
    let mut sent = 0;
    let full = poll_fn(|cx| {
        use std::task::Poll;
        while outlet.poll_room(cx)?.is_ready() {
            outlet.send(piece.clone(), false);
            sent += piece.len();
        }
        Poll::Ready(Ok::<_, StreamError>(()))
    });
    full.await.unwrap();
    assert!(sent <= 65_535 + 64 * 1024 + 2 * piece.len(), "{sent}");
    far.write_all(&whole(1, &[(":status", "413")]))
        .await
        .unwrap();
    far.write_all(&reset(1, 0)).await.unwrap();
    let (head, content) = answer.await.unwrap();
    assert_eq!(head.status, 413);
    assert!(content.is_over());
    let stopped = poll_fn(|cx| outlet.poll_stopped(cx));
    tokio::time::timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_is_noticed_in_five_seconds_and_a_pong_ends_it() {
    let (sender, driven, mut far) = begun().await;
    let began = Instant::now();
    let (_, said) = until(&mut far, PING).await;
    assert_eq!(began.elapsed().as_secs(), 2);
    far.write_all(&frame(PING, 1, 0, &said)).await.unwrap();
    let (answer, _) = send(&sender, &Method::GET, false, None).await.unwrap();
    let answered = answer.await.err().unwrap();
    assert!(matches!(answered, StreamError::Ended(_)));
    assert_eq!(began.elapsed().as_secs(), 7);
    assert!(matches!(driven.await.unwrap(), Err(Ended::Silent)));
    assert!(sender.is_over());
}

#[tokio::test(start_paused = true)]
async fn each_request_has_its_own_time() {
    let (sender, _driven, mut far) = begun().await;
    let began = Instant::now();
    let pongs = tokio::spawn(async move {
        loop {
            let (_, said) = until(&mut far, PING).await;
            far.write_all(&frame(PING, 1, 0, &said)).await.unwrap();
        }
    });
    let mut answers = Vec::new();
    for seconds in [10, 3, 20] {
        let deadline = began + Duration::from_secs(seconds);
        let sent = send(&sender, &Method::GET, false, Some(deadline)).await;
        answers.push((seconds, sent.unwrap().0));
    }
    for (seconds, answer) in answers {
        let error = answer.await.err().unwrap();
        assert!(matches!(error, StreamError::TimedOut), "{seconds}: {error}");
        assert!(began.elapsed().as_secs() >= seconds);
    }
    assert_eq!(began.elapsed().as_secs(), 20);
    pongs.abort();
}

#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is dropped with the driver's task hangs nobody.
#[tokio::test]
async fn without_its_driver_a_connection_is_over() {
    let (sender, driver, _far) = connect(100).await;
    let counted = Arc::<Counted>::default();
    let waker = Waker::from(Arc::clone(&counted));
    let ask = Ask {
        method: &Method::GET,
        is_tls: true,
        authority: &Authority::from_static("a"),
        path: &PathAndQuery::from_static("/p"),
        headers: &HeaderMap::new(),
        length: None,
    };
    let mut cx = Context::from_waker(&waker);
    assert!(sender.poll_send(&ask, false, None, &mut cx).is_pending());
    drop(driver);
    assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    assert!(sender.poll_send(&ask, false, None, &mut cx).is_ready());
}
