//! The ordered index: keys to the versions of each.

mod heads;
pub(crate) mod history;
pub(crate) mod tree;

pub(crate) use history::{History, Version};
pub(crate) use tree::{Builder, Keyed, Tree, Weigh};
