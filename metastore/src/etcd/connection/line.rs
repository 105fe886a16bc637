//! The bytes of one connection: replies are gathered and go out in one write.
//!
//! HTTP/2 hands its frames over one by one and asks for a flush after each bunch. Here they only
//! fill a buffer, and whoever drives the connection drains it when there is nothing more to add: a
//! hundred replies cost one system call. A full buffer is written at once, and a peer that does not
//! read holds up its own frames then.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes gathered before they are written without being asked to: what a loopback socket takes in
/// one write, and some hundred replies.
const GATHER_BYTES: usize = 64 * 1024;
/// An empty buffer larger than this is given back, so that idle connections hold little.
const KEEP_BYTES: usize = 4 * 1024;

/// How the frame of HTTP/2 that acknowledges a ping begins: length, kind, flags, stream zero.
const PONG_HEAD: [u8; 9] = [0, 0, 8, 6, 1, 0, 0, 0, 0];
const PONG_BYTES: usize = PONG_HEAD.len() + 8;

/// A socket, what is to be written to it, and what was read ahead of it.
struct Socket<S> {
    io: S,
    /// Read before HTTP/2 began.
    ahead: BytesMut,
    out: BytesMut,
    /// Bytes read so far: it moves while the peer is alive.
    heard: u64,
}

impl<S: AsyncWrite + Unpin> Socket<S> {
    /// Writes what is gathered, then flushes.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while !self.out.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &self.out))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.advance(written);
        }
        if self.out.capacity() > KEEP_BYTES {
            self.out = BytesMut::new();
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }
}

/// One handle of two: HTTP/2 has one, the driver of the connection the other.
pub(super) struct Line<S>(Arc<Mutex<Socket<S>>>);

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    /// `ahead` is read before anything of the socket.
    pub(super) fn new(io: S, ahead: BytesMut) -> (Self, Self) {
        let socket = Socket {
            io,
            ahead,
            out: BytesMut::new(),
            heard: 0,
        };
        let one = Arc::new(Mutex::new(socket));
        (Line(Arc::clone(&one)), Line(one))
    }

    /// Writes what is gathered.
    pub(super) fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().poll_drain(cx)
    }

    /// Whether all that is gathered is one acknowledgement of a ping.
    pub(super) fn is_lone_pong(&self) -> bool {
        let socket = self.0.lock();
        socket.out.len() == PONG_BYTES && socket.out.starts_with(&PONG_HEAD)
    }

    /// How many bytes were read so far.
    pub(super) fn heard(&self) -> u64 {
        self.0.lock().heard
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut socket = self.0.lock();
        if !socket.ahead.is_empty() {
            let count = socket.ahead.len().min(buf.remaining());
            buf.put_slice(&socket.ahead.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut socket.io).poll_read(cx, buf))?;
        socket.heard += (buf.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut socket = self.0.lock();
        if socket.out.len() >= GATHER_BYTES {
            ready!(socket.poll_drain(cx))?;
        }
        socket.out.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut socket = self.0.lock();
        if socket.out.len() >= GATHER_BYTES {
            ready!(socket.poll_drain(cx))?;
        }
        let before = socket.out.len();
        for buf in bufs {
            socket.out.extend_from_slice(buf);
        }
        Poll::Ready(Ok(socket.out.len() - before))
    }

    /// It copies anyway, and HTTP/2 then does not copy into a buffer of its own first.
    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Left to the driver of the connection.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.0.lock();
        ready!(socket.poll_drain(cx))?;
        Pin::new(&mut socket.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn what_is_written_waits_for_the_drain_and_leaves_in_order() {
        let (near, mut far) = tokio::io::duplex(1024 * 1024);
        let (mut http, line) = Line::new(near, BytesMut::from(&b"ahead, "[..]));
        far.write_all(b"behind").await.unwrap();
        let mut read = vec![0; 13];
        http.read_exact(&mut read).await.unwrap();
        assert_eq!((read.as_slice(), line.heard()), (&b"ahead, behind"[..], 6));

        http.write_all(b"one ").await.unwrap();
        http.flush().await.unwrap();
        let mut byte = [0];
        let nothing = futures_util::FutureExt::now_or_never(far.read(&mut byte));
        assert!(nothing.is_none(), "nothing leaves before the drain");
        http.write_all(b"two").await.unwrap();
        poll_fn(|cx| line.poll_drain(cx)).await.unwrap();
        let mut read = vec![0; 7];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(read, b"one two");
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_holds_up_its_own_frames() {
        let (near, far) = tokio::io::duplex(1024);
        let (mut http, _line) = Line::new(near, BytesMut::new());
        let block = vec![7; GATHER_BYTES];
        http.write_all(&block).await.unwrap();
        let more = futures_util::FutureExt::now_or_never(http.write_all(&block));
        assert!(
            more.is_none(),
            "the buffer is full and the peer takes nothing"
        );
        drop(far);
    }
}
