//! Calls that are not answered here go on to the router: their request as it came, their answer as
//! it comes.
//!
//! What was already read of a request is handed on in front of the rest, so a call that turns out
//! to be odd is judged by the library as if it had seen it first.

use std::pin::Pin;
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

use super::reply::Caller;
use crate::etcd::gate;

/// The body of a request, piece by piece; what is taken makes room for more.
pub(super) struct Received {
    /// Read already.
    ahead: Bytes,
    stream: RecvStream,
    is_data_over: bool,
}

impl Received {
    pub(super) fn new(ahead: Bytes, stream: RecvStream) -> Self {
        Received {
            ahead,
            stream,
            is_data_over: false,
        }
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
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let this = &mut *self;
        if !this.ahead.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.ahead)))));
        }
        if !this.is_data_over {
            if let Some(data) = ready!(poll_data(&mut this.stream, cx)) {
                return Poll::Ready(Some(data.map(Frame::data)));
            }
            this.is_data_over = true;
        }
        let trailers = ready!(this.stream.poll_trailers(cx));
        Poll::Ready(trailers.transpose().map(|read| read.map(Frame::trailers)))
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
            if let Err(error) = pump(body, &mut stream, &mut caller).await {
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
