//! Values that need not be in memory: what the index holds of a version, and how its bytes come
//! back.
//!
//! ```text
//! no memory limit    index -> Record
//! memory limit       index -> Cell { numbers, place, bytes? }  <- shared by every copy of the state
//!                                          ^ set when durable, moved by a checkpoint
//!                                                 ^ taken by the eviction, given back by a read
//! ```
//!
//! A cell is changed in place and seen changed by all copies of the state: letting bytes go, or
//! moving a place, writes no node of the index and takes no part in the order of writes. Keys and
//! numbers always stay, so that counts, compares of revisions and lists of keys never touch a file.
//!
//! Nothing here knows keys or the order of revisions; it trusts a place only as far as the checksum
//! that was taken while the bytes were still in memory.

mod cell;
mod evict;
mod load;
mod residence;

pub(crate) use cell::{Cell, Kept};
pub(crate) use evict::spawn;
pub(crate) use load::load;
pub(crate) use residence::Residence;
