//! A scripted kube-apiserver: where a real one cannot be made to do what a case needs (there is no
//! kubelet behind it, and it does not answer wrongly when asked to).
//!
//! TLS with HTTP/2 and HTTP/1.1 on one port, upgrades included; what it saw is kept.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::pki::Leaf;

/// What a script answers with.
pub type Answer = Response<BoxBody<Bytes, Infallible>>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;
type Script = Arc<dyn Fn(Request<Incoming>) -> Answering + Send + Sync>;

/// A body that is what a channel brings, as it comes.
pub struct Streamed(pub UnboundedReceiver<Bytes>);

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.0.poll_recv(cx);
        data.map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

/// A head as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The path with its query.
    pub uri: String,
    /// The headers.
    pub headers: http::HeaderMap,
}

/// A running fake; it ends with this value.
pub struct Fake {
    /// Its port on 127.0.0.1.
    pub port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    serving: JoinHandle<()>,
}

impl Fake {
    /// Serves `script` on `port` (0 picks one) with this certificate. `/readyz` is answered with ok
    /// and not kept.
    ///
    /// # Panics
    /// When the port or the certificate cannot be had.
    pub async fn start<F, T>(port: u16, serving: &Leaf, script: F) -> Fake
    where
        F: Fn(Request<Incoming>) -> T + Send + Sync + 'static,
        T: Future<Output = Answer> + Send + 'static,
    {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let script: Script = Arc::new(move |request| Box::pin(script(request)));
        let accepting = accept(listener, acceptor(serving), script, Arc::clone(&seen));
        Fake {
            port,
            seen,
            serving: tokio::spawn(accepting),
        }
    }

    /// Ends it, and waits until its port is free.
    pub async fn stop(mut self) {
        self.serving.abort();
        // An error says that it was aborted.
        let _ = (&mut self.serving).await;
    }

    /// The requests so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A whole answer.
///
/// # Panics
/// When `status` is no status.
#[must_use]
pub fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Full::new(body.into()).boxed())
        .expect("a status")
}

fn acceptor(serving: &Leaf) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(&serving.cert)
        .expect("a certificate file")
        .map(|c| c.expect("a PEM certificate"))
        .collect();
    let key = PrivateKeyDer::from_pem_file(&serving.key).expect("a key file");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a matching key");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    script: Script,
    seen: Arc<Mutex<Vec<Seen>>>,
) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(
            stream,
            acceptor.clone(),
            Arc::clone(&script),
            Arc::clone(&seen),
        ));
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    script: Script,
    seen: Arc<Mutex<Vec<Seen>>>,
) {
    // What a peer does to its connection is the case's business.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
        async move {
            if request.uri().path() == "/readyz" {
                return Ok::<_, Infallible>(answer(200, "ok"));
            }
            let uri = request.uri().path_and_query().map(ToString::to_string);
            seen.lock().push(Seen {
                uri: uri.unwrap_or_default(),
                headers: request.headers().clone(),
            });
            Ok(script(request).await)
        }
    });
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await;
}
