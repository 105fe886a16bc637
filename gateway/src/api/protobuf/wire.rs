//! The wire form of protobuf messages, field by field, and Kubernetes' envelope around them.
//!
//! Nothing is copied: what a field holds is a slice of the body.

use super::{Fault, TypeMeta};

/// The envelope begins so.
const MAGIC: &[u8] = b"k8s\0";

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'b> {
    /// An integer or a flag.
    Number(u64),
    /// Eight bytes: a float.
    Eight(u64),
    /// Four bytes; no field of ours has them.
    Four,
    /// A text, bytes, a message, or numbers packed.
    Bytes(&'b [u8]),
}

impl<'b> Content<'b> {
    pub(super) fn bytes(self) -> Result<&'b [u8], Fault> {
        match self {
            Content::Bytes(bytes) => Ok(bytes),
            _ => Err(Fault::message("wrong wire type")),
        }
    }

    pub(super) fn number(self) -> Result<u64, Fault> {
        match self {
            Content::Number(number) => Ok(number),
            _ => Err(Fault::message("wrong wire type")),
        }
    }

    pub(super) fn text(self) -> Result<&'b str, Fault> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Fault::message("a text is not UTF-8"))
    }
}

/// The fields of a message, each with its number, in the order of the wire. Ends after a fault.
#[derive(Clone, Debug)]
pub(super) struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    pub(super) fn new(message: &'b [u8]) -> Self {
        Fields(message)
    }

    fn field(&mut self) -> Option<(u64, Content<'b>)> {
        let tag = varint(&mut self.0)?;
        let content = match tag & 7 {
            0 => Content::Number(varint(&mut self.0)?),
            1 => Content::Eight(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                Content::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Content::Four
            }
            // Groups are of a time before Kubernetes.
            _ => return None,
        };
        Some((tag >> 3, content))
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = Result<(u64, Content<'b>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| Fault::message("a field is cut short or malformed")))
    }
}

/// Takes one number off the front; `None` when it is cut short or longer than 64 bits.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// What an envelope says of its object, and the object's message.
pub(super) fn open(bytes: &[u8]) -> Result<(TypeMeta<'_>, &[u8]), Fault> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or(Fault::Envelope)?;
    let (mut api_version, mut kind, mut raw) = ("", "", [].as_slice());
    for field in Fields::new(envelope) {
        match field? {
            (1, types) => {
                for field in Fields::new(types.bytes()?) {
                    match field? {
                        (1, text) => api_version = text.text()?,
                        (2, text) => kind = text.text()?,
                        _ => {}
                    }
                }
            }
            (2, message) => raw = message.bytes()?,
            _ => {}
        }
    }
    Ok((TypeMeta { api_version, kind }, raw))
}
