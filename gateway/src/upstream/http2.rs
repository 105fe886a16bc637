//! One HTTP/2 connection to an endpoint, spoken without a client library in between.
//!
//! Requests go straight into the connection's send queue and answers wake the request's own task:
//! a client library's channel, its dispatching task and its task a request cost as much as all
//! phases of the gateway. A silent endpoint is noticed by pings: one is sent when nothing was heard
//! for [`PING_INTERVAL`], and the connection is given up when nothing at all is heard for
//! [`PING_TIMEOUT`] after it, 5 s together. It knows nothing of pools or retries.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Ping, PingPong, SendStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::io::Stream;

/// In which a half-open connection has to be noticed.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Flow-control windows for responses: a list of megabytes on one stream runs at 250 MB/s a
/// millisecond away, and the connection's window holds as many unread ones as a kube-apiserver
/// allows streams, so that no number of them stops the others.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 64 * 1024 * 1024;

/// Bytes of an upload kept per stream when the endpoint does not read.
const STREAM_SEND_BYTES: usize = 256 * 1024;

/// Response header fields of an endpoint: Go's servers send up to 1 MiB, warnings reach 4 KiB.
const HEADER_BYTES_MAX: u32 = 256 * 1024;

/// Why a connection ended otherwise than in order.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// Neither an answer nor a pong.
    #[error("nothing was heard of the endpoint any more")]
    Silent,
    /// It broke.
    #[error(transparent)]
    Broken(#[from] h2::Error),
}

/// What sends requests; the connection ends when the last of these and of its streams is gone.
#[derive(Clone)]
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
}

/// What reads and writes; it has to be polled for anything to happen.
pub(crate) struct Http2Driver {
    connection: Connection<Heard, Bytes>,
    pings: Option<PingPong>,
    is_heard: Arc<AtomicBool>,
    last_heard: Instant,
    asked: Option<Instant>,
    alarm: Pin<Box<Sleep>>,
}

/// Says HTTP/2's first words; the endpoint's stream limit is zero until it has said its own.
pub(super) async fn begin(stream: Stream) -> Result<(Http2, Http2Driver), h2::Error> {
    let is_heard = Arc::new(AtomicBool::new(false));
    let stream = Heard {
        stream,
        flag: Arc::clone(&is_heard),
    };
    let (sender, mut connection) = Builder::new()
        .enable_push(false)
        .initial_max_send_streams(0)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(STREAM_SEND_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX)
        .handshake(stream)
        .await?;
    let driver = Http2Driver {
        pings: connection.ping_pong(),
        connection,
        is_heard,
        last_heard: Instant::now(),
        asked: None,
        alarm: Box::pin(tokio::time::sleep(PING_INTERVAL)),
    };
    Ok((Http2 { sender }, driver))
}

impl Http2 {
    /// Puts a request into the send queue.
    ///
    /// # Errors
    /// Nothing of it has been sent then.
    pub(super) fn send(
        &mut self,
        head: Request<()>,
        has_content: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        self.sender.send_request(head, !has_content)
    }

    /// Whether it takes no more requests: it is broken, or the endpoint has said goodbye.
    pub(crate) fn is_over(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let ready = self.sender.clone().poll_ready(&mut cx);
        matches!(ready, Poll::Ready(Err(_)))
    }
}

impl Http2Driver {
    /// As many streams as the endpoint takes at once; zero until it has said so.
    pub(super) fn streams_max(&self) -> usize {
        self.connection.max_concurrent_send_streams()
    }

    /// Ready when the endpoint has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_heard.swap(false, Ordering::Relaxed) {
            self.last_heard = Instant::now();
        }
        loop {
            if self.asked.is_some_and(|asked| self.last_heard > asked) {
                self.asked = None;
                self.alarm.as_mut().reset(self.last_heard + PING_INTERVAL);
            }
            if self.alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if self.asked.is_some() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            let due = self.last_heard + PING_INTERVAL;
            if due > now {
                self.alarm.as_mut().reset(due);
                continue;
            }
            self.ping(cx);
            self.asked = Some(now);
            self.alarm.as_mut().reset(now + PING_TIMEOUT);
        }
    }

    fn ping(&mut self, cx: &mut Context<'_>) {
        if let Some(pings) = &mut self.pings {
            // The answer to the last one is taken, or it is still asked.
            let _ = pings.poll_pong(cx);
            let _ = pings.send_ping(Ping::opaque());
        }
    }
}

impl Future for Http2Driver {
    type Output = Result<(), Ended>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Poll::Ready(ended) = Pin::new(&mut this.connection).poll(cx) {
            return Poll::Ready(ended.map_err(Ended::from));
        }
        this.poll_silence(cx).map(|()| Err(Ended::Silent))
    }
}

/// A stream that tells when something has come.
struct Heard {
    stream: Stream,
    flag: Arc<AtomicBool>,
}

impl AsyncRead for Heard {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            self.flag.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Heard {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
