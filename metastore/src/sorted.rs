//! The keys of a checkpoint on their way into a state.
//!
//! They come in order, each with its versions from the oldest on, so that the index is made from
//! its leaves up and no key is looked for. What comes in another order is damage that no checksum
//! shows, and is refused: an index out of order would answer anything.

use crate::Error;
use crate::codec::Entry;
use crate::engine::Place;
use crate::index::{Builder, History, Keyed, Version};
use crate::state::State;
use crate::{LeaseId, Record};

/// The index of a checkpoint, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    keys: Builder<History>,
    /// The key whose versions are being read.
    open: Option<History>,
}

impl Sorted {
    /// Takes the next entry of a checkpoint, whose version lies at `place`.
    ///
    /// # Errors
    /// `Corrupt` when a key comes after a greater one.
    pub(crate) fn take(
        &mut self,
        state: &mut State,
        entry: Entry<'_>,
        place: Option<Place>,
    ) -> Result<(), Error> {
        let version = match entry {
            Entry::Put(fields) => Version::Put(state.keep(&fields, place)),
            Entry::Delete { key, revision } => Version::Tombstone(Record::tombstone(key, revision)),
            other => {
                state.load(other);
                return Ok(());
            }
        };
        state.bytes += version.bytes();
        let Some(open) = &mut self.open else {
            self.open = Some(History::new(version));
            return Ok(());
        };
        match open.key().cmp(version.key()) {
            std::cmp::Ordering::Equal => open.push(version),
            std::cmp::Ordering::Less => {
                let done = std::mem::replace(open, History::new(version));
                self.end(state, done);
            }
            std::cmp::Ordering::Greater => {
                return Err(Error::Corrupt {
                    reason: format!(
                        "key {} comes after {} in a checkpoint; restore from a backup",
                        version.key().escape_ascii(),
                        open.key().escape_ascii()
                    ),
                });
            }
        }
        Ok(())
    }

    fn end(&mut self, state: &mut State, done: History) {
        let lease = done.live().map_or(LeaseId::NONE, |kept| kept.lease());
        state.attach(lease, done.key());
        self.keys.push(done);
    }

    /// Gives the state its keys; there were none in it.
    pub(crate) fn finish(mut self, state: &mut State) {
        if let Some(last) = self.open.take() {
            self.end(state, last);
        }
        state.index = self.keys.finish();
    }
}
