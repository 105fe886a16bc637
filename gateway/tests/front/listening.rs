//! The listener by itself: TLS, bounds, and what it says of a connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use rustls_pki_types::ServerName;
use sluice_gateway::body::Body;
use sluice_gateway::context::Connection;
use sluice_gateway::drain::Drain;
use sluice_gateway::listener::{
    ClientCertificates, Handler, Listener, ListenerCounters, ListenerOptions, TlsError, TlsSource,
    TlsSpec,
};
use sluice_gateway::networks::Networks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tower::util::BoxCloneSyncService;

use crate::rig::{Authority, until};

struct Served {
    address: std::net::SocketAddr,
    tls: Arc<TlsSource>,
    counters: Arc<ListenerCounters>,
    authority: Authority,
    drain: Drain,
}

/// Says what the listener told it of the connection.
fn telling() -> Handler {
    BoxCloneSyncService::new(tower::service_fn(|request: Request<Body>| async move {
        if request.uri().path() == "/slow" {
            std::future::pending::<()>().await;
        }
        let connection = request.extensions().get::<Arc<Connection>>().unwrap();
        let text = format!(
            "{} {:?} {}",
            connection.peer.ip(),
            connection.server_name.as_deref(),
            connection.client_chain.len()
        );
        Ok::<_, Infallible>(Response::new(Body::from(text.into_bytes())))
    }))
}

async fn serve(options: ListenerOptions) -> Served {
    let authority = Authority::new();
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind_with(address, options).await.unwrap();
    let tls = TlsSource::new(&authority.tls_spec()).unwrap();
    let served = Served {
        address: listener.address(),
        tls: Arc::clone(&tls),
        counters: listener.counters(),
        authority,
        drain: Drain::new(),
    };
    tokio::spawn(listener.serve(tls, telling(), served.drain.clone()));
    served
}

impl Served {
    async fn ask(&self, config: rustls::ClientConfig, request: &str) -> std::io::Result<String> {
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("LocalHost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, tcp).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn taken_port_is_an_error_that_names_it() {
    let first = Listener::bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    assert_ne!(first.address().port(), 0);
    let error = Listener::bind(first.address()).await.unwrap_err();
    assert!(
        error.to_string().contains(&first.address().to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn certificates_are_asked_for_recorded_and_not_required() {
    let served = serve(ListenerOptions::default()).await;
    let own = &served.authority;
    let bare = served
        .ask(own.client_config(false, &[b"http/1.1"]), GET)
        .await
        .unwrap();
    assert!(bare.ends_with("127.0.0.1 Some(\"localhost\") 0"), "{bare}");
    let shown = served
        .ask(own.client_config(true, &[b"http/1.1"]), GET)
        .await
        .unwrap();
    assert!(
        shown.ends_with("127.0.0.1 Some(\"localhost\") 1"),
        "{shown}"
    );
    // Another authority's certificate, shown to a server that is trusted.
    let stranger = Authority::new();
    let mut confused = Authority::new();
    confused.ca_pem = own.ca_pem.clone();
    confused.client_der = stranger.client_der.clone();
    confused.client_key = stranger.client_key.clone();
    // It comes through, and is judged by whoever serves: beside it may be a token.
    let recorded = served
        .ask(confused.client_config(true, &[b"http/1.1"]), GET)
        .await
        .unwrap();
    assert!(recorded.ends_with(" 1"), "{recorded}");
    // A listener without a judge has it refused in the handshake.
    let mut strict = own.tls_spec();
    strict.client_certificates = ClientCertificates::OfAuthorities;
    served.tls.replace(&strict).unwrap();
    let refused = served
        .ask(confused.client_config(true, &[b"http/1.1"]), GET)
        .await;
    assert!(refused.is_err(), "{refused:?}");
    until(|| served.counters.handshake_failures.load(Ordering::Relaxed) == 1).await;
}

#[tokio::test]
async fn new_certificates_serve_the_next_handshake() {
    let served = serve(ListenerOptions::default()).await;
    let next = Authority::new();
    let before = served
        .ask(next.client_config(false, &[b"http/1.1"]), GET)
        .await;
    assert!(before.is_err());
    served.tls.replace(&next.tls_spec()).unwrap();
    let after = served
        .ask(next.client_config(true, &[b"http/1.1"]), GET)
        .await
        .unwrap();
    assert!(after.ends_with(" 1"), "{after}");
    let nothing = served.tls.replace(&TlsSpec::default());
    assert!(matches!(nothing, Err(TlsError::NoIdentity)));
    let mut halves = next.tls_spec();
    halves.identities[0].key_pem = served.authority.server.key_pem.clone();
    assert!(
        served.tls.replace(&halves).is_err(),
        "a key of another certificate"
    );
    let still = served
        .ask(next.client_config(true, &[b"http/1.1"]), GET)
        .await;
    assert!(still.is_ok(), "the last good one stays");
}

#[tokio::test]
async fn silence_is_not_waited_for() {
    let options = ListenerOptions {
        handshake_timeout: Duration::from_millis(100),
        first_request_timeout: Duration::from_millis(100),
        http1_idle_timeout: Duration::from_millis(100),
        ..ListenerOptions::default()
    };
    let served = serve(options).await;
    let mut tcp = TcpStream::connect(served.address).await.unwrap();
    assert_eq!(tcp.read(&mut [0]).await.unwrap_or(0), 0, "no handshake");
    for (alpn, sends) in [
        (&b"http/1.1"[..], "GET / HT"),
        (b"h2", ""),
        (b"h2", "PRI * HT"),
    ] {
        let config = served.authority.client_config(false, &[alpn]);
        let begun = std::time::Instant::now();
        let answer = served.ask(config, sends).await.unwrap_or_default();
        assert!(!answer.contains("200"), "{answer}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{sends:?}");
    }
}

/// What comes back on a connection that begins with `header` and goes on with TLS.
async fn proxied(served: &Served, header: &[u8]) -> std::io::Result<String> {
    let mut tcp = TcpStream::connect(served.address).await?;
    tcp.write_all(header).await?;
    let config = served.authority.client_config(false, &[b"http/1.1"]);
    let name = ServerName::try_from("localhost").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, tcp).await?;
    stream.write_all(GET.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn a_named_balancer_says_whose_connection_it_is_and_nobody_else_may() {
    const V1: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 8080 443\r\n";
    const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";
    let named = |network: &str| ListenerOptions {
        proxied_from: Networks::new([network.parse().unwrap()]),
        handshake_timeout: Duration::from_millis(500),
        ..ListenerOptions::default()
    };
    let balanced = serve(named("127.0.0.0/8")).await;
    let answer = proxied(&balanced, V1).await.unwrap();
    assert!(answer.contains("192.0.2.7 "), "{answer}");
    let answer = proxied(&balanced, LOCAL).await.unwrap();
    assert!(answer.contains("127.0.0.1 "), "{answer}");
    let refused = &balanced.counters.headers_refused;
    assert_eq!(refused.load(Ordering::Relaxed), 0);
    // Without one, with half a one, and with one that is none.
    for header in [&b""[..], &V1[..20], b"PROXY TCP4 me you 1 2\r\n"] {
        let broken = proxied(&balanced, header).await;
        assert!(broken.is_err(), "{header:?}: {broken:?}");
    }
    until(|| refused.load(Ordering::Relaxed) == 3).await;
    // Whoever says nothing at all is not waited for.
    let mut silent = TcpStream::connect(balanced.address).await.unwrap();
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
    until(|| refused.load(Ordering::Relaxed) == 4).await;

    let open = serve(named("10.0.0.0/8")).await;
    let posed = proxied(&open, V1).await;
    assert!(posed.is_err(), "{posed:?}");
    until(|| open.counters.handshake_failures.load(Ordering::Relaxed) == 1).await;
    assert!(proxied(&open, b"").await.unwrap().contains("127.0.0.1 "));
}

/// The request may be on its way when the connection is told to leave.
#[tokio::test]
async fn a_connection_without_a_request_yet_is_answered_while_draining() {
    let served = serve(ListenerOptions::default()).await;
    let config = served.authority.client_config(false, &[b"http/1.1"]);
    let tcp = TcpStream::connect(served.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, tcp).await.unwrap();
    until(|| served.drain.alive() == 1).await;
    // The only connection: it is told to leave at once.
    served.drain.start(Duration::from_secs(20));
    until_refused(served.address).await;
    let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let drained = served.drain.finish(Duration::from_secs(20)).await;
    assert_eq!(drained.cut, 0);
}

/// Waits until nothing listens any more, which is a while after the drain has begun.
async fn until_refused(address: std::net::SocketAddr) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).await.is_ok() {
        assert!(tokio::time::Instant::now() < limit, "it listens for ever");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn headers_have_a_bound() {
    let served = serve(ListenerOptions::default()).await;
    let get = |bytes: usize| {
        let fill = "x".repeat(bytes);
        format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {fill}\r\n\r\n")
    };
    let config = || served.authority.client_config(false, &[b"http/1.1"]);
    let long = served.ask(config(), &get(40_000)).await.unwrap();
    assert!(long.starts_with("HTTP/1.1 200"), "long tokens are legal");
    let longer = served.ask(config(), &get(200_000)).await;
    assert!(longer.is_err() || longer.unwrap().starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn connections_have_a_bound() {
    let options = ListenerOptions {
        connections_max: 2,
        ..ListenerOptions::default()
    };
    let served = serve(options).await;
    let first = TcpStream::connect(served.address).await.unwrap();
    let _second = TcpStream::connect(served.address).await.unwrap();
    until(|| served.counters.accepted.load(Ordering::Relaxed) == 2).await;
    let config = || served.authority.client_config(false, &[b"http/1.1"]);
    let third = tokio::time::timeout(Duration::from_millis(200), served.ask(config(), GET)).await;
    assert!(third.is_err(), "it waits");
    drop(first);
    let served = served.ask(config(), GET).await.unwrap();
    assert!(served.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn resets_in_a_hurry_close_the_connection() {
    let served = serve(ListenerOptions::default()).await;
    let config = Arc::new(served.authority.client_config(false, &[b"h2"]));
    let tcp = TcpStream::connect(served.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = tokio_rustls::TlsConnector::from(config)
        .connect(name, tcp)
        .await
        .unwrap();
    let (mut sender, driver) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(driver);
    for _ in 0..2_000 {
        let Ok(ready) = sender.ready().await else {
            break;
        };
        sender = ready;
        let request = Request::get("https://localhost/slow").body(()).unwrap();
        let Ok((_, mut stream)) = sender.send_request(request, true) else {
            break;
        };
        tokio::task::yield_now().await;
        stream.send_reset(h2::Reason::CANCEL);
        tokio::task::yield_now().await;
    }
    let ended = tokio::time::timeout(Duration::from_secs(5), driver).await;
    assert!(ended.is_ok(), "the connection is gone");
    let tcp = TcpStream::connect(served.address).await.unwrap();
    drop(tcp);
    let config = served.authority.client_config(false, &[b"http/1.1"]);
    let other = served.ask(config, GET).await.unwrap();
    assert!(other.starts_with(&format!("HTTP/1.1 {}", StatusCode::OK.as_u16())));
}
