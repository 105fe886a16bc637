//! One version as the index keeps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crc32c::crc32c;
use parking_lot::Mutex;

use super::Residence;
use crate::engine::Place;
use crate::record::Fields;
use crate::{LeaseId, Record, Revision};

/// A version: all of it, or its numbers and a way to the rest.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// Stays in memory. All there is in a store without a memory limit.
    Whole(Record),
    /// May let its bytes go.
    Cell(Arc<Cell>),
}

/// A version whose bytes may be on the disk alone.
///
/// Invariant: `whole` or `place` is there; `crc` is that of the bytes while `whole` is not.
#[derive(Debug)]
pub(crate) struct Cell {
    key: Box<[u8]>,
    create_revision: Revision,
    mod_revision: Revision,
    version: u64,
    lease: LeaseId,
    bytes: u32,
    /// Read since the eviction last came by.
    is_touched: AtomicBool,
    body: Mutex<Body>,
    residence: Arc<Residence>,
}

#[derive(Debug)]
struct Body {
    whole: Option<Record>,
    place: Option<Place>,
    crc: u32,
}

/// What a read of a cell needs to know.
pub(super) struct Way {
    pub(super) place: Place,
    pub(super) bytes: usize,
    pub(super) crc: u32,
}

impl Kept {
    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Kept::Whole(record) => record.key(),
            Kept::Cell(cell) => &cell.key,
        }
    }

    pub(crate) fn create_revision(&self) -> Revision {
        match self {
            Kept::Whole(record) => record.create_revision(),
            Kept::Cell(cell) => cell.create_revision,
        }
    }

    pub(crate) fn mod_revision(&self) -> Revision {
        match self {
            Kept::Whole(record) => record.mod_revision(),
            Kept::Cell(cell) => cell.mod_revision,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        match self {
            Kept::Whole(record) => record.version(),
            Kept::Cell(cell) => cell.version,
        }
    }

    pub(crate) fn lease(&self) -> LeaseId {
        match self {
            Kept::Whole(record) => record.lease(),
            Kept::Cell(cell) => cell.lease,
        }
    }

    /// Bytes of the encoded version.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Kept::Whole(record) => record.encoded().len(),
            Kept::Cell(cell) => cell.bytes as usize,
        }
    }

    /// The version, if it is in memory; it then counts as read.
    pub(crate) fn resident(&self) -> Option<Record> {
        match self {
            Kept::Whole(record) => Some(record.clone()),
            Kept::Cell(cell) => cell.resident(),
        }
    }

    /// Bytes it holds in memory now, for the accounts of who else holds it.
    pub(crate) fn resident_bytes(&self) -> usize {
        match self {
            Kept::Whole(record) => record.encoded().len(),
            Kept::Cell(cell) if cell.body.lock().whole.is_some() => cell.bytes as usize,
            Kept::Cell(_) => 0,
        }
    }

    /// The same bytes lie here from now on.
    pub(crate) fn move_to(&self, place: Place) {
        if let Kept::Cell(cell) = self {
            cell.move_to(place);
        }
    }

    /// All but the value.
    pub(crate) fn bare(&self) -> Record {
        Record::new(
            self.key(),
            b"",
            self.create_revision(),
            self.mod_revision(),
            self.version(),
            self.lease(),
        )
    }
}

/// Equal when they are of one write, as far as can be told without reading.
impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |kept: &Kept| {
            let revisions = (kept.create_revision(), kept.mod_revision());
            (revisions, kept.version(), kept.lease(), kept.bytes())
        };
        let bytes = (self.resident(), other.resident());
        let differ = matches!(bytes, (Some(one), Some(two)) if one != two);
        numbers(self) == numbers(other) && !differ
    }
}

impl Eq for Kept {}

impl Cell {
    /// A version in memory.
    pub(crate) fn whole(record: Record, residence: &Arc<Residence>) -> Arc<Self> {
        residence.add(record.encoded().len());
        let body = Body {
            whole: Some(record.clone()),
            place: None,
            crc: 0,
        };
        // Made from its parts or looked through: there is nothing that does not parse.
        let fields = Fields::of(record.encoded()).expect("a record is well formed");
        Self::of(&fields, body, residence)
    }

    /// A version that was just seen whole at a place, and stays there.
    pub(crate) fn cold(fields: &Fields<'_>, place: Place, residence: &Arc<Residence>) -> Arc<Self> {
        let body = Body {
            whole: None,
            place: Some(place),
            crc: crc32c(fields.encoded),
        };
        Self::of(fields, body, residence)
    }

    fn of(fields: &Fields<'_>, body: Body, residence: &Arc<Residence>) -> Arc<Self> {
        Arc::new(Cell {
            key: fields.key.into(),
            create_revision: fields.create_revision,
            mod_revision: fields.mod_revision,
            version: fields.version,
            lease: fields.lease,
            // The engine takes no batch as large as the type allows.
            bytes: u32::try_from(fields.encoded.len()).unwrap_or(u32::MAX),
            is_touched: AtomicBool::new(false),
            body: Mutex::new(body),
            residence: Arc::clone(residence),
        })
    }

    pub(super) fn loads(&self) -> &AtomicU64 {
        &self.residence.loaded
    }

    fn resident(&self) -> Option<Record> {
        let whole = self.body.lock().whole.clone()?;
        self.is_touched.store(true, Ordering::Relaxed);
        Some(whole)
    }

    fn move_to(&self, place: Place) {
        let old = self.body.lock().place.replace(place);
        // Letting a file go may close it: not under the lock.
        drop(old);
    }

    /// The bytes, or the way to them.
    pub(super) fn look(&self) -> Result<Record, Option<Way>> {
        let body = self.body.lock();
        if let Some(whole) = &body.whole {
            return Ok(whole.clone());
        }
        Err(body.place.clone().map(|place| Way {
            place,
            bytes: self.bytes as usize,
            crc: body.crc,
        }))
    }

    /// Keeps bytes that were read back.
    pub(super) fn warm(&self, record: &Record) {
        let mut body = self.body.lock();
        if body.whole.is_none() {
            body.whole = Some(record.clone());
            self.residence.add(self.bytes as usize);
        }
        drop(body);
        self.is_touched.store(true, Ordering::Relaxed);
    }

    /// Lets the bytes go, unless they were read since the last time, somebody else holds them, or
    /// they are nowhere else; answers how many went.
    pub(super) fn cool(&self) -> usize {
        let mut body = self.body.lock();
        let is_free = body.place.is_some() && body.whole.as_ref().is_some_and(Record::is_sole);
        if !is_free || self.is_touched.swap(false, Ordering::Relaxed) {
            return 0;
        }
        let Some(whole) = body.whole.take() else {
            return 0;
        };
        body.crc = crc32c(whole.encoded());
        drop(body);
        self.residence.take(self.bytes as usize);
        self.bytes as usize
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if self.body.get_mut().whole.is_some() {
            self.residence.take(self.bytes as usize);
        }
    }
}

/// Reads bytes back as the version they were.
pub(super) fn parse(cell: &Cell, way: &Way, bytes: &[u8]) -> Option<Record> {
    if crc32c(bytes) != way.crc {
        return None;
    }
    let record = Record::decode(bytes)?;
    (record.mod_revision() == cell.mod_revision).then_some(record)
}
