//! What files name: paths, relative to the file that names them, or the text itself where a foreign
//! format carries keys and certificates inside.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use crate::located::{Located, Position};

/// A file that is named, or what such a file would hold. After loading, a path no longer depends on
/// the working directory.
#[derive(Clone)]
pub struct FilePath {
    path: PathBuf,
    at: Position,
    inline: Option<Arc<[u8]>>,
}

impl FilePath {
    /// What a file would hold, written at `at` of the configuration; `place` is what it is called.
    pub(crate) fn inline(place: PathBuf, at: Position, bytes: Vec<u8>) -> Self {
        FilePath {
            path: place,
            at,
            inline: Some(bytes.into()),
        }
    }

    /// The path, or what the text is called.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.path
    }

    /// The text itself, where there is no file.
    #[must_use]
    pub fn as_inline(&self) -> Option<&Arc<[u8]>> {
        self.inline.as_ref()
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

/// Without the text: it may be a key.
impl std::fmt::Debug for FilePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FilePath").field(&self.path).finish()
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Located::<String>::deserialize(deserializer)?;
        Ok(FilePath {
            path: PathBuf::from(written.value),
            at: written.at,
            inline: None,
        })
    }
}
