//! Requests of the history as messages, and answers back.

use bytes::Bytes;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::mvccpb;

use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::request_op::Request as OpRequest;
use pb::response_op::Response as OpResponse;
use pb::watch_create_request::FilterType;

use crate::history::{
    Answer, Compare, Delete, Event, Kv, Op, Put, Range, Relation, Reply, Target, Txn, WatchLog,
    WatchResponse,
};

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the tape writes as `v1+5` is `v1xxx` on the wire.
fn value_bytes(value: &str) -> Bytes {
    match value.split_once('+') {
        Some((begin, bytes)) => {
            let bytes = bytes.parse().unwrap_or(0);
            let mut whole = begin.as_bytes().to_vec();
            whole.resize(bytes, b'x');
            whole.into()
        }
        None => bytes(value),
    }
}

/// And back, if every byte of it is right.
fn value_text(bytes: &[u8]) -> String {
    let filled = bytes.iter().rev().take_while(|byte| **byte == b'x').count();
    let (begin, _fill) = bytes.split_at(bytes.len() - filled);
    if filled == 0 {
        text(bytes)
    } else {
        format!("{}+{}", text(begin), bytes.len())
    }
}

pub(super) fn range(range: &Range) -> pb::RangeRequest {
    pb::RangeRequest {
        key: bytes(&range.key),
        range_end: bytes(&range.end),
        revision: range.revision,
        limit: range.limit,
        count_only: range.count_only,
        keys_only: range.keys_only,
        ..Default::default()
    }
}

pub(super) fn put(put: &Put) -> pb::PutRequest {
    pb::PutRequest {
        key: bytes(&put.key),
        value: value_bytes(if put.ignore_value { "" } else { &put.value }),
        lease: if put.ignore_lease { 0 } else { put.lease },
        prev_kv: put.prev_kv,
        ignore_value: put.ignore_value,
        ignore_lease: put.ignore_lease,
    }
}

pub(super) fn delete(delete: &Delete) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest {
        key: bytes(&delete.key),
        range_end: bytes(&delete.end),
        prev_kv: delete.prev_kv,
    }
}

pub(super) fn txn(txn: &Txn) -> pb::TxnRequest {
    pb::TxnRequest {
        compare: txn.compares.iter().map(compare).collect(),
        success: txn.then.iter().map(op).collect(),
        failure: txn.otherwise.iter().map(op).collect(),
    }
}

fn compare(compare: &Compare) -> pb::Compare {
    let (target, union) = match &compare.target {
        Target::Version(given) => (CompareTarget::Version, TargetUnion::Version(*given)),
        Target::Create(given) => (CompareTarget::Create, TargetUnion::CreateRevision(*given)),
        Target::Mod(given) => (CompareTarget::Mod, TargetUnion::ModRevision(*given)),
        Target::Lease(given) => (CompareTarget::Lease, TargetUnion::Lease(*given)),
        Target::Value(given) => (CompareTarget::Value, TargetUnion::Value(value_bytes(given))),
    };
    let result = match compare.relation {
        Relation::Equal => CompareResult::Equal,
        Relation::NotEqual => CompareResult::NotEqual,
        Relation::Greater => CompareResult::Greater,
        Relation::Less => CompareResult::Less,
    };
    pb::Compare {
        result: result.into(),
        target: target.into(),
        key: bytes(&compare.key),
        target_union: Some(union),
        ..Default::default()
    }
}

fn op(op: &Op) -> pb::RequestOp {
    let request = match op {
        Op::Range(one) => OpRequest::RequestRange(range(one)),
        Op::Put(one) => OpRequest::RequestPut(put(one)),
        Op::Delete(one) => OpRequest::RequestDeleteRange(delete(one)),
        Op::Txn(one) => OpRequest::RequestTxn(txn(one)),
    };
    pb::RequestOp {
        request: Some(request),
    }
}

/// The request that begins a watch.
pub(super) fn watch(log: &WatchLog, id: i64, fragment: bool) -> pb::WatchCreateRequest {
    let filters = [
        (log.no_put, FilterType::Noput),
        (log.no_delete, FilterType::Nodelete),
    ];
    let filters = filters.into_iter().filter(|(is_set, _)| *is_set);
    pb::WatchCreateRequest {
        key: bytes(&log.key),
        range_end: bytes(&log.end),
        start_revision: log.start,
        progress_notify: true,
        prev_kv: log.prev_kv,
        filters: filters.map(|(_, filter)| filter.into()).collect(),
        watch_id: id,
        fragment,
    }
}

pub(super) fn kv(kv: mvccpb::KeyValue) -> Kv {
    Kv {
        key: text(&kv.key),
        value: value_text(&kv.value),
        create: kv.create_revision,
        modified: kv.mod_revision,
        version: kv.version,
        lease: kv.lease,
    }
}

fn revision(header: Option<pb::ResponseHeader>) -> i64 {
    // An answer without one stands below everything, which the checker does not pass over.
    header.map_or(0, |header| header.revision)
}

pub(super) fn reply(header: Option<pb::ResponseHeader>, answer: Answer) -> Reply {
    let revision = revision(header);
    Reply { revision, answer }
}

pub(super) fn range_answer(range: pb::RangeResponse) -> Answer {
    Answer::Range {
        kvs: range.kvs.into_iter().map(kv).collect(),
        count: range.count,
        more: range.more,
    }
}

pub(super) fn put_answer(put: pb::PutResponse) -> Answer {
    Answer::Put {
        prev: put.prev_kv.map(kv),
    }
}

pub(super) fn delete_answer(delete: pb::DeleteRangeResponse) -> Answer {
    Answer::Delete {
        deleted: delete.deleted,
        prev: delete.prev_kvs.into_iter().map(kv).collect(),
    }
}

pub(super) fn txn_answer(txn: pb::TxnResponse) -> Answer {
    let responses = txn.responses.into_iter().filter_map(|one| one.response);
    let answers = responses.map(|response| match response {
        OpResponse::ResponseRange(range) => range_answer(range),
        OpResponse::ResponsePut(put) => put_answer(put),
        OpResponse::ResponseDeleteRange(delete) => delete_answer(delete),
        OpResponse::ResponseTxn(txn) => txn_answer(txn),
    });
    Answer::Txn {
        succeeded: txn.succeeded,
        answers: answers.collect(),
    }
}

/// A response of a watch, heard at `at`.
pub(super) fn watch_response(response: pb::WatchResponse, at: u64) -> WatchResponse {
    let event = |event: mvccpb::Event| Event {
        is_delete: event.r#type == i32::from(mvccpb::event::EventType::Delete),
        kv: event.kv.map(kv).unwrap_or_default(),
        prev: event.prev_kv.map(kv),
    };
    WatchResponse {
        at,
        revision: revision(response.header),
        created: response.created,
        canceled: response.canceled,
        compact_revision: response.compact_revision,
        fragment: response.fragment,
        events: response.events.into_iter().map(event).collect(),
    }
}
