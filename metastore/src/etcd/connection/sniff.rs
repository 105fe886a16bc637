//! HTTP/2 or HTTP/1.1: told by the first bytes, as no client that speaks HTTP/2 begins otherwise.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// What every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Reads as far as it takes to tell whether HTTP/2 is spoken. What was read is left in `ahead`. A
/// connection that ends before it could be told speaks neither.
pub(super) async fn is_http2<S: AsyncRead + Unpin>(
    io: &mut S,
    ahead: &mut BytesMut,
) -> io::Result<bool> {
    loop {
        let length = ahead.len().min(PREFACE.len());
        if ahead.get(..length) != PREFACE.get(..length) {
            return Ok(false);
        }
        if length == PREFACE.len() {
            return Ok(true);
        }
        if io.read_buf(ahead).await? == 0 {
            return Ok(false);
        }
    }
}

/// A stream with what was read ahead put back in front.
pub(super) struct Rewound<S> {
    ahead: BytesMut,
    io: S,
}

impl<S> Rewound<S> {
    pub(super) fn new(ahead: BytesMut, io: S) -> Self {
        Rewound { ahead, io }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let count = self.ahead.len().min(buf.remaining());
        buf.put_slice(self.ahead.get(..count).unwrap_or_default());
        self.ahead.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(first: &[u8]) -> (bool, BytesMut) {
        let mut ahead = BytesMut::new();
        let mut io = first;
        let is_http2 = is_http2(&mut io, &mut ahead).await.unwrap();
        let mut all = Vec::new();
        Rewound::new(ahead.clone(), io)
            .read_to_end(&mut all)
            .await
            .unwrap();
        assert_eq!(all, first, "nothing is lost");
        (is_http2, ahead)
    }

    #[tokio::test]
    async fn a_protocol_is_told_by_its_first_bytes() {
        let with_more = [PREFACE, b"\0\0\0\x04"].concat();
        assert!(told(&with_more).await.0);
        for other in [
            &b"GET /health HTTP/1.1\r\n\r\n"[..],
            b"PRI * HTTP/1.1",
            b"PRI",
            b"",
        ] {
            assert!(!told(other).await.0, "{other:?}");
        }
    }
}
