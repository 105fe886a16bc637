//! One request on one connection, and what its failure says about whether it was carried out.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::http2::Http2;
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
    /// It may have left, and the endpoint says that it did not look at it; `is_leaving` when that
    /// was said of the whole connection.
    #[error("refused unseen")]
    Refused {
        /// By GOAWAY, not for this one stream.
        is_leaving: bool,
    },
    /// It left, and what became of it nobody knows.
    #[error("broken: {0}")]
    Broken(h2::Error),
}

/// Sends `request` and waits for the response's head.
pub(super) async fn send(
    mut sender: Http2,
    request: Request<SendBody>,
) -> Result<Response<Received>, SendFailure> {
    let (mut parts, body) = request.into_parts();
    let has_content = !body.is_end_stream();
    say_length(&mut parts, &body);
    let head = Request::from_parts(parts, ());
    let sent = sender.send(head, has_content);
    let (answer, stream) = sent.map_err(|error| unsent(&sender, error))?;
    drop(sender);
    let uploading = if has_content {
        Upload::new(body, stream).begin().await
    } else {
        None
    };
    let answer = answer.await.map_err(judge)?;
    if let Some(uploading) = uploading {
        // An answer may come before the request's end, which still has to be sent.
        uploading.detach();
    }
    let (parts, stream) = answer.into_parts();
    let content = Received::http2(stream, &parts.headers);
    Ok(Response::from_parts(parts, content))
}

/// Content whose length is known and not said is that of the gateway's own requests.
fn say_length(parts: &mut Parts, body: &SendBody) {
    let Some(length) = body.size_hint().exact() else {
        return;
    };
    let has_content = matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
    if length > 0 || has_content {
        let entry = parts.headers.entry(CONTENT_LENGTH);
        entry.or_insert_with(|| length.into());
    }
}

/// Nothing of a request that is not taken is sent. Either the connection takes none any more, or
/// it is the request: then it would be taken nowhere.
fn unsent(sender: &Http2, error: h2::Error) -> SendFailure {
    if sender.is_over() {
        SendFailure::NeverSent
    } else {
        SendFailure::Broken(error)
    }
}

/// h2 gives streams above the last id of a GOAWAY, and no others, that GOAWAY as their error:
/// the endpoint has not processed them. The same is promised by `REFUSED_STREAM`.
fn judge(error: h2::Error) -> SendFailure {
    let is_refusal = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
    let is_leaving = error.is_go_away();
    if error.is_remote() && (is_leaving || is_refusal) {
        SendFailure::Refused { is_leaving }
    } else {
        SendFailure::Broken(error)
    }
}
