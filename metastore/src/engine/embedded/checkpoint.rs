//! A checkpoint is one file that stands for every batch up to a revision.
//!
//! Written under another name, synced, then renamed: a file of the final name is whole, and whatever
//! is wrong with it is damage.
//!
//! ```text
//! header  0  magic    8 bytes "SLUICECP"
//!         8  version  u32
//!        12  zeros    4 bytes
//!        16  at       u64   the revision; the file's name says the same
//!        24  epoch    u64
//!        32  log      u64   newest segment when it was begun, 0 for none
//!        40  zeros    20 bytes
//!        60  crc      u32   crc32c of the 60 bytes before
//! chunk   0  bytes    u32   below 0xffffffff
//!         4  crc      u32   crc32c, begun from the header's, of the chunk's number (u64), its
//!                           bytes (u32) and itself
//!         8  the chunk
//! footer  0  0xffffffff u32
//!         4  crc      u32   as a chunk's, over the number of chunks, 0xffffffff and the file's
//!                           bytes before the footer
//!         8  chunks   u64
//!        16  bytes    u64   of the file before the footer
//! ```

use std::io;

use bytes::{Buf, BufMut, Bytes};
use crc32c::{crc32c, crc32c_append};

use super::files::{File, Files};
use super::window::Window;
use crate::{Error, Revision};

/// Where it is written before it has a name of its own.
pub(super) const TEMPORARY: &str = "checkpoint.tmp";
/// What this build writes and reads.
pub(super) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"SLUICECP";
const SUFFIX: &str = ".checkpoint";
pub(super) const HEADER_BYTES: usize = 64;
pub(super) const CHUNK_HEADER_BYTES: usize = 8;
const FOOTER_BYTES: usize = 24;
const FOOTER_MARK: u32 = u32::MAX;
/// One write; the log's own writes are no larger.
const WRITE_BYTES: usize = 1 << 20;
/// What is synced at a time, so that a sync of the log never waits behind a whole checkpoint.
const SYNC_BYTES: u64 = 8 << 20;

/// What a checkpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) at: Revision,
    pub(super) epoch: u64,
    pub(super) log_sequence: u64,
}

/// Why a checkpoint cannot be used.
#[derive(Debug)]
pub(super) enum ReadError {
    /// Where, and what is wrong there.
    Damaged(u64, &'static str),
    Version(u32),
    Io(io::Error),
    /// What the taker of the chunks answered.
    Sink(Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        ReadError::Io(error)
    }
}

/// The file of a revision.
pub(super) fn name(at: Revision) -> String {
    format!("{:020}{SUFFIX}", at.get())
}

/// The revision of a file, when it is a checkpoint.
pub(super) fn revision(name: &str) -> Option<Revision> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = (digits.len() == 20).then(|| digits.parse().ok())?;
    number.map(Revision::new)
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.put_slice(MAGIC);
        bytes.put_u32_le(VERSION);
        bytes.put_u32_le(0);
        bytes.put_u64_le(self.at.get());
        bytes.put_u64_le(self.epoch);
        bytes.put_u64_le(self.log_sequence);
        bytes.put_bytes(0, 20);
        bytes.put_u32_le(crc32c(&bytes));
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<(Self, u32), ReadError> {
        let damaged = || ReadError::Damaged(0, "the header does not match its checksum");
        let (mut fields, mut crc) = bytes
            .split_at_checked(HEADER_BYTES - 4)
            .ok_or_else(damaged)?;
        let crc = crc.try_get_u32_le().map_err(|_| damaged())?;
        if crc != crc32c(fields) || !fields.starts_with(MAGIC) {
            return Err(damaged());
        }
        fields.advance(MAGIC.len());
        let version = fields.get_u32_le();
        if version != VERSION {
            return Err(ReadError::Version(version));
        }
        fields.advance(4);
        let header = Header {
            at: Revision::new(fields.get_u64_le()),
            epoch: fields.get_u64_le(),
            log_sequence: fields.get_u64_le(),
        };
        Ok((header, crc))
    }
}

fn chunk_crc(seed: u32, number: u64, bytes: u32, chunk: &[u8]) -> u32 {
    let crc = crc32c_append(seed, &number.to_le_bytes());
    crc32c_append(crc32c_append(crc, &bytes.to_le_bytes()), chunk)
}

/// Writes a checkpoint and makes it the one of its revision; answers its bytes.
pub(super) fn write(
    files: &dyn Files,
    header: &Header,
    chunks: &mut dyn Iterator<Item = io::Result<Bytes>>,
) -> io::Result<u64> {
    let written = Making::begin(files, header).and_then(|mut making| {
        for chunk in chunks {
            making.chunk(&chunk?)?;
        }
        making.finish(files)
    });
    if written.is_err() {
        // As if never begun; one that stays is removed by the next recovery.
        let _ = files.remove(TEMPORARY);
    }
    written
}

/// A checkpoint being written, chunk by chunk; of no meaning before it is finished.
pub(super) struct Making {
    out: Writer,
    at: Revision,
    /// What the checksums of chunks begin from.
    seed: u32,
    chunks: u64,
}

impl Making {
    pub(super) fn begin(files: &dyn Files, header: &Header) -> io::Result<Self> {
        let begin = header.encode();
        let mut out = Writer::new(files.create(TEMPORARY)?);
        out.put(&begin)?;
        Ok(Making {
            out,
            at: header.at,
            seed: crc32c(begin.get(..HEADER_BYTES - 4).unwrap_or_default()),
            chunks: 0,
        })
    }

    pub(super) fn chunk(&mut self, chunk: &[u8]) -> io::Result<()> {
        let bytes = u32::try_from(chunk.len())
            .ok()
            .filter(|bytes| *bytes != FOOTER_MARK);
        let bytes = bytes.ok_or(io::ErrorKind::FileTooLarge)?;
        self.out.put(&bytes.to_le_bytes())?;
        let crc = chunk_crc(self.seed, self.chunks, bytes, chunk);
        self.out.put(&crc.to_le_bytes())?;
        self.out.put(chunk)?;
        self.chunks += 1;
        Ok(())
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.out.bytes()
    }

    /// Makes it the checkpoint of its revision; answers its bytes.
    pub(super) fn finish(mut self, files: &dyn Files) -> io::Result<u64> {
        let end = self.out.bytes().to_le_bytes();
        let crc = chunk_crc(self.seed, self.chunks, FOOTER_MARK, &end);
        self.out.put(&FOOTER_MARK.to_le_bytes())?;
        self.out.put(&crc.to_le_bytes())?;
        self.out.put(&self.chunks.to_le_bytes())?;
        self.out.put(&end)?;
        let bytes = self.out.finish()?;
        files.rename(TEMPORARY, &name(self.at))?;
        files.sync_names()?;
        Ok(bytes)
    }
}

/// Gathers small writes and syncs now and then.
struct Writer {
    file: Box<dyn File>,
    buffer: Vec<u8>,
    flushed: u64,
    synced: u64,
}

impl Writer {
    fn new(file: Box<dyn File>) -> Self {
        Writer {
            file,
            buffer: Vec::with_capacity(WRITE_BYTES),
            flushed: 0,
            synced: 0,
        }
    }

    fn bytes(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = WRITE_BYTES - self.buffer.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == WRITE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.flushed)?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        if self.flushed - self.synced >= SYNC_BYTES {
            self.file.sync()?;
            self.synced = self.flushed;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        self.file.sync()?;
        Ok(self.flushed)
    }
}

/// Reads a checkpoint's header alone.
pub(super) fn peek(files: &dyn Files, name: &str) -> Result<Header, ReadError> {
    let mut bytes = [0; HEADER_BYTES];
    files.open(name)?.read_at(&mut bytes, 0)?;
    let (header, _) = Header::decode(&bytes)?;
    check_name(name, &header).map(|()| header)
}

fn check_name(name: &str, header: &Header) -> Result<(), ReadError> {
    if revision(name) == Some(header.at) {
        Ok(())
    } else {
        Err(ReadError::Damaged(0, "the header is of another revision"))
    }
}

/// Reads a checkpoint through, handing out each chunk and where it lies; answers header and bytes. Nothing may be
/// made of the chunks before this has answered.
pub(super) fn read(
    files: &dyn Files,
    name: &str,
    each: &mut dyn FnMut(Bytes, u64) -> Result<(), Error>,
) -> Result<(Header, u64), ReadError> {
    let file = files.open(name)?;
    let mut window = Window::new(&*file)?;
    let begin = window.view(0, HEADER_BYTES)?.unwrap_or_default();
    let (header, seed) = Header::decode(begin)?;
    check_name(name, &header)?;
    let mut offset = HEADER_BYTES as u64;
    let mut number = 0;
    loop {
        let short = ReadError::Damaged(offset, "the file ends before its footer");
        let Some(mut fields) = window.view(offset, CHUNK_HEADER_BYTES)? else {
            return Err(short);
        };
        let bytes = fields.get_u32_le();
        let crc = fields.get_u32_le();
        if bytes == FOOTER_MARK {
            let end = (seed, number, crc);
            return read_footer(&mut window, offset, end).map(|bytes| (header, bytes));
        }
        let count = usize::try_from(bytes).unwrap_or(usize::MAX);
        let Some(chunk) = window.view(offset + CHUNK_HEADER_BYTES as u64, count)? else {
            return Err(short);
        };
        if chunk_crc(seed, number, bytes, chunk) != crc {
            return Err(ReadError::Damaged(
                offset,
                "a chunk does not match its checksum",
            ));
        }
        let at = offset + CHUNK_HEADER_BYTES as u64;
        each(Bytes::copy_from_slice(chunk), at).map_err(ReadError::Sink)?;
        offset += (CHUNK_HEADER_BYTES + count) as u64;
        number += 1;
    }
}

fn read_footer(
    window: &mut Window<'_>,
    offset: u64,
    (seed, number, crc): (u32, u64, u32),
) -> Result<u64, ReadError> {
    let damaged = ReadError::Damaged(offset, "the footer does not match the file");
    let is_end = window.bytes() == offset + FOOTER_BYTES as u64;
    let expected = chunk_crc(seed, number, FOOTER_MARK, &offset.to_le_bytes());
    let Some(fields) = window.view(offset, FOOTER_BYTES)? else {
        return Err(damaged);
    };
    let (_, mut counts) = fields.split_at(CHUNK_HEADER_BYTES);
    let is_right = counts.get_u64_le() == number && counts.get_u64_le() == offset;
    if is_end && is_right && crc == expected {
        Ok(offset + FOOTER_BYTES as u64)
    } else {
        Err(damaged)
    }
}
