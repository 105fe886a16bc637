//! The wire form of protobuf messages, field by field, without a schema.

/// Kubernetes' envelope begins so.
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'b> {
    /// A number, a boolean.
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'b [u8]),
    /// Of a fixed width; nothing of Kubernetes' that is read here has one.
    Fixed,
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    /// The next field and its number; `Some(None)` is the end, `None` is no message.
    pub(crate) fn field(&mut self) -> Option<Option<(u64, Content<'b>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let content = match tag & 7 {
            0 => Content::Number(self.varint()?),
            1 => {
                self.take(8)?;
                Content::Fixed
            }
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Content::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Content::Fixed
            }
            _ => return None,
        };
        Some(Some((tag >> 3, content)))
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

/// What an envelope says and holds: `apiVersion`, `kind`, the message.
pub(crate) fn open(bytes: &[u8]) -> Option<(String, String, &[u8])> {
    let mut envelope = Reader(bytes.strip_prefix(MAGIC)?);
    let (mut version, mut kind, mut raw) = (String::new(), String::new(), [].as_slice());
    while let Some((number, content)) = envelope.field()? {
        match (number, content) {
            (1, Content::Bytes(types)) => {
                let mut types = Reader(types);
                while let Some((number, content)) = types.field()? {
                    let Content::Bytes(text) = content else {
                        continue;
                    };
                    let text = std::str::from_utf8(text).ok()?.to_owned();
                    match number {
                        1 => version = text,
                        2 => kind = text,
                        _ => {}
                    }
                }
            }
            (2, Content::Bytes(message)) => raw = message,
            _ => {}
        }
    }
    Some((version, kind, raw))
}
