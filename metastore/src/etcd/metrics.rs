//! `/metrics` under the names that dashboards, alerts and tools of etcd read.
//!
//! A name is here when it has a true value here; those about peers, elections and etcd's own files
//! are not. What etcd has no name for begins with `sluice_`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::calls::CODES;
use super::exposition::{Kind, Page};
use super::methods::METHODS;
use super::probes::Probe;
use super::shared::{CLUSTER_VERSION, Shared, VERSION};
use super::{alarms, process};

/// How often each check passed and failed.
#[derive(Default)]
pub(crate) struct Checked {
    passed: AtomicU64,
    failed: AtomicU64,
    last: AtomicU64,
}

impl Checked {
    pub(crate) fn add(&self, is_well: bool) {
        let count = if is_well { &self.passed } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
        self.last.store(u64::from(is_well), Ordering::Relaxed);
    }
}

/// The whole page. Reads files of the system: not for a thread that must not block.
pub(crate) fn page(shared: &Shared) -> String {
    let mut page = Page::default();
    server(&mut page, shared);
    store(&mut page, shared);
    watches(&mut page, shared);
    leases(&mut page, shared);
    calls(&mut page, shared);
    checks(&mut page, shared);
    process(&mut page);
    page.finish()
}

fn server(page: &mut Page, shared: &Shared) {
    use Kind::{Counter, Gauge};
    let is_leader = u64::from(!shared.store.has_failed());
    page.one("etcd_server_has_leader", Gauge, is_leader);
    page.one("etcd_server_is_leader", Gauge, is_leader);
    page.one("etcd_server_is_learner", Gauge, 0_u64);
    page.one("etcd_server_leader_changes_seen_total", Counter, 1_u64);
    let id = format!("{:x}", shared.member.id);
    page.labelled("etcd_server_id", Gauge, &[("server_id", &id)], 1_u64);
    page.labelled(
        "etcd_server_version",
        Gauge,
        &[("server_version", VERSION)],
        1_u64,
    );
    page.labelled(
        "etcd_cluster_version",
        Gauge,
        &[("cluster_version", CLUSTER_VERSION)],
        1_u64,
    );
    let own = env!("CARGO_PKG_VERSION");
    page.labelled("sluice_version", Gauge, &[("version", own)], 1_u64);
    let quota = shared.store.quota_bytes();
    page.one("etcd_server_quota_backend_bytes", Gauge, quota);
    page.one(
        "etcd_server_health_success",
        Counter,
        shared.counters.healthy.get(),
    );
    page.one(
        "etcd_server_health_failures",
        Counter,
        shared.counters.unhealthy.get(),
    );
    page.family("sluice_etcd_alarm", Gauge);
    for alarm in alarms::list(shared) {
        page.sample(
            "sluice_etcd_alarm",
            &[("type", alarms::name(&alarm))],
            1_u64,
        );
    }
    let stats = shared.store.stats();
    page.one(
        "etcd_server_proposals_committed_total",
        Gauge,
        stats.requests,
    );
    page.one("etcd_server_proposals_applied_total", Gauge, stats.requests);
    page.one("etcd_server_proposals_pending", Gauge, stats.waiting);
    page.one(
        "etcd_server_proposals_failed_total",
        Counter,
        failed(shared),
    );
}

/// Writes that were good and were not done, or of which nobody knows.
fn failed(shared: &Shared) -> u64 {
    let fault = |code: &&str| ["ResourceExhausted", "Unavailable", "DataLoss"].contains(code);
    let writes = METHODS.iter().zip(shared.calls.by_method());
    let writes = writes.filter(|(method, _)| method.is_write_of_data());
    let faults = writes.flat_map(|(_, (_, ended))| CODES.iter().zip(ended));
    let faults = faults.filter(|(code, _)| fault(code));
    faults.map(|(_, count)| count).sum()
}

fn store(page: &mut Page, shared: &Shared) {
    use Kind::{Counter, Gauge};
    let (size, stats) = (shared.store.size(), shared.store.stats());
    let counters = &shared.counters;
    page.one("etcd_mvcc_db_total_size_in_bytes", Gauge, size.on_disk);
    page.one(
        "etcd_mvcc_db_total_size_in_use_in_bytes",
        Gauge,
        size.in_use,
    );
    page.one("etcd_debugging_mvcc_keys_total", Gauge, stats.keys);
    page.one(
        "etcd_debugging_mvcc_current_revision",
        Gauge,
        stats.revision.get(),
    );
    page.one(
        "etcd_debugging_mvcc_compact_revision",
        Gauge,
        stats.compacted.get(),
    );
    page.one("etcd_mvcc_range_total", Counter, counters.ranges.get());
    page.one(
        "sluice_etcd_range_streams_total",
        Counter,
        counters.range_streams.get(),
    );
    page.one("etcd_mvcc_put_total", Counter, counters.puts.get());
    page.one("etcd_mvcc_delete_total", Counter, counters.deletes.get());
    page.one("etcd_mvcc_txn_total", Counter, counters.txns.get());
    page.one("etcd_disk_wal_write_bytes_total", Gauge, stats.log_bytes);
    page.histogram("etcd_disk_wal_fsync_duration_seconds", &stats.syncs);
    page.histogram("etcd_disk_backend_commit_duration_seconds", &stats.commits);
    page.one("sluice_store_batches_total", Counter, stats.batches);
    page.one("sluice_store_checkpoints_total", Counter, stats.checkpoints);
    page.one(
        "sluice_store_checkpoints_failed_total",
        Counter,
        stats.checkpoints_failed,
    );
    page.one(
        "sluice_store_batches_uncertain_total",
        Counter,
        stats.uncertain,
    );
    page.one("sluice_store_batches_undone_total", Counter, stats.undone);
    page.one("sluice_store_ring_bytes", Gauge, stats.ring_bytes);
    page.one("sluice_store_snapshots_total", Counter, stats.snapshots);
    page.one(
        "sluice_store_snapshots_failed_total",
        Counter,
        stats.snapshots_failed,
    );
    page.one(
        "sluice_store_snapshot_timestamp_seconds",
        Gauge,
        stats.snapshot_at,
    );
}

fn watches(page: &mut Page, shared: &Shared) {
    use Kind::{Counter, Gauge};
    let counters = &shared.counters;
    page.one(
        "etcd_debugging_mvcc_watch_stream_total",
        Gauge,
        counters.watch_streams.get(),
    );
    page.one(
        "etcd_debugging_mvcc_watcher_total",
        Gauge,
        counters.watchers.get(),
    );
    page.one(
        "etcd_debugging_mvcc_events_total",
        Counter,
        counters.events.get(),
    );
    page.one(
        "sluice_etcd_progress_pushed_total",
        Counter,
        counters.progress_pushed.get(),
    );
}

fn leases(page: &mut Page, shared: &Shared) {
    use Kind::{Counter, Gauge};
    let counters = &shared.counters;
    page.one(
        "etcd_debugging_lease_granted_total",
        Counter,
        counters.leases_granted.get(),
    );
    page.one(
        "etcd_debugging_lease_revoked_total",
        Counter,
        counters.leases_revoked.get(),
    );
    page.one(
        "etcd_debugging_lease_renewed_total",
        Counter,
        counters.leases_renewed.get(),
    );
    let stats = shared.store.stats();
    page.one(
        "etcd_debugging_server_lease_expired_total",
        Counter,
        stats.expired,
    );
    page.one("sluice_store_leases", Gauge, stats.leases);
}

fn calls(page: &mut Page, shared: &Shared) {
    use Kind::{Counter, Gauge};
    let counters = &shared.counters;
    page.one("sluice_etcd_connections", Gauge, counters.connections.get());
    page.one(
        "etcd_network_client_grpc_received_bytes_total",
        Counter,
        counters.received.get(),
    );
    page.one(
        "etcd_network_client_grpc_sent_bytes_total",
        Counter,
        counters.sent.get(),
    );
    let name = "etcd_server_client_requests_total";
    page.family(name, Counter);
    for (version, unary, stream) in shared.calls.versions() {
        for (kind, count) in [("unary", unary), ("stream", stream)] {
            let labels = [("client_api_version", version.as_str()), ("type", kind)];
            if count > 0 {
                page.sample(name, &labels, count);
            }
        }
    }
    let counts: Vec<_> = METHODS.iter().zip(shared.calls.by_method()).collect();
    let name = "grpc_server_started_total";
    page.family(name, Counter);
    for (method, (started, _)) in &counts {
        let (service, call) = method.names();
        let kind = method.shape.as_str();
        let labels = [
            ("grpc_method", call),
            ("grpc_service", service),
            ("grpc_type", kind),
        ];
        page.sample(name, &labels, *started);
    }
    let name = "grpc_server_handled_total";
    page.family(name, Counter);
    for (method, (_, ended)) in &counts {
        let (service, call) = method.names();
        let kind = method.shape.as_str();
        for (code, count) in CODES
            .into_iter()
            .zip(ended)
            .filter(|(_, count)| **count > 0)
        {
            let labels = [
                ("grpc_code", code),
                ("grpc_method", call),
                ("grpc_service", service),
                ("grpc_type", kind),
            ];
            page.sample(name, &labels, *count);
        }
    }
}

fn checks(page: &mut Page, shared: &Shared) {
    let all = || {
        let probes = [Probe::Live, Probe::Ready].into_iter();
        let each = probes.flat_map(|probe| probe.checks().iter().map(move |name| (probe, *name)));
        each.zip(&shared.counters.checks)
    };
    let name = "etcd_server_healthcheck";
    page.family(name, Kind::Gauge);
    for ((probe, check), counts) in all() {
        let labels = [
            ("name", check),
            ("type", probe.path().trim_start_matches('/')),
        ];
        page.sample(name, &labels, counts.last.load(Ordering::Relaxed));
    }
    let name = "etcd_server_healthchecks_total";
    page.family(name, Kind::Counter);
    for ((probe, check), counts) in all() {
        let kind = probe.path().trim_start_matches('/');
        for (status, count) in [("error", &counts.failed), ("success", &counts.passed)] {
            let labels = [("name", check), ("status", status), ("type", kind)];
            page.sample(name, &labels, count.load(Ordering::Relaxed));
        }
    }
}

/// Only what the system tells: a name without a value is left out.
fn process(page: &mut Page) {
    let seen = process::look();
    let gauges = [
        ("process_resident_memory_bytes", seen.resident_bytes),
        ("process_virtual_memory_bytes", seen.virtual_bytes),
        ("process_open_fds", seen.open_files),
        ("process_max_fds", seen.max_files),
        ("os_fd_used", seen.open_files),
        ("os_fd_limit", seen.max_files),
        ("process_start_time_seconds", seen.started_seconds),
    ];
    for (name, value) in gauges {
        if let Some(value) = value {
            page.one(name, Kind::Gauge, value);
        }
    }
    if let Some(seconds) = seen.cpu_seconds {
        page.one("process_cpu_seconds_total", Kind::Counter, seconds);
    }
}
