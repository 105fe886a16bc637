//! A request's answer, as whoever waits for it has it: the head, then the content.
//!
//! Dropped before its end, it takes the request back. What is taken of the content is given back to
//! the endpoint's window at once; the reader's pace is the pace at which it is taken.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

use super::error::StreamError;
use super::shared::{Shared, State};
use super::streams::{End, Head, Stream};
use crate::http2::frames::{self, Reason};

/// A stream, for whoever reads it; dropped, it is read no more.
struct Reader {
    shared: Arc<Shared>,
    place: usize,
    /// All was taken.
    has_left: bool,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let place = self.place;
        if !self.has_left {
            self.shared.change(|state| state.core.leave_reading(place));
        }
    }
}

/// Ready with the head.
pub(crate) struct Answer {
    reader: Option<Reader>,
}

/// What comes after it.
pub(crate) struct Content {
    /// While there is more to come.
    reader: Option<Reader>,
    /// What has come with the end, and after it the trailers.
    rest: VecDeque<Bytes>,
    trailers: Option<Box<HeaderMap>>,
}

impl Answer {
    pub(super) fn new(shared: Arc<Shared>, place: usize) -> Self {
        let reader = Some(Reader {
            shared,
            place,
            has_left: false,
        });
        Answer { reader }
    }
}

impl Future for Answer {
    type Output = Result<(Head, Content), StreamError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(reader) = &this.reader else {
            return Poll::Ready(Err(StreamError::GivenUp));
        };
        let place = reader.place;
        let answered = reader.shared.change(|state| {
            let Some(stream) = state.core.streams.get(place) else {
                return Poll::Ready(Err(StreamError::GivenUp));
            };
            match (stream.head.take(), &stream.end) {
                (Some(head), _) => Poll::Ready(Ok((*head, rest(state, place)))),
                (None, End::Broken(error)) => Poll::Ready(Err(error.clone())),
                (None, _) => {
                    wake_later(&mut stream.reader, cx.waker());
                    Poll::Pending
                }
            }
        });
        let answered = ready!(answered);
        let reader = this.reader.take();
        let (head, rest) = match answered {
            Ok(answered) => answered,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let mut content = Content {
            reader,
            rest: VecDeque::new(),
            trailers: None,
        };
        if let Some(rest) = rest {
            content.has_rest(rest);
        }
        Poll::Ready(Ok((head, content)))
    }
}

/// What is left of an answer that has come whole.
type Rest = (VecDeque<Bytes>, Option<Box<HeaderMap>>);

/// Takes it, if it has, and lets go of the stream.
fn rest(state: &mut State, place: usize) -> Option<Rest> {
    let stream = state.core.streams.get(place)?;
    if !stream.is_whole() {
        return None;
    }
    let taken = stream.held_bytes();
    let rest = (std::mem::take(&mut stream.held), stream.trailers.take());
    state.core.grant(taken);
    state.core.leave_reading(place);
    Some(rest)
}

/// What is next of a content.
enum Next {
    Data(Bytes),
    /// All else is there.
    Rest(Rest),
    Broken(StreamError),
}

impl Content {
    fn has_rest(&mut self, (rest, trailers): Rest) {
        self.rest = rest;
        self.trailers = trailers;
        if let Some(mut reader) = self.reader.take() {
            reader.has_left = true;
        }
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        if let Some(reader) = &self.reader {
            let place = reader.place;
            let next = ready!(reader.shared.change(|state| poll_stream(state, place, cx)));
            match next {
                Next::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Next::Rest(rest) => self.has_rest(rest),
                Next::Broken(error) => {
                    self.reader = None;
                    return Poll::Ready(broken(error));
                }
            }
        }
        if let Some(data) = self.rest.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let trailers = self.trailers.take();
        Poll::Ready(trailers.map(|lines| Ok(Frame::trailers(*lines))))
    }

    /// Whether nothing more comes, neither content nor trailers.
    pub(crate) fn is_over(&self) -> bool {
        let is_spent = self.rest.is_empty() && self.trailers.is_none();
        let Some(reader) = &self.reader else {
            return is_spent;
        };
        let mut state = reader.shared.state.lock();
        let stream = state.core.streams.get(reader.place);
        stream.is_some_and(|it| it.is_whole() && it.held.is_empty() && it.trailers.is_none())
    }
}

fn poll_stream(state: &mut State, place: usize, cx: &mut Context<'_>) -> Poll<Next> {
    if let Some(rest) = rest(state, place) {
        return Poll::Ready(Next::Rest(rest));
    }
    let core = &mut state.core;
    let Some(stream) = core.streams.get(place) else {
        return Poll::Ready(Next::Broken(StreamError::GivenUp));
    };
    if let Some(data) = stream.held.pop_front() {
        let taken = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if stream.is_receiving
            && let Some(more) = stream.allowance.take(taken)
        {
            frames::window_update(&mut core.out, stream.id, more);
        }
        core.grant(taken);
        return Poll::Ready(Next::Data(data));
    }
    if let End::Broken(error) = &stream.end {
        return Poll::Ready(Next::Broken(error.clone()));
    }
    wake_later(&mut stream.reader, cx.waker());
    Poll::Pending
}

/// A reset without an error ends an answer early and in order (RFC 9113, 8.1).
fn broken<T>(error: StreamError) -> Option<Result<T, StreamError>> {
    let is_orderly = matches!(error, StreamError::Reset(Reason::NO_ERROR));
    (!is_orderly).then_some(Err(error))
}

pub(super) fn wake_later(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(known) => known.clone_from(waker),
        known => *known = Some(waker.clone()),
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Content")
    }
}

// A stream's size is what each request costs a connection's memory.
const _: () = assert!(size_of::<Stream>() <= 512);
