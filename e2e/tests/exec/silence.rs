//! Tunnels and streams on which nothing passes for longer than any request may wait, while the
//! gateway's files are read again and again.

use std::time::Duration;

use bytes::Bytes;

use crate::commands::ECHO;
use crate::forwarded::{Echo, Forwarded, Log, exchange};
use crate::session::Session;
use crate::stage::{POD, Stage};

/// What a request of this cluster may wait for.
const HEAD_MAX: &str = "  timeouts: { connect: 2s, head: 3s }\n";

/// More than twice that; there is no event to wait for when nothing is to happen.
const SILENCE: Duration = Duration::from_secs(7);

async fn reload(stage: &Stage, text: &str) {
    std::fs::write(stage.stack.rules.join("cluster.yaml"), text).unwrap();
    let admin = &stage.stack.gateway.admin;
    let answer = admin.once("POST", "/admin/v1/reload", "").await.unwrap();
    assert!(answer.status.is_success(), "{}", answer.json());
}

pub(crate) async fn silence_and_reloads_end_nothing(stage: &Stage) {
    let before = std::fs::read_to_string(stage.stack.rules.join("cluster.yaml")).unwrap();
    let short = format!("{before}{HEAD_MAX}");
    reload(stage, &short).await;
    let echo = Echo::start().await;
    let content = Bytes::from_static(b"content");
    let mut log = Log::of(stage);
    let mut sessions = Vec::new();
    for way in stage.protocols() {
        let mut session = Session::start(way.command(&ECHO));
        session.talk("before").await;
        let forwarded = Forwarded::start(way, &echo).await;
        let mut connection = forwarded.connect().await;
        exchange(&mut connection, &content).await;
        sessions.push((session, forwarded, connection));
    }
    let way = &stage.protocols()[0];
    let mut followed = Session::start(way.command(&["logs", "-f", "--tail=1", POD]));
    let last = followed.line().await;

    reload(stage, &short.replace("2s", "1s")).await;
    tokio::time::sleep(SILENCE / 2).await;
    reload(stage, &short).await;
    tokio::time::sleep(SILENCE).await;

    for (session, forwarded, connection) in &mut sessions {
        session.talk("after").await;
        exchange(connection, &content).await;
        exchange(&mut forwarded.connect().await, &content).await;
    }
    log.add("after");
    let mut line = followed.line().await;
    while line.starts_with("line ") || line == last {
        line = followed.line().await;
    }
    assert_eq!(line, "after");
    for (mut session, ..) in sessions {
        session.close();
        let end = session.end().await;
        assert_eq!(end.code, Some(0), "{}", end.errors);
    }
    reload(stage, &before).await;
}
