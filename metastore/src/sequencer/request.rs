//! What the sequencer is asked for, and what was decided, until it may be said.

use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::mailbox::{Envelope, Round};
use crate::cold::Kept;
use crate::txn::evaluate::restamp;
use crate::txn::{Txn, TxnAnswer};
use crate::{Error, LeaseId, Revision};

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What a transaction is answered.
#[derive(Debug)]
pub(crate) enum Said {
    /// It was run.
    Answer(TxnAnswer),
    /// Nothing was done: it needs these values, which are not in memory. It may be asked for again
    /// while they are held.
    Cold(Txn, Vec<Kept>),
}

/// Where the answer to a transaction goes.
pub(crate) enum TxnReply {
    /// To one caller, who waits for it alone.
    Once(Reply<Said>),
    /// To a reader of many.
    Post(Envelope),
}

impl TxnReply {
    /// A caller that gave up does not want the answer: nothing to do.
    fn send(self, outcome: Result<Said, Error>) {
        match self {
            TxnReply::Once(reply) => drop(reply.send(outcome)),
            TxnReply::Post(envelope) => envelope.send(outcome),
        }
    }
}

/// Something to do, and where the answer goes.
pub(crate) enum Request {
    Txn(Txn, TxnReply),
    Compact(Revision, Reply<Revision>),
    Grant(LeaseId, Duration, Reply<(LeaseId, Duration)>),
    Revoke(LeaseId, Reply<Revision>),
    /// A lease's time is over; nobody waits.
    Expire(LeaseId),
}

/// A request and the room it takes.
pub(crate) struct Waiting {
    pub(crate) request: Request,
    /// Given back when the request is answered.
    #[expect(dead_code, reason = "held for what its drop does")]
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// It was undone once for want of space, and is refused when that happens again.
    pub(crate) is_second_try: bool,
}

impl Waiting {
    pub(crate) fn refuse(self, error: Error) {
        // A caller that gave up does not want the answer: nothing to do.
        match self.request {
            Request::Txn(_, reply) => reply.send(Err(error)),
            Request::Compact(_, reply) | Request::Revoke(_, reply) => {
                drop(reply.send(Err(error)));
            }
            Request::Grant(_, _, reply) => drop(reply.send(Err(error))),
            Request::Expire(_) => {}
        }
    }
}

/// What a request came to.
pub(crate) enum Answer {
    Txn(TxnAnswer),
    Cold(Vec<Kept>),
    Revision(Revision),
    Granted(LeaseId, Duration),
    Refused(Error),
}

/// A request evaluated, whose answer waits for a batch to be durable.
pub(crate) struct Decided {
    pub(crate) waiting: Waiting,
    pub(crate) answer: Answer,
    /// It added to what the disk must hold, so a full disk refuses it.
    pub(crate) grows: bool,
}

impl Decided {
    /// Gives the answer; readers of many answers are woken with `round`.
    pub(crate) fn say(self, round: &mut Round) {
        match (self.waiting.request, self.answer) {
            (Request::Txn(_, TxnReply::Post(envelope)), Answer::Txn(answer)) => {
                round.add(envelope, Ok(Said::Answer(answer)));
            }
            (Request::Txn(_, reply), Answer::Txn(answer)) => reply.send(Ok(Said::Answer(answer))),
            (Request::Txn(txn, reply), Answer::Cold(kepts)) => {
                reply.send(Ok(Said::Cold(txn, kepts)));
            }
            (
                Request::Compact(_, reply) | Request::Revoke(_, reply),
                Answer::Revision(revision),
            ) => drop(reply.send(Ok(revision))),
            (Request::Grant(_, _, reply), Answer::Granted(id, ttl)) => {
                drop(reply.send(Ok((id, ttl))));
            }
            (request, Answer::Refused(error)) => Waiting {
                request,
                permit: None,
                is_second_try: false,
            }
            .refuse(error),
            // Evaluation pairs each request with its own kind of answer; expiry has no listener.
            _ => {}
        }
    }

    /// Says of an answer that depends on nothing undecided that it holds at `revision`.
    pub(crate) fn settle_at(&mut self, revision: Revision) {
        if let Answer::Txn(answer) = &mut self.answer {
            restamp(answer, revision);
        }
    }
}
