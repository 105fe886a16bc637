//! Counts of what the listener did, for `/metrics`.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::metrics::Checked;
use super::probes::Probe;

/// Relaxed counters: each is read alone, and no order between them is promised.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) ranges: Count,
    pub(crate) range_streams: Count,
    pub(crate) puts: Count,
    pub(crate) deletes: Count,
    pub(crate) txns: Count,
    pub(crate) watch_streams: Gauge,
    pub(crate) watch_streams_opened: Count,
    pub(crate) watchers: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) events: Count,
    pub(crate) progress_pushed: Count,
    pub(crate) leases_granted: Count,
    pub(crate) leases_revoked: Count,
    pub(crate) leases_renewed: Count,
    /// Bytes of HTTP within TLS, plain HTTP among them.
    pub(crate) received: Count,
    /// See [`Counters::received`].
    pub(crate) sent: Count,
    /// Answers of `/health`.
    pub(crate) healthy: Count,
    /// See [`Counters::healthy`].
    pub(crate) unhealthy: Count,
    /// For each probe in turn, each of its checks.
    pub(crate) checks: [Checked; 5],
}

impl Counters {
    pub(crate) fn checked(&self, probe: Probe, name: &str, is_well: bool) {
        let before = match probe {
            Probe::Live => 0,
            Probe::Ready => Probe::Live.checks().len(),
        };
        let place = probe.checks().iter().position(|one| *one == name);
        let counts = place.and_then(|place| self.checks.get(before + place));
        if let Some(counts) = counts {
            counts.add(is_well);
        }
    }
}

/// Only ever grows.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Adds one and answers how many there were before.
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are now; moved by the pair `up` and `down`.
#[derive(Default)]
pub(crate) struct Gauge(AtomicI64);

impl Gauge {
    pub(crate) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}
