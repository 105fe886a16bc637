//! The transactions that kube-apiserver sends, read in one pass.
//!
//! ```text
//! create    if mod(key) = 0      then put
//! update    if mod(key) = R      then put       else get
//! delete    if mod(key) = R      then delete    else get
//! compact   if version(key) = N  then put       else get
//! ```
//!
//! This is a reader of exactly those: whatever is different, be it another field, a field twice or
//! bytes that are no message, is left to the general one. What it does read, it reads as the
//! general one does; a test compares the two on random and on damaged messages.

use bytes::Bytes;

use crate::read::Range;
use crate::txn::{Compare, Delete, Op, Put, Relation, Target, Txn};
use crate::{KeyRange, LeaseId, Revision};

// Tags are (field << 3) | wire type. TxnRequest:
const COMPARE: u8 = 0x0a;
const SUCCESS: u8 = 0x12;
const FAILURE: u8 = 0x1a;
// Compare:
const TARGET: u8 = 0x10;
const COMPARE_KEY: u8 = 0x1a;
const TARGET_VERSION: u8 = 0x20;
const TARGET_CREATE: u8 = 0x28;
const TARGET_MOD: u8 = 0x30;
// RequestOp:
const OP_RANGE: u8 = 0x0a;
const OP_PUT: u8 = 0x12;
const OP_DELETE: u8 = 0x1a;
// RangeRequest, PutRequest and DeleteRangeRequest:
const KEY: u8 = 0x0a;
const PUT_VALUE: u8 = 0x12;
const PUT_LEASE: u8 = 0x18;

/// The transaction of a `TxnRequest`, if it has one of the shapes.
pub(crate) fn txn(message: &Bytes) -> Option<Txn> {
    let mut fields = Fields::of(message);
    let (mut condition, mut success, mut failure) = (None, None, None);
    while let Some(tag) = fields.tag() {
        match tag {
            COMPARE => once(&mut condition, compare(&fields.bytes()?)?)?,
            SUCCESS => once(&mut success, write(&fields.bytes()?)?)?,
            FAILURE => once(&mut failure, get(&fields.bytes()?)?)?,
            _ => return None,
        }
    }
    Some(Txn {
        compares: vec![condition?],
        success: vec![success?],
        failure: failure.into_iter().collect(),
    })
}

fn compare(message: &Bytes) -> Option<Compare> {
    let mut fields = Fields::of(message);
    // Without a field for it, the target is a version.
    let (mut kind, mut key, mut against) = (None, None, None);
    while let Some(tag) = fields.tag() {
        match tag {
            TARGET => once(&mut kind, fields.number()?)?,
            COMPARE_KEY => once(&mut key, fields.bytes()?)?,
            TARGET_VERSION | TARGET_CREATE | TARGET_MOD => {
                once(&mut against, (tag, fields.number()?))?;
            }
            _ => return None,
        }
    }
    let target = match (kind.unwrap_or(0), against?) {
        (0, (TARGET_VERSION, count)) => Target::Version(count),
        (1, (TARGET_CREATE, at)) => Target::Create(Revision::new(at)),
        (2, (TARGET_MOD, at)) => Target::Mod(Revision::new(at)),
        _ => return None,
    };
    Some(Compare {
        range: KeyRange::Key(named(key)?),
        relation: Relation::Equal,
        target,
    })
}

/// A put or a delete of one key.
fn write(message: &Bytes) -> Option<Op> {
    let mut fields = Fields::of(message);
    let tag = fields.tag()?;
    let inner = fields.bytes()?;
    if fields.tag().is_some() {
        return None;
    }
    match tag {
        OP_PUT => put(&inner),
        OP_DELETE => Some(Op::Delete(Delete {
            range: KeyRange::Key(key_alone(&inner)?),
            want_previous: false,
        })),
        _ => None,
    }
}

fn put(message: &Bytes) -> Option<Op> {
    let mut fields = Fields::of(message);
    let (mut key, mut value, mut lease) = (None, None, None);
    while let Some(tag) = fields.tag() {
        match tag {
            KEY => once(&mut key, fields.bytes()?)?,
            PUT_VALUE => once(&mut value, fields.bytes()?)?,
            PUT_LEASE => once(&mut lease, fields.number()?)?,
            _ => return None,
        }
    }
    let lease = i64::try_from(lease.unwrap_or(0)).ok()?;
    Some(Op::Put(Put {
        key: named(key)?,
        value: Some(value.unwrap_or_default()),
        lease: Some(LeaseId(lease)),
        want_previous: false,
    }))
}

/// A read of one key.
fn get(message: &Bytes) -> Option<Op> {
    let mut fields = Fields::of(message);
    let (OP_RANGE, inner) = (fields.tag()?, fields.bytes()?) else {
        return None;
    };
    if fields.tag().is_some() {
        return None;
    }
    Some(Op::Range(Range::of(KeyRange::Key(key_alone(&inner)?))))
}

/// The key of a message that has nothing else.
fn key_alone(message: &Bytes) -> Option<Bytes> {
    let mut fields = Fields::of(message);
    let (KEY, key) = (fields.tag()?, fields.bytes()?) else {
        return None;
    };
    if fields.tag().is_some() {
        return None;
    }
    named(Some(key))
}

fn named(key: Option<Bytes>) -> Option<Bytes> {
    key.filter(|key| !key.is_empty())
}

/// Fills a field that must not be there twice.
fn once<T>(place: &mut Option<T>, found: T) -> Option<()> {
    place.replace(found).is_none().then_some(())
}

/// A message being read.
struct Fields<'a> {
    whole: &'a Bytes,
    at: usize,
}

impl<'a> Fields<'a> {
    fn of(whole: &'a Bytes) -> Self {
        Fields { whole, at: 0 }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = self.whole.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    /// The next tag; `None` at the end. Only tags of one byte occur in the shapes, and any other
    /// is one that nobody here knows.
    fn tag(&mut self) -> Option<u8> {
        self.byte()
    }

    /// A number that is not negative on the wire: at most 63 bits.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A length and as many bytes, shared with the message.
    fn bytes(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(length)?;
        if end > self.whole.len() {
            return None;
        }
        let bytes = self.whole.slice(self.at..end);
        self.at = end;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::etcd::client::etcdserverpb as pb;
    use crate::etcd::client::etcdserverpb::compare::TargetUnion;
    use crate::etcd::client::etcdserverpb::request_op::Request as Wire;
    use crate::etcd::convert;
    use crate::etcd::proto::etcdserverpb as server;

    fn general(message: &Bytes) -> Option<Txn> {
        let request = server::TxnRequest::decode(message.clone()).ok()?;
        convert::txn(&request, convert::TXN_OPS_MAX).ok()
    }

    /// What the reader of shapes takes, it takes as the general one does.
    fn agrees(message: &Bytes) -> bool {
        let read = txn(message);
        if read.is_some() {
            assert_eq!(read, general(message), "{message:?}");
        }
        read.is_some()
    }

    fn key() -> impl Strategy<Value = Bytes> {
        prop_oneof![
            Just(&b"/registry/pods/a"[..]),
            Just(&b"k"[..]),
            Just(&b""[..])
        ]
        .prop_map(Bytes::from_static)
    }

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![0i64..300, any::<i64>()]
    }

    prop_compose! {
        fn condition()(
            key in key(), end in prop_oneof![9 => Just(Bytes::new()), 1 => key()],
            result in prop_oneof![9 => Just(0), 1 => 0..5i32], target in 0..6i32,
            kind in 0..6u8, n in number(),
        ) -> pb::Compare {
            pb::Compare {
                result, target, key, range_end: end,
                target_union: match kind {
                    0 => Some(TargetUnion::Version(n)),
                    1 => Some(TargetUnion::CreateRevision(n)),
                    2 | 3 => Some(TargetUnion::ModRevision(n)),
                    4 => Some(TargetUnion::Lease(n)),
                    _ => None,
                },
            }
        }
    }

    prop_compose! {
        fn op()(
            kind in 0..7u8, key in key(), value in key(), n in number(), odd in 0..12u8,
        ) -> pb::RequestOp {
            let request = match kind {
                0..=2 => Some(Wire::RequestPut(pb::PutRequest {
                    key, value, lease: n * i64::from(odd % 2), prev_kv: odd == 3,
                    ignore_value: odd == 4, ignore_lease: odd == 5,
                })),
                3 => Some(Wire::RequestDeleteRange(pb::DeleteRangeRequest {
                    key, range_end: if odd == 3 { value } else { Bytes::new() }, prev_kv: odd == 4,
                })),
                4 | 5 => Some(Wire::RequestRange(pb::RangeRequest {
                    key, limit: if odd == 3 { n } else { 0 }, keys_only: odd == 4,
                    revision: if odd == 5 { n } else { 0 }, ..Default::default()
                })),
                _ => (odd > 5).then(|| Wire::RequestTxn(pb::TxnRequest::default())),
            };
            pb::RequestOp { request }
        }
    }

    prop_compose! {
        fn request()(
            compare in prop::collection::vec(condition(), 0..3),
            success in prop::collection::vec(op(), 0..3),
            failure in prop::collection::vec(op(), 0..2),
        ) -> Bytes {
            Bytes::from(pb::TxnRequest { compare, success, failure }.encode_to_vec())
        }
    }

    fn shapes() -> Vec<Bytes> {
        let key = Bytes::from_static(b"/registry/pods/a");
        let compare = |target, union| pb::Compare {
            key: key.clone(),
            target,
            target_union: Some(union),
            ..Default::default()
        };
        let put = pb::PutRequest {
            key: key.clone(),
            value: Bytes::from_static(b"object"),
            lease: 77,
            ..Default::default()
        };
        let delete = pb::DeleteRangeRequest {
            key: key.clone(),
            ..Default::default()
        };
        let get = pb::RangeRequest {
            key: key.clone(),
            ..Default::default()
        };
        let op = |request| pb::RequestOp {
            request: Some(request),
        };
        let get = || vec![op(Wire::RequestRange(get.clone()))];
        let put = || vec![op(Wire::RequestPut(put.clone()))];
        let at = |revision| compare(2, TargetUnion::ModRevision(revision));
        [
            (at(0), put(), vec![]),
            (at(300), put(), get()),
            (at(300), vec![op(Wire::RequestDeleteRange(delete))], get()),
            (compare(0, TargetUnion::Version(5)), put(), get()),
        ]
        .map(|(compare, success, failure)| {
            let request = pb::TxnRequest {
                compare: vec![compare],
                success,
                failure,
            };
            Bytes::from(request.encode_to_vec())
        })
        .to_vec()
    }

    #[test]
    fn the_four_shapes_are_read_here() {
        for shape in shapes() {
            assert!(agrees(&shape), "{shape:?} was left to the general reader");
        }
    }

    proptest! {
        #[test]
        fn random_messages_are_read_as_the_general_reader_does(message in request()) {
            agrees(&message);
        }

        #[test]
        fn damaged_messages_are_read_as_the_general_reader_does(
            message in prop_oneof![request(), prop::sample::select(shapes())],
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..4),
        ) {
            let mut bytes = message.to_vec();
            for (place, byte, how) in damage {
                if bytes.is_empty() {
                    break;
                }
                let at = place.index(bytes.len());
                match how {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    2 => drop(bytes.remove(at)),
                    _ => bytes.truncate(at),
                }
            }
            agrees(&Bytes::from(bytes));
        }

        #[test]
        fn random_bytes_are_read_as_the_general_reader_does(
            bytes in prop::collection::vec(prop_oneof![0..32u8, any::<u8>()], 0..40),
        ) {
            agrees(&Bytes::from(bytes));
        }
    }
}
