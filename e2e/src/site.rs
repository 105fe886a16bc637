//! One gateway's files, authorities and ports in a temporary directory, for suites that need no real
//! kube-apiserver: over a store of its own, or in front of scripted upstreams.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::client::Client;
use crate::pki::{Authority, Leaf};
use crate::ports;
use crate::process::Process;
use crate::sluice::{Gateway, binary};

/// Generous: only reached by a command that should have ended and has not.
const LIMIT: Duration = Duration::from_secs(60);

/// Files, authorities and ports of one gateway. Paths in its files are relative.
pub struct Site {
    /// Everything's folder.
    pub dir: tempfile::TempDir,
    /// Signs the gateway's certificates and operators'.
    pub own: Authority,
    /// Signs users' certificates.
    pub users: Authority,
    /// An operator of the admin API.
    pub operator: Leaf,
    /// A user in `system:masters`.
    pub admin: Leaf,
    /// The front's, the admin API's and the etcd API's port.
    pub ports: [u16; 3],
}

impl Site {
    /// Makes the files; the process file is that of [`Site::all_in_one`].
    ///
    /// # Panics
    /// When the folder is not writable.
    #[must_use]
    pub fn make() -> Site {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let own = Authority::new(dir.path(), "own");
        let users = Authority::new(dir.path(), "users");
        let names = ["a.test", "b.test", "c.test"];
        let _ = own.issue("sluice", &[], &names);
        let operator = own.issue("operator", &["system:masters"], &[]);
        let admin = users.issue("admin", &["system:masters"], &[]);
        std::fs::create_dir(dir.path().join("rules")).expect("the folder is writable");
        let ports = [ports::free(), ports::free(), ports::free()];
        let site = Site {
            dir,
            own,
            users,
            operator,
            admin,
            ports,
        };
        site.write("sluice.yaml", &site.all_in_one());
        site
    }

    /// A path below the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file below the folder.
    ///
    /// # Panics
    /// When the folder is not writable.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the folder is writable");
    }

    /// The process file of a gateway with nothing behind it but the rules.
    #[must_use]
    pub fn front(&self) -> String {
        let [front, admin, _] = self.ports;
        format!(
            "apiVersion: sluice.io/v1alpha1\n\
             kind: GatewayConfig\n\
             listen:\n  address: 127.0.0.1:{front}\n  tls: {{ certFile: sluice.crt, keyFile: sluice.key, clientCAFile: users.crt }}\n\
             admin:\n  address: 127.0.0.1:{admin}\n  tls: {{ certFile: sluice.crt, keyFile: sluice.key, clientCAFile: own.crt }}\n\
             rulesDir: rules\n\
             drainTimeout: 2s\n\
             log: {{ level: info, format: text }}\n"
        )
    }

    /// The same with the Kubernetes API and the etcd API over a store.
    #[must_use]
    pub fn all_in_one(&self) -> String {
        let etcd = self.ports[2];
        format!(
            "{}metastore:\n  dataDir: data\n  etcd: {{ address: \"127.0.0.1:{etcd}\", insecureLoopback: true }}\n\
             api: {{ default: true, clientCAFile: users.crt }}\n",
            self.front()
        )
    }

    /// A cluster of one endpoint that is verified by `ca`.
    ///
    /// # Panics
    /// When the folder is not writable.
    pub fn cluster(&self, name: &str, port: u16, ca: &str, more: &str) {
        let text = format!(
            "apiVersion: sluice.io/v1alpha1\nkind: UpstreamCluster\nmetadata: {{ name: {name} }}\n\
             spec:\n  endpoints: [{{ url: \"https://127.0.0.1:{port}\" }}]\n  tls: {{ caFile: {} }}\n\
             \x20 credentials: {{ clientCertFile: ../operator.crt, clientKeyFile: ../operator.key }}\n\
             \x20 clients: {{ clientCAFile: ../users.crt }}\n  health: {{ interval: 100ms }}\n{more}",
            self.path(ca).display()
        );
        self.write(&format!("rules/{name}.yaml"), &text);
    }

    /// The gateway of `sluice.yaml`, not started.
    #[must_use]
    pub fn gateway(&self) -> Gateway {
        let admin = Client::new(self.ports[1], &self.own.ca, Some(&self.operator));
        Gateway::new(self.dir.path(), &self.path("sluice.yaml"), admin)
    }

    /// A client of the front with this certificate.
    #[must_use]
    pub fn client(&self, leaf: Option<&Leaf>) -> Client {
        Client::new(self.ports[0], &self.own.ca, leaf)
    }

    /// The user in `system:masters`.
    #[must_use]
    pub fn user(&self) -> Client {
        self.client(Some(&self.admin))
    }

    /// What a command that has to fail said.
    ///
    /// # Panics
    /// When it does not fail, or panics, or says too much for a person.
    #[must_use]
    pub fn fails(&self, args: &[&str]) -> String {
        let mut command = Command::new(binary());
        command.args(args).current_dir(self.dir.path());
        let log = self.path("failing.log");
        let _ = std::fs::remove_file(&log);
        let code = Process::start("failing", self.dir.path(), &mut command)
            .wait_exit(LIMIT)
            .code();
        let said = std::fs::read_to_string(&log).expect("its log");
        assert!(!said.contains("panicked"), "{args:?}: {said}");
        assert_eq!(code, Some(1), "{args:?}: {said}");
        assert!(said.len() < 2500, "a text for a person: {said}");
        said
    }

    /// What `sluice run` said when it could not start.
    ///
    /// # Panics
    /// As [`Site::fails`].
    #[must_use]
    pub fn refused(&self) -> String {
        self.fails(&["run", "--config", "sluice.yaml"])
    }
}
