//! Runs `sluice metastore migrate`, and serves what it made.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sluice_e2e::ports;
use sluice_e2e::process::{Process, eventually};
use sluice_e2e::sluice::binary;
use tokio::net::TcpStream;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// How a move ended.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Moved {
    /// # Panics
    /// When it failed or did not compare.
    pub(crate) fn done(self) -> Moved {
        assert!(self.ok, "{}\n{}", self.out, self.err);
        assert!(self.out.contains("both sides are the same"), "{}", self.out);
        let has_begun_only = self.err.contains("comparing both: 0 %");
        assert!(!has_begun_only, "{}", self.err);
        self
    }

    /// # Panics
    /// When it did not fail, saying this.
    pub(crate) fn refused(&self, word: &str) {
        assert!(!self.ok && self.err.contains(word), "{word}: {self:?}");
    }
}

/// Runs it to its end.
pub(crate) async fn migrate(args: &[&str]) -> Moved {
    let mut command = tokio::process::Command::new(binary());
    command.args(["metastore", "migrate"]).args(args);
    let output = tokio::time::timeout(LIMIT, command.output()).await;
    let output = output.expect("the move ends").unwrap();
    Moved {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Starts it; what it says goes to a log.
pub(crate) fn begin(name: &str, dir: &Path, args: &[&str]) -> Process {
    let mut command = Command::new(binary());
    command.args(["metastore", "migrate"]).args(args);
    Process::start(name, dir, &mut command)
}

/// Waits until it has said something.
pub(crate) async fn says(process: &Process, word: &str) {
    eventually(&format!("the move to say {word:?}"), LIMIT, || async {
        let text = std::fs::read_to_string(&process.log).unwrap_or_default();
        if text.contains(word) {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
}

/// A data directory served in plain text.
pub(crate) struct Served {
    pub(crate) process: Process,
    pub(crate) url: String,
}

pub(crate) async fn serve(name: &str, dir: &Path) -> Served {
    serve_with(name, dir, &["--insecure-loopback"], "http").await
}

pub(crate) async fn serve_with(name: &str, dir: &Path, more: &[&str], scheme: &str) -> Served {
    let port = ports::free();
    let url = format!("{scheme}://127.0.0.1:{port}");
    let mut command = Command::new(binary());
    command
        .args(["metastore", "serve", "--listen-client-urls", &url])
        .arg("--data-dir")
        .arg(dir)
        .args(more);
    let logs = dir.parent().unwrap();
    let process = Process::start(name, logs, &mut command);
    // It listens before the store is read back: it answers once that is done.
    eventually("the store to take connections", LIMIT, || async {
        let connected = TcpStream::connect(("127.0.0.1", port)).await;
        connected.map(drop).map_err(|e| e.to_string())
    })
    .await;
    Served { process, url }
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
