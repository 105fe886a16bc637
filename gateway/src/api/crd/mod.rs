//! Custom resource definitions: what they say, whether they may be stored, and the kinds they make.
//!
//! ```text
//!   write of a definition -- admit: check, default, status --> store
//!                                                               | followed by
//!   registry of kinds, columns, schemas <-- Definitions --------+
//!                                                | marked for deletion
//!                                                +--> cleanup: instances first, then itself
//! ```
//! A definition is established in the same write that stores it, so a client that is answered finds
//! its kind served. Versions differ by `apiVersion` alone: a conversion webhook is refused. Of a
//! schema are enforced types, required fields, enumerations, bounds and lengths, with pruning and
//! defaults ([`schema`]); `pattern`, `format`, combinators (`allOf`, `anyOf`, `oneOf`, `not`) and
//! validation rules in CEL are stored and shown but not enforced.

mod admit;
mod cleanup;
mod definition;
pub mod schema;
mod view;

#[cfg(test)]
mod tests;

pub use definition::Definition;
pub use view::Definitions;

/// The group of definitions.
pub const GROUP: &str = "apiextensions.k8s.io";
/// Their plural.
pub const PLURAL: &str = "customresourcedefinitions";
/// What holds a definition until its instances are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
