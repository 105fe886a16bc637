//! Keys, certificates and tokens as operators give them: in a file that may be renewed in place, or
//! as text that stood in the configuration itself.
//!
//! Says nothing on what is inside. Its `Debug` shows where it is from and never what it holds.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// PEM text or a token, and where it is from.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    place: PathBuf,
    inline: Option<Arc<[u8]>>,
}

impl Material {
    /// Text that stood in the configuration at `place`.
    #[must_use]
    pub fn inline(place: PathBuf, text: Arc<[u8]>) -> Self {
        Material {
            place,
            inline: Some(text),
        }
    }

    /// The file, or what messages call the text.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The file, where there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.inline.is_none().then_some(&*self.place)
    }

    /// The content now. Blocking.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> std::io::Result<Vec<u8>> {
        match &self.inline {
            Some(text) => Ok(text.to_vec()),
            None => std::fs::read(&self.place),
        }
    }
}

impl From<PathBuf> for Material {
    fn from(file: PathBuf) -> Self {
        Material {
            place: file,
            inline: None,
        }
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Material").field(&self.place).finish()
    }
}
