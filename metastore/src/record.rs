//! One version of one key, encoded once and shared by replies, events and lists.
//!
//! The encoding is etcd's `mvccpb.KeyValue` message, so that a range reply is a concatenation of
//! stored bytes. It is all there is in memory of a version: key, numbers and value are read from it.

use std::sync::Arc;

use bytes::Bytes;

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
/// changes in this life (1 at creation). It is one allocation, which holds the encoding and nothing
/// besides: numbers are read out of it, a few nanoseconds each, since a million versions beside each
/// other are dear in every byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(Arc<[u8]>);

// Field numbers of mvccpb.KeyValue (etcd api/mvccpb/kv.proto): key 1, create_revision 2,
// mod_revision 3, version 4, value 5, lease 6. A tag is (field << 3) | wire type.
const TAG_KEY: u8 = 0x0a;
const TAG_CREATE_REVISION: u8 = 0x10;
const TAG_MOD_REVISION: u8 = 0x18;
const TAG_VERSION: u8 = 0x20;
const TAG_VALUE: u8 = 0x2a;
const TAG_LEASE: u8 = 0x30;

/// What an encoded version says, borrowed from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields<'a> {
    pub(crate) encoded: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) create_revision: Revision,
    pub(crate) mod_revision: Revision,
    pub(crate) version: u64,
    pub(crate) lease: LeaseId,
}

impl<'a> Fields<'a> {
    /// Reads all of an encoded version; `None` when it is no such message, with its fields in order.
    pub(crate) fn of(encoded: &'a [u8]) -> Option<Self> {
        let mut fields = Cursor(Reader::new(encoded));
        let key = fields.bytes(TAG_KEY)?;
        let create_revision = Revision::new(fields.number(TAG_CREATE_REVISION)?);
        let mod_revision = Revision::new(fields.number(TAG_MOD_REVISION)?);
        let version = fields.number(TAG_VERSION)?;
        fields.bytes(TAG_VALUE)?;
        let lease = LeaseId(fields.number(TAG_LEASE)?.cast_signed());
        fields.0.is_empty().then_some(Fields {
            encoded,
            key,
            create_revision,
            mod_revision,
            version,
            lease,
        })
    }
}

/// Walks the fields of an encoding in their order; one that is not there is empty or zero.
struct Cursor<'a>(Reader<'a>);

impl<'a> Cursor<'a> {
    fn bytes(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.0.takes(tag) {
            self.0.slice()
        } else {
            Some(&[])
        }
    }

    fn number(&mut self, tag: u8) -> Option<u64> {
        if self.0.takes(tag) {
            self.0.varint()
        } else {
            Some(0)
        }
    }
}

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
        let fields = bytes_field(key) + bytes_field(value);
        let bytes = fields + numbers.into_iter().map(number_field).sum::<usize>();
        let mut buf = Vec::with_capacity(bytes);
        put_bytes(&mut buf, TAG_KEY, key);
        put_number(&mut buf, TAG_CREATE_REVISION, create_revision.get());
        put_number(&mut buf, TAG_MOD_REVISION, mod_revision.get());
        put_number(&mut buf, TAG_VERSION, version);
        put_bytes(&mut buf, TAG_VALUE, value);
        put_number(&mut buf, TAG_LEASE, lease.0.cast_unsigned());
        Record(buf.into())
    }

    /// What is left of a key that was deleted at a revision: nothing but the two.
    pub(crate) fn tombstone(key: &[u8], revision: Revision) -> Self {
        let none = Revision::ZERO;
        Record::new(key, b"", none, revision, 0, LeaseId::NONE)
    }

    /// Copies what was read.
    pub(crate) fn of(fields: &Fields<'_>) -> Self {
        Record(fields.encoded.into())
    }

    /// Copies what [`Record::encoded`] gave; `None` when it is no such message.
    pub(crate) fn decode(encoded: &[u8]) -> Option<Self> {
        Fields::of(encoded).map(|fields| Record::of(&fields))
    }

    /// The whole version as an encoded `mvccpb.KeyValue`.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        &self.0
    }

    /// The same for whoever keeps it: a handle, not a copy.
    #[must_use]
    pub fn encoded_bytes(&self) -> Bytes {
        Bytes::from_owner(Arc::clone(&self.0))
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.fields().bytes(TAG_KEY).unwrap_or_default()
    }

    /// The key, copied.
    #[must_use]
    pub fn key_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(self.key())
    }

    /// The value the write gave.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let mut fields = self.fields_after(TAG_VERSION);
        fields.bytes(TAG_VALUE).unwrap_or_default()
    }

    /// The value for whoever keeps it: a handle, which keeps the whole version, and not a copy.
    #[must_use]
    pub fn value_bytes(&self) -> Bytes {
        match self.value() {
            [] => Bytes::new(),
            value => self.encoded_bytes().slice_ref(value),
        }
    }

    /// When this life of the key began.
    #[must_use]
    pub fn create_revision(&self) -> Revision {
        let mut fields = self.fields_after(TAG_KEY);
        Revision::new(fields.number(TAG_CREATE_REVISION).unwrap_or_default())
    }

    /// The write that made this version.
    #[must_use]
    pub fn mod_revision(&self) -> Revision {
        let mut fields = self.fields_after(TAG_CREATE_REVISION);
        Revision::new(fields.number(TAG_MOD_REVISION).unwrap_or_default())
    }

    /// Changes in this life, 1 at creation.
    #[must_use]
    pub fn version(&self) -> u64 {
        let mut fields = self.fields_after(TAG_MOD_REVISION);
        fields.number(TAG_VERSION).unwrap_or_default()
    }

    /// The lease the key hangs on, or [`LeaseId::NONE`].
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        let mut fields = self.fields_after(TAG_VALUE);
        let lease = fields.number(TAG_LEASE).unwrap_or_default();
        LeaseId(lease.cast_signed())
    }

    /// Whether this is the only handle to it.
    pub(crate) fn is_sole(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Whether this version began its key's life.
    #[must_use]
    pub fn is_create(&self) -> bool {
        self.create_revision() == self.mod_revision()
    }

    fn fields(&self) -> Cursor<'_> {
        Cursor(Reader::new(&self.0))
    }

    /// The fields after one. The encoding was made here or looked through: nothing fails any more.
    #[inline]
    fn fields_after(&self, last: u8) -> Cursor<'_> {
        let mut fields = self.fields();
        let _key = fields.bytes(TAG_KEY);
        for tag in [TAG_CREATE_REVISION, TAG_MOD_REVISION, TAG_VERSION] {
            if last < tag {
                return fields;
            }
            let _number = fields.number(tag);
        }
        if last >= TAG_VALUE {
            let _value = fields.bytes(TAG_VALUE);
        }
        fields
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

/// Appends a length-delimited field, unless empty as proto3 omits it.
fn put_bytes(buf: &mut Vec<u8>, tag: u8, content: &[u8]) {
    if !content.is_empty() {
        buf.push(tag);
        put_varint(buf, content.len() as u64);
        buf.extend_from_slice(content);
    }
}

/// Appends a varint field, unless zero as proto3 omits it.
fn put_number(buf: &mut Vec<u8>, tag: u8, number: u64) {
    if number != 0 {
        buf.push(tag);
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
                assert_eq!((record.key(), record.value()), (&key[..], &value[..]));
                assert_eq!(record.value_bytes(), value);
                assert_eq!((record.create_revision(), record.mod_revision()), (at, at));
                assert_eq!((record.version(), record.lease()), (number, lease));
                assert_eq!(Record::decode(record.encoded()), Some(record));
            }
        }
    }

    #[test]
    fn a_message_of_another_kind_is_no_record() {
        // A field twice, out of order, unknown, cut; nothing at all is a record without a key.
        for wrong in [
            &b"\x0a\x01k\x0a\x01k"[..],
            b"\x18\x01\x10\x01",
            b"\x38\x01",
            b"\x0a\x02k",
        ] {
            assert_eq!(Record::decode(wrong), None, "{}", wrong.escape_ascii());
        }
        assert_eq!(Record::decode(b"").unwrap().key(), b"");
    }
}
