//! One `sluice` process in front of real kube-apiservers, with its files in one directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::apiserver::{Apiserver, ClusterPki, Storage};
use crate::client::Client;
use crate::kubectl::{Credential, Kubectl};
use crate::parts::Parts;
use crate::pki::{Authority, Leaf};
use crate::ports;
use crate::sluice::Gateway;

/// The gateway's own user towards the apiservers, where it impersonates.
pub const GATEWAY: &str = "sluice-gateway";

/// Who stores for the apiservers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// The gateway's own metastore.
    Own,
    /// An etcd at this URL.
    Etcd(String),
}

/// What a stack is made of.
pub struct StackOptions<'a> {
    /// Who stores.
    pub store: Store,
    /// How many apiservers.
    pub apiservers: usize,
    /// `impersonate` or `frontProxy`.
    pub identity: &'a str,
    /// Groups of the gateway's own user towards the apiservers, where it impersonates: with none it
    /// may do what it is granted and nothing else.
    pub groups: &'a [&'a str],
    /// Bearer tokens the apiservers know: token, user, groups.
    pub tokens: &'a [(&'a str, &'a str, &'a [&'a str])],
    /// A rule file beside the cluster's, if any.
    pub rules: Option<&'a str>,
    /// Further lines of the cluster's `spec.clients`, indented by four.
    pub clients: &'a str,
    /// Further flags of the apiservers.
    pub apiserver_flags: &'a [&'a str],
}

impl Default for StackOptions<'_> {
    fn default() -> Self {
        StackOptions {
            store: Store::Own,
            apiservers: 2,
            identity: "impersonate",
            groups: &["system:masters"],
            tokens: &[],
            rules: None,
            clients: "",
            apiserver_flags: &[],
        }
    }
}

/// A gateway and what is behind it.
pub struct Stack {
    /// Everything's files.
    pub dir: PathBuf,
    /// The gateway.
    pub gateway: Gateway,
    /// The apiservers, not started.
    pub apiservers: Vec<Apiserver>,
    /// Their certificates and keys.
    pub pki: ClusterPki,
    /// The front's port.
    pub front: u16,
    /// Signed the front's certificate.
    pub front_ca: PathBuf,
    /// The folder of rule files.
    pub rules: PathBuf,
    /// The audit file.
    pub audit: PathBuf,
}

impl Stack {
    /// Writes all files; starts nothing.
    ///
    /// # Panics
    /// When the directory is not writable.
    #[must_use]
    pub fn new(parts: &Parts, dir: &Path, options: &StackOptions<'_>) -> Self {
        let pki = ClusterPki::new(dir, options.tokens);
        let own = Authority::new(dir, "sluice-ca");
        let serving = own.issue("sluice", &[], &["kubernetes"]);
        let operator = own.issue("operator", &["system:masters"], &[]);
        let etcd_client = own.issue("etcd-client", &[], &[]);
        let (front, admin, etcd) = (ports::free(), ports::free(), ports::free());
        let storage = match &options.store {
            Store::Etcd(url) => Storage {
                url: url.clone(),
                tls: None,
            },
            Store::Own => Storage {
                url: format!("https://127.0.0.1:{etcd}"),
                tls: Some((own.ca.clone(), etcd_client)),
            },
        };
        let mut flags: Vec<String> = [
            format!("--requestheader-client-ca-file={}", own.ca.display()),
            "--requestheader-allowed-names=sluice-proxy".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        ]
        .into();
        flags.extend(
            options
                .apiserver_flags
                .iter()
                .map(|flag| (*flag).to_owned()),
        );
        let apiservers: Vec<Apiserver> = (0..options.apiservers)
            .map(|n| {
                let name = format!("apiserver-{n}");
                Apiserver::new(&name, parts, dir, &pki, &storage, &flags)
            })
            .collect();
        let credential = match options.identity {
            "frontProxy" => own.issue("sluice-proxy", &[], &[]),
            _ => pki.authority.issue(GATEWAY, options.groups, &[]),
        };
        let rules = dir.join("rules");
        std::fs::create_dir_all(&rules).expect("the directory is writable");
        let audit = dir.join("audit.log");
        let file = Files {
            dir,
            own: &own,
            serving: &serving,
            pki: &pki,
        };
        let config = file.process(
            front,
            admin,
            &audit,
            (options.store == Store::Own).then_some(etcd),
        );
        let cluster = file.cluster(&apiservers, options, &credential);
        std::fs::write(rules.join("cluster.yaml"), cluster).expect("the directory is writable");
        if let Some(text) = options.rules {
            std::fs::write(rules.join("limits.yaml"), text).expect("the directory is writable");
        }
        let admin = Client::new(admin, &own.ca, Some(&operator));
        Stack {
            dir: dir.to_owned(),
            gateway: Gateway::new(dir, &config, admin),
            apiservers,
            pki,
            front,
            front_ca: own.ca.clone(),
            rules,
            audit,
        }
    }

    /// Starts all of it and waits until the gateway is ready.
    ///
    /// # Panics
    /// When a part does not become ready in time.
    pub async fn start(&mut self) {
        self.gateway.start();
        self.gateway.live().await;
        for apiserver in &mut self.apiservers {
            apiserver.start();
        }
        for apiserver in &mut self.apiservers {
            apiserver.ready().await;
        }
        self.gateway.ready().await;
    }

    /// A client of the front with this certificate.
    #[must_use]
    pub fn client(&self, leaf: Option<&Leaf>) -> Client {
        Client::new(self.front, &self.front_ca, leaf)
    }

    /// The cluster's administrator, through the front.
    #[must_use]
    pub fn admin(&self) -> Client {
        self.client(Some(&self.pki.admin))
    }

    /// A kubectl that talks to the front.
    #[must_use]
    pub fn kubectl(&self, parts: &Parts, name: &str, who: &Credential<'_>) -> Kubectl {
        Kubectl::new(parts, &self.dir, name, self.front, &self.front_ca, who)
    }

    /// Kills the gateway and starts it again, without waiting for it.
    pub fn kill_and_restart_gateway(&mut self) {
        self.gateway.kill();
        self.gateway.start();
    }

    /// Ends the gateway as an operator would.
    ///
    /// # Panics
    /// When it has not ended within `limit`.
    pub fn stop_gateway(&mut self, limit: Duration) {
        if let Some(process) = self.gateway.process() {
            process.terminate(limit);
        }
    }
}

/// What the gateway's files are written from.
struct Files<'a> {
    dir: &'a Path,
    own: &'a Authority,
    serving: &'a Leaf,
    pki: &'a ClusterPki,
}

impl Files<'_> {
    fn process(&self, front: u16, admin: u16, audit: &Path, etcd: Option<u16>) -> PathBuf {
        let tls = format!(
            "certFile: {}, keyFile: {}, clientCAFile: ",
            self.serving.cert.display(),
            self.serving.key.display()
        );
        let (ours, theirs) = (self.own.ca.display(), self.pki.authority.ca.display());
        let metastore = etcd.map_or_else(String::new, |port| {
            format!(
                "metastore:\n  dataDir: {}\n  etcd:\n    address: 127.0.0.1:{port}\n    tls: {{ {tls}{ours} }}\n",
                self.dir.join("store").display()
            )
        });
        let text = format!(
            "apiVersion: sluice.io/v1alpha1\n\
             kind: GatewayConfig\n\
             listen:\n  address: 127.0.0.1:{front}\n  tls: {{ {tls}{theirs} }}\n\
             admin:\n  address: 127.0.0.1:{admin}\n  tls: {{ {tls}{ours} }}\n  allowedGroups: [\"system:masters\"]\n\
             {metastore}\
             rulesDir: rules\n\
             audit:\n  path: {}\n  maxSize: 1GiB\n\
             drainTimeout: 5s\n\
             log:\n  level: info\n",
            audit.display()
        );
        let path = self.dir.join("sluice.yaml");
        std::fs::write(&path, text).expect("the directory is writable");
        path
    }

    fn cluster(
        &self,
        apiservers: &[Apiserver],
        options: &StackOptions<'_>,
        credential: &Leaf,
    ) -> String {
        let StackOptions {
            identity, clients, ..
        } = options;
        let endpoints: String = apiservers
            .iter()
            .map(|a| format!("  - url: https://127.0.0.1:{}\n", a.port))
            .collect();
        let ca = self.pki.authority.ca.display();
        format!(
            "apiVersion: sluice.io/v1alpha1\n\
             kind: UpstreamCluster\n\
             metadata:\n  name: main\n\
             spec:\n  default: true\n  endpoints:\n{endpoints}\
             \x20 tls:\n    caFile: {ca}\n\
             \x20 credentials:\n    clientCertFile: {}\n    clientKeyFile: {}\n\
             \x20 identity:\n    mode: {identity}\n\
             \x20 clients:\n    clientCAFile: {ca}\n    tokenReview:\n      cacheTTL: 1m\n{clients}\
             \x20 health:\n    interval: 500ms\n",
            credential.cert.display(),
            credential.key.display()
        )
    }
}
