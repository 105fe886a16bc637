//! A whole control plane that knows nothing but the gateway: a controller manager, a scheduler and
//! 50 nodes reach real kube-apiservers through it alone, and go on while those are killed.
//!
//! Kubeconfigs name the gateway, certificates and tokens are the cluster's own, and the gateway's
//! user has no right but those that `docs/identity.md` names. The gate runs the first test; those
//! of `long.rs` run where `SLUICE_PLANE_SECONDS` says how long (`make conformance PART=plane`).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod audit;
mod cluster;
mod kept;
mod kubelets;
mod long;
mod rounds;

use sluice_e2e::parts::Parts;

use crate::cluster::{Cluster, Form};

/// What a cluster is made of; an etcd where the store is none of ours.
const PARTS: [&str; 7] = [
    "kube-apiserver",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "informer",
    "etcd",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_control_plane_lives_behind_the_gateway() {
    let Some(parts) = Parts::find(&PARTS) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&parts, home.path(), &Form::default()).await;
    // The same one twice: the other's watch caches know the past, so that nobody has to list anew.
    let lists = rounds::all(&mut cluster, &[0, 0]).await;
    assert_eq!(lists, 0, "lists that informers had to make anew");
}
