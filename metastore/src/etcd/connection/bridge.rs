//! Calls that are not answered here go on to the router: their request as it came, their answer as
//! it comes.
//!
//! What was already read of a request is handed on in front of the rest, so a call that turns out
//! to be odd is judged by the library as if it had seen it first.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tonic::Code;
use tower::Service as _;

use super::reading::Share;
use super::reply::{self, Caller};
use crate::etcd::admission::FREE_BYTES;
use crate::etcd::shared::Shared;
use crate::etcd::{errors, gate};

/// The body of a request, piece by piece; what is taken makes room for more. Whoever reads it keeps
/// the pieces of a message until it is whole, so those are counted as what an unfinished hot call
/// holds is.
pub(super) struct Received {
    /// Read already.
    ahead: Bytes,
    stream: RecvStream,
    partial: Partial,
    share: Share,
    is_data_over: bool,
}

impl Received {
    pub(super) fn new(ahead: Bytes, stream: RecvStream, share: Share) -> Self {
        Received {
            ahead,
            stream,
            partial: Partial::default(),
            share,
            is_data_over: false,
        }
    }

    fn hand_on(&mut self, piece: Bytes) -> Result<Frame<Bytes>, Refused> {
        self.partial.pass(&piece);
        if self.share.hold(self.partial.held) {
            Ok(Frame::data(piece))
        } else {
            Err(errors::too_many_requests().into())
        }
    }
}

/// Why a body goes no further: a status is told as it is.
type Refused = Box<dyn std::error::Error + Send + Sync>;

/// How much of a message that is not whole yet has passed.
#[derive(Default)]
struct Partial {
    head: [u8; reply::FRAME_HEAD],
    held: usize,
}

impl Partial {
    fn pass(&mut self, piece: &[u8]) {
        let mut left = piece;
        while let Some(byte) = left.first() {
            if let Some(place) = self.head.get_mut(self.held) {
                *place = *byte;
                self.held += 1;
                left = left.get(1..).unwrap_or_default();
            } else {
                let missing = self.length().saturating_sub(self.held);
                let step = missing.min(left.len());
                self.held += step;
                left = left.get(step..).unwrap_or_default();
            }
            if self.held >= self.length() && self.held >= self.head.len() {
                self.held = 0;
            }
        }
    }

    /// Of the whole frame, once its head is there.
    fn length(&self) -> usize {
        let [_, length @ ..] = self.head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        length.saturating_add(self.head.len())
    }
}

/// The next piece of a body, room for as much given back to the client.
pub(super) fn poll_data(
    stream: &mut RecvStream,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, h2::Error>>> {
    let data = ready!(stream.poll_data(cx));
    if let Some(Ok(data)) = &data {
        // It fails for a stream that was reset, which the next poll tells.
        let _reset = stream.flow_control().release_capacity(data.len());
    }
    Poll::Ready(data)
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = Refused;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Refused>>> {
        let this = &mut *self;
        if !this.ahead.is_empty() {
            let piece = std::mem::take(&mut this.ahead);
            return Poll::Ready(Some(this.hand_on(piece)));
        }
        if !this.is_data_over {
            if let Some(data) = ready!(poll_data(&mut this.stream, cx)) {
                let frame = data.map_err(Refused::from);
                return Poll::Ready(Some(frame.and_then(|piece| this.hand_on(piece))));
            }
            this.is_data_over = true;
        }
        let trailers = ready!(this.stream.poll_trailers(cx)).transpose();
        let read = |trailers: Result<HeaderMap, h2::Error>| {
            trailers.map(Frame::trailers).map_err(Refused::from)
        };
        Poll::Ready(trailers.map(read))
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// Asks the router and sends what it answers. Ends when the client resets the call.
pub(super) async fn pass(
    shared: Arc<Shared>,
    mut routes: axum::Router,
    parts: Parts,
    body: Received,
    mut caller: Caller,
) {
    let request = Request::from_parts(parts, Body::new(body));
    let answer = tokio::select! {
        biased;
        // First: nobody waits for the answer to a call that was reset.
        _reset = std::future::poll_fn(|cx| caller.respond.poll_reset(cx)) => return,
        answer = routes.call(request) => answer,
    };
    let answer: Response<Body> = match answer {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    let (mut parts, body) = answer.into_parts();
    if let Some(code) = gate::code_of(&parts.headers) {
        caller.ended(code);
    }
    let is_over = body.is_end_stream();
    if !is_over {
        say_length(&mut parts.headers, &body);
    }
    let head = Response::from_parts(parts, ());
    match caller.respond.send_response(head, is_over) {
        Ok(mut stream) if !is_over => {
            if let Err(error) = pump(&shared, body, &mut stream, &mut caller).await {
                tracing::trace!(%error, "a call ended before its answer");
            }
        }
        Ok(_) => {}
        Err(error) => tracing::trace!(%error, "a call ended before it was answered"),
    }
}

fn say_length(headers: &mut HeaderMap, body: &Body) {
    if let Some(length) = body.size_hint().exact() {
        headers
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| HeaderValue::from(length));
    }
}

/// Sends a body as the client takes it. A body that breaks resets the call.
async fn pump(
    shared: &Shared,
    mut body: Body,
    stream: &mut SendStream<Bytes>,
    caller: &mut Caller,
) -> Result<(), h2::Error> {
    loop {
        let frame = tokio::select! {
            biased;
            // First: what is not wanted is not made.
            reset = std::future::poll_fn(|cx| stream.poll_reset(cx)) => return Err(reset?.into()),
            frame = body.frame() => frame,
        };
        let Some(frame) = frame else {
            return stream.send_data(Bytes::new(), true);
        };
        let Ok(frame) = frame else {
            caller.ended(Code::Internal);
            stream.send_reset(Reason::INTERNAL_ERROR);
            return Ok(());
        };
        match frame.into_data() {
            Ok(data) if data.len() > FREE_BYTES => {
                if !reply::send_pieces(stream, data, &shared.room).await? {
                    stream.send_reset(Reason::CANCEL);
                    return Ok(());
                }
                if body.is_end_stream() {
                    return stream.send_data(Bytes::new(), true);
                }
            }
            Ok(data) => send_piece(stream, data, body.is_end_stream()).await?,
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    caller.ended(gate::code_of(&trailers).unwrap_or(Code::Unknown));
                    return stream.send_trailers(trailers);
                }
            }
        }
        if body.is_end_stream() {
            return Ok(());
        }
    }
}

/// Sends one piece once the client has taken enough of those before.
pub(super) async fn send_piece(
    stream: &mut SendStream<Bytes>,
    data: Bytes,
    is_last: bool,
) -> Result<(), h2::Error> {
    if !data.is_empty() {
        stream.reserve_capacity(data.len());
        while stream.capacity() == 0 {
            match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                Some(granted) => drop(granted?),
                // Reset, or ended by the connection.
                None => return Err(Reason::CANCEL.into()),
            }
        }
    }
    stream.send_data(data, is_last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_whole_counts() {
        let frame = |length: u32| {
            let mut frame = vec![0];
            frame.extend(length.to_be_bytes());
            frame.extend(vec![7; usize::try_from(length).unwrap()]);
            frame
        };
        let stream: Vec<u8> = [0, 1, 300, 0, 5].into_iter().flat_map(frame).collect();
        let ends: Vec<usize> = [5, 6, 305, 5, 10]
            .iter()
            .scan(0, |sum, length| {
                *sum += length;
                Some(*sum)
            })
            .collect();
        for size in [1, 2, 3, 7, 100, stream.len()] {
            let mut partial = Partial::default();
            let mut passed = 0;
            for piece in stream.chunks(size) {
                partial.pass(piece);
                passed += piece.len();
                let whole = ends.iter().rev().find(|end| **end <= passed);
                let held = passed - whole.copied().unwrap_or(0);
                assert_eq!(partial.held, held, "after {passed} in pieces of {size}");
            }
        }
    }
}
