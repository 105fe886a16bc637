//! Servers that can be lost: the real binary as a process, and a store with its listener in this
//! process over files of the test's.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_metastore::engine::embedded::files::Files;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::etcd::{EtcdOptions, Listener};
use sluice_metastore::{Error, Store, StoreOptions};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::ports;
use crate::process::{Process, eventually};

/// Small, so that a second of traffic goes through many segments and checkpoints.
const SEGMENT_BYTES: u64 = 16 << 10;
const CHECKPOINT_BYTES: u64 = 48 << 10;
const PROGRESS_EVERY: Duration = Duration::from_millis(150);
/// How often it is looked whether a process has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a store in this process may use.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Bytes on the disk above which puts are refused.
    pub quota_bytes: u64,
    /// Bytes of values in memory; others are read back from the disk. `None` keeps all.
    pub memory_bytes: Option<usize>,
}

impl Default for Room {
    fn default() -> Self {
        Room {
            quota_bytes: 8 << 30,
            memory_bytes: None,
        }
    }
}

/// A store and its listener on a runtime of their own, which can be taken away at any moment.
pub struct Here {
    /// Where clients find it.
    pub url: String,
    /// The store itself.
    pub store: Store,
    runtime: Option<Runtime>,
    shutdown: CancellationToken,
}

impl Here {
    /// Opens what the files hold and serves it.
    ///
    /// # Panics
    /// When the files cannot be opened, which after a crash is what the test is about.
    pub async fn start(files: Arc<dyn Files>, room: Room) -> Here {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let served = runtime.spawn(async move {
            let options = EtcdOptions {
                insecure_loopback: true,
                progress_interval: PROGRESS_EVERY,
                drain_timeout: Duration::ZERO,
                ..EtcdOptions::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            };
            let listener = Listener::bind(options).await.expect("a free port");
            let url = format!("http://{}", listener.local_addr());
            let store = tokio::task::spawn_blocking(move || open(files, room)).await;
            let store = store.expect("opening does not panic");
            let shutdown = CancellationToken::new();
            tokio::spawn(listener.serve(store.clone(), shutdown.clone()));
            (url, store, shutdown)
        });
        let (url, store, shutdown) = served.await.expect("the server starts");
        Here {
            url,
            store,
            runtime: Some(runtime),
            shutdown,
        }
    }

    /// Takes it away as it stands: no answer leaves after this has returned.
    pub async fn vanish(mut self) {
        if let Some(runtime) = self.runtime.take() {
            let ended = tokio::task::spawn_blocking(move || {
                runtime.shutdown_timeout(Duration::from_secs(5));
            });
            // A panic of a task has been printed already.
            let _ended = ended.await;
        }
    }

    /// Ends it as an operator would.
    pub async fn close(mut self) {
        self.shutdown.cancel();
        self.store.clone().close().await;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Opens a store with small segments and frequent checkpoints.
///
/// # Panics
/// When it cannot be opened: after a crash it must.
#[must_use]
pub fn open(files: Arc<dyn Files>, room: Room) -> Store {
    try_open(files, room).expect("a store opens on what a crash left")
}

/// The same where the files may be damaged.
///
/// # Errors
/// As [`Store::open`].
pub fn try_open(files: Arc<dyn Files>, room: Room) -> Result<Store, Error> {
    let engine = EmbeddedOptions {
        segment_bytes: SEGMENT_BYTES,
        ..EmbeddedOptions::new("")
    };
    let engine = Embedded::open_over(files, engine)?;
    let options = StoreOptions {
        checkpoint_every_bytes: CHECKPOINT_BYTES,
        quota_bytes: room.quota_bytes,
        memory_limit_bytes: room.memory_bytes,
        lease_ttl_min: Duration::from_secs(1),
        ..StoreOptions::default()
    };
    Store::open(engine, options)
}

/// A server in a process of its own, which is killed and halted from outside.
pub struct There {
    /// Where clients find it, before and after a kill.
    pub url: String,
    dir: PathBuf,
    program: PathBuf,
    arguments: Vec<String>,
    process: Option<Process>,
}

impl There {
    /// The real binary's `metastore serve` on this directory.
    #[must_use]
    pub fn sluice(dir: &Path) -> There {
        There::serve(dir, crate::sluice::binary(), &[])
    }

    /// The same of another build of it, with more flags.
    #[must_use]
    pub fn serve(dir: &Path, program: PathBuf, more: &[&str]) -> There {
        let url = format!("http://127.0.0.1:{}", ports::free());
        let data = dir.join("data").display().to_string();
        let progress = format!("{}ms", PROGRESS_EVERY.as_millis());
        let arguments = [
            "metastore",
            "serve",
            "--data-dir",
            &data,
            "--listen-client-urls",
            &url,
            "--insecure-loopback",
            "--watch-progress-notify-interval",
            &progress,
            "--log-level",
            "warn",
        ];
        let arguments = arguments.iter().chain(more);
        There {
            arguments: arguments.map(|&one| one.to_owned()).collect(),
            dir: dir.to_owned(),
            program,
            process: None,
            url,
        }
    }

    /// Another program with arguments of the caller's, on a free port that `arguments` is told.
    #[must_use]
    pub fn program(
        dir: &Path,
        program: PathBuf,
        arguments: impl FnOnce(SocketAddr, &Path) -> Vec<String>,
    ) -> There {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
        There {
            url: format!("http://{address}"),
            arguments: arguments(address, &dir.join("data")),
            dir: dir.to_owned(),
            program,
            process: None,
        }
    }

    /// Starts it to die by its own hand at a step, after passing that so many times; the binary is
    /// the gateway's example `mortal`. It may be dead already when this returns.
    pub fn start_to_die(&mut self, step: &str, passes: u64) {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env("SLUICE_DIE_AT", step);
        command.env("SLUICE_DIE_AFTER", passes.to_string());
        self.process = Some(Process::start("store", &self.dir, &mut command));
    }

    /// Whether it has ended as by `kill -9`.
    ///
    /// # Panics
    /// When it ended otherwise.
    #[must_use]
    pub fn is_dead(&mut self) -> bool {
        let Some(process) = &mut self.process else {
            return false;
        };
        if !process.has_ended() {
            return false;
        }
        let status = process.wait_exit(Duration::ZERO);
        let killed = rustix::process::Signal::KILL.as_raw();
        assert_eq!(status.signal(), Some(killed), "{}", process.log_tail(20));
        true
    }

    /// Waits for that; `false` when it still lives after this time.
    pub async fn dies(&mut self, within: Duration) -> bool {
        let began = Instant::now();
        while !self.is_dead() {
            if began.elapsed() > within {
                return false;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        true
    }

    /// Starts it and waits until it takes connections.
    ///
    /// # Panics
    /// When it does not within twenty seconds.
    pub async fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        self.process = Some(Process::start("store", &self.dir, &mut command));
        let address = self.url.trim_start_matches("http://").to_owned();
        eventually("the store's port", Duration::from_secs(20), || async {
            let connected = tokio::net::TcpStream::connect(&address).await;
            connected.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    /// Ends it without notice.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Halts it for a while.
    pub async fn halt(&self, time: Duration) {
        if let Some(process) = &self.process {
            process.signal(rustix::process::Signal::STOP);
            tokio::time::sleep(time).await;
            process.signal(rustix::process::Signal::CONT);
        }
    }
}
