//! Looks at what a client sends over HTTP/1.1 before the library does, and ends what is no honest
//! speech.
//!
//! The library reads generously, as its makers must: it takes bare newlines, lets a content-length
//! give way to a transfer-encoding. A gateway has readers before and behind it who may see other
//! requests in the same bytes, so heads and bodies are held to the letter ([`http1`]). That is a
//! plain state machine; this file only puts it into the stream.

mod http1;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use http1::Strict;

/// What takes the place of bytes that were refused: no reading of HTTP/1.1 makes a request of it,
/// so that the library answers 400 and closes.
const POISON: &[u8] = b"\0\r\n\r\n";

/// A connection's stream with a guard on what is read.
pub(super) struct Guarded<S> {
    inner: S,
    guard: Guard,
}

enum Guard {
    Strict(Strict),
    /// Refused; what is left of the poison, then the end.
    Poisoned(&'static [u8]),
}

impl<S> Guarded<S> {
    pub(super) fn new(inner: S, head_bytes_max: usize) -> Self {
        let guard = Guard::Strict(Strict::new(head_bytes_max));
        Guarded { inner, guard }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        match &mut this.guard {
            Guard::Poisoned(rest) => {
                give(rest, buf);
                return Poll::Ready(Ok(()));
            }
            Guard::Strict(strict) => {
                ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
                let new = buf.filled().get(before..).unwrap_or_default();
                if let Err(fault) = strict.take(new) {
                    tracing::debug!(reason = fault.reason, "a request that is none");
                    buf.set_filled(before + fault.at);
                    let mut rest = POISON;
                    give(&mut rest, buf);
                    this.guard = Guard::Poisoned(rest);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// As much of `rest` as there is room for.
fn give(rest: &mut &'static [u8], buf: &mut ReadBuf<'_>) {
    let (now, later) = rest.split_at(rest.len().min(buf.remaining()));
    buf.put_slice(now);
    *rest = later;
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
