//! The few things the engine asks of a file system, so that tests can put a faulty one in its place.
//!
//! One flat directory of named files. Nothing here retries, buffers or interprets. Two facts are
//! taken for granted of the real one: a synced write stays, and rewriting a sector with the bytes
//! it had cannot damage it.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation};

/// A directory of files.
pub trait Files: Send + Sync + 'static {
    /// Where it is, for messages.
    fn place(&self) -> &Path;

    /// Names of all files and folders in it.
    ///
    /// # Errors
    /// As the operating system has it; so with all below.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that exists, to read and write.
    ///
    /// # Errors
    /// `NotFound` among others.
    fn open(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// Makes an empty file, in place of one of that name.
    ///
    /// # Errors
    /// `StorageFull` among others.
    fn create(&self, name: &str) -> io::Result<Box<dyn File>>;

    /// Renames, in place of one of the new name; durable after [`Files::sync_names`].
    ///
    /// # Errors
    /// As found.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name; durable after [`Files::sync_names`].
    ///
    /// # Errors
    /// As found.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals durable.
    ///
    /// # Errors
    /// As found.
    fn sync_names(&self) -> io::Result<()>;

    /// Opens a file, made when missing, and locks it against every other opener; `None` when one
    /// has it. Dropping the lock lets it go.
    ///
    /// # Errors
    /// As found.
    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>>;

    /// A number that nobody who writes to the store can guess.
    fn salt(&self) -> u32;
}

/// One open file.
#[expect(
    clippy::len_without_is_empty,
    reason = "asking for the length can fail"
)]
pub trait File: Send + Sync {
    /// Its length.
    ///
    /// # Errors
    /// As found.
    fn len(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on, as far as the file goes; answers how much.
    ///
    /// # Errors
    /// As found.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`; durable after [`File::sync`].
    ///
    /// # Errors
    /// As found; some of it may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the file at least that long, with room on the disk for all of it.
    ///
    /// # Errors
    /// `StorageFull` among others.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Cuts the file.
    ///
    /// # Errors
    /// As found.
    fn truncate(&self, bytes: u64) -> io::Result<()>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// As found; what was written since the last success is then in an unknown state for ever.
    fn sync(&self) -> io::Result<()>;
}

/// A locked file.
pub trait Lock: File {
    /// Whether the locked file still is what its name stands for.
    ///
    /// # Errors
    /// As found.
    fn is_current(&self) -> io::Result<bool>;
}

/// A directory of the operating system's.
#[derive(Debug)]
struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Makes the directory when it is missing, durably.
    fn open(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            fs::create_dir_all(path)?;
            if let Some(parent) = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())
            {
                fs::File::open(parent)?.sync_all()?;
            }
        }
        Ok(Directory {
            path: path.to_owned(),
        })
    }
}

/// The files of a directory that is made when it is missing; in a build with injected faults, such
/// as the process can die at.
pub(crate) fn open(path: &Path) -> io::Result<Arc<dyn Files>> {
    let files: Arc<dyn Files> = Arc::new(Directory::open(path)?);
    #[cfg(feature = "injected-faults")]
    let files: Arc<dyn Files> = Arc::new(super::mortal::Mortal::over(files));
    Ok(files)
}

impl Files for Directory {
    fn place(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.path)?;
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).open(self.path.join(name))?;
        Ok(Box::new(file))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        Ok(Box::new(options.open(self.path.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let path = self.path.join(name);
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let metadata = file.metadata()?;
                let identity = (metadata.dev(), metadata.ino());
                Ok(Some(Box::new(LockedFile {
                    file,
                    identity,
                    path,
                })))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn salt(&self) -> u32 {
        // The standard hasher's keys are the one source of randomness that needs no crate.
        let random = RandomState::new().hash_one(std::process::id());
        u32::try_from(random >> 32).unwrap_or_default()
    }
}

impl File for fs::File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match FileExt::read_at(self, rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // The file system cannot set room aside without writing; then write.
            Err(rustix::io::Errno::OPNOTSUPP) => fill_with_zeros(self, File::len(self)?, bytes),
            Err(errno) => Err(errno.into()),
        }
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Writes zeros over `from..to` and makes them durable bit by bit, so that the log's own syncs never
/// wait behind more than one piece of it.
pub(super) fn fill_with_zeros(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    /// A few milliseconds of a disk's time.
    const PIECE_BYTES: usize = 1 << 20;
    let zeros = vec![0; PIECE_BYTES];
    let mut offset = from;
    while offset < to {
        let count = usize::try_from(to - offset).map_or(PIECE_BYTES, |n| n.min(PIECE_BYTES));
        file.write_at(zeros.get(..count).unwrap_or(&zeros), offset)?;
        file.sync()?;
        offset += count as u64;
    }
    Ok(())
}

struct LockedFile {
    file: fs::File,
    /// Device and inode.
    identity: (u64, u64),
    path: PathBuf,
}

impl File for LockedFile {
    fn len(&self) -> io::Result<u64> {
        File::len(&self.file)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(&self.file, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        File::write_at(&self.file, bytes, offset)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.file.reserve(bytes)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.file.truncate(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Lock for LockedFile {
    fn is_current(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == self.identity),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}
