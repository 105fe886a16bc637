//! Paths in files are relative to the file that names them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use crate::located::{Located, Position};

/// A path of the file system. After loading it no longer depends on the working directory.
#[derive(Clone, Debug)]
pub struct FilePath {
    path: PathBuf,
    at: Position,
}

impl FilePath {
    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.path
    }

    /// Where it was written.
    #[must_use]
    pub fn at(&self) -> Position {
        self.at
    }

    /// Makes it relative to `base`; an absolute path stays.
    pub(crate) fn resolve(&mut self, base: &Path) {
        self.path = base.join(&self.path);
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Located::<String>::deserialize(deserializer)?;
        Ok(FilePath {
            path: PathBuf::from(written.value),
            at: written.at,
        })
    }
}
