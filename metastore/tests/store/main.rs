//! The store by its handle, over the memory engine.

mod acceptance;
mod common;
