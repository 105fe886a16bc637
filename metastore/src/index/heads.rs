//! Finding a key among the few of a node without reading them all from memory.
//!
//! Keys of a store share long prefixes and lie all over the heap, so comparing one costs a cache
//! miss or two. A node therefore notes how much all its keys share, and of each the eight bytes
//! after that, as one number: a search compares numbers that lie side by side and reads a key only
//! where the numbers are equal, which is nearly always the one searched for.

use std::cmp::Ordering;

/// The notes about the keys of one node, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heads {
    /// Bytes that all keys share, at least.
    common: usize,
    /// The eight bytes after those, big-endian, short ones filled with zeros.
    heads: Vec<u64>,
}

/// How a key stands to the shared bytes.
enum Probe {
    /// It is less or greater than all.
    Outside(Ordering),
    /// It has them too; this comes after.
    Head(u64),
}

impl Heads {
    /// Notes about keys in ascending order.
    pub(crate) fn of<'a>(keys: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        let first = keys.clone().next().unwrap_or_default();
        let last = keys.clone().last().unwrap_or_default();
        let pairs = first.iter().zip(last);
        let common = pairs.take_while(|(one, two)| one == two).count();
        Heads {
            common,
            heads: keys.map(|key| head(key, common)).collect(),
        }
    }

    /// Where `key` is, or would be; `at` gives the key noted at a place.
    pub(crate) fn search<'a>(
        &self,
        key: &[u8],
        at: impl Fn(usize) -> &'a [u8],
    ) -> Result<usize, usize> {
        if self.heads.is_empty() {
            return Err(0);
        }
        let head = match self.probe(key, at(0)) {
            Probe::Outside(Ordering::Less) => return Err(0),
            Probe::Outside(_) => return Err(self.heads.len()),
            Probe::Head(head) => head,
        };
        let mut least = self.heads.partition_point(|noted| *noted < head);
        let equal = self.heads.get(least..).unwrap_or_default();
        let mut past = least + equal.partition_point(|noted| *noted == head);
        while least < past {
            let middle = least.midpoint(past);
            match at(middle).cmp(key) {
                Ordering::Less => least = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => past = middle,
            }
        }
        Err(least)
    }

    /// Notes a key that was put at a place; `false` when it does not share what the others do, and
    /// the notes must be made anew.
    pub(crate) fn insert(&mut self, place: usize, key: &[u8], other: &[u8]) -> bool {
        match self.probe(key, other) {
            Probe::Head(head) if !self.heads.is_empty() => {
                self.heads.insert(place, head);
                true
            }
            _ => false,
        }
    }

    /// Forgets the key at a place.
    pub(crate) fn remove(&mut self, place: usize) {
        self.heads.remove(place);
    }

    fn probe(&self, key: &[u8], other: &[u8]) -> Probe {
        let shared = other.get(..self.common).unwrap_or(other);
        let start = key.get(..self.common).unwrap_or(key);
        match start.cmp(shared) {
            Ordering::Equal => Probe::Head(head(key, self.common)),
            outside => Probe::Outside(outside),
        }
    }
}

fn head(key: &[u8], common: usize) -> u64 {
    let rest = key.get(common..).unwrap_or_default();
    if let Some(eight) = rest.first_chunk::<8>() {
        return u64::from_be_bytes(*eight);
    }
    let mut filled = [0; 8];
    filled
        .iter_mut()
        .zip(rest)
        .for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(filled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        // Few letters, zero among them: many shared prefixes and equal heads.
        let part = |most| prop::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..most);
        (
            prop::sample::select(vec!["", "/registry/", "/registry/pods/x"]),
            part(12),
        )
            .prop_map(|(start, rest)| [start.as_bytes(), &rest].concat())
    }

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(
            keys in prop::collection::btree_set(key(), 0..20),
            probes in prop::collection::vec(key(), 20),
            added in key(),
        ) {
            let mut keys: Vec<Vec<u8>> = keys.into_iter().collect();
            let mut heads = Heads::of(keys.iter().map(Vec::as_slice));
            let check = |heads: &Heads, keys: &[Vec<u8>]| {
                for probe in keys.iter().chain(&probes) {
                    let given = heads.search(probe, |place| &keys[place]);
                    assert_eq!(given, keys.binary_search(probe));
                }
            };
            check(&heads, &keys);
            if let Err(place) = keys.binary_search(&added) {
                let other = keys.first().cloned().unwrap_or_default();
                let is_noted = heads.insert(place, &added, &other);
                keys.insert(place, added);
                if !is_noted {
                    heads = Heads::of(keys.iter().map(Vec::as_slice));
                }
                check(&heads, &keys);
                heads.remove(place);
                keys.remove(place);
                check(&heads, &keys);
            }
        }
    }
}
