//! Who may write: one locked file, which also keeps the epoch.
//!
//! Two slots, written in turn in place, so that raising the epoch needs no room on a full disk and a
//! torn write leaves the other slot.
//!
//! ```text
//! slot at 0 and at 4096
//!   0  magic    8 bytes "SLUICELK"
//!   8  version  u32
//!  12  pid      u32
//!  16  epoch    u64
//!  24  holder bytes u32
//!  28  holder, zeros up to 508
//! 508  crc      u32   crc32c of the 508 bytes before
//! ```

use std::sync::Arc;

use bytes::{Buf, BufMut};
use crc32c::crc32c;

use super::files::{File, Files, Lock, fill_with_zeros};
use super::{checkpoint, corrupt, import, io_error, segment, spare};
use crate::Error;

/// The locked file's name, by which a data directory is told from any other.
pub(super) const NAME: &str = "sluice.lock";
const MAGIC: &[u8; 8] = b"SLUICELK";
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 512;
const SLOTS_AT: [u64; 2] = [0, 4096];
const FILE_BYTES: u64 = 8192;
const HOLDER_BYTES_MAX: usize = 480;
/// What file systems put into a fresh directory themselves.
const OF_THE_FILE_SYSTEM: &str = "lost+found";

#[derive(Clone, Debug)]
struct Slot {
    pid: u32,
    epoch: u64,
    holder: String,
}

enum Read {
    Empty,
    Valid(Slot),
    Damaged,
    Version(u32),
}

/// Takes the lock and raises the epoch, durably.
pub(super) fn acquire(files: &dyn Files, holder: &str) -> Result<(Arc<dyn Lock>, u64), Error> {
    let names = list(files)?;
    import::refuse_unfinished(files, &names)?;
    if !names.iter().any(|name| name == NAME) {
        refuse_foreign(files, &names)?;
    }
    let lock = take(files)?;
    let epoch = raise(files, &*lock, &names, holder)?;
    Ok((lock, epoch))
}

/// Names in the data directory.
pub(super) fn list(files: &dyn Files) -> Result<Vec<String>, Error> {
    files
        .list()
        .map_err(|source| io_error(files, "read the data directory", "", source))
}

/// Keeps others out; writes nothing yet.
pub(super) fn take(files: &dyn Files) -> Result<Arc<dyn Lock>, Error> {
    let lock = files
        .lock(NAME)
        .map_err(|source| io_error(files, "lock", NAME, source))?
        .ok_or_else(|| held(files))?;
    Ok(Arc::from(lock))
}

/// Writes the next epoch into a lock that is held; answers it. `names` is what lay in the directory
/// before.
pub(super) fn raise(
    files: &dyn Files,
    lock: &dyn Lock,
    names: &[String],
    holder: &str,
) -> Result<u64, Error> {
    let is_new = !names.iter().any(|name| name == NAME);
    let slots = read_slots(lock).map_err(|source| io_error(files, "read", NAME, source))?;
    let newest = newest(&slots);
    let has_data = names
        .iter()
        .any(|name| segment::sequence(name).is_some() || checkpoint::revision(name).is_some());
    for slot in &slots {
        if let Read::Version(version) = slot {
            let what = format!("is of format version {version}, this build reads {VERSION}");
            return Err(corrupt(files, NAME, &what, "run the build that wrote it"));
        }
    }
    if newest.is_none() && has_data {
        let what = "does not hold the epoch though there is data beside it";
        return Err(corrupt(
            files,
            NAME,
            what,
            "restore the directory from a backup",
        ));
    }
    // A damaged slot may have held the epoch after the other slot's, so that one is passed by.
    let step = if slots.iter().any(|slot| matches!(slot, Read::Damaged)) {
        2
    } else {
        1
    };
    let (index, epoch) = newest.map_or((0, 1), |(index, slot)| (1 - index, slot.epoch + step));
    let slot = Slot {
        pid: std::process::id(),
        epoch,
        holder: holder.to_owned(),
    };
    let offset = if index == 0 { SLOTS_AT[0] } else { SLOTS_AT[1] };
    make_room(lock)
        .and_then(|()| lock.write_at(&slot.encode(), offset))
        .and_then(|()| lock.sync())
        .and_then(|()| if is_new { files.sync_names() } else { Ok(()) })
        .map_err(|source| io_error(files, "write", NAME, source))?;
    Ok(epoch)
}

/// Both slots are written from the start, so that a later start needs no room.
fn make_room(lock: &dyn Lock) -> std::io::Result<()> {
    let length = lock.len()?;
    if length < FILE_BYTES {
        fill_with_zeros(lock, length, FILE_BYTES)?;
    }
    Ok(())
}

/// Whether a directory that holds this file still counts as empty.
pub(super) fn is_harmless(name: &str) -> bool {
    name == OF_THE_FILE_SYSTEM || spare::is_leftover(name)
}

fn refuse_foreign(files: &dyn Files, names: &[String]) -> Result<(), Error> {
    let Some(foreign) = names.iter().find(|name| !is_harmless(name)) else {
        return Ok(());
    };
    let what = format!("is not a data directory of this store, it holds {foreign}");
    Err(corrupt(
        files,
        "",
        &what,
        "name an empty directory or a new one",
    ))
}

fn held(files: &dyn Files) -> Error {
    let slots = files.open(NAME).and_then(|file| read_slots(&*file)).ok();
    let who = slots.as_ref().and_then(|slots| newest(slots)).map_or_else(
        || "another process".to_owned(),
        |(_, slot)| {
            format!(
                "holder={} pid={} epoch={}",
                slot.holder, slot.pid, slot.epoch
            )
        },
    );
    Error::Stopped {
        reason: format!(
            "data directory {} is held by {who}: stop that process, or name another directory",
            files.place().display()
        ),
    }
}

fn read_slots(file: &(impl File + ?Sized)) -> std::io::Result<[Read; 2]> {
    let read = |offset| {
        let mut bytes = [0; SLOT_BYTES];
        file.read_at(&mut bytes, offset)?;
        Ok::<_, std::io::Error>(Slot::decode(&bytes))
    };
    Ok([read(SLOTS_AT[0])?, read(SLOTS_AT[1])?])
}

fn newest(slots: &[Read; 2]) -> Option<(usize, &Slot)> {
    let valid = slots
        .iter()
        .enumerate()
        .filter_map(|(index, slot)| match slot {
            Read::Valid(slot) => Some((index, slot)),
            _ => None,
        });
    valid.max_by_key(|(_, slot)| slot.epoch)
}

impl Slot {
    fn encode(&self) -> Vec<u8> {
        let holder = self.holder.as_bytes();
        let holder = holder.get(..HOLDER_BYTES_MAX).unwrap_or(holder);
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.put_slice(MAGIC);
        bytes.put_u32_le(VERSION);
        bytes.put_u32_le(self.pid);
        bytes.put_u64_le(self.epoch);
        bytes.put_u32_le(u32::try_from(holder.len()).unwrap_or(0));
        bytes.put_slice(holder);
        bytes.put_bytes(0, SLOT_BYTES - 4 - bytes.len());
        bytes.put_u32_le(crc32c(&bytes));
        bytes
    }

    fn decode(bytes: &[u8; SLOT_BYTES]) -> Read {
        if bytes.iter().all(|byte| *byte == 0) {
            return Read::Empty;
        }
        let (mut fields, mut crc) = bytes.split_at(SLOT_BYTES - 4);
        if crc.get_u32_le() != crc32c(fields) || !fields.starts_with(MAGIC) {
            return Read::Damaged;
        }
        fields.advance(MAGIC.len());
        let version = fields.get_u32_le();
        if version != VERSION {
            return Read::Version(version);
        }
        let pid = fields.get_u32_le();
        let epoch = fields.get_u64_le();
        let bytes = usize::try_from(fields.get_u32_le()).unwrap_or(0);
        let holder = fields.get(..bytes).unwrap_or_default();
        Read::Valid(Slot {
            pid,
            epoch,
            holder: String::from_utf8_lossy(holder).into_owned(),
        })
    }
}
