//! What was read of a source so far, in a file that survives a kill.
//!
//! | bytes | field | |
//! | ---: | --- | --- |
//! | 4 | length | of the page |
//! | 4 | crc32 | crc32c of length and page |
//! | n | page | keys, one after another |
//!
//! A key is create, mod, version and lease (8 bytes each), the lengths of key and value (4 each),
//! key, value; numbers are little-endian. Pages are in key order and keys within them too. A page
//! that is cut or does not match its checksum ends the file: it is read from the source again.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use bytes::{Buf as _, BufMut as _, Bytes};

use super::MigrateError;
use super::side::Item;

/// How much may have to be read again after a power cut.
const SYNC_BYTES: u64 = 64 << 20;
/// Larger than any page a walk hands out.
const PAGE_MOST: usize = 1 << 30;
const HEAD: usize = 8;
/// Four numbers and two lengths.
const FIXED: usize = 4 * 8 + 2 * 4;

/// The file, open for more.
#[derive(Debug)]
pub(super) struct Spool {
    path: PathBuf,
    file: File,
    unsynced: u64,
    /// Keys in it.
    pub(super) keys: u64,
    /// Bytes of it.
    pub(super) bytes: u64,
    /// The last key in it.
    pub(super) last: Option<Bytes>,
}

impl Spool {
    /// Opens the file, made when missing, and cuts off what was not written whole.
    pub(super) fn open(path: &Path) -> Result<Spool, MigrateError> {
        let fault = |source| MigrateError::io("open", path, source);
        let mut options = File::options();
        let file = options.read(true).append(true).create(true).open(path);
        let mut spool = Spool {
            path: path.to_owned(),
            file: file.map_err(fault)?,
            unsynced: 0,
            keys: 0,
            bytes: 0,
            last: None,
        };
        let mut pages = Pages::open(path)?;
        while let Some(page) = pages.next_page()? {
            spool.keys += page.len() as u64;
            spool.last = page.last().map(|item| item.key.clone());
        }
        spool.bytes = pages.bytes;
        spool.file.set_len(spool.bytes).map_err(fault)?;
        Ok(spool)
    }

    /// Appends a page.
    pub(super) fn append(&mut self, page: &[Item]) -> Result<(), MigrateError> {
        let mut out = vec![0; HEAD];
        for item in page {
            put_item(&mut out, item);
        }
        let fault = |source| MigrateError::io("write", &self.path, source);
        let too_large = || std::io::Error::from(std::io::ErrorKind::FileTooLarge);
        let length = u32::try_from(out.len() - HEAD).map_err(|_| fault(too_large()))?;
        let length = length.to_le_bytes();
        let crc = page_crc(length, out.get(HEAD..).unwrap_or_default());
        if let Some(head) = out.get_mut(..HEAD) {
            head.copy_from_slice(&[length, crc.to_le_bytes()].concat());
        }
        self.file.write_all(&out).map_err(fault)?;
        self.bytes += out.len() as u64;
        self.unsynced += out.len() as u64;
        self.keys += page.len() as u64;
        self.last = page.last().map(|item| item.key.clone());
        if self.unsynced >= SYNC_BYTES {
            self.sync()?;
        }
        Ok(())
    }

    /// Makes all of it survive a power cut.
    pub(super) fn sync(&mut self) -> Result<(), MigrateError> {
        self.unsynced = 0;
        let synced = self.file.sync_data();
        synced.map_err(|source| MigrateError::io("sync", &self.path, source))
    }
}

fn page_crc(length: [u8; 4], page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), page)
}

fn put_item(out: &mut Vec<u8>, item: &Item) {
    out.put_i64_le(item.create_revision);
    out.put_i64_le(item.mod_revision);
    out.put_i64_le(item.version);
    out.put_i64_le(item.lease);
    // A message that held them has lengths of 32 bits.
    out.put_u32_le(u32::try_from(item.key.len()).unwrap_or(u32::MAX));
    out.put_u32_le(u32::try_from(item.value.len()).unwrap_or(u32::MAX));
    out.put_slice(&item.key);
    out.put_slice(&item.value);
}

fn take_item(page: &mut Bytes) -> Option<Item> {
    if page.len() < FIXED {
        return None;
    }
    let mut item = Item {
        create_revision: page.get_i64_le(),
        mod_revision: page.get_i64_le(),
        version: page.get_i64_le(),
        lease: page.get_i64_le(),
        ..Item::default()
    };
    let key = usize::try_from(page.get_u32_le()).ok()?;
    let value = usize::try_from(page.get_u32_le()).ok()?;
    if page.len() < key.checked_add(value)? {
        return None;
    }
    item.key = page.split_to(key);
    item.value = page.split_to(value);
    Some(item)
}

/// Reads a spool from its beginning.
#[derive(Debug)]
pub(super) struct Pages {
    path: PathBuf,
    file: BufReader<File>,
    /// Bytes of the whole pages read so far.
    bytes: u64,
}

impl Pages {
    pub(super) fn open(path: &Path) -> Result<Pages, MigrateError> {
        let file = File::open(path).map_err(|source| MigrateError::io("open", path, source))?;
        Ok(Pages {
            path: path.to_owned(),
            file: BufReader::with_capacity(1 << 20, file),
            bytes: 0,
        })
    }

    /// The next page; `None` where nothing whole follows.
    pub(super) fn next_page(&mut self) -> Result<Option<Vec<Item>>, MigrateError> {
        let read = self.read_page();
        read.map_err(|source| MigrateError::io("read", &self.path, source))
    }

    fn read_page(&mut self) -> std::io::Result<Option<Vec<Item>>> {
        let mut head = [0; HEAD];
        if !fill(&mut self.file, &mut head)? {
            return Ok(None);
        }
        let [a, b, c, d, crc @ ..] = head;
        let length = [a, b, c, d];
        let bytes = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if bytes > PAGE_MOST {
            return Ok(None);
        }
        let mut page = vec![0; bytes];
        if !fill(&mut self.file, &mut page)? || page_crc(length, &page) != u32::from_le_bytes(crc) {
            return Ok(None);
        }
        self.bytes += (HEAD + bytes) as u64;
        let mut rest = Bytes::from(page);
        let items = std::iter::from_fn(|| take_item(&mut rest)).collect();
        Ok(Some(items))
    }
}

/// Fills a buffer; false when the file ends before.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(first: u64, count: u64) -> Vec<Item> {
        let items = (first..first + count).map(|n| Item {
            key: Bytes::from(format!("/k/{n:04}")),
            value: Bytes::from(vec![7; 10]),
            create_revision: 3,
            mod_revision: i64::try_from(n).unwrap(),
            version: 2,
            lease: -5,
        });
        items.collect()
    }

    fn all(path: &Path) -> Vec<Item> {
        let mut pages = Pages::open(path).unwrap();
        let next = std::iter::from_fn(|| pages.next_page().unwrap());
        next.flatten().collect()
    }

    #[test]
    fn whatever_was_cut_the_whole_pages_come_back_and_more_can_follow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scan");
        let mut spool = Spool::open(&path).unwrap();
        spool.append(&page(0, 3)).unwrap();
        let first = spool.bytes;
        spool.append(&page(3, 2)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(all(&path), page(0, 5));
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mut spool = Spool::open(&path).unwrap();
            let kept = match length as u64 {
                cut if cut < first => 0,
                cut if cut < whole.len() as u64 => 3,
                _ => 5,
            };
            assert_eq!(spool.keys, kept, "cut at {length}");
            spool.append(&page(kept, 9 - kept)).unwrap();
            assert_eq!(all(&path), page(0, 9), "cut at {length}");
        }
    }

    #[test]
    fn a_damaged_page_ends_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("scan");
        let mut spool = Spool::open(&path).unwrap();
        spool.append(&page(0, 3)).unwrap();
        let first = usize::try_from(spool.bytes).unwrap();
        spool.append(&page(3, 2)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in first..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(Spool::open(&path).unwrap().keys, 3, "flipped at {at}");
        }
    }
}
