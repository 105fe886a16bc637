//! A segment is one file of the log: a header written once, then frames.
//!
//! ```text
//!  0  magic         8 bytes "SLUICELG"
//!  8  version       u32
//! 12  salt          u32   checksums of its frames begin from it
//! 16  sequence      u64   1 for the first; the file's name says the same
//! 24  epoch         u64   of the holder that made it
//! 32  base          u64   last revision before its first batch, 0 when there is none
//! 40  previous end  u64   where the data of the segment before ends: what lies beyond is a tail
//!                         that was cut, or of a holder since deposed
//! 48  zeros         12 bytes
//! 60  crc           u32   crc32c of the 60 bytes before
//! 64  zeros up to 4096, so that frames never share a block with the header
//! ```

use bytes::{Buf, BufMut};
use crc32c::crc32c;

use crate::Revision;

/// Where frames begin.
pub(super) const FRAMES_AT: u64 = 4096;
pub(super) const HEADER_BYTES: usize = 64;
/// What this build writes and reads.
pub(super) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"SLUICELG";
const SUFFIX: &str = ".log";

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) salt: u32,
    pub(super) sequence: u64,
    pub(super) epoch: u64,
    pub(super) base: Revision,
    pub(super) previous_end: u64,
}

/// Why a header cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("the segment header does not match its checksum")]
    Damaged,
    #[error("is of format version {0}, this build reads {VERSION}")]
    Version(u32),
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.put_slice(MAGIC);
        bytes.put_u32_le(VERSION);
        bytes.put_u32_le(self.salt);
        bytes.put_u64_le(self.sequence);
        bytes.put_u64_le(self.epoch);
        bytes.put_u64_le(self.base.get());
        bytes.put_u64_le(self.previous_end);
        bytes.put_bytes(0, 12);
        bytes.put_u32_le(crc32c(&bytes));
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        let (mut fields, mut crc) = bytes.split_at(HEADER_BYTES - 4);
        if crc.get_u32_le() != crc32c(fields) || !fields.starts_with(MAGIC) {
            return Err(HeaderError::Damaged);
        }
        fields.advance(MAGIC.len());
        let version = fields.get_u32_le();
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        Ok(Header {
            salt: fields.get_u32_le(),
            sequence: fields.get_u64_le(),
            epoch: fields.get_u64_le(),
            base: Revision::new(fields.get_u64_le()),
            previous_end: fields.get_u64_le(),
        })
    }
}

/// The file of a sequence.
pub(super) fn name(sequence: u64) -> String {
    format!("{sequence:020}{SUFFIX}")
}

/// The sequence of a file, when it is a segment.
pub(super) fn sequence(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    (digits.len() == 20).then(|| digits.parse().ok())?
}

/// What is known of a segment in the directory without reading it again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Info {
    pub(super) sequence: u64,
    pub(super) base: Revision,
    /// Where its data ends.
    pub(super) end: u64,
    /// `previous` and `last` of its last batch.
    pub(super) last_batch: Option<(Revision, Revision)>,
}

impl Info {
    /// Bytes of its frames.
    pub(super) fn bytes(&self) -> u64 {
        self.end.saturating_sub(FRAMES_AT)
    }

    /// Whether a checkpoint at `at` stands for all of it. A last batch that takes no revision and
    /// stands at `at` itself may be younger than the checkpoint.
    pub(super) fn is_covered(&self, at: Revision) -> bool {
        match self.last_batch {
            Some((previous, last)) => previous < at && last <= at,
            None => self.base <= at,
        }
    }
}
