//! The gateway ends, and whoever has a tunnel through it is told so.

use std::time::Duration;

use bytes::Bytes;

use crate::commands::ECHO;
use crate::forwarded::{Echo, Forwarded, exchange};
use crate::session::Session;
use crate::stage::{POD, Stage};

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn an_end_says_why(stage: &mut Stage) {
    let echo = Echo::start().await;
    let content = Bytes::from_static(b"content");
    let mut sessions = Vec::new();
    for way in stage.protocols() {
        let mut session = Session::start(way.command(&ECHO));
        session.talk("before").await;
        let forwarded = Forwarded::start(way, &echo).await;
        let mut connection = forwarded.connect().await;
        exchange(&mut connection, &content).await;
        sessions.push((way.protocol, session, forwarded.session));
    }
    let way = &stage.protocols()[0];
    let mut followed = Session::start(way.command(&["logs", "-f", "--tail=1", POD]));
    let _ = followed.line().await;

    let process = stage.stack.gateway.process().unwrap();
    process.signal(rustix::process::Signal::TERM);
    for (protocol, session, forwarded) in sessions {
        let end = session.end().await;
        assert_eq!(end.code, Some(1), "{protocol:?}: none of the command's own");
        let why = end.errors.contains("the gateway is stopping");
        assert!(why, "{protocol:?}: {}", end.errors);
        let end = forwarded.end().await;
        assert_eq!(end.code, Some(1), "{protocol:?}");
        assert!(end.errors.contains("lost connection"), "{}", end.errors);
    }
    // There is no saying why in a log; it must not look whole, though.
    assert_eq!(followed.end().await.code, Some(1));
    let status = stage.stack.gateway.process().unwrap().wait_exit(LIMIT);
    assert_eq!(status.code(), Some(0));
}
