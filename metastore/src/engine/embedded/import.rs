//! Filling a data directory with one checkpoint, for a store that comes from elsewhere.
//!
//! ```text
//! begin    lock, marker durable
//! chunk*   checkpoint.tmp
//! finish   checkpoint durable under its name, marker removed
//! ```
//!
//! While the marker is there nobody opens the directory, whatever else is in it: without one, a
//! restore that was killed would leave what looks like a store that is empty. It also says that all
//! there is came from an import that was not finished, so that the next import may begin anew in the
//! same place. Every other content is left alone and refused.
//!
//! It does not know what is in a chunk.

use std::fmt;
use std::sync::Arc;

use super::checkpoint::{self, Making};
use super::files::{Files, Lock};
use super::lock;
use super::{io_error, remove};
use crate::{Error, Revision};

/// There while a directory is being filled.
pub(super) const UNFINISHED: &str = "import.unfinished";

/// Refuses to open a directory whose import was not finished.
pub(super) fn refuse_unfinished(files: &dyn Files, names: &[String]) -> Result<(), Error> {
    if !is_unfinished(names) {
        return Ok(());
    }
    Err(Error::Import {
        reason: format!(
            "{} was being restored or imported into and that did not end, so it is not whole: do \
             the same again into it, or remove it",
            files.place().display()
        ),
    })
}

fn is_unfinished(names: &[String]) -> bool {
    names.iter().any(|name| name == UNFINISHED)
}

/// A directory being filled; what it wrote goes when this is dropped before [`Filling::finish`].
pub(crate) struct Filling {
    files: Arc<dyn Files>,
    at: Revision,
    /// `None` once the checkpoint has its name.
    making: Option<Making>,
    is_finished: bool,
    /// Last, since it is let go last.
    _lock: Arc<dyn Lock>,
}

impl fmt::Debug for Filling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filling")
            .field("dir", &self.files.place())
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl Filling {
    /// Takes an empty directory, or one whose import was not finished.
    ///
    /// # Errors
    /// `Import` when it holds anything else, `Stopped` when another process has it; `NoSpace`, `Io`.
    pub(crate) fn begin(files: Arc<dyn Files>, holder: &str, at: Revision) -> Result<Self, Error> {
        let before = lock::list(&*files)?;
        refuse_content(&*files, &before)?;
        let held = lock::take(&*files)?;
        // Once more: another import may have ended in between.
        refuse_content(&*files, &lock::list(&*files)?)?;
        files
            .create(UNFINISHED)
            .and_then(|marker| marker.sync())
            .and_then(|()| files.sync_names())
            .map_err(|source| io_error(&*files, "write", UNFINISHED, source))?;
        let mut filling = Filling {
            files: Arc::clone(&files),
            at,
            making: None,
            is_finished: false,
            _lock: Arc::clone(&held),
        };
        remove_checkpoints(&*files)?;
        let epoch = lock::raise(&*files, &*held, &before, holder)?;
        let header = checkpoint::Header {
            at,
            epoch,
            log_sequence: 0,
        };
        let making = Making::begin(&*files, &header);
        filling.making = Some(making.map_err(|source| filling.write_error(source))?);
        Ok(filling)
    }

    /// Writes the next chunk.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; the import cannot go on then.
    pub(crate) fn chunk(&mut self, chunk: &[u8]) -> Result<(), Error> {
        let written = self.making.as_mut().map(|making| making.chunk(chunk));
        written.unwrap_or(Ok(())).map_err(|e| self.write_error(e))
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.making.as_ref().map_or(0, Making::bytes)
    }

    /// Makes the directory one that can be opened; answers the bytes it has.
    ///
    /// # Errors
    /// `NoSpace`, `Io`; it cannot be opened then.
    pub(crate) fn finish(mut self) -> Result<u64, Error> {
        let making = self.making.take();
        let bytes = making.map_or(Ok(0), |making| making.finish(&*self.files));
        let bytes = bytes.map_err(|source| self.write_error(source))?;
        remove(&*self.files, UNFINISHED)?;
        self.sync_names()?;
        self.is_finished = true;
        Ok(bytes)
    }

    fn write_error(&self, source: std::io::Error) -> Error {
        io_error(&*self.files, "write", &checkpoint::name(self.at), source)
    }

    /// Leaves the directory as empty as it was. The lock's name goes last: whoever makes a new one
    /// must not lose its own marker to this.
    fn clear(&self) -> Result<(), Error> {
        remove_checkpoints(&*self.files)?;
        self.sync_names()?;
        remove(&*self.files, UNFINISHED)?;
        self.sync_names()?;
        remove(&*self.files, lock::NAME)
    }

    fn sync_names(&self) -> Result<(), Error> {
        let synced = self.files.sync_names();
        synced.map_err(|source| io_error(&*self.files, "sync", "", source))
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.making = None;
        if !self.is_finished {
            // What cannot be removed keeps its marker, and the next import or open says what to do.
            let _ = self.clear();
        }
    }
}

/// Refuses a directory with anything in it, unless it is what an import left. A lock file that is
/// empty was taken and never held a store: by an import that is about to begin or died then.
fn refuse_content(files: &dyn Files, names: &[String]) -> Result<(), Error> {
    let is_ours = |name: &str| {
        name == lock::NAME || name == UNFINISHED || checkpoint::revision(name).is_some()
    };
    let is_again = is_unfinished(names);
    let is_unused = |name: &str| {
        let bytes = || files.open(name).and_then(|file| file.len());
        name == lock::NAME && matches!(bytes(), Ok(0))
    };
    let is_of_no_account =
        |name: &str| lock::is_harmless(name) || is_again && is_ours(name) || is_unused(name);
    let foreign = names.iter().find(|name| !is_of_no_account(name));
    let Some(name) = foreign else {
        return Ok(());
    };
    Err(Error::Import {
        reason: format!(
            "{} is not empty, it holds {name}: name an empty directory or a new one",
            files.place().display()
        ),
    })
}

fn remove_checkpoints(files: &dyn Files) -> Result<(), Error> {
    for name in lock::list(files)? {
        if name == checkpoint::TEMPORARY || checkpoint::revision(&name).is_some() {
            remove(files, &name)?;
        }
    }
    Ok(())
}
