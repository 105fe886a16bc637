//! The state of one connection to an endpoint, and what we say on it. Pure: bytes go in, bytes and
//! wakers come out, and time is an argument. What endpoints say is read in `receive.rs`.
//!
//! Content waits with its stream until there is room for it in what is to be written, and streams
//! take turns, a frame each. Bounds: the endpoint's streams, [`OUT`] of content not written,
//! [`REPLIES_MAX`] replies not written, and those of `streams.rs`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::{Buf as _, Bytes};
use http::header::CONTENT_LENGTH;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method};
use tokio::time::Instant;

use super::error::StreamError;
use super::floods::Floods;
use super::streams::{End, Ending, OUTBOX, Stream, Streams};
use crate::http2::flow::{Allowance, Credit};
use crate::http2::frames::{self, CONTENT_MAX, Fatal, MAX_31, PREFACE, Reason};
use crate::http2::hpack::{Decoder, Encoder, encoder};
use crate::http2::pieces::{Pieces, finish_block};
use crate::http2::settings;

/// Flow-control windows for responses: a list of megabytes on one stream runs at 250 MB/s a
/// millisecond away, and the connection's window holds as many unread ones as a kube-apiserver
/// allows streams, so that no number of them stops the others.
pub(super) const STREAM_WINDOW: u32 = 256 * 1024;
pub(super) const CONNECTION_WINDOW: u32 = 64 * 1024 * 1024;

/// Response header fields of an endpoint: Go's servers send up to 1 MiB, warnings reach 4 KiB.
pub(super) const HEADER_BYTES_MAX: u32 = 256 * 1024;

/// Content that waits to be written before no more is added: four TLS records.
const OUT: usize = 64 * 1024;

/// Replies to pings and settings that wait to be written: an endpoint that asks and does not read.
const REPLIES_MAX: u32 = 1000;

/// What a ping says.
const ALIVE: [u8; 8] = *b"alive?..";

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a Method,
    pub(crate) is_tls: bool,
    pub(crate) authority: &'a Authority,
    pub(crate) path: &'a PathAndQuery,
    pub(crate) headers: &'a HeaderMap,
    /// Said where `headers` do not say it.
    pub(crate) length: Option<u64>,
}

/// Whether one more request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    /// The endpoint takes no more at once.
    Full,
    /// It takes none any more.
    Never,
}

/// A header block that has not come whole.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) id: u32,
    pub(super) ends_stream: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) pieces: u32,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) has_settings: bool,
    pub(super) pieces: Pieces,
    pub(super) block: Option<Block>,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) floods: Floods,
    pub(super) streams: Streams,
    pub(super) next_id: u32,
    /// As many as the endpoint takes at once; none until it has said so.
    pub(super) streams_max: usize,
    /// It has said so, or that there is no limit.
    pub(super) is_limited: bool,
    /// The last stream that it will look at, when it has said goodbye.
    pub(super) last_id: Option<u32>,
    /// Requests without a head of an answer.
    pub(super) unanswered: usize,
    /// Of the connection.
    pub(super) credit: Credit,
    pub(super) allowance: Allowance,
    /// What a new stream may send.
    pub(super) stream_credit: u32,
    /// Who has content to send, in the order they take turns.
    sending: VecDeque<u32>,
    /// Who has, and no room in the endpoint's windows.
    pub(super) blocked: Vec<u32>,
    pub(super) replies: u32,
    pub(super) out: Vec<u8>,
    /// Of that, what was written.
    pub(super) written: usize,
    /// Bytes of the connection before those in `out`.
    passed: u64,
    /// Whom to wake, once nobody holds the connection.
    pub(super) wakes: Vec<Waker>,
    /// Who waits to begin a stream.
    openers: Vec<Waker>,
    pub(super) is_over: bool,
}

impl Core {
    pub(super) fn new(now: Instant) -> Self {
        let mut out = PREFACE.to_vec();
        settings::write_clients(&mut out, STREAM_WINDOW, HEADER_BYTES_MAX);
        frames::window_update(&mut out, 0, CONNECTION_WINDOW - settings::WINDOW);
        Core {
            has_settings: false,
            pieces: Pieces::default(),
            block: None,
            decoder: Decoder::new(),
            encoder: Encoder::default(),
            floods: Floods::new(now),
            streams: Streams::default(),
            next_id: 1,
            streams_max: 0,
            is_limited: false,
            last_id: None,
            unanswered: 0,
            credit: Credit::new(settings::WINDOW),
            allowance: Allowance::new(CONNECTION_WINDOW),
            stream_credit: settings::WINDOW,
            sending: VecDeque::new(),
            blocked: Vec::new(),
            replies: 0,
            out,
            written: 0,
            passed: 0,
            wakes: Vec::new(),
            openers: Vec::new(),
            is_over: false,
        }
    }

    /// Whether it takes no more requests.
    pub(super) fn is_closed(&self) -> bool {
        self.is_over || self.last_id.is_some() || self.next_id > MAX_31
    }

    pub(super) fn room(&self) -> Room {
        if self.is_closed() {
            Room::Never
        } else if self.streams.open() >= self.streams_max {
            Room::Full
        } else {
            Room::Free
        }
    }

    /// Wakes `waker` when a stream has ended.
    pub(super) fn wait_for_room(&mut self, waker: &Waker) {
        if !self.openers.iter().any(|it| it.will_wake(waker)) {
            self.openers.push(waker.clone());
        }
    }

    /// Whoever waits for room has to look again.
    pub(super) fn has_more_room(&mut self) {
        self.wakes.append(&mut self.openers);
    }

    /// Sends the head of a request, and answers its place. There has to be room.
    pub(super) fn open(
        &mut self,
        ask: &Ask<'_>,
        has_content: bool,
        deadline: Option<Instant>,
    ) -> usize {
        let id = self.next_id;
        self.next_id += 2;
        let start = self.out.len();
        frames::begin(&mut self.out, 0, frames::HEADERS, 0, id);
        self.encoder.begin(&mut self.out);
        let path = match ask.path.as_str() {
            "" => "/",
            path => path,
        };
        let authority = ask.authority.as_str();
        encoder::request(&mut self.out, ask.method, ask.is_tls, authority, path);
        for (name, value) in ask.headers {
            encoder::field(&mut self.out, name, value);
        }
        if let Some(length) = ask.length {
            encoder::field(&mut self.out, &CONTENT_LENGTH, &HeaderValue::from(length));
        }
        let flags = if has_content { 0 } else { frames::END_STREAM };
        finish_block(&mut self.out, start, id, flags);
        self.unanswered += 1;
        self.streams.insert(Stream {
            id,
            begins_at: self.passed + start as u64,
            deadline,
            is_receiving: true,
            is_sending: has_content,
            has_reader: true,
            has_writer: has_content,
            is_head: ask.method == Method::HEAD,
            has_head: false,
            head: None,
            allowance: Allowance::new(STREAM_WINDOW),
            length: None,
            held: VecDeque::new(),
            trailers: None,
            end: End::Open,
            reader: None,
            credit: Credit::new(self.stream_credit),
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            ending: None,
            is_queued: false,
            writer: None,
        })
    }

    /// Takes content that is to be sent, and its end.
    pub(super) fn send(&mut self, place: usize, data: Bytes, ending: Option<Ending>) {
        let Some(stream) = self.streams.get(place).filter(|it| it.is_sending) else {
            return;
        };
        if !data.is_empty() {
            stream.outbox_bytes += data.len();
            stream.outbox.push_back(data);
        }
        if ending.is_some() {
            stream.ending = ending;
        }
        let has_work = !stream.outbox.is_empty() || stream.ending.is_some();
        if has_work && !std::mem::replace(&mut stream.is_queued, true) {
            self.sending.push_back(stream.id);
        }
        self.fill();
    }

    /// Adds content to what is to be written, as much as there is room for.
    pub(super) fn fill(&mut self) {
        while !self.is_over
            && self.out.len() - self.written < OUT
            && let Some(id) = self.sending.pop_front()
        {
            self.send_frame(id);
        }
    }

    /// One frame of a stream's content.
    fn send_frame(&mut self, id: u32) {
        let Some(place) = self.streams.place(id) else {
            return; // it has ended meanwhile
        };
        let Some(stream) = self.streams.get(place).filter(|it| it.is_sending) else {
            return;
        };
        if let Some(data) = stream.outbox.front_mut() {
            let room = stream.credit.bytes().min(self.credit.bytes());
            let count = room.min(CONTENT_MAX).min(data.len());
            if count == 0 {
                self.blocked.push(id);
                return;
            }
            stream.credit.spend(count);
            self.credit.spend(count);
            let is_all = count == data.len();
            let is_plain = matches!(stream.ending, Some(Ending::Plain));
            let is_last = is_all && is_plain && stream.outbox.len() == 1;
            let flags = if is_last { frames::END_STREAM } else { 0 };
            let Some(data) = stream.outbox.front_mut() else {
                return;
            };
            let piece = data.get(..count).unwrap_or_default();
            frames::write(&mut self.out, frames::DATA, flags, id, piece);
            data.advance(count);
            if is_all {
                stream.outbox.pop_front();
            }
            stream.outbox_bytes -= count;
            if stream.outbox_bytes < OUTBOX {
                self.wakes.extend(stream.writer.take());
            }
            if is_last {
                return self.finish_sending(place);
            }
            if !stream.outbox.is_empty() || stream.ending.is_some() {
                self.sending.push_back(id);
            } else {
                stream.is_queued = false;
            }
            return;
        }
        match stream.ending.take() {
            None => stream.is_queued = false,
            Some(Ending::Plain) => {
                frames::write(&mut self.out, frames::DATA, frames::END_STREAM, id, &[]);
                self.finish_sending(place);
            }
            Some(Ending::Trailers(lines)) => {
                let start = self.out.len();
                frames::begin(&mut self.out, 0, frames::HEADERS, 0, id);
                self.encoder.begin(&mut self.out);
                for (name, value) in &lines {
                    encoder::field(&mut self.out, name, value);
                }
                finish_block(&mut self.out, start, id, frames::END_STREAM);
                self.finish_sending(place);
            }
        }
    }

    fn finish_sending(&mut self, place: usize) {
        if let Some(stream) = self.streams.get(place) {
            stream.is_sending = false;
            stream.is_queued = false;
        }
        self.settle(place);
    }

    /// Somebody may send who could not before.
    pub(super) fn unblock(&mut self) {
        self.sending.extend(self.blocked.drain(..));
    }

    /// Ends a stream before its time, without a word to the endpoint. What has come stays.
    pub(super) fn break_off(&mut self, place: usize, error: StreamError) {
        let Some(stream) = self.streams.get(place) else {
            return;
        };
        if !stream.has_head && stream.is_receiving {
            self.unanswered -= 1;
        }
        stream.is_receiving = false;
        stream.is_sending = false;
        if std::mem::take(&mut stream.is_queued) {
            // A line has nobody in it who has left.
            let id = stream.id;
            self.sending.retain(|queued| *queued != id);
            self.blocked.retain(|queued| *queued != id);
        }
        stream.outbox.clear();
        stream.outbox_bytes = 0;
        if matches!(stream.end, End::Open) {
            stream.end = End::Broken(error);
        }
        self.wakes.extend(stream.reader.take());
        self.wakes.extend(stream.writer.take());
        self.settle(place);
    }

    /// Ends a stream before its time, and tells the endpoint.
    pub(super) fn reset(&mut self, place: usize, reason: Reason, error: StreamError) {
        let Some(stream) = self.streams.get(place).filter(|it| it.is_open()) else {
            return;
        };
        frames::reset(&mut self.out, stream.id, reason);
        self.break_off(place, error);
    }

    /// Nobody reads the answer any more.
    pub(super) fn leave_reading(&mut self, place: usize) {
        let Some(stream) = self.streams.get(place) else {
            return;
        };
        stream.has_reader = false;
        stream.reader = None;
        stream.head = None;
        stream.trailers = None;
        let unread = stream.held_bytes();
        stream.held.clear();
        let is_receiving = stream.is_receiving;
        // What is to be sent is on its way, or somebody is at it.
        let is_sent = stream.has_writer || stream.ending.is_some();
        let is_useless = stream.is_sending && !is_sent;
        self.grant(unread);
        if is_receiving {
            self.reset(place, Reason::CANCEL, StreamError::GivenUp);
        } else if is_useless {
            self.reset(place, Reason::NO_ERROR, StreamError::GivenUp);
        } else {
            self.settle(place);
        }
    }

    /// Nobody adds to the content any more; one without an end is given up.
    pub(super) fn leave_writing(&mut self, place: usize) {
        let Some(stream) = self.streams.get(place) else {
            return;
        };
        stream.has_writer = false;
        stream.writer = None;
        let is_cut = stream.is_sending && stream.ending.is_none();
        let reason = if stream.is_receiving {
            Reason::CANCEL
        } else {
            Reason::NO_ERROR
        };
        if is_cut {
            self.reset(place, reason, StreamError::GivenUp);
        } else {
            self.settle(place);
        }
    }

    /// Lets go of a stream that has ended for those who had to do with it.
    pub(super) fn settle(&mut self, place: usize) {
        if self.streams.settle(place) {
            self.has_more_room();
        }
    }

    /// Bytes of the connection's window were taken.
    pub(super) fn grant(&mut self, bytes: u32) {
        if bytes > 0
            && let Some(more) = self.allowance.take(bytes)
        {
            frames::window_update(&mut self.out, 0, more);
        }
    }

    /// Asks whether the endpoint is there.
    pub(super) fn ping(&mut self) {
        frames::write(&mut self.out, frames::PING, 0, 0, &ALIVE);
    }

    pub(super) fn reply(&mut self, kind: u8, content: &[u8]) -> Result<(), Fatal> {
        self.replies += 1;
        if self.replies > REPLIES_MAX {
            let why = "replies that nobody reads";
            return Err(Fatal::new(Reason::ENHANCE_YOUR_CALM, why));
        }
        frames::write(&mut self.out, kind, frames::ACK, 0, content);
        Ok(())
    }

    /// What has to go in front of the end.
    pub(super) fn farewell(&mut self, reason: Reason, why: &str) {
        frames::goaway(&mut self.out, 0, reason, why);
    }

    /// `count` more bytes of what is to be written were.
    pub(super) fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.out.len() {
            self.passed += self.out.len() as u64;
            self.written = 0;
            self.replies = 0;
            if self.out.capacity() > 2 * OUT {
                self.out = Vec::new();
            } else {
                self.out.clear();
            }
        }
    }

    /// What waits to be written.
    pub(super) fn unwritten(&self) -> usize {
        self.out.len() - self.written
    }

    /// Nothing more can be written; what was not was never sent.
    pub(super) fn stop_sending(&mut self) {
        self.is_over = true;
        self.passed += self.written as u64;
        self.out = Vec::new();
        self.written = 0;
        for place in self.streams.places() {
            let is_unsent = |it: &&mut Stream| it.begins_at >= self.passed;
            if self.streams.get(place).filter(is_unsent).is_some() {
                self.break_off(place, StreamError::Unseen { is_leaving: true });
            }
        }
        self.has_more_room();
    }

    /// Ends all: of what was written nobody knows what became of it.
    pub(super) fn end(&mut self, why: &str) {
        self.stop_sending();
        let why: Arc<str> = Arc::from(why);
        for place in self.streams.places() {
            self.break_off(place, StreamError::Ended(Arc::clone(&why)));
        }
    }

    /// Gives up those whose time is over; answers when the next one's is.
    pub(super) fn expire(&mut self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for place in self.streams.places() {
            let waiting = self.streams.get(place).filter(|it| !it.has_head);
            let Some(deadline) = waiting.and_then(|it| it.deadline) else {
                continue;
            };
            if deadline <= now {
                self.reset(place, Reason::CANCEL, StreamError::TimedOut);
            } else {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            }
        }
        next
    }
}
