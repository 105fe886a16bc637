//! The hot calls: Range, Put, DeleteRange and Txn, from message to value and back.
//!
//! What is wrong with a request in etcd's words is refused here, with the same words as everywhere
//! ([`crate::etcd::convert`]); what is wrong with it as a message is left to the library.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, header};
use prost::Message;
use tonic::Status;

use super::reply::{self, Caller, framed};
use crate::etcd::admission::{self, Taken};
use crate::etcd::kv::KvService;
use crate::etcd::proto::etcdserverpb as pb;
use crate::etcd::shared::Shared;
use crate::etcd::{convert, errors, shape};
use crate::store::only;
use crate::txn::{Op, Txn, TxnAnswer};

/// The most that Go's library reads or sends; a longer one would not fit its frame's own length
/// for some clients.
const ANSWER_BYTES_MAX: usize = i32::MAX as usize;

/// A call that is answered here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Range,
    Put,
    DeleteRange,
    Txn,
}

/// What of a write's request its answer is built from.
pub(super) enum Asked {
    Put,
    Delete,
    /// A transaction whose reads, if any, want whole records.
    Plain,
    Txn(Box<pb::TxnRequest>),
}

/// A frame to come, or a refusal.
pub(super) type Later = Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send>>;

/// What a call needs next.
pub(super) enum Step {
    Answer(Bytes),
    Refuse(Status),
    /// It takes long, or waits for room.
    Later(Later),
    Write(Txn, Asked),
}

/// The hot call of a request's head, if it is one in its plainest form.
pub(super) fn of(parts: &Parts) -> Option<Call> {
    let call = match parts.uri.path() {
        "/etcdserverpb.KV/Txn" => Call::Txn,
        "/etcdserverpb.KV/Range" => Call::Range,
        "/etcdserverpb.KV/Put" => Call::Put,
        "/etcdserverpb.KV/DeleteRange" => Call::DeleteRange,
        _ => return None,
    };
    let kind = parts.headers.get(header::CONTENT_TYPE)?.as_bytes();
    let is_plain = parts.method == Method::POST
        && (kind == b"application/grpc" || kind == b"application/grpc+proto")
        && !parts.headers.contains_key("grpc-encoding");
    is_plain.then_some(call)
}

/// Begins a call; `None` when its message is none, or larger than a request may be.
pub(super) fn begin(kv: &KvService, call: Call, message: Bytes) -> Option<Step> {
    if call == Call::Range {
        let request = pb::RangeRequest::decode(message).ok()?;
        return Some(range(kv, request));
    }
    if message.len() > kv.0.request_bytes_max {
        return None;
    }
    if call == Call::Txn
        && let Some(txn) = shape::txn(&message)
    {
        return Some(Step::Write(txn, Asked::Plain));
    }
    let ops_max = kv.0.txn_ops_max;
    Some(write(call, message, ops_max)?.unwrap_or_else(Step::Refuse))
}

fn write(call: Call, message: Bytes, ops_max: usize) -> Option<Result<Step, Status>> {
    Some(match call {
        Call::Put => {
            let put = convert::put(&pb::PutRequest::decode(message).ok()?);
            put.map(|put| Step::Write(only(Op::Put(put)), Asked::Put))
        }
        Call::DeleteRange => {
            let delete = convert::delete(&pb::DeleteRangeRequest::decode(message).ok()?);
            delete.map(|delete| Step::Write(only(Op::Delete(delete)), Asked::Delete))
        }
        Call::Range | Call::Txn => {
            let request = pb::TxnRequest::decode(message).ok()?;
            let txn = convert::txn(&request, ops_max);
            txn.map(|txn| Step::Write(txn, Asked::Txn(Box::new(request))))
        }
    })
}

fn range(kv: &KvService, request: pb::RangeRequest) -> Step {
    let query = match convert::range(&request) {
        Ok(query) => query,
        Err(status) => return Step::Refuse(status),
    };
    let now = if kv.is_short(&query) {
        kv.0.store.range_now(&query)
    } else {
        Ok(None)
    };
    let answer = match now {
        Ok(Some(answer)) => kv.answer_range(&request, answer),
        Ok(None) => {
            let kv = kv.clone();
            return Step::Later(Box::pin(async move {
                let answer = kv.read(query).await?;
                with_room(&kv, kv.answer_range(&request, answer)).await
            }));
        }
        Err(error) => return Step::Refuse(errors::status(&error)),
    };
    if answer.encoded_len() <= admission::FREE_BYTES {
        return Step::Answer(framed(&answer));
    }
    let kv = kv.clone();
    Step::Later(Box::pin(async move { with_room(&kv, answer).await }))
}

/// Frames an answer once there is room for it; the room is held until the last byte is gone.
async fn with_room(kv: &KvService, answer: impl Message) -> Result<Bytes, Status> {
    let bytes = answer.encoded_len();
    if bytes > ANSWER_BYTES_MAX {
        return Err(errors::answer_too_large(bytes, ANSWER_BYTES_MAX));
    }
    let taken = kv.0.room.take(bytes).await?;
    let frame = framed(&answer);
    Ok(match taken {
        None => frame,
        Some(taken) => Bytes::from_owner(Held {
            frame,
            _taken: taken,
        }),
    })
}

struct Held {
    frame: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}

/// An answer that is there, or that waits for room first.
pub(super) enum Answer {
    Frame(Bytes),
    Later(Later),
}

/// The answer to a write that is done.
pub(super) fn written(kv: &KvService, done: TxnAnswer, asked: &Asked) -> Answer {
    match asked {
        Asked::Put => sized(kv, kv.answer_put(done)),
        Asked::Delete => sized(kv, kv.answer_delete(done)),
        Asked::Plain => sized(kv, kv.answer_txn(done, None)),
        Asked::Txn(request) => sized(kv, kv.answer_txn(done, Some(request))),
    }
}

fn sized(kv: &KvService, answer: impl Message + 'static) -> Answer {
    if answer.encoded_len() <= admission::FREE_BYTES {
        return Answer::Frame(framed(&answer));
    }
    let kv = kv.clone();
    Answer::Later(Box::pin(async move {
        // It may have written: for its caller that is as if no answer had come.
        let framed = with_room(&kv, answer).await;
        framed.map_err(|_no_room| errors::timed_out())
    }))
}

/// A write that waits for room first.
pub(super) fn write_later(shared: Arc<Shared>, txn: Txn, asked: Asked) -> Later {
    Box::pin(async move {
        let done = shared.settle(shared.store.txn(txn)).await?;
        match written(&KvService(shared), done, &asked) {
            Answer::Frame(frame) => Ok(frame),
            Answer::Later(answer) => answer.await,
        }
    })
}

/// Answers a call when there is an answer, unless its client goes first.
pub(super) fn spawn(shared: Arc<Shared>, answer: Later, mut caller: Caller) {
    tokio::spawn(async move {
        let outcome = tokio::select! {
            biased;
            // First: nobody waits for the answer to a call that was reset.
            _reset = std::future::poll_fn(|cx| caller.respond.poll_reset(cx)) => return,
            outcome = answer => outcome,
        };
        match outcome {
            Ok(frame) if frame.len() > admission::FREE_BYTES => {
                reply::send_large(&mut caller, frame, &shared.room).await;
            }
            Ok(frame) => reply::send(&mut caller, frame),
            Err(status) => reply::refuse(&mut caller, status),
        }
    });
}
