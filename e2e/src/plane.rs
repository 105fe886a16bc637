//! A whole control plane on one store: kube-apiservers, controller managers, a scheduler, and kwok
//! in the place of nodes. Only the kubelets' containers are made up; all else is what a cluster runs.
//!
//! The store is `sluice metastore serve` over mutual TLS. Every part reaches an apiserver by a
//! kubeconfig of its own and as the user it is in a real cluster.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::apiserver::{Apiserver, ClusterPki, Storage};
use crate::client::Client;
use crate::component::{Component, Kit, holder};
use crate::kubectl::Kubectl;
use crate::parts::Parts;
use crate::pki::{Authority, Leaf};
use crate::process::eventually;
use crate::store::Store;

/// The parts a plane is made of, as `build.sh` names them.
pub const PARTS: [&str; 6] = [
    "kube-apiserver",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "etcdctl",
];

/// How long a part may take to start; only reached when it does not.
const START_MAX: Duration = Duration::from_secs(120);

/// How a plane is set up.
#[derive(Clone, Debug)]
pub struct PlaneOptions {
    /// How many apiservers; controller managers and apiservers are paired.
    pub apiservers: usize,
    /// How many controller managers, of which one leads.
    pub managers: usize,
    /// Further flags of the apiservers.
    pub apiserver_flags: Vec<String>,
    /// Further flags of the store.
    pub store_flags: Vec<String>,
    /// How long a leader's lease lasts; it gives up after 4/5 of it and renews each 1/10.
    pub lease: Duration,
}

/// All parts, with their files in one directory.
pub struct Plane {
    /// Everything's files.
    pub dir: PathBuf,
    /// Where all of it is kept.
    pub store: Store,
    /// Reads the store's metrics.
    pub store_client: Client,
    /// The apiservers.
    pub apiservers: Vec<Apiserver>,
    /// The controller managers.
    pub managers: Vec<Component>,
    /// The scheduler.
    pub scheduler: Component,
    /// The nodes' stand-in.
    pub kwok: Component,
    /// An administrator's kubectl for each apiserver.
    pub kubectl: Vec<Kubectl>,
    store_flags: Vec<String>,
    store_access: (PathBuf, Leaf),
    etcdctl: PathBuf,
}

impl Plane {
    /// Writes all files; starts nothing.
    ///
    /// # Panics
    /// When the directory is not writable.
    #[must_use]
    pub fn new(parts: &Parts, dir: &Path, options: &PlaneOptions) -> Plane {
        let own = Authority::new(dir, "store-ca");
        let store = Store::new(dir, Some((own.ca.clone(), own.issue("store", &[], &[]))));
        let client = own.issue("apiserver-etcd-client", &[], &[]);
        let pki = ClusterPki::new(dir, &[]);
        let storage = Storage {
            url: store.url(),
            tls: Some((own.ca.clone(), client.clone())),
        };
        let apiservers: Vec<Apiserver> = (0..options.apiservers)
            .map(|n| {
                let (name, flags) = (format!("apiserver-{n}"), &options.apiserver_flags);
                Apiserver::new(&name, parts, dir, &pki, &storage, flags)
            })
            .collect();
        let kit = Kit {
            parts,
            dir,
            pki: &pki,
            lease: options.lease,
            qps: None,
        };
        let of = |n: usize| kit.direct(apiservers.iter().cycle().nth(n).expect("an apiserver"));
        let managers = (0..options.managers).map(|n| kit.manager(n, of(n)));
        let kubectl = apiservers.iter().map(|one| kit.kubectl(kit.direct(one)));
        Plane {
            dir: dir.to_owned(),
            store_client: Client::new(store.port, &own.ca, Some(&client)),
            store_access: (own.ca.clone(), client),
            managers: managers.collect(),
            scheduler: kit.scheduler(of(1)),
            kwok: kit.kwok(of(0)),
            kubectl: kubectl.collect(),
            store,
            apiservers,
            store_flags: options.store_flags.clone(),
            etcdctl: parts.path("etcdctl").to_owned(),
        }
    }

    /// Starts all of it: the first controller manager leads.
    ///
    /// # Panics
    /// When a part does not become ready in time.
    pub async fn start(&mut self) {
        self.start_store().await;
        for apiserver in &mut self.apiservers {
            apiserver.start();
        }
        for apiserver in &mut self.apiservers {
            apiserver.ready().await;
        }
        self.kwok.start();
        self.scheduler.start();
        for manager in &mut self.managers {
            manager.start();
            let first = &self.apiservers.first().expect("an apiserver").direct;
            eventually("a controller manager to lead", START_MAX, || async {
                holder(first, "kube-controller-manager").await.map(drop)
            })
            .await;
        }
    }

    /// Starts the store, or starts it again.
    ///
    /// # Panics
    /// When it does not take connections in time.
    pub async fn start_store(&mut self) {
        let flags: Vec<&str> = self.store_flags.iter().map(String::as_str).collect();
        self.store.start(&flags).await;
    }

    /// Ends the store with SIGKILL and starts it again.
    ///
    /// # Panics
    /// When it does not run, or does not start.
    pub async fn kill_store(&mut self) {
        self.store.process.as_mut().expect("it runs").kill();
        self.start_store().await;
    }

    /// What a real etcdctl prints of the store.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn etcdctl(&self, args: &[&str]) -> String {
        let (ca, leaf) = &self.store_access;
        let output = Command::new(&self.etcdctl)
            .env_clear()
            .arg(format!("--endpoints={}", self.store.url()))
            .arg(format!("--cacert={}", ca.display()))
            .arg(format!("--cert={}", leaf.cert.display()))
            .arg(format!("--key={}", leaf.key.display()))
            .args(args)
            .output()
            .expect("etcdctl starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "etcdctl {args:?}: {output:?}");
        said
    }

    /// A series of the store's own metrics.
    pub async fn store_metric(&self, name: &str) -> f64 {
        self.store.metric(&self.store_client, name).await
    }

    /// The names of parts that ended by themselves.
    pub fn ended(&mut self) -> Vec<String> {
        let apiservers = self.apiservers.iter_mut().filter_map(Apiserver::process);
        let mut ended: Vec<String> = apiservers
            .chain(self.store.process.as_mut())
            .filter_map(|one| one.has_ended().then(|| one.log.display().to_string()))
            .collect();
        let others = self
            .managers
            .iter_mut()
            .chain([&mut self.scheduler, &mut self.kwok]);
        ended.extend(others.filter_map(|one| one.has_ended().then(|| one.name.clone())));
        ended
    }
}
