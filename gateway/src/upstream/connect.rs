//! Opens connections to an endpoint: TCP, TLS, and HTTP/2 up to the endpoint's first SETTINGS, or
//! HTTP/1.1 for a tunnel. One attempt, one deadline; what to do about a failure is others'.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use http::uri::Authority;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::credentials::TlsConfigs;
use super::http2::{self, Ended, Http2, Http2Driver};
use super::io::Stream;
use crate::body::Body;
use crate::socket;

/// How long sent bytes may stay unacknowledged: as long as an endpoint may be silent.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(5);

/// Why there is no connection. Nothing of a request was sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// It took too long.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// Name or address.
    #[error("cannot connect: {0}")]
    Tcp(Arc<std::io::Error>),
    /// The certificate, mostly.
    #[error("tls handshake failed: {0}")]
    Tls(Arc<std::io::Error>),
    /// What is there is no such server.
    #[error("{0}")]
    Http(String),
    /// Every connection allowed is full of streams.
    #[error("all {0} connections to the endpoint are full")]
    Full(usize),
}

/// Where an endpoint is.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) authority: Authority,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
    /// The name to verify, where it is not the host.
    pub(crate) tls_name: Option<String>,
}

/// How connections are opened, under one set of credentials.
pub(crate) struct Connector {
    /// Connections opened by another generation are not used for new requests.
    pub(crate) generation: u64,
    tls: Option<TlsConfigs>,
    server_name: Option<ServerName<'static>>,
    pub(crate) timeout: Duration,
}

static GENERATION: AtomicU64 = AtomicU64::new(1);

pub(crate) type Http1 = http1::SendRequest<Body>;
pub(crate) type Http1Driver = http1::Connection<TokioIo<Stream>, Body>;

impl Connector {
    pub(super) fn new(
        tls: Option<TlsConfigs>,
        server_name: Option<ServerName<'static>>,
        timeout: Duration,
    ) -> Self {
        Connector {
            generation: GENERATION.fetch_add(1, Ordering::Relaxed),
            tls,
            server_name,
            timeout,
        }
    }

    /// A connection whose stream limit is known.
    pub(crate) async fn http2(&self, to: &Address) -> Result<(Http2, Http2Driver), ConnectError> {
        self.in_time(async {
            let stream = self.stream(to, true).await?;
            let (sender, mut driver) = http2::begin(stream);
            settled(&mut driver).await?;
            Ok((sender, driver))
        })
        .await
    }

    /// A connection for one request, which may become a tunnel.
    pub(crate) async fn http1(&self, to: &Address) -> Result<(Http1, Http1Driver), ConnectError> {
        self.in_time(async {
            let stream = self.stream(to, false).await?;
            http1::Builder::new()
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|error| ConnectError::Http(error.to_string()))
        })
        .await
    }

    async fn in_time<T>(
        &self,
        opening: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        match tokio::time::timeout(self.timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(ConnectError::Timeout(self.timeout)),
        }
    }

    async fn stream(&self, to: &Address, is_http2: bool) -> Result<Stream, ConnectError> {
        let tcp = TcpStream::connect((to.host.as_str(), to.port))
            .await
            .map_err(|error| ConnectError::Tcp(Arc::new(error)))?;
        socket::tune(&tcp, UNACKNOWLEDGED_MAX);
        if !to.is_tls {
            return Ok(Stream::Plain(BufReader::new(tcp)));
        }
        let Some(tls) = &self.tls else {
            return Err(ConnectError::Http("no authority to verify it by".into()));
        };
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(to.tls_name.clone().unwrap_or_else(|| to.host.clone()))
                .map_err(|error| ConnectError::Http(error.to_string()))?,
        };
        let config = if is_http2 { &tls.http2 } else { &tls.http1 };
        let stream = TlsConnector::from(Arc::clone(config))
            .connect(name, tcp)
            .await
            .map_err(|error| ConnectError::Tls(Arc::new(error)))?;
        if is_http2 && stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            let message = "the endpoint does not speak HTTP/2 (by ALPN)";
            return Err(ConnectError::Http(message.into()));
        }
        Ok(Stream::Tls(Box::new(stream)))
    }
}

/// Waits for the endpoint's first SETTINGS: before them it takes no streams.
async fn settled(driver: &mut Http2Driver) -> Result<(), ConnectError> {
    let settled = std::future::poll_fn(|cx| match Pin::new(&mut *driver).poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Err(ended)),
        Poll::Pending if driver.streams_max() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    });
    settled.await.map_err(|ended: Result<(), Ended>| {
        let why = ended.err().map(|why| format!(": {why}"));
        let why = why.unwrap_or_default();
        let message = "the endpoint closed before it said anything of HTTP/2";
        ConnectError::Http(format!("{message}{why}"))
    })
}
