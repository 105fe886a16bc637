//! A child process whose output goes to a file and who ends with this value.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A running child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Its standard output and error.
    pub log: PathBuf,
}

/// What a process has used of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Time on a processor.
    pub cpu: Duration,
    /// Bytes in memory now.
    pub resident: u64,
    /// The most bytes in memory at any time.
    pub resident_max: u64,
}

impl Process {
    /// Starts `command` with its output appended to `<dir>/<name>.log`.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, dir: &Path, command: &mut Command) -> Self {
        let log = dir.join(format!("{name}.log"));
        let out = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a log file");
        let err = out.try_clone().expect("a second handle");
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {name}: {e}"));
        Process {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGKILL, as a power cut would, and waits until it is gone.
    pub fn kill(&mut self) {
        // An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Panics
    /// When it has not ended within `limit`.
    pub fn terminate(&mut self, limit: Duration) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.wait_exit(limit)
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the process id cannot be a process id.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.child.id()).expect("process ids fit");
        let pid = rustix::process::Pid::from_raw(id).expect("process ids are not zero");
        // An error means that it is gone already.
        let _ = rustix::process::kill_process(pid, signal);
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When it has not ended within `limit`.
    pub fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(
                started.elapsed() < limit,
                "{} has not ended within {limit:?}; its log ends with:\n{}",
                self.name,
                self.log_tail(30)
            );
            pause();
        }
    }

    /// What it has used of the machine so far.
    ///
    /// # Panics
    /// When it does not run, or the system does not say.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let read = |file: &str| {
            let path = format!("/proc/{}/{file}", self.id());
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
        };
        let number = |text: Option<&str>| text.and_then(|t| t.parse::<u64>().ok());
        let stat = read("stat");
        // The name comes before, in brackets, and may hold anything.
        let (_, after) = stat.rsplit_once(") ").expect("a name in brackets");
        let mut fields = after.split(' ').skip(11);
        let ticks = number(fields.next()).zip(number(fields.next()));
        let (user, system) = ticks.expect("times on a processor");
        let status = read("status");
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|rest| number(rest.split_whitespace().next()));
            kib.expect("sizes in memory") << 10
        };
        Usage {
            // Linux counts in hundredths of a second wherever these suites run.
            cpu: Duration::from_millis((user + system) * 10),
            resident: kib("VmRSS:"),
            resident_max: kib("VmHWM:"),
        }
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// The last lines of its output.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..)
            .unwrap_or_default()
            .join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!(
                "--- end of the log of {} ---\n{}",
                self.name,
                self.log_tail(40)
            );
        }
    }
}

/// Asks again and again until the answer is yes.
///
/// # Panics
/// When it is not within `limit`, saying what was waited for and how it stood last.
pub async fn eventually<F, T>(what: &str, limit: Duration, mut ask: F)
where
    F: FnMut() -> T,
    T: Future<Output = Result<(), String>>,
{
    let started = Instant::now();
    loop {
        match ask().await {
            Ok(()) => return,
            Err(last) => {
                assert!(
                    started.elapsed() < limit,
                    "waited {limit:?} for {what}; last: {last}"
                );
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "polling a child, which has no event to wait for"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}
