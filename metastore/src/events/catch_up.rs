//! Reading back the values of events that have left the memory, away from the watcher's thread.
//!
//! The watcher's cursor stays where it was until the batch is whole, so that what it says of its
//! progress stays true; then the bell of its family rings.

use std::sync::Arc;

use parking_lot::Mutex;

use super::family::Family;
use super::{Change, EventBatch};
use crate::Error;
use crate::cold::{Kept, load};
use crate::store::Shared;

/// Bytes of values that are read back for one batch: as many as one read brings, so that a watcher
/// far behind takes little memory.
const READ_BYTES: usize = 1 << 20;

/// The values that events of a batch lack.
#[derive(Debug, Default)]
pub(super) struct Missing {
    values: Vec<Value>,
    bytes: usize,
}

#[derive(Debug)]
struct Value {
    /// The event's place in the batch.
    at: usize,
    is_previous: bool,
    kept: Kept,
}

impl Missing {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether the batch had better end.
    pub(super) fn is_much(&self) -> bool {
        self.bytes >= READ_BYTES
    }

    pub(super) fn changed(&mut self, at: usize, kept: &Kept) {
        self.add(at, false, kept);
    }

    pub(super) fn previous(&mut self, at: usize, kept: &Kept) {
        self.add(at, true, kept);
    }

    fn add(&mut self, at: usize, is_previous: bool, kept: &Kept) {
        self.bytes += kept.bytes();
        self.values.push(Value {
            at,
            is_previous,
            kept: kept.clone(),
        });
    }
}

/// A batch on its way.
#[derive(Debug)]
pub(super) struct Reading(Arc<Mutex<Option<Result<EventBatch, Error>>>>);

impl Reading {
    /// Begins to read, on a thread that may block if there is a runtime, else on this one.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        family: Option<Family>,
        batch: EventBatch,
        missing: Missing,
    ) -> Self {
        let outcome = Arc::new(Mutex::new(None));
        let place = Arc::clone(&outcome);
        let shared = Arc::clone(shared);
        let read = move || {
            let whole = fill(batch, missing);
            *place.lock() = Some(whole);
            shared.log.ring_one(family);
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(read)),
            Err(_none) => read(),
        }
        Reading(outcome)
    }

    /// The batch, once it is whole.
    pub(super) fn take(&self) -> Option<Result<EventBatch, Error>> {
        self.0.lock().take()
    }
}

fn fill(mut batch: EventBatch, missing: Missing) -> Result<EventBatch, Error> {
    let kepts = missing.values.iter().map(|one| one.kept.clone());
    let kepts: Vec<Kept> = kepts.collect();
    let records = load(&kepts, false)?;
    for (one, record) in missing.values.iter().zip(records) {
        let Some(event) = batch.events.get_mut(one.at) else {
            continue;
        };
        if one.is_previous {
            event.previous = Some(record);
        } else {
            event.change = Change::Put(record);
        }
    }
    Ok(batch)
}
