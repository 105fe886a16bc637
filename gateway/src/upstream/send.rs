//! One request on one connection, and what its failure says about whether it was carried out.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Response, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, timeout_at};

use super::http2::{Ask, Closed, Head, Http2, StreamError};
use super::kept::KeptBody;
use super::received::Received;
use super::upload::Upload;
use crate::body::BodyError;

/// What is sent as a request's content.
#[derive(Debug)]
pub(crate) enum SendBody {
    Empty,
    Full(Bytes),
    /// The client's, kept as long as it may have to be sent again.
    Kept(KeptBody),
}

impl HttpBody for SendBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match this {
            SendBody::Empty => Poll::Ready(None),
            SendBody::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = SendBody::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            SendBody::Kept(kept) => kept.poll_next(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            SendBody::Empty => true,
            SendBody::Full(bytes) => bytes.is_empty(),
            SendBody::Kept(kept) => kept.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            SendBody::Empty => SizeHint::with_exact(0),
            SendBody::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            SendBody::Kept(kept) => kept.size(),
        }
    }
}

/// Why no response head came, by what it says about the request's fate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendFailure {
    /// It never left, and nothing of its content was read.
    #[error("the connection had ended before it took the request")]
    NeverSent,
    /// It may have left, and the endpoint says that it did not look at it, or it was never written;
    /// `is_leaving` when that was said of the whole connection.
    #[error("refused unseen")]
    Refused {
        /// By GOAWAY, not for this one stream.
        is_leaving: bool,
    },
    /// The time it was given is over.
    #[error("no answer in time")]
    TimedOut,
    /// It left, and what became of it nobody knows.
    #[error("broken: {0}")]
    Broken(StreamError),
}

/// Sends a request and waits for the response's head; without content, until `deadline`.
pub(super) async fn send(
    sender: &Http2,
    ask: Ask<'_>,
    body: SendBody,
    deadline: Option<Instant>,
) -> Result<Response<Received>, SendFailure> {
    let has_content = !body.is_end_stream();
    let ask = Ask {
        length: length(&ask, &body),
        ..ask
    };
    let deadline = deadline.filter(|_| !has_content);
    let mut sending = pin!(poll_fn(|cx| {
        sender.poll_send(&ask, has_content, deadline, cx)
    }));
    // Nearly always there is room, and no timer is set.
    let at_once = poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await;
    let sent = match (at_once, deadline) {
        (Poll::Ready(sent), _) => sent,
        (Poll::Pending, None) => sending.await,
        (Poll::Pending, Some(deadline)) => match timeout_at(deadline, sending).await {
            Ok(sent) => sent,
            Err(_) => return Err(SendFailure::TimedOut),
        },
    };
    let (answer, outlet) = sent.map_err(|Closed| SendFailure::NeverSent)?;
    let uploading = match outlet {
        Some(outlet) => Upload::new(body, outlet).begin().await,
        None => None,
    };
    let (Head { status, headers }, content) = answer.await.map_err(judge)?;
    if let Some(uploading) = uploading {
        // An answer may come before the request's end, which still has to be sent.
        uploading.detach();
    }
    let content = Received::http2(content, &headers);
    let mut response = Response::new(content);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    *response.version_mut() = Version::HTTP_2;
    Ok(response)
}

/// Content whose length is known and not said is that of the gateway's own requests.
fn length(ask: &Ask<'_>, body: &SendBody) -> Option<u64> {
    let length = body.size_hint().exact()?;
    let has_content = matches!(*ask.method, Method::POST | Method::PUT | Method::PATCH);
    let is_unsaid = !ask.headers.contains_key(CONTENT_LENGTH);
    ((length > 0 || has_content) && is_unsaid).then_some(length)
}

fn judge(error: StreamError) -> SendFailure {
    match error {
        StreamError::Unseen { is_leaving } => SendFailure::Refused { is_leaving },
        StreamError::TimedOut => SendFailure::TimedOut,
        error => SendFailure::Broken(error),
    }
}
