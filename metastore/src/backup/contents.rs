//! What a snapshot file holds: looked through from end to end before anything is made of it.
//!
//! The SHA-256 over the file first, then every page of the tree, every row of every bucket. Of each
//! version its place in the file is kept, not its value: memory goes by versions and the bytes of
//! their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::bolt::{Entry, Fault, Tree};
use super::layout::{self, RowKey};
use crate::digest::Digest;
use crate::{Error, LeaseId, Record, Revision};

/// Bytes of the checksum after the tree.
pub(super) const SHA_BYTES: u64 = 32;
/// What a file without its checksum is a multiple of.
const SECTOR_BYTES: u64 = 512;
/// What is read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Versions between two reports of a walk.
const REPORT_EVERY: usize = 10_000;

/// Whether the SHA-256 at the end must be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashCheck {
    /// As every snapshot has it.
    #[default]
    Wanted,
    /// For a database file that was copied out of an etcd's data directory.
    Skipped,
}

/// What a snapshot says of itself; the first five as `etcdutl snapshot status` prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// crc32c over names of buckets, keys and values.
    pub hash: u32,
    /// The newest revision.
    pub revision: Revision,
    /// Keys that are there at that revision.
    pub total_keys: u64,
    /// Bytes without the checksum.
    pub total_size: u64,
    /// Of etcd's schema; empty where the file does not say.
    pub version: String,
    /// The least revision that can be read.
    pub compacted: Revision,
    /// Versions, deletions among them.
    pub versions: u64,
    /// Leases.
    pub leases: u64,
    /// Whether the server it is from asked for users' names, which no Sluice does.
    pub has_users: bool,
}

/// A version by its place in the file.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Range<usize>,
    pub(super) at: RowKey,
    value_at: u64,
    value_bytes: usize,
}

/// A snapshot file that is whole.
#[derive(Debug)]
pub struct Contents {
    path: PathBuf,
    tree: Tree,
    summary: Summary,
    /// All keys, one after the other.
    keys: Vec<u8>,
    /// In the order of revisions.
    pub(super) rows: Vec<Row>,
    /// Places of the rows in the order of their keys, and within a key from oldest to newest.
    order: Vec<usize>,
    pub(super) leases: BTreeMap<LeaseId, Duration>,
    pub(super) next_lease: i64,
    /// Leases that are named by keys and not there, as etcd may leave them.
    pub(super) gone: Vec<LeaseId>,
}

impl Contents {
    /// Looks a file through; `progress` hears bytes done and in all. Blocks.
    ///
    /// # Errors
    /// `Corrupt` with the first thing that is wrong and where; `Io`.
    pub fn read(
        path: &Path,
        check: HashCheck,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, Error> {
        let mut reading = Reading {
            path: path.to_owned(),
            crc: 0,
            summary: Summary::default(),
            keys: Vec::new(),
            rows: Vec::new(),
            leases: BTreeMap::new(),
            next_lease: 1,
            named: BTreeSet::new(),
        };
        let tree = reading.all(check, progress);
        let tree = tree.map_err(|fault| describe(path, fault))?;
        Ok(reading.done(tree))
    }

    /// What it says of itself.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The number that `HashKV` answers on a server with this content. Reads every value; blocks.
    ///
    /// # Errors
    /// `Io`, or `Corrupt` when the file is not what it was a moment ago.
    pub fn digest(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Digest, Error> {
        let mut digest = Digest::default();
        let all = self.rows.len() as u64;
        let mut done = 0;
        for group in self.by_key() {
            let newest = group.last().and_then(|row| self.rows.get(*row));
            if let Some(row) = newest.filter(|row| !row.at.is_deletion) {
                digest.add(&self.record(row)?);
            }
            let before = done / REPORT_EVERY;
            done += group.len();
            if done / REPORT_EVERY > before {
                progress(done as u64, all);
            }
        }
        progress(all, all);
        Ok(digest)
    }

    /// The key of a row.
    pub(super) fn key(&self, row: usize) -> &[u8] {
        let row = self.rows.get(row);
        row.and_then(|row| self.keys.get(row.key.clone()))
            .unwrap_or_default()
    }

    /// For each key in order, the places of its rows from oldest to newest.
    pub(super) fn by_key(&self) -> impl Iterator<Item = &[usize]> {
        let is_same = |one: &usize, two: &usize| self.key(*one) == self.key(*two);
        self.order.chunk_by(is_same)
    }

    /// Reads the version of a row that is no deletion.
    pub(super) fn record(&self, row: &Row) -> Result<Record, Error> {
        let read = self.tree.read_at(row.value_at, row.value_bytes);
        let value = read.map_err(|error| describe(&self.path, Fault::Io(error)))?;
        // Made anew, so that equal versions have equal bytes whoever wrote them.
        parse(&value).map_or_else(
            || {
                let what = "a version is not what it was when the file was looked through";
                let fault = Fault::Damage(row.value_at, what.to_owned());
                Err(describe(&self.path, fault))
            },
            |read| Ok(canonical(&read)),
        )
    }
}

/// The same version in our own encoding.
fn canonical(record: &Record) -> Record {
    Record::new(
        record.key(),
        record.value(),
        record.create_revision(),
        record.mod_revision(),
        record.version(),
        record.lease(),
    )
}

fn parse(value: &[u8]) -> Option<Record> {
    Record::decode(value)
}

/// A fault as an error that names the file.
pub(super) fn describe(path: &Path, fault: Fault) -> Error {
    let path = path.display();
    match fault {
        Fault::Damage(offset, what) => Error::Corrupt {
            reason: format!(
                "snapshot {path} at offset={offset}: {what}; nothing was made of it: use another \
                 snapshot, or take a new one"
            ),
        },
        Fault::Io(source) => Error::Io {
            action: format!("cannot read snapshot {path}"),
            source,
        },
    }
}

/// A look through a file, as far as it is.
struct Reading {
    path: PathBuf,
    /// Over names of buckets, keys and values.
    crc: u32,
    summary: Summary,
    keys: Vec<u8>,
    rows: Vec<Row>,
    leases: BTreeMap<LeaseId, Duration>,
    next_lease: i64,
    /// Leases that keys name.
    named: BTreeSet<LeaseId>,
}

impl Reading {
    fn all(&mut self, check: HashCheck, progress: &mut dyn FnMut(u64, u64)) -> Result<Tree, Fault> {
        let mut file = File::open(&self.path)?;
        let (bytes, is_right) = check_sha(&mut file, check, progress)?;
        let mut tree = Tree::open(file, bytes)?;
        if !is_right {
            let (offset, what) = match tree.first_bad_block()? {
                Some((offset, bytes)) => (
                    offset,
                    format!("the {bytes} bytes from here on are not what was written"),
                ),
                None => (
                    bytes,
                    "the file does not match the SHA-256 at its end".to_owned(),
                ),
            };
            return Err(Fault::Damage(offset, what));
        }
        self.summary.total_size = tree.bytes();
        let buckets = tree.buckets()?;
        for wanted in [layout::KEY, layout::META] {
            if !buckets
                .iter()
                .any(|bucket| bucket.name == wanted.as_bytes())
            {
                let what = format!("there is no bucket `{wanted}`; is this a snapshot of an etcd?");
                return Err(Fault::Damage(0, what));
            }
        }
        for bucket in &buckets {
            self.crc = crc32c::crc32c_append(self.crc, &bucket.name);
            let name = String::from_utf8_lossy(&bucket.name).into_owned();
            tree.rows(bucket, &mut |entry| {
                self.crc = crc32c::crc32c_append(self.crc, entry.key);
                self.crc = crc32c::crc32c_append(self.crc, entry.value);
                self.row(&name, &entry)
            })?;
        }
        Ok(tree)
    }

    fn row(&mut self, bucket: &str, entry: &Entry<'_>) -> Result<(), Fault> {
        let known = match bucket {
            layout::KEY => self.version(entry),
            layout::META => self.meta(entry),
            layout::LEASE => self.lease(entry),
            layout::AUTH => {
                self.summary.has_users |= layout::AUTH_ENABLED == (entry.key, entry.value);
                Ok(())
            }
            _ => Ok(()),
        };
        known.map_err(|what| Fault::Damage(entry.offset, what.to_owned()))
    }

    fn version(&mut self, entry: &Entry<'_>) -> Result<(), &'static str> {
        let at = RowKey::read(entry.key).ok_or("a row of `key` is not named by a revision")?;
        self.summary.revision = self.summary.revision.max(at.revision);
        if entry.value.is_empty() && !at.is_deletion {
            // What a restore that raised the revision leaves, to say how far.
            return Ok(());
        }
        let record = parse(entry.value).ok_or("a version does not parse")?;
        let is_its_own = at.is_deletion || record.mod_revision() == at.revision;
        if record.key().is_empty() || !is_its_own {
            return Err("a version is not of the revision that names it, or of no key");
        }
        if !at.is_deletion && record.lease().is_some() {
            self.named.insert(record.lease());
        }
        let start = self.keys.len();
        self.keys.extend_from_slice(record.key());
        self.rows.push(Row {
            key: start..self.keys.len(),
            at,
            value_at: entry.value_at(),
            value_bytes: entry.value.len(),
        });
        Ok(())
    }

    fn lease(&mut self, entry: &Entry<'_>) -> Result<(), &'static str> {
        let lease = layout::read_lease(entry.key, entry.value);
        let (id, seconds) = lease.ok_or("a lease does not parse")?;
        self.leases.insert(id, Duration::from_secs(seconds));
        Ok(())
    }

    fn meta(&mut self, entry: &Entry<'_>) -> Result<(), &'static str> {
        match entry.key {
            layout::SCHEDULED_COMPACT | layout::FINISHED_COMPACT => {
                let at = RowKey::read(entry.value).ok_or("a compacted revision does not parse")?;
                self.summary.compacted = self.summary.compacted.max(at.revision);
            }
            layout::STORAGE_VERSION => {
                self.summary.version = String::from_utf8_lossy(entry.value).into_owned();
            }
            layout::NEXT_LEASE => {
                let id = entry.value.try_into().map(i64::from_be_bytes);
                self.next_lease = id.map_err(|_| "the next lease id does not parse")?;
            }
            _ => {}
        }
        Ok(())
    }

    fn done(self, tree: Tree) -> Contents {
        let mut summary = self.summary;
        summary.hash = self.crc;
        summary.versions = self.rows.len() as u64;
        summary.leases = self.leases.len() as u64;
        // Rows below the compacted revision may all be gone.
        let least = summary.compacted.max(Revision::FIRST);
        summary.revision = summary.revision.max(least);
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        let key = |row: &usize| {
            let row = self.rows.get(*row);
            row.and_then(|row| self.keys.get(row.key.clone()))
        };
        // Rows are in the order of revisions already, and a stable sort keeps that.
        order.sort_by(|one, two| key(one).cmp(&key(two)));
        let is_named = |id: &LeaseId| !self.leases.contains_key(id);
        let mut contents = Contents {
            gone: self.named.into_iter().filter(is_named).collect(),
            path: self.path,
            tree,
            summary,
            keys: self.keys,
            rows: self.rows,
            order,
            leases: self.leases,
            next_lease: self.next_lease,
        };
        let is_there = |rows: &&[usize]| {
            let newest = rows.last().and_then(|row| contents.rows.get(*row));
            newest.is_some_and(|row| !row.at.is_deletion)
        };
        contents.summary.total_keys = contents.by_key().filter(is_there).count() as u64;
        contents
    }
}

/// Bytes before the checksum, and whether that is right.
fn check_sha(
    file: &mut File,
    check: HashCheck,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(u64, bool), Fault> {
    let length = file.metadata()?.len();
    if length % SECTOR_BYTES != SHA_BYTES {
        if check == HashCheck::Skipped && length.is_multiple_of(SECTOR_BYTES) {
            return Ok((length, true));
        }
        let what = format!(
            "the file is cut or no snapshot: {length} bytes are not whole pages with a SHA-256              after them (a database file copied from a data directory needs --skip-hash-check)"
        );
        return Err(Fault::Damage(length, what));
    }
    let bytes = length - SHA_BYTES;
    let mut sha = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut done = 0;
    while done < bytes {
        let wanted = usize::try_from(bytes - done).map_or(PIECE_BYTES, |n| n.min(PIECE_BYTES));
        let piece = piece.get_mut(..wanted).unwrap_or_default();
        file.read_exact(piece)?;
        sha.update(&*piece);
        done += wanted as u64;
        progress(done, bytes);
    }
    let mut told = [0; 32];
    file.read_exact(&mut told)?;
    Ok((
        bytes,
        sha.finalize().as_slice() == told || check == HashCheck::Skipped,
    ))
}
