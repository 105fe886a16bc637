//! Reading a file page by page, whoever wrote it, and trusting nothing in it.
//!
//! One page of each level is held at a time. Pages may be met once, so that no file makes a walk
//! longer than itself; keys must ascend over a whole bucket. The first thing that is wrong is
//! answered with its place.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::page::{
    BRANCH, BUCKET_BYTES, BranchElement, ELEMENT_BYTES, FREELIST, HEADER_BYTES, Header, IS_BUCKET,
    LEAF, LeafElement, META_BYTES, Meta, NO_FREELIST,
};
use super::sums;

/// One page with all that overflows from it: far above what any server takes as a request.
const PAGE_BYTES_MAX: u64 = 256 << 20;
/// A tree of two-way branches over all that a disk holds would not be as deep.
const DEPTH_MAX: usize = 48;

/// Why a file cannot be read on.
#[derive(Debug)]
pub(in crate::backup) enum Fault {
    /// Where, and what is wrong there.
    Damage(u64, String),
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

fn damage<T>(offset: u64, what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Damage(offset, what.into()))
}

/// A key and its value.
pub(in crate::backup) struct Entry<'a> {
    /// Where the key lies in the file; the value follows it.
    pub(in crate::backup) offset: u64,
    pub(in crate::backup) key: &'a [u8],
    pub(in crate::backup) value: &'a [u8],
}

impl Entry<'_> {
    /// Where the value lies in the file.
    pub(in crate::backup) fn value_at(&self) -> u64 {
        self.offset + self.key.len() as u64
    }
}

/// A bucket of the root.
#[derive(Debug)]
pub(in crate::backup) struct Found {
    pub(in crate::backup) name: Vec<u8>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Page(u64),
    /// Within its entry in the root, at this offset.
    Inline(u64, Vec<u8>),
}

type Each<'a> = dyn FnMut(Entry<'_>) -> Result<(), Fault> + 'a;

/// A file, as far as its meta pages say.
#[derive(Debug)]
pub(in crate::backup) struct Tree {
    file: File,
    meta: Meta,
    /// A bit for each page, set when it was met.
    met: Vec<u64>,
}

impl Tree {
    /// Reads the meta pages of a file whose first `bytes` are the tree.
    pub(in crate::backup) fn open(file: File, bytes: u64) -> Result<Self, Fault> {
        let meta = read_meta(&file, bytes)?;
        let wanted = meta.pages.saturating_mul(u64::from(meta.page_bytes));
        if wanted > bytes {
            let what =
                format!("the file is cut: it says that it has {wanted} bytes, {bytes} are there");
            return damage(bytes, what);
        }
        let words = usize::try_from(meta.pages.div_ceil(64)).unwrap_or(0);
        Ok(Tree {
            file,
            meta,
            met: vec![0; words],
        })
    }

    /// Bytes of the tree.
    pub(in crate::backup) fn bytes(&self) -> u64 {
        self.meta.pages * u64::from(self.meta.page_bytes)
    }

    /// Bytes of the file at a place that an entry named.
    pub(in crate::backup) fn read_at(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        self.file.read_exact_at(&mut buffer, offset)?;
        Ok(buffer)
    }

    /// The buckets, by name.
    pub(in crate::backup) fn buckets(&mut self) -> Result<Vec<Found>, Fault> {
        let mut found = Vec::new();
        let root = Place::Page(self.meta.root);
        self.walk(&root, IS_BUCKET, &mut |entry| {
            let inline_at = entry.value_at() + BUCKET_BYTES as u64;
            let Some((mut head, inline)) = entry.value.split_at_checked(BUCKET_BYTES) else {
                return damage(entry.offset, "a bucket's entry is too short");
            };
            let place = match bytes::Buf::try_get_u64_le(&mut head).unwrap_or(0) {
                0 => Place::Inline(inline_at, inline.to_vec()),
                id => Place::Page(id),
            };
            found.push(Found {
                name: entry.key.to_vec(),
                place,
            });
            Ok(())
        })?;
        Ok(found)
    }

    /// Hands out the rows of a bucket, by key.
    pub(in crate::backup) fn rows(
        &mut self,
        bucket: &Found,
        each: &mut Each<'_>,
    ) -> Result<(), Fault> {
        self.walk(&bucket.place, 0, each)
    }

    fn walk(&mut self, place: &Place, flags: u32, each: &mut Each<'_>) -> Result<(), Fault> {
        let mut last = Vec::new();
        let mut walk = Walk {
            flags,
            last: &mut last,
            each,
        };
        match place {
            Place::Page(id) => self.visit(*id, 0, &[], &mut walk),
            Place::Inline(offset, bytes) => {
                let Some(header) = Header::read(bytes).filter(|header| header.flags == LEAF) else {
                    return damage(*offset, "a bucket within its entry is not a leaf");
                };
                walk.leaf(bytes, *offset, header.count)
            }
        }
    }

    fn visit(
        &mut self,
        id: u64,
        depth: usize,
        least: &[u8],
        walk: &mut Walk<'_, '_>,
    ) -> Result<(), Fault> {
        let (offset, header, page) = self.page(id)?;
        if depth > DEPTH_MAX {
            return damage(offset, "the tree is deeper than any can be");
        }
        match header.flags {
            LEAF => {
                let is_below = LeafElement::read(&page, 0)
                    .and_then(|first| page.get(first.at..first.at.checked_add(first.key_bytes)?))
                    .is_some_and(|first| header.count > 0 && first < least);
                if is_below {
                    return damage(offset, "a page holds keys below those it is for");
                }
                walk.leaf(&page, offset, header.count)
            }
            BRANCH => {
                for index in 0..usize::from(header.count) {
                    let at = offset + (HEADER_BYTES + index * ELEMENT_BYTES) as u64;
                    let element = BranchElement::read(&page, index);
                    let key = element.as_ref().and_then(|element| {
                        page.get(element.at..element.at.checked_add(element.key_bytes)?)
                    });
                    let (Some(element), Some(key)) = (element, key) else {
                        return damage(at, "an element of a branch reaches beyond its page");
                    };
                    if !walk.last.is_empty() && key <= walk.last.as_slice() {
                        return damage(at, "keys of a branch are not in order");
                    }
                    self.visit(element.page, depth + 1, key, walk)?;
                }
                Ok(())
            }
            flags => damage(
                offset,
                format!("page {id} has flags {flags:#x}, not of a branch or leaf"),
            ),
        }
    }

    /// A page that was not met before, with what overflows from it.
    fn page(&mut self, id: u64) -> Result<(u64, Header, Vec<u8>), Fault> {
        let page_bytes = u64::from(self.meta.page_bytes);
        let offset = id.saturating_mul(page_bytes);
        if id < 2 || id >= self.meta.pages {
            return damage(
                offset.min(self.bytes()),
                format!("page {id} is named, which is none"),
            );
        }
        let header = Header::read(&self.read_at(offset, HEADER_BYTES)?);
        let Some(header) = header.filter(|header| header.id == id) else {
            return damage(offset, format!("page {id} is not what lies in its place"));
        };
        let pages = u64::from(header.overflow) + 1;
        if pages > self.meta.pages - id || pages * page_bytes > PAGE_BYTES_MAX {
            return damage(
                offset,
                format!("page {id} reaches over {pages} pages, which is too far"),
            );
        }
        for page in id..id + pages {
            if !self.meet(page) {
                return damage(offset, format!("page {page} is used twice"));
            }
        }
        let bytes = usize::try_from(pages * page_bytes).unwrap_or(usize::MAX);
        Ok((offset, header, self.read_at(offset, bytes)?))
    }

    /// Whether a page is met for the first time.
    fn meet(&mut self, page: u64) -> bool {
        let word = usize::try_from(page / 64)
            .ok()
            .and_then(|word| self.met.get_mut(word));
        let bit = 1 << (page % 64);
        word.is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    }

    /// The first block that does not match the writer's own sum of it: where it begins and its
    /// bytes. `None` where all do, or there are no sums of this file.
    pub(in crate::backup) fn first_bad_block(&self) -> Result<Option<(u64, u64)>, Fault> {
        let Some(sums) = self.sums()? else {
            return Ok(None);
        };
        let end = sums.0 * u64::from(self.meta.page_bytes);
        for (sum, block) in sums.1.into_iter().zip(0_u64..) {
            let offset = block * sums::BLOCK_BYTES;
            let bytes = sums::BLOCK_BYTES.min(end.saturating_sub(offset));
            let block = self.read_at(offset, usize::try_from(bytes).unwrap_or(0))?;
            if crc32c::crc32c(&block) != sum {
                return Ok(Some((offset, bytes)));
            }
        }
        Ok(None)
    }

    /// The first page that holds sums, and the sums; `None` when there are none, or not all.
    fn sums(&self) -> Result<Option<(u64, Vec<u32>)>, Fault> {
        let page_bytes = u64::from(self.meta.page_bytes);
        let list = self.meta.freelist;
        if list == NO_FREELIST || list >= self.meta.pages {
            return Ok(None);
        }
        let header = Header::read(&self.read_at(list * page_bytes, HEADER_BYTES)?);
        // Sums lie in the last pages of a file that nobody else wrote to, right after the free list.
        let Some(first) = header
            .filter(|header| header.flags == FREELIST)
            .map(|header| list + 1 + u64::from(header.overflow))
        else {
            return Ok(None);
        };
        let mut sums = Vec::new();
        for id in first..self.meta.pages {
            let bytes = usize::try_from(page_bytes).unwrap_or(0);
            let page = self.read_at(id * page_bytes, bytes)?;
            match sums::decode(&page, self.meta.txid) {
                Some((begin, more)) if begin == sums.len() as u64 => sums.extend(more),
                _ => return Ok(None),
            }
        }
        let covered = (first * page_bytes).div_ceil(sums::BLOCK_BYTES);
        Ok((sums.len() as u64 == covered && covered > 0).then_some((first, sums)))
    }
}

/// A walk over one bucket.
struct Walk<'a, 'b> {
    /// What each element's flags must be.
    flags: u32,
    /// The last key met.
    last: &'a mut Vec<u8>,
    each: &'a mut Each<'b>,
}

impl Walk<'_, '_> {
    fn leaf(&mut self, page: &[u8], offset: u64, count: u16) -> Result<(), Fault> {
        for index in 0..usize::from(count) {
            let at = offset + (HEADER_BYTES + index * ELEMENT_BYTES) as u64;
            let element = LeafElement::read(page, index);
            let data = element.as_ref().and_then(|element| {
                let middle = element.at.checked_add(element.key_bytes)?;
                let end = middle.checked_add(element.value_bytes)?;
                page.get(element.at..end)?
                    .split_at_checked(element.key_bytes)
            });
            let (Some(element), Some((key, value))) = (element, data) else {
                return damage(at, "an element of a leaf reaches beyond its page");
            };
            if element.flags != self.flags {
                return damage(
                    at,
                    format!("an element of a leaf has flags {:#x}", element.flags),
                );
            }
            if key.is_empty() || (!self.last.is_empty() && key <= self.last.as_slice()) {
                return damage(at, "keys of a leaf are not in order");
            }
            self.last.clear();
            self.last.extend_from_slice(key);
            (self.each)(Entry {
                offset: offset + element.at as u64,
                key,
                value,
            })?;
        }
        Ok(())
    }
}

/// The newer of the meta pages that are whole.
fn read_meta(file: &File, bytes: u64) -> Result<Meta, Fault> {
    let read = |offset: u64| -> Result<Option<Meta>, Fault> {
        let at = offset + HEADER_BYTES as u64;
        if at + META_BYTES as u64 > bytes {
            return Ok(None);
        }
        let mut buffer = [0; META_BYTES];
        file.read_exact_at(&mut buffer, at)?;
        Ok(Meta::read(&buffer))
    };
    let mut newest = read(0)?;
    // Where the second page lies, the first says; if it is damaged, all sizes are tried.
    let sizes: Vec<u32> = match newest {
        Some(meta) => vec![meta.page_bytes],
        None => (9..=16).map(|bits| 1 << bits).collect(),
    };
    for size in sizes {
        let second = read(u64::from(size))?.filter(|meta| meta.page_bytes == size);
        newest = newest
            .into_iter()
            .chain(second)
            .max_by_key(|meta| meta.txid);
    }
    newest.ok_or_else(|| {
        let what = "no meta page is whole; is this a snapshot?";
        Fault::Damage(0, what.to_owned())
    })
}
