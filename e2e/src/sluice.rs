//! The real `sluice` binary as a process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::client::Client;
use crate::process::{Process, eventually};

/// The binary that cargo built beside this test, or the one that `SLUICE` names.
///
/// # Panics
/// When it is not there: `cargo build --bin sluice` makes it.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("SLUICE") {
        return path.into();
    }
    let me = std::env::current_exe().expect("a running test has a path");
    // target/<profile>/deps/<test> -> target/<profile>/sluice
    let dir = me
        .parent()
        .and_then(Path::parent)
        .expect("tests live in target/<profile>/deps");
    let path = dir.join("sluice");
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --bin sluice`",
        path.display()
    );
    path
}

/// Runs a subcommand to its end.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn run(args: &[&str]) -> Output {
    Command::new(binary())
        .args(args)
        .output()
        .expect("sluice starts")
}

/// A task that panics takes its stream along and nobody else, unless the build aborts: clients may
/// have all they asked for by then, and a test would pass over what ends the process as released.
///
/// # Panics
/// When this log of a `sluice` tells of a panic.
pub fn without_panic(log: &Path) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let told = text.find("panicked at").and_then(|at| text.get(at..));
    let told: Option<Vec<&str>> = told.map(|told| told.lines().take(40).collect());
    assert!(
        told.is_none(),
        "{} tells of a panic: {}",
        log.display(),
        told.unwrap_or_default().join("\n")
    );
}

/// A `sluice run` that can be killed and started again with the same file.
pub struct Gateway {
    dir: PathBuf,
    config: PathBuf,
    process: Option<Process>,
    /// Its admin listener, as an operator.
    pub admin: Client,
}

impl Gateway {
    /// Prepares one whose process file is `config`.
    #[must_use]
    pub fn new(dir: &Path, config: &Path, admin: Client) -> Self {
        Gateway {
            dir: dir.to_owned(),
            config: config.to_owned(),
            process: None,
            admin,
        }
    }

    /// Starts it without waiting for anything.
    pub fn start(&mut self) {
        let mut command = Command::new(binary());
        command.arg("run").arg("--config").arg(&self.config);
        self.process = Some(Process::start("sluice", &self.dir, &mut command));
    }

    /// As [`Gateway::start`], from a shell that does this before, such as taking resources away.
    pub fn start_after(&mut self, shell: &str) {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("{shell} && exec \"$0\" run --config \"$1\""))
            .arg(binary())
            .arg(&self.config);
        self.process = Some(Process::start("sluice", &self.dir, &mut command));
    }

    /// Starts another process of the same file beside this one, which is to take over from it.
    #[must_use]
    pub fn successor(&self) -> Process {
        self.successor_with(&self.config)
    }

    /// As [`Gateway::successor`], with a process file of its own.
    #[must_use]
    pub fn successor_with(&self, config: &Path) -> Process {
        let mut command = Command::new(binary());
        command
            .arg("run")
            .arg("--config")
            .arg(config)
            .arg("--upgrade");
        Process::start("successor", &self.dir, &mut command)
    }

    /// Stands for this process from now on; hands back the one that it stood for.
    pub fn replace(&mut self, process: Process) -> Option<Process> {
        self.process.replace(process)
    }

    /// Waits until its `/readyz` says ok.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub async fn ready(&mut self) {
        self.answers("/readyz").await;
    }

    /// Waits until its `/livez` says ok, which asks nothing of any upstream.
    ///
    /// # Panics
    /// When it does not within a minute.
    pub async fn live(&mut self) {
        self.answers("/livez").await;
    }

    async fn answers(&mut self, path: &str) {
        let admin = self.admin.clone();
        eventually(
            &format!("sluice's {path}"),
            Duration::from_secs(60),
            || async {
                match admin.once("GET", path, "").await {
                    Ok(answer) if answer.status == 200 => Ok(()),
                    Ok(answer) => Err(format!(
                        "{} {}",
                        answer.status,
                        String::from_utf8_lossy(&answer.body)
                    )),
                    Err(e) => Err(e.to_string()),
                }
            },
        )
        .await;
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// The process, while it runs.
    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            without_panic(&self.dir.join("sluice.log"));
        }
    }
}
