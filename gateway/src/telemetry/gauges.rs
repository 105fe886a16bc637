//! Values that others keep anyway, read when the text is asked for.

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use super::names;

/// What can be read so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gauge {
    /// Connections of clients that were accepted.
    Connections,
    /// Those of them that were given up.
    ConnectionsGivenUp,
    /// Requests a rule admitted.
    RuleAdmitted,
    /// Requests a rule refused.
    RuleRefused,
    /// Requests a rule would have refused.
    RuleWouldRefuse,
    /// Requests that had to wait for their turn under a rule.
    RuleWaited,
    /// Requests that wait now.
    RuleWaiting,
    /// A breaker that is not closed.
    BreakerOpen,
    /// Whether an endpoint is ready.
    EndpointReady,
    /// Requests at an endpoint.
    EndpointInflight,
    /// Requests an endpoint was given.
    EndpointRequests,
    /// Tunnels that stand.
    TunnelsOpen,
    /// Bytes that tunnels have carried.
    TunnelBytes,
    /// Audit events lost.
    AuditDropped,
    /// The configuration's generation.
    ConfigGeneration,
    /// Whether the files on disk have faults.
    ConfigFaulty,
    /// Bytes of the store on disk.
    StoreSize,
    /// Bytes of the store in use.
    StoreInUse,
    /// The store's newest revision.
    StoreRevision,
    /// The store's compacted floor.
    StoreCompacted,
    /// Scheduled snapshots saved.
    Snapshots,
    /// Scheduled snapshots that failed.
    SnapshotsFailed,
    /// When the last one was saved.
    SnapshotAt,
}

const ALL: [Gauge; 23] = [
    Gauge::Connections,
    Gauge::ConnectionsGivenUp,
    Gauge::RuleAdmitted,
    Gauge::RuleRefused,
    Gauge::RuleWouldRefuse,
    Gauge::RuleWaited,
    Gauge::RuleWaiting,
    Gauge::BreakerOpen,
    Gauge::EndpointReady,
    Gauge::EndpointInflight,
    Gauge::EndpointRequests,
    Gauge::TunnelsOpen,
    Gauge::TunnelBytes,
    Gauge::AuditDropped,
    Gauge::ConfigGeneration,
    Gauge::ConfigFaulty,
    Gauge::StoreSize,
    Gauge::StoreInUse,
    Gauge::StoreRevision,
    Gauge::StoreCompacted,
    Gauge::Snapshots,
    Gauge::SnapshotsFailed,
    Gauge::SnapshotAt,
];

/// One value with its labels; labels come from what operators named, never from callers.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The value.
    pub value: u64,
    /// Its labels.
    pub labels: Vec<(&'static str, String)>,
}

/// Answers the present values of a gauge.
pub type GaugeSource = Arc<dyn Fn(Gauge) -> Vec<Reading> + Send + Sync>;

pub(super) fn register(meter: &Meter, source: GaugeSource) {
    for gauge in ALL {
        let (name, grows) = name(gauge);
        let source = Arc::clone(&source);
        let read = move |observe: &dyn Fn(u64, &[KeyValue])| {
            for reading in source(gauge) {
                let labels: Vec<KeyValue> = reading
                    .labels
                    .into_iter()
                    .map(|(k, v)| KeyValue::new(k, v))
                    .collect();
                observe(reading.value, &labels);
            }
        };
        if grows {
            meter
                .u64_observable_counter(name)
                .with_callback(move |observer| read(&|v, labels| observer.observe(v, labels)))
                .build();
        } else {
            meter
                .u64_observable_gauge(name)
                .with_callback(move |observer| read(&|v, labels| observer.observe(v, labels)))
                .build();
        }
    }
}

/// The gauge's name, and whether it only grows.
fn name(gauge: Gauge) -> (&'static str, bool) {
    match gauge {
        Gauge::Connections => (names::CONNECTIONS, true),
        Gauge::ConnectionsGivenUp => (names::CONNECTIONS_GIVEN_UP, true),
        Gauge::RuleAdmitted => (names::RULE_ADMITTED, true),
        Gauge::RuleRefused => (names::RULE_REFUSED, true),
        Gauge::RuleWouldRefuse => (names::RULE_WOULD_REFUSE, true),
        Gauge::RuleWaited => (names::RULE_WAITED, true),
        Gauge::RuleWaiting => (names::RULE_WAITING, false),
        Gauge::BreakerOpen => (names::BREAKER_OPEN, false),
        Gauge::EndpointReady => (names::ENDPOINT_READY, false),
        Gauge::EndpointInflight => (names::ENDPOINT_INFLIGHT, false),
        Gauge::EndpointRequests => (names::ENDPOINT_REQUESTS, true),
        Gauge::TunnelsOpen => (names::TUNNELS_OPEN, false),
        Gauge::TunnelBytes => (names::TUNNEL_BYTES, true),
        Gauge::AuditDropped => (names::AUDIT_DROPPED, true),
        Gauge::ConfigGeneration => (names::CONFIG_GENERATION, false),
        Gauge::ConfigFaulty => (names::CONFIG_FAULTY, false),
        Gauge::StoreSize => (names::STORE_SIZE, false),
        Gauge::StoreInUse => (names::STORE_IN_USE, false),
        Gauge::StoreRevision => (names::STORE_REVISION, false),
        Gauge::StoreCompacted => (names::STORE_COMPACTED, false),
        Gauge::Snapshots => (names::SNAPSHOTS, true),
        Gauge::SnapshotsFailed => (names::SNAPSHOTS_FAILED, true),
        Gauge::SnapshotAt => (names::SNAPSHOT_AT, false),
    }
}
