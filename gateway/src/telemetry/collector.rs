//! The way to a collector of traces: one short HTTP/1.1 exchange a batch, with a connection of its own,
//! bounded in time and in what is read of the answer.
//!
//! Batches are a second apart, so that a connection between them would mostly be idle. Its caller is
//! a thread outside the runtime; the exchange itself runs inside.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;

/// For one exchange: what is not taken by then is lost, and the next batch waits.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);

/// A collector answers with a word or two.
const ANSWER_MAX: usize = 64 * 1024;

/// Why a collector cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum CollectorFault {
    /// Its endpoint is no URL.
    #[error("the collector's endpoint {0:?} is neither an http nor an https URL")]
    Url(String),
    /// The authorities of its certificate.
    #[error("the collector's caFile holds no certificates that can be used: {0}")]
    Authorities(String),
}

type Exchanged = Result<Response<Bytes>, HttpError>;

/// See the module.
#[derive(Clone)]
pub(super) struct Collector {
    tls: Option<TlsConnector>,
    runtime: Handle,
}

impl Collector {
    /// For `endpoint`, which is asked for in each request again.
    pub(super) fn new(
        endpoint: &str,
        authorities: &[u8],
        runtime: Handle,
    ) -> Result<Self, CollectorFault> {
        let url = || CollectorFault::Url(endpoint.to_owned());
        let uri: Uri = endpoint.parse().map_err(|_| url())?;
        let tls = match (uri.scheme_str(), uri.host()) {
            (Some("http"), Some(_)) => None,
            (Some("https"), Some(_)) => Some(connector(authorities)?),
            _ => return Err(url()),
        };
        Ok(Collector { tls, runtime })
    }

    async fn exchange(self, request: Request<Bytes>) -> Exchanged {
        let authority = request.uri().authority().ok_or("no host")?.clone();
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let standard = if self.tls.is_some() { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(standard);
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        match self.tls {
            Some(tls) => {
                let stream = tls.connect(ServerName::try_from(host)?, stream).await?;
                exchange_on(stream, request, authority.as_str()).await
            }
            None => exchange_on(stream, request, authority.as_str()).await,
        }
    }
}

async fn exchange_on<S>(stream: S, request: Request<Bytes>, host: &str) -> Exchanged
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    let driver = tokio::spawn(connection);
    let (mut parts, body) = request.into_parts();
    let host = HeaderValue::from_str(host)?;
    parts.headers.insert(header::HOST, host);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse()?;
    let request = Request::from_parts(parts, Full::new(body));
    let answer = sender.send_request(request).await?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_MAX).collect().await?.to_bytes();
    driver.abort();
    Ok(Response::from_parts(parts, body))
}

fn connector(authorities: &[u8]) -> Result<TlsConnector, CollectorFault> {
    let fault = |reason: String| CollectorFault::Authorities(reason);
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(authorities) {
        let root = root.map_err(|error| fault(error.to_string()))?;
        roots.add(root).map_err(|error| fault(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(fault("it is empty".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| fault(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(tls)))
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector")
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

impl HttpClient for Collector {
    // Written out, as the trait's own attribute would: it is all that one would be needed for.
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Exchanged> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        let me = self.clone();
        let exchanging = self.runtime.spawn(async move {
            let exchange = me.exchange(request);
            match tokio::time::timeout(EXCHANGE_MAX, exchange).await {
                Ok(exchanged) => exchanged,
                Err(_) => Err(format!("no answer within {EXCHANGE_MAX:?}").into()),
            }
        });
        Box::pin(async move { exchanging.await? })
    }
}
