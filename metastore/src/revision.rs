//! The store's global counter: one value for each effective write transaction.
//!
//! A fresh store stands at revision 1 and its first write is revision 2, as etcd's clients expect.

use std::fmt;

/// A point in the store's history; ordered, dense, never negative and never derived from time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// Before all history; a compacted floor of zero means nothing was compacted.
    pub const ZERO: Revision = Revision(0);
    /// Where a fresh store stands.
    pub const FIRST: Revision = Revision(1);
    /// The greatest revision the wire's signed 64-bit field can carry.
    pub const MAX: Revision = Revision(i64::MAX as u64);

    /// Makes a revision from its number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Revision(number)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as the wire carries it; revisions stay far below the signed limit.
    #[must_use]
    pub fn to_wire(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }

    /// Reads a wire field, in which zero and negatives mean "not given".
    #[must_use]
    pub fn from_wire(field: i64) -> Option<Self> {
        u64::try_from(field).ok().filter(|n| *n > 0).map(Revision)
    }

    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Revision(self.0.saturating_add(1))
    }

    /// The revision before this one; zero stays zero.
    #[must_use]
    pub const fn prev(self) -> Self {
        Revision(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
