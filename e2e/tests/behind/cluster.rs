//! The cluster: a gateway, apiservers behind it, and the parts of a control plane before it.

use std::path::Path;
use std::time::{Duration, Instant};

use sluice_e2e::client::Client;
use sluice_e2e::component::{Component, Kit, Server, holder};
use sluice_e2e::etcd::Etcd;
use sluice_e2e::kubectl::Kubectl;
use sluice_e2e::parts::Parts;
use sluice_e2e::process::eventually;
use sluice_e2e::stack::{GATEWAY, Stack, StackOptions, Store};

/// How long anything that is waited for may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// As Kubernetes' own: a leader gives up when it could not renew for 4/5 of this.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// What a controller manager and a scheduler allow themselves: as released, 20 a second, a rollout
/// of 200 pods would wait for nothing but that.
const QPS: u32 = 200;

/// How a cluster is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form<'a> {
    pub(crate) apiservers: usize,
    /// `impersonate` or `frontProxy`.
    pub(crate) identity: &'a str,
    /// Whether apiservers store in a real etcd rather than in the gateway's own store.
    pub(crate) etcd: bool,
    /// Further lines of the cluster's `spec.clients`.
    pub(crate) clients: &'a str,
    /// Another version's parts, of which the last apiserver is.
    pub(crate) newer: Option<&'a Parts>,
}

impl Default for Form<'_> {
    fn default() -> Self {
        Form {
            apiservers: 2,
            identity: "impersonate",
            etcd: false,
            clients: "",
            newer: None,
        }
    }
}

/// All of it.
pub(crate) struct Cluster<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) stack: Stack,
    /// The administrator, through the gateway.
    pub(crate) front: Client,
    /// The same with a real kubectl.
    pub(crate) kubectl: Kubectl,
    components: Vec<Component>,
    _etcd: Option<Etcd>,
}

impl<'a> Cluster<'a> {
    /// Starts all of it; the controller manager and the scheduler lead.
    pub(crate) async fn start(parts: &'a Parts, home: &Path, form: &Form<'_>) -> Cluster<'a> {
        let etcd = match form.etcd {
            true => Some(Etcd::start(parts, home).await),
            false => None,
        };
        let options = StackOptions {
            store: etcd
                .as_ref()
                .map_or(Store::Own, |etcd| Store::Etcd(etcd.url.clone())),
            apiservers: form.apiservers,
            identity: form.identity,
            groups: &[],
            clients: form.clients,
            ..StackOptions::default()
        };
        let mut stack = Stack::new(parts, home, &options);
        if let (Some(newer), Some(last)) = (form.newer, stack.apiservers.last_mut()) {
            last.change_version(newer);
        }
        stack.start().await;
        let kit = Kit {
            parts,
            dir: home,
            pki: &stack.pki,
            lease: LEASE,
            qps: Some(QPS),
        };
        let gateway = Server {
            port: stack.front,
            ca: &stack.front_ca,
        };
        grant(&kit.kubectl(kit.direct(&stack.apiservers[0])), form);
        let mut components = vec![
            kit.manager(0, gateway),
            kit.scheduler(gateway),
            kit.kwok(gateway),
        ];
        for component in &mut components {
            component.start();
        }
        let front = stack.admin();
        for lease in sluice_e2e::component::ELECTIONS {
            eventually(lease, LIMIT, || async {
                holder(&front, lease).await.map(drop)
            })
            .await;
        }
        Cluster {
            parts,
            front,
            kubectl: kit.kubectl(gateway),
            components,
            _etcd: etcd,
            stack,
        }
    }

    /// Ends an apiserver with SIGKILL, starts it again at once and waits until it is ready.
    pub(crate) async fn kill(&mut self, n: usize) {
        let killed = Instant::now();
        self.stack.apiservers[n].kill();
        self.stack.apiservers[n].start();
        self.stack.apiservers[n].ready().await;
        println!(
            "apiserver-{n} was back {:?} after its kill",
            killed.elapsed()
        );
    }

    /// The names of parts that ended by themselves.
    pub(crate) fn ended(&mut self) -> Vec<String> {
        let mut ended = Vec::new();
        for component in &mut self.components {
            if component.has_ended() {
                ended.push(component.name.clone());
            }
        }
        let gateway = self.stack.gateway.process().into_iter();
        let apiservers = self.stack.apiservers.iter_mut();
        for process in gateway.chain(apiservers.filter_map(|one| one.process())) {
            if process.has_ended() {
                ended.push(process.log.display().to_string());
            }
        }
        ended
    }
}

/// The rights that `docs/identity.md` names, and none beside them.
fn grant(direct: &Kubectl, form: &Form<'_>) {
    let user = match form.identity {
        "frontProxy" => "system:sluice",
        _ => GATEWAY,
    };
    bind(direct, "system:auth-delegator", user);
    if form.clients.contains("serviceAccounts") {
        bind(direct, "system:service-account-issuer-discovery", user);
    }
    if form.identity == "impersonate" {
        // As it stands there: what is written down works.
        let page = include_str!("../../../docs/identity.md");
        let mut blocks = page.split("```\n").skip(1).step_by(2);
        let role = blocks.find(|block| block.contains("name: sluice-impersonates"));
        direct.ok_with(&["create", "-f=-"], role.expect("a role on the page"));
        bind(direct, "sluice-impersonates", user);
    }
}

fn bind(direct: &Kubectl, role: &str, user: &str) {
    let (name, role) = (format!("sluice:{role}"), format!("--clusterrole={role}"));
    let user = format!("--user={user}");
    direct.ok(&["create", "clusterrolebinding", &name, &role, &user]);
}
