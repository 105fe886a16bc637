//! The Kubernetes API served from the metastore, without an apiserver behind it.
//!
//! [`resource`] says which kinds there are, [`errors`] how they are refused.

pub mod errors;
pub mod keys;
pub mod merge;
pub mod meta;
pub mod names;
pub mod object;
pub mod resource;
pub mod seek;
pub mod selectors;
pub mod server;
pub mod storage;
pub mod view;

mod compact;
mod namespaces;
mod serve;

mod builtin;

pub mod rbac;
pub mod table;

pub use server::{ApiOptions, ApiServer};

#[cfg(test)]
mod tests;
