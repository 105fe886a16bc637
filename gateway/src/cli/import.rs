//! `sluice import kubegateway`: what a peer's objects are in this gateway's own form.
//!
//! The objects go to standard output, what differs to standard error, and keys nowhere unless a
//! folder for them is named: a terminal is no place for them. A rules folder takes the peer's
//! objects as they are as well; this is for whoever wants to leave its form behind.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sluice_config::{Diagnostic, Imported};

use super::check::{complaints, finish};

/// Print another gateway's objects in this one's form.
#[derive(Clone, Debug, clap::Args)]
pub struct ImportArgs {
    #[command(subcommand)]
    from: From,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum From {
    /// KubeGateway's `UpstreamCluster`s.
    Kubegateway {
        /// The files.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// The folder to write keys, certificates and tokens to, for its owner only. Without it
        /// none are written, and the objects name files below `secrets`.
        #[arg(long, value_name = "DIR")]
        secrets: Option<PathBuf>,
    },
}

/// Runs the command.
#[must_use]
pub fn run(args: &ImportArgs) -> ExitCode {
    let From::Kubegateway { files, secrets } = &args.from;
    match import(files, secrets.as_deref()) {
        Ok((text, notes)) => {
            eprint!("{notes}");
            finish(Ok(text))
        }
        Err(faults) => finish(Err(faults)),
    }
}

/// The objects, and what there is to say of them.
fn import(files: &[PathBuf], secrets: Option<&Path>) -> Result<(String, String), String> {
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let folder = secrets.unwrap_or(Path::new("secrets"));
    let imported = sluice_config::import(&files, folder).map_err(|faults| complaints(&faults))?;
    let mut notes = differences(&imported.differences);
    let count = imported.secrets.len();
    if secrets.is_some() {
        write_secrets(&imported, folder)
            .map_err(|error| format!("sluice: {}: {error}\n", folder.display()))?;
        notes += &format!("{count} files written to {}\n", folder.display());
    } else {
        notes += &format!(
            "{count} files are named below `secrets` and not written; give --secrets DIR for them\n"
        );
    }
    Ok((imported.text, notes))
}

/// One line for each.
pub(super) fn differences(differences: &[Diagnostic]) -> String {
    let line = |difference: &Diagnostic| {
        let why = difference.help.as_deref().unwrap_or_default();
        format!("note: {difference} ({why})\n")
    };
    differences.iter().map(line).collect()
}

/// Keys are for the owner alone, from the first byte on.
fn write_secrets(imported: &Imported, folder: &Path) -> std::io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    for (name, content) in &imported.secrets {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(folder.join(name))?.write_all(content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const OBJECT: &str = "\
apiVersion: proxy.kubegateway.io/v1alpha1
kind: UpstreamCluster
metadata: { name: c1.example }
spec:
  servers: [{ endpoint: https://10.0.0.1:6443 }]
  clientConfig: { caData: Y2E=, bearerToken: dG9rZW4= }
  dispatchPolicies:
  - rules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], nonResourceURLs: ['*'] }]
";

    #[test]
    fn keys_are_written_where_they_were_asked_for_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.yaml");
        fs::write(&file, OBJECT).unwrap();
        let files = [file];
        let (text, notes) = import(&files, None).unwrap();
        assert!(
            text.contains("tokenFile: \"secrets/c1.example-token\""),
            "{text}"
        );
        assert!(!text.contains("dG9rZW4=") && !notes.contains("dG9rZW4="));
        assert!(
            notes.contains("c.yaml:5:12: servers are asked for /readyz"),
            "{notes}"
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

        let secrets = dir.path().join("keys");
        let (text, _) = import(&files, Some(&secrets)).unwrap();
        let token = secrets.join("c1.example-token");
        assert!(text.contains(&format!("tokenFile: \"{}\"", token.display())));
        assert_eq!(fs::read(&token).unwrap(), b"token");
        let mode = fs::metadata(&token).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        fs::write(&files[0], OBJECT.replace("10.0.0.1", "u@10.0.0.1")).unwrap();
        let faults = import(&files, None).unwrap_err();
        assert!(
            faults.contains("5 |   servers:") && faults.ends_with("\n1 fault\n"),
            "{faults}"
        );
    }
}
