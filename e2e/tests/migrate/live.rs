//! Into a live etcd or Sluice, by its API: keys and values the same, revisions never going back.

use std::path::Path;

use bytes::Bytes;
use sluice_e2e::etcd::Etcd;
use sluice_e2e::parts::Parts;
use sluice_e2e::pki::Authority;
use sluice_metastore::etcd::client::mvccpb::KeyValue;
use sluice_metastore::import::{Import, Standing};
use sluice_metastore::{LeaseId, Record, Revision};

use crate::moving::{begin, migrate, path, serve, serve_with};
use crate::valve::Valve;
use crate::wire::{LEASE, TTL, Wire, fill};

/// A data directory with one key, at a high revision.
fn old(dir: &Path, revision: u64) {
    let at = Revision::new(revision);
    let standing = Standing {
        revision: at,
        compacted: at,
        next_lease: 1,
    };
    let mut import = Import::begin(dir, "test", standing).unwrap();
    let record = Record::new(b"/registry/old", b"v", at, at, 1, LeaseId::NONE);
    import.put(&record).unwrap();
    import.finish().unwrap();
}

fn pairs(kvs: &[KeyValue]) -> Vec<(Bytes, Bytes, i64)> {
    let pairs = kvs
        .iter()
        .map(|kv| (kv.key.clone(), kv.value.clone(), kv.lease));
    pairs.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_goes_into_an_etcd_prefix_by_prefix() {
    let Some(parts) = Parts::find(&["etcd"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut served = serve("source", &data).await;
    let source = Wire::connect(&served.url).await;
    let revision = fill(&source).await;
    let (all, _) = source.all().await;
    let leased = source.lease(LEASE).await.1;
    served.process.terminate(crate::moving::LIMIT);

    let etcd = Etcd::start(&parts, dir.path()).await;
    let target = Wire::connect(&etcd.url).await;
    target.put("/other/mine", "stays").await;
    let args = ["--data-dir", path(&data), "--to", &etcd.url];
    let some = [&args[..], &["--prefix", "/registry/", "--prefix", "\u{1}"]].concat();
    let moved = migrate(&some).await.done();
    assert!(
        moved.out.contains("on leases, compared one by one"),
        "{}",
        moved.out
    );
    let wanted: Vec<KeyValue> = all
        .iter()
        .filter(|kv| kv.key.starts_with(b"/registry/") || kv.key.starts_with(b"\x01"))
        .cloned()
        .collect();
    let (held, at) = target.all().await;
    assert!(at > revision, "{at} is not above the source's {revision}");
    let (others, held): (Vec<_>, Vec<_>) = held
        .into_iter()
        .partition(|kv| kv.key.starts_with(b"/other/"));
    assert_eq!(pairs(&held), pairs(&wanted));
    assert!(
        held.iter().all(|kv| kv.mod_revision > revision),
        "older than a client knows"
    );
    assert_eq!(others.len(), 1);
    let (left, keys) = target.lease(LEASE).await;
    assert_eq!(keys, leased);
    assert!(left > TTL - 120, "{left}");

    // What is there is not written over unasked.
    migrate(&some).await.refused("--overwrite");
    target.put("/registry/pods/2", "changed").await;
    target.put("/registry/zz", "not of the source").await;
    target.delete("/registry/a", "").await;
    let again = [&some[..], &["--overwrite"]].concat();
    let moved = migrate(&again).await.done();
    assert!(moved.err.contains("2 keys written"), "{}", moved.err);
    assert!(moved.err.contains("1 deleted"), "{}", moved.err);
    assert_eq!(
        pairs(&target.prefix("/registry/").await),
        pairs(&wanted)[1..]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_far_behind_is_raised_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let target = serve("target", &dir.path().join("target")).await;
    let far = dir.path().join("far");
    old(&far, 1_000_000);
    let moved = migrate(&["--data-dir", path(&far), "--to", &target.url]).await;
    moved.refused("--pad");
    moved.refused("999998 cheap writes");
    let near = dir.path().join("near");
    old(&near, 3000);
    let args = ["--data-dir", path(&near), "--to", &target.url];
    // The refused one left its mark.
    migrate(&args).await.refused("unfinished copy");
    let args = [&args[..], &["--overwrite"]].concat();
    migrate(&args).await.done();
    let (all, at) = Wire::connect(&target.url).await.all().await;
    assert_eq!(all.len(), 1, "nothing of the move's own is left");
    assert!(all[0].mod_revision > 3000 && at > 3000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_killed_goes_on_and_one_of_another_source_does_not() {
    let Some(parts) = Parts::find(&["etcd"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(&parts, dir.path()).await;
    let source = Wire::connect(&etcd.url).await;
    fill(&source).await;
    let target = serve("target", &dir.path().join("target")).await;
    let valve = Valve::new(&etcd.url, 300_000).await;
    let args = ["--from", &valve.url, "--to", &target.url];
    let mut moving = begin("moving", dir.path(), &args);
    valve.holds().await;
    moving.kill();
    // Meanwhile the source goes on, and forgets what was being read.
    source.delete("/registry/pods/0", "/registry/pods/2").await;
    let revision = source.put("/registry/pods/new", "one").await;
    source.compact(revision).await;
    let foreign = dir.path().join("foreign");
    old(&foreign, 5);
    let other = migrate(&["--data-dir", path(&foreign), "--to", &target.url]).await;
    other.refused("unfinished copy of everything");
    let args = ["--from", &etcd.url, "--to", &target.url, "--resume"];
    let moved = migrate(&args).await.done();
    assert!(moved.err.contains("going on"), "{}", moved.err);
    let target = Wire::connect(&target.url).await;
    let (all, at) = target.all().await;
    assert_eq!(pairs(&all), pairs(&source.all().await.0));
    assert!(at > revision);
    migrate(&args).await.refused("no unfinished copy");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sluice_goes_into_another_over_mutual_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (
        Authority::new(dir.path(), "one"),
        Authority::new(dir.path(), "two"),
    );
    let (first, second) = (one.issue("first", &[], &[]), two.issue("second", &[], &[]));
    let files = [
        &one.ca,
        &first.cert,
        &first.key,
        &two.ca,
        &second.cert,
        &second.key,
    ];
    let [ca1, cert1, key1, ca2, cert2, key2] = files.map(|file| path(file.as_path()));
    let tls = |ca, cert, key| {
        [
            ["--trusted-ca-file", ca],
            ["--cert-file", cert],
            ["--key-file", key],
        ]
        .concat()
    };
    let from = serve_with(
        "from",
        &dir.path().join("from"),
        &tls(ca1, cert1, key1),
        "https",
    )
    .await;
    let to = serve_with(
        "to",
        &dir.path().join("to"),
        &tls(ca2, cert2, key2),
        "https",
    )
    .await;
    let seed = dir.path().join("seed");
    old(&seed, 50);
    let both = ["--cacert", ca1, "--cert", cert1, "--key", key1];
    let seeded = ["--data-dir", path(&seed), "--to", &from.url];
    migrate(&[&seeded[..], &both].concat()).await.done();
    let args = ["--from", &from.url, "--to", &to.url];
    let wrong = migrate(&[&args[..], &both].concat()).await;
    wrong.refused("cannot reach the target");
    let own = ["--to-cacert", ca2, "--to-cert", cert2, "--to-key", key2];
    let moved = migrate(&[&args[..], &both, &own].concat()).await.done();
    assert!(moved.out.contains(": 1 keys"), "{}", moved.out);
    let same = migrate(&[&["--from", &from.url, "--to", &from.url][..], &both].concat()).await;
    same.refused("--overwrite");
    let args = ["--from", &from.url, "--to", &from.url, "--overwrite"];
    let same = migrate(&[&args[..], &both].concat()).await;
    same.refused("are the same store");
}
