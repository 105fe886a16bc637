//! Frames out of bytes that come as they come, and header blocks into frames.
//!
//! A frame that comes whole is handed on where it lies; of one that does not, what has come is kept
//! until it has. Bound: one frame.

use bytes::{Buf as _, Bytes};

use super::frames::{self, CONTENT_MAX, Fatal, HEAD_BYTES, Head};

/// What a frame holds.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    /// It lies in what was read.
    Here(&'a [u8]),
    /// It was put together, and can be kept without a copy.
    Own(Bytes),
}

impl Content<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Content::Here(bytes) => bytes,
            Content::Own(bytes) => bytes,
        }
    }
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    carry: Vec<u8>,
}

impl Pieces {
    /// Takes the next frame off `bytes`; `None` when it has not come whole, and `bytes` is empty.
    pub(crate) fn next<'a>(
        &mut self,
        bytes: &mut &'a [u8],
    ) -> Result<Option<(Head, Content<'a>)>, Fatal> {
        if self.carry.is_empty() {
            let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
                self.carry.extend_from_slice(bytes);
                *bytes = &[];
                return Ok(None);
            };
            let (head, length) = sized(*head)?;
            let whole = bytes.split_at_checked(HEAD_BYTES + length);
            if let Some((frame, rest)) = whole {
                *bytes = rest;
                let content = frame.get(HEAD_BYTES..).unwrap_or_default();
                return Ok(Some((head, Content::Here(content))));
            }
            self.carry.reserve_exact(HEAD_BYTES + length);
            self.carry.extend_from_slice(bytes);
            *bytes = &[];
            return Ok(None);
        }
        self.fill(bytes, HEAD_BYTES);
        let Some(head) = self.carry.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let (head, length) = sized(*head)?;
        let whole = HEAD_BYTES + length;
        self.carry.reserve_exact(whole - self.carry.len());
        self.fill(bytes, whole);
        if self.carry.len() < whole {
            return Ok(None);
        }
        let mut content = Bytes::from(std::mem::take(&mut self.carry));
        content.advance(HEAD_BYTES);
        Ok(Some((head, Content::Own(content))))
    }

    /// Until there are `length` bytes.
    fn fill(&mut self, bytes: &mut &[u8], length: usize) {
        let wanted = length.saturating_sub(self.carry.len()).min(bytes.len());
        let (piece, rest) = bytes.split_at(wanted);
        self.carry.extend_from_slice(piece);
        *bytes = rest;
    }
}

fn sized(head: [u8; HEAD_BYTES]) -> Result<(Head, usize), Fatal> {
    let head = Head::read(head);
    let length = usize::try_from(head.length).unwrap_or(usize::MAX);
    if length > CONTENT_MAX {
        return Err(Fatal::size("a frame that is too large"));
    }
    Ok((head, length))
}

/// Ends a header block that begins at `start`, behind room for a frame's head: its length is known
/// now, and what is more than a frame goes into others.
pub(crate) fn finish_block(out: &mut Vec<u8>, start: usize, stream: u32, flags: u8) {
    let length = out.len() - start - HEAD_BYTES;
    if length <= CONTENT_MAX {
        let [_, a, b, c] = u32::try_from(length).unwrap_or_default().to_be_bytes();
        let [s, t, u, v] = stream.to_be_bytes();
        let flags = flags | frames::END_HEADERS;
        let head = [a, b, c, frames::HEADERS, flags, s, t, u, v];
        if let Some(place) = out.get_mut(start..start + HEAD_BYTES) {
            place.copy_from_slice(&head);
        }
        return;
    }
    let block = out.split_off(start + HEAD_BYTES);
    out.truncate(start);
    let (mut kind, mut flags) = (frames::HEADERS, flags);
    let mut pieces = block.chunks(CONTENT_MAX).peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            flags |= frames::END_HEADERS;
        }
        frames::write(out, kind, flags, stream, piece);
        (kind, flags) = (frames::CONTINUATION, 0);
    }
}
