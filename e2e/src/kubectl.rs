//! A real kubectl with a kubeconfig of the test's own and nothing of the machine's.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::parts::Parts;
use crate::pki::Leaf;

/// How a kubeconfig's user shows who it is.
#[derive(Clone, Debug)]
pub enum Credential<'a> {
    /// A client certificate.
    Certificate(&'a Leaf),
    /// A bearer token.
    Token(&'a str),
}

/// A kubectl bound to one kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    binary: PathBuf,
    home: PathBuf,
    /// The kubeconfig.
    pub config: PathBuf,
}

impl Kubectl {
    /// Writes a kubeconfig called `name` for a server on 127.0.0.1 and binds a kubectl to it.
    ///
    /// # Panics
    /// When the directory is not writable.
    #[must_use]
    pub fn new(
        parts: &Parts,
        dir: &Path,
        name: &str,
        port: u16,
        ca: &Path,
        who: &Credential<'_>,
    ) -> Self {
        let user = match who {
            Credential::Certificate(leaf) => serde_json::json!({
                "client-certificate": leaf.cert, "client-key": leaf.key,
            }),
            Credential::Token(token) => serde_json::json!({ "token": token }),
        };
        let server = format!("https://127.0.0.1:{port}");
        let text = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority": ca}}],
            "users": [{"name": "it", "user": user}],
        });
        let config = dir.join(format!("{name}.kubeconfig"));
        std::fs::write(&config, text.to_string()).expect("the directory is writable");
        Kubectl::with_config(parts, dir, &config)
    }

    /// Binds a kubectl to a kubeconfig that exists.
    #[must_use]
    pub fn with_config(parts: &Parts, dir: &Path, config: &Path) -> Self {
        Kubectl {
            binary: parts.path("kubectl").to_owned(),
            home: dir.to_owned(),
            config: config.to_owned(),
        }
    }

    /// A command, not yet started.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .env_clear()
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.config)
            .stdin(Stdio::null());
        command
    }

    /// Runs it and hands back whatever came of it.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("kubectl starts")
    }

    /// Runs it and hands back its standard output.
    ///
    /// # Panics
    /// When it fails.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "kubectl {} failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs it with `input` on its standard input and hands back its standard output.
    ///
    /// # Panics
    /// When it fails.
    pub fn ok_with(&self, args: &[&str], input: &str) -> String {
        let file = self.home.join("stdin.yaml");
        std::fs::write(&file, input).expect("the directory is writable");
        let stdin = std::fs::File::open(&file).expect("just written");
        let output = self
            .command(args)
            .stdin(stdin)
            .output()
            .expect("kubectl starts");
        assert!(
            output.status.success(),
            "kubectl {} failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
