//! From a running store to a stream of bytes.

use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};

use super::bolt::{Bucket, Image};
use super::contents::SHA_BYTES;
use super::layout;
use super::rows::{Listed, Orders, Versions, leases, meta};
use crate::{Error, Revision, Store};

/// What is handed out at once, about: large enough that a call does not count, small beside what a
/// connection buffers.
const PIECE_BYTES: usize = 64 << 10;

/// One revision of a store, held until this is dropped.
#[derive(Debug)]
pub struct Snapshot {
    image: Image,
    revision: Revision,
    compacted: Revision,
}

/// Where the bytes of a snapshot go: the next piece, and how many bytes of the database are still to
/// come after it. The last piece is the SHA-256 alone.
pub type Pieces<'a> = dyn FnMut(Bytes, u64) -> Result<(), Error> + 'a;

impl Snapshot {
    /// The schema version that is written, as etcd's `storageVersion`.
    pub const VERSION: &'static str = layout::SCHEMA;

    /// Pins the newest visible revision and plans the file. Blocks, for about as long as sorting
    /// the store's versions takes; writes go on.
    ///
    /// # Errors
    /// `Corrupt` when the store contradicts itself.
    pub fn take(store: &Store) -> Result<Self, Error> {
        // First the state, then the log of changes, which may be ahead and not behind.
        let shared = store.shared();
        let state = shared.view();
        let orders = Orders::of(&state, &shared.log);
        let compacted = orders.floor();
        let versions = Versions::of(&state, &orders)?;
        let mut buckets: Vec<Box<dyn Bucket + Send + Sync>> = vec![
            Box::new(versions),
            Box::new(leases(&state)),
            Box::new(meta(&state, compacted)),
            Box::new(Listed::empty(layout::AUTH)),
        ];
        for name in layout::EMPTY {
            buckets.push(Box::new(Listed::empty(name)));
        }
        Ok(Snapshot {
            image: Image::of(buckets),
            revision: state.revision,
            compacted,
        })
    }

    /// The revision it is of.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The least revision that can be read from it.
    #[must_use]
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Bytes of the database, without the checksum after it.
    #[must_use]
    pub fn database_bytes(&self) -> u64 {
        self.image.bytes()
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.image.bytes() + SHA_BYTES
    }

    /// Hands it out piece by piece, in memory of a few pieces; stops at the first error. May block
    /// on a disk.
    ///
    /// # Errors
    /// What `pieces` answered; or `Corrupt`, `Io` of values that lie on the disk.
    pub fn write(&self, pieces: &mut Pieces<'_>) -> Result<(), Error> {
        let mut sha = Sha256::new();
        let mut left = self.image.bytes();
        let mut open = BytesMut::with_capacity(PIECE_BYTES);
        let mut give = |piece: Bytes, pieces: &mut Pieces<'_>| {
            left -= piece.len() as u64;
            pieces(piece, left)
        };
        self.image.write(&mut |page| {
            sha.update(&page);
            if page.len() >= PIECE_BYTES {
                if !open.is_empty() {
                    give(open.split().freeze(), pieces)?;
                }
                return give(page, pieces);
            }
            open.extend_from_slice(&page);
            if open.len() < PIECE_BYTES {
                return Ok(());
            }
            give(open.split().freeze(), pieces)
        })?;
        if !open.is_empty() {
            give(open.split().freeze(), pieces)?;
        }
        pieces(Bytes::copy_from_slice(&sha.finalize()), 0)
    }
}
