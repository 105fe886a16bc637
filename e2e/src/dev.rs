//! `sluice run --dev`, as a newcomer starts it, in a directory of the test's own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::client::Client;
use crate::kubectl::Kubectl;
use crate::parts::Parts;
use crate::pki::Leaf;
use crate::ports;
use crate::process::{Process, eventually};
use crate::sluice::binary;

/// What the process prints once everything listens.
const GREETING: &str = "sluice is up";
/// Generous: a machine that builds at the same time is slow to start anything.
const START_MAX: Duration = Duration::from_secs(60);

/// An all-in-one process that can be ended and started again on its directory and ports.
pub struct Dev {
    home: PathBuf,
    /// The development directory.
    pub dir: PathBuf,
    /// The Kubernetes API's port.
    pub api: u16,
    /// The etcd API's port.
    pub etcd: u16,
    /// The admin API's port.
    pub admin: u16,
    process: Option<Process>,
    read: u64,
}

impl Dev {
    /// Prepares one below `home`; starts nothing.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Dev {
            home: home.to_owned(),
            dir: home.join("dev"),
            api: ports::free(),
            etcd: ports::free(),
            admin: ports::free(),
            process: None,
            read: 0,
        }
    }

    /// Another one on the same directory, with ports of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        Dev {
            dir: self.dir.clone(),
            ..Dev::new(&self.home)
        }
    }

    /// The command that starts it.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command.args(["run", "--dev", "--dir"]).arg(&self.dir);
        for (flag, port) in [
            ("--api-port", self.api),
            ("--etcd-port", self.etcd),
            ("--admin-port", self.admin),
        ] {
            command.arg(flag).arg(port.to_string());
        }
        command
    }

    /// Starts it and waits for its greeting, which it hands back with what came before.
    ///
    /// # Panics
    /// When the greeting does not come in time.
    pub async fn start(&mut self) -> String {
        let process = Process::start("dev", &self.home, &mut self.command());
        let (log, read) = (process.log.clone(), self.read);
        self.process = Some(process);
        eventually("sluice's greeting", START_MAX, || async {
            let text = said_since(&log, read);
            if text.contains(GREETING) && text.contains("the data stays") {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
        said_since(&log, read)
    }

    /// Sends a signal, waits for the end within `limit` and hands back the exit code.
    ///
    /// # Panics
    /// When it does not run or does not end in time.
    pub fn end(&mut self, signal: rustix::process::Signal, limit: Duration) -> Option<i32> {
        let mut process = self.process.take().expect("it was started");
        process.signal(signal);
        let status = process.wait_exit(limit);
        self.read = std::fs::metadata(&process.log).map_or(0, |file| file.len());
        status.code()
    }

    /// Ends it as a power cut would, and starts it again.
    ///
    /// # Panics
    /// When it does not run, or its greeting does not come in time.
    pub async fn kill_and_restart(&mut self) {
        let mut process = self.process.take().expect("it was started");
        process.kill();
        self.read = std::fs::metadata(&process.log).map_or(0, |file| file.len());
        self.start().await;
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("it was started").id()
    }

    /// The end of its output.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        self.process
            .as_ref()
            .map_or_else(String::new, |process| process.log_tail(lines))
    }

    /// A file in its directory of certificates.
    #[must_use]
    pub fn pki(&self, name: &str) -> PathBuf {
        self.dir.join("pki").join(name)
    }

    /// One of the certificates it made for itself; there is no file of a public key alone.
    #[must_use]
    pub fn leaf(&self, name: &str) -> Leaf {
        Leaf {
            cert: self.pki(&format!("{name}.crt")),
            key: self.pki(&format!("{name}.key")),
            public_key: self.pki(&format!("{name}.pub")),
        }
    }

    /// Its administrator as a plain client.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.api, &self.pki("ca.crt"), Some(&self.leaf("admin")))
    }

    /// A kubectl on the kubeconfig it wrote.
    #[must_use]
    pub fn kubectl(&self, parts: &Parts) -> Kubectl {
        Kubectl::with_config(parts, &self.home, &self.dir.join("kubeconfig"))
    }
}

fn said_since(log: &Path, read: u64) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let from = usize::try_from(read).expect("logs of tests fit");
    String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned()
}
