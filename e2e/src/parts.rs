//! Real parts by name: found in the cache outside the checkout, or built there once.
//!
//! A part that cannot be had on this machine makes a suite say SKIPPED and why; where it could have
//! been had (a Go toolchain is there), the same is a failure.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Paths of the parts asked for.
#[derive(Debug)]
pub struct Parts(BTreeMap<String, PathBuf>);

impl Parts {
    /// Finds or builds every part named; `None` after printing SKIPPED when one cannot be had here.
    ///
    /// # Panics
    /// When a part is missing although this machine has what builds it, or the gate expects it
    /// (`SLUICE_EXPECT_PARTS=1`).
    #[must_use]
    pub fn find(names: &[&str]) -> Option<Parts> {
        Parts::find_with(names, None)
    }

    /// As [`Parts::find`], with Kubernetes' own parts of this version.
    ///
    /// # Panics
    /// As [`Parts::find`].
    #[must_use]
    pub fn find_kubernetes(version: &str, names: &[&str]) -> Option<Parts> {
        Parts::find_with(names, Some(version))
    }

    fn find_with(names: &[&str], kubernetes: Option<&str>) -> Option<Parts> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("parts/build.sh");
        let output = Command::new("bash")
            .arg(&script)
            .args(names)
            .envs(kubernetes.map(|version| ("SLUICE_K8S_VERSION", version)))
            .stderr(Stdio::inherit())
            .output()
            .unwrap_or_else(|e| panic!("cannot run {}: {e}", script.display()));
        let text = String::from_utf8_lossy(&output.stdout);
        let mut found = BTreeMap::new();
        let mut missing = Vec::new();
        for line in text.lines() {
            match *line.split('\t').collect::<Vec<_>>() {
                [name, "SKIPPED", why] => missing.push(format!("{name}: {why}")),
                [name, path] => {
                    found.insert(name.to_owned(), PathBuf::from(path));
                }
                _ => panic!("unreadable line from {}: {line}", script.display()),
            }
        }
        if missing.is_empty() {
            assert_eq!(
                found.len(),
                names.len(),
                "{} answered {text:?}",
                script.display()
            );
            return Some(Parts(found));
        }
        let expected = std::env::var_os("SLUICE_EXPECT_PARTS").is_some() || has_go();
        assert!(
            !expected,
            "real parts were expected and are missing: {}",
            missing.join("; ")
        );
        // Not by a macro: the harness keeps those of passing tests to itself.
        let line = format!("SKIPPED: {}\n", missing.join("; "));
        std::io::stderr()
            .write_all(line.as_bytes())
            .expect("standard error takes a line");
        None
    }

    /// These parts, and where both have one, those of `other`.
    #[must_use]
    pub fn with(mut self, other: Parts) -> Parts {
        self.0.extend(other.0);
        self
    }

    /// The path of a part that was asked for.
    ///
    /// # Panics
    /// When it was not asked for.
    #[must_use]
    pub fn path(&self, name: &str) -> &Path {
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("part {name} was not asked for"))
    }
}

fn has_go() -> bool {
    Command::new("go")
        .arg("version")
        .output()
        .is_ok_and(|o| o.status.success())
}
