//! The content of one request on its way from the connection to whoever reads it.
//!
//! No channel: bytes that came lie in one buffer under a lock, and the reader takes all there are.
//! Bound: the stream's window, which the connection grants anew only for what was taken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::wakes::Bell;
use crate::body::BodyError;
use crate::http2::frames::Reason;

/// The reader's end.
#[derive(Debug)]
pub(super) struct Upload(Arc<Shared>);

/// The connection's end.
#[derive(Debug)]
pub(super) struct Inlet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct State {
    held: BytesMut,
    /// Of the length that was said, what is not read yet.
    unread: Option<u64>,
    trailers: Option<HeaderMap>,
    end: End,
    reader: Option<Waker>,
    /// Taken, and not yet granted anew.
    taken: u32,
    /// Nobody reads it any more.
    is_abandoned: bool,
    /// The connection asks no more.
    is_detached: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Whole,
    Broken(Reason),
}

/// What the reader did since it was asked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) taken: u32,
    pub(super) is_abandoned: bool,
}

/// Both ends of one; `length` is what the head said.
pub(super) fn pair(length: Option<u64>, bell: Arc<Bell>) -> (Inlet, Upload) {
    let state = State {
        held: BytesMut::new(),
        unread: length,
        trailers: None,
        end: End::Open,
        reader: None,
        taken: 0,
        is_abandoned: false,
        is_detached: false,
    };
    let state = Mutex::new(state);
    let one = Arc::new(Shared { state, bell });
    (Inlet(Arc::clone(&one)), Upload(one))
}

impl Inlet {
    /// No when nobody reads it.
    pub(super) fn push(&self, bytes: &[u8]) -> bool {
        self.change(|state| {
            if !state.is_abandoned {
                state.held.extend_from_slice(bytes);
            }
            !state.is_abandoned
        })
    }

    pub(super) fn end(&self, trailers: Option<HeaderMap>) {
        self.change(|state| {
            state.trailers = trailers;
            state.end = End::Whole;
        });
    }

    /// It will never be whole; answers what had come and was not granted anew.
    pub(super) fn fail(&self, reason: Reason) -> u32 {
        self.change(|state| {
            if state.end == End::Open {
                state.end = End::Broken(reason);
                state.is_detached = true;
                let held = std::mem::take(&mut state.held);
                return state.taken + count(held.len());
            }
            state.detach()
        })
    }

    /// Its stream is over, and it goes on alone; answers as [`Inlet::fail`].
    pub(super) fn detach(&self) -> u32 {
        self.0.state.lock().detach()
    }

    pub(super) fn collect(&self) -> Done {
        let mut state = self.0.state.lock();
        Done {
            taken: std::mem::take(&mut state.taken),
            is_abandoned: state.is_abandoned,
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (answer, reader) = {
            let mut state = self.0.state.lock();
            let answer = change(&mut state);
            (answer, state.reader.take())
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        answer
    }
}

impl Drop for Inlet {
    /// A connection takes its streams along. Whoever reads on, perhaps in a task of its own, must
    /// not wait for ever.
    fn drop(&mut self) {
        self.fail(Reason::CANCEL);
    }
}

impl State {
    fn detach(&mut self) -> u32 {
        self.is_detached = true;
        std::mem::take(&mut self.taken) + count(self.held.len())
    }

    fn take(&mut self) -> Bytes {
        let bytes = self.held.split().freeze();
        if !self.is_detached {
            self.taken += count(bytes.len());
        }
        self.unread = self
            .unread
            .map(|unread| unread.saturating_sub(bytes.len() as u64));
        bytes
    }
}

/// What came is within a window.
fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.0.state.lock();
        if !state.held.is_empty() {
            let bytes = state.take();
            let is_told = !state.is_detached;
            drop(state);
            if is_told {
                self.0.bell.ring();
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match state.end {
            End::Whole => Poll::Ready(
                state
                    .trailers
                    .take()
                    .map(|lines| Ok(Frame::trailers(lines))),
            ),
            End::Broken(Reason(code)) => Poll::Ready(Some(Err(BodyError::Reset(code)))),
            End::Open => {
                match &mut state.reader {
                    Some(reader) => reader.clone_from(cx.waker()),
                    reader => *reader = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.state.lock();
        state.end == End::Whole && state.held.is_empty() && state.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let unread = self.0.state.lock().unread;
        unread.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let is_told = {
            let mut state = self.0.state.lock();
            state.is_abandoned = true;
            let held = std::mem::take(&mut state.held);
            state.taken += count(held.len());
            !state.is_detached && (state.end == End::Open || state.taken > 0)
        };
        if is_told {
            self.0.bell.ring();
        }
    }
}
