//! A kube-apiserver that does what a test tells it: HTTP/2 by h2 itself, so that streams can be
//! refused, reset and cut, and HTTP/1.1 for upgrades, on one port.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// A request as it arrived.
pub(crate) struct Exchange {
    pub(crate) request: Request<h2::RecvStream>,
    pub(crate) respond: SendResponse<Bytes>,
    pub(crate) connection: Control,
}

/// What can be done to the connection a request came on.
#[derive(Clone)]
pub(crate) struct Control {
    pub(crate) goaway: CancellationToken,
    pub(crate) cut: CancellationToken,
    pub(crate) number: usize,
    is_abrupt: Arc<AtomicBool>,
}

impl Control {
    /// Drops the connection as the kernel does for a killed process: nothing is read any more.
    pub(crate) fn kill(&self) {
        self.is_abrupt.store(true, Ordering::SeqCst);
        self.cut.cancel();
    }
}

pub(crate) type Script =
    Arc<dyn Fn(Exchange) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What an upgrade request is answered with, byte for byte, and whether bytes are echoed after.
#[derive(Clone)]
pub(crate) struct UpgradeAnswer {
    pub(crate) head: String,
    pub(crate) echoes: bool,
}

pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    stop: CancellationToken,
    cut: CancellationToken,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) requests: AtomicUsize,
    pub(crate) connections: AtomicUsize,
    pub(crate) upgrade_heads: Mutex<Vec<String>>,
    pub(crate) upgrade_bytes: Mutex<Vec<u8>>,
}

#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) streams_max: u32,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) upgrade: UpgradeAnswer,
}

impl Default for Options {
    fn default() -> Self {
        let head = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno".to_owned();
        Options {
            streams_max: 100,
            address: None,
            upgrade: UpgradeAnswer {
                head,
                echoes: false,
            },
        }
    }
}

impl Fake {
    pub(crate) async fn start(options: Options, script: Script) -> Fake {
        let address = options.address.unwrap_or("127.0.0.1:0".parse().unwrap());
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(1024).unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Fake {
            address,
            seen: Arc::default(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        };
        let serving = accept(listener, options, script, fake.parts());
        let stop = fake.stop.clone();
        tokio::spawn(async move {
            tokio::select! { () = serving => {}, () = stop.cancelled() => {} }
        });
        fake
    }

    fn parts(&self) -> (Arc<Seen>, CancellationToken) {
        (Arc::clone(&self.seen), self.cut.clone())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> usize {
        self.seen.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Stops listening and drops every connection, as a killed process does.
    pub(crate) fn kill(self) -> SocketAddr {
        self.stop.cancel();
        self.cut.cancel();
        self.address
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.cancel();
        self.cut.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    options: Options,
    script: Script,
    (seen, cut): (Arc<Seen>, CancellationToken),
) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let number = seen.connections.fetch_add(1, Ordering::SeqCst);
        let control = Control {
            goaway: CancellationToken::new(),
            cut: cut.child_token(),
            number,
            is_abrupt: Arc::default(),
        };
        let serving = serve(
            stream,
            options.clone(),
            Arc::clone(&script),
            Arc::clone(&seen),
            control.clone(),
        );
        tokio::spawn(async move {
            tokio::select! { () = serving => {}, () = control.cut.cancelled() => {} }
        });
    }
}

async fn serve(
    stream: TcpStream,
    options: Options,
    script: Script,
    seen: Arc<Seen>,
    control: Control,
) {
    let mut first = [0; 3];
    let peeked = stream.peek(&mut first).await.unwrap_or(0);
    if &first[..peeked.min(3)] != b"PRI" {
        return upgrade(stream, options.upgrade, seen).await;
    }
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(options.streams_max)
        .max_header_list_size(1024 * 1024);
    let Ok(mut connection) = builder
        .handshake::<_, Bytes>(Linger(Some(stream), Arc::clone(&control.is_abrupt)))
        .await
    else {
        return;
    };
    let mut said_goodbye = false;
    loop {
        let accepted = tokio::select! {
            biased;
            () = control.goaway.cancelled(), if !said_goodbye => {
                said_goodbye = true;
                connection.graceful_shutdown();
                continue;
            }
            accepted = connection.accept() => accepted,
        };
        let Some(Ok((request, respond))) = accepted else {
            return;
        };
        if request.uri().path() != "/readyz" {
            seen.requests.fetch_add(1, Ordering::SeqCst);
        }
        let exchange = Exchange {
            request,
            respond,
            connection: control.clone(),
        };
        tokio::spawn(script(exchange));
    }
}

/// A socket that goes on reading for a while after it was given up, as Go's server does: closed
/// with bytes unread, TCP would take back what was sent last, the GOAWAY among it.
struct Linger(Option<TcpStream>, Arc<AtomicBool>);

impl Linger {
    fn inner(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(self.get_mut().0.as_mut().unwrap())
    }
}

impl AsyncRead for Linger {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(cx, buf)
    }
}

impl AsyncWrite for Linger {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }
}

impl Drop for Linger {
    fn drop(&mut self) {
        let Some(mut stream) = self.0.take() else {
            return;
        };
        if self.1.load(Ordering::SeqCst) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let mut ignored = [0; 1024];
            let rest = async { while let Ok(1..) = stream.read(&mut ignored).await {} };
            let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
        });
    }
}

/// Reads one HTTP/1.1 head, answers as told, and echoes or records what follows.
async fn upgrade(mut stream: TcpStream, answer: UpgradeAnswer, seen: Arc<Seen>) {
    let mut read = Vec::new();
    let end = loop {
        if let Some(at) = read.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let rest = read.split_off(end);
    seen.upgrade_heads
        .lock()
        .push(String::from_utf8(read).unwrap());
    seen.upgrade_bytes.lock().extend_from_slice(&rest);
    stream.write_all(answer.head.as_bytes()).await.unwrap();
    if answer.echoes {
        stream.write_all(&rest).await.unwrap();
    }
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        seen.upgrade_bytes
            .lock()
            .extend_from_slice(&buffer[..count]);
        if answer.echoes && stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = stream.shutdown().await;
}

/// A script out of an async function; readiness probes are answered well.
pub(crate) fn script<F, R>(act: F) -> Script
where
    F: Fn(Exchange) -> R + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let act = Arc::new(act);
    Arc::new(move |exchange: Exchange| {
        let act = Arc::clone(&act);
        Box::pin(async move {
            if exchange.request.uri().path() == "/readyz" {
                return answer(exchange, StatusCode::OK, "ok").await;
            }
            act(exchange).await;
        })
    })
}

/// Answers everything with a small JSON object.
pub(crate) fn fine() -> Script {
    script(|exchange| answer(exchange, StatusCode::OK, "{}"))
}

pub(crate) async fn answer(mut exchange: Exchange, status: StatusCode, body: &'static str) {
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(())
        .unwrap();
    // The peer may have left; that is the test's business.
    if let Ok(mut stream) = exchange.respond.send_response(response, body.is_empty())
        && !body.is_empty()
    {
        let _ = stream.send_data(Bytes::from_static(body.as_bytes()), true);
    }
}

/// Reads a request's content to its end.
pub(crate) async fn content(request: &mut Request<h2::RecvStream>) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(Ok(data)) = request.body_mut().data().await {
        let _ = request
            .body_mut()
            .flow_control()
            .release_capacity(data.len());
        all.extend_from_slice(&data);
    }
    all
}
