//! The state of one connection, and what we say on it. Pure: bytes go in, events and bytes come out,
//! and time is an argument. What clients say is read in `receive.rs`.
//!
//! Bounds: the streams, one header block, one frame that has not come whole, and what is to be
//! written, which whoever drives it holds down.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf as _, Bytes};
use http::header::{CONTENT_LENGTH, DATE};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::floods::Floods;
use super::streams::Streams;
use super::upload::Upload;
use super::wakes::{Bell, Wakes};
use crate::http2::flow::{Allowance, Credit};
use crate::http2::frames::{self, CONTENT_MAX, MAX_31, PREFACE, Reason};
use crate::http2::hpack::{Decoder, Encoder, encoder};
use crate::http2::pieces::finish_block;
use crate::http2::settings;

/// What the ping behind the first goodbye says, so that its echo is known.
pub(super) const LEAVING: [u8; 8] = *b"leaving.";
const ALIVE: [u8; 8] = *b"alive?..";

/// Room that is made at once when answers begin: two or three of a usual size.
const ANSWERS: usize = 4096;

/// What a connection grants.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Limits {
    pub(in super::super) streams: u32,
    pub(in super::super) header_bytes: u32,
    pub(in super::super) stream_window: u32,
    pub(in super::super) connection_window: u32,
}

/// What has to be done by whoever drives the connection, in this order.
#[derive(Debug)]
pub(super) enum Event {
    /// A stream begins.
    Asked {
        place: usize,
        id: u32,
        parts: Box<Parts>,
        upload: Option<Upload>,
    },
    /// A stream ended before its answer did.
    Gone { place: usize, id: u32 },
}

/// How far the end of the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    No,
    /// Streams that are on their way are still taken.
    Said,
    /// Those up to this one are.
    Counted(u32),
}

/// A header block that has not come whole.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) id: u32,
    pub(super) ends_stream: bool,
    pub(super) is_bad: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) pieces: u32,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) limits: Limits,
    /// What of the preface has not come yet.
    pub(super) preface: &'static [u8],
    pub(super) has_settings: bool,
    /// A frame that has not come whole.
    pub(super) carry: Vec<u8>,
    pub(super) block: Option<Block>,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) known: Option<(Bytes, Authority)>,
    pub(super) floods: Floods,
    pub(super) streams: Streams,
    /// The last stream that a client named.
    pub(super) seen: u32,
    pub(super) leaving: Leaving,
    pub(super) peer_leaves: bool,
    /// Of the connection.
    pub(super) credit: Credit,
    pub(super) allowance: Allowance,
    /// What a new stream may send.
    pub(super) stream_credit: u32,
    /// Somebody may send who could not before.
    pub(super) has_room: bool,
    pub(super) events: Vec<Event>,
    pub(super) out: Vec<u8>,
    wakes: Arc<Wakes>,
    bells: Vec<Arc<Bell>>,
}

impl Core {
    pub(super) fn new(limits: Limits, wakes: Arc<Wakes>, now: Instant) -> Self {
        let mut out = Vec::new();
        let Limits {
            streams,
            header_bytes,
            stream_window,
            connection_window,
        } = limits;
        settings::write(&mut out, streams, stream_window, header_bytes);
        let more = connection_window.saturating_sub(settings::WINDOW);
        if more > 0 {
            frames::window_update(&mut out, 0, more);
        }
        Core {
            limits,
            preface: PREFACE,
            has_settings: false,
            carry: Vec::new(),
            block: None,
            decoder: Decoder::new(),
            encoder: Encoder::default(),
            known: None,
            floods: Floods::new(now),
            streams: Streams::default(),
            seen: 0,
            leaving: Leaving::No,
            peer_leaves: false,
            credit: Credit::new(settings::WINDOW),
            allowance: Allowance::new(connection_window.max(settings::WINDOW)),
            stream_credit: settings::WINDOW,
            has_room: false,
            events: Vec::new(),
            out,
            wakes,
            bells: Vec::new(),
        }
    }

    /// The bell of a place; it stays when streams come and go.
    pub(super) fn bell(&mut self, place: usize) -> Arc<Bell> {
        while self.bells.len() <= place {
            let bell = Bell::new(self.bells.len(), &self.wakes);
            self.bells.push(bell);
        }
        let bell = self.bells.get(place).map(Arc::clone);
        bell.unwrap_or_else(|| Bell::new(place, &self.wakes))
    }

    /// Whether a stream of this number is in this place.
    pub(super) fn is_open(&mut self, place: usize, id: u32) -> bool {
        self.streams.get(place).is_some_and(|it| it.id == id)
    }

    /// The connection may end: nothing is open, and nothing new is taken.
    pub(super) fn is_over(&self) -> bool {
        let is_leaving = self.peer_leaves || matches!(self.leaving, Leaving::Counted(_));
        is_leaving && self.streams.len() == 0
    }

    /// Says goodbye; what is on its way is still taken, until the client has heard of it.
    pub(super) fn leave(&mut self) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Said;
            frames::goaway(&mut self.out, MAX_31, Reason::NO_ERROR, "");
            frames::write(&mut self.out, frames::PING, 0, 0, &LEAVING);
        }
    }

    /// Asks whether the client is there.
    pub(super) fn ping(&mut self) {
        frames::write(&mut self.out, frames::PING, 0, 0, &ALIVE);
    }

    /// Sends the head of an answer; `date` is added where none is said.
    pub(super) fn head(
        &mut self,
        place: usize,
        status: StatusCode,
        lines: &HeaderMap,
        length: Option<u64>,
        date: impl FnOnce() -> HeaderValue,
        is_last: bool,
    ) {
        let Some(stream) = self.streams.get(place).filter(|it| it.is_sending) else {
            return;
        };
        let id = stream.id;
        if self.out.capacity() == 0 {
            self.out.reserve(ANSWERS);
        }
        let start = self.out.len();
        frames::begin(&mut self.out, 0, frames::HEADERS, 0, id);
        self.encoder.begin(&mut self.out);
        encoder::status(&mut self.out, status);
        for (name, value) in lines {
            encoder::field(&mut self.out, name, value);
        }
        if let Some(length) = length.filter(|_| !lines.contains_key(CONTENT_LENGTH)) {
            encoder::field(&mut self.out, &CONTENT_LENGTH, &HeaderValue::from(length));
        }
        if !lines.contains_key(DATE) {
            encoder::field(&mut self.out, &DATE, &date());
        }
        finish_block(
            &mut self.out,
            start,
            id,
            if is_last { frames::END_STREAM } else { 0 },
        );
        if is_last {
            self.close_sending(place);
        }
    }

    /// Sends what ends a content.
    pub(super) fn trailers(&mut self, place: usize, lines: &HeaderMap) {
        let Some(stream) = self.streams.get(place).filter(|it| it.is_sending) else {
            return;
        };
        let id = stream.id;
        let start = self.out.len();
        frames::begin(&mut self.out, 0, frames::HEADERS, 0, id);
        self.encoder.begin(&mut self.out);
        for (name, value) in lines {
            encoder::field(&mut self.out, name, value);
        }
        finish_block(&mut self.out, start, id, frames::END_STREAM);
        self.close_sending(place);
    }

    /// How much of a content may be sent now.
    pub(super) fn room(&mut self, place: usize) -> usize {
        let connection = self.credit.bytes();
        let stream = self.streams.get(place).map(|it| it.credit.bytes());
        stream.unwrap_or(0).min(connection)
    }

    /// Sends one frame of content, as much as there is room for.
    pub(super) fn data(&mut self, place: usize, bytes: &mut Bytes, is_last: bool) {
        let count = self.room(place).min(CONTENT_MAX).min(bytes.len());
        let is_last = is_last && count == bytes.len();
        let Some(stream) = self.streams.get(place).filter(|it| it.is_sending) else {
            bytes.clear();
            return;
        };
        if count == 0 && !is_last {
            return;
        }
        stream.credit.spend(count);
        let id = stream.id;
        self.credit.spend(count);
        let flags = if is_last { frames::END_STREAM } else { 0 };
        let piece = bytes.get(..count).unwrap_or_default();
        frames::write(&mut self.out, frames::DATA, flags, id, piece);
        bytes.advance(count);
        if is_last {
            self.close_sending(place);
        }
    }

    /// Gives a stream up.
    pub(super) fn abort(&mut self, place: usize, reason: Reason) {
        if let Some(stream) = self.streams.get(place) {
            let id = stream.id;
            frames::reset(&mut self.out, id, reason);
            self.streams.remember(id);
            self.remove(place, reason);
        }
    }

    /// Our side of a stream is over. A client that has more to say need not say it.
    fn close_sending(&mut self, place: usize) {
        let Some(stream) = self.streams.get(place) else {
            return;
        };
        stream.is_sending = false;
        self.collect(place);
        let Some(stream) = self.streams.get(place) else {
            return;
        };
        if !stream.is_receiving {
            self.remove(place, Reason::NO_ERROR);
        }
    }

    /// Looks what became of a stream's content: room that was made is granted anew.
    pub(super) fn collect(&mut self, place: usize) {
        let Some(stream) = self.streams.get(place) else {
            return;
        };
        let id = stream.id;
        let mut taken = 0;
        if let Some(inlet) = &stream.inlet {
            let done = inlet.collect();
            taken = done.taken;
            if done.is_abandoned {
                stream.inlet = None;
            } else if stream.is_receiving
                && let Some(more) = stream.allowance.take(done.taken)
            {
                frames::window_update(&mut self.out, id, more);
            }
        }
        let is_useless = stream.is_receiving && !stream.is_sending && stream.inlet.is_none();
        self.grant(taken);
        if is_useless {
            self.abort(place, Reason::NO_ERROR);
        }
    }

    /// Bytes of the connection's window were taken.
    pub(super) fn grant(&mut self, bytes: u32) {
        if let Some(more) = self.allowance.take(bytes) {
            frames::window_update(&mut self.out, 0, more);
        }
    }

    /// Forgets a stream. Content that has not come whole breaks off with it.
    pub(super) fn remove(&mut self, place: usize, reason: Reason) {
        let Some(stream) = self.streams.remove(place) else {
            return;
        };
        if let Some(inlet) = stream.inlet {
            let unread = if stream.is_receiving {
                inlet.fail(reason)
            } else {
                inlet.detach()
            };
            self.grant(unread);
        }
    }

    /// What has to go in front of the end.
    pub(super) fn farewell(&mut self, reason: Reason, why: &str) {
        // What was said once does not grow.
        let last = match self.leaving {
            Leaving::Counted(last) => last,
            Leaving::No | Leaving::Said => self.seen,
        };
        frames::goaway(&mut self.out, last, reason, why);
    }

    /// A stream that came too late: it will be asked elsewhere, as the client was told.
    pub(super) fn is_beyond(&self, id: u32) -> bool {
        matches!(self.leaving, Leaving::Counted(last) if id > last)
    }
}

/// The head of an answer to a head that is too large.
pub(super) fn too_large() -> (StatusCode, HeaderMap) {
    let mut lines = HeaderMap::new();
    let length: (HeaderName, HeaderValue) = (CONTENT_LENGTH, HeaderValue::from(0));
    lines.insert(length.0, length.1);
    (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, lines)
}
