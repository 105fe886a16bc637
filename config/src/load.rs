//! From files to validated objects.
//!
//! A rules folder is read flat: every `*.yaml` and `*.yml` that is a file after following links, in
//! the order of names. Names that begin with a dot are left out, and with them the `..data` link
//! and the dated folders by which Kubernetes swaps a ConfigMap.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cluster::UpstreamCluster;
use crate::decode::{self, Object, Place, Source};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::kubegateway::Translation;
use crate::path::FilePath;
use crate::process::GatewayConfig;
use crate::rate::RateRules;
use crate::validate;

/// The largest file read: a thousand times an ordinary one, and still decoded in a second.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The most rule files: more than one a tenant of the largest platforms known.
const FILES_MAX: usize = 4096;

/// An object and the file it stands in.
#[derive(Clone, Debug)]
pub struct Sourced<T> {
    /// The object.
    pub value: T,
    pub(crate) source: Arc<Source>,
}

impl<T> Sourced<T> {
    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.source.file
    }
}

impl<T> std::ops::Deref for Sourced<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Everything in a rules folder, in order.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// The clusters.
    pub clusters: Vec<Sourced<UpstreamCluster>>,
    /// The limits, in the order in which they are tried.
    pub rates: Vec<Sourced<RateRules>>,
    /// What objects of a peer's form mean otherwise here.
    pub differences: Vec<Diagnostic>,
    /// The rule files, and then every file that an object names.
    pub files: Vec<PathBuf>,
    /// The rule files as they were read.
    pub(crate) sources: Vec<Arc<Source>>,
}

/// A process file and its rules, valid together.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The process file.
    pub process: Sourced<GatewayConfig>,
    /// The rules; empty without a rules folder.
    pub rules: RuleSet,
}

/// Reads the process file and the rules it names, and checks them together.
///
/// # Errors
/// Every fault of every file.
pub fn load(path: &Path) -> Result<Loaded, Diagnostics> {
    match read_process(path) {
        Ok(process) => load_rules_of(&process).map(|rules| Loaded { process, rules }),
        Err(faults) => {
            let mut faults = faults.into_vec();
            // The rules can be read all the same when their folder is known.
            if let Some(Err(more)) = faulty_rules_dir(path).map(|dir| load_rules(&dir)) {
                faults.extend(more.into_vec());
            }
            Err(Diagnostics::of(faults))
        }
    }
}

/// Reads the rules that a process file names, anew, and checks them together with it.
///
/// # Errors
/// Every fault of every rule file, and what contradicts the process file.
pub fn load_rules_of(process: &Sourced<GatewayConfig>) -> Result<RuleSet, Diagnostics> {
    let rules = match &process.rules_dir {
        Some(dir) => load_rules(dir.as_path())?,
        None => RuleSet::default(),
    };
    let mut faults = Vec::new();
    validate::together(process, &rules, &mut faults);
    Diagnostics::settle(faults).map(|()| rules)
}

/// The rules folder of a process file that has other faults, where it is there.
fn faulty_rules_dir(path: &Path) -> Option<PathBuf> {
    let source = read(path, &mut Vec::new())?;
    let objects = decode::objects(&source, Place::Process, &mut Vec::new());
    objects.into_iter().find_map(|object| match object {
        Object::Process(mut process) => {
            let dir = process.rules_dir.as_mut()?;
            dir.resolve(path.parent()?);
            dir.as_path().is_dir().then(|| dir.as_path().to_owned())
        }
        Object::Cluster(_) | Object::Rates(_) | Object::Translated(_) => None,
    })
}

/// Reads and checks the process file; paths in it are relative to its folder.
///
/// # Errors
/// Every fault that was found in it.
pub fn load_process(path: &Path) -> Result<GatewayConfig, Diagnostics> {
    read_process(path).map(|sourced| sourced.value)
}

pub(crate) fn read_process(path: &Path) -> Result<Sourced<GatewayConfig>, Diagnostics> {
    let mut faults = Vec::new();
    let mut found = Vec::new();
    if let Some(source) = read(path, &mut faults) {
        for object in decode::objects(&source, Place::Process, &mut faults) {
            if let Object::Process(mut process) = object {
                let mut paths = Paths::new(&source);
                process.each_path(&mut |key, path, must| paths.settle(key, path, must));
                faults.append(&mut paths.faults);
                validate::process(&process, &source, &mut faults);
                found.push(Sourced {
                    value: *process,
                    source: Arc::clone(&source),
                });
            }
        }
    }
    if found.len() > 1 {
        faults.push(Diagnostic::of_file(
            path,
            "more than one GatewayConfig; keep one",
        ));
    }
    match found.pop() {
        Some(process) => Diagnostics::settle(faults).map(|()| process),
        None => {
            if faults.is_empty() {
                faults.push(Diagnostic::of_file(
                    path,
                    "holds no GatewayConfig; write one",
                ));
            }
            Err(Diagnostics::of(faults))
        }
    }
}

/// Reads and checks a rules folder; paths in a file are relative to its folder.
///
/// # Errors
/// Every fault that was found in any file.
pub fn load_rules(dir: &Path) -> Result<RuleSet, Diagnostics> {
    let mut faults = Vec::new();
    let files = match rule_files(dir) {
        Ok(files) => files,
        Err(error) => {
            faults.push(Diagnostic::of_file(
                dir,
                format!("cannot be listed: {error}"),
            ));
            Vec::new()
        }
    };
    if files.len() > FILES_MAX {
        let message = format!("{} rule files; at most {FILES_MAX} are read", files.len());
        return Err(Diagnostics::of(vec![Diagnostic::of_file(dir, message)]));
    }
    let sources: Vec<_> = files
        .iter()
        .filter_map(|file| read(file, &mut faults))
        .collect();
    rules_of(sources, files, faults)
}

/// Decodes and checks what rule files hold; `faults` are those of reading them.
pub(crate) fn rules_of(
    sources: Vec<Arc<Source>>,
    files: Vec<PathBuf>,
    mut faults: Vec<Diagnostic>,
) -> Result<RuleSet, Diagnostics> {
    let mut rules = RuleSet::default();
    let mut named = Vec::new();
    for source in &sources {
        if source.text.trim().is_empty() {
            faults.push(emptied(source));
        }
        for object in decode::objects(source, Place::Rules, &mut faults) {
            let source = Arc::clone(source);
            match object {
                Object::Cluster(mut cluster) => {
                    let mut paths = Paths::new(&source);
                    cluster.each_path(&mut |key, path, must| paths.settle(key, path, must));
                    faults.append(&mut paths.faults);
                    named.append(&mut paths.seen);
                    let value = *cluster;
                    rules.clusters.push(Sourced { value, source });
                }
                Object::Rates(rates) => {
                    let value = *rates;
                    rules.rates.push(Sourced { value, source });
                }
                Object::Translated(translation) => {
                    let Translation {
                        cluster: value,
                        rates,
                        mut differences,
                    } = *translation;
                    let of_rates = Arc::clone(&source);
                    rules.clusters.push(Sourced { value, source });
                    rules.rates.push(Sourced {
                        value: rates,
                        source: of_rates,
                    });
                    rules.differences.append(&mut differences);
                }
                Object::Process(_) => {}
            }
        }
    }
    rules.files = files;
    rules.files.append(&mut named);
    rules.sources = sources;
    // Cross-checks on half a set would complain of what the broken half holds.
    let is_whole = faults.is_empty();
    validate::rules(&rules, is_whole, &mut faults);
    Diagnostics::settle(faults).map(|()| rules)
}

/// Whoever writes a file in place empties it first, and what it held is not meant to end with that.
fn emptied(source: &Source) -> Diagnostic {
    Diagnostic {
        help: Some("it may be half written; to end its rules remove the file".to_owned()),
        ..Diagnostic::of_file(&source.file, "is empty")
    }
}

/// The rule files of a folder, by name.
///
/// # Errors
/// The folder cannot be read.
pub fn rule_files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_yaml = path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml");
        // A link that leads nowhere is kept: reading it will say so.
        if !is_hidden && is_yaml && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub(crate) fn read(path: &Path, faults: &mut Vec<Diagnostic>) -> Option<Arc<Source>> {
    let text = match fs::metadata(path) {
        Ok(meta) if meta.len() > FILE_BYTES_MAX => {
            let message = format!("larger than {FILE_BYTES_MAX} bytes; split it");
            faults.push(Diagnostic::of_file(path, message));
            return None;
        }
        Ok(_) => fs::read_to_string(path),
        Err(error) => Err(error),
    };
    match text {
        Ok(text) => Some(Arc::new(Source {
            file: path.to_owned(),
            text,
        })),
        Err(error) => {
            faults.push(Diagnostic::of_file(
                path,
                format!("cannot be read: {error}"),
            ));
            None
        }
    }
}

/// Makes paths independent of the working directory and checks that they are there.
struct Paths<'a> {
    source: &'a Source,
    faults: Vec<Diagnostic>,
    seen: Vec<PathBuf>,
}

impl<'a> Paths<'a> {
    fn new(source: &'a Source) -> Self {
        Paths {
            source,
            faults: Vec::new(),
            seen: Vec::new(),
        }
    }

    fn settle(&mut self, key: &str, path: &mut FilePath, must_exist: bool) {
        if path.as_inline().is_some() {
            return;
        }
        let written = path.as_path().display().to_string();
        if written.is_empty() {
            self.faults.push(
                self.source
                    .fault(path.at(), format!("{key} is empty"), None),
            );
            return;
        }
        if let Some(base) = self.source.file.parent() {
            path.resolve(base);
        }
        self.seen.push(path.as_path().to_owned());
        if !must_exist {
            return;
        }
        if let Err(error) = fs::metadata(path.as_path()) {
            let message = format!("{key} names `{written}`, which cannot be read: {error}");
            let help = format!("looked at {}", path.as_path().display());
            self.faults
                .push(self.source.fault(path.at(), message, Some(help)));
        }
    }
}
