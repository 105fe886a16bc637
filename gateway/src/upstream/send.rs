//! One request on one connection, and what its failure says about whether it was carried out.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::kept::KeptBody;
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
    /// It never left; here it is again.
    #[error("the connection had ended before it took the request")]
    NeverSent(Box<Request<SendBody>>),
    /// It may have left, and the endpoint says that it did not look at it; `is_leaving` when that
    /// was said of the whole connection.
    #[error("refused unseen")]
    Refused {
        /// By GOAWAY, not for this one stream.
        is_leaving: bool,
    },
    /// It left, and what became of it nobody knows.
    #[error("broken: {0}")]
    Broken(hyper::Error),
}

/// Sends `request` and waits for the response's head.
///
/// The sender is let go before the wait. Where the connection's end of the channel goes while a
/// request is being put into it, tokio leaves the request in the channel until the last sender is
/// gone; were that the waiting request's own, it would wait for itself.
pub(super) async fn send(
    mut sender: super::connect::Http2,
    request: Request<SendBody>,
) -> Result<Response<Incoming>, SendFailure> {
    let sending = sender.try_send_request(request);
    drop(sender);
    match sending.await {
        Ok(response) => Ok(response),
        Err(mut failure) => match failure.take_message() {
            Some(request) => Err(SendFailure::NeverSent(Box::new(request))),
            None => Err(judge(failure.into_error())),
        },
    }
}

/// h2 gives streams above the last id of a GOAWAY, and no others, that GOAWAY as their error:
/// the endpoint has not processed them. The same is promised by `REFUSED_STREAM`.
fn judge(error: hyper::Error) -> SendFailure {
    let cause = std::error::Error::source(&error);
    let Some(cause) = cause.and_then(|cause| cause.downcast_ref::<h2::Error>()) else {
        return SendFailure::Broken(error);
    };
    let is_refusal = cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM);
    let is_leaving = cause.is_go_away();
    if cause.is_remote() && (is_leaving || is_refusal) {
        SendFailure::Refused { is_leaving }
    } else {
        SendFailure::Broken(error)
    }
}
