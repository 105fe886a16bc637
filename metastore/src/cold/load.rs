//! Reading values back, those that lie side by side with one read.
//!
//! A checkpoint holds its versions in key order, so a list finds its values next to each other.
//! Blocks; whoever must not, moves to a thread that may.

use std::sync::Arc;

use super::cell::{Way, parse};
use super::{Cell, Kept};
use crate::stats::add;
use crate::{Error, Record};

/// One read: beyond this the copy costs more than another call.
const READ_BYTES: u64 = 1 << 20;
/// Bytes between two values that are read along rather than with another call.
const GAP_BYTES: u64 = 4096;

/// The versions, in the order given. `keeps` has what was read stay in memory, as for single keys
/// that are likely to be read again; a walk over everything must not drive out what is hot.
///
/// # Errors
/// `Corrupt` when a place does not hold what was put there; `Io`.
pub(crate) fn load(kepts: &[Kept], keeps: bool) -> Result<Vec<Record>, Error> {
    let mut found: Vec<Option<Record>> = Vec::with_capacity(kepts.len());
    let mut cold = Vec::new();
    for (at, kept) in kepts.iter().enumerate() {
        let cell = match kept {
            Kept::Whole(record) => {
                found.push(Some(record.clone()));
                continue;
            }
            Kept::Cell(cell) => cell,
        };
        match cell.look() {
            Ok(record) => found.push(Some(record)),
            Err(way) => {
                let way = way.ok_or_else(|| Error::Corrupt {
                    reason: "a value is neither in memory nor on the disk; restart the store"
                        .to_owned(),
                })?;
                cold.push((at, Arc::clone(cell), way));
                found.push(None);
            }
        }
    }
    cold.sort_unstable_by_key(|(_, _, way)| (Arc::as_ptr(&way.place.source), way.place.offset));
    let mut rest = cold.as_slice();
    while let Some((_, _, first)) = rest.first() {
        let (count, end) = reach(rest, first);
        let (run, later) = rest.split_at(count);
        read(run, end, keeps, &mut found)?;
        rest = later;
    }
    // Every place was filled above, or an error answered.
    Ok(found.into_iter().flatten().collect())
}

type Cold = (usize, Arc<Cell>, Way);

/// How many of the first are read at once, and where that read ends.
fn reach(cold: &[Cold], first: &Way) -> (usize, u64) {
    let begin = first.place.offset;
    let mut end = begin;
    let mut count = 0;
    for (_, _, way) in cold {
        let is_near = Arc::ptr_eq(&way.place.source, &first.place.source)
            && way.place.offset <= end + GAP_BYTES
            && way.place.offset + way.bytes as u64 <= begin + READ_BYTES;
        if count > 0 && !is_near {
            break;
        }
        end = end.max(way.place.offset + way.bytes as u64);
        count += 1;
    }
    (count, end)
}

fn read(run: &[Cold], end: u64, keeps: bool, found: &mut [Option<Record>]) -> Result<(), Error> {
    let Some((_, _, first)) = run.first() else {
        return Ok(());
    };
    let begin = first.place.offset;
    let bytes = usize::try_from(end - begin).unwrap_or(usize::MAX);
    let buffer = first.place.source.read(begin, bytes)?;
    for (at, cell, way) in run {
        let start = usize::try_from(way.place.offset - begin).unwrap_or(usize::MAX);
        let record = buffer
            .get(start..)
            .and_then(|rest| rest.get(..way.bytes))
            .and_then(|bytes| parse(cell, way, bytes));
        let record = record.ok_or_else(|| {
            let what = "a value does not match its checksum";
            way.place.source.damaged(way.place.offset, what)
        })?;
        if keeps {
            cell.warm(&record);
        }
        add(cell.loads(), 1);
        if let Some(place) = found.get_mut(*at) {
            *place = Some(record);
        }
    }
    Ok(())
}
