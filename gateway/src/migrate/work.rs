//! The folder beside a data directory that says how far its filling is.
//!
//! ```text
//! DIR.migrate/lock         held while somebody works on it
//! DIR.migrate/state.json   from where, at which revision, which phase
//! DIR.migrate/scan         what was read so far (spool)
//! ```
//!
//! The state is replaced as a whole and durable before the phase it names begins, so a kill finds
//! either the phase before or this one. The folder goes when the move is over.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::MigrateError;
use super::spool::{Pages, Spool};

/// The only one there is so far.
const FORMAT: u32 = 1;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Phase {
    /// Keys are being read from the source.
    Scan,
    /// All were read; the data directory is being made.
    Import,
    /// The data directory is there; the source's writes are carried over.
    Follow,
}

/// What must be known to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct State {
    format: u32,
    /// The source's cluster id, hexadecimal.
    pub(super) cluster: String,
    /// The revision that is read.
    pub(super) revision: i64,
    pub(super) phase: Phase,
}

impl State {
    pub(super) fn begin(cluster: u64, revision: i64) -> State {
        State {
            format: FORMAT,
            cluster: format!("{cluster:x}"),
            revision,
            phase: Phase::Scan,
        }
    }
}

/// The folder, held.
#[derive(Debug)]
pub(super) struct Work {
    folder: PathBuf,
    _lock: File,
}

impl Work {
    /// Takes the folder of a data directory, made when missing.
    ///
    /// # Errors
    /// `NotEmpty` when somebody else works on it.
    pub(super) fn take(dir: &Path) -> Result<Work, MigrateError> {
        let folder = folder_of(dir)?;
        fs::create_dir_all(&folder).map_err(|e| MigrateError::io("make", &folder, e))?;
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(|e| MigrateError::io("open", &path, e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Work {
                folder,
                _lock: lock,
            }),
            Err(fs::TryLockError::WouldBlock) => Err(MigrateError::NotEmpty(format!(
                "another process is filling {}: wait for it or end it",
                dir.display()
            ))),
            Err(fs::TryLockError::Error(e)) => Err(MigrateError::io("lock", &path, e)),
        }
    }

    /// What was noted; `None` when nothing was begun.
    pub(super) fn state(&self) -> Result<Option<State>, MigrateError> {
        let path = self.folder.join("state.json");
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(MigrateError::io("read", &path, e)),
        };
        let state: Result<State, _> = serde_json::from_slice(&text);
        match state {
            Ok(state) if state.format == FORMAT => Ok(Some(state)),
            Ok(_) | Err(_) => Err(MigrateError::NotEmpty(format!(
                "{} was not written by this version: remove {} and the unfinished data directory, \
                 then begin anew",
                path.display(),
                self.folder.display()
            ))),
        }
    }

    /// Notes it, durably.
    pub(super) fn note(&self, state: &State) -> Result<(), MigrateError> {
        let (path, new) = (
            self.folder.join("state.json"),
            self.folder.join("state.tmp"),
        );
        // A value of plain fields has a form in JSON.
        let text = serde_json::to_vec_pretty(state).unwrap_or_default();
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        });
        written.map_err(|e| MigrateError::io("write", &path, e))
    }

    /// What was read so far, to go on.
    pub(super) fn spool(&self) -> Result<Spool, MigrateError> {
        Spool::open(&self.folder.join("scan"))
    }

    /// What was read, from the beginning.
    pub(super) fn pages(&self) -> Result<Pages, MigrateError> {
        Pages::open(&self.folder.join("scan"))
    }

    /// Lets what was read go.
    pub(super) fn forget_spool(&self) -> Result<(), MigrateError> {
        let path = self.folder.join("scan");
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(MigrateError::io("remove", &path, e))
            }
            _ => Ok(()),
        }
    }

    /// The move is over, or was never begun.
    pub(super) fn remove(self) -> Result<(), MigrateError> {
        let removed = fs::remove_dir_all(&self.folder);
        removed.map_err(|e| MigrateError::io("remove", &self.folder, e))
    }
}

fn folder_of(dir: &Path) -> Result<PathBuf, MigrateError> {
    let Some(name) = dir.file_name() else {
        return Err(MigrateError::Usage(format!(
            "{} has no name of its own: name a directory to make",
            dir.display()
        )));
    };
    let mut name = name.to_owned();
    name.push(".migrate");
    Ok(dir.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_only_one_process_works_on_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("store");
        let work = Work::take(&data).unwrap();
        assert_eq!(work.state().unwrap(), None);
        let mut state = State::begin(0xabc, 7);
        work.note(&state).unwrap();
        state.phase = Phase::Follow;
        work.note(&state).unwrap();
        let error = Work::take(&data).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        drop(work);
        let work = Work::take(&data).unwrap();
        assert_eq!(work.state().unwrap(), Some(state));
        std::fs::write(
            dir.path().join("store.migrate/state.json"),
            "{\"format\":9}",
        )
        .unwrap();
        let error = work.state().unwrap_err().to_string();
        assert!(error.contains("this version"), "{error}");
        work.remove().unwrap();
        assert!(!dir.path().join("store.migrate").exists());
        assert!(Work::take(Path::new("/")).is_err());
    }
}
