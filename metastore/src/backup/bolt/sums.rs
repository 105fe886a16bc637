//! Checksums of our own within a file of another's format, so that damage is found with its place.
//!
//! bbolt has a checksum over its meta data alone, and a snapshot one over all of it. What lies here
//! is one for each 64 pages, in pages that the free list names: whoever else opens the file takes
//! them for free room and writes over them in time. They count while the file's transaction number
//! is that of the writer, which every later write raises.

use bytes::{Buf, BufMut};
use crc32c::{crc32c, crc32c_append};

use super::page::{HEADER_BYTES, Header, PAGE_BYTES};

/// Bytes that one sum is of.
pub(super) const BLOCK_BYTES: u64 = 64 * PAGE_BYTES as u64;
const MAGIC: &[u8; 8] = b"SLUICESM";
const VERSION: u32 = 1;
const SUMS_AT: usize = HEADER_BYTES + 8 + 4 + 4 + 8 + 8;
/// Sums in one page.
const SUMS: usize = (PAGE_BYTES - SUMS_AT - 4) / 4;

/// Pages that the sums of so many bytes take.
pub(super) fn pages_for(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).div_ceil(SUMS as u64)
}

/// The sums of a file that passes by.
#[derive(Debug, Default)]
pub(super) struct Sums {
    done: Vec<u32>,
    open: u32,
    /// Bytes of the open block.
    bytes: u64,
}

impl Sums {
    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(BLOCK_BYTES - self.bytes).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.open = crc32c_append(self.open, now);
            self.bytes += now.len() as u64;
            if self.bytes == BLOCK_BYTES {
                self.done.push(std::mem::take(&mut self.open));
                self.bytes = 0;
            }
            bytes = later;
        }
    }

    /// All of them, the last of a block that may be short.
    pub(super) fn finish(mut self) -> Vec<u32> {
        if self.bytes > 0 {
            self.done.push(self.open);
        }
        self.done
    }
}

/// The pages that hold `sums`, from page `id` on.
pub(super) fn encode(sums: &[u32], id: u64, txid: u64) -> Vec<Vec<u8>> {
    let pages = (id..).zip(sums.chunks(SUMS)).zip((0_u64..).step_by(SUMS));
    let page = |((id, sums), first): ((u64, &[u32]), u64)| {
        let mut page = Vec::with_capacity(PAGE_BYTES);
        let header = Header {
            id,
            flags: 0,
            count: 0,
            overflow: 0,
        };
        header.put(&mut page);
        page.put_slice(MAGIC);
        page.put_u32_le(VERSION);
        page.put_u32_le(u32::try_from(sums.len()).unwrap_or(0));
        page.put_u64_le(txid);
        page.put_u64_le(first);
        sums.iter().for_each(|sum| page.put_u32_le(*sum));
        page.resize(PAGE_BYTES - 4, 0);
        page.put_u32_le(crc32c(&page));
        page
    };
    pages.map(page).collect()
}

/// The sums of one page and the block they begin at; `None` when it holds none of this file.
pub(super) fn decode(page: &[u8], txid: u64) -> Option<(u64, Vec<u32>)> {
    let (fields, mut crc) = page.get(..PAGE_BYTES)?.split_at(PAGE_BYTES - 4);
    let mut rest = fields.get(HEADER_BYTES..)?.strip_prefix(MAGIC)?;
    if rest.get_u32_le() != VERSION || crc.get_u32_le() != crc32c(fields) {
        return None;
    }
    let count = rest.get_u32_le() as usize;
    if rest.get_u64_le() != txid || count > SUMS {
        return None;
    }
    let first = rest.get_u64_le();
    let sums = (0..count).map(|_| rest.get_u32_le()).collect();
    Some((first, sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_come_back_from_their_pages_and_belong_to_one_file() {
        let mut sums = Sums::default();
        let piece: Vec<u8> = (0..=250).collect();
        let mut bytes = 0;
        while bytes < 1200 * BLOCK_BYTES / 512 {
            sums.add(&piece);
            bytes += piece.len() as u64;
        }
        let mut all = sums.finish();
        assert_eq!(all.len() as u64, bytes.div_ceil(BLOCK_BYTES));
        all.resize(SUMS + 5, 7);
        let pages = encode(&all, 90, 2);
        assert_eq!(pages.len(), 2);
        let mut back = Vec::new();
        for page in &pages {
            let (first, sums) = decode(page, 2).unwrap();
            assert_eq!(first, back.len() as u64);
            back.extend(sums);
            assert_eq!(decode(page, 4), None);
        }
        assert_eq!(back, all);
        let mut damaged = pages[0].clone();
        damaged[100] ^= 1;
        assert_eq!(decode(&damaged, 2), None);
    }
}
