//! From what operators write to the plain values that the live parts take, one file a kind.
//!
//! Every struct is taken apart field by field, so that a key which is accepted and then forgotten
//! does not compile.

mod clients;
mod cluster;
mod process;
mod rate;

pub(super) use clients::{AuthnPlan, FrontProxiesPlan, IssuerPlan, KeysPlan, TokensPlan};
pub(super) use cluster::{ClusterPlan, lower_cluster};
pub(super) use process::{TlsPlan, lower_admin, lower_api, lower_listen};
pub(super) use rate::lower_rates;

#[cfg(test)]
mod tests;
