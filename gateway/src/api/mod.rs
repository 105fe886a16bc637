//! The Kubernetes API served from the metastore, without an apiserver behind it.
//!
//! [`resource`] says which kinds there are, [`errors`] how they are refused. [`server`] takes a
//! request, asks [`rbac`] whether it may be, and hands it to what answers: objects go through
//! `serve` to [`storage`], questions to [`reviews`], and [`documents`] describe the API. Custom
//! kinds come from [`crd`].

pub mod bootstrap;
pub mod crd;
pub mod documents;
pub mod errors;
pub mod keys;
pub mod merge;
pub mod meta;
pub mod names;
pub mod object;
pub mod rbac;
pub mod resource;
pub mod reviews;
pub mod seek;
pub mod selectors;
pub mod server;
pub mod storage;
pub mod table;
pub mod version;
pub mod view;

mod builtin;
mod compact;
mod discovery;
mod follow;
mod namespaces;
mod openapi;
mod protobuf;
mod serve;

pub use server::{ApiOptions, ApiServer};

#[cfg(test)]
mod tests;
