//! Reads a header block, field by field.

use bytes::Bytes;

use super::huffman;
use super::table::{Entry, Field, Table};

/// What a peer may have remembered: the protocol's beginning, and we never announce another.
const TABLE_BYTES: usize = 4096;

/// Bytes of a number: what needs more is none of any use.
const NUMBER_BYTES_MAX: u32 = 5;

/// The block cannot be read, and nothing after it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadBlock {
    /// It ends within a field.
    Cut,
    /// A number too large.
    Number,
    /// A place in the tables that is empty.
    Index,
    /// A text that was not encoded.
    Huffman,
    /// A table larger than we keep, or one resized within a block.
    Resize,
    /// Whoever takes the fields has had enough.
    Enough,
}

/// One connection's reader.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        let table = Table::new(TABLE_BYTES);
        Decoder { table }
    }

    /// Hands each field and its size to `take`, until that answers no.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        mut take: impl FnMut(&Field, usize) -> bool,
    ) -> Result<(), BadBlock> {
        let mut rest = Rest(block);
        let mut may_resize = true;
        while let Some(&first) = rest.0.first() {
            if first & 0xe0 == 0x20 {
                let size = rest.number(5)?;
                if !may_resize || size > TABLE_BYTES {
                    return Err(BadBlock::Resize);
                }
                self.table.resize(size);
                continue;
            }
            may_resize = false;
            let goes_on = if first & 0x80 != 0 {
                let index = rest.number(7)?;
                let entry = self.table.get(index).ok_or(BadBlock::Index)?;
                take(&entry.field, entry.size)
            } else if first & 0x40 != 0 {
                let entry = self.literal(&mut rest, 6)?;
                let goes_on = take(&entry.field, entry.size);
                self.table.insert(entry);
                goes_on
            } else {
                let mut entry = self.literal(&mut rest, 4)?;
                if first & 0x10 != 0 {
                    entry.keep_secret();
                }
                take(&entry.field, entry.size)
            };
            if !goes_on {
                return Err(BadBlock::Enough);
            }
        }
        Ok(())
    }

    fn literal(&self, rest: &mut Rest<'_>, prefix: u32) -> Result<Entry, BadBlock> {
        match rest.number(prefix)? {
            0 => {
                let name = rest.text()?;
                Ok(Entry::new(&name, rest.text()?))
            }
            index => {
                let value = rest.text()?;
                let known = self.table.get(index).ok_or(BadBlock::Index)?;
                Ok(known.with(value))
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn table_size(&self) -> usize {
        self.table.size()
    }
}

/// What is left of a block.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn byte(&mut self) -> Result<u8, BadBlock> {
        let (&byte, rest) = self.0.split_first().ok_or(BadBlock::Cut)?;
        self.0 = rest;
        Ok(byte)
    }

    /// RFC 7541, section 5.1.
    fn number(&mut self, prefix: u32) -> Result<usize, BadBlock> {
        let mask = (1_usize << prefix) - 1;
        let mut number = usize::from(self.byte()?) & mask;
        if number < mask {
            return Ok(number);
        }
        for place in 0..NUMBER_BYTES_MAX - 1 {
            let byte = self.byte()?;
            number += usize::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(BadBlock::Number)
    }

    /// RFC 7541, section 5.2.
    fn text(&mut self) -> Result<Bytes, BadBlock> {
        let is_coded = self.0.first().ok_or(BadBlock::Cut)? & 0x80 != 0;
        let length = self.number(7)?;
        let (raw, rest) = self.0.split_at_checked(length).ok_or(BadBlock::Cut)?;
        self.0 = rest;
        if !is_coded {
            return Ok(Bytes::copy_from_slice(raw));
        }
        let mut text = Vec::new();
        huffman::decode(raw, &mut text).map_err(|_| BadBlock::Huffman)?;
        Ok(Bytes::from(text))
    }
}
