//! In which order a revision changed its keys, where that is not the order of the keys.
//!
//! The index knows which keys a revision changed, not which came first. Most revisions change one
//! key, and leases, range deletes and sorted writers change theirs in key order, so an order is
//! kept only for the rest. Its form is the place of each change's key among the revision's sorted
//! keys:
//!
//! ```text
//! made     /c /a /b
//! sorted   /a /b /c
//! places    2  0  1
//! ```
//!
//! A running store has the order in its log of changes; this is how a checkpoint carries it over to the
//! next process. What is replayed comes as it was made.

use std::collections::BTreeMap;

use crate::Revision;

/// The places of keys in the order made; `None` when that is key order.
pub(crate) fn places(keys: &[&[u8]]) -> Option<Vec<usize>> {
    if keys.is_sorted() {
        return None;
    }
    let mut by_key: Vec<(&[u8], usize)> = keys.iter().copied().zip(0..).collect();
    by_key.sort_unstable();
    let made = by_key.iter().map(|(_, made)| *made);
    let mut by_made: Vec<(usize, usize)> = made.zip(0..).collect();
    by_made.sort_unstable();
    Some(by_made.into_iter().map(|(_, place)| place).collect())
}

/// Puts what is in key order into the order made; `None` when the places are not its own.
pub(crate) fn arrange<T>(sorted: impl Iterator<Item = T>, places: &[usize]) -> Option<Vec<T>> {
    let mut left: Vec<Option<T>> = sorted.map(Some).collect();
    if left.len() != places.len() {
        return None;
    }
    let take = |place: &usize| left.get_mut(*place)?.take();
    places.iter().map(take).collect()
}

/// The orders met in a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    known: BTreeMap<Revision, Vec<usize>>,
}

impl Orders {
    /// Takes what a checkpoint says.
    pub(crate) fn learn(&mut self, revision: Revision, places: Vec<usize>) {
        self.known.insert(revision, places);
    }

    /// The places of a revision's changes; `None` when they were made in key order, or come from the
    /// log, as they were made.
    pub(crate) fn of(&self, revision: Revision) -> Option<&[usize]> {
        self.known.get(&revision).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_sorted_comes_back_as_made(
            made in Just((0u8..20).collect::<Vec<_>>()).prop_shuffle(),
            count in 0usize..20,
        ) {
            let keys: Vec<[u8; 1]> = made.iter().take(count).map(|key| [*key]).collect();
            let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let mut sorted = slices.clone();
            sorted.sort_unstable();
            match places(&slices) {
                None => assert_eq!(sorted, slices),
                Some(places) => {
                    assert_ne!(sorted, slices);
                    assert_eq!(arrange(sorted.into_iter(), &places), Some(slices));
                }
            }
        }
    }

    #[test]
    fn places_that_are_not_its_own_are_refused() {
        for places in [&[0, 1][..], &[0, 1, 1], &[0, 1, 3], &[0, 1, 2, 3]] {
            assert_eq!(arrange("abc".chars(), places), None, "{places:?}");
        }
    }
}
