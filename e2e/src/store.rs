//! `sluice metastore serve`, the store alone, in a directory of the test's own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::client::Client;
use crate::pki::Leaf;
use crate::ports;
use crate::process::{Process, eventually};
use crate::sluice::binary;

/// Generous: a machine that builds at the same time is slow to start anything.
const START_MAX: Duration = Duration::from_secs(60);

/// A store by itself that can be killed and started again on its directory and port.
pub struct Store {
    dir: PathBuf,
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    tls: Option<(PathBuf, Leaf)>,
    /// The process, once started.
    pub process: Option<Process>,
}

impl Store {
    /// Prepares one with its data under `dir`; with a client CA and a serving certificate it speaks
    /// mutual TLS, else plain text.
    #[must_use]
    pub fn new(dir: &Path, tls: Option<(PathBuf, Leaf)>) -> Store {
        Store {
            dir: dir.to_owned(),
            port: ports::free(),
            tls,
            process: None,
        }
    }

    /// Its client URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// The command that serves, not yet started; `more` are further flags.
    #[must_use]
    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(["metastore", "serve", "--listen-client-urls", &self.url()])
            .arg("--data-dir")
            .arg(self.dir.join("store"));
        match &self.tls {
            None => command.arg("--insecure-loopback"),
            Some((ca, leaf)) => command
                .arg("--trusted-ca-file")
                .arg(ca)
                .arg("--cert-file")
                .arg(&leaf.cert)
                .arg("--key-file")
                .arg(&leaf.key),
        };
        command.args(more);
        command
    }

    /// Starts it and waits until it takes connections.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub async fn start(&mut self, more: &[&str]) {
        self.process = Some(Process::start("store", &self.dir, &mut self.command(more)));
        eventually("the store to take connections", START_MAX, || async {
            let connected = TcpStream::connect(("127.0.0.1", self.port)).await;
            connected.map(drop).map_err(|e| e.to_string())
        })
        .await;
    }

    /// Ends it with SIGKILL and starts it again without further flags.
    ///
    /// # Panics
    /// When it does not run, or does not start.
    pub async fn kill_and_restart(&mut self) {
        self.process.take().expect("it was started").kill();
        self.start(&[]).await;
    }

    /// A series of its metrics, asked for as `client`; `name` is all that stands left of the value.
    ///
    /// # Panics
    /// When its metrics cannot be read, or have no such series.
    pub async fn metric(&self, client: &Client, name: &str) -> f64 {
        let answer = client.once("GET", "/metrics", "").await.expect("metrics");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        text.lines()
            .filter_map(|line| line.rsplit_once(' '))
            .find(|(left, _)| *left == name)
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}
