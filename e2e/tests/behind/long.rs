//! The long tier: an apiserver killed each 20 seconds in turn, front proxies' headers, and
//! apiservers of two versions side by side. It runs where `SLUICE_PLANE_SECONDS` says for how long.

use std::time::Duration;

use sluice_e2e::parts::Parts;

use crate::cluster::{Cluster, Form};
use crate::{PARTS, rounds};

/// Apiservers may differ by one minor version while a cluster is upgraded; the others are of the
/// older one, since no client may be newer than an apiserver. Others by `SLUICE_PLANE_MIXED`.
const MIXED: &str = "1.35.4+1.36.2 1.36.2+1.37.2";
/// A round takes this long at least.
const ROUND: u64 = 20;

/// How long to go on; `None`, after saying so, in the gate.
fn length() -> Option<Duration> {
    let text = std::env::var("SLUICE_PLANE_SECONDS").ok();
    if text.is_none() {
        println!("SKIPPED: long; SLUICE_PLANE_SECONDS says for how long to run it");
    }
    text.map(|text| Duration::from_secs(text.parse().expect("a number of seconds")))
}

#[tokio::test(flavor = "multi_thread")]
async fn three_apiservers_are_killed_in_turn_each_20_seconds() {
    let Some((length, parts)) = length().zip(Parts::find(&PARTS)) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let form = Form {
        apiservers: 3,
        ..Form::default()
    };
    let mut cluster = Cluster::start(&parts, home.path(), &form).await;
    let kills = usize::try_from(length.as_secs() / ROUND).unwrap().max(3);
    let victims: Vec<usize> = (0..kills).map(|n| n % 3).collect();
    // One that is back for less than a minute may know less of the past than a client asks for:
    // some lists are made anew, and nothing is missed.
    rounds::all(&mut cluster, &victims).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_front_proxy_and_an_etcd_do_as_well() {
    let Some((_, parts)) = length().zip(Parts::find(&PARTS)) else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let form = Form {
        identity: "frontProxy",
        etcd: true,
        clients: "    serviceAccounts:\n      issuers: [\"https://kubernetes.default.svc\"]\n",
        ..Form::default()
    };
    let mut cluster = Cluster::start(&parts, home.path(), &form).await;
    let lists = rounds::all(&mut cluster, &[1, 1]).await;
    assert_eq!(lists, 0, "lists that informers had to make anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn apiservers_of_two_versions_serve_one_cluster() {
    if length().is_none() {
        return;
    }
    let pairs = std::env::var("SLUICE_PLANE_MIXED").unwrap_or(MIXED.to_owned());
    for pair in pairs.split_whitespace() {
        let (older, newer) = pair.split_once('+').expect("OLDER+NEWER");
        let own = &PARTS[..4];
        let (Some(rest), Some(of), Some(newer)) = (
            Parts::find(&PARTS[4..]),
            Parts::find_kubernetes(older, own),
            Parts::find_kubernetes(newer, &own[..1]),
        ) else {
            return;
        };
        println!("apiservers of {pair}");
        let parts = rest.with(of);
        let home = tempfile::tempdir().unwrap();
        let form = Form {
            newer: Some(&newer),
            ..Form::default()
        };
        let mut cluster = Cluster::start(&parts, home.path(), &form).await;
        let lists = rounds::all(&mut cluster, &[0, 0, 1, 1]).await;
        println!("{pair}: {lists} lists anew");
    }
}
