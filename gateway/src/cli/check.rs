//! `sluice check`: says everything that is wrong with a configuration before anything runs on it.
//!
//! It goes as far as a start would, short of opening sockets: files that are named are read and
//! used. Exit code 0 when a start would take it, 1 when not.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use sluice_config::{Diagnostics, Loaded};

use super::rules::summary;
use crate::{clock, control};

/// Check a process file, its rules and every file they name.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// The process file.
    #[arg(short, long, value_name = "FILE", env = "SLUICE_CONFIG")]
    config: PathBuf,
}

/// Runs the command.
#[must_use]
pub fn run(args: &CheckArgs) -> ExitCode {
    finish(check(args))
}

/// What is said on standard output, or the complaints for standard error.
fn check(args: &CheckArgs) -> Result<String, String> {
    let loaded = sluice_config::load(&args.config).map_err(|faults| complaints(&faults))?;
    let Loaded { process, rules } = &loaded;
    let unusable = control::unusable(process, rules);
    if !unusable.is_empty() {
        let mut out = unusable.join("\n");
        out += &format!("\n\n{}\n", faults_word(unusable.len()));
        return Err(out);
    }
    let notes: String = control::expired(process, clock::wall())
        .iter()
        .map(|note| format!("note: {note}\n"))
        .collect();
    Ok(format!(
        "{}: ok\n{}{notes}",
        process.file().display(),
        summary(rules)
    ))
}

/// All faults with their excerpts, and how many there are.
pub(super) fn complaints(faults: &Diagnostics) -> String {
    format!("{}\n\n{}\n", faults.render(), faults_word(faults.len()))
}

fn faults_word(count: usize) -> String {
    if count == 1 {
        "1 fault".to_owned()
    } else {
        format!("{count} faults")
    }
}

/// Prints the outcome and turns it into an exit code.
pub(super) fn finish(outcome: Result<String, String>) -> ExitCode {
    let (written, code) = match outcome {
        Ok(text) => (io::stdout().write_all(text.as_bytes()), ExitCode::SUCCESS),
        Err(text) => (io::stderr().write_all(text.as_bytes()), ExitCode::FAILURE),
    };
    // Nobody reads any more: the code is all there is left to say.
    written.map_or(ExitCode::FAILURE, |()| code)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const RULES: &str = "\
apiVersion: sluice.io/v1alpha1
kind: UpstreamCluster
metadata: { name: a }
spec:
  default: true
  endpoints: [{ url: \"https://10.0.0.1:6443\" }]
  tls: { caFile: ../ca.crt }
  credentials: { tokenFile: ../token }
  clients: { anonymous: true }
";

    #[test]
    fn it_says_ok_or_every_fault() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let args = CheckArgs {
            config: at("gateway.yaml"),
        };
        assert!(
            check(&args)
                .unwrap_err()
                .contains("gateway.yaml: cannot be read")
        );

        let process = "\
apiVersion: sluice.io/v1alpha1
kind: GatewayConfig
listen: { address: 127.0.0.1:0, tls: { certFile: server.crt, keyFile: server.key } }
rulesDir: rules
";
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(at("gateway.yaml"), process).unwrap();
        fs::write(at("server.crt"), made.cert.pem()).unwrap();
        fs::write(at("server.key"), "nonsense").unwrap();
        fs::write(at("ca.crt"), "nonsense").unwrap();
        fs::write(at("token"), "secret").unwrap();
        fs::create_dir(at("rules")).unwrap();
        fs::write(at("rules/a.yaml"), RULES.replace("default:", "defalt:")).unwrap();
        let said = check(&args).unwrap_err();
        assert!(said.contains("5 |   defalt: true\n"), "{said}");
        assert!(said.contains("did you mean `default`?") && said.ends_with("\n1 fault\n"));

        // Well written, but two files hold the wrong thing.
        fs::write(at("rules/a.yaml"), RULES).unwrap();
        let said = check(&args).unwrap_err();
        assert!(
            said.contains("cluster a: ") && said.contains("listener: "),
            "{said}"
        );
        assert!(said.ends_with("\n2 faults\n"), "{said}");

        fs::write(at("server.key"), made.signing_key.serialize_pem()).unwrap();
        fs::write(at("ca.crt"), made.cert.pem()).unwrap();
        let said = check(&args).unwrap();
        assert!(
            said.contains("gateway.yaml: ok\n1 cluster, 0 rules"),
            "{said}"
        );
    }
}
