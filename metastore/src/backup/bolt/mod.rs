//! Files as etcd's own storage library, bbolt, writes and reads them: pages of a B+tree of buckets.
//!
//! ```text
//! page 0, 1      meta: where the root is, how many pages there are
//! page 2 ..      leaf and branch pages of each bucket, then the leaf of the root
//!                free list, and the pages it names
//! ```
//!
//! Written from front to back in one go, since what each page holds is planned before the first
//! byte: sizes are known without the values. Read page by page, and trusted in nothing. Tables of
//! the bytes are in the crate's `DESIGN.md`. It knows nothing of what buckets hold.

mod plan;
mod read;
mod sums;
mod write;

pub(super) mod page;

pub(super) use plan::Bucket;
pub(super) use read::{Entry, Fault, Tree};
pub(super) use write::Image;
