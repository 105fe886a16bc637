//! Read requests and their answers, as values.

use crate::{KeyRange, Record, Revision};

pub(crate) mod serve;

/// Which revision a read is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The newest visible one.
    #[default]
    Latest,
    /// Exactly this one; the compacted floor itself is still readable.
    Exactly(Revision),
}

/// How much of each record an answer carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Projection {
    /// Everything.
    #[default]
    Full,
    /// All but the value.
    KeysOnly,
    /// Nothing but the count.
    CountOnly,
}

/// A field to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// Key bytes.
    Key,
    /// Changes in this life.
    Version,
    /// Birth.
    Create,
    /// Last change.
    Mod,
    /// Value bytes.
    Value,
}

/// A sort order; without one, answers are in ascending key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// The field.
    pub by: SortBy,
    /// Greatest first.
    pub descending: bool,
}

/// A read of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The keys.
    pub range: KeyRange,
    /// The revision.
    pub at: At,
    /// The most records to answer; `None` is all of them.
    pub limit: Option<usize>,
    /// How much of each.
    pub projection: Projection,
    /// Another order than by ascending key.
    pub sort: Option<Sort>,
    /// Inclusive bounds on `mod_revision`: least, greatest.
    pub mod_bounds: (Option<Revision>, Option<Revision>),
    /// Inclusive bounds on `create_revision`: least, greatest.
    pub create_bounds: (Option<Revision>, Option<Revision>),
}

impl Range {
    /// A plain read of a range at the newest revision.
    #[must_use]
    pub fn of(range: KeyRange) -> Self {
        Range {
            range,
            at: At::Latest,
            limit: None,
            projection: Projection::Full,
            sort: None,
            mod_bounds: (None, None),
            create_bounds: (None, None),
        }
    }
}

/// What a read found.
#[derive(Clone, Debug, Default)]
pub struct RangeAnswer {
    /// The newest visible revision when the read was served, even for a read of an older one.
    pub revision: Revision,
    /// The records, empty for a count. For [`Projection::KeysOnly`] the caller leaves the value out.
    pub records: Vec<Record>,
    /// How many keys the range holds at that revision, whatever the limit.
    pub count: u64,
    /// Whether the limit cut the answer.
    pub more: bool,
}
