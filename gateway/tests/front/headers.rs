//! What reaches the upstream of a request's head, and what does not.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use sluice_gateway::identity::{RequestHeaders, UserInfo};
use sluice_gateway::upstream::{ClusterSpec, IdentityMode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fake::{self, Fake, Options, answer, script};
use crate::rig::{Rig, alice, get, lines, post, text};

type Heads = Arc<Mutex<Vec<(String, HeaderMap)>>>;

/// An upstream that keeps every request's URI and headers.
async fn recorder() -> (Fake, Heads) {
    let heads = Heads::default();
    let kept = Arc::clone(&heads);
    let recording = script(move |mut exchange| {
        let kept = Arc::clone(&kept);
        async move {
            let uri = exchange.request.uri().path_and_query().unwrap().to_string();
            let mut headers = exchange.request.headers().clone();
            fake::content(&mut exchange.request).await;
            if let Ok(Some(trailers)) = exchange.request.body_mut().trailers().await {
                headers.extend(trailers);
            }
            kept.lock().push((uri, headers));
            answer(exchange, StatusCode::OK, "{}").await;
        }
    });
    (Fake::start(Options::default(), recording).await, heads)
}

fn spec(fake: &Fake, mode: IdentityMode, token: Option<PathBuf>) -> ClusterSpec {
    let mut spec = ClusterSpec::new("test", [fake.url()]);
    spec.identity = mode;
    spec.credentials.token_file = token.map(Into::into);
    spec
}

fn token_file(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("token");
    std::fs::write(&path, "own\n").unwrap();
    path
}

/// The lines that differ from request to request or from run to run, taken out.
fn told(headers: &HeaderMap) -> Vec<String> {
    let mut lines = lines(headers);
    lines.retain(|l| !l.starts_with("via: ") && !l.starts_with("audit-id: "));
    lines
}

/// Everything a client may try, each of which must not survive.
const ATTACKS: &[(&str, &str)] = &[
    ("impersonate-user", "root"),
    ("Impersonate-Group", "system:masters"),
    ("impersonate-uid", "0"),
    ("impersonate-extra-scopes", "all"),
    ("impersonate-whatever", "x"),
    ("impersonate_user", "root"),
    ("x-remote-user", "root"),
    ("X-Remote-Group", "system:masters"),
    ("x-remote-uid", "0"),
    ("x-remote-extra-scopes", "all"),
    ("x_remote_user", "root"),
    ("x-remote_group", "system:masters"),
    ("x-forwarded-for", "10.9.9.9"),
    ("x-forwarded-host", "evil"),
    ("x-forwarded-proto", "http"),
    ("x-real-ip", "10.9.9.9"),
    ("forwarded", "for=10.9.9.9"),
    ("x-kubernetes-peer-proxied", "true"),
    ("audit-id", "chosen"),
    ("proxy-authorization", "Basic x"),
    ("expect", "100-continue"),
    (
        "sec-websocket-protocol",
        "x, base64url.bearer.authorization.k8s.io.Y2xpZW50",
    ),
];

fn attacked(path: &str) -> Request<Full<Bytes>> {
    let mut request = get(path);
    for (name, value) in ATTACKS {
        let name = HeaderName::try_from(*name).unwrap();
        request
            .headers_mut()
            .append(name, HeaderValue::from_static(value));
    }
    let headers = request.headers_mut();
    headers.insert("authorization", HeaderValue::from_static("Bearer client"));
    headers.insert("user-agent", HeaderValue::from_static("kubectl"));
    headers.insert("accept-encoding", HeaderValue::from_static("gzip"));
    headers.insert("te", HeaderValue::from_static("trailers"));
    request
}

#[tokio::test]
async fn client_copies_die_and_the_callers_identity_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, heads) = recorder().await;
    let rows: [(IdentityMode, &[&str]); 2] = [
        (
            IdentityMode::Impersonate,
            &[
                "accept-encoding: gzip",
                "authorization: Bearer own",
                "impersonate-group: dev",
                "impersonate-group: system:authenticated",
                "impersonate-user: alice",
                "te: trailers",
                "user-agent: kubectl",
                "x-forwarded-for: 127.0.0.1",
            ],
        ),
        (
            IdentityMode::FrontProxy,
            &[
                "accept-encoding: gzip",
                "te: trailers",
                "user-agent: kubectl",
                "x-forwarded-for: 127.0.0.1",
                "x-remote-group: dev",
                "x-remote-group: system:authenticated",
                "x-remote-user: alice",
            ],
        ),
    ];
    for (mode, expected) in rows {
        let rig = Rig::with(spec(&fake, mode, Some(token_file(&dir))), alice()).await;
        let mut client = rig.http2().await;
        for _ in 0..2 {
            // The second comes out of the connection's cache.
            let response = client.send(attacked("/api/v1/pods")).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let (_, headers) = heads.lock().pop().unwrap();
            assert_eq!(told(&headers), expected, "{mode:?}");
            let audit_id = "00000000-0000-0000-0000-000000000007";
            assert_eq!(headers["audit-id"], audit_id);
            assert!(headers["via"].to_str().unwrap().starts_with("2.0 sluice-"));
        }
    }
}

/// The names that a cluster's own front proxies use are no client's, in whatever mode.
#[tokio::test]
async fn configured_names_die_in_every_mode_and_are_said_where_they_are_meant() {
    let dir = tempfile::tempdir().unwrap();
    let (fake, heads) = recorder().await;
    let name = |text: &'static str| HeaderName::from_static(text);
    let names = RequestHeaders::new(
        vec![name("sso-user"), name("x-old-user")],
        Vec::new(),
        vec![name("sso_group")],
        vec!["sso-extra-".to_owned()],
    );
    let attacks = [
        "sso-user",
        "sso_user",
        "x-old-user",
        "x_old_user",
        "sso_group",
        "sso-group",
        "sso-extra-scopes",
        "sso_extra_scopes",
        "sso-extra-",
        "x-remote-user",
    ];
    // Near, and none of them.
    let others = ["sso-users", "sso-use", "sso-extr", "x-old-user-agent"];
    let rows: [(IdentityMode, &[&str]); 3] = [
        (IdentityMode::Impersonate, &[]),
        (
            IdentityMode::FrontProxy,
            &[
                "sso-user: alice",
                "sso_group: dev",
                "sso_group: system:authenticated",
            ],
        ),
        (IdentityMode::PassThrough, &[]),
    ];
    for (mode, said) in rows {
        let mut spec = spec(&fake, mode, Some(token_file(&dir)));
        spec.request_headers = Arc::new(names.clone());
        let rig = Rig::with(spec, alice()).await;
        let mut client = rig.http2().await;
        let mut request = post("/api/v1/namespaces/n/pods", "{}");
        let headers = request.headers_mut();
        for name in attacks.into_iter().chain(others) {
            let name = HeaderName::try_from(name).unwrap();
            headers.append(name, HeaderValue::from_static("root"));
        }
        headers.insert("authorization", HeaderValue::from_static("Bearer client"));
        let response = client.send(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{mode:?}");
        let (_, headers) = heads.lock().pop().unwrap();
        let seen: Vec<String> = told(&headers)
            .into_iter()
            .filter(|line| {
                line.starts_with("sso") || line.starts_with("x-old") || line.starts_with("x-remote")
            })
            .collect();
        let mut expected: Vec<String> = others.iter().map(|name| format!("{name}: root")).collect();
        expected.extend(said.iter().map(|&line| line.to_owned()));
        expected.sort();
        assert_eq!(seen, expected, "{mode:?}");
    }
}

#[tokio::test]
async fn pass_through_keeps_the_callers_token_and_needs_one() {
    let (fake, heads) = recorder().await;
    let rig = Rig::with(spec(&fake, IdentityMode::PassThrough, None), alice()).await;
    let mut client = rig.http2().await;
    let mut request = attacked("/api/v1/pods");
    for name in [
        "impersonate-whatever",
        "impersonate_user",
        "sec-websocket-protocol",
    ] {
        request.headers_mut().remove(name);
    }
    client.send(request).await.unwrap();
    let (_, headers) = heads.lock().pop().unwrap();
    let expected = [
        "accept-encoding: gzip",
        "authorization: Bearer client",
        "impersonate-extra-scopes: all",
        "impersonate-group: system:masters",
        "impersonate-uid: 0",
        "impersonate-user: root",
        "te: trailers",
        "user-agent: kubectl",
        "x-forwarded-for: 127.0.0.1",
    ];
    assert_eq!(told(&headers), expected);
    let refused = client.get("/api/v1/pods").await;
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert!(heads.lock().is_empty());
}

/// Sends bytes as they are and returns the status line of the answer.
async fn raw(rig: &Rig, request: &str) -> String {
    let mut stream = rig.tls(&[b"http/1.1"]).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(2).any(|w| w == b"\r\n") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
    }
    let answer = String::from_utf8(answer).unwrap();
    answer.lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn connection_header_cannot_take_the_gateways_lines_away() {
    let (fake, heads) = recorder().await;
    let rig = Rig::of([fake.url()]).await;
    let request = "GET /api/v1/pods HTTP/1.1\r\nHost: localhost\r\n\
         Connection: Impersonate-User, impersonate-group, X-Gone, Content-Length, Host\r\n\
         Keep-Alive: 5\r\nX-Gone: 1\r\nX-Stays: 1\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    assert_eq!(raw(&rig, request).await, "HTTP/1.1 200 OK");
    let (_, headers) = heads.lock().pop().unwrap();
    let expected = [
        "impersonate-group: dev",
        "impersonate-group: system:authenticated",
        "impersonate-user: alice",
        "x-forwarded-for: 127.0.0.1",
        "x-stays: 1",
    ];
    assert_eq!(told(&headers), expected);
}

#[tokio::test]
async fn two_ways_to_read_a_request_are_refused() {
    let (fake, heads) = recorder().await;
    let rig = Rig::of([fake.url()]).await;
    let two_hosts = "GET /api/v1/pods HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
    assert_eq!(raw(&rig, two_hosts).await, "HTTP/1.1 400 Bad Request");
    let trace = "TRACE /api/v1/pods HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(raw(&rig, trace).await, "HTTP/1.1 405 Method Not Allowed");
    assert!(heads.lock().is_empty());
}

#[tokio::test]
async fn nameless_user_is_never_sent_as_the_gateway_itself() {
    let (fake, heads) = recorder().await;
    let nobody = UserInfo::default();
    let rig = Rig::with(spec(&fake, IdentityMode::Impersonate, None), nobody).await;
    let response = rig.http2().await.get("/api/v1/pods").await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(heads.lock().is_empty());
}

#[tokio::test]
async fn uri_reaches_the_upstream_byte_for_byte() {
    let (fake, heads) = recorder().await;
    let rig = Rig::of([fake.url()]).await;
    let mut client = rig.http2().await;
    let uris = [
        "/api/v1/namespaces/a/services/s:80/proxy/x%2Fy?b=2&a=1;c&flag",
        "/api/v1/namespaces/a/services/https:s:443/proxy/",
        "/api/v1/namespaces/a/pods/p/proxy//empty//segments/",
        "/api/v1/namespaces/a/pods/p/proxy/%C3%BC%20nicode/%e2%82%ac",
        "/api/v1/namespaces/a/pods/p/proxy/a+b?q=a+b%2Bc&q=%20",
        "/api/v1/namespaces/a/pods/p/exec?command=sh&command=-c&command=echo%20%22hi%22&stdin=true",
        "/api/v1/pods?labelSelector=a%3Db%2Cc%21%3Dd&limit=500",
        "/api/v1/pods?",
        "/api/v1/pods?fieldSelector=metadata.name%3Dx&&=&x",
        "/apis/apps/v1/namespaces/n/deployments/d?fieldManager=kubectl%2Fv1",
    ];
    for uri in uris {
        let response = client.get(uri).await;
        assert_eq!(response.status(), StatusCode::OK, "{uri}");
        text(response).await;
        assert_eq!(heads.lock().pop().unwrap().0, uri);
    }
}

#[tokio::test]
async fn answers_pass_with_warnings_and_trailers() {
    let answering = script(|mut exchange| async move {
        let response = http::Response::builder()
            .header("audit-id", "from-upstream")
            .header("warning", "299 - \"one\"")
            .header("warning", "299 - \"two\"")
            .header("x-kubernetes-pf-flowschema-uid", "u")
            .header("content-encoding", "gzip")
            .body(())
            .unwrap();
        let mut stream = exchange.respond.send_response(response, false).unwrap();
        stream
            .send_data(Bytes::from_static(b"\x1f\x8b"), false)
            .unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        stream.send_trailers(trailers).unwrap();
    });
    let fake = Fake::start(Options::default(), answering).await;
    let rig = Rig::of([fake.url()]).await;
    let response = rig.http2().await.get("/api/v1/pods").await;
    let headers = response.headers().clone();
    assert_eq!(headers["audit-id"], "from-upstream");
    assert_eq!(headers.get_all("warning").iter().count(), 2);
    assert_eq!(headers["x-kubernetes-pf-flowschema-uid"], "u");
    assert_eq!(headers["content-encoding"], "gzip");
    assert!(!headers.contains_key("x-sluice-origin"));
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(body.to_bytes(), Bytes::from_static(b"\x1f\x8b"));
}

#[tokio::test]
async fn request_trailers_pass_without_identities() {
    let (fake, heads) = recorder().await;
    let mut spec = ClusterSpec::new("test", [fake.url()]);
    let name = |text: &'static str| vec![HeaderName::from_static(text)];
    let names = RequestHeaders::new(name("sso-user"), Vec::new(), name("sso-group"), Vec::new());
    spec.request_headers = Arc::new(names);
    let rig = Rig::with(spec, alice()).await;
    let stream = rig.tls(&[b"h2"]).await;
    let (mut sender, driver) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(driver);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("1"));
    trailers.insert("impersonate-user", HeaderValue::from_static("root"));
    trailers.insert("x-remote-group", HeaderValue::from_static("system:masters"));
    trailers.insert("sso-group", HeaderValue::from_static("system:masters"));
    let body =
        Full::new(Bytes::from_static(b"{}")).with_trailers(std::future::ready(Some(Ok(trailers))));
    let request = Request::post("https://localhost/api/v1/namespaces/n/pods")
        .body(body)
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let (_, headers) = heads.lock().pop().unwrap();
    assert_eq!(headers["x-checksum"], "1");
    let users: Vec<_> = headers.get_all("impersonate-user").iter().collect();
    assert_eq!(users, ["alice"]);
    assert!(!headers.contains_key("x-remote-group"));
    assert!(!headers.contains_key("sso-group"));
}

#[tokio::test]
async fn request_that_comes_back_is_a_loop() {
    let (fake, heads) = recorder().await;
    let rig = Rig::of([fake.url()]).await;
    let mut client = rig.http2().await;
    client.get("/api/v1/pods").await;
    let via = heads.lock().pop().unwrap().1["via"].clone();
    let mut again = get("/api/v1/pods");
    let chained = format!("1.1 other, {}", via.to_str().unwrap());
    again
        .headers_mut()
        .insert("via", HeaderValue::from_str(&chained).unwrap());
    let response = client.send(again).await.unwrap();
    assert_eq!(response.status(), StatusCode::LOOP_DETECTED);
    assert!(heads.lock().is_empty());
    let mut stranger = get("/api/v1/pods");
    stranger
        .headers_mut()
        .insert("via", HeaderValue::from_static("1.1 other"));
    let response = client.send(stranger).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(heads.lock()[0].1.get_all("via").iter().count(), 2);
}

#[tokio::test]
async fn redirect_to_another_host_is_not_passed_on() {
    let redirecting = script(|mut exchange| async move {
        let uri = exchange.request.uri().clone();
        let to = uri.query().unwrap().trim_start_matches("labelSelector=");
        let to = to.replace("%5C", "\\");
        let response = http::Response::builder()
            .status(StatusCode::TEMPORARY_REDIRECT)
            .header("location", to)
            .body(())
            .unwrap();
        exchange.respond.send_response(response, true).unwrap();
    });
    let fake = Fake::start(Options::default(), redirecting).await;
    let rig = Rig::of([fake.url()]).await;
    let mut client = rig.http2().await;
    let rows = [
        ("/elsewhere", StatusCode::TEMPORARY_REDIRECT),
        ("//evil.example/x", StatusCode::BAD_GATEWAY),
        ("https://evil.example/x", StatusCode::BAD_GATEWAY),
        ("/\\evil.example/x", StatusCode::BAD_GATEWAY),
    ];
    // The apiserver's own answers, an aggregated server's, and no resource's.
    for path in ["/api/v1/pods", "/apis/example.com/v1/things", "/version"] {
        for (to, expected) in rows {
            let to = to.replace('\\', "%5C");
            let response = client.get(&format!("{path}?labelSelector={to}")).await;
            assert_eq!(response.status(), expected, "{path} {to}");
        }
    }
    let proxied = "/api/v1/namespaces/n/services/s/proxy/?labelSelector=https://elsewhere/";
    let response = client.get(proxied).await;
    assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT);
}

#[tokio::test]
async fn an_upstream_that_does_not_know_the_gateway_is_503_and_not_401() {
    let denying = script(|exchange| answer(exchange, StatusCode::UNAUTHORIZED, "no"));
    let fake = Fake::start(Options::default(), denying).await;
    let dir = tempfile::tempdir().unwrap();
    let pods = "/api/v1/pods";
    let rows = [
        (IdentityMode::Impersonate, get(pods), 503, true),
        (IdentityMode::FrontProxy, get(pods), 503, true),
        // A webhook may have said so, which no wait changes.
        (IdentityMode::Impersonate, post(pods, "{}"), 503, false),
        // What a server behind the apiserver says is between it and the caller.
        (
            IdentityMode::Impersonate,
            get("/api/v1/namespaces/n/services/s/proxy/"),
            401,
            false,
        ),
        (IdentityMode::PassThrough, get(pods), 401, false),
    ];
    for (mode, mut request, expected, waits) in rows {
        let rig = Rig::with(spec(&fake, mode, Some(token_file(&dir))), alice()).await;
        let bearer = HeaderValue::from_static("Bearer client");
        request.headers_mut().insert("authorization", bearer);
        let name = format!("{mode:?} {} {}", request.method(), request.uri());
        let response = rig.http2().await.send(request).await.unwrap();
        assert_eq!(response.status(), expected, "{name}");
        assert_eq!(response.headers().contains_key("retry-after"), waits);
    }
}
