//! A file that is there whole or not at all.
//!
//! Written as `NAME.part`, synced, then renamed. A process that is killed leaves the part, which the
//! next one of the same name writes over; an error takes it away.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use crate::Error;

/// Ends the name of a file that is being written.
pub(super) const PART: &str = ".part";
/// Whoever reads a snapshot reads every secret in it.
const MODE: u32 = 0o600;

/// A file being written; taken away again when dropped before [`PartFile::finish`].
#[derive(Debug)]
pub struct PartFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
    is_finished: bool,
}

impl PartFile {
    /// Begins to write `path`, which must not be there.
    ///
    /// # Errors
    /// `Io` when there is a file of that name, or none can be made; `NoSpace`.
    pub fn create(path: &Path) -> Result<Self, Error> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(failed("write", path, io::ErrorKind::AlreadyExists.into()));
        }
        let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
        name.push(PART);
        let part = path.with_file_name(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(MODE);
        let file = options.open(&part);
        Ok(PartFile {
            path: path.to_owned(),
            file: file.map_err(|source| failed("create", &part, source))?,
            part,
            is_finished: false,
        })
    }

    /// Where it is until it is finished, to be looked through.
    #[must_use]
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Appends.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        written.map_err(|source| failed("write", &self.part, source))
    }

    /// Makes what was written durable, still under the name of a part.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn sync(&self) -> Result<(), Error> {
        let synced = self.file.sync_all();
        synced.map_err(|source| failed("sync", &self.part, source))
    }

    /// Gives it its name, durably, and never in another's place.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn finish(mut self) -> Result<(), Error> {
        self.sync()?;
        let renamed =
            rustix::fs::renameat_with(CWD, &self.part, CWD, &self.path, RenameFlags::NOREPLACE);
        match renamed {
            Ok(()) => {}
            // A file system that cannot promise it.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                fs::rename(&self.part, &self.path).map_err(|e| failed("rename", &self.part, e))?;
            }
            Err(errno) => return Err(failed("name", &self.path, errno.into())),
        }
        self.is_finished = true;
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|source| failed("sync", folder, source))
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // One that stays is written over by the next of its name.
            let _ = fs::remove_file(&self.part);
        }
    }
}

fn failed(action: &str, path: &Path, source: io::Error) -> Error {
    let why = match source.kind() {
        io::ErrorKind::AlreadyExists => ", which is there already: name another file",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": make room there, or name another folder"
        }
        _ => "",
    };
    Error::Io {
        action: format!("cannot {action} {}{why}", path.display()),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut file = PartFile::create(&path).unwrap();
        file.write(b"half").unwrap();
        assert!(file.part().exists() && !path.exists());
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

        // As a process that was killed leaves it.
        fs::write(dir.path().join("a.part"), b"longer than the new one").unwrap();
        let mut file = PartFile::create(&path).unwrap();
        file.write(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);

        let again = PartFile::create(&path).unwrap_err().to_string();
        assert!(again.contains("there already"), "{again}");
        let other = dir.path().join("b");
        let late = PartFile::create(&other).unwrap();
        fs::write(&other, b"another's").unwrap();
        let late = late.finish().unwrap_err().to_string();
        assert!(late.contains("there already"), "{late}");
        assert_eq!(fs::read(&other).unwrap(), b"another's");
    }
}
