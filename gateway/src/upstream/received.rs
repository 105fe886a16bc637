//! The content of an endpoint's answer: over HTTP/2, or over a tunnel's HTTP/1.1 connection.
//!
//! What is taken is given back to the endpoint's window at once; the client's pace is the pace at
//! which it is taken.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::http2::{self, StreamError};
use crate::body::BodyError;

/// See the module.
#[derive(Debug)]
pub(crate) enum Received {
    Http1(Incoming),
    Http2(Content),
}

/// The content of an HTTP/2 stream.
#[derive(Debug)]
pub(crate) struct Content {
    stream: http2::Content,
    /// What is still to come, where the head says how much.
    left: Option<u64>,
}

/// Why an answer broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error(transparent)]
    Http1(#[from] hyper::Error),
    #[error(transparent)]
    Http2(#[from] StreamError),
}

impl From<ReceiveError> for BodyError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Http1(error) => error.into(),
            ReceiveError::Http2(error) => BodyError::Broken(error.to_string()),
        }
    }
}

impl Received {
    pub(super) fn http2(stream: http2::Content, headers: &HeaderMap) -> Self {
        let left = if stream.is_over() {
            length(headers).or(Some(0))
        } else {
            length(headers)
        };
        Received::Http2(Content { stream, left })
    }
}

impl From<Incoming> for Received {
    fn from(incoming: Incoming) -> Self {
        Received::Http1(incoming)
    }
}

/// What the head says of the length; nothing where it says several things.
fn length(headers: &HeaderMap) -> Option<u64> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let first = lengths.next()?;
    if lengths.any(|length| length != first) {
        return None;
    }
    first.to_str().ok()?.trim().parse().ok()
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = ReceiveError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ReceiveError>>> {
        match self.get_mut() {
            Received::Http1(incoming) => {
                let next = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(next.map(|frame| frame.map_err(ReceiveError::from)))
            }
            Received::Http2(content) => {
                let next = ready!(content.poll_next(cx));
                Poll::Ready(next.map(|frame| frame.map_err(ReceiveError::from)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Received::Http1(incoming) => incoming.is_end_stream(),
            Received::Http2(content) => content.stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Received::Http1(incoming) => incoming.size_hint(),
            Received::Http2(content) => content
                .left
                .map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl Content {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let next = ready!(self.stream.poll_next(cx));
        if let Some(Ok(frame)) = &next
            && let Some(data) = frame.data_ref()
        {
            let length = data.len() as u64;
            self.left = self.left.map(|left| left.saturating_sub(length));
        }
        Poll::Ready(next)
    }
}
