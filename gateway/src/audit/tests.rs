//! Events become lines, lines become files, and a full queue loses events and nothing else.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Uri};
use serde_json::Value;

use super::*;
use crate::context::RequestId;
use crate::identity::UserInfo;
use crate::request::RequestInfo;

fn event(uri: &'static str) -> Event {
    let info = RequestInfo::parse(&Method::GET, &Uri::from_static(uri), &HeaderMap::new()).unwrap();
    Event {
        stage: EventStage::Complete,
        id: RequestId(7),
        received: Duration::new(1_790_000_000, 123_456_789),
        took: Duration::from_millis(2),
        head_took: Duration::from_micros(1500),
        info: Some(info),
        raw: None,
        user: Some(Arc::new(UserInfo {
            name: "bob".into(),
            ..UserInfo::default()
        })),
        impersonator: Some(Arc::new(UserInfo {
            name: "jane".into(),
            ..UserInfo::default()
        })),
        source: "192.0.2.7:999".parse().unwrap(),
        user_agent: Some("kubectl/v1".parse().unwrap()),
        code: 200,
        sent: 42,
        taken: 0,
        broken: false,
        facts: Facts {
            rule: Some("noisy".into()),
            attempts: 2,
            ..Facts::default()
        },
    }
}

fn file(dir: &std::path::Path, bytes_max: u64, backups_max: usize) -> Box<dyn Sink> {
    let options = FileOptions {
        path: dir.join("audit.log"),
        bytes_max,
        backups_max,
    };
    Box::new(FileSink::open(options).unwrap())
}

#[test]
fn an_event_reads_like_an_apiservers() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = spawn(vec![file(dir.path(), 1 << 20, 2)]).unwrap();
    recorder.event(event("/apis/apps/v1/namespaces/ns/deployments/d/scale?x=1"));
    recorder.flush(Duration::from_secs(10));
    let text = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
    let line: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(line["verb"], "get");
    assert_eq!(
        line["requestURI"],
        "/apis/apps/v1/namespaces/ns/deployments/d/scale?x=1"
    );
    assert_eq!(line["objectRef"]["resource"], "deployments");
    assert_eq!(line["objectRef"]["subresource"], "scale");
    assert_eq!(line["objectRef"]["apiGroup"], "apps");
    assert_eq!(line["user"]["username"], "jane");
    assert_eq!(line["impersonatedUser"]["username"], "bob");
    assert_eq!(line["sourceIPs"][0], "192.0.2.7");
    assert_eq!(
        line["requestReceivedTimestamp"],
        "2026-09-21T14:13:20.123456Z"
    );
    assert_eq!(line["annotations"]["sluice.io/rule"], "noisy");
    assert_eq!(line["annotations"]["sluice.io/attempts"], "2");
}

#[test]
fn a_file_is_rotated_and_old_ones_go() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = spawn(vec![file(dir.path(), 2000, 2)]).unwrap();
    for _ in 0..20 {
        recorder.event(event("/api/v1/pods"));
    }
    recorder.flush(Duration::from_secs(10));
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(names[2], "audit.log");
    for name in names {
        assert!(std::fs::metadata(dir.path().join(name)).unwrap().len() <= 2000);
    }
}

/// A sink that does not answer until it is let go.
struct Stuck(std::sync::mpsc::Receiver<()>);

impl Sink for Stuck {
    fn event(&mut self, _event: &Event) {
        // An error means that the test let go of it.
        let _ = self.0.recv();
    }
    fn admin(&mut self, _change: &AdminChange) {}
    fn flush(&mut self) {}
}

#[test]
fn a_stuck_disk_costs_events_and_never_waits() {
    let (release, stuck) = std::sync::mpsc::channel();
    let recorder = spawn(vec![Box::new(Stuck(stuck))]).unwrap();
    let one = event("/api/v1/pods");
    for _ in 0..40_000 {
        recorder.event(one.clone());
    }
    let dropped = recorder.dropped();
    assert!(
        (40_000 - 32_770..=40_000 - 32_768).contains(&dropped),
        "{dropped}"
    );
    drop(release);
}

#[test]
fn an_old_file_that_cannot_be_removed_costs_no_event() {
    let dir = tempfile::tempdir().unwrap();
    // A folder by the name of a rotated file cannot be removed as one.
    let obstacle = dir.path().join("audit-2020-01-01T00-00-00.000000.log");
    std::fs::create_dir(&obstacle).unwrap();
    let recorder = spawn(vec![file(dir.path(), 2000, 0)]).unwrap();
    for _ in 0..20 {
        recorder.event(event("/api/v1/pods"));
    }
    recorder.flush(Duration::from_secs(10));
    assert_eq!(recorder.dropped(), 0);
    let text = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
    assert!(text.ends_with("}\n"), "the file is still written");
    assert!(obstacle.exists());
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(files, 2, "the others are removed");
}

#[test]
fn events_that_a_full_disk_refuses_are_counted() {
    let options = FileOptions {
        path: "/dev/full".into(),
        bytes_max: 1 << 30,
        backups_max: 2,
    };
    let recorder = spawn(vec![Box::new(FileSink::open(options).unwrap())]).unwrap();
    for _ in 0..3 {
        recorder.event(event("/api/v1/pods"));
    }
    recorder.flush(Duration::from_secs(10));
    // The second time the writer has told of the first.
    recorder.flush(Duration::from_secs(10));
    assert_eq!(recorder.dropped(), 3);
}

#[test]
fn the_end_does_not_wait_for_a_stuck_disk_with_a_full_queue() {
    let (release, stuck) = std::sync::mpsc::channel();
    let recorder = spawn(vec![Box::new(Stuck(stuck))]).unwrap();
    let one = event("/api/v1/pods");
    while recorder.dropped() == 0 {
        recorder.event(one.clone());
    }
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        recorder.flush(Duration::from_millis(50));
        // The test may have given up.
        let _ = done.send(());
    });
    ended.recv_timeout(Duration::from_secs(20)).unwrap();
    drop(release);
}

#[test]
fn long_uris_do_not_fill_the_memory_behind_a_stuck_disk() {
    let (release, stuck) = std::sync::mpsc::channel();
    let recorder = spawn(vec![Box::new(Stuck(stuck))]).unwrap();
    let uri: &'static str = format!("/api/v1/pods?x={}", "y".repeat(60_000)).leak();
    let long = event(uri);
    for _ in 0..2_000 {
        recorder.event(long.clone());
    }
    let kept = 2_000 - recorder.dropped();
    assert!((1_000..1_200).contains(&kept), "{kept}");
    drop(release);
}
