//! etcd's names and encodings within its database: buckets, row keys, leases, revisions.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::codec::{Reader, put_varint};
use crate::{LeaseId, Revision};

/// Versions, by revision and by place within it.
pub(super) const KEY: &str = "key";
/// What the store says of itself.
pub(super) const META: &str = "meta";
pub(super) const LEASE: &str = "lease";
pub(super) const AUTH: &str = "auth";
/// Those that etcd has beside these and a store has nothing for.
pub(super) const EMPTY: [&str; 6] = [
    "alarm",
    "authRoles",
    "authUsers",
    "cluster",
    "members",
    "members_removed",
];

/// Keys of the meta bucket.
pub(super) const SCHEDULED_COMPACT: &[u8] = b"scheduledCompactRev";
pub(super) const FINISHED_COMPACT: &[u8] = b"finishedCompactRev";
pub(super) const CONSISTENT_INDEX: &[u8] = b"consistent_index";
pub(super) const TERM: &[u8] = b"term";
pub(super) const STORAGE_VERSION: &[u8] = b"storageVersion";
/// Ours, which etcd passes over: the lease id that would be chosen next.
pub(super) const NEXT_LEASE: &[u8] = b"sluiceNextLease";
/// Key of the auth bucket, and its value where users are asked for their names.
pub(super) const AUTH_ENABLED: (&[u8], &[u8]) = (b"authEnabled", &[1]);

/// The schema that is written: the oldest with the field, which every etcd from 3.6 on takes.
pub(super) const SCHEMA: &str = "3.6.0";

/// Bytes of a row's key.
pub(super) const ROW_KEY: usize = 17;
const MARK: u8 = b't';

/// The key of a version's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowKey {
    pub(super) revision: Revision,
    /// Place within the revision.
    pub(super) sub: u64,
    pub(super) is_deletion: bool,
}

impl RowKey {
    pub(super) fn bytes(self) -> usize {
        ROW_KEY + usize::from(self.is_deletion)
    }

    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self.revision.get());
        out.put_u8(b'_');
        out.put_u64(self.sub);
        if self.is_deletion {
            out.put_u8(MARK);
        }
    }

    pub(super) fn read(mut bytes: &[u8]) -> Option<Self> {
        let is_deletion = bytes.len() == ROW_KEY + 1;
        let revision = bytes.try_get_u64().ok()?;
        let between = bytes.try_get_u8().ok()?;
        let sub = bytes.try_get_u64().ok()?;
        let is_whole = if is_deletion {
            bytes == [MARK]
        } else {
            bytes.is_empty()
        };
        let is_sane = between == b'_' && i64::try_from(revision).is_ok() && is_whole;
        is_sane.then_some(RowKey {
            revision: Revision::new(revision),
            sub,
            is_deletion,
        })
    }
}

/// A revision as the meta bucket has it.
pub(super) fn revision_value(revision: Revision) -> Bytes {
    let mut out = Vec::with_capacity(ROW_KEY);
    let row = RowKey {
        revision,
        sub: 0,
        is_deletion: false,
    };
    row.put(&mut out);
    Bytes::from(out)
}

const TAG_KEY: u8 = 0x0a;
const TAG_LEASE_ID: u8 = 0x08;
const TAG_LEASE_TTL: u8 = 0x10;
const TAG_LEASE_REMAINING: u8 = 0x18;

/// Bytes of [`deletion_value`].
pub(super) fn deletion_bytes(key: &[u8]) -> usize {
    let mut length = BytesMut::with_capacity(10);
    put_varint(&mut length, key.len() as u64);
    1 + length.len() + key.len()
}

/// The value of a deletion's row: `mvccpb.KeyValue` with the key alone.
pub(super) fn deletion_value(key: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(key.len() + 11);
    out.put_u8(TAG_KEY);
    put_varint(&mut out, key.len() as u64);
    out.put_slice(key);
    out.freeze()
}

/// A lease's row: `leasepb.Lease` (ID 1, TTL 2, RemainingTTL 3), seconds.
pub(super) fn lease_row(id: LeaseId, ttl_seconds: u64) -> (Bytes, Bytes) {
    let mut value = BytesMut::with_capacity(22);
    value.put_u8(TAG_LEASE_ID);
    put_varint(&mut value, id.0.cast_unsigned());
    value.put_u8(TAG_LEASE_TTL);
    put_varint(&mut value, ttl_seconds);
    (lease_key(id), value.freeze())
}

/// The key of a lease's row; ascending for ascending bytes, which puts negative ids last.
pub(super) fn lease_key(id: LeaseId) -> Bytes {
    Bytes::copy_from_slice(&id.0.to_be_bytes())
}

/// Reads a lease's row: id, seconds.
pub(super) fn read_lease(key: &[u8], value: &[u8]) -> Option<(LeaseId, u64)> {
    let id = i64::from_be_bytes(key.try_into().ok()?);
    let (mut told, mut ttl) = (0, 0);
    let mut reader = Reader::new(value);
    while !reader.is_empty() {
        match reader.byte()? {
            TAG_LEASE_ID => told = reader.varint()?.cast_signed(),
            TAG_LEASE_TTL => ttl = reader.varint()?,
            TAG_LEASE_REMAINING => drop(reader.varint()?),
            _ => return None,
        }
    }
    (told == id && i64::try_from(ttl).is_ok()).then_some((LeaseId(id), ttl))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_keys_are_as_etcd_has_them() {
        let row = RowKey {
            revision: Revision::new(0x0102),
            sub: 3,
            is_deletion: true,
        };
        let mut out = Vec::new();
        row.put(&mut out);
        assert_eq!(out, b"\0\0\0\0\0\0\x01\x02_\0\0\0\0\0\0\0\x03t");
        assert_eq!(out.len(), row.bytes());
        assert_eq!(RowKey::read(&out), Some(row));
        for wrong in [&out[..16], b"\0\0\0\0\0\0\x01\x02-\0\0\0\0\0\0\0\x03", b""] {
            assert_eq!(RowKey::read(wrong), None);
        }
        out[17] = b'x';
        assert_eq!(RowKey::read(&out), None);
        out.push(b't');
        assert_eq!(RowKey::read(&out), None);
    }

    #[test]
    fn leases_come_back_and_others_do_not() {
        for id in [1, -7, i64::MAX] {
            let (key, value) = lease_row(LeaseId(id), 60);
            assert_eq!(read_lease(&key, &value), Some((LeaseId(id), 60)));
            assert_eq!(read_lease(&key[1..], &value), None);
            assert_eq!(read_lease(&key, &value[..value.len() - 1]), None);
        }
        let (key, _) = lease_row(LeaseId(1), 60);
        let (_, value) = lease_row(LeaseId(2), 60);
        assert_eq!(read_lease(&key, &value), None);
        assert_eq!(deletion_value(&[7; 300]).len(), deletion_bytes(&[7; 300]));
    }
}
