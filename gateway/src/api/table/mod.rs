//! Other shapes of an object than the object itself: rows of a `Table` for people, and bare
//! metadata for caches.
//!
//! [`negotiate()`] reads which shape a client wants, [`columns`] says what a kind's rows show,
//! [`render`] makes the bytes from stored objects, which are handed in as raw JSON.
//! Metadata is copied as it stands; only the cells of a table look into an object. Ages are those
//! at the moment given. Nothing is kept.

mod age;
mod cells;
pub mod columns;
pub mod jsonpath;
pub mod negotiate;
mod pods;
pub mod render;

pub use columns::Columns;
pub use negotiate::{Include, MetaVersion, Output, Shape, include_object, negotiate};
pub use render::{
    Head, Style, render_list, render_partial, render_partial_list, render_watch_object,
};
