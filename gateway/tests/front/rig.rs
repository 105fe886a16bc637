//! A gateway of listener, forwarder and cluster, and clients for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use sluice_gateway::body::Body;
use sluice_gateway::context::{Connection, RequestContext, RequestId};
use sluice_gateway::drain::Drain;
use sluice_gateway::forward;
use sluice_gateway::identity::UserInfo;
use sluice_gateway::listener::{
    ClientCertificates, Handler, Listener, ServerIdentity, TlsSource, TlsSpec,
};
use sluice_gateway::request::RequestInfo;
use sluice_gateway::upstream::{Cluster, ClusterSpec};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tower::util::BoxCloneSyncService;

pub(crate) struct Rig {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) drain: Drain,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) authority: Authority,
}

/// A certificate authority with a server's and a client's certificate.
pub(crate) struct Authority {
    pub(crate) ca_pem: String,
    pub(crate) server: ServerIdentity,
    pub(crate) client_der: CertificateDer<'static>,
    pub(crate) client_key: Vec<u8>,
    pub(crate) client_pem: String,
    pub(crate) client_key_pem: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_cert = ca.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(ca, &ca_key);
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let server_key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(names).unwrap();
        let server = server.signed_by(&server_key, &issuer).unwrap();
        let client_key = KeyPair::generate().unwrap();
        let mut client = CertificateParams::new(Vec::new()).unwrap();
        client.distinguished_name.push(DnType::CommonName, "alice");
        let client = client.signed_by(&client_key, &issuer).unwrap();
        Authority {
            ca_pem: ca_cert.pem(),
            server: ServerIdentity {
                certificate_pem: server.pem().into_bytes(),
                key_pem: server_key.serialize_pem().into_bytes(),
                names: Vec::new(),
            },
            client_der: client.der().clone(),
            client_key: client_key.serialize_der(),
            client_pem: client.pem(),
            client_key_pem: client_key.serialize_pem(),
        }
    }

    pub(crate) fn tls_spec(&self) -> TlsSpec {
        TlsSpec {
            identities: vec![self.server.clone()],
            client_cas_pem: vec![self.ca_pem.clone().into_bytes()],
            client_certificates: ClientCertificates::JudgedLater,
        }
    }

    pub(crate) fn client_config(
        &self,
        shows_certificate: bool,
        alpn: &[&[u8]],
    ) -> rustls::ClientConfig {
        use rustls_pki_types::pem::PemObject as _;
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = if shows_certificate {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.client_key.clone()));
            builder
                .with_client_auth_cert(vec![self.client_der.clone()], key)
                .unwrap()
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
        config
    }
}

pub(crate) fn alice() -> UserInfo {
    UserInfo {
        name: "alice".into(),
        groups: vec!["dev".into(), "system:authenticated".into()],
        ..UserInfo::default()
    }
}

impl Rig {
    pub(crate) async fn of(urls: impl IntoIterator<Item = String>) -> Rig {
        Rig::with(ClusterSpec::new("test", urls), alice()).await
    }

    pub(crate) async fn with(spec: ClusterSpec, user: UserInfo) -> Rig {
        let cluster = Cluster::spawn(spec).unwrap();
        let authority = Authority::new();
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(address).await.unwrap();
        let address = listener.address();
        let tls = TlsSource::new(&authority.tls_spec()).unwrap();
        let drain = Drain::new();
        let handler = handler(Arc::clone(&cluster), Arc::new(user));
        tokio::spawn(listener.serve(tls, handler, drain.clone()));
        Rig {
            cluster,
            drain,
            address,
            authority,
        }
    }

    pub(crate) async fn tls(&self, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
        let config = Arc::new(self.authority.client_config(false, alpn));
        self.tls_by(config).await
    }

    /// A connection by a client's configuration; the same one may resume a session.
    pub(crate) async fn tls_by(&self, config: Arc<rustls::ClientConfig>) -> TlsStream<TcpStream> {
        let tcp = TcpStream::connect(self.address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        tokio_rustls::TlsConnector::from(config)
            .connect(name, tcp)
            .await
            .unwrap()
    }

    pub(crate) async fn http2(&self) -> Client {
        Client::over(self.tls(&[b"h2"]).await).await
    }

    pub(crate) async fn http1(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = self.tls(&[b"http/1.1"]).await;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver.with_upgrades());
        sender
    }

    /// Waits until every endpoint has been probed.
    pub(crate) async fn probed(&self) {
        use sluice_gateway::upstream::ProbeState;
        until(|| {
            let endpoints = self.cluster.endpoints();
            endpoints.iter().all(|e| e.probe != ProbeState::Unprobed)
        })
        .await;
    }
}

/// Waits for a condition that has to come about.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come about");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn handler(cluster: Arc<Cluster>, user: Arc<UserInfo>) -> Handler {
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let (cluster, user) = (Arc::clone(&cluster), Arc::clone(&user));
        async move { Ok::<_, Infallible>(handle(&cluster, user, request).await) }
    }))
}

async fn handle(
    cluster: &Arc<Cluster>,
    user: Arc<UserInfo>,
    request: Request<Body>,
) -> Response<Body> {
    let headers = request.headers().clone();
    let info = match RequestInfo::parse(request.method(), request.uri(), &headers) {
        Ok(info) => info,
        Err(refusal) => return refusal.into_response(&headers),
    };
    let connection = request.extensions().get::<Arc<Connection>>().unwrap();
    let ctx = RequestContext {
        connection: Arc::clone(connection),
        client: connection.peer,
        id: RequestId(7),
        received: Instant::now(),
        user,
        impersonator: None,
        tether: None,
    };
    match forward::forward(cluster, &ctx, &info, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(&headers),
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    sender: http2::SendRequest<Full<Bytes>>,
}

impl Client {
    pub(crate) async fn over(stream: TlsStream<TcpStream>) -> Client {
        let (sender, driver) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(1 << 20)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(driver);
        Client { sender }
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.sender.send_request(request).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Response<Incoming> {
        self.send(get(path)).await.unwrap()
    }
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("https://localhost{path}"))
        .body(Full::default())
        .unwrap()
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("https://localhost{path}"))
        .body(Full::new(body.into()))
        .unwrap()
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Header lines of a request as text, in the order of the names, for tables.
pub(crate) fn lines(headers: &HeaderMap) -> Vec<String> {
    let line = |(n, v): (&http::HeaderName, &http::HeaderValue)| {
        format!("{n}: {}", String::from_utf8_lossy(v.as_bytes()))
    };
    let mut lines: Vec<String> = headers.iter().map(line).collect();
    lines.sort();
    lines
}
