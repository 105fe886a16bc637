//! The bytes of a page: its header, the two meta pages, and the elements of leaves and branches.
//!
//! All numbers are little-endian: the library writes what its machine has, and etcd is run on no
//! other kind.

use bytes::{Buf, BufMut};

/// What we write; what we read says in its meta page.
pub(in crate::backup) const PAGE_BYTES: usize = 4096;
pub(super) const HEADER_BYTES: usize = 16;
/// Of a leaf's and of a branch's element alike.
pub(super) const ELEMENT_BYTES: usize = 16;
/// What a bucket's entry in its parent's leaf holds: root page, sequence.
pub(super) const BUCKET_BYTES: usize = 16;

pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const META: u16 = 0x04;
pub(super) const FREELIST: u16 = 0x10;
/// Of a leaf's element whose value is a bucket.
pub(in crate::backup) const IS_BUCKET: u32 = 0x01;

const MAGIC: u32 = 0xED0C_DAED;
const VERSION: u32 = 2;
pub(super) const META_BYTES: usize = 64;
/// In place of a free list that was not written.
pub(super) const NO_FREELIST: u64 = u64::MAX;
const PAGE_BYTES_RANGE: std::ops::RangeInclusive<u32> = 512..=65_536;

/// What every page begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: u64,
    pub(super) flags: u16,
    pub(super) count: u16,
    /// Pages after this one that belong to it.
    pub(super) overflow: u32,
}

impl Header {
    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.put_u64_le(self.id);
        out.put_u16_le(self.flags);
        out.put_u16_le(self.count);
        out.put_u32_le(self.overflow);
    }

    pub(super) fn read(mut bytes: &[u8]) -> Option<Self> {
        Some(Header {
            id: bytes.try_get_u64_le().ok()?,
            flags: bytes.try_get_u16_le().ok()?,
            count: bytes.try_get_u16_le().ok()?,
            overflow: bytes.try_get_u32_le().ok()?,
        })
    }
}

/// Where the tree begins and where the file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) page_bytes: u32,
    pub(super) root: u64,
    pub(super) freelist: u64,
    /// Pages of the file.
    pub(super) pages: u64,
    /// Rises with each transaction; its last bit says which of the two meta pages has it.
    pub(super) txid: u64,
}

impl Meta {
    pub(super) fn put(self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.put_u32_le(MAGIC);
        out.put_u32_le(VERSION);
        out.put_u32_le(self.page_bytes);
        out.put_u32_le(0);
        out.put_u64_le(self.root);
        out.put_u64_le(0);
        out.put_u64_le(self.freelist);
        out.put_u64_le(self.pages);
        out.put_u64_le(self.txid);
        let sum = fnv64a(out.get(begin..).unwrap_or_default());
        out.put_u64_le(sum);
    }

    /// `None` when these are no meta data, or damaged ones.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (mut fields, mut sum) = bytes.get(..META_BYTES)?.split_at(META_BYTES - 8);
        if sum.get_u64_le() != fnv64a(fields)
            || fields.get_u32_le() != MAGIC
            || fields.get_u32_le() != VERSION
        {
            return None;
        }
        let page_bytes = fields.get_u32_le();
        fields.advance(4);
        let root = fields.get_u64_le();
        fields.advance(8);
        let meta = Meta {
            page_bytes,
            root,
            freelist: fields.get_u64_le(),
            pages: fields.get_u64_le(),
            txid: fields.get_u64_le(),
        };
        let is_sane = PAGE_BYTES_RANGE.contains(&page_bytes) && page_bytes.is_power_of_two();
        is_sane.then_some(meta)
    }
}

/// The checksum of meta data; of 64 bytes alone, and no protection of anything else.
fn fnv64a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// An element of a leaf; key and value lie `at` bytes after the page begins.
pub(super) struct LeafElement {
    pub(super) flags: u32,
    pub(super) at: usize,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
}

/// An element of a branch; the key lies `at` bytes after the page begins.
pub(super) struct BranchElement {
    pub(super) at: usize,
    pub(super) key_bytes: usize,
    pub(super) page: u64,
}

/// Where the elements of a page begin.
fn element_at(index: usize) -> usize {
    HEADER_BYTES + index * ELEMENT_BYTES
}

impl LeafElement {
    /// `data_at` counts from the page's begin, the file's own number from the element's.
    pub(super) fn put(
        index: usize,
        flags: u32,
        data_at: usize,
        sizes: (usize, usize),
        out: &mut Vec<u8>,
    ) {
        out.put_u32_le(flags);
        out.put_u32_le(narrow(data_at - element_at(index)));
        out.put_u32_le(narrow(sizes.0));
        out.put_u32_le(narrow(sizes.1));
    }

    pub(super) fn read(page: &[u8], index: usize) -> Option<Self> {
        let mut bytes = page.get(element_at(index)..)?;
        let flags = bytes.try_get_u32_le().ok()?;
        let at = bytes.try_get_u32_le().ok()? as usize + element_at(index);
        let key_bytes = bytes.try_get_u32_le().ok()? as usize;
        let value_bytes = bytes.try_get_u32_le().ok()? as usize;
        Some(LeafElement {
            flags,
            at,
            key_bytes,
            value_bytes,
        })
    }
}

impl BranchElement {
    pub(super) fn put(
        index: usize,
        data_at: usize,
        key_bytes: usize,
        page: u64,
        out: &mut Vec<u8>,
    ) {
        out.put_u32_le(narrow(data_at - element_at(index)));
        out.put_u32_le(narrow(key_bytes));
        out.put_u64_le(page);
    }

    pub(super) fn read(page: &[u8], index: usize) -> Option<Self> {
        let mut bytes = page.get(element_at(index)..)?;
        let at = bytes.try_get_u32_le().ok()? as usize + element_at(index);
        let key_bytes = bytes.try_get_u32_le().ok()? as usize;
        Some(BranchElement {
            at,
            key_bytes,
            page: bytes.try_get_u64_le().ok()?,
        })
    }
}

/// Sizes within a page, which a request's bound keeps far below what the field takes.
fn narrow(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_data_come_back_and_damaged_ones_do_not() {
        let meta = Meta {
            page_bytes: 4096,
            root: 7,
            freelist: NO_FREELIST,
            pages: 9,
            txid: 2,
        };
        let mut out = Vec::new();
        meta.put(&mut out);
        assert_eq!(out.len(), META_BYTES);
        assert_eq!(Meta::read(&out), Some(meta));
        for bit in 0..META_BYTES * 8 {
            let mut damaged = out.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Meta::read(&damaged), None, "bit {bit}");
        }
        assert_eq!(Meta::read(&out[..META_BYTES - 1]), None);
    }
}
