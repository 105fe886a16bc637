//! The streams of a connection, each in a numbered place that is used again.
//!
//! A closed stream leaves nothing behind but, when it was us who reset it, its number for a while:
//! what the client had sent meanwhile is no fault. Bounds: the streams a client may have open, and
//! [`RESETS_REMEMBERED`].

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::upload::Inlet;
use crate::http2::flow::{Allowance, Credit};

/// Streams of our resetting whose late frames are looked over: as many as may be open.
const RESETS_REMEMBERED: usize = 256;

/// What is known of one stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// The client may send more.
    pub(super) is_receiving: bool,
    /// We may send more.
    pub(super) is_sending: bool,
    pub(super) credit: Credit,
    pub(super) allowance: Allowance,
    /// Of the length that the head said, what has not come yet.
    pub(super) length: Option<u64>,
    /// Where its content goes, while somebody reads it.
    pub(super) inlet: Option<Inlet>,
}

/// All of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    places: Vec<Option<Stream>>,
    free: Vec<usize>,
    by_id: HashMap<u32, usize, FixedState>,
    /// Youngest last.
    reset: VecDeque<u32>,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
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
        let place = self.next_place();
        match self.places.get_mut(place) {
            Some(free) => {
                self.free.pop();
                *free = Some(stream);
            }
            None => self.places.push(Some(stream)),
        }
        self.by_id.insert(id, place);
        place
    }

    /// Where the next stream will be.
    pub(super) fn next_place(&self) -> usize {
        self.free.last().copied().unwrap_or(self.places.len())
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Stream> {
        let stream = self.places.get_mut(place)?.take()?;
        self.by_id.remove(&stream.id);
        self.free.push(place);
        Some(stream)
    }

    /// All that are open.
    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.places.iter_mut().flatten()
    }

    /// Notes that we reset it.
    pub(super) fn remember(&mut self, id: u32) {
        if self.reset.len() >= RESETS_REMEMBERED {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    pub(super) fn did_reset(&self, id: u32) -> bool {
        self.reset.contains(&id)
    }
}
