//! Numbers about a store, for metrics and operators; never for decisions.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Revision;
use crate::cold::Residence;
use crate::state::State;

mod timings;

pub(crate) use timings::SharedTimings;
pub use timings::Timings;

/// How much a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSize {
    /// Bytes on stable storage: log and checkpoints.
    pub on_disk: u64,
    /// Bytes of all versions that can still be read.
    pub in_use: u64,
}

/// What a store has done since it was opened, and where it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// The newest visible revision.
    pub revision: Revision,
    /// The compacted floor.
    pub compacted: Revision,
    /// Live keys.
    pub keys: u64,
    /// Leases held.
    pub leases: u64,
    /// Batches made durable.
    pub batches: u64,
    /// Requests answered by the sequencer, failures too.
    pub requests: u64,
    /// Bytes of payload handed to the engine.
    pub log_bytes: u64,
    /// Appends whose outcome the engine did not know at first.
    pub uncertain: u64,
    /// Batches undone for want of space.
    pub undone: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Checkpoints that failed; the log is then longer than need be.
    pub checkpoints_failed: u64,
    /// Snapshots saved on the schedule.
    pub snapshots: u64,
    /// Scheduled snapshots that could not be saved, each try.
    pub snapshots_failed: u64,
    /// When the last one was saved, in seconds since 1970; zero for never.
    pub snapshot_at: u64,
    /// Bytes of records the event ring holds.
    pub ring_bytes: u64,
    /// Room taken by writes that are not answered yet: one each, and one for each KiB.
    pub waiting: u64,
    /// Leases that ended because their time was over.
    pub expired: u64,
    /// From a batch being handed to the engine until it was visible.
    pub commits: Timings,
    /// Syncs of the engine's log.
    pub syncs: Timings,
    /// Bytes of values in memory; zero without a memory limit, when all are.
    pub resident_bytes: u64,
    /// Values that left the memory.
    pub values_evicted: u64,
    /// Values read back.
    pub values_loaded: u64,
}

/// The counters behind [`StoreStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) uncertain: AtomicU64,
    pub(crate) undone: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) checkpoints_failed: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) commits: SharedTimings,
    pub(crate) snapshots: AtomicU64,
    pub(crate) snapshots_failed: AtomicU64,
    pub(crate) snapshot_at: AtomicU64,
}

impl Counters {
    pub(crate) fn read(
        &self,
        state: &State,
        ring_bytes: usize,
        residence: Option<&Residence>,
    ) -> StoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            revision: state.revision,
            compacted: state.floor,
            keys: state.index.count(b"", None, u64::MAX),
            leases: state.lease_count(),
            batches: get(&self.batches),
            requests: get(&self.requests),
            log_bytes: get(&self.log_bytes),
            uncertain: get(&self.uncertain),
            undone: get(&self.undone),
            checkpoints: get(&self.checkpoints),
            checkpoints_failed: get(&self.checkpoints_failed),
            snapshots: get(&self.snapshots),
            snapshots_failed: get(&self.snapshots_failed),
            snapshot_at: get(&self.snapshot_at),
            ring_bytes: ring_bytes as u64,
            expired: get(&self.expired),
            commits: self.commits.read(),
            resident_bytes: residence.map_or(0, |residence| residence.bytes() as u64),
            values_evicted: residence.map_or(0, |residence| get(&residence.evicted)),
            values_loaded: residence.map_or(0, |residence| get(&residence.loaded)),
            ..StoreStats::default()
        }
    }
}

/// Adds to a counter that nothing is ordered by.
pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}
