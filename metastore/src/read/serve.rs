//! Answers reads from a state.
//!
//! A plain read walks no further than its page and takes its count from the tree's sums. Sorting
//! by another field and bounds on revisions read the whole range first, as they must.

use std::collections::HashMap;

use crate::cold::{Kept, load};
use crate::faults::{Fault, injected};
use crate::index::{History, Version};
use crate::read::{At, Projection, Range, RangeAnswer, Sort, SortBy};
use crate::state::State;
use crate::{Error, KeyRange, Record, Revision};

/// Serves one read. Blocks where values have left the memory.
///
/// # Errors
/// `Future` or `Compacted` when the revision asked for cannot be read, `EmptyKey` for one key
/// without a name; `Corrupt` or `Io` when a value cannot be read back.
pub(crate) fn serve(state: &State, query: &Range) -> Result<RangeAnswer, Error> {
    let (answer, cold) = look(state, query)?;
    if cold.is_empty() {
        return Ok(answer);
    }
    // A single key is likely to be read again; a list must not drive out what is hot.
    let keeps = matches!(query.range, KeyRange::Key(_));
    let records = load(&cold, keeps)?;
    let mut loaded: HashMap<Revision, Vec<Record>> = HashMap::with_capacity(records.len());
    for record in records {
        let made = loaded.entry(record.mod_revision()).or_default();
        made.push(record);
    }
    gather(state, query, |kept| {
        let made = loaded.get(&kept.mod_revision());
        let found = made.and_then(|made| made.iter().find(|record| record.key() == kept.key()));
        // The state has not changed since the look, so nothing is missing that was cold then.
        let found = found.cloned().or_else(|| kept.resident());
        found.unwrap_or_else(|| kept.bare())
    })
}

/// Serves one read as far as that goes without touching a file: what has left the memory stands
/// there without its value, and is answered besides.
///
/// # Errors
/// `Future`, `Compacted`, `EmptyKey`, as [`serve`].
pub(crate) fn look(state: &State, query: &Range) -> Result<(RangeAnswer, Vec<Kept>), Error> {
    let mut cold = Vec::new();
    let answer = gather(state, query, |kept| {
        kept.resident().unwrap_or_else(|| {
            if query.projection == Projection::Full {
                cold.push(kept.clone());
            }
            kept.bare()
        })
    })?;
    Ok((answer, cold))
}

/// Finds what a read asks for, each version made into a record by `whole`.
fn gather(
    state: &State,
    query: &Range,
    whole: impl FnMut(&Kept) -> Record,
) -> Result<RangeAnswer, Error> {
    let at = check(state, query)?;
    let mut answer = RangeAnswer {
        revision: state.revision,
        ..RangeAnswer::default()
    };
    if let KeyRange::Key(key) = &query.range {
        let found = state.index.get(key).and_then(|history| seen(history, at));
        answer.count = u64::from(found.is_some());
        if query.projection != Projection::CountOnly {
            let found = found.filter(|kept| is_within(query, kept));
            answer.records.extend(found.map(whole));
        }
        return Ok(answer);
    }
    let (start, end) = (query.range.start(), query.range.end());
    answer.count = state.index.count(start, end, at.get());
    if query.projection == Projection::CountOnly || answer.count == 0 {
        return Ok(answer);
    }
    let walk = state.index.range(start, end, at.get());
    let mut kepts = walk.filter_map(|(_, history)| seen(history, at));
    if needs_all(query) {
        let kept = kepts.filter(|kept| is_within(query, kept));
        let mut all: Vec<Record> = kept.map(whole).collect();
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
    let page = kepts.by_ref().take(page);
    answer.records.extend(page.map(whole));
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

fn seen(history: &History, at: Revision) -> Option<&Kept> {
    history.at(at).and_then(Version::kept)
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

fn is_within(query: &Range, kept: &Kept) -> bool {
    let inside = |(least, most): (Option<Revision>, Option<Revision>), revision: Revision| {
        least.is_none_or(|least| least <= revision) && most.is_none_or(|most| revision <= most)
    };
    inside(query.mod_bounds, kept.mod_revision())
        && inside(query.create_bounds, kept.create_revision())
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
