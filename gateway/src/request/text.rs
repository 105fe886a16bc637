//! Pieces of a URI, kept as places in it, so that reading one request allocates nothing.

/// A half-open range of bytes. The `http` crate bounds a URI at 65,534 bytes, so `u16` holds it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    start: u16,
    end: u16,
}

impl Span {
    /// `None` beyond what a URI can be.
    pub(super) fn new(start: usize, end: usize) -> Option<Self> {
        Some(Span {
            start: u16::try_from(start).ok()?,
            end: u16::try_from(end).ok()?,
        })
    }

    /// The piece of `text`; empty when `text` is not what the span was made of.
    pub(super) fn of(self, text: &str) -> &str {
        text.get(usize::from(self.start)..usize::from(self.end))
            .unwrap_or_default()
    }
}

/// A value of the query: absent, as it stands, or decoded.
#[derive(Clone, Debug, Default)]
pub(super) enum Text {
    /// Not given.
    #[default]
    Absent,
    /// These bytes of the raw query.
    Raw(Span),
    /// Percent-decoding changed it.
    Owned(Box<str>),
}

impl Text {
    /// The value, empty when absent.
    pub(super) fn of<'a>(&'a self, query: &'a str) -> &'a str {
        match self {
            Text::Absent => "",
            Text::Raw(span) => span.of(query),
            Text::Owned(text) => text,
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Text::Absent)
    }
}

/// Percent-decodes; `None` where an escape is not two hex digits. With `plus`, "+" is a space, as
/// in queries. The bytes need not be UTF-8.
pub(super) fn percent_decode(raw: &str, plus: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let high = hex(bytes.next()?)?;
                let low = hex(bytes.next()?)?;
                out.push((high << 4) | low);
            }
            b'+' if plus => out.push(b' '),
            other => out.push(other),
        }
    }
    Some(out)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
