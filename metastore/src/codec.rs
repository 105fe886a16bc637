//! The bytes of batch payloads and checkpoint chunks: a format byte, then a plain sequence of
//! entries.
//!
//! Both use the same entries, so that replay is one function. Integrity is the engine's business
//! (it frames and checksums); a payload that does not parse here was damaged or written by a
//! later version, and is refused rather than guessed at.
//!
//! | tag | entry | content |
//! | ---: | --- | --- |
//! | 1 | put | length, encoded `mvccpb.KeyValue` |
//! | 2 | delete | revision, length, key |
//! | 3 | grant | lease id, time to live in ms |
//! | 4 | revoke | lease id |
//! | 5 | floor | revision |
//! | 6 | mark | revision the checkpoint was taken at, the lease id the store would choose next |
//! | 7 | order | revision, number of its changes, for each its key's place among their sorted keys |
//!
//! Numbers are varints, seven bits a byte, least first. Within one payload, entries stand in the
//! order they took effect.

use std::ops::Range;
use std::time::Duration;

use bytes::{BufMut, BytesMut};

use crate::record::Fields;
use crate::{Error, LeaseId, Record, Revision};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const GRANT: u8 = 3;
const REVOKE: u8 = 4;
const FLOOR: u8 = 5;
const MARK: u8 = 6;
const ORDER: u8 = 7;

/// What every payload begins with: this format, the first. The top bit is set so that nothing
/// without a format byte is taken for one.
const FORMAT: u8 = 0x81;

/// One effect, as the log carries it; borrowed from the payload it was read in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// A key was put.
    Put(Fields<'a>),
    /// A key was deleted.
    Delete { key: &'a [u8], revision: Revision },
    /// A lease came to be.
    Grant { id: LeaseId, ttl: Duration },
    /// A lease went; the deletes of its keys stand before it.
    Revoke(LeaseId),
    /// History below here was given up.
    Floor(Revision),
    /// The head of a checkpoint.
    Mark { revision: Revision, next_lease: i64 },
    /// In a checkpoint: a revision's changes were not made in key order; see [`order`].
    ///
    /// [`order`]: crate::events::order
    Order {
        revision: Revision,
        places: Vec<usize>,
    },
}

/// A payload without entries.
pub(crate) fn payload(capacity: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(capacity);
    out.put_u8(FORMAT);
    out
}

/// Whether a payload has no entries.
pub(crate) fn is_blank(payload: &[u8]) -> bool {
    payload.len() <= 1
}

impl<'a> Entry<'a> {
    /// The revision and the key of a change of one.
    pub(crate) fn change(&self) -> Option<(Revision, &'a [u8])> {
        match self {
            Entry::Put(fields) => Some((fields.mod_revision, fields.key)),
            Entry::Delete { key, revision } => Some((*revision, key)),
            _ => None,
        }
    }

    /// Appends the entry to a payload.
    pub(crate) fn encode(&self, out: &mut BytesMut) {
        match self {
            Entry::Put(fields) => put_encoded(out, fields.encoded),
            Entry::Delete { key, revision } => encode_delete(out, key, *revision),
            Entry::Grant { id, ttl } => {
                out.put_u8(GRANT);
                put_varint(out, id.0.cast_unsigned());
                put_varint(out, u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
            }
            Entry::Revoke(id) => {
                out.put_u8(REVOKE);
                put_varint(out, id.0.cast_unsigned());
            }
            Entry::Floor(at) => {
                out.put_u8(FLOOR);
                put_varint(out, at.get());
            }
            Entry::Mark {
                revision,
                next_lease,
            } => {
                out.put_u8(MARK);
                put_varint(out, revision.get());
                put_varint(out, next_lease.cast_unsigned());
            }
            Entry::Order { revision, places } => {
                out.put_u8(ORDER);
                put_varint(out, revision.get());
                put_varint(out, places.len() as u64);
                places
                    .iter()
                    .for_each(|place| put_varint(out, *place as u64));
            }
        }
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Self> {
        Some(match reader.byte()? {
            PUT => Entry::Put(Fields::of(reader.slice()?)?),
            DELETE => {
                let revision = Revision::new(reader.varint()?);
                let key = reader.slice()?;
                Entry::Delete { key, revision }
            }
            GRANT => Entry::Grant {
                id: LeaseId(reader.varint()?.cast_signed()),
                ttl: Duration::from_millis(reader.varint()?),
            },
            REVOKE => Entry::Revoke(LeaseId(reader.varint()?.cast_signed())),
            FLOOR => Entry::Floor(Revision::new(reader.varint()?)),
            MARK => Entry::Mark {
                revision: Revision::new(reader.varint()?),
                next_lease: reader.varint()?.cast_signed(),
            },
            ORDER => {
                let revision = Revision::new(reader.varint()?);
                // Not trusted with an allocation: each place must be there to be read.
                let places = (0..reader.varint()?).map(|_| reader.number());
                let places = places.collect::<Option<_>>()?;
                Entry::Order { revision, places }
            }
            _ => return None,
        })
    }
}

/// Appends a put without making an [`Entry`] first.
pub(crate) fn encode_put(out: &mut BytesMut, record: &Record) {
    put_encoded(out, record.encoded());
}

fn put_encoded(out: &mut BytesMut, encoded: &[u8]) {
    out.put_u8(PUT);
    put_varint(out, encoded.len() as u64);
    out.put_slice(encoded);
}

/// Appends a delete without making an [`Entry`] first.
pub(crate) fn encode_delete(out: &mut BytesMut, key: &[u8], revision: Revision) {
    out.put_u8(DELETE);
    put_varint(out, revision.get());
    put_varint(out, key.len() as u64);
    out.put_slice(key);
}

/// Hands each entry of a payload to `sink`, in order, with where in the payload the encoded version
/// of a put begins.
///
/// # Errors
/// `Corrupt` when the payload is of another format or does not parse; or what `sink` answered.
pub(crate) fn decode<'a>(
    payload: &'a [u8],
    mut sink: impl FnMut(Entry<'a>, u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut reader = Reader::new(payload);
    match reader.byte() {
        Some(FORMAT) => {}
        format => {
            return Err(Error::Corrupt {
                reason: format!(
                    "payload is of format {format:02x?}, this version reads {FORMAT:02x?} only; was the log written by another version?"
                ),
            });
        }
    }
    while !reader.is_empty() {
        let at = reader.at;
        let entry = Entry::decode(&mut reader).ok_or_else(|| Error::Corrupt {
            reason: format!(
                "entry does not parse offset={at} length={}; was the log written by a later version?",
                payload.len()
            ),
        })?;
        let version_at = match &entry {
            // It ends where the entry ends.
            Entry::Put(fields) => reader.at - fields.encoded.len(),
            _ => at,
        };
        sink(entry, version_at as u64)?;
    }
    Ok(())
}

/// A cursor over encoded bytes; every read is checked.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn number(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    /// Where a length-delimited field's content lies.
    pub(crate) fn span(&mut self) -> Option<Range<usize>> {
        let length = self.number()?;
        let end = self.at.checked_add(length)?;
        if end > self.bytes.len() {
            return None;
        }
        let span = self.at..end;
        self.at = end;
        Some(span)
    }

    /// Steps over a byte if it is the next one.
    pub(crate) fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    pub(crate) fn slice(&mut self) -> Option<&'a [u8]> {
        let span = self.span()?;
        self.bytes.get(span)
    }
}

/// Appends a number, seven bits a byte.
pub(crate) fn put_varint(out: &mut impl BufMut, mut number: u64) {
    loop {
        // Seven bits and the continuation bit: never more than a byte.
        let low = u8::try_from(number & 0x7f).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            out.put_u8(low);
            return;
        }
        out.put_u8(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let (create, modified) = (Revision::new(7), Revision::new(300));
        Record::new(b"/a", b"v", create, modified, 9, LeaseId(-3))
    }

    fn samples(record: &Record) -> Vec<Entry<'_>> {
        vec![
            Entry::Put(Fields::of(record.encoded()).unwrap()),
            Entry::Delete {
                key: b"/b",
                revision: Revision::MAX,
            },
            Entry::Grant {
                id: LeaseId(i64::MIN),
                ttl: Duration::from_secs(5),
            },
            Entry::Revoke(LeaseId(4)),
            Entry::Floor(Revision::new(128)),
            Entry::Mark {
                revision: Revision::new(1 << 40),
                next_lease: 12,
            },
            Entry::Order {
                revision: Revision::new(9),
                places: vec![2, 0, 300, 1],
            },
        ]
    }

    #[test]
    fn entries_come_back_as_they_went() {
        let record = record();
        let mut out = payload(0);
        samples(&record)
            .iter()
            .for_each(|entry| entry.encode(&mut out));
        let mut back = Vec::new();
        decode(&out, |entry, _| {
            back.push(entry);
            Ok(())
        })
        .unwrap();
        assert_eq!(back, samples(&record));
    }

    #[test]
    fn a_cut_payload_is_refused_not_guessed_at() {
        for sample in samples(&record()) {
            let mut out = payload(0);
            sample.encode(&mut out);
            for length in (0..out.len()).filter(|length| *length != 1) {
                let answer = decode(&out[..length], |_, _| Ok(()));
                assert!(answer.is_err(), "{length} bytes of {sample:?} parsed");
            }
        }
    }

    #[test]
    fn another_format_is_refused() {
        let mut out = payload(0);
        Entry::Revoke(LeaseId(4)).encode(&mut out);
        decode(&out, |_, _| Ok(())).unwrap();
        out[0] += 1;
        let answer = decode(&out, |_, _| Ok(()));
        assert!(matches!(answer, Err(Error::Corrupt { reason }) if reason.contains("format")));
    }
}
