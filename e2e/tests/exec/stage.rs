//! An etcd, a kube-apiserver, a nodelet with one running pod, and a gateway before them.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use sluice_e2e::etcd::Etcd;
use sluice_e2e::kubectl::{Credential, Kubectl};
use sluice_e2e::parts::Parts;
use sluice_e2e::ports;
use sluice_e2e::process::Process;
use sluice_e2e::stack::{Stack, StackOptions, Store};

/// The pod that commands run in.
pub(crate) const POD: &str = "pod";

const TOKENS: &[(&str, &str, &[&str])] = &[("alice-token", "alice", &["system:masters"])];

/// What a tunnel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `v5.channel.k8s.io` for commands, SPDY within it for ports.
    WebSocket,
    /// As kubectl has always done it.
    Spdy,
}

/// A user's kubectl that speaks one of the protocols.
pub(crate) struct Way {
    pub(crate) name: String,
    kubectl: Kubectl,
    pub(crate) protocol: Protocol,
}

impl Way {
    /// A command, not yet started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.kubectl.command(args);
        let is_socket = (self.protocol == Protocol::WebSocket).to_string();
        command
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", &is_socket)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", &is_socket);
        command
    }
}

/// All of it; it ends with this value.
pub(crate) struct Stage {
    pub(crate) stack: Stack,
    pub(crate) parts: Parts,
    /// Both protocols, by certificate and by token.
    pub(crate) ways: Vec<Way>,
    _nodelet: Process,
    _etcd: Etcd,
    dir: tempfile::TempDir,
}

impl Stage {
    /// `None` where a part cannot be had.
    pub(crate) async fn start() -> Option<Stage> {
        let mut parts = Parts::find(&["kube-apiserver", "kubectl", "etcd", "nodelet"])?;
        if let Ok(version) = std::env::var("SLUICE_EXEC_KUBECTL") {
            parts = parts.with(Parts::find_kubernetes(&version, &["kubectl"])?);
        }
        let dir = tempfile::tempdir().unwrap();
        let etcd = Etcd::start(&parts, dir.path()).await;
        let options = StackOptions {
            store: Store::Etcd(etcd.url.clone()),
            apiservers: 1,
            tokens: TOKENS,
            apiserver_flags: &[
                "--kubelet-preferred-address-types=InternalIP",
                "--disable-admission-plugins=ServiceAccount",
            ],
            ..StackOptions::default()
        };
        let mut stack = Stack::new(&parts, dir.path(), &options);
        let port = ports::free();
        let leaf = stack.pki.authority.issue("nodelet", &[], &[]);
        let mut command = Command::new(parts.path("nodelet"));
        command
            .arg(format!("127.0.0.1:{port}"))
            .args([&leaf.cert, &leaf.key])
            .arg(dir.path());
        let nodelet = Process::start("nodelet", dir.path(), &mut command);
        stack.start().await;
        let admin = Credential::Certificate(&stack.pki.admin);
        let admin = stack.kubectl(&parts, "admin", &admin);
        let alice = stack.kubectl(&parts, "alice", &Credential::Token("alice-token"));
        run_a_pod(&admin, port);
        let mut ways = Vec::new();
        for (who, kubectl) in [("certificate", admin), ("token", alice)] {
            for protocol in [Protocol::WebSocket, Protocol::Spdy] {
                ways.push(Way {
                    name: format!("{protocol:?} by {who}"),
                    kubectl: kubectl.clone(),
                    protocol,
                });
            }
        }
        Some(Stage {
            stack,
            parts,
            ways,
            _nodelet: nodelet,
            _etcd: etcd,
            dir,
        })
    }

    /// One way for each protocol.
    pub(crate) fn protocols(&self) -> &[Way] {
        &self.ways[..2]
    }

    /// A path below the stage's folder; the pod's log is `pod.log`.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn run_a_pod(admin: &Kubectl, nodelet: u16) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": nodelet}},
        },
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD},
        "spec": {"nodeName": "node", "containers": [{
            "name": "main", "image": "none", "stdin": true,
        }]},
    });
    for object in [node, pod] {
        let args = ["create", "--validate=false", "-f", "-"];
        admin.ok_with(&args, &object.to_string());
    }
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "main", "image": "none", "imageID": "none", "ready": true,
            "restartCount": 0, "state": {"running": {}},
        }],
    }});
    let patch = format!("--patch={status}");
    admin.ok(&[
        "patch",
        "pod",
        POD,
        "--subresource=status",
        "--type=merge",
        &patch,
    ]);
}
