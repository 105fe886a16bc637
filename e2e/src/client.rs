//! A plain HTTP client over one connection that the test can see: nothing is pooled, nothing is
//! repeated behind the test's back.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::pki::Leaf;

/// What went wrong; tests print it.
pub type ClientError = Box<dyn std::error::Error + Send + Sync>;

/// How to reach a server, and as whom.
#[derive(Clone)]
pub struct Client {
    address: String,
    server_name: String,
    tls: Arc<rustls::ClientConfig>,
    /// Sent with each request, if any.
    pub token: Option<String>,
    /// Sent before TLS, as a load balancer does.
    preface: Vec<u8>,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// The headers.
    pub headers: http::HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; `null` when it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or(serde_json::Value::Null)
    }
}

impl Client {
    /// A client of `127.0.0.1:port` that trusts `ca` and shows `leaf`, if any.
    ///
    /// # Panics
    /// When the files cannot be read.
    #[must_use]
    pub fn new(port: u16, ca: &Path, leaf: Option<&Leaf>) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for cert in CertificateDer::pem_file_iter(ca).expect("a CA file") {
            roots
                .add(cert.expect("a PEM certificate"))
                .expect("a usable root");
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(roots);
        let tls = match leaf {
            None => builder.with_no_client_auth(),
            Some(leaf) => {
                let chain = CertificateDer::pem_file_iter(&leaf.cert)
                    .expect("a certificate file")
                    .map(|c| c.expect("a PEM certificate"))
                    .collect();
                let key = PrivateKeyDer::from_pem_file(&leaf.key).expect("a key file");
                builder
                    .with_client_auth_cert(chain, key)
                    .expect("a matching key")
            }
        };
        Client {
            address: format!("127.0.0.1:{port}"),
            server_name: "localhost".to_owned(),
            tls: Arc::new(tls),
            token: None,
            preface: Vec::new(),
        }
    }

    /// The same client whose connections begin with these bytes, before TLS.
    #[must_use]
    pub fn with_preface(mut self, bytes: &[u8]) -> Self {
        self.preface = bytes.to_owned();
        self
    }

    /// The same client with a bearer token.
    #[must_use]
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// The same client asking for another server name.
    #[must_use]
    pub fn with_server_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.server_name);
        self
    }

    /// Opens a TLS connection that offers one protocol (`h2` or `http/1.1`).
    ///
    /// # Errors
    /// When it cannot be reached or trusted.
    pub async fn connect_tls(
        &self,
        protocol: &str,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ClientError> {
        let mut config = (*self.tls).clone();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&self.preface).await?;
        let name = ServerName::try_from(self.server_name.clone())?;
        Ok(TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?)
    }

    /// Opens an HTTP/2 connection.
    ///
    /// # Errors
    /// When it cannot be reached or trusted.
    pub async fn http2(&self) -> Result<Http2, ClientError> {
        let stream = self.connect_tls("h2").await?;
        let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(Http2 {
            sender,
            client: self.clone(),
        })
    }

    /// Opens an HTTP/1.1 connection whose requests may upgrade it.
    ///
    /// # Errors
    /// When it cannot be reached or trusted.
    pub async fn http1(&self) -> Result<http1::SendRequest<Full<Bytes>>, ClientError> {
        let stream = self.connect_tls("http/1.1").await?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(driver.with_upgrades());
        Ok(sender)
    }

    /// A request to this server, with its token.
    #[must_use]
    pub fn request(&self, method: &str, path: &str) -> http::request::Builder {
        let mut builder = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.server_name));
        if let Some(token) = &self.token {
            builder = builder.header("authorization", format!("Bearer {token}"));
        }
        builder
    }

    /// One request on a connection of its own.
    ///
    /// # Errors
    /// When it cannot be sent or answered.
    pub async fn once(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, ClientError> {
        self.http2().await?.send(method, path, body).await
    }
}

/// One HTTP/2 connection; clones share it.
#[derive(Clone)]
pub struct Http2 {
    sender: http2::SendRequest<Full<Bytes>>,
    client: Client,
}

impl Http2 {
    /// Sends a request and reads the whole answer. A body is sent as JSON (a PATCH as merge patch).
    ///
    /// # Errors
    /// When it cannot be sent or answered.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, ClientError> {
        let content = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = self
            .client
            .request(method, path)
            .header("content-type", content);
        self.exchange(request.body(Full::new(body.into()))?).await
    }

    /// Sends a ready request and reads the whole answer.
    ///
    /// # Errors
    /// When it cannot be sent or answered.
    pub async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, ClientError> {
        let (parts, body) = self.open(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        })
    }

    /// Sends a ready request and hands the body on as it comes.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub async fn open(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        Ok(self.sender.clone().send_request(request).await?)
    }
}
