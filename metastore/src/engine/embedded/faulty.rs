//! A directory in memory that loses, tears and refuses what a test tells it to.
//!
//! Each file has what a reader sees and what a power cut would leave; a sync turns the first into the
//! second. [`FaultyDisk::power_cut`] answers the directory as the next boot finds it, and leaves the
//! old one to the process that is thought to have died. Nothing is bounded but by
//! [`FaultyDisk::set_room`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::memory::Gate;
use super::files::{File, Files, Lock};

/// What survives of bytes that were written and not synced.
#[derive(Clone, Copy, Debug)]
pub enum Survival {
    /// Nothing; names not synced are as they were.
    Nothing,
    /// All of it, as after the death of the process alone.
    Everything,
    /// The first so many bytes, in the order of the writes; names as with `Everything`.
    Bytes(usize),
    /// Any subset of 512-byte sectors and any leading part of the changes to names, drawn from
    /// this seed.
    Sectors(u64),
}

/// What a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Reading a file.
    Read,
    /// Writing into a file; half of the bytes get there.
    Write,
    /// Syncing a file; what was written stays readable and is lost by a power cut.
    Sync,
    /// Making a file.
    Create,
    /// Renaming a file (by its old name).
    Rename,
    /// Syncing the names (of the name "").
    SyncNames,
}

/// Called with the directory after each step that changes it.
pub type Observer = Arc<dyn Fn(&FaultyDisk) + Send + Sync>;

/// An in-memory [`Files`]; clones are the same directory.
#[derive(Clone, Default)]
pub struct FaultyDisk(Arc<Mutex<Disk>>);

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultyDisk").field(&self.names()).finish()
    }
}

#[derive(Default)]
struct Disk {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Changes to names since they were synced.
    changes: Vec<Change>,
    faults: Vec<Fault>,
    gates: Vec<(On, String, Gate)>,
    /// Bytes that all named files together may have.
    room: Option<usize>,
    locked: BTreeSet<usize>,
    observer: Option<Observer>,
    salts: u32,
    syncs: usize,
}

#[derive(Clone, Default)]
struct Content {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync that did not fail.
    pending: Vec<Pending>,
}

#[derive(Clone)]
enum Pending {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Clone)]
enum Change {
    Set(String, usize),
    Rename(String, String),
    Remove(String),
}

struct Fault {
    on: On,
    name_has: String,
    /// How many are let through first.
    skip: usize,
    kind: io::ErrorKind,
}

impl FaultyDisk {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        FaultyDisk::default()
    }

    /// The next operation of this kind, on a file whose name has `name_has` in it, fails so, after
    /// `skip` were let through.
    pub fn fail(&self, on: On, name_has: &str, skip: usize, kind: io::ErrorKind) {
        self.0.lock().faults.push(Fault {
            on,
            name_has: name_has.to_owned(),
            skip,
            kind,
        });
    }

    /// The next operation of this kind on such a file waits at the gate; one operation a call.
    pub fn hold(&self, on: On, name_has: &str, gate: &Gate) {
        let gate = (on, name_has.to_owned(), gate.clone());
        self.0.lock().gates.push(gate);
    }

    /// Has each step that changes something observed; `None` ends it.
    pub fn observe(&self, observer: Option<Observer>) {
        self.0.lock().observer = observer;
    }

    /// How many bytes all files may have together from now on.
    pub fn set_room(&self, bytes: Option<usize>) {
        self.0.lock().room = bytes;
    }

    /// How often a file was synced.
    #[must_use]
    pub fn syncs(&self) -> usize {
        self.0.lock().syncs
    }

    /// Names of the files.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.lock().names.keys().cloned().collect()
    }

    /// What a reader of the file sees.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.0.lock();
        let file = disk.files.get(*disk.names.get(name)?)?;
        Some(file.seen.clone())
    }

    /// Puts a file there, durably, in place of one of that name.
    pub fn put(&self, name: &str, content: Vec<u8>) {
        let mut disk = self.0.lock();
        let index = disk.files.len();
        disk.files.push(Content {
            seen: content.clone(),
            durable: content,
            pending: Vec::new(),
        });
        disk.names.insert(name.to_owned(), index);
        disk.durable_names.insert(name.to_owned(), index);
    }

    /// Changes what lies in a file, durably and also for those who have it open.
    pub fn overwrite(&self, name: &str, content: Vec<u8>) {
        let mut disk = self.0.lock();
        let index = disk.names.get(name).copied();
        if let Some(file) = index.and_then(|index| disk.files.get_mut(index)) {
            file.durable.clone_from(&content);
            file.seen = content;
            file.pending.clear();
        }
    }

    /// Takes a file away, durably.
    pub fn take_away(&self, name: &str) {
        let mut disk = self.0.lock();
        disk.names.remove(name);
        disk.durable_names.remove(name);
    }

    /// The directory as it is found after a power cut at this moment.
    #[must_use]
    pub fn power_cut(&self, survival: Survival) -> FaultyDisk {
        let disk = self.0.lock();
        let mut dice = Dice(match survival {
            Survival::Sectors(seed) => seed,
            _ => 0,
        });
        let mut names = disk.durable_names.clone();
        let survivors = match survival {
            Survival::Nothing => 0,
            Survival::Everything | Survival::Bytes(_) => disk.changes.len(),
            Survival::Sectors(_) => dice.below(disk.changes.len() + 1),
        };
        for change in disk.changes.iter().take(survivors) {
            change.apply(&mut names);
        }
        let mut left = match survival {
            Survival::Bytes(bytes) => bytes,
            _ => usize::MAX,
        };
        let after = FaultyDisk::new();
        for (name, index) in names {
            let Some(file) = disk.files.get(index) else {
                continue;
            };
            let content = match survival {
                Survival::Nothing => file.durable.clone(),
                Survival::Everything | Survival::Bytes(_) => file.first(&mut left),
                Survival::Sectors(_) => file.sectors(&mut dice),
            };
            after.put(&name, content);
        }
        after
    }

    fn check(&self, on: On, name: &str) -> io::Result<()> {
        let mut disk = self.0.lock();
        let is_held =
            |(kind, has, _): &(On, String, Gate)| *kind == on && name.contains(has.as_str());
        if let Some(index) = disk.gates.iter().position(is_held) {
            let (_, _, gate) = disk.gates.remove(index);
            drop(disk);
            gate.pass();
            disk = self.0.lock();
        }
        let matches = |fault: &Fault| fault.on == on && name.contains(&fault.name_has);
        let Some(index) = disk.faults.iter().position(matches) else {
            return Ok(());
        };
        match disk.faults.get_mut(index) {
            Some(fault) if fault.skip > 0 => {
                fault.skip -= 1;
                Ok(())
            }
            _ => Err(disk.faults.remove(index).kind.into()),
        }
    }

    /// Tells the observer that something changed.
    fn changed(&self) {
        let observer = self.0.lock().observer.clone();
        if let Some(observer) = observer {
            observer(self);
        }
    }

    fn handle(&self, name: &str, index: usize) -> Box<FaultyFile> {
        Box::new(FaultyFile {
            disk: self.clone(),
            name: name.to_owned(),
            index,
            is_lock: false,
        })
    }
}

impl Files for FaultyDisk {
    fn place(&self) -> &Path {
        Path::new("/faulty")
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn File>> {
        let index = self.0.lock().names.get(name).copied();
        Ok(self.handle(name, index.ok_or(io::ErrorKind::NotFound)?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn File>> {
        self.check(On::Create, name)?;
        let mut disk = self.0.lock();
        let index = disk.files.len();
        disk.files.push(Content::default());
        disk.change(Change::Set(name.to_owned(), index));
        drop(disk);
        self.changed();
        Ok(self.handle(name, index))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check(On::Rename, from)?;
        let mut disk = self.0.lock();
        if !disk.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.change(Change::Rename(from.to_owned(), to.to_owned()));
        drop(disk);
        self.changed();
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.0.lock();
        if !disk.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.change(Change::Remove(name.to_owned()));
        drop(disk);
        self.changed();
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.check(On::SyncNames, "")?;
        let mut disk = self.0.lock();
        disk.durable_names = disk.names.clone();
        disk.changes.clear();
        drop(disk);
        self.changed();
        Ok(())
    }

    fn lock(&self, name: &str) -> io::Result<Option<Box<dyn Lock>>> {
        let known = self.0.lock().names.get(name).copied();
        let index = match known {
            Some(index) => index,
            None => {
                self.create(name)?;
                let made = self.0.lock().names.get(name).copied();
                made.ok_or(io::ErrorKind::NotFound)?
            }
        };
        if !self.0.lock().locked.insert(index) {
            return Ok(None);
        }
        let mut file = self.handle(name, index);
        file.is_lock = true;
        Ok(Some(file))
    }

    fn salt(&self) -> u32 {
        let mut disk = self.0.lock();
        disk.salts += 1;
        disk.salts.wrapping_mul(0x9E37_79B9)
    }
}

impl Disk {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn used(&self) -> usize {
        let files = self
            .names
            .values()
            .filter_map(|index| self.files.get(*index));
        files.map(|file| file.seen.len()).sum()
    }
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Change::Set(name, index) => {
                names.insert(name.clone(), *index);
            }
            Change::Rename(from, to) => {
                if let Some(index) = names.remove(from) {
                    names.insert(to.clone(), index);
                }
            }
            Change::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl Content {
    fn first(&self, left: &mut usize) -> Vec<u8> {
        let mut content = self.durable.clone();
        for pending in &self.pending {
            match pending {
                Pending::Write(offset, bytes) => {
                    let count = bytes.len().min(*left);
                    write(
                        &mut content,
                        *offset,
                        bytes.get(..count).unwrap_or_default(),
                    );
                    *left -= count;
                }
                Pending::Length(length) => content.resize(*length, 0),
            }
        }
        content
    }

    fn sectors(&self, dice: &mut Dice) -> Vec<u8> {
        const SECTOR: usize = 512;
        let mut content = self.durable.clone();
        for pending in &self.pending {
            match pending {
                Pending::Write(offset, bytes) => {
                    let mut at = *offset;
                    let mut rest = bytes.as_slice();
                    while !rest.is_empty() {
                        let count = (SECTOR - at % SECTOR).min(rest.len());
                        let (sector, later) = rest.split_at(count);
                        if dice.below(2) == 0 {
                            write(&mut content, at, sector);
                        }
                        at += count;
                        rest = later;
                    }
                }
                Pending::Length(length) if dice.below(2) == 0 => content.resize(*length, 0),
                Pending::Length(_) => {}
            }
        }
        content
    }
}

fn write(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(place) = content.get_mut(offset..end) {
        place.copy_from_slice(bytes);
    }
}

/// A small generator whose draws depend on the seed alone.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let draw = (mixed ^ (mixed >> 31)) % (limit.max(1) as u64);
        usize::try_from(draw).unwrap_or(0)
    }
}

struct FaultyFile {
    disk: FaultyDisk,
    name: String,
    index: usize,
    is_lock: bool,
}

impl FaultyFile {
    fn with<T>(&self, act: impl FnOnce(&mut Content) -> T) -> io::Result<T> {
        let mut disk = self.disk.0.lock();
        let file = disk
            .files
            .get_mut(self.index)
            .ok_or(io::ErrorKind::NotFound)?;
        Ok(act(file))
    }

    /// The name it goes by now, or by which it was opened.
    fn name(&self) -> String {
        let disk = self.disk.0.lock();
        let mut names = disk.names.iter();
        let current = names.find(|(_, index)| **index == self.index);
        current.map_or_else(|| self.name.clone(), |(name, _)| name.clone())
    }

    /// Refuses what would make the files larger than there is room.
    fn check_room(&self, end: usize) -> io::Result<()> {
        let disk = self.disk.0.lock();
        let length = disk.files.get(self.index).map_or(0, |file| file.seen.len());
        let growth = end.saturating_sub(length);
        match disk.room {
            Some(room) if growth > 0 && disk.used() + growth > room => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }
}

impl File for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.with(|file| file.seen.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.check(On::Read, &self.name())?;
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.with(|file| {
            let rest = file.seen.get(offset..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            if let (Some(to), Some(from)) = (buffer.get_mut(..count), rest.get(..count)) {
                to.copy_from_slice(from);
            }
            count
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let fault = self.disk.check(On::Write, &self.name());
        let count = if fault.is_err() {
            bytes.len() / 2
        } else {
            bytes.len()
        };
        let bytes = bytes.get(..count).unwrap_or_default();
        self.check_room(offset + bytes.len())?;
        self.with(|file| {
            write(&mut file.seen, offset, bytes);
            file.pending.push(Pending::Write(offset, bytes.to_vec()));
        })?;
        self.disk.changed();
        fault
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        self.check_room(bytes)?;
        self.with(|file| {
            if file.seen.len() < bytes {
                file.seen.resize(bytes, 0);
                file.pending.push(Pending::Length(bytes));
            }
        })?;
        self.disk.changed();
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        self.with(|file| {
            file.seen.resize(bytes, 0);
            file.pending.push(Pending::Length(bytes));
        })?;
        self.disk.changed();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let fault = self.disk.check(On::Sync, &self.name());
        self.disk.0.lock().syncs += 1;
        self.with(|file| {
            if fault.is_ok() && !file.pending.is_empty() {
                file.durable = file.first(&mut { usize::MAX });
            }
            // A sync that fails marks the pages clean all the same: they are never written again.
            file.pending.clear();
        })?;
        self.disk.changed();
        fault
    }
}

impl Lock for FaultyFile {
    fn is_current(&self) -> io::Result<bool> {
        Ok(self.disk.0.lock().names.get(&self.name) == Some(&self.index))
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        if self.is_lock {
            self.disk.0.lock().locked.remove(&self.index);
        }
    }
}
