//! Where an engine keeps bytes that it was given, so that they need not stay in memory.
//!
//! A [`Source`] is an open file: it stays readable as long as somebody holds it, whatever becomes
//! of its name, so a trim never takes away what a [`Place`] refers to. An engine must not use a file
//! for something else while its source is held. Nothing is checked here: the caller knows the
//! checksum of what it wants back.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::embedded::files::File;
use crate::Error;

/// A file that bytes can be read back from.
pub struct Source {
    /// For messages: the name that it had when it was opened.
    path: PathBuf,
    file: Arc<dyn File>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.path).finish()
    }
}

impl Source {
    pub(super) fn new(path: PathBuf, file: Arc<dyn File>) -> Arc<Self> {
        Arc::new(Source { path, file })
    }

    /// Reads `bytes` at `offset`. Blocks.
    ///
    /// # Errors
    /// `Io` as found; `Corrupt` when the file ends before.
    pub fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        let mut buffer = vec![0; bytes];
        let read = self.file.read_at(&mut buffer, offset);
        let filled = read.map_err(|source| Error::Io {
            action: format!("cannot read a value from {}", self.path.display()),
            source,
        })?;
        if filled < bytes {
            return Err(self.damaged(offset, "the file ends within a value"));
        }
        Ok(buffer)
    }

    /// What is said of bytes that are not what was written there.
    #[must_use]
    pub fn damaged(&self, offset: u64, what: &str) -> Error {
        Error::Corrupt {
            reason: format!(
                "{} at offset={offset}: {what}; check the disk, then restore from a backup",
                self.path.display()
            ),
        }
    }
}

/// A place in a source.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file.
    pub source: Arc<Source>,
    /// Where in it.
    pub offset: u64,
}

impl Place {
    /// The place so many bytes further on.
    #[must_use]
    pub fn after(&self, bytes: u64) -> Self {
        Place {
            source: Arc::clone(&self.source),
            offset: self.offset + bytes,
        }
    }
}
