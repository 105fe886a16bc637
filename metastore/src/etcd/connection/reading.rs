//! Reading the one message of a hot call.
//!
//! Nearly every body is there with its head. Those that are not hold what came of them, so what
//! they hold together is bounded, on their connection and on the listener, and so is the time that
//! one may take.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::request::Parts;
use tokio::time::Sleep;

use super::bridge;
use super::reply::{self, Caller};
use super::unary::Call;
use crate::etcd::admission::Budget;
use crate::etcd::shared::Shared;

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// Its message says that it has so many bytes, which is more than any may hold.
    TooLong(u32),
    /// More than one message of any size.
    TooMuch,
    /// The client took it back.
    Broken,
    /// Too much of unfinished bodies is held already.
    NoRoom,
    /// It took longer than anything is waited for.
    Late,
}

/// A call whose body may not be complete yet.
pub(super) struct Reading {
    pub(super) call: Call,
    pub(super) parts: Parts,
    pub(super) body: RecvStream,
    pub(super) caller: Caller,
    read: Pieces,
    /// What a message may hold.
    bytes_max: usize,
}

/// A body so far: most come in one piece, which is then not copied.
#[derive(Default)]
struct Pieces {
    first: Bytes,
    rest: BytesMut,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() {
            self.first = piece;
            return;
        }
        if self.rest.is_empty() {
            self.rest.extend_from_slice(&self.first);
        }
        self.rest.extend_from_slice(&piece);
    }

    fn len(&self) -> usize {
        self.first.len().max(self.rest.len())
    }

    /// What the message says of its length, once that is there.
    fn length(&self) -> Option<u32> {
        let longest = if self.rest.is_empty() {
            &self.first[..]
        } else {
            &self.rest[..]
        };
        let [_, length @ ..] = *longest.first_chunk::<{ reply::FRAME_HEAD }>()?;
        Some(u32::from_be_bytes(length))
    }

    fn take(&mut self) -> Bytes {
        let first = std::mem::take(&mut self.first);
        if self.rest.is_empty() {
            return first;
        }
        self.rest.split().freeze()
    }
}

impl Reading {
    pub(super) fn new(
        call: Call,
        parts: Parts,
        body: RecvStream,
        caller: Caller,
        bytes_max: usize,
    ) -> Self {
        Reading {
            call,
            parts,
            body,
            caller,
            read: Pieces::default(),
            bytes_max,
        }
    }

    /// Reads what is there.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            if self.body.is_end_stream() {
                return Poll::Ready(End::Whole);
            }
            match ready!(bridge::poll_data(&mut self.body, cx)) {
                Some(Ok(piece)) => self.read.push(piece),
                Some(Err(_reset)) => return Poll::Ready(End::Broken),
                None => return Poll::Ready(End::Whole),
            }
            let length = self.read.length().unwrap_or(0);
            if usize::try_from(length).is_ok_and(|length| length > self.bytes_max) {
                return Poll::Ready(End::TooLong(length));
            }
            if self.read.len() > self.bytes_max.saturating_add(reply::FRAME_HEAD) {
                return Poll::Ready(End::TooMuch);
            }
        }
    }

    /// What was read.
    pub(super) fn take(&mut self) -> Bytes {
        self.read.take()
    }
}

/// What an unfinished body holds of the two bounds; given back on drop.
pub(super) struct Share {
    here: Arc<Budget>,
    all: Arc<Shared>,
    bytes: usize,
}

impl Share {
    /// Holds nothing yet; `here` is the bound of the connection.
    pub(super) fn new(here: &Arc<Budget>, all: &Arc<Shared>) -> Self {
        Share {
            here: Arc::clone(here),
            all: Arc::clone(all),
            bytes: 0,
        }
    }

    /// Holds so many bytes from now on; `false` when that is too much.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let less = self.bytes.saturating_sub(bytes);
        if !self.here.take(more) {
            return false;
        }
        if !self.all.bodies.take(more) {
            self.here.give(more);
            return false;
        }
        self.here.give(less);
        self.all.bodies.give(less);
        self.bytes = bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.here.give(self.bytes);
        self.all.bodies.give(self.bytes);
    }
}

/// The slow way of reading one, for bodies that come later than their heads.
pub(super) struct Slow {
    reading: Option<Box<Reading>>,
    share: Share,
    alarm: Pin<Box<Sleep>>,
}

impl Slow {
    /// Gives up after `patience`.
    pub(super) fn new(reading: Reading, share: Share, patience: Duration) -> Self {
        Slow {
            reading: Some(Box::new(reading)),
            share,
            alarm: Box::pin(tokio::time::sleep(patience)),
        }
    }
}

impl Future for Slow {
    type Output = Option<(Reading, End)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(reading) = &mut this.reading else {
            return Poll::Ready(None);
        };
        let end = match reading.poll(cx) {
            Poll::Ready(end) => end,
            Poll::Pending if !this.share.hold(reading.read.len()) => End::NoRoom,
            Poll::Pending => {
                ready!(this.alarm.as_mut().poll(cx));
                End::Late
            }
        };
        Poll::Ready(this.reading.take().map(|reading| (*reading, end)))
    }
}
