//! What a list will weigh, by what the last one of its kind weighed.
//!
//! A list of all pods costs an apiserver what thousands of gets do, so that a number of requests
//! says little of a load. Kinds are hashes in a table of fixed size without locks: a kind that
//! loses its place is unknown again, and counts as any request until its next answer.

use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds remembered: resources times namespaces that are really listed, in 16 KiB.
const KINDS_MAX: usize = 2048;

/// A list of so many bytes is one request's work more.
const BYTES_OF_ONE: u64 = 64 * 1024;

/// The most that one list counts: 256 MiB.
const COST_MAX: u64 = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Estimates {
    /// A kind's upper half, and the KiB of its last answer.
    slots: Box<[AtomicU64]>,
}

impl Default for Estimates {
    fn default() -> Self {
        Estimates {
            slots: (0..KINDS_MAX).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Estimates {
    /// The work of a request of that kind; one where nothing is known.
    pub(crate) fn cost(&self, kind: u64) -> u64 {
        let Some(slot) = self.slot(kind) else {
            return 1;
        };
        let known = slot.load(Ordering::Relaxed);
        if known >> 32 != kind >> 32 {
            return 1;
        }
        let bytes = (known & 0xffff_ffff) * 1024;
        (1 + bytes / BYTES_OF_ONE).min(COST_MAX)
    }

    /// Takes note of a whole answer.
    pub(crate) fn note(&self, kind: u64, bytes: u64) {
        if let Some(slot) = self.slot(kind) {
            let kib = (bytes / 1024).min(0xffff_ffff);
            let now = (kind >> 32 << 32) | kib;
            if slot.load(Ordering::Relaxed) != now {
                slot.store(now, Ordering::Relaxed);
            }
        }
    }

    fn slot(&self, kind: u64) -> Option<&AtomicU64> {
        if kind == 0 {
            return None;
        }
        let place = kind % (KINDS_MAX as u64);
        self.slots.get(usize::try_from(place).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_cost_what_the_last_of_their_kind_did() {
        let estimates = Estimates::default();
        let (pods, nodes) = (7 << 40 | 9, 8 << 40 | 9);
        assert_eq!(estimates.cost(pods), 1);
        estimates.note(pods, 640 * 1024 + 5);
        assert_eq!(estimates.cost(pods), 11);
        assert_eq!(estimates.cost(nodes), 1, "the same place, another kind");
        estimates.note(nodes, u64::MAX);
        assert_eq!(estimates.cost(nodes), 4096);
        assert_eq!(estimates.cost(pods), 1, "pushed out");
        estimates.note(0, 1 << 30);
        assert_eq!(estimates.cost(0), 1, "no list");
    }
}
