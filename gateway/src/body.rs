//! One body type for every request and response, so that the phases need no type parameters and
//! the common bodies need no allocation.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

/// Why a body ended before its end; the transport then resets the stream instead of ending it.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The peer's stream broke.
    #[error("body stream broke: {0}")]
    Transport(#[from] hyper::Error),
    /// The client's HTTP/2 stream was reset, with this code (RFC 9113, section 7).
    #[error("body stream was reset: code {0}")]
    Reset(u32),
    /// The upstream's HTTP/2 stream broke otherwise, and how.
    #[error("body stream broke: {0}")]
    Broken(String),
    /// A bound was exceeded or the gateway gave the body up.
    #[error("body was cut: {0}")]
    Cut(&'static str),
}

/// A stream of bytes of a request or a response.
#[derive(Debug, Default)]
pub enum Body {
    /// No content.
    #[default]
    Empty,
    /// Content at hand; taken once.
    Full(Bytes),
    /// Straight from a connection.
    Incoming(Incoming),
    /// Anything else.
    Boxed(UnsyncBoxBody<Bytes, BodyError>),
    /// Another body, with somebody who is told how it went.
    Watched(Box<Watched<dyn Witness>>),
}

/// Is told how a body went, from its first byte to its end.
pub trait Witness: Send {
    /// Some bytes of it were handed on. Not told once it is over.
    fn passed(&mut self, bytes: usize);
    /// It is over: whole, or broken off. Told at most once; a body that is dropped before its end
    /// tells nobody, and the witness is dropped with it.
    fn ended(&mut self, whole: bool);
}

/// A body and its witness in one allocation.
pub struct Watched<W: Witness + ?Sized> {
    inner: Body,
    over: bool,
    witness: W,
}

impl<W: Witness + ?Sized> std::fmt::Debug for Watched<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<W: Witness + ?Sized> Watched<W> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                // Past the end comes what carries nothing: the frame that ends the stream.
                if let Some(data) = frame.data_ref()
                    && !self.over
                {
                    self.witness.passed(data.len());
                }
                // A transport that knows this to be the end does not ask again: by the stream's
                // end, or over HTTP/1.1 by the length it was told.
                if self.inner.is_end_stream() || self.inner.size_hint().exact() == Some(0) {
                    self.end(true);
                }
            }
            Poll::Ready(Some(Err(_))) => self.end(false),
            Poll::Ready(None) => self.end(true),
            Poll::Pending => {}
        }
        polled
    }

    fn end(&mut self, whole: bool) {
        if !std::mem::replace(&mut self.over, true) {
            self.witness.ended(whole);
        }
    }
}

impl Body {
    /// Boxes another body.
    pub fn boxed<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        Body::Boxed(body.map_err(Into::into).boxed_unsync())
    }

    /// The same body, with somebody who is told how it goes. An empty one is over at once.
    pub fn watched(self, witness: impl Witness + 'static) -> Self {
        let mut watched = Watched {
            inner: self,
            over: false,
            witness,
        };
        if watched.inner.is_end_stream() {
            watched.end(true);
            return watched.inner;
        }
        Body::Watched(Box::new(watched))
    }

    /// Reads all of it, up to `limit` bytes.
    ///
    /// # Errors
    /// [`BodyError::Cut`] when it is longer, [`BodyError::Transport`] when the peer broke off.
    pub async fn collect_up_to(self, limit: usize) -> Result<Bytes, BodyError> {
        if let Body::Full(bytes) = self {
            return if bytes.len() > limit {
                Err(BodyError::Cut("too large"))
            } else {
                Ok(bytes)
            };
        }
        let mut body = self;
        let mut all = bytes::BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                if all.len() + data.len() > limit {
                    return Err(BodyError::Cut("too large"));
                }
                all.extend_from_slice(&data);
            }
        }
        Ok(all.freeze())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Body::Empty
        } else {
            Body::Full(bytes)
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body::from(Bytes::from(bytes))
    }
}

impl From<Incoming> for Body {
    fn from(incoming: Incoming) -> Self {
        Body::Incoming(incoming)
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match this {
            Body::Empty => Poll::Ready(None),
            Body::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = Body::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Body::Incoming(incoming) => Pin::new(incoming)
                .poll_frame(cx)
                .map(|f| f.map(|r| r.map_err(BodyError::from))),
            Body::Boxed(boxed) => Pin::new(boxed).poll_frame(cx),
            Body::Watched(watched) => watched.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Empty => true,
            Body::Full(bytes) => bytes.is_empty(),
            Body::Incoming(incoming) => incoming.is_end_stream(),
            Body::Boxed(boxed) => boxed.is_end_stream(),
            Body::Watched(watched) => watched.inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty => SizeHint::with_exact(0),
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Incoming(incoming) => incoming.size_hint(),
            Body::Boxed(boxed) => boxed.size_hint(),
            Body::Watched(watched) => watched.inner.size_hint(),
        }
    }
}
