//! How a store is set up; plain values, each with a default that suits one machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a store may use and what it allows.
#[derive(Clone)]
pub struct StoreOptions {
    /// Who holds the engine's lock, for whoever finds it taken.
    pub holder: String,
    /// Bytes of records the event ring keeps at hand; watchers further behind are served from the
    /// index, at the price of a look-up an event.
    pub ring_bytes: usize,
    /// Bytes of values that may stay in memory, the ring's among them; others are read back from the
    /// disk when they are wanted. `None` keeps all. Keys, the index and what requests are using come
    /// on top; `DESIGN.md` says how much.
    pub memory_limit_bytes: Option<usize>,
    /// Room for requests queued and undecided, in units: one a request and one a KiB of it.
    pub queue_units: usize,
    /// Bytes on stable storage: a put that would go beyond is refused; deletes and compaction go on.
    pub quota_bytes: u64,
    /// The shortest time to live of a lease; shorter ones are raised to it.
    pub lease_ttl_min: Duration,
    /// Bytes of log after which a checkpoint is written, which bounds the time to recover.
    pub checkpoint_every_bytes: u64,
    /// Operations a transaction may have along one path.
    pub txn_ops_max: usize,
    /// Bytes of keys and values a transaction may have.
    pub request_bytes_max: usize,
    /// The clock leases go by.
    pub now: Arc<dyn Fn() -> Instant + Send + Sync>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            holder: "sluice".to_owned(),
            // Some five seconds of 5000 writes/s of 1 KiB, with what was there before.
            ring_bytes: 64 << 20,
            memory_limit_bytes: None,
            // 64 MiB of requests, or as many small ones: 20 times what 300 connections have open.
            queue_units: 64 << 10,
            // etcd's own advice for the largest store.
            quota_bytes: 8 << 30,
            // etcd's with its default election timeout.
            lease_ttl_min: Duration::from_secs(2),
            // Replays in about a second.
            checkpoint_every_bytes: 256 << 20,
            // etcd's defaults.
            txn_ops_max: 128,
            request_bytes_max: 3 << 19,
            now: Arc::new(Instant::now),
        }
    }
}

impl std::fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreOptions")
            .field("holder", &self.holder)
            .field("quota_bytes", &self.quota_bytes)
            .finish_non_exhaustive()
    }
}
