//! Keeps the rules that are in force in a file of the process's own, for a start at which those of
//! the folder are faulty.
//!
//! Written whole beside its place and moved there, so that it holds one content or the other. Rules
//! of a foreign form may carry keys: only the owner reads it. A disk that does not take it is told
//! of and changes nothing else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sluice_config::{GatewayConfig, RuleSet};

/// Writes the rules to the place that the process file names, if it names one. Blocking.
pub(super) fn keep(process: &GatewayConfig, rules: &RuleSet) {
    let Some(path) = process.last_good_file.as_ref().map(|file| file.as_path()) else {
        return;
    };
    let Some(bytes) = sluice_config::pack(rules) else {
        tracing::warn!("the rules in force are not kept: too large, or a file's name is no text");
        return;
    };
    // Most starts and many reloads find what they would write.
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return;
    }
    if let Err(error) = write(path, &bytes) {
        let file = path.display();
        tracing::error!(%error, %file, "the rules in force cannot be kept for the next start");
    }
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Two processes write at once while one takes over from the other.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = Path::new(&name);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(new, path)?;
        match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    })();
    if written.is_err() {
        // Half of it is of use to nobody, and on a full disk in the way.
        let _ = fs::remove_file(new);
    }
    written
}
