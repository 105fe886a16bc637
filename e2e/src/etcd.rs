//! A real etcd, one member, plain on loopback.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::process::{Process, eventually};
use crate::{parts::Parts, ports};

/// A running etcd.
pub struct Etcd {
    /// The process.
    pub process: Process,
    /// Its client URL.
    pub url: String,
}

impl Etcd {
    /// Starts it with its data under `dir` and waits until it takes connections.
    ///
    /// # Panics
    /// When it does not within 30 s.
    pub async fn start(parts: &Parts, dir: &Path) -> Etcd {
        let (client, peer) = (ports::free(), ports::free());
        let url = format!("http://127.0.0.1:{client}");
        let peer_url = format!("http://127.0.0.1:{peer}");
        let mut command = Command::new(parts.path("etcd"));
        command
            .args(["--name", "one", "--log-level", "warn", "--data-dir"])
            .arg(dir.join("etcd"))
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args([
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
            ])
            .args(["--initial-cluster", &format!("one={peer_url}")]);
        let process = Process::start("etcd", dir, &mut command);
        eventually(
            "etcd to take connections",
            Duration::from_secs(30),
            || async {
                TcpStream::connect(("127.0.0.1", client))
                    .await
                    .map(drop)
                    .map_err(|e| e.to_string())
            },
        )
        .await;
        Etcd { process, url }
    }
}
