//! A request's content, as whoever sends it has it. Dropped before its end, it takes the request
//! back.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::answer::wake_later;
use super::error::StreamError;
use super::shared::Shared;
use super::streams::{End, Ending, OUTBOX};
use crate::http2::frames::Reason;

/// See the module.
pub(crate) struct Outlet {
    shared: Arc<Shared>,
    place: usize,
}

impl Outlet {
    pub(super) fn new(shared: Arc<Shared>, place: usize) -> Self {
        Outlet { shared, place }
    }

    /// Ready when more is taken; an error when nothing more is, ever.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        self.poll(cx, |waiting| waiting < OUTBOX)
    }

    /// Ready when nothing more is taken.
    pub(crate) fn poll_stopped(&self, cx: &mut Context<'_>) -> Poll<StreamError> {
        match self.poll(cx, |_| false) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            _ => Poll::Pending,
        }
    }

    fn poll(
        &self,
        cx: &mut Context<'_>,
        is_ready: impl FnOnce(usize) -> bool,
    ) -> Poll<Result<(), StreamError>> {
        let mut state = self.shared.state.lock();
        let Some(stream) = state.core.streams.get(self.place) else {
            return Poll::Ready(Err(StreamError::GivenUp));
        };
        if !stream.is_sending {
            return Poll::Ready(Err(match &stream.end {
                End::Broken(error) => error.clone(),
                _ => StreamError::Reset(Reason::NO_ERROR),
            }));
        }
        if is_ready(stream.outbox_bytes) {
            return Poll::Ready(Ok(()));
        }
        wake_later(&mut stream.writer, cx.waker());
        Poll::Pending
    }

    pub(crate) fn send(&self, data: Bytes, is_last: bool) {
        let ending = is_last.then_some(Ending::Plain);
        self.shared.change(|state| {
            state.core.send(self.place, data, ending);
            if is_last {
                state.hurry();
            }
        });
    }

    pub(crate) fn end_with(&self, trailers: HeaderMap) {
        let ending = Some(Ending::Trailers(trailers));
        self.shared
            .change(|state| state.core.send(self.place, Bytes::new(), ending));
    }

    /// Takes the request back.
    pub(crate) fn reset(&self, reason: Reason) {
        self.shared.change(|state| {
            let core = &mut state.core;
            core.reset(self.place, reason, StreamError::GivenUp);
        });
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.shared
            .change(|state| state.core.leave_writing(self.place));
    }
}
