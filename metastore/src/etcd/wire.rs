//! `mvccpb.KeyValue` as the server sends it: the bytes a write encoded once, copied and never
//! encoded again.
//!
//! The server only ever sends this message, so reading one is not provided for: fields that arrive
//! are skipped.

use std::hash::{Hash, Hasher};

use bytes::{Buf, BufMut, Bytes};
use prost::DecodeError;
use prost::encoding::{
    DecodeContext, WireType, encode_key, encode_varint, encoded_len_varint, int64, skip_field,
};

use crate::{Record, Revision};

// Field numbers of mvccpb.KeyValue.
const KEY: u32 = 1;
const CREATE_REVISION: u32 = 2;
const MOD_REVISION: u32 = 3;
const VERSION: u32 = 4;
const LEASE: u32 = 6;

/// One key-value pair of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeyValue {
    /// Nothing; only what a decoder starts from.
    #[default]
    Empty,
    /// A stored version, whole.
    Whole(Record),
    /// A stored version without its value.
    WithoutValue(Record),
    /// A deleted key and the delete's revision, as events carry them.
    Deleted(Bytes, Revision),
}

impl prost::Message for KeyValue {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        match self {
            KeyValue::Empty => {}
            KeyValue::Whole(record) => buf.put_slice(record.encoded()),
            KeyValue::WithoutValue(record) => {
                put_key(record.key(), buf);
                for (field, number) in numbers(record) {
                    if number != 0 {
                        int64::encode(field, &number, buf);
                    }
                }
            }
            KeyValue::Deleted(key, revision) => {
                put_key(key, buf);
                int64::encode(MOD_REVISION, &revision.to_wire(), buf);
            }
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            KeyValue::Empty => 0,
            KeyValue::Whole(record) => record.encoded().len(),
            KeyValue::WithoutValue(record) => {
                let numbers = numbers(record)
                    .into_iter()
                    .filter(|(_, number)| *number != 0);
                key_len(record.key())
                    + numbers
                        .map(|(field, number)| int64::encoded_len(field, &number))
                        .sum::<usize>()
            }
            KeyValue::Deleted(key, revision) => {
                key_len(key) + int64::encoded_len(MOD_REVISION, &revision.to_wire())
            }
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, ctx)
    }

    fn clear(&mut self) {
        *self = KeyValue::Empty;
    }
}

/// Appends the field of a key, which an answer always has.
fn put_key(key: &[u8], buf: &mut impl BufMut) {
    encode_key(KEY, WireType::LengthDelimited, buf);
    encode_varint(key.len() as u64, buf);
    buf.put_slice(key);
}

/// Bytes that [`put_key`] appends.
fn key_len(key: &[u8]) -> usize {
    1 + encoded_len_varint(key.len() as u64) + key.len()
}

/// Generated messages that hold one derive it; the revisions tell pairs apart well enough.
impl Hash for KeyValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            KeyValue::Empty => {}
            KeyValue::Whole(record) | KeyValue::WithoutValue(record) => {
                record.key().hash(state);
                record.mod_revision().hash(state);
            }
            KeyValue::Deleted(key, revision) => {
                key.hash(state);
                revision.hash(state);
            }
        }
    }
}

/// The numeric fields before and after the value, in order.
fn numbers(record: &Record) -> [(u32, i64); 4] {
    [
        (CREATE_REVISION, record.create_revision().to_wire()),
        (MOD_REVISION, record.mod_revision().to_wire()),
        (VERSION, i64::try_from(record.version()).unwrap_or(i64::MAX)),
        (LEASE, record.lease().0),
    ]
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::LeaseId;
    use crate::etcd::client::mvccpb;

    fn read_back(sent: &KeyValue) -> mvccpb::KeyValue {
        let bytes = sent.encode_to_vec();
        assert_eq!(bytes.len(), sent.encoded_len());
        mvccpb::KeyValue::decode(bytes.as_slice()).expect("a message the plain client can read")
    }

    #[test]
    fn every_form_reads_back_as_the_plain_message() {
        let record = Record::new(
            b"/k",
            b"value",
            Revision::new(3),
            Revision::new(300),
            2,
            LeaseId(-7),
        );
        let whole = read_back(&KeyValue::Whole(record.clone()));
        assert_eq!(
            (
                whole.create_revision,
                whole.mod_revision,
                whole.version,
                whole.lease
            ),
            (3, 300, 2, -7)
        );
        assert_eq!(
            (&whole.key[..], &whole.value[..]),
            (&b"/k"[..], &b"value"[..])
        );

        let keys_only = read_back(&KeyValue::WithoutValue(record));
        assert_eq!(
            keys_only,
            mvccpb::KeyValue {
                value: Bytes::new(),
                ..whole
            }
        );

        let deleted = read_back(&KeyValue::Deleted(
            Bytes::from_static(b"/k"),
            Revision::new(9),
        ));
        let bare = mvccpb::KeyValue {
            key: Bytes::from_static(b"/k"),
            mod_revision: 9,
            ..Default::default()
        };
        assert_eq!(deleted, bare);
    }
}
