//! A state as the rows of etcd's buckets.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::bolt::Bucket;
use super::layout::{self, RowKey};
use crate::cold::{Kept, load};
use crate::events::log::{Log, Stored};
use crate::events::order;
use crate::index::{History, Version};
use crate::state::State;
use crate::{Error, Revision};

/// Chunks copied out of the log of changes at a time.
const LOG_CHUNKS: usize = 64;

/// The versions that can be read or watched, in the order made.
pub(super) struct Versions {
    rows: Vec<Row>,
}

struct Row {
    at: RowKey,
    what: What,
}

enum What {
    Put(Kept),
    Deletion(Bytes),
    /// Nothing but the revision that the store stands at, where no version is of it. etcd's own
    /// restore writes the same when it raises a revision.
    Mark,
}

impl Row {
    fn value_bytes(&self) -> usize {
        match &self.what {
            What::Put(kept) => kept.bytes(),
            What::Deletion(key) => layout::deletion_bytes(key),
            What::Mark => 0,
        }
    }
}

impl Bucket for Versions {
    fn name(&self) -> &'static str {
        layout::KEY
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn sizes(&self, row: usize) -> (usize, usize) {
        let row = self.rows.get(row);
        row.map_or((0, 0), |row| (row.at.bytes(), row.value_bytes()))
    }

    fn put_key(&self, row: usize, out: &mut Vec<u8>) {
        if let Some(row) = self.rows.get(row) {
            row.at.put(out);
        }
    }

    fn values(&self, rows: Range<usize>) -> Result<Vec<Bytes>, Error> {
        let rows = self.rows.get(rows).unwrap_or_default();
        let kept = rows.iter().filter_map(|row| match &row.what {
            What::Put(kept) => Some(kept.clone()),
            What::Deletion(_) | What::Mark => None,
        });
        let kept: Vec<Kept> = kept.collect();
        let mut records = load(&kept, false)?.into_iter();
        let value = |row: &Row| match &row.what {
            What::Put(_) => records.next().map(|record| record.encoded_bytes()),
            What::Deletion(key) => Some(layout::deletion_value(key)),
            What::Mark => Some(Bytes::new()),
        };
        Ok(rows.iter().filter_map(value).collect())
    }
}

/// A bucket whose rows are all there.
pub(super) struct Listed {
    name: &'static str,
    /// By key.
    rows: Vec<(Bytes, Bytes)>,
}

impl Listed {
    pub(super) fn empty(name: &'static str) -> Self {
        Listed {
            name,
            rows: Vec::new(),
        }
    }
}

impl Bucket for Listed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn sizes(&self, row: usize) -> (usize, usize) {
        let row = self.rows.get(row);
        row.map_or((0, 0), |(key, value)| (key.len(), value.len()))
    }

    fn put_key(&self, row: usize, out: &mut Vec<u8>) {
        if let Some((key, _)) = self.rows.get(row) {
            out.extend_from_slice(key);
        }
    }

    fn values(&self, rows: Range<usize>) -> Result<Vec<Bytes>, Error> {
        let rows = self.rows.get(rows).unwrap_or_default();
        Ok(rows.iter().map(|(_, value)| value.clone()).collect())
    }
}

/// The orders of revisions whose changes were not made in key order, and the least revision from
/// which on they are known: that of the state, or higher where the log of changes is past it.
pub(super) struct Orders {
    floor: Revision,
    places: BTreeMap<Revision, Vec<usize>>,
}

impl Orders {
    /// Out of the log of changes, which may be ahead of the state.
    pub(super) fn of(state: &State, log: &Log) -> Self {
        let mut orders = Orders {
            floor: state.floor,
            places: BTreeMap::new(),
        };
        let mut next = state.floor;
        while next <= state.revision {
            let Some(chunks) = log.chunks_from(next, LOG_CHUNKS) else {
                // A compaction came between: what is below is given up already.
                next = log.base().min(state.revision);
                orders.floor = next;
                orders.places.clear();
                continue;
            };
            if chunks.is_empty() {
                break;
            }
            for chunk in chunks {
                let changes = chunk.changes_from(next);
                for made in changes.chunk_by(|one, two| one.revision == two.revision) {
                    orders.learn(made);
                }
                next = chunk.last.next();
            }
        }
        orders
    }

    fn learn(&mut self, made: &[Stored]) {
        if let [first, _, ..] = made {
            let keys: Vec<&[u8]> = made.iter().map(Stored::key).collect();
            if let Some(places) = order::places(&keys) {
                self.places.insert(first.revision, places);
            }
        }
    }

    pub(super) fn floor(&self) -> Revision {
        self.floor
    }
}

impl Versions {
    /// All that can be seen of a state at or above the floor.
    ///
    /// # Errors
    /// `Corrupt` when the orders are not those of this state.
    pub(super) fn of(state: &State, orders: &Orders) -> Result<Self, Error> {
        let mut rows: Vec<Row> = Vec::new();
        for (key, history) in state.index.iter() {
            let least = least_seen(history, orders.floor);
            let seen = history.versions().filter(|v| v.revision() >= least);
            rows.extend(seen.map(|version| Row {
                at: RowKey {
                    revision: version.revision(),
                    sub: 0,
                    is_deletion: matches!(version, Version::Tombstone(_)),
                },
                what: match version {
                    Version::Put(kept) => What::Put(kept.clone()),
                    Version::Tombstone(_) => What::Deletion(Bytes::copy_from_slice(key)),
                },
            }));
        }
        // Stable: within a revision they stay in key order.
        rows.sort_by_key(|row| row.at.revision);
        let mut made = Vec::with_capacity(rows.len() + 1);
        let mut rest = rows.into_iter().peekable();
        while let Some(first) = rest.next() {
            let revision = first.at.revision;
            let mut one = vec![first];
            while let Some(row) = rest.next_if(|row| row.at.revision == revision) {
                one.push(row);
            }
            made.extend(number(one, revision, orders)?);
        }
        let newest = made.last().map_or(Revision::FIRST, |row| row.at.revision);
        if newest < state.revision {
            made.push(Row {
                at: RowKey {
                    revision: state.revision,
                    sub: 0,
                    is_deletion: false,
                },
                what: What::Mark,
            });
        }
        Ok(Versions { rows: made })
    }
}

/// Puts the rows of one revision, which are in key order, into the order made.
fn number(rows: Vec<Row>, revision: Revision, orders: &Orders) -> Result<Vec<Row>, Error> {
    let count = rows.len();
    let mut rows = match orders.places.get(&revision) {
        Some(places) => order::arrange(rows.into_iter(), places).ok_or_else(|| Error::Corrupt {
            reason: format!(
                "the order kept of revision {revision} is not one of its {count} changes; restart \
                 the store"
            ),
        })?,
        None => rows,
    };
    for (row, sub) in rows.iter_mut().zip(0..) {
        row.at.sub = sub;
    }
    Ok(rows)
}

/// The least revision of a key that a read or a watch from `floor` on can see.
fn least_seen(history: &History, floor: Revision) -> Revision {
    match history.at(floor) {
        Some(Version::Tombstone(gone)) if gone.mod_revision() < floor => gone.mod_revision().next(),
        Some(seen) => seen.revision(),
        None => Revision::ZERO,
    }
}

/// The leases, with times in whole seconds, which is how they were asked for.
pub(super) fn leases(state: &State) -> Listed {
    let mut rows = Vec::new();
    for id in state.lease_ids() {
        if let Some(lease) = state.lease(id) {
            let seconds = lease.ttl.as_millis().div_ceil(1000);
            rows.push(layout::lease_row(
                id,
                u64::try_from(seconds).unwrap_or(u64::MAX),
            ));
        }
    }
    Listed {
        name: layout::LEASE,
        rows,
    }
}

/// What the store says of itself.
pub(super) fn meta(state: &State, floor: Revision) -> Listed {
    let number = |number: u64| Bytes::copy_from_slice(&number.to_be_bytes());
    let mut rows = vec![
        // There is no raft: the revision is the one order there is, and a restore sets its own.
        (layout::CONSISTENT_INDEX, number(state.revision.get())),
        (layout::TERM, number(1)),
        (
            layout::STORAGE_VERSION,
            Bytes::from_static(layout::SCHEMA.as_bytes()),
        ),
        (layout::NEXT_LEASE, number(state.next_lease.cast_unsigned())),
    ];
    if floor > Revision::ZERO {
        rows.push((layout::SCHEDULED_COMPACT, layout::revision_value(floor)));
        rows.push((layout::FINISHED_COMPACT, layout::revision_value(floor)));
    }
    rows.sort_unstable_by_key(|(key, _)| *key);
    let rows = rows
        .into_iter()
        .map(|(key, value)| (Bytes::from_static(key), value));
    Listed {
        name: layout::META,
        rows: rows.collect(),
    }
}
