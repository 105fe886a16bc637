//! Answers of the store to messages of the wire.
//!
//! Records pass as the bytes they were stored as. Headers inside a transaction's answer carry a
//! revision only, as etcd's do.

use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::request_op::Request as Asked;
use super::proto::etcdserverpb::response_op::Response as Wire;
use super::wire::KeyValue;
use crate::read::RangeAnswer;
use crate::txn::{OpAnswer, TxnAnswer};
use crate::{Record, Revision};

/// The answer to a read, without its header.
pub(crate) fn range(answer: RangeAnswer, keys_only: bool) -> pb::RangeResponse {
    let form = if keys_only {
        KeyValue::WithoutValue
    } else {
        KeyValue::Whole
    };
    pb::RangeResponse {
        header: None,
        kvs: answer.records.into_iter().map(form).collect(),
        more: answer.more,
        count: number(answer.count),
    }
}

/// The answer to a put, without its header.
pub(crate) fn put(previous: Option<Record>) -> pb::PutResponse {
    pb::PutResponse {
        header: None,
        prev_kv: previous.map(KeyValue::Whole),
    }
}

/// The answer to a delete, without its header.
pub(crate) fn delete(deleted: u64, previous: Vec<Record>) -> pb::DeleteRangeResponse {
    pb::DeleteRangeResponse {
        header: None,
        deleted: number(deleted),
        prev_kvs: previous.into_iter().map(KeyValue::Whole).collect(),
    }
}

/// The answer to a transaction, without its header; the request tells which reads wanted keys only,
/// and without one none did.
pub(crate) fn txn(answer: TxnAnswer, asked: Option<&pb::TxnRequest>) -> pb::TxnResponse {
    let branch = asked.map_or(&[][..], |asked| {
        if answer.succeeded {
            &asked.success
        } else {
            &asked.failure
        }
    });
    let mut branch = branch.iter();
    let revision = answer.revision;
    pb::TxnResponse {
        header: None,
        succeeded: answer.succeeded,
        responses: answer
            .answers
            .into_iter()
            .map(|one| pb::ResponseOp {
                response: Some(op(one, branch.next(), revision)),
            })
            .collect(),
    }
}

fn op(answer: OpAnswer, asked: Option<&pb::RequestOp>, revision: Revision) -> Wire {
    let asked = asked.and_then(|asked| asked.request.as_ref());
    match answer {
        OpAnswer::Range(answer) => {
            let keys_only = matches!(asked, Some(Asked::RequestRange(one)) if one.keys_only);
            let at = answer.revision;
            let body = range(answer, keys_only);
            Wire::ResponseRange(pb::RangeResponse {
                header: inner_header(at),
                ..body
            })
        }
        OpAnswer::Put(previous) => Wire::ResponsePut(pb::PutResponse {
            header: inner_header(revision),
            ..put(previous)
        }),
        OpAnswer::Delete(deleted, previous) => Wire::ResponseDeleteRange(pb::DeleteRangeResponse {
            header: inner_header(revision),
            ..delete(deleted, previous)
        }),
        OpAnswer::Txn(answer) => {
            let asked = match asked {
                Some(Asked::RequestTxn(asked)) => Some(asked),
                _ => None,
            };
            let at = answer.revision;
            Wire::ResponseTxn(pb::TxnResponse {
                header: inner_header(at),
                ..txn(answer, asked)
            })
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the field it fills is optional")]
fn inner_header(revision: Revision) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader {
        revision: revision.to_wire(),
        ..Default::default()
    })
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
