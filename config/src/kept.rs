//! The rules that were last in force, in one file: a process can start by them when the rules
//! folder holds a fault.
//!
//! The file holds the rule files' texts as they were read, under their own names, so that paths in
//! them and the places of later faults mean what they meant. Certificates and tokens are not in it:
//! they are read from where the rules name them. Texts of a foreign form may hold keys, so whoever
//! writes the file keeps it to its owner.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::decode::Source;
use crate::diagnostic::Diagnostics;
use crate::load::{Loaded, RuleSet, Sourced, read_process, rules_of};
use crate::process::GatewayConfig;
use crate::validate;

/// The only form so far.
const FORM: &str = "sluice.io/last-good/v1";

/// The largest file written and read: many times the rules of the largest platforms known.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why the rules last in force cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The process file names no place for them, or is faulty itself: nothing stands in for it.
    #[error("the process file has no lastGoodFile to start by instead")]
    NotKept,
    /// The file is not there, or cannot be read.
    #[error("the rules last in force cannot be read from {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not one that a process has written.
    #[error("{} does not hold rules last in force: {why}; remove it", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What was in force does not fit any more: a file it names is gone, or the process file or this
    /// version reads it otherwise.
    #[error("the rules last in force are faulty too: {0}")]
    Faulty(#[from] Diagnostics),
}

#[derive(Serialize)]
struct Written<'a> {
    form: &'a str,
    files: Vec<WrittenFile<'a>>,
}

#[derive(Serialize)]
struct WrittenFile<'a> {
    path: &'a Path,
    text: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    form: String,
    files: Vec<KeptFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptFile {
    path: PathBuf,
    text: String,
}

/// What the file holds for these rules. `None` when a rule file's name is no text, or all of them are
/// larger than what is read back.
#[must_use]
pub fn pack(rules: &RuleSet) -> Option<Vec<u8>> {
    let files = rules.sources.iter().map(|source| WrittenFile {
        path: &source.file,
        text: &source.text,
    });
    let written = Written {
        form: FORM,
        files: files.collect(),
    };
    let bytes = serde_json::to_vec(&written).ok()?;
    let length = u64::try_from(bytes.len()).ok()?;
    (length <= FILE_BYTES_MAX).then_some(bytes)
}

/// Reads a process file, and the rules last in force in place of those in its folder.
///
/// # Errors
/// Why there are none to use.
pub fn load_kept(path: &Path) -> Result<Loaded, KeptError> {
    let process = read_process(path).map_err(|_| KeptError::NotKept)?;
    let rules = load_kept_rules(&process)?;
    Ok(Loaded { process, rules })
}

/// Reads the rules last in force of a process, and checks them as if they stood in its folder.
///
/// # Errors
/// Why there are none to use.
pub fn load_kept_rules(process: &Sourced<GatewayConfig>) -> Result<RuleSet, KeptError> {
    let Some(path) = process.last_good_file.as_ref().map(|file| file.as_path()) else {
        return Err(KeptError::NotKept);
    };
    let foreign = |why: String| KeptError::Foreign {
        path: path.to_owned(),
        why,
    };
    let bytes = read(path).map_err(|source| KeptError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| foreign(error.to_string()))?;
    if kept.form != FORM {
        return Err(foreign(format!(
            "its form is {:?} and not {FORM:?}",
            kept.form
        )));
    }
    let files = kept.files.iter().map(|file| file.path.clone()).collect();
    let sources = kept
        .files
        .into_iter()
        .map(|KeptFile { path, text }| Arc::new(Source { file: path, text }));
    let rules = rules_of(sources.collect(), files, Vec::new())?;
    let mut faults = Vec::new();
    validate::together(process, &rules, &mut faults);
    Diagnostics::settle(faults)?;
    Ok(rules)
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
