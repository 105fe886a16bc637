//! Which events can concern a watcher at all, told by a number instead of by comparing keys.
//!
//! Keys are read as paths: a key's *family* is what it starts with up to its third slash (the
//! second segment's end, `/registry/pods/`). A watch whose keys are all of one family skips an
//! event of another by comparing two integers, skips a whole chunk by one bit, and is not even
//! woken for it. Keys of another form are families of their own: nothing here is needed for
//! correctness, a family only ever rules out what could not match.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

use crate::KeyRange;

/// Slots that families are spread over, as bits of a [`Mask`]: a cluster has some 70 built-in
/// resources, so most have a slot to themselves.
pub(crate) const SLOTS: usize = 128;

/// A set of slots.
pub(crate) type Mask = u128;

/// A family's number; equal for equal prefixes, and nearly always different otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family(u64);

impl Family {
    /// The family of one key.
    pub(crate) fn of(key: &[u8]) -> Self {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(key.get(..prefix_len(key)).unwrap_or(key));
        Family(hasher.finish())
    }

    /// The family of every key in the range, when there is but one.
    pub(crate) fn of_range(range: &KeyRange) -> Option<Self> {
        match range {
            KeyRange::Key(key) => Some(Family::of(key)),
            KeyRange::Between(start, end) => {
                let prefix = start.get(..prefix_len(start))?;
                if !prefix.ends_with(b"/") || slashes(prefix) < DEPTH {
                    return None;
                }
                let whole = KeyRange::prefix(prefix);
                let inside = whole.end().is_some_and(|least| end.as_ref() <= least);
                inside.then(|| Family::of(start))
            }
            KeyRange::From(_) | KeyRange::All => None,
        }
    }

    /// Its slot.
    pub(crate) fn slot(self) -> usize {
        usize::try_from(self.0 % (SLOTS as u64)).unwrap_or(0)
    }

    /// Its slot as a set.
    pub(crate) fn mask(self) -> Mask {
        1 << self.slot()
    }
}

/// Slashes that a family's prefix holds.
const DEPTH: usize = 3;

fn slashes(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'/').count()
}

/// Up to and with the third slash, or the whole key.
fn prefix_len(key: &[u8]) -> usize {
    let mut places = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    places.nth(DEPTH - 1).map_or(key.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_range_has_a_family_only_if_all_its_keys_do() {
        let pods = Some(Family::of(b"/registry/pods/a/x"));
        for prefix in ["/registry/pods/", "/registry/pods/a/", "/registry/pods/a"] {
            let range = KeyRange::prefix(prefix.as_bytes());
            assert_eq!(Family::of_range(&range), pods, "{prefix}");
        }
        for prefix in ["/registry/pods", "/registry/", "", "a", "/registry/pod"] {
            let range = KeyRange::prefix(prefix.as_bytes());
            assert_eq!(Family::of_range(&range), None, "{prefix}");
        }
        let wide = KeyRange::Between(
            Bytes::from_static(b"/registry/pods/"),
            Bytes::from_static(b"/registry/pods0z"),
        );
        assert_eq!(Family::of_range(&wide), None);
        let key = KeyRange::Key(Bytes::from_static(b"compact_rev_key"));
        assert_eq!(Family::of_range(&key), Some(Family::of(b"compact_rev_key")));
    }
}
