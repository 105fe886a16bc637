//! Faults that decoding cannot see: contradictions within an object and between objects.
//!
//! Everything is looked at, so that one run lists all there is to mend. Says nothing on whether
//! files can be read; the loader does.

mod clients;
mod cluster;
mod process;
mod rate;
mod shadow;

pub(crate) use shadow::covers;

use std::collections::HashMap;
use std::time::Duration;

use crate::decode::Source;
use crate::diagnostic::Diagnostic;
use crate::load::{RuleSet, Sourced};
use crate::located::{Located, Position};
use crate::process::GatewayConfig;
use crate::units::TimeSpan;

/// The name under which rules know the API served from the metastore; no cluster may bear it.
pub const LOCAL_CLUSTER: &str = "local";

/// Where faults of one file go.
pub(super) struct Report<'a> {
    source: &'a Source,
    faults: &'a mut Vec<Diagnostic>,
}

impl<'a> Report<'a> {
    fn new(source: &'a Source, faults: &'a mut Vec<Diagnostic>) -> Self {
        Report { source, faults }
    }

    fn fault(&mut self, at: Position, message: impl Into<String>, help: &str) {
        let help = (!help.is_empty()).then(|| help.to_owned());
        self.faults.push(self.source.fault(at, message, help));
    }

    fn not_zero(&mut self, key: &str, span: &Located<TimeSpan>) {
        if span.get() == Duration::ZERO {
            self.fault(
                span.at,
                format!("{key} is zero"),
                "write more than zero, such as 1s",
            );
        }
    }
}

/// Checks the process file by itself.
pub(crate) fn process(config: &GatewayConfig, source: &Source, faults: &mut Vec<Diagnostic>) {
    process::check(config, &mut Report::new(source, faults));
}

/// Checks a rules folder by itself. With `is_whole` every object of it was decoded, so that a name
/// that is not found is a fault.
pub(crate) fn rules(rules: &RuleSet, is_whole: bool, faults: &mut Vec<Diagnostic>) {
    for cluster in &rules.clusters {
        cluster::check(cluster, &mut Report::new(&cluster.source, faults));
    }
    cluster::check_all(&rules.clusters, faults);
    for rates in &rules.rates {
        rate::check(rates, &mut Report::new(&rates.source, faults));
    }
    rate::check_all(rules, is_whole, faults);
    shadow::check(&rules.rates, faults);
}

/// Checks what only shows with both at hand.
pub(crate) fn together(
    process: &Sourced<GatewayConfig>,
    rules: &RuleSet,
    faults: &mut Vec<Diagnostic>,
) {
    if let Some(api) = &process.api {
        let mut owners: HashMap<&str, &str> = HashMap::new();
        for cluster in &rules.clusters {
            for host in &cluster.spec.hosts {
                owners.insert(host.as_str(), cluster.metadata.name.as_str());
            }
        }
        let mut report = Report::new(&process.source, faults);
        for host in &api.hosts {
            if let Some(owner) = owners.get(host.as_str()) {
                let message = format!("host `{}` is also of cluster `{owner}`", **host);
                report.fault(host.at, message, "a host has one owner");
            }
        }
        let other = rules.clusters.iter().find(|cluster| *cluster.spec.default);
        if let (true, Some(other)) = (*api.default, other) {
            let name = &*other.metadata.name;
            let message = format!("both the api and cluster `{name}` are the default");
            report.fault(api.default.at, message, "keep one default");
        }
    }
    for rates in &rules.rates {
        let cluster = &rates.spec.cluster;
        if cluster.as_str() == LOCAL_CLUSTER && process.api.is_none() {
            let message = "rules for cluster `local`, but the process file has no `api`";
            let mut report = Report::new(&rates.source, faults);
            report.fault(
                cluster.at,
                message,
                "add `api` to the process file or name a cluster",
            );
        }
    }
    if process.api.is_none() && rules.clusters.is_empty() {
        let message = "neither an api nor any UpstreamCluster: there is nothing to serve";
        let mut fault = Diagnostic::of_file(&process.source.file, message);
        fault.help =
            Some("add an UpstreamCluster to rulesDir, or `metastore` and `api`".to_owned());
        faults.push(fault);
    }
}

/// Whether `name` can be an object's.
fn check_name(name: &Located<String>, report: &mut Report<'_>) {
    let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    if !is_lower || !crate::address::is_dns_name(name) {
        report.fault(
            name.at,
            format!("name `{}` is not a lower-case DNS name", **name),
            "use letters, digits, hyphens and dots",
        );
    }
}
