//! Commands in a pod: what they say, how they end, and what they are told.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::session::{Session, run};
use crate::stage::{POD, Protocol, Stage};

/// What a session runs: says each line again.
pub(crate) const ECHO: [&str; 7] = [
    "exec",
    "-i",
    POD,
    "--",
    "sh",
    "-c",
    r#"while read -r line; do echo "heard $line"; done"#,
];

/// More than any window or buffer on the way holds.
const BYTES: usize = 8 << 20;

/// Bytes that no mistake of order or place leaves as they are.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let blocks = (0_u64..).flat_map(|n| Sha256::digest(n.to_le_bytes()));
    blocks.take(bytes).collect()
}

pub(crate) async fn outputs_and_the_exit_code_come_back(stage: &Stage) {
    for way in &stage.ways {
        let script = "echo out; echo err >&2; exit 7";
        let command = way.command(&["exec", POD, "--", "sh", "-c", script]);
        let (code, out, err) = run(command, None).await;
        assert_eq!(
            (code, &out[..]),
            (Some(7), &b"out\n"[..]),
            "{}: {err}",
            way.name
        );
        assert!(
            err.starts_with("err\n") && err.contains("exit code 7"),
            "{}: {err}",
            way.name
        );
    }
}

pub(crate) async fn megabytes_pass_both_ways_to_the_end_of_the_input(stage: &Stage) {
    let sent = noise(BYTES);
    for way in stage.protocols() {
        let command = way.command(&["exec", "-i", POD, "--", "cat"]);
        let (code, out, err) = run(command, Some(sent.clone())).await;
        assert_eq!((code, err.as_str()), (Some(0), ""), "{}", way.name);
        assert_eq!(out.len(), sent.len(), "{}", way.name);
        assert!(
            Sha256::digest(&out) == Sha256::digest(&sent),
            "{}",
            way.name
        );
        // Nothing comes back before all of it is read, and the code comes after that.
        let command = way.command(&["exec", "-i", POD, "--", "sh", "-c", "sha256sum; exit 3"]);
        let (code, out, err) = run(command, Some(sent.clone())).await;
        assert_eq!(code, Some(3), "{}: {err}", way.name);
        let digest: String = Sha256::digest(&sent)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert!(out.starts_with(digest.as_bytes()), "{}", way.name);
    }
}

pub(crate) async fn whoever_attaches_is_heard(stage: &Stage) {
    for way in &stage.ways {
        let mut session = Session::start(way.command(&["attach", "-q", "-i", POD]));
        session.talk("one").await;
        session.talk("two").await;
        session.talk("bye").await;
        let end = session.end().await;
        assert_eq!(end.code, Some(0), "{}: {}", way.name, end.errors);
    }
}

/// Each of the tunnels above, by the verb that its protocol makes of it, and answered with 101.
pub(crate) fn the_audit_has_each_tunnel_once(stage: &Stage) {
    let text = std::fs::read_to_string(&stage.stack.audit).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for way in &stage.ways {
        let (user, verb) = match (way.name.ends_with("token"), way.protocol) {
            (true, Protocol::WebSocket) => ("alice", "get"),
            (true, Protocol::Spdy) => ("alice", "create"),
            (false, Protocol::WebSocket) => ("admin", "get"),
            (false, Protocol::Spdy) => ("admin", "create"),
        };
        let attached = events.iter().filter(|event| {
            event["verb"] == verb
                && event["user"]["username"] == user
                && event["objectRef"]["subresource"] == "attach"
                && event["responseStatus"]["code"] == 101
                && event["stage"] == "ResponseComplete"
        });
        assert_eq!(attached.count(), 1, "{}", way.name);
    }
}
