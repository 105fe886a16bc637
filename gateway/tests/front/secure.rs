//! TLS towards the upstream: it is verified, and shown what the gateway has to show.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use sluice_gateway::body::Body;
use sluice_gateway::context::Connection;
use sluice_gateway::drain::Drain;
use sluice_gateway::listener::{Handler, Listener, TlsSource};
use sluice_gateway::material::Material;
use sluice_gateway::upstream::{
    CallOptions, ClusterSpec, CredentialsSpec, IdentityMode, UpstreamError,
};
use tokio::sync::Notify;
use tower::util::BoxCloneSyncService;

use crate::rig::{Authority, Rig, alice, get, text};

/// An upstream that says how many certificates it was shown, and by which credentials.
fn telling() -> Handler {
    BoxCloneSyncService::new(tower::service_fn(|request: Request<Body>| async move {
        let connection = request.extensions().get::<Arc<Connection>>().unwrap();
        let bearer = request.headers().get("authorization").is_some();
        let text = format!(
            "certificates={} bearer={bearer}",
            connection.client_chain.len()
        );
        Ok::<_, Infallible>(Response::new(Body::from(text.into_bytes())))
    }))
}

struct Upstream {
    url: String,
    dir: tempfile::TempDir,
}

impl Upstream {
    async fn start() -> Upstream {
        Upstream::serving(telling()).await
    }

    async fn serving(handler: Handler) -> Upstream {
        let authority = Authority::new();
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("ca.pem", &authority.ca_pem);
        write("client.pem", &authority.client_pem);
        write("client.key", &authority.client_key_pem);
        write("other.pem", &Authority::new().ca_pem);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let url = format!("https://{}", listener.address());
        let tls = TlsSource::new(&authority.tls_spec()).unwrap();
        tokio::spawn(listener.serve(tls, handler, Drain::new()));
        Upstream { url, dir }
    }

    fn path(&self, name: &str) -> Option<Material> {
        Some(self.dir.path().join(name).into())
    }

    fn spec(&self, mode: IdentityMode) -> ClusterSpec {
        let mut spec = ClusterSpec::new("test", [self.url.clone()]);
        spec.identity = mode;
        spec.tls.ca_file = self.path("ca.pem");
        spec.credentials.client_cert_file = self.path("client.pem");
        spec.credentials.client_key_file = self.path("client.key");
        spec
    }
}

#[tokio::test]
async fn certificate_is_shown_except_beside_a_callers_token() {
    let upstream = Upstream::start().await;
    let rows = [
        (IdentityMode::Impersonate, "certificates=1 bearer=false"),
        (IdentityMode::FrontProxy, "certificates=1 bearer=false"),
        (IdentityMode::PassThrough, "certificates=0 bearer=true"),
    ];
    for (mode, expected) in rows {
        let rig = Rig::with(upstream.spec(mode), alice()).await;
        let mut request = get("/api/v1/pods");
        request
            .headers_mut()
            .insert("authorization", "Bearer own".parse().unwrap());
        let response = rig.http2().await.send(request).await.unwrap();
        assert_eq!(text(response).await, expected, "{mode:?}");
        let (_, said) = rig
            .cluster
            .call("/own", Bytes::from_static(b"{}"), CallOptions::default())
            .await
            .unwrap();
        assert_eq!(
            said, "certificates=1 bearer=false",
            "the gateway's own call, {mode:?}"
        );
    }
}

#[tokio::test]
async fn stranger_and_wrong_name_are_refused() {
    let upstream = Upstream::start().await;
    let mut stranger = upstream.spec(IdentityMode::Impersonate);
    stranger.tls.ca_file = upstream.path("other.pem");
    let mut misnamed = upstream.spec(IdentityMode::Impersonate);
    misnamed.tls.server_name = Some("elsewhere.example".into());
    let mut named = upstream.spec(IdentityMode::Impersonate);
    named.tls.server_name = Some("localhost".into());
    let rows = [
        (stranger, StatusCode::SERVICE_UNAVAILABLE),
        (misnamed, StatusCode::SERVICE_UNAVAILABLE),
        (named, StatusCode::OK),
    ];
    for (spec, expected) in rows {
        let name = format!("{:?}", spec.tls);
        let rig = Rig::with(spec, alice()).await;
        let status = rig.http2().await.get("/api/v1/pods").await.status();
        assert_eq!(status, expected, "{name}");
    }
}

#[tokio::test]
async fn rotated_certificate_is_used_for_the_next_request() {
    let upstream = Upstream::start().await;
    let mut spec = upstream.spec(IdentityMode::Impersonate);
    let rig = Rig::with(spec.clone(), alice()).await;
    let mut client = rig.http2().await;
    assert!(
        text(client.get("/api/v1/pods").await)
            .await
            .contains("certificates=1")
    );
    spec.credentials.client_cert_file = None;
    spec.credentials.client_key_file = None;
    rig.cluster.apply(spec.clone()).unwrap();
    assert!(
        text(client.get("/api/v1/pods").await)
            .await
            .contains("certificates=0")
    );
    assert_eq!(
        rig.cluster.endpoints()[0].connections,
        1,
        "the old one has left the pool"
    );
    spec.credentials.client_cert_file = upstream.path("client.pem");
    let half = rig.cluster.apply(spec.clone());
    assert!(matches!(half, Err(UpstreamError::HalfPair)));
    spec.credentials.client_key_file = upstream.path("ca.pem");
    let no_key = rig.cluster.apply(spec.clone()).unwrap_err();
    assert!(no_key.to_string().contains("ca.pem"), "{no_key}");
    spec.credentials = Default::default();
    spec.tls.ca_file = None;
    assert!(matches!(
        rig.cluster.apply(spec),
        Err(UpstreamError::NoCa { .. })
    ));
    assert_eq!(client.get("/api/v1/pods").await.status(), StatusCode::OK);
}

/// An upstream that tells what it was shown, and whose answer to a watch goes on when it is let.
fn streaming(go_on: &Arc<Notify>) -> Handler {
    let go_on = Arc::clone(go_on);
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let go_on = Arc::clone(&go_on);
        async move {
            let connection = request.extensions().get::<Arc<Connection>>().unwrap();
            let leaf = connection.client_chain.first();
            let leaf: u64 = leaf.map_or(0, |leaf| leaf.iter().map(|&b| u64::from(b)).sum());
            let bearer = request.headers().get("authorization");
            let bearer = bearer.map_or("none", |value| value.to_str().unwrap());
            let told = format!("leaf={leaf} bearer={bearer}\n");
            let is_watch = request.uri().query().is_some();
            let frames = futures_util::stream::unfold(0, move |at| {
                let (told, go_on) = (told.clone(), Arc::clone(&go_on));
                async move {
                    match at {
                        0 => {}
                        1 if is_watch => go_on.notified().await,
                        _ => return None,
                    }
                    Some((Ok(http_body::Frame::data(Bytes::from(told))), at + 1))
                }
            });
            let body = http_body_util::StreamBody::new(frames);
            let mut response = Response::new(Body::Boxed(UnsyncBoxBody::new(body)));
            let json = http::HeaderValue::from_static("application/json");
            response.headers_mut().insert("content-type", json);
            Ok::<_, Infallible>(response)
        }
    }))
}

/// Certificate and key, then token: the next request has the new one, and what runs goes on.
#[tokio::test]
async fn own_credentials_change_while_streams_run() {
    let go_on = Arc::new(Notify::new());
    let upstream = Upstream::serving(streaming(&go_on)).await;
    let write = |name: &str, text: &str| std::fs::write(upstream.dir.path().join(name), text);
    let next = Authority::new();
    let by_certificate = upstream.spec(IdentityMode::Impersonate);
    let mut by_token = by_certificate.clone();
    by_token.credentials = CredentialsSpec {
        token_file: upstream.path("token"),
        ..CredentialsSpec::default()
    };
    for spec in [by_certificate, by_token] {
        write("token", "old").unwrap();
        let rig = Rig::with(spec, alice()).await;
        let mut client = rig.http2().await;
        let before = text(client.get("/api/v1/pods").await).await;
        let mut watch = client.get("/api/v1/pods?watch=true").await.into_body();
        let first = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, before);

        // Half of a pair is no credential: the old one stays.
        write("client.pem", &next.client_pem).unwrap();
        let half = rig.cluster.refresh();
        assert_eq!(half.is_err(), before.contains("bearer=none"), "{half:?}");
        assert_eq!(text(client.get("/api/v1/pods").await).await, before);
        write("client.key", &next.client_key_pem).unwrap();
        write("token", "new").unwrap();
        rig.cluster.refresh().unwrap();
        let after = text(client.get("/api/v1/pods").await).await;
        assert_ne!(after, before);
        go_on.notify_one();
        let second = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(second, before, "on the old connection, by what began it");
        let rest = watch.collect().await.expect("a clean end").to_bytes();
        assert!(rest.is_empty(), "{rest:?}");
    }
}
