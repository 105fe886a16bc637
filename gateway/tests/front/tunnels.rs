//! Upgrades: joined only when both sides mean the same, and otherwise plain answers.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use sluice_gateway::upstream::{ClusterSpec, IdentityMode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fake::{Fake, Options, UpgradeAnswer, fine};
use crate::rig::{Rig, alice, text, until};

const EXEC: &str = "/api/v1/namespaces/n/pods/p/exec?command=sh&command=-c&stdin=true";

async fn upstream(head: &str, echoes: bool) -> Fake {
    let options = Options {
        upgrade: UpgradeAnswer {
            head: head.to_owned(),
            echoes,
        },
        ..Options::default()
    };
    Fake::start(options, fine()).await
}

fn asking(method: &str, path: &str, protocol: &str) -> http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("connection", "keep-alive, Upgrade")
        .header("upgrade", protocol)
}

fn bare(builder: http::request::Builder) -> Request<Full<Bytes>> {
    builder.body(Full::default()).unwrap()
}

#[tokio::test]
async fn spdy_and_websocket_echo() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "own").unwrap();
    let rows = [
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
    for (method, protocol, chosen_in, chosen) in rows {
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
             {chosen_in}: {chosen}\r\nX-More: 1\r\n\r\n"
        );
        let fake = upstream(&head, true).await;
        let mut spec = ClusterSpec::new("test", [fake.url()]);
        spec.credentials.token_file = Some(token.clone().into());
        let rig = Rig::with(spec, alice()).await;
        let request = asking(method, EXEC, protocol)
            .header(chosen_in, "v5.channel.k8s.io")
            .header(
                chosen_in,
                "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
            )
            .header("sec-websocket-key", "a2V5")
            .header("impersonate-user", "root")
            .header("authorization", "Bearer client");
        let mut sender = rig.http1().await;
        let response = sender.send_request(bare(request)).await.unwrap();
        assert_eq!(
            response.status(),
            StatusCode::SWITCHING_PROTOCOLS,
            "{protocol}"
        );
        assert_eq!(response.headers()["upgrade"], protocol);
        assert_eq!(response.headers()[chosen_in], chosen);
        assert_eq!(response.headers()["x-more"], "1");
        let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        let sent: Vec<u8> = (0..=255u8).cycle().take(300_000).collect();
        let (mut read, mut write) = tokio::io::split(&mut tunnel);
        let writing = async {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap(); // half-closed: the answer still has to come
        };
        let mut echoed = Vec::new();
        let reading = async { read.read_to_end(&mut echoed).await.unwrap() };
        tokio::join!(writing, reading);
        assert_eq!(echoed, sent, "{protocol}");
        let head = fake.seen.upgrade_heads.lock()[0].to_ascii_lowercase();
        assert!(head.starts_with(&format!("{} {EXEC} http/1.1\r\n", method.to_lowercase())));
        for line in [
            "authorization: bearer own\r\n",
            "impersonate-user: alice\r\n",
            "sec-websocket-key: a2v5\r\n",
            "connection: upgrade\r\n",
            &format!("host: {}\r\n", fake.address),
            &format!("{chosen_in}: v5.channel.k8s.io\r\n"),
        ] {
            assert_eq!(head.matches(line).count(), 1, "{line} in {head}");
        }
        assert!(!head.contains("root") && !head.contains("client"));
        assert_eq!(head.contains("c2vjcmv0"), protocol != "websocket", "{head}");
        until(|| rig.cluster.endpoints()[0].long_running == 0).await;
    }
}

/// Nothing a client sends before the upstream has agreed may reach it, whatever it answers.
#[tokio::test]
async fn refused_upgrade_is_an_ordinary_answer() {
    let rows = [
        (
            "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno",
            StatusCode::FORBIDDEN,
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno",
            StatusCode::OK,
        ),
        (
            "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\n\r\n",
            StatusCode::BAD_GATEWAY,
        ),
        (
            "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n",
            StatusCode::BAD_GATEWAY,
        ),
        (
            "HTTP/1.1 302 Found\r\nlocation: https://evil\r\ncontent-length: 0\r\n\r\n",
            StatusCode::BAD_GATEWAY,
        ),
    ];
    for (head, expected) in rows {
        let fake = upstream(head, false).await;
        let rig = Rig::of([fake.url()]).await;
        let mut stream = rig.tls(&[b"http/1.1"]).await;
        let request = format!(
            "GET {EXEC} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
             GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Where the server closes without a close notice, what came before still counts.
        while let Ok(1..) = stream.read_buf(&mut answer).await {}
        let answer = String::from_utf8(answer).unwrap();
        let status = format!("HTTP/1.1 {}", expected.as_u16());
        assert!(answer.starts_with(&status), "{head:?} became {answer:?}");
        assert_eq!(answer.contains("\r\n\r\nno"), expected.as_u16() < 500);
        let leaked = fake.seen.upgrade_bytes.lock().clone();
        assert_eq!(String::from_utf8(leaked).unwrap(), "", "{head:?}");
        assert_eq!(
            rig.cluster
                .counters()
                .tunnels_open
                .load(std::sync::atomic::Ordering::Relaxed),
            0
        );
    }
}

#[tokio::test]
async fn only_known_protocols_without_content_are_asked_for() {
    let fake = upstream("HTTP/1.1 101 Switching\r\n\r\n", false).await;
    let rig = Rig::of([fake.url()]).await;
    let rows = [
        bare(asking("GET", EXEC, "h2c")),
        bare(asking("GET", EXEC, "foo")),
        bare(asking("GET", EXEC, "websocket, h2c")),
        bare(asking("GET", EXEC, "websocket").header("upgrade", "SPDY/3.1")),
        asking("POST", EXEC, "SPDY/3.1")
            .body(Full::new(Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n")))
            .unwrap(),
    ];
    for request in rows {
        let name = format!("{:?}", request.headers());
        let response = rig.http1().await.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{name}");
    }
    assert!(fake.seen.upgrade_heads.lock().is_empty());
    let ordinary = bare(asking("GET", "/api/v1/namespaces/n/pods/p", "h2c"));
    let response = rig.http1().await.send_request(ordinary).await.unwrap();
    assert_eq!(
        text(response).await,
        "{}",
        "elsewhere the header is just not passed on"
    );
}

/// What ends is said to the client between two frames: to SPDY by GOAWAY, to a WebSocket by a close
/// frame, and where there is an error channel by a status.
#[tokio::test]
async fn tunnels_end_with_the_drain_and_say_why() {
    let ping: &[u8] = &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1];
    let message: &[u8] = &[0x82, 2, 1, b'a'];
    let rows = [
        ("SPDY/3.1", "", ping),
        ("websocket", "", message),
        ("websocket", "v5.channel.k8s.io", message),
    ];
    for (protocol, chosen, frame) in rows {
        let mut head =
            format!("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n");
        if !chosen.is_empty() {
            head += &format!("sec-websocket-protocol: {chosen}\r\n");
        }
        let fake = upstream(&(head + "\r\n"), true).await;
        let rig = Rig::of([fake.url()]).await;
        let request = bare(asking("POST", EXEC, protocol));
        let response = rig.http1().await.send_request(request).await.unwrap();
        let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        tunnel.write_all(frame).await.unwrap();
        let mut echoed = vec![0; frame.len()];
        tunnel.read_exact(&mut echoed).await.unwrap();
        let counters = rig.cluster.counters();
        let read =
            |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(read(&counters.tunnels_open), 1);
        let drain = rig.drain.clone();
        let drained = tokio::spawn(async move { drain.finish(Duration::from_millis(100)).await });
        let mut rest = Vec::new();
        tunnel.read_to_end(&mut rest).await.unwrap();
        drop(tunnel);
        assert_eq!(drained.await.unwrap().cut, 0);
        assert_eq!(read(&counters.tunnels_open), 0);
        assert_eq!(read(&counters.tunnel_bytes_up), frame.len() as u64);
        assert_eq!(read(&counters.tunnel_bytes_down), frame.len() as u64);
        let said = String::from_utf8_lossy(&rest);
        if protocol == "SPDY/3.1" {
            assert_eq!(rest[..8], [0x80, 3, 0, 7, 0, 0, 0, 8]);
        } else {
            assert!(said.contains("the gateway is stopping"), "{said}");
        }
        assert_eq!(said.contains("\"code\":503"), !chosen.is_empty(), "{said}");
    }
}

/// A tunnel in the middle of a frame ends, too; nothing can be said there.
#[tokio::test]
async fn torn_tunnel_ends_with_the_drain() {
    let head = "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    let fake = upstream(head, true).await;
    let rig = Rig::of([fake.url()]).await;
    let request = bare(asking("POST", EXEC, "SPDY/3.1"));
    let response = rig.http1().await.send_request(request).await.unwrap();
    let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    tunnel.write_all(b"a").await.unwrap();
    assert_eq!(tunnel.read_u8().await.unwrap(), b'a');
    let drained = rig.drain.finish(Duration::from_millis(100)).await;
    assert_eq!(drained.cut, 0);
    assert_eq!(
        tunnel.read(&mut [0; 8]).await.unwrap_or(0),
        0,
        "it has ended"
    );
}

#[tokio::test]
async fn tunnels_beyond_their_number_are_refused() {
    let head = "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
    let fake = upstream(head, true).await;
    let mut spec = ClusterSpec::new("test", [fake.url()]);
    spec.tunnels_max = std::num::NonZeroU32::MIN;
    let rig = Rig::with(spec, alice()).await;
    let ask = async || {
        let request = bare(asking("POST", EXEC, "SPDY/3.1"));
        rig.http1().await.send_request(request).await.unwrap()
    };
    let first = ask().await;
    assert_eq!(first.status(), StatusCode::SWITCHING_PROTOCOLS);
    let tunnel = hyper::upgrade::on(first).await.unwrap();
    let second = ask().await;
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(second.headers().contains_key("retry-after"));
    drop(tunnel);
    let open = &rig.cluster.counters().tunnels_open;
    until(|| open.load(std::sync::atomic::Ordering::Relaxed) == 0).await;
    assert_eq!(ask().await.status(), StatusCode::SWITCHING_PROTOCOLS);
}

#[tokio::test]
async fn unreachable_endpoint_is_passed_over() {
    let head = "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let fake = upstream(head, true).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let rig = Rig::of([nowhere, fake.url()]).await;
    for _ in 0..4 {
        let request = bare(asking("GET", EXEC, "websocket"));
        let response = rig.http1().await.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    }
}

#[tokio::test]
async fn a_browsers_token_passes_through_in_its_subprotocol() {
    let head = "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let fake = upstream(head, true).await;
    let mut spec = ClusterSpec::new("test", [fake.url()]);
    spec.identity = IdentityMode::PassThrough;
    let rig = Rig::with(spec, alice()).await;
    let with_token = asking("GET", EXEC, "websocket").header(
        "sec-websocket-protocol",
        "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
    );
    let response = rig.http1().await.send_request(bare(with_token)).await;
    assert_eq!(response.unwrap().status(), StatusCode::SWITCHING_PROTOCOLS);
    assert!(fake.seen.upgrade_heads.lock()[0].contains("c2VjcmV0"));
    let without = bare(asking("GET", EXEC, "websocket"));
    let response = rig.http1().await.send_request(without).await;
    assert_eq!(response.unwrap().status(), StatusCode::UNAUTHORIZED);
}
