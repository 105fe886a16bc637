//! The Kubernetes API served from the metastore, without an apiserver behind it.
//!
//! [`resource`] says which kinds there are, [`errors`] how they are refused.

pub mod errors;
pub mod merge;
pub mod resource;

mod builtin;

pub mod rbac;
