//! What an apiserver asks of its store beside objects: leases for events, compaction, and a version
//! that says what the store can do.

use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};
use sluice_e2e::plane::Plane;
use sluice_e2e::process::eventually;
use sluice_e2e::workload::make;

use crate::{COMPACTION, EVENT_TTL, LIMIT};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Long after the lease's own time: expiry is looked for about once a second, and machines are slow.
const EXPIRY_MAX: Duration = Duration::from_secs(30);

/// Writes what will be compacted in the end; answers its resource version.
pub(crate) async fn begin(plane: &Plane) -> String {
    let direct = &plane.apiservers[0].direct;
    let object = json!({"metadata": {"name": "old"}, "data": {"a": "first"}});
    let made = make(direct, CONFIGMAPS, &object).await;
    let old = made["metadata"]["resourceVersion"].as_str().unwrap();
    // At first the revision can be read exactly as it was.
    assert_eq!(exactly(plane, old).await.0, 200);
    old.to_owned()
}

/// The list as it was at a version, by the other apiserver.
async fn exactly(plane: &Plane, version: &str) -> (u16, Value) {
    let path = format!("{CONFIGMAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    let answer = plane.apiservers[1].direct.once("GET", &path, "").await;
    let answer = answer.unwrap();
    (answer.status.as_u16(), answer.json())
}

/// A key as etcdctl shows it, if it is there.
fn key(plane: &Plane, name: &str) -> Option<Value> {
    let said = plane.etcdctl(&["get", name, "-w=json"]);
    let all: Value = serde_json::from_str(&said).unwrap();
    all["kvs"].get(0).cloned()
}

pub(crate) async fn events_go_with_their_lease(plane: &Plane) {
    let direct = &plane.apiservers[0].direct;
    let event = json!({"metadata": {"name": "seen"}, "reason": "Tested", "type": "Normal",
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "old"}});
    let path = "/api/v1/namespaces/default/events";
    // The lease is granted before the event is written and answered.
    let asked = Instant::now();
    make(direct, path, &event).await;
    let stored = key(plane, "/registry/events/default/seen").expect("the event is stored");
    let lease = stored["lease"].as_i64().unwrap_or_default();
    assert_ne!(lease, 0, "{stored}");
    let path = format!("{path}/seen");
    eventually("the event to be gone", EVENT_TTL + EXPIRY_MAX, || async {
        let answer = direct.once("GET", &path, "").await;
        let status = answer.map_err(|e| e.to_string())?.status;
        (status == 404).then_some(()).ok_or(status.to_string())
    })
    .await;
    let lived = asked.elapsed();
    println!("an event of {EVENT_TTL:?} was gone after {lived:?}");
    assert!(lived >= EVENT_TTL, "gone after {lived:?}");
    assert_eq!(key(plane, "/registry/events/default/seen"), None);
    let said = plane.etcdctl(&["lease", "timetolive", &format!("{lease:x}")]);
    assert!(said.contains("already expired"), "{said}");
}

/// The apiservers claim a compaction in turn and make it; below it they say what clients relist on.
pub(crate) async fn old_revisions_are_compacted(plane: &Plane, old: &str) {
    let old: f64 = old.parse().unwrap();
    let floor = || plane.store_metric("etcd_debugging_mvcc_compact_revision");
    eventually("the old version to be compacted", LIMIT, || async {
        let now = floor().await;
        (now > old).then_some(()).ok_or(format!("compacted: {now}"))
    })
    .await;
    let claim = || {
        let record = key(plane, "compact_rev_key").expect("the record of compactions");
        let text = record["value"].as_str().unwrap().to_owned();
        let text = base64::engine::general_purpose::STANDARD.decode(text);
        let at: u64 = String::from_utf8(text.unwrap()).unwrap().parse().unwrap();
        (record["version"].as_u64().unwrap(), at)
    };
    let first = claim();
    eventually("the next compaction", LIMIT, || async {
        let now = claim();
        (now.0 > first.0 && now.1 > first.1)
            .then_some(())
            .ok_or(format!("{now:?} after {first:?}"))
    })
    .await;
    let (claims, at) = claim();
    println!("{claims} claims with {COMPACTION:?} between, compacted up to {at}");
    eventually("the compaction that was claimed", LIMIT, || async {
        let now = floor().await;
        (now >= at as f64).then_some(()).ok_or(format!("{now}"))
    })
    .await;
    // Snapshots of its own an apiserver gives up when it hears of the compaction, each 15 s.
    for version in [format!("{old}"), (at - 1).to_string()] {
        eventually("an old version to be refused", LIMIT, || async {
            let (status, said) = exactly(plane, &version).await;
            let refused = status == 410 && said["reason"] == "Expired";
            refused.then_some(()).ok_or(format!("{version}: {status}"))
        })
        .await;
    }
}

/// From this minor version on an apiserver lists by a stream where the store can.
const STREAMS_SINCE: u32 = 37;

/// Lists come by RangeStream from the version on that asks for it, and from no older one.
pub(crate) async fn lists_come_by_a_stream_where_asked(plane: &Plane) {
    let direct = &plane.apiservers[0].direct;
    let version = direct.once("GET", "/version", "").await.unwrap().json();
    let minor: u32 = version["minor"].as_str().unwrap().parse().unwrap();
    let streams = plane.store_metric("sluice_etcd_range_streams_total").await;
    println!("{}: {streams} lists by a stream", version["gitVersion"]);
    assert_eq!(streams > 0.0, minor >= STREAMS_SINCE, "{streams} streams");
}

/// No apiserver found the store wanting, and nothing panicked.
pub(crate) fn logs_are_clean(plane: &Plane) {
    let mut faults = Vec::new();
    for apiserver in &plane.apiservers {
        let log = std::fs::read_to_string(apiserver.log()).unwrap();
        // How every apiserver begins, so that an empty log is no clean one.
        assert!(log.contains("Serving securely"), "{log}");
        let bad = ["not supported", "panic", "data inconsistency", "DATA RACE"];
        let lines = log
            .lines()
            .filter(|line| bad.iter().any(|b| line.contains(b)));
        faults.extend(lines.map(str::to_owned));
    }
    let store = std::fs::read_to_string(plane.dir.join("store.log")).unwrap();
    // Nobody was refused, and a client that leaves before it begins is not worth a line.
    let bad = ["panic", "refused an etcd client"];
    let lines = store
        .lines()
        .filter(|line| bad.iter().any(|b| line.contains(b)));
    faults.extend(lines.map(str::to_owned));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
