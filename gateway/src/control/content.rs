//! Whether files have changed, by what is in them: times and sizes lie on network file systems and
//! under the symbolic links of mounted ConfigMaps.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// Read of one file at most; the loader refuses larger ones, so a change beyond does not matter.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// What some files hold at one moment. A file that cannot be read counts by its name and the fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    /// Reads the files. Blocking.
    pub(super) fn of<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut hasher = Sha256::new();
        for file in files {
            let name = file.as_os_str().as_encoded_bytes();
            hasher.update(name.len().to_be_bytes());
            hasher.update(name);
            match read(file) {
                Ok(content) => {
                    hasher.update(content.len().to_be_bytes());
                    hasher.update(content);
                }
                Err(_) => hasher.update([0xff]),
            }
        }
        Digest(hasher.finalize().into())
    }

    /// As many digits as tell two contents apart for a person.
    pub(super) fn short(&self) -> String {
        let mut out = String::new();
        for byte in self.0.iter().take(6) {
            out += &format!("{byte:02x}");
        }
        out
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut content)?;
    Ok(content)
}
