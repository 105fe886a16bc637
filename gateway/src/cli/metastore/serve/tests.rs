//! Command lines as unit files have them, to what is served.

use std::time::Duration;

use clap::{Args as _, Command, FromArgMatches as _};
use sluice_metastore::compactor::Retention;

use super::*;

fn parse(args: &[&str]) -> ServeArgs {
    let command = ServeArgs::augment_args(Command::new("serve"));
    let given = std::iter::once("serve").chain(args.iter().copied());
    let matches = command
        .try_get_matches_from(given)
        .unwrap_or_else(|e| panic!("{args:?}: {e}"));
    ServeArgs::from_arg_matches(&matches).unwrap()
}

fn lowered(args: &[&str]) -> Result<ServeSpec, String> {
    lower(parse(args))
}

/// What kubeadm 1.33 writes, and 1.34 after it, word for word but for the addresses.
#[test]
fn the_command_of_a_kubeadm_etcd_is_taken_as_it_is() {
    let common = [
        "--advertise-client-urls=https://10.0.0.4:2379",
        "--cert-file=/etc/kubernetes/pki/etcd/server.crt",
        "--client-cert-auth=true",
        "--data-dir=/var/lib/etcd",
        "--initial-advertise-peer-urls=https://10.0.0.4:2380",
        "--initial-cluster=node=https://10.0.0.4:2380",
        "--key-file=/etc/kubernetes/pki/etcd/server.key",
        "--listen-client-urls=https://127.0.0.1:2379,https://10.0.0.4:2379",
        "--listen-metrics-urls=http://127.0.0.1:2381",
        "--listen-peer-urls=https://10.0.0.4:2380",
        "--name=node",
        "--peer-cert-file=/etc/kubernetes/pki/etcd/peer.crt",
        "--peer-client-cert-auth=true",
        "--peer-key-file=/etc/kubernetes/pki/etcd/peer.key",
        "--peer-trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
        "--snapshot-count=10000",
        "--trusted-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
    ];
    let older = [
        "--experimental-initial-corrupt-check=true",
        "--experimental-watch-progress-notify-interval=5s",
    ];
    let newer = [
        "--feature-gates=InitialCorruptCheck=true",
        "--watch-progress-notify-interval=5s",
    ];
    for version in [older, newer] {
        let args: Vec<&str> = common.into_iter().chain(version).collect();
        let parsed = parse(&args);
        let idle = parsed.foreign.explain().unwrap();
        assert_eq!(idle.len(), 7, "{idle:?}");
        let spec = lower(parsed).unwrap();
        let ports = |only_http| {
            let sockets = spec.etcd.sockets.iter();
            let sockets = sockets.filter(|socket| socket.only_http == only_http);
            sockets
                .map(|socket| (socket.address.to_string(), socket.is_plain))
                .collect::<Vec<_>>()
        };
        let clients = ["127.0.0.1:2379", "10.0.0.4:2379"];
        assert_eq!(
            ports(false),
            clients.map(|address| (address.to_owned(), false))
        );
        assert_eq!(ports(true), [("127.0.0.1:2381".to_owned(), true)]);
        assert_eq!(spec.store.dir, PathBuf::from("/var/lib/etcd"));
        assert_eq!(spec.store.quota_bytes, QUOTA_BYTES);
        assert_eq!(spec.etcd.name, "node");
        assert_eq!(spec.etcd.progress_interval, Duration::from_secs(5));
        assert_eq!(spec.etcd.advertise_urls, ["https://10.0.0.4:2379"]);
        let tls = spec.etcd.tls.unwrap();
        assert!(tls.client_ca_file.is_some() && tls.versions == TlsVersions::Both);
    }
}

#[test]
fn switches_stand_alone_or_with_a_value() {
    let spec = lowered(&[
        "--strict-reconfig-check",
        "--snapshot-count",
        "5000",
        "--quota-backend-bytes=-1",
        "--auto-compaction-retention=1000",
        "--auto-compaction-mode=revision",
        "--max-txn-ops=64",
        "--max-request-bytes=1024",
        "--grpc-keepalive-interval=0",
        "--watch-progress-notify-interval=0s",
    ])
    .unwrap();
    assert_eq!(spec.store.quota_bytes, u64::MAX);
    assert_eq!(spec.store.dir, PathBuf::from("default.etcd"));
    assert_eq!(spec.retention, Some(Retention::Revisions(1000)));
    assert_eq!((spec.etcd.txn_ops_max, spec.store.txn_ops_max), (64, 64));
    assert_eq!(spec.store.request_bytes_max, 1024);
    assert_eq!(spec.etcd.keepalive_interval, None);
    assert_eq!(spec.etcd.progress_interval, Duration::from_mins(10));
    let off = parse(&["--enable-pprof=false", "--auto-tls=false"]);
    assert_eq!(off.foreign.explain(), Ok(vec![]), "off is as if not given");
}

#[test]
fn what_cannot_be_served_is_said_with_what_to_write() {
    let https = "--listen-client-urls=https://127.0.0.1:1";
    for (args, part) in [
        (
            &["--initial-cluster=a=http://x:1,b=http://y:1"][..],
            "names 2 members (a, b)",
        ),
        (&[https], "needs --cert-file"),
        (&["--cert-file=c", "--key-file=k"], "no URL is https://"),
        (&["--client-cert-auth"], "no URL is https://"),
        (
            &[https, "--cert-file=c", "--key-file=k", "--client-cert-auth"],
            "needs --trusted-ca-file",
        ),
        (
            &[
                "--auto-compaction-mode=revision",
                "--auto-compaction-retention=5m",
            ],
            "whole number",
        ),
        (&["--name="], "--name is empty"),
        (&["--break-glass-reason=x"], "may write already"),
        (&["--access-writers=a", "--break-glass-reason= "], "say why"),
    ] {
        let fault = lowered(args)
            .err()
            .unwrap_or_else(|| panic!("{args:?} is taken"));
        assert!(fault.contains(part), "{args:?}: {fault}");
    }
    for (flag, part) in [
        ("--auto-tls", "give --cert-file"),
        ("--config-file=x", "as a flag"),
        ("--discovery-srv=x", "one member"),
    ] {
        let fault = parse(&[flag]).foreign.explain().unwrap_err();
        assert!(fault.contains(part), "{fault}");
    }
}

#[test]
fn access_is_by_name_and_glass_has_an_end() {
    let spec = lowered(&[
        "--access-writers=kube-apiserver-etcd-client,root",
        "--access-readers=backup",
        "--break-glass-reason=the CA was lost",
        "--break-glass-until=2026-11-30T12:00:00Z",
    ])
    .unwrap();
    let access = spec.etcd.access.unwrap();
    assert_eq!(access.writers.len(), 2);
    assert!(access.readers.contains("backup"));
    let glass = access.break_glass.unwrap();
    assert_eq!(glass.reason, "the CA was lost");
    let seconds = glass.until.unwrap().duration_since(std::time::UNIX_EPOCH);
    assert_eq!(seconds.unwrap().as_secs(), 1_796_040_000);
    assert!(lowered(&[]).unwrap().etcd.access.is_none());
}
