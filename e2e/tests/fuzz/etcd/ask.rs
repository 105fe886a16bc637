//! Requests, made of a program's bytes: mostly such as mean something, on few keys, so that they meet.

use bytes::Bytes;
use prost::Message as _;
use sluice_metastore::etcd::client::etcdserverpb as pb;

use pb::compare::TargetUnion;
use pb::request_op::Request as Op;

use super::model::Model;
use crate::feed::Feed;

/// A request of one kind. A `Stream` is a list in several messages.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Range(pb::RangeRequest),
    Stream(pb::RangeRequest),
    Put(pb::PutRequest),
    Delete(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact(pb::CompactionRequest),
    Grant(pb::LeaseGrantRequest),
    Revoke(pb::LeaseRevokeRequest),
    Left(pb::LeaseTimeToLiveRequest),
    Leases(pb::LeaseLeasesRequest),
    /// Bytes that are no message of the kind they are sent as.
    Broken(&'static str, Bytes),
}

/// Keys around which ranges end, carry and begin.
const KEYS: &[&[u8]] = &[
    b"a",
    b"b",
    b"aa",
    b"a\0",
    b"ab",
    b"a/",
    b"\0",
    b"\xff",
    b"\xff\xff",
    b"b\xff",
    b"c",
    b"",
];
const ENDS: &[&[u8]] = &[
    b"", b"", b"\0", b"b", b"a0", b"ab", b"c", b"\xff", b"a", b"\0\0",
];
const VALUES: &[&[u8]] = &[
    b"",
    b"1",
    b"2",
    b"a longer value than the others",
    b"\0",
    b"\xff",
];
/// Deep enough for a branch within a branch within a branch.
const DEPTH: usize = 3;

impl Ask {
    pub(crate) fn next(feed: &mut Feed<'_>, model: &Model) -> Ask {
        let mut from = Maker { feed, model };
        match from.feed.below(20) {
            0..=3 => Ask::Range(from.range()),
            4 => Ask::Stream(from.range()),
            5..=8 => Ask::Put(from.put()),
            9 | 10 => Ask::Delete(from.delete()),
            11..=14 => Ask::Txn(from.txn(DEPTH)),
            15 => Ask::Compact(pb::CompactionRequest {
                revision: from.revision(),
                physical: from.yes(),
            }),
            16 => Ask::Grant(pb::LeaseGrantRequest {
                id: from.lease(),
                ttl: from.feed.pick(&[1000, 5000, 1, 0, -1, 9_000_000_001]),
            }),
            17 => Ask::Revoke(pb::LeaseRevokeRequest { id: from.lease() }),
            18 => Ask::Left(pb::LeaseTimeToLiveRequest {
                id: from.lease(),
                keys: from.yes(),
            }),
            _ => Ask::Leases(pb::LeaseLeasesRequest {}),
        }
    }

    /// A write that changes nothing anybody looks at.
    pub(crate) fn filler() -> Ask {
        Ask::Put(pb::PutRequest {
            key: Bytes::from_static(b"filler"),
            ..Default::default()
        })
    }

    pub(crate) fn path(&self) -> &'static str {
        match self {
            Ask::Range(_) => "/etcdserverpb.KV/Range",
            Ask::Stream(_) => "/etcdserverpb.KV/RangeStream",
            Ask::Put(_) => "/etcdserverpb.KV/Put",
            Ask::Delete(_) => "/etcdserverpb.KV/DeleteRange",
            Ask::Txn(_) => "/etcdserverpb.KV/Txn",
            Ask::Compact(_) => "/etcdserverpb.KV/Compact",
            Ask::Grant(_) => "/etcdserverpb.Lease/LeaseGrant",
            Ask::Revoke(_) => "/etcdserverpb.Lease/LeaseRevoke",
            Ask::Left(_) => "/etcdserverpb.Lease/LeaseTimeToLive",
            Ask::Leases(_) => "/etcdserverpb.Lease/LeaseLeases",
            Ask::Broken(path, _) => path,
        }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::from(match self {
            Ask::Range(ask) | Ask::Stream(ask) => ask.encode_to_vec(),
            Ask::Put(ask) => ask.encode_to_vec(),
            Ask::Delete(ask) => ask.encode_to_vec(),
            Ask::Txn(ask) => ask.encode_to_vec(),
            Ask::Compact(ask) => ask.encode_to_vec(),
            Ask::Grant(ask) => ask.encode_to_vec(),
            Ask::Revoke(ask) => ask.encode_to_vec(),
            Ask::Left(ask) => ask.encode_to_vec(),
            Ask::Leases(ask) => ask.encode_to_vec(),
            Ask::Broken(_, bytes) => return bytes.clone(),
        })
    }

    /// Now and then, with some of its bytes changed, and what these say then.
    pub(crate) fn changed(self, feed: &mut Feed<'_>) -> Sent {
        let mut bytes = self.bytes().to_vec();
        if feed.below(8) != 1 {
            return Sent {
                bytes: bytes.into(),
                ask: self,
            };
        }
        for _ in 0..=feed.below(3) {
            let at = feed.below(bytes.len() + 1);
            match feed.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, feed.byte()),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = feed.byte();
                    }
                }
            }
        }
        let bytes = Bytes::from(bytes);
        match self.reread(&bytes) {
            Ask::Txn(ask) if has_left_out(&ask) => Sent {
                bytes: self.bytes(),
                ask: self,
            },
            ask => Sent { bytes, ask },
        }
    }

    /// What the generated code makes of other bytes for the same call.
    fn reread(&self, bytes: &Bytes) -> Ask {
        let bytes = bytes.clone();
        let broken = Ask::Broken(self.path(), bytes.clone());
        let read = match self {
            Ask::Range(_) => pb::RangeRequest::decode(bytes).map(Ask::Range),
            Ask::Stream(_) => pb::RangeRequest::decode(bytes).map(Ask::Stream),
            Ask::Put(_) => pb::PutRequest::decode(bytes).map(Ask::Put),
            Ask::Delete(_) => pb::DeleteRangeRequest::decode(bytes).map(Ask::Delete),
            Ask::Txn(_) => pb::TxnRequest::decode(bytes).map(Ask::Txn),
            Ask::Compact(_) => pb::CompactionRequest::decode(bytes).map(Ask::Compact),
            Ask::Grant(_) => pb::LeaseGrantRequest::decode(bytes).map(Ask::Grant),
            Ask::Revoke(_) => pb::LeaseRevokeRequest::decode(bytes).map(Ask::Revoke),
            Ask::Left(_) => pb::LeaseTimeToLiveRequest::decode(bytes).map(Ask::Left),
            Ask::Leases(_) => pb::LeaseLeasesRequest::decode(bytes).map(Ask::Leases),
            Ask::Broken(..) => return broken,
        };
        read.unwrap_or(broken)
    }
}

/// Whether a read within has a revision below zero: etcd calls that compacted, and only there; by
/// itself such a read is one of the newest, as it is here everywhere.
fn has_left_out(ask: &pb::TxnRequest) -> bool {
    let mut ops = ask.success.iter().chain(&ask.failure);
    ops.any(|op| match &op.request {
        Some(Op::RequestRange(range)) => range.revision < 0,
        Some(Op::RequestTxn(inner)) => has_left_out(inner),
        _ => false,
    })
}

/// Bytes on the wire, and what they say.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) bytes: Bytes,
    pub(crate) ask: Ask,
}

struct Maker<'a, 'b> {
    feed: &'a mut Feed<'b>,
    model: &'a Model,
}

impl Maker<'_, '_> {
    fn yes(&mut self) -> bool {
        self.feed.below(3) == 1
    }

    fn key(&mut self) -> Bytes {
        // The last one is none, and seldom.
        let most = if self.feed.below(16) == 1 { 0 } else { 1 };
        Bytes::from_static(self.feed.pick(&KEYS[..KEYS.len() - most]))
    }

    fn end(&mut self) -> Bytes {
        Bytes::from_static(self.feed.pick(ENDS))
    }

    fn value(&mut self) -> Bytes {
        Bytes::from_static(self.feed.pick(VALUES))
    }

    /// Mostly none; else one around those there are.
    fn revision(&mut self) -> i64 {
        match self.feed.below(4) {
            0 | 1 => 0,
            2 => self.model.base() + i64::try_from(self.feed.below(24)).unwrap(),
            _ => self
                .feed
                .pick(&[-1, 1, i64::MAX, i64::MIN, self.model.revision()]),
        }
    }

    /// Mostly one that was granted.
    fn lease(&mut self) -> i64 {
        let known: Vec<i64> = self.model.leases.keys().copied().collect();
        if !known.is_empty() && self.feed.below(4) != 1 {
            return self.feed.pick(&known);
        }
        self.feed.pick(&[0, 1, 7, -3, i64::MAX, i64::MIN])
    }

    fn range(&mut self) -> pb::RangeRequest {
        let mut ask = pb::RangeRequest {
            key: self.key(),
            range_end: self.end(),
            revision: self.revision(),
            ..Default::default()
        };
        if self.feed.below(2) == 1 {
            ask.limit = self.feed.pick(&[0, 1, 2, 3, -1]);
            ask.sort_order = self.feed.pick(&[0, 1, 2, 0, 3, -1]);
            ask.sort_target = self.feed.pick(&[0, 1, 2, 3, 4, 5]);
            ask.keys_only = self.yes();
            ask.count_only = self.yes();
            ask.serializable = self.yes();
        }
        if self.feed.below(4) == 1 {
            ask.min_mod_revision = self.revision();
            ask.max_mod_revision = self.revision();
            ask.min_create_revision = self.revision();
            ask.max_create_revision = self.revision();
        }
        ask
    }

    fn put(&mut self) -> pb::PutRequest {
        let mut ask = pb::PutRequest {
            key: self.key(),
            value: self.value(),
            prev_kv: self.yes(),
            ..Default::default()
        };
        if self.yes() {
            ask.lease = self.lease();
        }
        if self.feed.below(6) == 1 {
            ask.ignore_value = self.yes();
            ask.ignore_lease = !ask.ignore_value;
            if self.feed.below(4) != 1 {
                // What is ignored is left out, as it should be.
                ask.value = Bytes::new();
                ask.lease = 0;
            }
        }
        ask
    }

    fn delete(&mut self) -> pb::DeleteRangeRequest {
        pb::DeleteRangeRequest {
            key: self.key(),
            range_end: self.end(),
            prev_kv: self.yes(),
        }
    }

    fn txn(&mut self, depth: usize) -> pb::TxnRequest {
        let compares = self.feed.below(3);
        let compare = (0..compares).map(|_| self.compare()).collect();
        let mut branch = || {
            let count = self.feed.below(4);
            (0..count).map(|_| self.op(depth)).collect::<Vec<_>>()
        };
        let (success, failure) = (branch(), branch());
        pb::TxnRequest {
            compare,
            success,
            failure,
        }
    }

    fn op(&mut self, depth: usize) -> pb::RequestOp {
        let request = match self.feed.below(12) {
            0..=2 => Op::RequestRange(pb::RangeRequest {
                revision: self.revision().max(0),
                ..self.range()
            }),
            3..=6 => Op::RequestPut(self.put()),
            7 | 8 => Op::RequestDeleteRange(self.delete()),
            9 | 10 if depth > 0 => Op::RequestTxn(self.txn(depth - 1)),
            11 => return pb::RequestOp::default(),
            _ => Op::RequestPut(self.put()),
        };
        pb::RequestOp {
            request: Some(request),
        }
    }

    fn compare(&mut self) -> pb::Compare {
        let target = self.feed.pick(&[0, 1, 2, 3, 4, 2, 0, 5]);
        let kind = if self.feed.below(12) == 1 { 3 } else { target };
        let small = i64::try_from(self.feed.below(4)).unwrap() - 1;
        let target_union = match kind {
            0 => TargetUnion::Version(small),
            1 => TargetUnion::CreateRevision(self.revision()),
            2 => TargetUnion::ModRevision(self.revision()),
            4 => TargetUnion::Lease(self.lease()),
            _ => TargetUnion::Value(self.value()),
        };
        let end = if self.yes() { self.end() } else { Bytes::new() };
        pb::Compare {
            result: self.feed.pick(&[0, 1, 2, 3, 0, 3, 4]),
            target,
            key: self.key(),
            target_union: Some(target_union).filter(|_| self.feed.below(16) != 1),
            range_end: end,
        }
    }
}
