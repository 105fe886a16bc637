//! One binary takes over from another under load: no connection is refused, no request fails,
//! watches end whole and go on at the new one; one that fails leaves the old one serving.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sluice_e2e::kubectl::Credential;
use sluice_e2e::lines::Lines;
use sluice_e2e::load::{Ask, Load};
use sluice_e2e::parts::Parts;
use sluice_e2e::process::{Process, eventually};
use sluice_e2e::site::Site;
use sluice_e2e::sluice::Gateway;
use sluice_e2e::stack::{Stack, StackOptions};

use crate::upstream::{Behind, QUICK, WATCH};

const LIMIT: Duration = Duration::from_secs(60);

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Waits until a log has a line with this text, and says the line.
async fn logged(process: &Process, text: &str) -> String {
    let log = process.log.clone();
    let found = || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        let line = log.lines().rev().find(|line| line.contains(text));
        line.map(str::to_owned)
    };
    eventually(&format!("{text:?} in the log"), LIMIT, || async {
        found().map(drop).ok_or_else(|| "not yet".to_owned())
    })
    .await;
    found().unwrap()
}

/// Has the next process take over, and waits until the old one is gone.
async fn take_over(gateway: &mut Gateway) {
    let next = gateway.successor();
    let mut old = gateway.replace(next).unwrap();
    let status = old.wait_exit(LIMIT);
    assert_eq!(status.code(), Some(0), "{}", old.log_tail(20));
    gateway.ready().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_takes_over_and_nobody_notices() {
    let behind = Behind::of("upgradeSocket: upgrade.sock\n").await;
    let site = &behind.site;
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    let mut watch = Lines::open(&site.user(), WATCH).await.unwrap();
    assert_eq!(watch.event().await.1, "a");
    let load = Load::start(&site.user(), QUICK);
    load.more(50).await;

    take_over(&mut gateway).await;
    assert_eq!(
        watch.next().await.unwrap(),
        None,
        "ended between two events"
    );
    let mut watch = Lines::open(&site.user(), WATCH).await.unwrap();
    assert_eq!(watch.event().await.1, "a");
    load.more(50).await;

    // One that fails with the sockets in its hands changes nothing.
    let cluster = std::fs::read_to_string(site.path("rules/main.yaml")).unwrap();
    std::fs::create_dir(site.path("broken")).unwrap();
    site.write("broken.crt", "no certificate");
    let own = format!("caFile: {}", site.path("own.crt").display());
    site.write(
        "broken/main.yaml",
        &cluster.replace(&own, "caFile: ../broken.crt"),
    );
    let text = std::fs::read_to_string(site.path("sluice.yaml")).unwrap();
    site.write(
        "broken.yaml",
        &text.replace("rulesDir: rules", "rulesDir: broken"),
    );
    let mut broken = gateway.successor_with(&site.path("broken.yaml"));
    assert_eq!(broken.wait_exit(LIMIT).code(), Some(1));
    logged(gateway.process().unwrap(), "went away before it was ready").await;
    behind.event();
    assert_eq!(watch.event().await.1, "a", "the watch goes on");
    load.more(50).await;

    // By signal: the process starts the next one itself.
    let process = gateway.process().unwrap();
    process.signal(Signal::USR2);
    let line = logged(gateway.process().unwrap(), "started the next process").await;
    let number = line.rsplit("process=").next().unwrap();
    let number: i32 = number.trim().parse().unwrap_or_else(|_| panic!("{line}"));
    let next = Stray(Pid::from_raw(number).unwrap());
    let status = gateway.process().unwrap().wait_exit(LIMIT);
    assert_eq!(status.code(), Some(0));
    gateway.ready().await;
    load.more(50).await;
    load.end("three processes, one after the other").await;
    drop(next);
}

/// A process that was not started here.
struct Stray(Pid);

impl Drop for Stray {
    fn drop(&mut self) {
        // An error means that it is gone already.
        let _ = kill_process(self.0, Signal::KILL);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_directory_changes_hands_and_no_request_fails() {
    let site = Site::make();
    let text = site.all_in_one();
    site.write(
        "sluice.yaml",
        &format!("{text}upgradeSocket: upgrade.sock\n"),
    );
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    let reads = Load::start(&site.user(), CONFIGMAPS);
    let writes = Load::asking(&site.user(), 2, |number| Ask {
        method: "POST",
        path: CONFIGMAPS.to_owned(),
        body: format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"n{number}"}}}}"#
        ),
    });
    writes.more(20).await;
    let mut versions = Vec::new();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion=1");
    let mut watch = Lines::open(&site.user(), &path).await.unwrap();
    versions.push(watch.event().await.2);

    let began = Instant::now();
    take_over(&mut gateway).await;
    println!("taken over within {:?}", began.elapsed());
    let rest = rest_of(&mut watch).await;
    versions.extend(rest);

    // One that gets the directory and cannot use it gives it back.
    site.write("data-is-a-file", "");
    let broken = format!("{text}upgradeSocket: upgrade.sock\n");
    site.write(
        "broken.yaml",
        &broken.replace("dataDir: data", "dataDir: data-is-a-file"),
    );
    let mut broken = gateway.successor_with(&site.path("broken.yaml"));
    assert_eq!(broken.wait_exit(LIMIT).code(), Some(1));
    logged(gateway.process().unwrap(), "this one serves on").await;
    writes.more(20).await;
    reads.more(20).await;

    let made = writes.end("writes while the directory changes hands").await;
    reads.end("reads while the directory changes hands").await;
    // From where the watch ended, all that was made is seen once.
    let last = versions.last().unwrap();
    let path = format!("{CONFIGMAPS}?watch=1&resourceVersion={last}");
    let mut watch = Lines::open(&site.user(), &path).await.unwrap();
    while versions.len() < made {
        versions.push(watch.event().await.2);
    }
    assert!(versions.is_sorted_by(|a, b| a < b), "in order, each once");
    let listed = site.user().once("GET", CONFIGMAPS, "").await.unwrap();
    assert_eq!(listed.json()["items"].as_array().unwrap().len(), made);
}

/// The versions of the events that are left; the watch has to end whole.
async fn rest_of(watch: &mut Lines) -> Vec<u64> {
    let mut versions = Vec::new();
    while let Some(line) = watch.next().await.unwrap() {
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_ne!(event["type"], "ERROR", "{line}");
        if event["type"] != "BOOKMARK" {
            let version = event["object"]["metadata"]["resourceVersion"].as_str();
            versions.push(version.unwrap().parse().unwrap());
        }
    }
    versions
}

/// A real kube-apiserver stores in the process that is replaced, and is reached through it.
#[tokio::test(flavor = "multi_thread")]
async fn an_apiserver_on_the_store_notices_nothing() {
    let Some(parts) = Parts::find(&["kube-apiserver", "kubectl"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let options = StackOptions {
        apiservers: 1,
        ..StackOptions::default()
    };
    let mut stack = Stack::new(&parts, dir.path(), &options);
    let config = dir.path().join("sluice.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}upgradeSocket: upgrade.sock\n")).unwrap();
    stack.start().await;
    let admin = stack.admin();
    let reads = Load::asking(&admin, 2, |_| Ask {
        method: "GET",
        path: CONFIGMAPS.to_owned(),
        body: String::new(),
    });
    let writes = Load::asking(&admin, 2, |number| Ask {
        method: "POST",
        path: CONFIGMAPS.to_owned(),
        body: format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"n{number}"}}}}"#
        ),
    });
    writes.more(20).await;
    for _ in 0..2 {
        take_over(&mut stack.gateway).await;
        writes.more(20).await;
        reads.more(20).await;
    }
    let made = writes.end("writes through an apiserver").await;
    reads.end("reads through an apiserver").await;
    let kubectl = stack.kubectl(&parts, "admin", &Credential::Certificate(&stack.pki.admin));
    let names = kubectl.ok(&["get", "configmaps", "-o=name"]);
    let count = names.lines().filter(|name| name.contains("/n")).count();
    assert_eq!(count, made);
}
