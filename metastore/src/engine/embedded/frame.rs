//! One frame is one write and one sync: a header, then the batches that became durable together.
//!
//! ```text
//! header  0  magic      u32   "SLFR"
//!         4  kind       u32   0 batches, 1 closed (a clean end, no batches)
//!         8  body bytes u32
//!        12  batches    u32
//!        16  segment    u64   sequence of the segment it belongs to
//!        24  ordinal    u64   0 for the segment's first frame, then one more each
//!        32  body crc   u32   crc32c of the body, begun from the segment's salt
//!        36  header crc u32   crc32c of the 36 bytes before, begun from the salt
//! body   40  per batch: previous u64, last u64, payload bytes u32, payload
//!            zeros up to a multiple of 8
//! ```
//!
//! All little-endian. The salt (unguessable, per segment) keeps a stored value from passing for a
//! frame, and the sequence keeps a recycled segment's old frames from it.

use bytes::{Buf, BufMut, Bytes};
use crc32c::crc32c_append;

use super::super::Batch;
use crate::Revision;

pub(super) const HEADER_BYTES: usize = 40;
/// Frames begin at multiples of this, which is what a search for a later frame steps by.
pub(super) const ALIGN: u64 = 8;
const BATCH_HEADER_BYTES: usize = 20;
const MAGIC: u32 = u32::from_le_bytes(*b"SLFR");

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Batches.
    Batches,
    /// The log was closed in order; nothing follows in this segment.
    Closed,
}

/// Where a frame belongs, without which it is not valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) sequence: u64,
    pub(super) salt: u32,
    pub(super) ordinal: u64,
}

/// A valid header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) body_bytes: usize,
    pub(super) ordinal: u64,
    batches: u32,
    body_crc: u32,
}

impl Header {
    /// Bytes of the whole frame.
    pub(super) fn frame_bytes(&self) -> u64 {
        padded(HEADER_BYTES + self.body_bytes)
    }
}

/// Bytes a batch takes in a frame.
pub(super) fn batch_bytes(batch: &Batch) -> usize {
    BATCH_HEADER_BYTES + batch.payload.len()
}

fn padded(bytes: usize) -> u64 {
    (bytes as u64).next_multiple_of(ALIGN)
}

/// Reads a header of the segment at `place`, whatever its ordinal; `None` when it is none.
pub(super) fn read_header(mut bytes: &[u8], place: Place) -> Option<Header> {
    let (checked, _) = bytes.split_at_checked(HEADER_BYTES - 4)?;
    let expected = crc32c_append(place.salt, checked);
    if bytes.try_get_u32_le().ok()? != MAGIC {
        return None;
    }
    let kind = match bytes.try_get_u32_le().ok()? {
        0 => Kind::Batches,
        1 => Kind::Closed,
        _ => return None,
    };
    let body_bytes = usize::try_from(bytes.try_get_u32_le().ok()?).ok()?;
    let batches = bytes.try_get_u32_le().ok()?;
    let sequence = bytes.try_get_u64_le().ok()?;
    let ordinal = bytes.try_get_u64_le().ok()?;
    let body_crc = bytes.try_get_u32_le().ok()?;
    let header_crc = bytes.try_get_u32_le().ok()?;
    (header_crc == expected && sequence == place.sequence).then_some(Header {
        kind,
        body_bytes,
        ordinal,
        batches,
        body_crc,
    })
}

/// Where in a block headers could begin: the cheap test of a search.
pub(super) fn places(block: &[u8]) -> impl Iterator<Item = u64> {
    let magic = MAGIC.to_le_bytes();
    (0..)
        .step_by(8)
        .zip(block.chunks(8))
        .filter_map(move |(place, bytes)| bytes.starts_with(&magic).then_some(place))
}

/// Whether the body is the one the header was written for.
pub(super) fn is_whole(header: &Header, body: &[u8], place: Place) -> bool {
    crc32c_append(place.salt, body) == header.body_crc
}

/// Takes a whole body apart, calling `each` with where in the frame the payload begins; `None` when it does not hold what its header says,
/// which a matching checksum rules out but for a fault of ours.
pub(super) fn read_batches<E>(
    header: &Header,
    mut body: Bytes,
    mut each: impl FnMut(Batch, u64) -> Result<(), E>,
) -> Option<Result<(), E>> {
    let whole = body.len();
    for _ in 0..header.batches {
        let previous = Revision::new(body.try_get_u64_le().ok()?);
        let last = Revision::new(body.try_get_u64_le().ok()?);
        let bytes = usize::try_from(body.try_get_u32_le().ok()?).ok()?;
        if body.len() < bytes {
            return None;
        }
        let at = (HEADER_BYTES + whole - body.len()) as u64;
        let batch = Batch {
            previous,
            last,
            payload: body.split_to(bytes),
        };
        if let Err(error) = each(batch, at) {
            return Some(Err(error));
        }
    }
    body.is_empty().then_some(Ok(()))
}

/// Builds frames in one buffer that is kept.
#[derive(Debug, Default)]
pub(super) struct Builder {
    /// Room for the header, then the body so far.
    buffer: Vec<u8>,
    batches: u32,
}

impl Builder {
    /// Begins an empty frame.
    pub(super) fn begin(&mut self) {
        self.buffer.clear();
        self.buffer.put_bytes(0, HEADER_BYTES);
        self.batches = 0;
    }

    /// Bytes the frame has so far.
    pub(super) fn frame_bytes(&self) -> u64 {
        padded(self.buffer.len())
    }

    /// Adds a batch, and answers where in the frame its payload begins; the caller keeps its payload
    /// and the frame within `u32`.
    pub(super) fn push(&mut self, batch: &Batch) -> u64 {
        let bytes = u32::try_from(batch.payload.len()).expect("the caller bounds a batch");
        self.buffer.put_u64_le(batch.previous.get());
        self.buffer.put_u64_le(batch.last.get());
        self.buffer.put_u32_le(bytes);
        let at = self.buffer.len() as u64;
        self.buffer.put_slice(&batch.payload);
        self.batches += 1;
        at
    }

    /// Finishes the frame for its place and hands out its bytes.
    pub(super) fn seal(&mut self, kind: Kind, place: Place) -> &[u8] {
        let body = self.buffer.get(HEADER_BYTES..).unwrap_or_default();
        let body_bytes = u32::try_from(body.len()).expect("the caller bounds a frame");
        let mut header = [0; HEADER_BYTES];
        let mut fields = header.as_mut_slice();
        fields.put_u32_le(MAGIC);
        fields.put_u32_le(match kind {
            Kind::Batches => 0,
            Kind::Closed => 1,
        });
        fields.put_u32_le(body_bytes);
        fields.put_u32_le(self.batches);
        fields.put_u64_le(place.sequence);
        fields.put_u64_le(place.ordinal);
        fields.put_u32_le(crc32c_append(place.salt, body));
        let (checked, mut crc) = header.split_at_mut(HEADER_BYTES - 4);
        crc.put_u32_le(crc32c_append(place.salt, checked));
        if let Some(room) = self.buffer.get_mut(..HEADER_BYTES) {
            room.copy_from_slice(&header);
        }
        let padding = self.buffer.len().next_multiple_of(8) - self.buffer.len();
        self.buffer.put_bytes(0, padding);
        &self.buffer
    }
}
