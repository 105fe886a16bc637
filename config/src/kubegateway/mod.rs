//! KubeGateway's `UpstreamCluster` (`proxy.kubegateway.io/v1alpha1`), read as it is and made into
//! this gateway's own objects: one cluster and one list of rules.
//!
//! What it means there is kept where it can be, and made right where it is wrong (inverted entries
//! exclude, a schema that does not exist is no licence); each difference is told with its place.
//! What has no counterpart is a fault. Bounded by the file that is read; knows no more of the peer
//! than the form of this object.
//!
//! `shape` is the form, `cluster` whom it calls and lets in, `limits` its schemas, `policies` its
//! rules made of `terms`, `print` the native text.

mod cluster;
mod limits;
mod policies;
mod print;
mod shape;
mod terms;

use std::path::Path;
use std::sync::Arc;

use crate::cluster::UpstreamCluster;
use crate::decode::{self, Object, Place, Source};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::load::{self, RuleSet, Sourced};
use crate::located::{Located, Position};
use crate::rate::RateRules;
use crate::validate;

/// The peer's group and version.
pub(crate) const PEER_API_VERSION: &str = "proxy.kubegateway.io/v1alpha1";

/// The kinds of that group which are not configuration.
const PEER_STATE: [&str; 1] = ["RateLimitCondition"];

/// One of the peer's objects as ours.
#[derive(Clone, Debug)]
pub(crate) struct Translation {
    pub(crate) cluster: UpstreamCluster,
    pub(crate) rates: RateRules,
    pub(crate) differences: Vec<Diagnostic>,
}

/// What the peer's files are in this gateway's own form.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The objects as YAML; what differs stands above each as comments.
    pub text: String,
    /// Keys, certificates and tokens that the objects name as files: the name below the folder that
    /// was asked for, and the content.
    pub secrets: Vec<(String, Arc<[u8]>)>,
    /// What is not as it was, and why.
    pub differences: Vec<Diagnostic>,
}

/// Reads files of the peer's objects; `secrets` is the folder that the native objects name for what
/// the peer has inside. Reads and writes nothing else.
///
/// # Errors
/// Every fault of every file, and what the objects are to each other.
pub fn import(files: &[&Path], secrets: &Path) -> Result<Imported, Diagnostics> {
    let mut faults = Vec::new();
    let mut rules = RuleSet::default();
    let mut found = Vec::new();
    for file in files {
        let Some(source) = load::read(file, &mut faults) else {
            continue;
        };
        for object in decode::objects(&source, Place::Rules, &mut faults) {
            let Object::Translated(translation) = object else {
                let message = "holds an object that is this gateway's own already";
                let mut fault = Diagnostic::of_file(file, message);
                fault.help = Some(format!("give files of `apiVersion: {PEER_API_VERSION}`"));
                faults.push(fault);
                continue;
            };
            let (value, source) = (translation.cluster.clone(), Arc::clone(&source));
            rules.clusters.push(Sourced { value, source });
            let (value, source) = (translation.rates.clone(), Arc::clone(&rules_source(&rules)));
            rules.rates.push(Sourced { value, source });
            found.push(translation);
        }
    }
    let is_whole = faults.is_empty();
    validate::rules(&rules, is_whole, &mut faults);
    Diagnostics::settle(faults)?;
    let mut imported = Imported {
        text: String::new(),
        secrets: Vec::new(),
        differences: Vec::new(),
    };
    for translation in found {
        print::object(&translation, secrets, &mut imported);
        imported.differences.extend(translation.differences);
    }
    Ok(imported)
}

fn rules_source(rules: &RuleSet) -> Arc<Source> {
    let last = rules.clusters.last().map(|it| Arc::clone(&it.source));
    last.expect("a cluster was pushed just before")
}

/// Reads one document of the peer's group.
pub(crate) fn decode(
    source: &Source,
    document: &str,
    kind: &Located<String>,
) -> Result<Box<Translation>, Vec<Diagnostic>> {
    if kind.as_str() != "UpstreamCluster" {
        let help = if PEER_STATE.contains(&kind.as_str()) {
            "it is state of that gateway's limiter; leave it out"
        } else {
            "of that group UpstreamCluster is read, each in a document of its own"
        };
        let message = format!("kind `{}` of {PEER_API_VERSION} is not read", **kind);
        return Err(vec![source.fault(kind.at, message, Some(help.to_owned()))]);
    }
    let shape = decode::typed(source, document).map_err(|fault| vec![*fault])?;
    translate(source, &shape)
}

fn translate(source: &Source, shape: &shape::Cluster) -> Result<Box<Translation>, Vec<Diagnostic>> {
    let mut said = Said {
        source,
        faults: Vec::new(),
        differences: Vec::new(),
    };
    let cluster = cluster::translate(shape, &mut said);
    let limits = limits::translate(shape.spec.flow_control.as_ref(), &mut said);
    let (rates, mut subsets) = policies::translate(shape, &limits, &mut said);
    let Said {
        faults,
        differences,
        ..
    } = said;
    match cluster {
        Some(mut cluster) if faults.is_empty() => {
            cluster.spec.subsets.append(&mut subsets);
            Ok(Box::new(Translation {
                cluster,
                rates,
                differences,
            }))
        }
        _ => Err(faults),
    }
}

/// What a translation has to say.
struct Said<'a> {
    source: &'a Source,
    faults: Vec<Diagnostic>,
    differences: Vec<Diagnostic>,
}

impl Said<'_> {
    fn fault(&mut self, at: Position, message: impl Into<String>, help: &str) {
        let help = (!help.is_empty()).then(|| help.to_owned());
        self.faults.push(self.source.fault(at, message, help));
    }

    /// What is not as it was there, and why.
    fn differs(&mut self, at: Position, message: impl Into<String>, why: &str) {
        let why = Some(why.to_owned());
        self.differences.push(self.source.fault(at, message, why));
    }
}
