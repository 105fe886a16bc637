//! `sluice rules`: work on a folder of rule files without a gateway.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use sluice_config::{Match, Mode, RateRule, RuleSet};

use super::check::{complaints, finish};
use super::import::differences;

/// Work on rule files.
#[derive(Clone, Debug, clap::Args)]
pub struct RulesArgs {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum RulesCommand {
    /// Say everything that is wrong with a folder of rule files, and what the rules leave open.
    Lint {
        /// The folder.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Runs the command.
#[must_use]
pub fn run(args: &RulesArgs) -> ExitCode {
    let RulesCommand::Lint { dir } = &args.command;
    finish(lint(dir))
}

fn lint(dir: &std::path::Path) -> Result<String, String> {
    match sluice_config::load_rules(dir) {
        Ok(rules) => Ok(format!("{}: ok\n{}", dir.display(), summary(&rules))),
        Err(faults) => Err(complaints(&faults)),
    }
}

/// How much there is, and what no rule limits.
pub(super) fn summary(rules: &RuleSet) -> String {
    let all: Vec<(&str, &RateRule)> = rules
        .rates
        .iter()
        .flat_map(|rates| {
            let cluster = rates.spec.cluster.as_str();
            rates.spec.rules.iter().map(move |rule| (cluster, rule))
        })
        .collect();
    let of_mode = |mode| all.iter().filter(|(_, rule)| rule.mode == mode).count();
    let counted = |count: usize, word: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {word}{plural}")
    };
    let mut out = format!(
        "{}, {} ({} only observing, {} off)\n",
        counted(rules.clusters.len(), "cluster"),
        counted(all.len(), "rule"),
        of_mode(Mode::Observe),
        of_mode(Mode::Off),
    );
    out += &differences(&rules.differences);
    for cluster in &rules.clusters {
        let name = cluster.metadata.name.as_str();
        let is_covered = all.iter().any(|(of, rule)| {
            (*of == "*" || *of == name) && rule.mode == Mode::Enforce && is_for_all(&rule.matches)
        });
        if !is_covered {
            // Writing into a String cannot fail.
            let _ = writeln!(
                out,
                "note: on cluster {name} requests that match no rule are not limited; a last rule \
                 without `match` would limit them"
            );
        }
    }
    out
}

/// Whether a match has no condition.
fn is_for_all(matches: &Match) -> bool {
    let Match {
        users,
        groups,
        verbs,
        resources,
        namespaces,
        names,
        user_agents,
        non_resource_paths,
    } = matches;
    users.is_none()
        && groups.is_none()
        && verbs.is_none()
        && resources.is_none()
        && namespaces.is_none()
        && names.is_none()
        && user_agents.is_none()
        && non_resource_paths.is_none()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lint_counts_rules_and_tells_what_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let text = "\
apiVersion: sluice.io/v1alpha1
kind: UpstreamCluster
metadata: { name: a }
spec:
  default: true
  endpoints: [{ url: \"http://127.0.0.1:1\" }]
  identity: { mode: passThrough }
  clients: { anonymous: true }
---
apiVersion: sluice.io/v1alpha1
kind: RateRules
metadata: { name: r }
spec:
  cluster: \"*\"
  rules:
  - { name: one, match: { verbs: [list] }, mode: observe, rate: { perSecond: 1 } }
  - { name: two, mode: MODE, rate: { perSecond: 1 } }
";
        let file = dir.path().join("r.yaml");
        fs::write(&file, text.replace("MODE", "off")).unwrap();
        let said = lint(dir.path()).unwrap();
        assert!(
            said.contains(": ok\n1 cluster, 2 rules (1 only observing, 1 off)\n"),
            "{said}"
        );
        assert!(
            said.contains("note: on cluster a requests that match no rule"),
            "{said}"
        );
        fs::write(&file, text.replace("MODE", "enforce")).unwrap();
        let said = lint(dir.path()).unwrap();
        assert!(!said.contains("note:"), "{said}");
        fs::write(
            &file,
            text.replace("MODE", "maybe").replace("observe", "look"),
        )
        .unwrap();
        let said = lint(dir.path()).unwrap_err();
        assert!(
            said.contains("r.yaml:16:50: unknown value `look`"),
            "{said}"
        );
    }
}
