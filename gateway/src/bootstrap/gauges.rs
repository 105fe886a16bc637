//! Reads the values that parts keep anyway, for the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use sluice_metastore::store::Store;

use crate::audit::Recorder;
use crate::clock;
use crate::control::ControlHandle;
use crate::flow::LiveState;
use crate::listener::ListenerCounters;
use crate::snapshot::{RoutingSnapshot, Target};
use crate::telemetry::{Gauge, GaugeSource, Reading};
use crate::upstream::{Cluster, ClusterCounters, EndpointView, ProbeState};

/// Where the values are.
pub(super) struct Sources {
    pub(super) listener: Arc<ListenerCounters>,
    pub(super) live: Arc<LiveState>,
    pub(super) snapshot: Arc<ArcSwap<RoutingSnapshot>>,
    pub(super) control: ControlHandle,
    pub(super) recorder: Recorder,
    pub(super) store: Option<Store>,
}

pub(super) fn source(sources: Sources) -> GaugeSource {
    Arc::new(move |gauge| sources.read(gauge))
}

/// The upstream clusters in force.
pub(super) fn clusters(snapshot: &RoutingSnapshot) -> Vec<Arc<Cluster>> {
    snapshot
        .routes()
        .filter_map(|route| match &route.target {
            Target::Upstream(cluster) => Some(Arc::clone(cluster)),
            Target::Api(_) => None,
        })
        .collect()
}

impl Sources {
    fn read(&self, gauge: Gauge) -> Vec<Reading> {
        match gauge {
            Gauge::Connections => one(self.listener.accepted.load(Ordering::Relaxed)),
            Gauge::ConnectionsGivenUp => self.given_up(),
            Gauge::RuleAdmitted => self.rules(|counts| counts.admitted),
            Gauge::RuleRefused => self.rules(|counts| {
                counts.refused_rate
                    + counts.refused_in_flight
                    + counts.refused_breaker
                    + counts.refused_always
            }),
            Gauge::RuleWouldRefuse => self.rules(|counts| counts.would_refuse),
            Gauge::RuleWaited => self.rules(|counts| counts.waited),
            Gauge::RuleWaiting => self.rules(|counts| counts.waiting),
            Gauge::BreakerOpen => self.breakers(),
            Gauge::EndpointReady => {
                self.endpoints(|view| u64::from(view.probe == ProbeState::Ready))
            }
            Gauge::EndpointInflight => {
                self.endpoints(|view| (view.in_flight + view.long_running) as u64)
            }
            Gauge::EndpointRequests => self.endpoints(|view| view.served),
            Gauge::TunnelsOpen => self.tunnels(|counters| vec![(None, &counters.tunnels_open)]),
            Gauge::TunnelBytes => self.tunnels(|counters| {
                vec![
                    (Some("up"), &counters.tunnel_bytes_up),
                    (Some("down"), &counters.tunnel_bytes_down),
                ]
            }),
            Gauge::AuditDropped => one(self.recorder.dropped()),
            Gauge::ConfigGeneration => one(self.control.state().view().generation),
            Gauge::ConfigFaulty => one(u64::from(!self.control.state().is_good())),
            Gauge::StoreSize => self.store(|store| store.size().on_disk),
            Gauge::StoreInUse => self.store(|store| store.size().in_use),
            Gauge::StoreRevision => self.store(|store| store.revision().get()),
            Gauge::StoreCompacted => self.store(|store| store.compacted().get()),
            Gauge::Snapshots => self.store(|store| store.stats().snapshots),
            Gauge::SnapshotsFailed => self.store(|store| store.stats().snapshots_failed),
            Gauge::SnapshotAt => self.store(|store| store.stats().snapshot_at),
        }
    }

    fn given_up(&self) -> Vec<Reading> {
        let counters = &self.listener;
        let all = [
            ("handshake_failed", &counters.handshake_failures),
            ("handshake_shed", &counters.handshakes_shed),
            ("proxy_header", &counters.headers_refused),
            ("hasty_resets", &counters.closed_for_hurry),
        ];
        let reading = |(reason, count): (&str, &AtomicU64)| Reading {
            value: count.load(Ordering::Relaxed),
            labels: vec![("reason", reason.to_owned())],
        };
        all.into_iter().map(reading).collect()
    }

    fn rules(&self, value: impl Fn(&crate::flow::RuleCounts) -> u64) -> Vec<Reading> {
        let counts = self.live.counts();
        let reading = |counts: &crate::flow::RuleCounts| Reading {
            value: value(counts),
            labels: vec![
                ("cluster", counts.cluster.to_string()),
                ("rule", counts.rule.to_string()),
            ],
        };
        counts.iter().map(reading).collect()
    }

    fn breakers(&self) -> Vec<Reading> {
        let open = self.live.breakers().list(clock::now());
        open.into_iter()
            .map(|breaker| Reading {
                value: 1,
                labels: vec![
                    ("scope", breaker.scope.as_str().to_owned()),
                    ("name", breaker.name),
                    ("phase", breaker.phase.to_owned()),
                ],
            })
            .collect()
    }

    fn endpoints(&self, value: impl Fn(&EndpointView) -> u64) -> Vec<Reading> {
        let mut readings = Vec::new();
        for cluster in clusters(&self.snapshot.load()) {
            let name = cluster.name();
            readings.extend(cluster.endpoints().iter().map(|view| Reading {
                value: value(view),
                labels: vec![("cluster", name.clone()), ("endpoint", view.id.to_string())],
            }));
        }
        readings
    }

    fn tunnels(
        &self,
        values: impl Fn(&ClusterCounters) -> Vec<(Option<&'static str>, &AtomicU64)>,
    ) -> Vec<Reading> {
        let mut readings = Vec::new();
        for cluster in clusters(&self.snapshot.load()) {
            for (direction, value) in values(cluster.counters()) {
                let direction = direction.map(|it| ("direction", it.to_owned()));
                let name = ("cluster", cluster.name());
                readings.push(Reading {
                    value: value.load(Ordering::Relaxed),
                    labels: std::iter::once(name).chain(direction).collect(),
                });
            }
        }
        readings
    }

    fn store(&self, value: impl Fn(&Store) -> u64) -> Vec<Reading> {
        self.store
            .as_ref()
            .map(|store| one(value(store)))
            .unwrap_or_default()
    }
}

fn one(value: u64) -> Vec<Reading> {
    vec![Reading {
        value,
        labels: Vec::new(),
    }]
}
