//! How streams of events end.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::fake::{Exchange, Fake, Options, Script, script};
use crate::rig::{Rig, get, until};

/// Sends the chunks, then breaks the connection as a killed process does.
fn breaking(media: &'static str, chunks: &'static [&'static [u8]]) -> Script {
    script(move |exchange| async move {
        let connection = exchange.connection.clone();
        let mut stream = head(exchange, media);
        for chunk in chunks {
            stream.send_data(Bytes::from_static(chunk), false).unwrap();
        }
        // The bytes have to leave before the connection does.
        tokio::time::sleep(Duration::from_millis(50)).await;
        connection.cut.cancel();
    })
}

fn head(mut exchange: Exchange, media: &'static str) -> h2::SendStream<Bytes> {
    let mut response = Response::builder().header("content-type", media);
    // As an apiserver since 1.37 does where it may.
    if exchange.request.headers().contains_key("accept-encoding") {
        response = response.header("content-encoding", "gzip");
    }
    let response = response.body(()).unwrap();
    exchange.respond.send_response(response, false).unwrap()
}

/// What arrived, and whether the end was clean.
async fn read(response: Response<Incoming>) -> (Vec<u8>, bool) {
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => all.extend_from_slice(&frame.into_data().unwrap_or_default()),
            Err(_) => return (all, false),
        }
    }
    (all, true)
}

const WATCH: &str = "/api/v1/pods?watch=true";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";

#[tokio::test]
async fn broken_upstream_ends_a_watch_between_two_events_and_resets_the_rest() {
    struct Row {
        path: &'static str,
        media: &'static str,
        chunks: &'static [&'static [u8]],
        arrives: &'static [u8],
        is_clean: bool,
    }
    let rows = [
        Row {
            path: WATCH,
            media: "application/json",
            chunks: &[b"{1}\n", b"{2}\n{3", b"33"],
            arrives: b"{1}\n{2}\n",
            is_clean: true,
        },
        Row {
            path: WATCH,
            media: PROTOBUF,
            chunks: &[b"\0\0\0\x02ab\0\0", b"\0\x01", b"c\0\0\0\x03d"],
            arrives: b"\0\0\0\x02ab\0\0\0\x01c",
            is_clean: true,
        },
        Row {
            path: WATCH,
            media: "application/unknown",
            chunks: &[b"{1}\n"],
            arrives: b"{1}\n",
            is_clean: false,
        },
        Row {
            path: "/api/v1/pods",
            media: "application/json",
            // More than is held back.
            chunks: &[&[b' '; 40_000], &[b' '; 40_000]],
            arrives: &[b' '; 80_000],
            is_clean: false,
        },
        Row {
            path: "/api/v1/namespaces/n/pods/p/log?follow=true",
            media: "text/plain",
            chunks: &[b"line\n"],
            arrives: b"line\n",
            is_clean: false,
        },
    ];
    for row in rows {
        let fake = Fake::start(Options::default(), breaking(row.media, row.chunks)).await;
        let rig = Rig::of([fake.url()]).await;
        let mut request = get(row.path);
        let gzip = HeaderValue::from_static("gzip");
        request.headers_mut().insert("accept-encoding", gzip);
        let (arrived, is_clean) = read(rig.http2().await.send(request).await.unwrap()).await;
        let name = format!("{} {}", row.path, row.media);
        assert_eq!(arrived, row.arrives, "{name}");
        assert_eq!(is_clean, row.is_clean, "{name}");
    }
}

#[tokio::test]
async fn http1_client_sees_a_broken_list_as_broken() {
    let fake = Fake::start(
        Options::default(),
        breaking("application/json", &[&[b' '; 40_000], &[b' '; 40_000]]),
    )
    .await;
    let rig = Rig::of([fake.url()]).await;
    let request = http::Request::get("/api/v1/pods")
        .header("host", "localhost")
        .body(http_body_util::Full::default())
        .unwrap();
    let response = rig.http1().await.send_request(request).await.unwrap();
    assert!(!read(response).await.1);
}

#[tokio::test]
async fn clean_end_passes_every_byte() {
    let ending = script(|exchange| async move {
        let mut stream = head(exchange, "application/json");
        stream
            .send_data(Bytes::from_static(b"{1}\n{half"), true)
            .unwrap();
    });
    let fake = Fake::start(Options::default(), ending).await;
    let rig = Rig::of([fake.url()]).await;
    let (arrived, is_clean) = read(rig.http2().await.get(WATCH).await).await;
    assert_eq!((&arrived[..], is_clean), (&b"{1}\n{half"[..], true));
}

#[tokio::test]
async fn drain_says_goodbye_and_ends_watches_between_events() {
    let endless = script(|exchange| async move {
        let mut stream = head(exchange, "application/json");
        stream
            .send_data(Bytes::from_static(b"{1}\n{ha"), false)
            .unwrap();
        std::future::poll_fn(|cx| stream.poll_reset(cx))
            .await
            .unwrap();
    });
    let fake = Fake::start(Options::default(), endless).await;
    let rig = Rig::of([fake.url()]).await;
    let mut client = rig.http2().await;
    let response = client.get(WATCH).await;
    let reading = tokio::spawn(read(response));
    let drained = rig.drain.finish(Duration::from_millis(300)).await;
    assert_eq!(drained.cut, 0, "nothing had to be cut");
    let (arrived, is_clean) = reading.await.unwrap();
    assert_eq!((&arrived[..], is_clean), (&b"{1}\n"[..], true));
    let again = client.send(crate::rig::get("/version")).await;
    assert!(again.is_err(), "the connection was told to go");
    assert!(tokio::net::TcpStream::connect(rig.address).await.is_err());
    until(|| rig.cluster.endpoints()[0].long_running == 0).await;
}

#[tokio::test]
async fn client_that_leaves_takes_its_request_along() {
    let (told, heard) = tokio::sync::mpsc::unbounded_channel();
    let endless = script(move |exchange| {
        let told = told.clone();
        async move {
            let mut stream = head(exchange, "application/json");
            let reset = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
            told.send(reset.is_ok()).unwrap();
        }
    });
    let mut heard = heard;
    let fake = Fake::start(Options::default(), endless).await;
    let rig = Rig::of([fake.url()]).await;
    let mut client = rig.http2().await;
    drop(client.get(WATCH).await);
    let reset = tokio::time::timeout(Duration::from_secs(1), heard.recv()).await;
    assert_eq!(reset, Ok(Some(true)));
    until(|| rig.cluster.endpoints()[0].long_running == 0).await;
    assert_eq!(
        rig.cluster.endpoints()[0].failed,
        0,
        "that is nobody's fault"
    );
}

/// A watch at an endpoint that is taken out ends between two events, and its client goes on
/// elsewhere; whatever else runs there runs to its end.
#[tokio::test]
async fn watch_at_a_removed_endpoint_moves() {
    use sluice_gateway::upstream::ClusterSpec;
    let watching = || {
        script(|exchange| async move {
            let is_log = exchange.request.uri().path().ends_with("/log");
            let mut stream = head(exchange, "application/json");
            stream
                .send_data(Bytes::from_static(b"{1}\n"), false)
                .unwrap();
            if is_log {
                tokio::time::sleep(Duration::from_millis(1500)).await;
                let _ = stream.send_data(Bytes::from_static(b"{2}\n"), true);
            }
            let _ = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
        })
    };
    let leaves = Fake::start(Options::default(), watching()).await;
    let stays = Fake::start(Options::default(), watching()).await;
    let rig = Rig::of([leaves.url()]).await;
    let mut client = rig.http2().await;
    let watch = client.get(WATCH).await;
    let log = client
        .get("/api/v1/namespaces/n/pods/p/log?follow=true")
        .await;
    let only = ClusterSpec::new("test", [stays.url()]);
    rig.cluster.apply(only).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(10), read(watch)).await;
    assert_eq!(ended.unwrap(), (b"{1}\n".to_vec(), true));
    assert_eq!(read(log).await, (b"{1}\n{2}\n".to_vec(), true));
    drop(client.get(WATCH).await);
    assert_eq!((leaves.requests(), stays.requests()), (2, 1));
}
