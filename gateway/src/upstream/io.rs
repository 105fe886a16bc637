//! A byte stream to an endpoint, with TLS or without, so that the pool is one type.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Either kind.
#[derive(Debug)]
pub(crate) enum Stream {
    /// With a buffer, as TLS has one.
    Plain(BufReader<TcpStream>),
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(test)]
    Pipe(BufReader<tokio::io::DuplexStream>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(test)]
            Stream::Pipe(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncBufRead for Stream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_fill_buf(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_fill_buf(cx),
            #[cfg(test)]
            Stream::Pipe(stream) => Pin::new(stream).poll_fill_buf(cx),
        }
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).consume(count),
            Stream::Tls(stream) => Pin::new(&mut **stream).consume(count),
            #[cfg(test)]
            Stream::Pipe(stream) => Pin::new(stream).consume(count),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(test)]
            Stream::Pipe(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            #[cfg(test)]
            Stream::Pipe(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
            #[cfg(test)]
            Stream::Pipe(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(test)]
            Stream::Pipe(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(test)]
            Stream::Pipe(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
