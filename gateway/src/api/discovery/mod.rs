//! Which groups, versions and kinds are served, as clients ask for it: list by list, or everything
//! in one aggregated answer.

mod aggregated;
mod groups;
mod legacy;

#[cfg(test)]
mod tests;

pub(crate) use aggregated::{Version, aggregated};
pub(crate) use legacy::{legacy, root};
