//! A real kube-apiserver.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::client::Client;
use crate::parts::Parts;
use crate::pki::{Authority, Leaf};
use crate::ports;
use crate::process::{Process, eventually};

/// Where a kube-apiserver stores, and how it is let in there.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The etcd URL.
    pub url: String,
    /// CA and client certificate, for https.
    pub tls: Option<(PathBuf, Leaf)>,
}

/// What all apiservers of one cluster share.
pub struct ClusterPki {
    /// Signs serving and client certificates.
    pub authority: Authority,
    /// The apiservers' serving certificate.
    pub serving: Leaf,
    /// A client in `system:masters`.
    pub admin: Leaf,
    /// Signs and verifies service-account tokens.
    pub service_accounts: Leaf,
    /// Lines of token, user, uid, "groups".
    pub tokens: PathBuf,
}

impl ClusterPki {
    /// Makes it in `dir`, with a token for each `(token, user, groups)`.
    ///
    /// # Panics
    /// When the files cannot be written.
    #[must_use]
    pub fn new(dir: &Path, tokens: &[(&str, &str, &[&str])]) -> Self {
        let authority = Authority::new(dir, "cluster-ca");
        let serving = authority.issue("kube-apiserver", &[], &["kubernetes"]);
        let admin = authority.issue("admin", &["system:masters"], &[]);
        let service_accounts = authority.issue("service-accounts", &[], &[]);
        let lines: String = tokens
            .iter()
            .map(|(token, user, groups)| {
                format!("{token},{user},uid-{user},\"{}\"\n", groups.join(","))
            })
            .collect();
        let path = dir.join("tokens.csv");
        // The file must hold a line: a server refuses an empty one.
        let lines = if lines.is_empty() {
            "unused,unused,unused\n".to_owned()
        } else {
            lines
        };
        std::fs::write(&path, lines).expect("the directory is writable");
        ClusterPki {
            authority,
            serving,
            admin,
            service_accounts,
            tokens: path,
        }
    }
}

/// A kube-apiserver that can be killed and started again on its port.
pub struct Apiserver {
    name: String,
    dir: PathBuf,
    binary: PathBuf,
    args: Vec<String>,
    process: Option<Process>,
    /// Its secure port on 127.0.0.1.
    pub port: u16,
    /// A direct client in `system:masters`.
    pub direct: Client,
}

impl Apiserver {
    /// Prepares one; `extra` are further flags.
    ///
    /// # Panics
    /// When the directory is not writable.
    #[must_use]
    pub fn new(
        name: &str,
        parts: &Parts,
        dir: &Path,
        pki: &ClusterPki,
        storage: &Storage,
        extra: &[String],
    ) -> Self {
        let port = ports::free();
        let file = |path: &Path| path.display().to_string();
        let mut args: Vec<String> = [
            ("--etcd-servers", storage.url.clone()),
            ("--secure-port", port.to_string()),
            ("--bind-address", "127.0.0.1".to_owned()),
            ("--advertise-address", "127.0.0.1".to_owned()),
            ("--endpoint-reconciler-type", "none".to_owned()),
            ("--cert-dir", file(&dir.join(name))),
            ("--tls-cert-file", file(&pki.serving.cert)),
            ("--tls-private-key-file", file(&pki.serving.key)),
            ("--client-ca-file", file(&pki.authority.ca)),
            (
                "--service-account-key-file",
                file(&pki.service_accounts.public_key),
            ),
            (
                "--service-account-signing-key-file",
                file(&pki.service_accounts.key),
            ),
            (
                "--service-account-issuer",
                "https://kubernetes.default.svc".to_owned(),
            ),
            ("--service-cluster-ip-range", "10.0.0.0/24".to_owned()),
            ("--authorization-mode", "RBAC".to_owned()),
            ("--token-auth-file", file(&pki.tokens)),
            ("--profiling", "false".to_owned()),
        ]
        .into_iter()
        .map(|(flag, value)| format!("{flag}={value}"))
        .collect();
        if let Some((ca, leaf)) = &storage.tls {
            args.push(format!("--etcd-cafile={}", ca.display()));
            args.push(format!("--etcd-certfile={}", leaf.cert.display()));
            args.push(format!("--etcd-keyfile={}", leaf.key.display()));
        }
        args.extend_from_slice(extra);
        let direct = Client::new(port, &pki.authority.ca, Some(&pki.admin));
        Apiserver {
            name: name.to_owned(),
            dir: dir.to_owned(),
            binary: parts.path("kube-apiserver").to_owned(),
            args,
            process: None,
            port,
            direct,
        }
    }

    /// Starts it without waiting for anything.
    pub fn start(&mut self) {
        let mut command = Command::new(&self.binary);
        command.args(&self.args);
        self.process = Some(Process::start(&self.name, &self.dir, &mut command));
    }

    /// Waits until `/readyz` says ok.
    ///
    /// # Panics
    /// When it does not within two minutes, or the process ended.
    pub async fn ready(&mut self) {
        let direct = self.direct.clone();
        let what = format!("{} to be ready", self.name);
        eventually(&what, Duration::from_secs(120), || async {
            match direct.once("GET", "/readyz", "").await {
                Ok(answer) if answer.status == 200 => Ok(()),
                Ok(answer) => Err(format!(
                    "{} {}",
                    answer.status,
                    String::from_utf8_lossy(&answer.body)
                )),
                Err(e) => Err(e.to_string()),
            }
        })
        .await;
    }

    /// The next start is of another version's binary, on the same port and data.
    pub fn change_version(&mut self, parts: &Parts) {
        parts.path("kube-apiserver").clone_into(&mut self.binary);
    }

    /// Its log, over all starts.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    /// The process, while it runs.
    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Ends it with SIGTERM and waits for the end. With watches open it takes its time: a minute, as
    /// long as a request may last.
    ///
    /// # Panics
    /// When it has not ended within two minutes.
    pub fn terminate(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.terminate(Duration::from_secs(120));
        }
    }

    /// A counter of its own metrics, summed over the series whose line contains every `needle`.
    ///
    /// # Panics
    /// When its metrics cannot be read.
    pub async fn counter(&self, metric: &str, needles: &[&str]) -> f64 {
        let answer = self
            .direct
            .once("GET", "/metrics", "")
            .await
            .expect("metrics");
        String::from_utf8_lossy(&answer.body)
            .lines()
            .filter(|line| line.starts_with(metric) && needles.iter().all(|n| line.contains(n)))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}
