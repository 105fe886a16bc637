//! One version of one key, encoded once and shared by replies, events and lists.
//!
//! The encoding is etcd's `mvccpb.KeyValue` message, so that a range reply is a concatenation of
//! stored bytes. Key and value are slices of that one allocation.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::Revision;
use crate::codec::{Reader, put_varint};

/// A lease's number; zero means "no lease".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl LeaseId {
    /// The absence of a lease.
    pub const NONE: LeaseId = LeaseId(0);

    /// Whether this names a lease.
    #[must_use]
    pub fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// A key's value as one write left it; immutable and cheap to clone.
///
/// `create_revision`, `mod_revision` and `version` have etcd's meaning: born at, last changed at,
/// changes in this life (1 at creation). A handle is one pointer, since index nodes, events and
/// answers hold many of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(Arc<Fields>);

#[derive(Debug, PartialEq, Eq)]
struct Fields {
    encoded: Bytes,
    /// A slice of `encoded`.
    key: Bytes,
    /// A slice of `encoded`.
    value: Bytes,
    create_revision: Revision,
    mod_revision: Revision,
    version: u64,
    lease: LeaseId,
}

// Field numbers of mvccpb.KeyValue (etcd api/mvccpb/kv.proto): key 1, create_revision 2,
// mod_revision 3, version 4, value 5, lease 6. A tag is (field << 3) | wire type.
const TAG_KEY: u8 = 0x0a;
const TAG_CREATE_REVISION: u8 = 0x10;
const TAG_MOD_REVISION: u8 = 0x18;
const TAG_VERSION: u8 = 0x20;
const TAG_VALUE: u8 = 0x2a;
const TAG_LEASE: u8 = 0x30;

impl Record {
    /// Encodes a version of a key.
    #[must_use]
    pub fn new(
        key: &[u8],
        value: &[u8],
        create_revision: Revision,
        mod_revision: Revision,
        version: u64,
        lease: LeaseId,
    ) -> Self {
        let numbers = [
            create_revision.get(),
            mod_revision.get(),
            version,
            lease.0.cast_unsigned(),
        ];
        // Exactly as much as it takes: what is over would be kept as long as the value is.
        let fields = bytes_field(key) + bytes_field(value);
        let bytes = fields + numbers.into_iter().map(number_field).sum::<usize>();
        let mut buf = BytesMut::with_capacity(bytes);
        let key_at = put_bytes(&mut buf, TAG_KEY, key);
        put_number(&mut buf, TAG_CREATE_REVISION, create_revision.get());
        put_number(&mut buf, TAG_MOD_REVISION, mod_revision.get());
        put_number(&mut buf, TAG_VERSION, version);
        let value_at = put_bytes(&mut buf, TAG_VALUE, value);
        put_number(&mut buf, TAG_LEASE, lease.0.cast_unsigned());
        let encoded = buf.freeze();
        Record(Arc::new(Fields {
            key: encoded.slice(key_at..key_at + key.len()),
            value: encoded.slice(value_at..value_at + value.len()),
            encoded,
            create_revision,
            mod_revision,
            version,
            lease,
        }))
    }

    /// Reads back what [`Record::encoded`] gave; `None` when it is no such message. The bytes are
    /// kept as they are, so the caller decides whose allocation stays alive.
    pub(crate) fn decode(encoded: Bytes) -> Option<Self> {
        let mut reader = Reader::new(&encoded);
        let (mut key, mut value) = (0..0, 0..0);
        let (mut create, mut modified, mut version, mut lease) = (0, 0, 0, 0);
        while !reader.is_empty() {
            match reader.byte()? {
                TAG_KEY => key = reader.span()?,
                TAG_VALUE => value = reader.span()?,
                TAG_CREATE_REVISION => create = reader.varint()?,
                TAG_MOD_REVISION => modified = reader.varint()?,
                TAG_VERSION => version = reader.varint()?,
                TAG_LEASE => lease = reader.varint()?,
                _ => return None,
            }
        }
        Some(Record(Arc::new(Fields {
            key: encoded.slice(key),
            value: encoded.slice(value),
            encoded,
            create_revision: Revision::new(create),
            mod_revision: Revision::new(modified),
            version,
            lease: LeaseId(lease.cast_signed()),
        })))
    }

    /// The whole version as an encoded `mvccpb.KeyValue`.
    #[must_use]
    pub fn encoded(&self) -> &Bytes {
        &self.0.encoded
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        &self.0.key
    }

    /// The value the write gave.
    #[must_use]
    pub fn value(&self) -> &Bytes {
        &self.0.value
    }

    /// When this life of the key began.
    #[must_use]
    pub fn create_revision(&self) -> Revision {
        self.0.create_revision
    }

    /// The write that made this version.
    #[must_use]
    pub fn mod_revision(&self) -> Revision {
        self.0.mod_revision
    }

    /// Changes in this life, 1 at creation.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// The lease the key hangs on, or [`LeaseId::NONE`].
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        self.0.lease
    }

    /// Whether this is the only handle to it.
    pub(crate) fn is_sole(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Whether this version began its key's life.
    #[must_use]
    pub fn is_create(&self) -> bool {
        self.0.create_revision == self.0.mod_revision
    }
}

/// Bytes that a length-delimited field takes.
fn bytes_field(content: &[u8]) -> usize {
    if content.is_empty() {
        return 0;
    }
    1 + varint_bytes(content.len() as u64) + content.len()
}

/// Bytes that a varint field takes.
fn number_field(number: u64) -> usize {
    if number == 0 {
        return 0;
    }
    1 + varint_bytes(number)
}

/// Seven bits a byte.
fn varint_bytes(number: u64) -> usize {
    (u64::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Appends a length-delimited field, unless empty as proto3 omits it; returns where its content
/// starts.
fn put_bytes(buf: &mut BytesMut, tag: u8, content: &[u8]) -> usize {
    if !content.is_empty() {
        buf.put_u8(tag);
        put_varint(buf, content.len() as u64);
        buf.put_slice(content);
    }
    buf.len() - content.len()
}

/// Appends a varint field, unless zero as proto3 omits it.
fn put_number(buf: &mut BytesMut, tag: u8, number: u64) {
    if number != 0 {
        buf.put_u8(tag);
        put_varint(buf, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_takes_the_room_that_was_foreseen() {
        for number in [0, 1, 127, 128, 1 << 35, u64::MAX] {
            for (key, value) in [(1, 0), (127, 128), (200, 20_000)] {
                let (key, value) = (vec![7; key], vec![9; value]);
                let at = Revision::new(number);
                let lease = LeaseId(number.cast_signed());
                let record = Record::new(&key, &value, at, at, number, lease);
                let fields = bytes_field(&key) + bytes_field(&value);
                assert_eq!(record.encoded().len(), fields + 4 * number_field(number));
                assert_eq!((record.key(), record.value()), (&key.into(), &value.into()));
                assert_eq!(Record::decode(record.encoded().clone()), Some(record));
            }
        }
    }
}
