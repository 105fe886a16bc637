//! A moving view of a file, so that recovery reads big pieces and holds one at a time.

use std::io;

use super::files::File;

/// What one read asks for: large enough that system calls do not count, small beside a segment.
const WINDOW_BYTES: usize = 1 << 20;

/// A view of `file`; as large as the largest thing looked at.
pub(super) struct Window<'a> {
    file: &'a dyn File,
    /// Length of the file when the view began.
    bytes: u64,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    start: u64,
}

impl<'a> Window<'a> {
    pub(super) fn new(file: &'a dyn File) -> io::Result<Self> {
        Ok(Window {
            file,
            bytes: file.len()?,
            buffer: Vec::new(),
            start: 0,
        })
    }

    /// Length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The `count` bytes at `offset`; `None` when the file does not go that far.
    pub(super) fn view(&mut self, offset: u64, count: usize) -> io::Result<Option<&[u8]>> {
        let end = offset.checked_add(count as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Ok(None);
        }
        if !self.holds(offset, count) {
            let left = usize::try_from(self.bytes - offset).unwrap_or(usize::MAX);
            self.buffer.resize(left.min(count.max(WINDOW_BYTES)), 0);
            self.start = offset;
            let filled = self.file.read_at(&mut self.buffer, offset)?;
            self.buffer.truncate(filled);
        }
        let skip = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        Ok(self.buffer.get(skip..).and_then(|rest| rest.get(..count)))
    }

    fn holds(&self, offset: u64, count: usize) -> bool {
        let end = self.start + self.buffer.len() as u64;
        offset >= self.start && offset + count as u64 <= end
    }
}
