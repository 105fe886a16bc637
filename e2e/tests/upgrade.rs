//! Tunnels and streams through the real binary: exec, attach and port-forward by SPDY and by
//! WebSocket, followed logs and watches, in front of a scripted kube-apiserver that hands out its
//! bytes one by one. Real clients, a real one and commands that run are in `exec`.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sluice_e2e::client::Client;
use sluice_e2e::fake::{self, Answer, Fake, Streamed};
use sluice_e2e::lines::Lines;
use sluice_e2e::process::eventually;
use sluice_e2e::site::Site;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc};

const LIMIT: Duration = Duration::from_secs(60);

/// Method, protocol, and the header that chooses a version of the channel protocol, with a version.
const PROTOCOLS: [(&str, &str, &str, &str); 2] = [
    (
        "POST",
        "SPDY/3.1",
        "x-stream-protocol-version",
        "v4.channel.k8s.io",
    ),
    (
        "GET",
        "websocket",
        "sec-websocket-protocol",
        "v5.channel.k8s.io",
    ),
];

/// What the scripted kube-apiserver is told while it runs.
struct Told {
    /// Upgrades that it may answer with 101.
    may_upgrade: Semaphore,
    /// The bytes of the next streamed answer.
    streamed: Mutex<Option<mpsc::UnboundedReceiver<Bytes>>>,
}

async fn script(told: Arc<Told>, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    if path.contains("/pods/refused/") {
        let mut answer = fake::answer(403, r#"{"kind":"Status","code":403,"message":"not you"}"#);
        answer.headers_mut().insert("x-more", "1".parse().unwrap());
        return answer;
    }
    if request.headers().contains_key("upgrade") {
        told.may_upgrade.acquire().await.unwrap().forget();
        return accept(request);
    }
    match told.streamed.lock().take() {
        Some(bytes) => Response::new(Streamed(bytes).boxed()),
        // As a kube-apiserver that is asked to exec without an upgrade.
        None => fake::answer(
            400,
            r#"{"kind":"Status","message":"Upgrade request required"}"#,
        ),
    }
}

/// Says 101 and answers each piece in upper case; when the client has ended, says bye and ends.
fn accept(mut request: Request<Incoming>) -> Answer {
    let mut answer = Response::builder()
        .status(101)
        .header("connection", "Upgrade");
    for name in [
        "upgrade",
        "x-stream-protocol-version",
        "sec-websocket-protocol",
    ] {
        if let Some(value) = request.headers().get(name) {
            answer = answer.header(name, value);
        }
    }
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(&mut request).await.unwrap();
        let mut tunnel = TokioIo::new(upgraded);
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = tunnel.read(&mut buffer).await {
            let piece = buffer[..count].to_ascii_uppercase();
            if tunnel.write_all(&piece).await.is_err() || tunnel.flush().await.is_err() {
                return;
            }
        }
        let _ = tunnel.write_all(b"bye").await;
        let _ = tunnel.shutdown().await;
    });
    answer.body(Full::default().boxed()).unwrap()
}

/// A request for a tunnel, with headers by which a client might pose as somebody else.
fn asking(
    client: &Client,
    path: &str,
    (method, protocol, header, version): (&str, &str, &str, &str),
) -> Request<Full<Bytes>> {
    client
        .request(method, path)
        .uri(path)
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", protocol)
        .header(header, version)
        .header("sec-websocket-key", "a2V5")
        .header("sec-websocket-version", "13")
        .header("x-remote-user", "root")
        .header("x-remote-group", "system:masters")
        .body(Full::default())
        .unwrap()
}

async fn open(site: &Site, path: &str, row: (&str, &str, &str, &str)) -> TokioIo<Upgraded> {
    let user = site.user();
    let mut sender = user.http1().await.unwrap();
    let answer = sender.send_request(asking(&user, path, row)).await.unwrap();
    assert_eq!(answer.status(), 101);
    TokioIo::new(hyper::upgrade::on(answer).await.unwrap())
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, future).await;
    done.unwrap_or_else(|_| panic!("waited {LIMIT:?} for {what}"))
}

/// Sends a piece and reads its answer before the next is sent: nothing waits for more.
async fn talk(tunnel: &mut TokioIo<Upgraded>, pieces: usize) {
    for n in 0..pieces {
        let piece = format!("piece {n} ");
        tunnel.write_all(piece.as_bytes()).await.unwrap();
        tunnel.flush().await.unwrap();
        let mut answer = vec![0; piece.len()];
        within("the answer to a piece", tunnel.read_exact(&mut answer))
            .await
            .unwrap();
        assert_eq!(answer, piece.to_ascii_uppercase().as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tunnels_and_streams_through_the_front() {
    let site = Site::make();
    site.write("sluice.yaml", &site.front());
    let told = Arc::new(Told {
        may_upgrade: Semaphore::new(0),
        streamed: Mutex::default(),
    });
    let serving = site.own.issue("upstream", &[], &[]);
    let telling = Arc::clone(&told);
    let upstream = Fake::start(0, &serving, move |request| {
        script(Arc::clone(&telling), request)
    })
    .await;
    site.cluster("main", upstream.port, "own.crt", "  default: true\n");
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;

    it_switches_only_after_the_upstream_has(&site, &upstream, &told).await;
    bytes_pass_both_ways_at_once_and_half_closed(&site, &told).await;
    a_refusal_passes_as_it_is(&site).await;
    over_http2_there_is_no_upgrade(&site, &upstream).await;
    lines_of_a_followed_log_come_one_by_one(&site, &told).await;
    events_of_a_watch_come_one_by_one(&site, &told).await;
    a_large_stream_does_not_hold_up_another_one(&site, &told).await;
    the_drain_ends_tunnels(&site, &told, &mut gateway).await;
}

async fn it_switches_only_after_the_upstream_has(site: &Site, upstream: &Fake, told: &Told) {
    for what in [
        "exec?command=sh&stdin=true",
        "attach?stdin=true",
        "portforward?ports=80",
    ] {
        for row in PROTOCOLS {
            let path = format!("/api/v1/namespaces/n/pods/p/{what}");
            let before = upstream.seen().len();
            let user = site.user();
            let mut sender = user.http1().await.unwrap();
            let mut asked = Box::pin(sender.send_request(asking(&user, &path, row)));
            let arrived = eventually("the request to arrive", LIMIT, || async {
                if upstream.seen().len() > before {
                    Ok(())
                } else {
                    Err("not yet".to_owned())
                }
            });
            tokio::select! {
                biased;
                early = &mut asked => panic!("answered before the upstream was: {early:?}"),
                () = arrived => {}
            }
            told.may_upgrade.add_permits(1);
            let answer = within("the answer", asked).await.unwrap();
            assert_eq!(
                (answer.status().as_u16(), &answer.headers()["upgrade"]),
                (101, &row.1.parse().unwrap())
            );
            assert_eq!(answer.headers()[row.2], row.3);
            let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
            talk(&mut tunnel, 3).await;

            let seen = upstream.seen().pop().unwrap();
            assert_eq!(seen.uri, path, "byte for byte");
            let values = |name: &str| -> Vec<String> {
                let all = seen.headers.get_all(name).iter();
                all.map(|v| v.to_str().unwrap().to_owned()).collect()
            };
            assert_eq!(values("impersonate-user"), ["admin"]);
            assert_eq!(
                values("impersonate-group"),
                ["system:masters", "system:authenticated"]
            );
            assert_eq!(values(row.2), [row.3]);
            assert_eq!(
                values("x-remote-user").len() + values("x-remote-group").len(),
                0,
                "{seen:?}"
            );
        }
    }
}

async fn bytes_pass_both_ways_at_once_and_half_closed(site: &Site, told: &Told) {
    for row in PROTOCOLS {
        told.may_upgrade.add_permits(1);
        let tunnel = open(site, "/api/v1/namespaces/n/pods/p/exec?command=cat", row).await;
        let (mut read, mut write) = tokio::io::split(tunnel);
        let sent: Vec<u8> = b"abcdefghijklmnop".repeat(64 * 1024);
        let expected = [&sent.to_ascii_uppercase()[..], b"bye"].concat();
        let writing = async {
            write.write_all(&sent).await.unwrap();
            // Half-closed: what the other side still has to say must come.
            write.shutdown().await.unwrap();
        };
        let mut echoed = Vec::new();
        let reading = async { read.read_to_end(&mut echoed).await.unwrap() };
        within("a MiB both ways", async { tokio::join!(writing, reading) }).await;
        assert!(
            echoed == expected,
            "{} of {} bytes",
            echoed.len(),
            expected.len()
        );
    }
}

async fn a_refusal_passes_as_it_is(site: &Site) {
    for row in PROTOCOLS {
        let user = site.user();
        let mut sender = user.http1().await.unwrap();
        let request = asking(&user, "/api/v1/namespaces/n/pods/refused/exec", row);
        let answer = within("the refusal", sender.send_request(request))
            .await
            .unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["x-more"]),
            (403, &"1".parse().unwrap())
        );
        assert!(
            !answer.headers().contains_key("x-sluice-origin"),
            "it is the upstream's answer"
        );
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(
            &body[..],
            br#"{"kind":"Status","code":403,"message":"not you"}"#
        );
    }
}

/// HTTP/2 has no upgrade: the word goes no further, and the upstream says what it misses.
async fn over_http2_there_is_no_upgrade(site: &Site, upstream: &Fake) {
    let user = site.user();
    let connection = user.http2().await.unwrap();
    let request = user.request("POST", "/api/v1/namespaces/n/pods/p/exec?command=sh");
    let request = request
        .header("upgrade", "SPDY/3.1")
        .body(Full::default())
        .unwrap();
    let answer = within("a refusal", connection.exchange(request))
        .await
        .unwrap();
    assert_eq!(answer.status, 400, "{answer:?}");
    let seen = upstream.seen().pop().unwrap();
    assert!(!seen.headers.contains_key("upgrade"), "{seen:?}");
}

/// A stream whose pieces the test hands out.
async fn stream(site: &Site, told: &Told, path: &str) -> (mpsc::UnboundedSender<Bytes>, Lines) {
    let (send, receive) = mpsc::unbounded_channel();
    *told.streamed.lock() = Some(receive);
    let lines = within("the head of a stream", Lines::open(&site.user(), path))
        .await
        .unwrap();
    (send, lines)
}

async fn lines_of_a_followed_log_come_one_by_one(site: &Site, told: &Told) {
    let path = "/api/v1/namespaces/n/pods/p/log?follow=true";
    let (send, mut lines) = stream(site, told, path).await;
    let mut slowest = Duration::ZERO;
    for n in 0..50 {
        let line = format!("line {n}");
        let sent = Instant::now();
        send.send(format!("{line}\n").into()).unwrap();
        assert_eq!(lines.next().await.unwrap(), Some(line));
        slowest = slowest.max(sent.elapsed());
    }
    println!("the slowest of 50 lines took {slowest:?}");
    drop(send);
    assert_eq!(lines.next().await.unwrap(), None);
}

async fn events_of_a_watch_come_one_by_one(site: &Site, told: &Told) {
    let path = "/api/v1/namespaces/n/configmaps?watch=1&resourceVersion=1";
    let (send, mut lines) = stream(site, told, path).await;
    for version in 2..30_u64 {
        let event = format!(
            r#"{{"type":"ADDED","object":{{"metadata":{{"name":"a","resourceVersion":"{version}"}}}}}}"#
        );
        // In two pieces: the first alone is no event, and the second completes it at once.
        let (first, second) = event.split_at(20);
        send.send(first.to_owned().into()).unwrap();
        send.send(format!("{second}\n").into()).unwrap();
        assert_eq!(
            lines.event().await,
            ("ADDED".to_owned(), "a".to_owned(), version)
        );
    }
    drop(send);
    assert_eq!(lines.next().await.unwrap(), None);
}

/// One client does not read a large log; another's lines still come.
async fn a_large_stream_does_not_hold_up_another_one(site: &Site, told: &Told) {
    let path = "/api/v1/namespaces/n/pods/p/log?follow=true";
    let (flood, unread) = stream(site, told, path).await;
    for _ in 0..256 {
        flood.send(Bytes::from(vec![b'x'; 64 * 1024])).unwrap();
    }
    let (send, mut lines) = stream(site, told, path).await;
    for n in 0..20 {
        send.send(format!("line {n}\n").into()).unwrap();
        assert_eq!(lines.next().await.unwrap(), Some(format!("line {n}")));
    }
    drop((flood, unread));
}

async fn the_drain_ends_tunnels(
    site: &Site,
    told: &Told,
    gateway: &mut sluice_e2e::sluice::Gateway,
) {
    told.may_upgrade.add_permits(1);
    let mut tunnel = open(
        site,
        "/api/v1/namespaces/n/pods/p/exec?command=sh",
        PROTOCOLS[1],
    )
    .await;
    talk(&mut tunnel, 1).await;
    let started = Instant::now();
    let process = gateway.process().unwrap();
    process.signal(rustix::process::Signal::TERM);
    let mut rest = Vec::new();
    // Its end may be a proper one or not; it has to come.
    let _ = within("the tunnel's end", tunnel.read_to_end(&mut rest)).await;
    let status = process.wait_exit(LIMIT);
    println!(
        "ended {:?} after the signal, with a tunnel open",
        started.elapsed()
    );
    assert_eq!(status.code(), Some(0));
    assert!(
        started.elapsed() < Duration::from_secs(2 + 5),
        "within the drain's budget"
    );
}
