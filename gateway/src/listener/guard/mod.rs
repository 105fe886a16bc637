//! Looks at what a client sends before the HTTP library does, and ends what is no honest speech.
//!
//! The library reads generously, as its makers must: it takes bare newlines, lets a content-length
//! give way to a transfer-encoding, answers any number of pings. A gateway has readers before and
//! behind it who may see other requests in the same bytes, so HTTP/1.1 heads and bodies are held to
//! the letter here ([`http1`]), and HTTP/2 frames that ask for work and carry none are counted
//! ([`frames`]). Both are plain state machines; this file only puts them into the stream.

mod frames;
mod http1;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock;
use frames::Frames;
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
    Http1(Strict),
    Http2(Frames),
    /// Refused; what is left of the poison, then the end.
    Poisoned(&'static [u8]),
}

impl<S> Guarded<S> {
    pub(super) fn http1(inner: S, head_bytes_max: usize) -> Self {
        let guard = Guard::Http1(Strict::new(head_bytes_max));
        Guarded { inner, guard }
    }

    pub(super) fn http2(inner: S, now: Instant) -> Self {
        let guard = Guard::Http2(Frames::new(now));
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
            Guard::Http2(frames) => {
                ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
                let new = buf.filled().get(before..).unwrap_or_default();
                if frames.take(new, clock::now).is_err() {
                    tracing::warn!("closed: a flood of frames that carry nothing");
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
            }
            Guard::Http1(strict) => {
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
