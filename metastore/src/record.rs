//! One version of one key, encoded once and shared by replies, events and lists.
//!
//! The encoding is etcd's `mvccpb.KeyValue` message, so that a range reply is a concatenation of
//! stored bytes. Key and value are slices of that one allocation.

use bytes::{BufMut, Bytes, BytesMut};

use crate::Revision;

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
/// changes in this life (1 at creation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    encoded: Bytes,
    key: Bytes,
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
/// Six tags, two lengths of at most five bytes and four numbers of at most ten.
const OVERHEAD_MAX: usize = 6 + 2 * 5 + 4 * 10;

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
        let mut buf = BytesMut::with_capacity(key.len() + value.len() + OVERHEAD_MAX);
        let key_at = put_bytes(&mut buf, TAG_KEY, key);
        put_number(&mut buf, TAG_CREATE_REVISION, create_revision.get());
        put_number(&mut buf, TAG_MOD_REVISION, mod_revision.get());
        put_number(&mut buf, TAG_VERSION, version);
        let value_at = put_bytes(&mut buf, TAG_VALUE, value);
        put_number(&mut buf, TAG_LEASE, lease.0.cast_unsigned());
        let encoded = buf.freeze();
        Record {
            key: encoded.slice(key_at..key_at + key.len()),
            value: encoded.slice(value_at..value_at + value.len()),
            encoded,
            create_revision,
            mod_revision,
            version,
            lease,
        }
    }

    /// The whole version as an encoded `mvccpb.KeyValue`.
    #[must_use]
    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    /// The value the write gave.
    #[must_use]
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// When this life of the key began.
    #[must_use]
    pub fn create_revision(&self) -> Revision {
        self.create_revision
    }

    /// The write that made this version.
    #[must_use]
    pub fn mod_revision(&self) -> Revision {
        self.mod_revision
    }

    /// Changes in this life, 1 at creation.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The lease the key hangs on, or [`LeaseId::NONE`].
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// Whether this version began its key's life.
    #[must_use]
    pub fn is_create(&self) -> bool {
        self.create_revision == self.mod_revision
    }
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

fn put_varint(buf: &mut BytesMut, mut number: u64) {
    loop {
        // Seven bits and the continuation bit: never more than a byte.
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            buf.put_u8(low);
            return;
        }
        buf.put_u8(low | 0x80);
    }
}
