//! Answers reads from a state.
//!
//! A plain read walks no further than its page and takes its count from the tree's sums. Sorting
//! by another field and bounds on revisions read the whole range first, as they must.

use crate::faults::{Fault, injected};
use crate::index::{History, Version};
use crate::read::{At, Projection, Range, RangeAnswer, Sort, SortBy};
use crate::state::State;
use crate::{Error, KeyRange, Record, Revision};

/// Serves one read; `revision` is what the answer says the newest one is.
///
/// # Errors
/// `Future` or `Compacted` when the revision asked for cannot be read, `EmptyKey` for one key
/// without a name.
pub(crate) fn serve(state: &State, query: &Range) -> Result<RangeAnswer, Error> {
    let at = check(state, query)?;
    let mut answer = RangeAnswer {
        revision: state.revision,
        ..RangeAnswer::default()
    };
    if let KeyRange::Key(key) = &query.range {
        let found = state.index.get(key).and_then(|history| seen(history, at));
        answer.count = u64::from(found.is_some());
        if query.projection != Projection::CountOnly {
            let kept = found.filter(|record| is_within(query, record));
            answer.records.extend(kept.cloned());
        }
        return Ok(answer);
    }
    let (start, end) = (query.range.start(), query.range.end());
    answer.count = state.index.count(start, end, at.get());
    if query.projection == Projection::CountOnly || answer.count == 0 {
        return Ok(answer);
    }
    let walk = state.index.range(start, end, at.get());
    let records = walk.filter_map(|(_, history)| seen(history, at));
    if needs_all(query) {
        let mut all: Vec<Record> = records.filter(|r| is_within(query, r)).cloned().collect();
        if let Some(sort) = query.sort {
            order(&mut all, sort);
        }
        answer.more = query.limit.is_some_and(|limit| limit < all.len());
        all.truncate(query.limit.unwrap_or(usize::MAX));
        answer.records = all;
        return Ok(answer);
    }
    let present = usize::try_from(answer.count).unwrap_or(usize::MAX);
    let page = query.limit.unwrap_or(present).min(present);
    answer.more = page < present;
    answer.records.reserve_exact(page);
    answer.records.extend(records.take(page).cloned());
    if injected(Fault::CountIsPage) {
        answer.count = answer.records.len() as u64;
    }
    Ok(answer)
}

/// Checks a read against a state; answers the revision to read.
///
/// # Errors
/// As [`serve`].
pub(crate) fn check(state: &State, query: &Range) -> Result<Revision, Error> {
    if matches!(&query.range, KeyRange::Key(key) if key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    let At::Exactly(requested) = query.at else {
        // Whatever is in the state: a transaction reads its own writes, ahead of its revision.
        return Ok(Revision::MAX);
    };
    if requested > state.revision {
        let current = state.revision;
        return Err(Error::Future { requested, current });
    }
    if requested < state.floor {
        let compacted = state.floor;
        return Err(Error::Compacted {
            requested,
            compacted,
        });
    }
    Ok(requested)
}

fn seen(history: &History, at: Revision) -> Option<&Record> {
    history.at(at).and_then(Version::record)
}

fn needs_all(query: &Range) -> bool {
    let (mod_least, mod_most) = query.mod_bounds;
    let (create_least, create_most) = query.create_bounds;
    let bounded = [mod_least, mod_most, create_least, create_most];
    let plain = Sort {
        by: SortBy::Key,
        descending: false,
    };
    bounded.iter().any(Option::is_some) || query.sort.is_some_and(|sort| sort != plain)
}

fn is_within(query: &Range, record: &Record) -> bool {
    let inside = |(least, most): (Option<Revision>, Option<Revision>), revision: Revision| {
        least.is_none_or(|least| least <= revision) && most.is_none_or(|most| revision <= most)
    };
    inside(query.mod_bounds, record.mod_revision())
        && inside(query.create_bounds, record.create_revision())
}

/// Sorts records that are in key order; equals keep it.
fn order(records: &mut [Record], sort: Sort) {
    records.sort_by(|one, two| {
        let ascending = match sort.by {
            SortBy::Key => one.key().cmp(two.key()),
            SortBy::Version => one.version().cmp(&two.version()),
            SortBy::Create => one.create_revision().cmp(&two.create_revision()),
            SortBy::Mod => one.mod_revision().cmp(&two.mod_revision()),
            SortBy::Value => one.value().cmp(two.value()),
        };
        if sort.descending {
            ascending.reverse()
        } else {
            ascending
        }
    });
}
