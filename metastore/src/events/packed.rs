//! Which keys the older revisions changed, in as few bytes as will do.
//!
//! Every change that can still be watched is remembered, which in a store that is seldom compacted
//! is one for each write: a handle or two each would weigh as much as a small value. So the keys of
//! some hundred changes lie in one piece of memory, each as what it has not in common with the one
//! before; whoever wants one unpacks them all. Neighbours are mostly of one kind and namespace.
//!
//! ```text
//! a change:  revision less the one before, varint | shared bytes, varint | rest, varint | the rest
//! ```

use bytes::Bytes;

use crate::Revision;
use crate::codec::{Reader, put_varint};

/// Changes with their keys, in the order given.
#[derive(Debug, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    count: usize,
    last: Revision,
    /// The newest key, which the next one is told by.
    key: Vec<u8>,
}

impl Packed {
    /// Adds a change of the newest revision or a newer one.
    pub(super) fn push(&mut self, revision: Revision, key: &[u8]) {
        let pairs = self.key.iter().zip(key);
        let shared = pairs.take_while(|(one, two)| one == two).count();
        let rest = key.get(shared..).unwrap_or_default();
        put_varint(&mut self.bytes, revision.get() - self.last.get());
        put_varint(&mut self.bytes, shared as u64);
        put_varint(&mut self.bytes, rest.len() as u64);
        self.bytes.extend_from_slice(rest);
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        self.last = revision;
        self.count += 1;
    }

    /// Gives back the room for more.
    pub(super) fn close(&mut self) {
        self.bytes.shrink_to_fit();
        self.key = Vec::new();
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The changes again; their keys are parts of one allocation.
    pub(super) fn unpack(&self) -> Vec<(Revision, Bytes)> {
        let mut keys = Vec::with_capacity(self.bytes.len() * 2);
        let mut spans = Vec::with_capacity(self.count);
        let mut reader = Reader::new(&self.bytes);
        let (mut revision, mut start) = (0, 0);
        for _ in 0..self.count {
            let Some((step, shared, rest)) = next(&mut reader) else {
                // It was packed here and nobody has changed it since.
                unreachable!("a packed change does not parse");
            };
            revision += step;
            let begin = keys.len();
            keys.extend_from_within(start..start + shared);
            keys.extend_from_slice(rest);
            spans.push((Revision::new(revision), begin..keys.len()));
            start = begin;
        }
        let keys = Bytes::from(keys);
        let slices = spans.into_iter().map(|(at, span)| (at, keys.slice(span)));
        slices.collect()
    }
}

fn next<'a>(reader: &mut Reader<'a>) -> Option<(u64, usize, &'a [u8])> {
    let step = reader.varint()?;
    let shared = usize::try_from(reader.varint()?).ok()?;
    Some((step, shared, reader.slice()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_packed_comes_back(
            changes in prop::collection::vec((0u64..300, "[ab/]{0,6}"), 0..50),
        ) {
            let mut packed = Packed::default();
            let mut revision = 0;
            let mut expected = Vec::new();
            for (step, key) in changes {
                revision += step;
                let at = Revision::new(revision);
                packed.push(at, key.as_bytes());
                expected.push((at, Bytes::from(key)));
            }
            prop_assert_eq!(packed.len(), expected.len());
            packed.close();
            prop_assert_eq!(packed.unpack(), expected);
        }
    }

    #[test]
    fn keys_of_a_kind_take_a_few_bytes() {
        let mut packed = Packed::default();
        for number in 0..512 {
            let key = format!("/registry/pods/ns-07/pod-{number:08}");
            packed.push(Revision::new(1000 + number), key.as_bytes());
        }
        assert!(packed.bytes.len() < 512 * 6, "{} bytes", packed.bytes.len());
    }
}
