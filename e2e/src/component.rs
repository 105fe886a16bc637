//! The parts of a control plane that are clients of its apiservers: controller managers, a
//! scheduler, and kwok in the place of nodes.
//!
//! Each has a kubeconfig of its own and is the user it is in a real cluster. Where that kubeconfig
//! points to is all that a part knows of the servers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::apiserver::{Apiserver, ClusterPki};
use crate::client::Client;
use crate::kubectl::{Credential, Kubectl};
use crate::parts::Parts;
use crate::pki::Leaf;
use crate::process::Process;

/// The leases of `kube-system` by which leaders are known.
pub const ELECTIONS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// A part that is a client of the apiservers.
pub struct Component {
    /// As its log is called.
    pub name: String,
    dir: PathBuf,
    binary: PathBuf,
    args: Vec<String>,
    process: Option<Process>,
}

impl Component {
    /// Starts it without waiting for anything.
    pub fn start(&mut self) {
        let mut command = Command::new(&self.binary);
        // None of the machine's own settings.
        command.env_clear().env("HOME", &self.dir).args(&self.args);
        self.process = Some(Process::start(&self.name, &self.dir, &mut command));
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Whether it was started and has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(Process::has_ended)
    }

    /// The next start is of another version's binary.
    pub fn change_version(&mut self, parts: &Parts) {
        let name = self.binary.file_name().expect("a file").to_string_lossy();
        self.binary = parts.path(&name).to_owned();
    }
}

/// Where parts find the Kubernetes API.
#[derive(Clone, Copy, Debug)]
pub struct Server<'a> {
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// Signed its certificate.
    pub ca: &'a Path,
}

/// What the parts' arguments and kubeconfigs are written from.
pub struct Kit<'a> {
    /// The binaries.
    pub parts: &'a Parts,
    /// Where files go.
    pub dir: &'a Path,
    /// Issues the parts' certificates.
    pub pki: &'a ClusterPki,
    /// How long a leader's lease lasts; it gives up after 4/5 of it and renews each 1/10.
    pub lease: Duration,
    /// Requests a second that a controller manager and a scheduler allow themselves, where not as
    /// they are released.
    pub qps: Option<u32>,
}

impl Kit<'_> {
    /// The apiserver itself, with nothing in between.
    #[must_use]
    pub fn direct(&self, apiserver: &Apiserver) -> Server<'_> {
        Server {
            port: apiserver.port,
            ca: &self.pki.authority.ca,
        }
    }

    /// A kubectl of the administrator.
    #[must_use]
    pub fn kubectl(&self, server: Server<'_>) -> Kubectl {
        let name = format!("admin-{}", server.port);
        self.kubeconfig(&name, &self.pki.admin, server)
    }

    /// A controller manager, whose controllers are service accounts of their own.
    #[must_use]
    pub fn manager(&self, n: usize, server: Server<'_>) -> Component {
        let user = "system:kube-controller-manager";
        let name = format!("controller-manager-{n}");
        let leaf = self.pki.authority.issue(user, &[], &[]);
        let config = self.kubeconfig(&name, &leaf, server).config;
        let mut args = vec![
            format!("--kubeconfig={}", config.display()),
            format!(
                "--service-account-private-key-file={}",
                self.pki.service_accounts.key.display()
            ),
            format!("--root-ca-file={}", self.pki.authority.ca.display()),
            "--use-service-account-credentials=true".to_owned(),
            // Its own port serves nothing that a test asks for.
            "--secure-port=0".to_owned(),
        ];
        args.extend(self.common());
        self.component(&name, "kube-controller-manager", args)
    }

    /// A scheduler.
    #[must_use]
    pub fn scheduler(&self, server: Server<'_>) -> Component {
        let leaf = self.pki.authority.issue("system:kube-scheduler", &[], &[]);
        let config = self.kubeconfig("scheduler", &leaf, server).config;
        let mut args = vec![
            format!("--kubeconfig={}", config.display()),
            "--secure-port=0".to_owned(),
        ];
        args.extend(self.common());
        self.component("scheduler", "kube-scheduler", args)
    }

    /// All kubelets in one.
    #[must_use]
    pub fn kwok(&self, server: Server<'_>) -> Component {
        let leaf = self.pki.authority.issue("kwok", &["system:masters"], &[]);
        let config = self.kubeconfig("kwok", &leaf, server).config;
        let stages = Path::new(env!("CARGO_MANIFEST_DIR")).join("parts/stages.yaml");
        let args = vec![
            format!("--kubeconfig={}", config.display()),
            format!("--config={}", stages.display()),
            "--manage-all-nodes=true".to_owned(),
            // As a kubelet's: renewed each 10 s.
            "--node-lease-duration-seconds=40".to_owned(),
            "--node-ip=127.0.0.1".to_owned(),
        ];
        self.component("kwok", "kwok", args)
    }

    fn kubeconfig(&self, name: &str, user: &Leaf, server: Server<'_>) -> Kubectl {
        let who = Credential::Certificate(user);
        Kubectl::new(self.parts, self.dir, name, server.port, server.ca, &who)
    }

    fn component(&self, name: &str, part: &str, args: Vec<String>) -> Component {
        Component {
            name: name.to_owned(),
            dir: self.dir.to_owned(),
            binary: self.parts.path(part).to_owned(),
            args,
            process: None,
        }
    }

    fn common(&self) -> Vec<String> {
        let mut flags = vec![
            // Says why a lease was not renewed.
            "--v=2".to_owned(),
            "--leader-elect=true".to_owned(),
            format!("--leader-elect-lease-duration={:?}", self.lease),
            format!("--leader-elect-renew-deadline={:?}", self.lease * 4 / 5),
            format!("--leader-elect-retry-period={:?}", self.lease / 10),
        ];
        if let Some(qps) = self.qps {
            flags.push(format!("--kube-api-qps={qps}"));
            flags.push(format!("--kube-api-burst={}", 2 * qps));
        }
        flags
    }
}

/// Who holds a lease of `kube-system`, and how often it has changed hands.
///
/// # Errors
/// When nobody does, or it cannot be read.
pub async fn holder(client: &Client, lease: &str) -> Result<(String, u64), String> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}");
    let answer = client.once("GET", &path, "").await;
    let lease = answer.map_err(|e| e.to_string())?.json();
    let spec = lease.get("spec").unwrap_or(&Value::Null);
    match spec.get("holderIdentity").and_then(Value::as_str) {
        Some(who) if !who.is_empty() => {
            let changes = spec.get("leaseTransitions").and_then(Value::as_u64);
            Ok((who.to_owned(), changes.unwrap_or_default()))
        }
        _ => Err(format!("nobody holds it: {lease}")),
    }
}

/// Who leads, and how often each lease of [`ELECTIONS`] has changed hands.
///
/// # Panics
/// When one of them has no holder.
pub async fn leaders(client: &Client) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for lease in ELECTIONS {
        all.push(holder(client, lease).await.expect("a leader"));
    }
    all
}
