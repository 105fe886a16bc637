//! A whole file, front to back: planned, then handed out page by page.

use std::ops::Range;

use bytes::{BufMut, Bytes};

use super::page::{
    BRANCH, BUCKET_BYTES, BranchElement, ELEMENT_BYTES, FREELIST, HEADER_BYTES, Header, IS_BUCKET,
    LEAF, LeafElement, META, Meta, PAGE_BYTES,
};
use super::plan::{Branch, Bucket, Leaf, Plan, pages_of};
use super::sums::{self, Sums};
use crate::Error;

/// The transaction that a file of ours is thought to be of: even, so that meta page 0 has it.
const TXID: u64 = 2;
/// Values asked for at a time.
const VALUES_BYTES: usize = 1 << 20;

/// Where pages go.
pub(in crate::backup) type Sink<'a> = dyn FnMut(Bytes) -> Result<(), Error> + 'a;

/// A file that is to be written.
pub(in crate::backup) struct Image {
    buckets: Vec<(Box<dyn Bucket + Send + Sync>, Plan)>,
    root: u64,
    freelist: u64,
    sums: Range<u64>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("pages", &self.sums.end)
            .finish_non_exhaustive()
    }
}

impl Image {
    /// Plans a file of these buckets.
    pub(in crate::backup) fn of(mut buckets: Vec<Box<dyn Bucket + Send + Sync>>) -> Self {
        buckets.sort_unstable_by_key(|bucket| bucket.name());
        let mut next = 2;
        let plan = |bucket: Box<dyn Bucket + Send + Sync>| {
            let plan = Plan::of(&*bucket, &mut next);
            (bucket, plan)
        };
        let buckets: Vec<_> = buckets.into_iter().map(plan).collect();
        let root = next;
        let entries = buckets
            .iter()
            .map(|(bucket, plan)| ELEMENT_BYTES + bucket.name().len() + root_entry(plan).len());
        next += pages_of(HEADER_BYTES + entries.sum::<usize>());
        let freelist = next;
        // The free list names the sums' pages, and is itself under the sums.
        let mut count = sums::pages_for(freelist * PAGE_BYTES as u64);
        let (freelist_pages, count) = loop {
            let list = pages_of(HEADER_BYTES + usize::try_from(count).unwrap_or(0) * 8);
            let wanted = sums::pages_for((freelist + list) * PAGE_BYTES as u64);
            if wanted <= count {
                break (list, count);
            }
            count = wanted;
        };
        let first = freelist + freelist_pages;
        Image {
            buckets,
            root,
            freelist,
            sums: first..first + count,
        }
    }

    /// Its bytes.
    pub(in crate::backup) fn bytes(&self) -> u64 {
        self.sums.end * PAGE_BYTES as u64
    }

    /// Hands it out, in pieces that are a page or more.
    ///
    /// # Errors
    /// What `sink` answered, or a read of the store.
    pub(in crate::backup) fn write(&self, sink: &mut Sink<'_>) -> Result<(), Error> {
        let mut sums = Sums::default();
        let mut put = |page: Vec<u8>| {
            sums.add(&page);
            sink(Bytes::from(page))
        };
        for id in [0, 1] {
            put(self.meta(id))?;
        }
        for (bucket, plan) in &self.buckets {
            put_leaves(&**bucket, &plan.leaves, &mut put)?;
            for branch in &plan.branches {
                put(branch_page(&**bucket, branch))?;
            }
        }
        put(self.root_page())?;
        put(self.freelist_page())?;
        for page in sums::encode(&sums.finish(), self.sums.start, TXID) {
            sink(Bytes::from(page))?;
        }
        Ok(())
    }

    fn meta(&self, id: u64) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        let header = Header {
            id,
            flags: META,
            count: 0,
            overflow: 0,
        };
        header.put(&mut page);
        let meta = Meta {
            page_bytes: PAGE_BYTES_U32,
            root: self.root,
            freelist: self.freelist,
            pages: self.sums.end,
            txid: TXID - id,
        };
        meta.put(&mut page);
        filled(page)
    }

    fn root_page(&self) -> Vec<u8> {
        let entries: Vec<_> = self
            .buckets
            .iter()
            .map(|(bucket, plan)| (bucket.name(), root_entry(plan)))
            .collect();
        let sizes = entries
            .iter()
            .map(|(name, entry)| (name.len(), entry.len()));
        let mut page = leaf_head(self.root, IS_BUCKET, sizes);
        for (name, entry) in &entries {
            page.put_slice(name.as_bytes());
            page.put_slice(entry);
        }
        filled(page)
    }

    fn freelist_page(&self) -> Vec<u8> {
        let ids = self.sums.clone();
        let count = ids.end - ids.start;
        let bytes = HEADER_BYTES + usize::try_from(count).unwrap_or(0) * 8;
        let mut page = head(self.freelist, FREELIST, count, bytes);
        ids.for_each(|id| page.put_u64_le(id));
        filled(page)
    }
}

const PAGE_BYTES_U32: u32 = 4096;
const _: () = assert!(PAGE_BYTES_U32 as usize == PAGE_BYTES);

/// What the root says of a bucket: where its root page is, or for one without rows the page itself.
fn root_entry(plan: &Plan) -> Vec<u8> {
    let mut entry = Vec::with_capacity(BUCKET_BYTES + HEADER_BYTES);
    entry.put_u64_le(plan.root.unwrap_or(0));
    entry.put_u64_le(0);
    if plan.root.is_none() {
        let empty = Header {
            id: 0,
            flags: LEAF,
            count: 0,
            overflow: 0,
        };
        empty.put(&mut entry);
    }
    entry
}

fn put_leaves(
    bucket: &dyn Bucket,
    leaves: &[Leaf],
    put: &mut dyn FnMut(Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut rest = leaves;
    while let Some(first) = rest.first() {
        let mut bytes = 0;
        let count = rest.iter().take_while(|leaf| {
            let fits = bytes == 0 || bytes + leaf.bytes <= VALUES_BYTES;
            bytes += leaf.bytes;
            fits
        });
        let (now, later) = rest.split_at(count.count());
        let end = now.last().map_or(first.rows.end, |last| last.rows.end);
        let mut values = bucket.values(first.rows.start..end)?.into_iter();
        for leaf in now {
            put(leaf_page(bucket, leaf, &mut values)?)?;
        }
        rest = later;
    }
    Ok(())
}

fn leaf_page(
    bucket: &dyn Bucket,
    leaf: &Leaf,
    values: &mut dyn Iterator<Item = Bytes>,
) -> Result<Vec<u8>, Error> {
    let sizes = leaf.rows.clone().map(|row| bucket.sizes(row));
    let mut page = leaf_head(leaf.id, 0, sizes);
    for row in leaf.rows.clone() {
        bucket.put_key(row, &mut page);
        let value = values.next().unwrap_or_default();
        if value.len() != bucket.sizes(row).1 {
            return Err(Error::Corrupt {
                reason: format!(
                    "a value has {} bytes where its key says {}; restart the store",
                    value.len(),
                    bucket.sizes(row).1
                ),
            });
        }
        page.put_slice(&value);
    }
    Ok(filled(page))
}

/// Header and elements of a leaf whose keys and values follow.
fn leaf_head(id: u64, flags: u32, sizes: impl Iterator<Item = (usize, usize)> + Clone) -> Vec<u8> {
    let count = sizes.clone().count();
    let mut at = HEADER_BYTES + count * ELEMENT_BYTES;
    let bytes = at + sizes.clone().map(|(key, value)| key + value).sum::<usize>();
    let mut page = head(id, LEAF, count as u64, bytes);
    for (index, (key, value)) in sizes.enumerate() {
        LeafElement::put(index, flags, at, (key, value), &mut page);
        at += key + value;
    }
    page
}

fn branch_page(bucket: &dyn Bucket, branch: &Branch) -> Vec<u8> {
    let count = branch.children.len();
    let mut page = head(branch.id, BRANCH, count as u64, branch.bytes);
    let mut at = HEADER_BYTES + count * ELEMENT_BYTES;
    for (index, child) in branch.children.iter().enumerate() {
        let key = bucket.sizes(child.row).0;
        BranchElement::put(index, at, key, child.id, &mut page);
        at += key;
    }
    for child in &branch.children {
        bucket.put_key(child.row, &mut page);
    }
    filled(page)
}

/// The header of a page that uses so many bytes. A count never nears the field's bound: a page of
/// 4 KiB holds 255 elements at most, and so many free pages mean terabytes.
fn head(id: u64, flags: u16, count: u64, bytes: usize) -> Vec<u8> {
    let overflow = pages_of(bytes) - 1;
    let mut page = Vec::with_capacity(bytes.next_multiple_of(PAGE_BYTES));
    let header = Header {
        id,
        flags,
        count: u16::try_from(count).unwrap_or(u16::MAX),
        overflow: u32::try_from(overflow).unwrap_or(u32::MAX),
    };
    header.put(&mut page);
    page
}

fn filled(mut page: Vec<u8>) -> Vec<u8> {
    page.resize(page.len().next_multiple_of(PAGE_BYTES), 0);
    page
}
