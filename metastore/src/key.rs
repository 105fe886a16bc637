//! Which keys a request speaks of, without magic empty values.

use bytes::Bytes;

/// A set of keys, contiguous in byte order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyRange {
    /// Exactly this key.
    Key(Bytes),
    /// From the first (inclusive) to the second (exclusive).
    Between(Bytes, Bytes),
    /// This key and all after it.
    From(Bytes),
    /// The whole store.
    All,
}

impl KeyRange {
    /// All keys that start with `prefix`; an empty prefix is the whole store.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        match prefix_end(prefix) {
            Some(end) => KeyRange::Between(Bytes::copy_from_slice(prefix), end),
            None if prefix.is_empty() => KeyRange::All,
            None => KeyRange::From(Bytes::copy_from_slice(prefix)),
        }
    }

    /// Whether `key` is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeyRange::Key(only) => only == key,
            KeyRange::Between(start, end) => start <= key && key < end.as_ref(),
            KeyRange::From(start) => start <= key,
            KeyRange::All => true,
        }
    }

    /// The first key the range could hold.
    #[must_use]
    pub fn start(&self) -> &[u8] {
        match self {
            KeyRange::Key(start) | KeyRange::Between(start, _) | KeyRange::From(start) => start,
            KeyRange::All => b"",
        }
    }

    /// The first key past the range, or `None` when it has no upper end. A single key's range ends
    /// just after it, which no borrowed slice can show: ask [`KeyRange::contains`] for those.
    #[must_use]
    pub fn end(&self) -> Option<&[u8]> {
        match self {
            KeyRange::Between(_, end) => Some(end),
            KeyRange::Key(_) | KeyRange::From(_) | KeyRange::All => None,
        }
    }
}

/// The least key greater than every key with this prefix: the last byte below 0xff, raised by one.
fn prefix_end(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte < 0xff)?;
    let mut end = prefix.get(..=last)?.to_vec();
    if let Some(byte) = end.last_mut() {
        *byte += 1;
    }
    Some(Bytes::from(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_covers_exactly_its_keys() {
        let range = KeyRange::prefix(b"/a/\xff");
        assert_eq!(range.end(), Some(b"/a0".as_ref()));
        assert!(range.contains(b"/a/\xffx"));
        assert!(!range.contains(b"/a/b"));
        assert_eq!(
            KeyRange::prefix(b"\xff"),
            KeyRange::From(Bytes::from_static(b"\xff"))
        );
        assert_eq!(KeyRange::prefix(b""), KeyRange::All);
    }
}
