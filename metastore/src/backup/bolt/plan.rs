//! Which page holds what, settled before a byte is written.
//!
//! Leaves are filled from the first row to the last, then a level of branches above them, until one
//! page is left. Only sizes and the places of first keys are looked at: a plan takes a few bytes a
//! page, whatever the values weigh.

use std::ops::Range;

use bytes::Bytes;

use super::page::{ELEMENT_BYTES, HEADER_BYTES, PAGE_BYTES};
use crate::Error;

/// Rows in ascending order of their keys, none of which is empty.
pub(in crate::backup) trait Bucket {
    fn name(&self) -> &'static str;

    fn rows(&self) -> usize;

    /// Bytes of a row's key and value.
    fn sizes(&self, row: usize) -> (usize, usize);

    /// Appends a row's key.
    fn put_key(&self, row: usize, out: &mut Vec<u8>);

    /// The values of these rows; may block on a disk.
    ///
    /// # Errors
    /// As a read of the store.
    fn values(&self, rows: Range<usize>) -> Result<Vec<Bytes>, Error>;
}

/// A leaf page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) id: u64,
    pub(super) rows: Range<usize>,
    /// Bytes used of it.
    pub(super) bytes: usize,
}

/// A branch page, above children of the level below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Branch {
    pub(super) id: u64,
    pub(super) children: Vec<Child>,
    pub(super) bytes: usize,
}

/// What a branch says of a page: its first row and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) row: usize,
    pub(super) id: u64,
}

/// The pages of one bucket.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) leaves: Vec<Leaf>,
    /// From the level above the leaves to the root's.
    pub(super) branches: Vec<Branch>,
    /// `None` for a bucket without rows, which has no pages.
    pub(super) root: Option<u64>,
}

/// Pages that so many bytes take.
pub(super) fn pages_of(bytes: usize) -> u64 {
    bytes.div_ceil(PAGE_BYTES).max(1) as u64
}

impl Plan {
    /// Plans a bucket from page `next` on, which is moved to the first page after it.
    pub(super) fn of(bucket: &dyn Bucket, next: &mut u64) -> Self {
        let leaves = plan_leaves(bucket, next);
        let mut level: Vec<Child> = leaves
            .iter()
            .map(|leaf| Child {
                row: leaf.rows.start,
                id: leaf.id,
            })
            .collect();
        let mut branches = Vec::new();
        while level.len() > 1 {
            let above = plan_branches(bucket, &level, next);
            level = above
                .iter()
                .filter_map(|branch| {
                    let row = branch.children.first()?.row;
                    Some(Child { row, id: branch.id })
                })
                .collect();
            branches.extend(above);
        }
        Plan {
            leaves,
            branches,
            root: level.first().map(|root| root.id),
        }
    }
}

fn plan_leaves(bucket: &dyn Bucket, next: &mut u64) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let mut start = 0;
    let mut bytes = HEADER_BYTES;
    let mut close = |rows: Range<usize>, bytes: usize| {
        if !rows.is_empty() {
            leaves.push(Leaf {
                id: *next,
                rows,
                bytes,
            });
            *next += pages_of(bytes);
        }
    };
    for row in 0..bucket.rows() {
        let (key, value) = bucket.sizes(row);
        let size = ELEMENT_BYTES + key + value;
        // A row larger than a page has pages of its own.
        if bytes + size > PAGE_BYTES {
            close(start..row, bytes);
            (start, bytes) = (row, HEADER_BYTES);
        }
        bytes += size;
    }
    close(start..bucket.rows(), bytes);
    leaves
}

fn plan_branches(bucket: &dyn Bucket, below: &[Child], next: &mut u64) -> Vec<Branch> {
    let mut branches: Vec<Branch> = Vec::new();
    for child in below {
        let size = ELEMENT_BYTES + bucket.sizes(child.row).0;
        // Two at least, or the levels would never end.
        let full = branches
            .last()
            .is_none_or(|open| open.bytes + size > PAGE_BYTES && open.children.len() > 1);
        if full {
            branches.push(Branch {
                id: 0,
                children: Vec::new(),
                bytes: HEADER_BYTES,
            });
        }
        if let Some(open) = branches.last_mut() {
            open.children.push(*child);
            open.bytes += size;
        }
    }
    for branch in &mut branches {
        branch.id = *next;
        *next += pages_of(branch.bytes);
    }
    branches
}
