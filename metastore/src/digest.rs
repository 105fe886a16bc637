//! One number over every key and its latest version at a revision, in key order.
//!
//! Equal content gives equal numbers, wherever it is: `HashKV` answers it, a snapshot is compared by
//! it. Superseded versions, leases and the floor do not count.

use crate::Record;

/// The number so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u32);

impl Digest {
    /// Adds the next record in key order.
    pub fn add(&mut self, record: &Record) {
        self.0 = crc32c::crc32c_append(self.0, record.encoded());
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}
