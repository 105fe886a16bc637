//! A value and where it was written, so that a fault found later can still point at it.

use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

/// A place in a file, counted from one; zero where the place is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl From<serde_saphyr::Location> for Position {
    fn from(location: serde_saphyr::Location) -> Self {
        Position {
            line: location.line(),
            column: location.column(),
        }
    }
}

/// A value with its place; two are equal when their values are.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// What was written.
    pub value: T,
    /// Where.
    pub at: Position,
}

impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> std::ops::Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<T>::deserialize(deserializer)?;
        Ok(Located {
            value: spanned.value,
            at: spanned.referenced.into(),
        })
    }
}

impl<T> Located<T> {
    /// A value that nobody wrote: a default.
    pub(crate) fn unwritten(value: T) -> Self {
        Located {
            value,
            at: Position::default(),
        }
    }
}

impl<T: Default> Default for Located<T> {
    fn default() -> Self {
        Located::unwritten(T::default())
    }
}
