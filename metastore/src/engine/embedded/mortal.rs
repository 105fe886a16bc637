//! Files of the operating system's, with word given of each change so that the process can die at
//! it ([`crate::faults::die_at`]). Only with the feature `injected-faults`.
//!
//! A file goes by the name it has now, as does what is done to it: what is written into
//! `segment.tmp` is a change of `new-segment`, and of `segment` once it is renamed.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::files::{File, Files, Lock};
use super::{checkpoint, import, lock, segment, spare};
use crate::faults::{changing, is_ahead};

/// A directory that tells.
pub(super) struct Mortal {
    files: Arc<dyn Files>,
    /// Of each name, what those who have its file open go by.
    kinds: Mutex<BTreeMap<String, Kind>>,
}

/// What a file is by its name; one for all who have it open.
type Kind = Arc<Mutex<&'static str>>;

fn kind_of(name: &str) -> &'static str {
    match name {
        "" => "names",
        lock::NAME => "lock",
        import::UNFINISHED => "marker",
        checkpoint::TEMPORARY => "new-checkpoint",
        spare::TEMPORARY => "new-segment",
        spare::BEING_MADE => "new-spare",
        spare::RESERVE => "reserve",
        _ if segment::sequence(name).is_some() => "segment",
        _ if checkpoint::revision(name).is_some() => "checkpoint",
        _ => "spare",
    }
}

/// Does it with word given before and after.
fn told<T>(change: &str, file: &str, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    changing(change, file, "before");
    let done = act()?;
    changing(change, file, "after");
    Ok(done)
}

impl Mortal {
    pub(super) fn over(files: Arc<dyn Files>) -> Self {
        Mortal {
            files,
            kinds: Mutex::default(),
        }
    }

    fn kind(&self, name: &str) -> Kind {
        let mut kinds = self.kinds.lock();
        let new = || Arc::new(Mutex::new(kind_of(name)));
        Arc::clone(kinds.entry(name.to_owned()).or_insert_with(new))
    }
}

impl Files for Mortal {
    fn place(&self) -> &Path {
        self.files.place()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.files.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let file = self.files.open(name)?;
        let kind = self.kind(name);
        Ok(Box::new(Telling { file, kind }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        // A segment gets a second life only where a spare is missing: then none can be made.
        let is_spare = name == spare::BEING_MADE && self.files.open(spare::RESERVE).is_ok();
        if is_spare && is_ahead("rename segment") {
            return Err(io::ErrorKind::Other.into());
        }
        let file = told("create", kind_of(name), || self.files.create(name))?;
        // Another file than the one that had this name.
        self.kinds.lock().remove(name);
        let kind = self.kind(name);
        Ok(Box::new(Telling { file, kind }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        told("rename", kind_of(from), || self.files.rename(from, to))?;
        let mut kinds = self.kinds.lock();
        if let Some(kind) = kinds.remove(from) {
            *kind.lock() = kind_of(to);
            kinds.insert(to.to_owned(), kind);
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        told("remove", kind_of(name), || self.files.remove(name))?;
        self.kinds.lock().remove(name);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        told("sync", kind_of(""), || self.files.sync_names())
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let lock = told("lock", kind_of(name), || self.files.lock(name))?;
        let kind = self.kind(name);
        Ok(lock.map(|file| Box::new(Telling { file, kind }) as Box<dyn Lock>))
    }

    fn salt(&self) -> u32 {
        self.files.salt()
    }
}

/// A file that tells.
struct Telling<F: ?Sized> {
    kind: Kind,
    file: Box<F>,
}

impl<F: File + ?Sized> Telling<F> {
    fn told<T>(&self, change: &str, act: impl FnOnce(&F) -> io::Result<T>) -> io::Result<T> {
        let kind = *self.kind.lock();
        told(change, kind, || act(&self.file))
    }
}

impl<F: File + ?Sized> File for Telling<F> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let kind = *self.kind.lock();
        self.told("write", |file| {
            let (first, rest) = bytes.split_at(bytes.len() / 2);
            file.write_at(first, offset)?;
            changing("write", kind, "half");
            file.write_at(rest, offset + first.len() as u64)
        })
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.told("reserve", |file| file.reserve(bytes))
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.told("truncate", |file| file.truncate(bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.told("sync", File::sync)
    }
}

impl<F: Lock + ?Sized> Lock for Telling<F> {
    fn is_current(&self) -> io::Result<bool> {
        self.file.is_current()
    }
}
