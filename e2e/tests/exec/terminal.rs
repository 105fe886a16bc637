//! A terminal in a pod, from a terminal of this machine.

use std::process::Command;

use sluice_e2e::process::eventually;
use std::time::Duration;

use crate::session::Session;
use crate::stage::{POD, Stage};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits for the client's size, and says the one it has from time to time; then for another one, then
/// to be interrupted.
const INNER: &str = r#"
trap 'echo interrupted; exit 5' INT
i=0; until [ "$(stty size)" = "33 77" ]; do i=$((i+1)); [ $((i % 100)) = 0 ] && echo "size $(stty size)"; sleep 0.05; done; echo first
until [ "$(stty size)" = "44 99" ]; do sleep 0.05; done; echo second
while :; do sleep 0.05; done"#;

pub(crate) async fn a_terminal_has_its_size_and_its_interrupt(stage: &Stage) {
    // Gives a command a terminal; of util-linux.
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("SKIPPED: a terminal, as `script` is not on this machine");
        return;
    }
    let inner = stage.path("inner.sh");
    std::fs::write(&inner, INNER).unwrap();
    for (n, way) in stage.protocols().iter().enumerate() {
        let resized = stage.path(&format!("resize-{n}"));
        // A shell cannot trap what was ignored when it began, as interrupts are by everything that
        // was started in the background: a gate may be.
        let shell = ["env", "--default-signal=INT", "sh"];
        let args = [
            &["exec", "-it", POD, "--"],
            &shell[..],
            &[inner.to_str().unwrap()],
        ]
        .concat();
        let kubectl = way.command(&args);
        let outer = format!(
            "stty rows 33 cols 77; \
             (until [ -e {} ]; do sleep 0.05; done; stty rows 44 cols 99 </dev/tty) & \
             exec {} {}",
            resized.display(),
            stage.parts.path("kubectl").display(),
            args.join(" "),
        );
        let mut command = Command::new("script");
        command.args(["-qec", &outer, "/dev/null"]);
        command.env("SHELL", "/bin/sh").env("TERM", "dumb");
        command.envs(kubectl.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let mut session = Session::start(command);
        let mut line = session.line().await;
        while line.starts_with("size") {
            println!("{}: {line}", way.name);
            line = session.line().await;
        }
        assert_eq!(line, "first", "{}", way.name);
        std::fs::write(&resized, "").unwrap();
        assert_eq!(session.line().await, "second", "{}", way.name);
        session.say("\u{3}").await;
        let mut heard = session.line().await;
        if heard.starts_with("^C") {
            heard = heard.split_off(2); // the terminal's own echo
        }
        assert_eq!(heard, "interrupted", "{}", way.name);
        let end = session.end().await;
        assert_eq!(end.code, Some(5), "{}: {}", way.name, end.errors);
    }
    let metrics = || async {
        let answer = stage.stack.gateway.admin.once("GET", "/metrics", "").await;
        let text = String::from_utf8_lossy(&answer.map_err(|e| e.to_string())?.body).into_owned();
        let open = text
            .lines()
            .find(|line| line.starts_with("sluice_tunnels_open"));
        match open {
            Some(line) if line.ends_with(" 0") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    eventually("no tunnel to be left", LIMIT, metrics).await;
}
