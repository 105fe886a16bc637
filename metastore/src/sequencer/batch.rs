//! Evaluating requests into the next batch.
//!
//! Requests are evaluated against the newest assigned state, so one batch may hold a create and
//! its update. An answer is given when all it depends on is durable: at once, when nothing it
//! looked at is undecided; otherwise with this batch, or with the last one in flight when this one
//! turns out empty.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::BytesMut;

use super::Sequencer;
use super::request::{Answer, Decided, Request, Waiting};
use crate::codec::{self, Entry, encode_delete, encode_put};
use crate::cold::Kept;
use crate::engine::Batch;
use crate::events::log::{Chunk, Stored};
use crate::events::{Change, Made};
use crate::faults::{Fault, injected, now_and_then};
use crate::state::{State, is_put};
use crate::stats::add;
use crate::txn::Txn;
use crate::txn::check::growth;
use crate::txn::evaluate::{Refusal, delete_key, evaluate};
use crate::{Error, LeaseId, Revision};

/// Bytes after which a batch is closed: a sync of so much costs hardly more than one of a page.
const BATCH_BYTES: usize = 512 << 10;
/// Requests after which a batch is closed, so that answers are not held back by evaluation.
const BATCH_REQUESTS: usize = 1024;

/// Bytes of room from which nothing is measured: as much as may wait in the inbox at once.
const ROOM_AMPLE: u64 = 64 << 20;
/// What a lease takes on the disk at most, as etcd reckons.
const GRANT_BYTES: usize = 64;

/// A batch being filled.
pub(super) struct Open {
    previous: Revision,
    payload: BytesMut,
    changes: Vec<Stored>,
    /// Values that may leave the memory once this is durable, and where in the payload they lie.
    puts: Vec<(Kept, u64)>,
    decided: Vec<Decided>,
}

impl Open {
    pub(super) fn new(previous: Revision) -> Self {
        Open {
            previous,
            payload: codec::payload(0),
            changes: Vec::new(),
            puts: Vec::new(),
            decided: Vec::new(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.payload.len() >= BATCH_BYTES || self.decided.len() >= BATCH_REQUESTS
    }

    /// Bytes of its entries, which are not on the disk yet.
    fn taken(&self) -> u64 {
        let is_blank = codec::is_blank(&self.payload);
        if is_blank {
            0
        } else {
            self.payload.len() as u64
        }
    }

    fn record(&mut self, events: Vec<Made>, puts: Vec<Kept>) {
        let mut puts = puts.into_iter();
        for (place, event) in events.into_iter().enumerate() {
            let is_delete = matches!(event.change, Change::Delete { .. });
            match &event.change {
                _ if place > 0 && injected(Fault::HalfOfTransaction) => {}
                Change::Put(record) => {
                    encode_put(&mut self.payload, record);
                    let at = self.payload.len() - record.encoded().len();
                    self.puts.extend(puts.next().map(|put| (put, at as u64)));
                }
                Change::Delete { key, revision } => {
                    encode_delete(&mut self.payload, key, *revision);
                }
            }
            if !(is_delete && now_and_then(Fault::DeleteLost)) {
                self.changes.push(Stored::new(event));
            }
        }
    }
}

/// What evaluating a request gave.
struct Verdict {
    answer: Answer,
    looked_at: Revision,
    grows: bool,
}

impl Verdict {
    /// An error or a piece of housekeeping: given with the batch, whatever it looked at.
    fn gated(answer: Answer) -> Self {
        Verdict {
            answer,
            looked_at: Revision::MAX,
            grows: false,
        }
    }
}

impl Sequencer {
    /// Turns what is queued into batches, as long as the window has room.
    pub(super) fn evaluate(&mut self) {
        if self.queue.is_empty() || !self.window.has_room() {
            return;
        }
        let room = self.shared.room_again();
        let is_shut = self.shared.refuses_puts.load(Ordering::Relaxed);
        let mut room = if is_shut { 0 } else { room };
        while self.window.has_room() && !self.queue.is_empty() {
            let mut open = Open::new(self.state.revision);
            while !open.is_full()
                && let Some(waiting) = self.queue.pop_front()
            {
                self.decide(waiting, room.saturating_sub(open.taken()), &mut open);
            }
            room = room.saturating_sub(open.taken());
            self.hand_over(open);
        }
        self.round.ring();
    }

    /// Whether there is room for a request; what makes room always has it.
    fn has_room(&self, request: &Request, room: u64) -> bool {
        room >= ROOM_AMPLE
            || match request {
                Request::Txn(txn, _) => self.shared.fits(growth(txn), room),
                Request::Grant(..) => self.shared.fits(GRANT_BYTES, room),
                Request::Compact(..) | Request::Revoke(..) | Request::Expire(_) => true,
            }
    }

    /// `room` is how many bytes puts may add.
    fn decide(&mut self, waiting: Waiting, room: u64, open: &mut Open) {
        add(&self.shared.counters.requests, 1);
        let verdict = match &waiting.request {
            request if !self.has_room(request, room) => {
                Verdict::gated(Answer::Refused(Error::NoSpace))
            }
            Request::Txn(txn, _) => decide_txn(&mut self.state, txn, open),
            Request::Compact(at, _) => self.decide_compact(*at, open),
            Request::Grant(id, ttl, _) => decide_grant(&mut self.state, *id, *ttl, open),
            Request::Revoke(id, _) | Request::Expire(id) => {
                decide_revoke(&mut self.state, *id, open)
            }
        };
        let mut decided = Decided {
            waiting,
            answer: verdict.answer,
            grows: verdict.grows,
        };
        if verdict.looked_at <= self.visible {
            decided.settle_at(self.visible);
            decided.say(&mut self.round);
        } else {
            open.decided.push(decided);
        }
    }

    fn decide_compact(&mut self, requested: Revision, open: &mut Open) -> Verdict {
        // Only what is durable can be asked for: compaction never passes the window's head.
        let current = self.visible;
        let compacted = self.state.floor;
        if requested > current {
            return Verdict::gated(Answer::Refused(Error::Future { requested, current }));
        }
        if requested <= compacted {
            let error = Error::Compacted {
                requested,
                compacted,
            };
            return Verdict::gated(Answer::Refused(error));
        }
        self.state.raise_floor(requested);
        Entry::Floor(requested).encode(&mut open.payload);
        Verdict::gated(Answer::Revision(self.state.revision))
    }

    /// Gives a filled batch to the engine, or its answers to whom they wait for.
    fn hand_over(&mut self, open: Open) {
        if codec::is_blank(&open.payload) {
            match self.window.batches.back_mut() {
                Some(last) => last.decided.extend(open.decided),
                None => {
                    for decided in open.decided {
                        decided.say(&mut self.round);
                    }
                }
            }
            return;
        }
        let batch = Batch {
            previous: open.previous,
            last: self.state.revision,
            payload: open.payload.freeze(),
        };
        add(&self.shared.counters.log_bytes, batch.payload.len());
        self.send_new(batch, Chunk::new(open.changes), open.puts, open.decided);
    }
}

fn decide_txn(state: &mut State, txn: &Txn, open: &mut Open) -> Verdict {
    match evaluate(state, txn) {
        Ok(outcome) => {
            let grows = outcome.events.iter().any(is_put);
            if !outcome.answer.succeeded && injected(Fault::LostCompareTakes) {
                state.revision = state.revision.next();
            }
            open.record(outcome.events, outcome.puts);
            Verdict {
                answer: Answer::Txn(outcome.answer),
                looked_at: outcome.looked_at,
                grows,
            }
        }
        Err(Refusal::Error(error)) => Verdict::gated(Answer::Refused(error)),
        // What is not in memory is durable, and nothing was done: said at once.
        Err(Refusal::Cold(kepts)) => Verdict {
            answer: Answer::Cold(kepts),
            looked_at: Revision::ZERO,
            grows: false,
        },
    }
}

fn decide_grant(state: &mut State, id: LeaseId, ttl: Duration, open: &mut Open) -> Verdict {
    if state.lease(id).is_some() {
        return Verdict::gated(Answer::Refused(Error::LeaseExists));
    }
    let id = if id.is_some() {
        id
    } else {
        state.choose_lease()
    };
    state.grant(id, ttl);
    Entry::Grant { id, ttl }.encode(&mut open.payload);
    let mut verdict = Verdict::gated(Answer::Granted(id, ttl));
    verdict.grows = true;
    verdict
}

fn decide_revoke(state: &mut State, id: LeaseId, open: &mut Open) -> Verdict {
    if state.lease(id).is_none() {
        return Verdict::gated(Answer::Refused(Error::LeaseNotFound));
    }
    let mut revision = state.revision.next();
    let keys = state.lease_keys(id);
    let gone = keys.iter().enumerate().filter_map(|(place, key)| {
        if place > 0 && injected(Fault::ExpiryInParts) {
            revision = revision.next();
        }
        delete_key(state, key, revision)
    });
    let events: Vec<Made> = gone.collect();
    if !events.is_empty() {
        state.revision = revision;
    }
    open.record(events, Vec::new());
    state.forget_lease(id);
    Entry::Revoke(id).encode(&mut open.payload);
    Verdict::gated(Answer::Revision(state.revision))
}
