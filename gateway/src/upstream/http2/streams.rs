//! The requests of a connection, each in a numbered place that is used again once nobody has to do
//! with it: neither the endpoint, nor who reads the answer, nor who sends the content.
//!
//! Bounds: what has come and is not read is within the stream's window, in pieces that are not
//! small ([`PIECE`]); what is to be sent within [`OUTBOX`] and one frame more.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use foldhash::fast::FixedState;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::error::StreamError;
use crate::http2::flow::{Allowance, Credit};

/// Of a content that is sent, what waits here before more is taken from its sender.
pub(super) const OUTBOX: usize = 64 * 1024;

/// Neighbours in an unread content that are smaller together become one.
const PIECE: usize = 1024;

/// How far an answer has come.
#[derive(Clone, Debug)]
pub(super) enum End {
    Open,
    Whole,
    Broken(StreamError),
}

/// What ends a request's content.
#[derive(Debug)]
pub(super) enum Ending {
    Plain,
    Trailers(HeaderMap),
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

/// One request and its answer.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// Before how many bytes of the connection it begins.
    pub(super) begins_at: u64,
    /// By when its head has to be there.
    pub(super) deadline: Option<Instant>,
    /// The endpoint may send more.
    pub(super) is_receiving: bool,
    /// We may send more.
    pub(super) is_sending: bool,
    pub(super) has_reader: bool,
    pub(super) has_writer: bool,

    /// It was asked for a head alone.
    pub(super) is_head: bool,
    pub(super) has_head: bool,
    /// Until somebody takes it.
    pub(super) head: Option<Box<Head>>,
    pub(super) allowance: Allowance,
    /// Of the length that the head said, what has not come yet.
    pub(super) length: Option<u64>,
    pub(super) held: VecDeque<Bytes>,
    pub(super) trailers: Option<Box<HeaderMap>>,
    pub(super) end: End,
    pub(super) reader: Option<Waker>,

    pub(super) credit: Credit,
    pub(super) outbox: VecDeque<Bytes>,
    pub(super) outbox_bytes: usize,
    pub(super) ending: Option<Ending>,
    /// It stands in one of the lines of those who send.
    pub(super) is_queued: bool,
    pub(super) writer: Option<Waker>,
}

impl Stream {
    pub(super) fn is_open(&self) -> bool {
        self.is_receiving || self.is_sending
    }

    /// Whether nobody has to do with it any more.
    fn is_idle(&self) -> bool {
        !self.is_open() && !self.has_reader && !self.has_writer
    }

    /// Keeps what has come for who reads it.
    pub(super) fn hold(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        if let Some(last) = self.held.back_mut()
            && last.len() + piece.len() <= PIECE
        {
            let mut both = BytesMut::with_capacity(last.len() + piece.len());
            both.extend_from_slice(last);
            both.extend_from_slice(&piece);
            *last = both.freeze();
            return;
        }
        self.held.push_back(piece);
    }

    pub(super) fn held_bytes(&self) -> u32 {
        let sum = self.held.iter().map(Bytes::len).sum::<usize>();
        u32::try_from(sum).unwrap_or(u32::MAX)
    }

    /// Whether all has come and all but what `held` has was taken.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.end, End::Whole)
    }
}

/// All of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    places: Vec<Option<Stream>>,
    free: Vec<usize>,
    /// Those that are open.
    by_id: HashMap<u32, usize, FixedState>,
}

impl Streams {
    /// How many are open.
    pub(super) fn open(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn place(&self, id: u32) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn get(&mut self, place: usize) -> Option<&mut Stream> {
        self.places.get_mut(place)?.as_mut()
    }

    pub(super) fn insert(&mut self, stream: Stream) -> usize {
        let id = stream.id;
        let place = self.free.pop().unwrap_or(self.places.len());
        match self.places.get_mut(place) {
            Some(free) => *free = Some(stream),
            None => self.places.push(Some(stream)),
        }
        self.by_id.insert(id, place);
        place
    }

    /// Looks whether one is over: for the endpoint, or for everybody. Yes when it was open until
    /// now.
    pub(super) fn settle(&mut self, place: usize) -> bool {
        let Some(slot) = self.places.get_mut(place) else {
            return false;
        };
        let Some(stream) = slot else { return false };
        let has_closed = !stream.is_open() && self.by_id.remove(&stream.id).is_some();
        if stream.is_idle() {
            *slot = None;
            self.free.push(place);
        }
        has_closed
    }

    /// The places of all that are open.
    pub(super) fn places(&self) -> Vec<usize> {
        self.by_id.values().copied().collect()
    }

    /// All that somebody has to do with.
    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.places.iter_mut().flatten()
    }
}
