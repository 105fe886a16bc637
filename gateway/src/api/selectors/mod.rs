//! Label and field selectors: read once per request, then asked of stored bytes.
//!
//! What they look at is read out of the stored JSON without building an object: metadata alone for
//! labels, single paths for fields. A selector is bounded by the length of a URI.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;

use sluice_metastore::KeyRange;

use super::errors;
use super::keys;
use super::meta::Peek;
use super::names;
use super::resource::ResourceKind;
use crate::status::Refusal;

/// Both selectors of a request.
#[derive(Clone, Debug, Default)]
pub struct Selectors {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selectors {
    /// Reads a request's selectors for one kind.
    ///
    /// # Errors
    /// 400 for one that cannot be read, or names a field that the kind cannot be selected by.
    pub fn parse(kind: &ResourceKind, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels = LabelSelector::parse(labels)
            .map_err(|why| errors::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = FieldSelector::parse(kind, fields).map_err(errors::bad_request)?;
        Ok(Selectors { labels, fields })
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The keys that can hold selected objects, out of those of `namespace` (empty: of all).
    #[must_use]
    pub fn range(&self, kind: &ResourceKind, namespace: &str) -> KeyRange {
        let scope = match self.fields.required("metadata.namespace") {
            Some(only) if namespace.is_empty() && names::is_path_segment(only) => only,
            _ => namespace,
        };
        match self.fields.required("metadata.name") {
            Some(name) if !kind.is_namespaced() || !scope.is_empty() => {
                KeyRange::Key(keys::object(kind, scope, name))
            }
            _ => keys::range(&keys::prefix_in(kind, scope)),
        }
    }

    /// Whether a stored object is selected; `place` is its namespace and name. A value that this
    /// API did not write is not.
    #[must_use]
    pub fn select(&self, place: (&str, &str), stored: &[u8]) -> bool {
        if !self.fields.select(place, stored) {
            return false;
        }
        if self.labels.is_empty() {
            return true;
        }
        Peek::of(stored).is_some_and(|peek| {
            let label = |key: &str| peek.labels.get(key).map(|value| value.0.as_ref());
            self.labels.select(label)
        })
    }
}
