//! Making the data directory of a store whose content comes from elsewhere: a snapshot, another
//! server.
//!
//! The directory gets one checkpoint, written as its content arrives; a store opened on it stands at
//! the revision named, each key with the revisions, version and lease it had, and its next write
//! takes the revision after. Reads and watches from below the compacted revision get `Compacted`.
//!
//! ```text
//! Import::begin -> (lease | put | delete | order)* -> finish
//! ```
//!
//! Keys come in ascending order, the versions of one key oldest first: what is behind is never kept,
//! so that memory is one chunk and the leases. An import that is not finished leaves nothing, or a
//! directory that is refused until the same is done again; one that holds anything is not touched.
//! Content that could not have come about in a store is refused, with the key.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::codec::{self, Entry, encode_delete, encode_put};
use crate::digest::Digest;
use crate::engine::embedded::files::{self, Files};
use crate::engine::embedded::import::Filling;
use crate::events::order;
use crate::{Error, LeaseId, Record, Revision};

/// Bytes after which a chunk ends, as of a checkpoint that a store takes.
const CHUNK_BYTES: usize = 256 << 10;

/// What a store is made to stand at.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Its newest revision; the first write takes the next one.
    pub revision: Revision,
    /// The least revision that can be read and watched from. Equal to `revision` where history does
    /// not come along, zero where all of it does.
    pub compacted: Revision,
    /// No lease id below this one is chosen by the store; 1 where that is not known.
    pub next_lease: i64,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportProgress {
    /// Keys whose newest version is not a deletion: what a count of the store will answer.
    pub keys: u64,
    /// Versions, deletions among them.
    pub versions: u64,
    /// Leases.
    pub leases: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Of the keys so far; of the whole store once all are there. Equals what `HashKV` answers.
    pub digest: Digest,
}

/// A data directory being made; dropped before [`Import::finish`], it goes again.
#[derive(Debug)]
pub struct Import {
    filling: Filling,
    standing: Standing,
    chunk: BytesMut,
    progress: ImportProgress,
    /// The newest version so far of the last key.
    last: Option<Last>,
    leases: BTreeSet<LeaseId>,
    /// Leases that keys hang on, and were not declared so far, with one of the keys each.
    wanted: BTreeMap<LeaseId, Bytes>,
    /// The last revision whose order was told.
    ordered: Revision,
}

#[derive(Debug)]
struct Last {
    key: Bytes,
    revision: Revision,
    /// `None` for a deletion.
    record: Option<Record>,
}

impl Import {
    /// Takes `dir`, made when it is missing, for a store that will stand as said. `holder` is who
    /// does so, for whoever finds it taken.
    ///
    /// # Errors
    /// `Import` when the directory holds anything but an import that was not finished, or the
    /// standing makes no sense; `Stopped` when another process has it; `NoSpace`, `Io`.
    pub fn begin(dir: &Path, holder: &str, standing: Standing) -> Result<Self, Error> {
        let files = files::open(dir).map_err(|source| Error::Io {
            action: format!(
                "cannot open {}, which must be a directory that this process may read and write",
                dir.display()
            ),
            source,
        })?;
        Self::begin_over(files, holder, standing)
    }

    /// As [`Import::begin`], over files of the caller's.
    ///
    /// # Errors
    /// As there.
    pub fn begin_over(
        files: Arc<dyn Files>,
        holder: &str,
        standing: Standing,
    ) -> Result<Self, Error> {
        let Standing {
            revision,
            compacted,
            next_lease,
        } = standing;
        if revision < Revision::FIRST || revision >= Revision::MAX {
            return Err(refused(format!(
                "revision {revision} is not one of a store, which are from 1 up"
            )));
        }
        if compacted > revision {
            return Err(refused(format!(
                "the compacted revision {compacted} is above the store's own, {revision}"
            )));
        }
        let mut import = Import {
            filling: Filling::begin(files, holder, revision)?,
            standing,
            chunk: codec::payload(CHUNK_BYTES + CHUNK_BYTES / 4),
            progress: ImportProgress::default(),
            last: None,
            leases: BTreeSet::new(),
            wanted: BTreeMap::new(),
            ordered: Revision::ZERO,
        };
        import.entry(&Entry::Mark {
            revision,
            next_lease: next_lease.max(1),
        })?;
        import.entry(&Entry::Floor(compacted))?;
        Ok(import)
    }

    /// Takes a lease, before or after the keys that hang on it. Its time begins anew when the store
    /// is opened.
    ///
    /// # Errors
    /// `Import` for the id zero or one that was there before; `NoSpace`, `Io`.
    pub fn lease(&mut self, id: LeaseId, ttl: Duration) -> Result<(), Error> {
        if !id.is_some() {
            return Err(refused("a lease has the id zero, which means none".into()));
        }
        if !self.leases.insert(id) {
            return Err(refused(format!("lease {:x} comes twice", id.0)));
        }
        self.wanted.remove(&id);
        self.progress.leases += 1;
        self.entry(&Entry::Grant { id, ttl })
    }

    /// Says of a lease that it is not there though keys name it, which then stay for good: etcd
    /// leaves some so.
    ///
    /// # Errors
    /// As [`Import::lease`].
    pub fn lease_gone(&mut self, id: LeaseId) -> Result<(), Error> {
        if !id.is_some() || !self.leases.insert(id) {
            return Err(refused(format!("lease {:x} is there", id.0)));
        }
        self.wanted.remove(&id);
        Ok(())
    }

    /// Takes the next version of a key.
    ///
    /// # Errors
    /// `Import` when it does not follow from what came before, with the key; `NoSpace`, `Io`.
    pub fn put(&mut self, record: &Record) -> Result<(), Error> {
        self.check_place(record.key(), record.mod_revision())?;
        self.check_life(record)?;
        let lease = record.lease();
        if lease.is_some() && !self.leases.contains(&lease) {
            let wanted = self.wanted.entry(lease);
            wanted.or_insert_with(|| Bytes::copy_from_slice(record.key()));
        }
        encode_put(&mut self.chunk, record);
        self.advance(record.key(), record.mod_revision(), Some(record))
    }

    /// Takes the deletion of a key as its next version. One at or above the compacted revision is
    /// still seen by watches; those below need not be told.
    ///
    /// # Errors
    /// As [`Import::put`].
    pub fn delete(&mut self, key: &[u8], revision: Revision) -> Result<(), Error> {
        self.check_place(key, revision)?;
        encode_delete(&mut self.chunk, key, revision);
        self.advance(key, revision, None)
    }

    /// Takes the keys of one revision in the order in which it changed them. Only needed where that
    /// is not the order of the keys; revisions ascend.
    ///
    /// # Errors
    /// `Import` when a revision comes out of order; `NoSpace`, `Io`.
    pub fn order(&mut self, revision: Revision, keys: &[&[u8]]) -> Result<(), Error> {
        if revision <= self.ordered || revision > self.standing.revision {
            return Err(refused(format!(
                "the order of revision {revision} comes after that of {}",
                self.ordered
            )));
        }
        self.ordered = revision;
        match order::places(keys) {
            Some(places) if revision >= self.standing.compacted => {
                self.entry(&Entry::Order { revision, places })
            }
            _ => Ok(()),
        }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> ImportProgress {
        let mut progress = self.progress;
        progress.bytes = self.filling.bytes();
        if let Some(last) = self.last.as_ref().and_then(|last| last.record.as_ref()) {
            progress.keys += 1;
            progress.digest.add(last);
        }
        progress
    }

    /// Makes the directory one that can be opened.
    ///
    /// # Errors
    /// `Import` when a key hangs on a lease that was never told; `NoSpace`, `Io`.
    pub fn finish(mut self) -> Result<ImportProgress, Error> {
        if let Some((lease, key)) = self.wanted.first_key_value() {
            return Err(refused(format!(
                "key {} hangs on lease {:x}, which is not among the leases",
                key.escape_ascii(),
                lease.0
            )));
        }
        self.flush()?;
        let mut progress = self.progress();
        progress.bytes = self.filling.finish()?;
        Ok(progress)
    }

    fn check_place(&self, key: &[u8], revision: Revision) -> Result<(), Error> {
        let at = self.standing.revision;
        let fault = if key.is_empty() {
            "has no name".to_owned()
        } else if revision > at {
            format!("was changed at revision {revision}, after the {at} that the store stands at")
        } else if revision <= Revision::FIRST {
            format!("was changed at revision {revision}, and the first change of a store is 2")
        } else {
            match &self.last {
                Some(last) if key < last.key.as_ref() => {
                    format!("comes after {}, not in order", last.key.escape_ascii())
                }
                Some(last) if key == last.key.as_ref() && revision <= last.revision => {
                    format!("has version {revision} after {}", last.revision)
                }
                _ => return Ok(()),
            }
        };
        Err(refused(format!("key {} {fault}", key.escape_ascii())))
    }

    /// Whether the revisions and the version of a record are those of one life of its key.
    fn check_life(&self, record: &Record) -> Result<(), Error> {
        let (created, version) = (record.create_revision(), record.version());
        let before = self.last.as_ref().filter(|last| last.key == record.key());
        let follows = match before.map(|last| last.record.as_ref()) {
            // Its beginning may have been compacted away.
            None => record.is_create() == (version == 1),
            Some(Some(before)) if before.create_revision() == created => {
                version == before.version() + 1
            }
            // Deleted, perhaps and put again within one revision.
            Some(_) => record.is_create() && version == 1,
        };
        if follows && version > 0 && created <= record.mod_revision() && created > Revision::FIRST {
            return Ok(());
        }
        Err(refused(format!(
            "key {} has create revision {created}, revision {} and version {version}, which do not \
             go together or do not follow the version before",
            record.key().escape_ascii(),
            record.mod_revision()
        )))
    }

    fn advance(
        &mut self,
        key: &[u8],
        revision: Revision,
        record: Option<&Record>,
    ) -> Result<(), Error> {
        let is_same = self.last.as_ref().is_some_and(|last| last.key == key);
        let key = match self.last.take() {
            Some(last) if is_same => last.key,
            Some(Last {
                record: Some(done), ..
            }) => {
                self.progress.keys += 1;
                self.progress.digest.add(&done);
                Bytes::copy_from_slice(key)
            }
            _ => Bytes::copy_from_slice(key),
        };
        self.last = Some(Last {
            key,
            revision,
            record: record.cloned(),
        });
        self.progress.versions += 1;
        self.flush_when_full()
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), Error> {
        entry.encode(&mut self.chunk);
        self.flush_when_full()
    }

    fn flush_when_full(&mut self) -> Result<(), Error> {
        if self.chunk.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        if codec::is_blank(&self.chunk) {
            return Ok(());
        }
        self.filling.chunk(&self.chunk)?;
        self.chunk.truncate(1);
        Ok(())
    }
}

fn refused(reason: String) -> Error {
    Error::Import { reason }
}
