//! What the admin API is handed: the process as operators see and move it.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::{Value, json};
use sluice_config::GatewayConfig;
use sluice_metastore::store::Store;
use sluice_ratelimit::Ramp;
use tokio_util::sync::CancellationToken;

use super::gauges;
use crate::admin::{
    Access, AdminHandles, AuditSink, BreakerError, BreakerRow, ConfigView, EndpointBreakers,
    HealthChecks, Probe,
};
use crate::audit::{self, Recorder};
use crate::clock;
use crate::control::{ControlHandle, Reloaded};
use crate::drain::Drain;
use crate::flow::LiveState;
use crate::profile::Profiles;
use crate::snapshot::RoutingSnapshot;
use crate::telemetry::Telemetry;
use crate::upstream::{EndpointView, GateView, ProbeState};

type Snapshot = Arc<ArcSwap<RoutingSnapshot>>;

/// The parts that operators see and move.
pub(super) struct Parts<'a> {
    pub(super) config: &'a GatewayConfig,
    pub(super) live: Arc<LiveState>,
    pub(super) snapshot: Snapshot,
    pub(super) control: ControlHandle,
    pub(super) recorder: Recorder,
    pub(super) profiles: Profiles,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) store: Option<Store>,
    pub(super) drain: Drain,
    pub(super) asked_to_end: CancellationToken,
}

pub(super) fn handles(parts: Parts<'_>) -> AdminHandles {
    let Parts {
        config,
        live,
        snapshot,
        control,
        recorder,
        profiles,
        telemetry,
        store,
        drain,
        asked_to_end,
    } = parts;
    let access = config
        .admin
        .as_ref()
        .map_or_else(Access::default, |admin| Access {
            allowed_groups: admin.allowed_groups.clone(),
            allowed_users: admin.allowed_users.clone(),
        });
    let flows = Arc::clone(&snapshot);
    let endpoints = Arc::clone(&snapshot);
    AdminHandles {
        access: Arc::new(ArcSwap::from_pointee(access)),
        live,
        endpoint_breakers: Arc::new(Endpoints(Arc::clone(&snapshot))),
        flows: Arc::new(move || {
            flows
                .load()
                .routes()
                .flat_map(|route| route.flows.flows())
                .collect()
        }),
        endpoints: Arc::new(move || show_endpoints(&endpoints.load())),
        profiles: Arc::new(move || json!(profiles.view(clock::wall()))),
        metrics: Arc::new(move || {
            telemetry
                .text()
                .unwrap_or_else(|e| format!("# metrics cannot be read: {e}\n"))
        }),
        health: Arc::new(health(&snapshot, &control, store, &drain)),
        control: Arc::new(Operator {
            control,
            snapshot,
            asked_to_end,
            runtime: tokio::runtime::Handle::current(),
        }),
        audit: Arc::new(Written(recorder)),
    }
}

/// Alive: the store can still write. Ready: configuration applied, each cluster probed and one of
/// them usable, and no drain under way.
fn health(
    snapshot: &Snapshot,
    control: &ControlHandle,
    store: Option<Store>,
    drain: &Drain,
) -> HealthChecks {
    let checks = HealthChecks::new();
    if let Some(store) = store {
        checks.register("metastore", Probe::LiveAndReady, move || {
            store.failure().map_or(Ok(()), Err)
        });
    }
    let drain = drain.clone();
    checks.register("shutdown", Probe::Ready, move || {
        if drain.is_leaving() {
            Err("the process is about to end".to_owned())
        } else {
            Ok(())
        }
    });
    let control = control.clone();
    checks.register("configuration", Probe::Ready, move || {
        match control.state().view().generation {
            0 => Err("no configuration is in force".to_owned()),
            _ => Ok(()),
        }
    });
    let snapshot = Arc::clone(snapshot);
    checks.register("clusters", Probe::Ready, move || {
        clusters_serve(&snapshot.load())
    });
    checks
}

/// Whether the clusters of a snapshot are there to be served from.
pub(super) fn clusters_serve(snapshot: &RoutingSnapshot) -> Result<(), String> {
    let clusters = gauges::clusters(snapshot);
    let has_api = snapshot.routes().count() > clusters.len();
    let found = clusters.iter().map(|cluster| Found {
        name: cluster.name(),
        is_probed: cluster.is_probed(),
        is_usable: cluster.is_ready(),
    });
    can_serve(has_api, &found.collect::<Vec<_>>())
}

/// What probes say of a cluster.
struct Found {
    name: String,
    is_probed: bool,
    is_usable: bool,
}

/// Whether requests make sense here. One cluster's outage must not take the others' gateway away:
/// its own requests are told 503. Only where nothing is usable another replica may do better.
fn can_serve(has_api: bool, clusters: &[Found]) -> Result<(), String> {
    let names = |picked: &dyn Fn(&&Found) -> bool| {
        let names = clusters.iter().filter(picked).map(|it| &*it.name);
        names.collect::<Vec<_>>().join(", ")
    };
    let unprobed = names(&|it| !it.is_probed);
    if !unprobed.is_empty() {
        return Err(format!("no endpoint has been probed yet in: {unprobed}"));
    }
    if has_api || clusters.is_empty() || clusters.iter().any(|it| it.is_usable) {
        Ok(())
    } else {
        Err(format!("no endpoint is ready in: {}", names(&|_| true)))
    }
}

fn show_endpoints(snapshot: &RoutingSnapshot) -> Value {
    let mut shown = Vec::new();
    for cluster in gauges::clusters(snapshot) {
        let name = cluster.name();
        shown.extend(
            cluster
                .endpoints()
                .iter()
                .map(|view| show_endpoint(&name, view)),
        );
    }
    json!(shown)
}

fn show_endpoint(cluster: &str, view: &EndpointView) -> Value {
    let EndpointView {
        id,
        probe,
        probe_fault,
        gate,
        in_flight,
        long_running,
        served,
        failed,
        connections,
        connections_opened,
    } = view;
    json!({
        "cluster": cluster,
        "endpoint": id,
        "probe": match probe {
            ProbeState::Ready => "ready",
            ProbeState::Unready => "unready",
            ProbeState::Unjudged => "unjudged",
            ProbeState::Unprobed => "unprobed",
            ProbeState::Refusing => "refusing",
        },
        "probeFault": probe_fault.as_deref(),
        "breaker": show_gate(*gate),
        "inFlight": in_flight,
        "longRunning": long_running,
        "served": served,
        "failed": failed,
        "connections": connections,
        "connectionsOpened": connections_opened,
    })
}

/// An endpoint's gate in the words of breakers.
fn show_gate(gate: GateView) -> &'static str {
    match gate {
        GateView::Admitting => "closed",
        GateView::Ejected => "open",
        GateView::Trial => "half-open",
    }
}

/// Breakers of endpoints move by outcome alone: an endpoint that an operator wants left out is
/// taken out of the cluster's file.
struct Endpoints(Snapshot);

impl Endpoints {
    fn by_outcome(name: &str) -> BreakerError {
        BreakerError::Conflict(format!(
            "the breaker of endpoint {name} moves by the outcome of requests alone; to leave the endpoint out, take it out of its UpstreamCluster"
        ))
    }
}

impl EndpointBreakers for Endpoints {
    fn list(&self) -> Vec<BreakerRow> {
        let mut rows = Vec::new();
        for cluster in gauges::clusters(&self.0.load()) {
            for view in cluster.endpoints() {
                if view.gate == GateView::Admitting {
                    continue;
                }
                rows.push(BreakerRow {
                    scope: "endpoint".to_owned(),
                    name: view.id.to_string(),
                    phase: show_gate(view.gate).to_owned(),
                    admitting_percent: 0,
                    reason: "requests to it failed".to_owned(),
                    by: String::new(),
                    since_seconds: 0,
                    remaining_seconds: None,
                    refused: 0,
                });
            }
        }
        rows
    }

    fn trip(
        &self,
        name: &str,
        _reason: &str,
        _lasting: Option<Duration>,
        _by: &str,
    ) -> Result<(), BreakerError> {
        Err(Endpoints::by_outcome(name))
    }

    fn reset(&self, name: &str) -> Result<(), BreakerError> {
        Err(Endpoints::by_outcome(name))
    }

    fn ramp(&self, name: &str, _ramp: Ramp, _by: &str) -> Result<(), BreakerError> {
        Err(Endpoints::by_outcome(name))
    }
}

/// The process as an operator moves it.
struct Operator {
    control: ControlHandle,
    snapshot: Snapshot,
    asked_to_end: CancellationToken,
    runtime: tokio::runtime::Handle,
}

impl crate::admin::Control for Operator {
    fn config(&self) -> ConfigView {
        let view = self.control.state().view();
        ConfigView {
            generation: view.generation,
            last_error: view.fault.map(|fault| fault.message),
        }
    }

    fn reload(&self) -> Result<ConfigView, String> {
        match self.runtime.block_on(self.control.reload()) {
            Some(Reloaded::Applied(_) | Reloaded::Unchanged(_)) => Ok(self.config()),
            Some(Reloaded::Refused(why)) => Err(why),
            None => Err("the process is stopping".to_owned()),
        }
    }

    fn drain(&self) {
        self.asked_to_end.cancel();
    }

    fn clusters(&self) -> Vec<String> {
        self.snapshot
            .load()
            .routes()
            .map(|route| route.name.to_string())
            .collect()
    }
}

/// Writes operators' changes into the audit.
struct Written(Recorder);

impl AuditSink for Written {
    fn record(&self, change: &crate::admin::AdminChange) {
        let crate::admin::AdminChange {
            who,
            from,
            action,
            target,
            how,
            reason,
            outcome,
        } = change;
        let target = if how.is_empty() {
            target.clone()
        } else {
            format!("{target} {how}")
        };
        self.0.admin(audit::AdminChange {
            at: clock::wall(),
            user: who.name.clone(),
            groups: who.groups.clone(),
            source: Some(*from),
            path: format!("/admin/v1/{}", action.replace("breaker.", "breakers/")),
            verb: (*action).to_owned(),
            target,
            reason: match outcome {
                Ok(()) => reason.clone(),
                Err(why) => format!("{reason} (refused: {why})"),
            },
            code: if outcome.is_ok() { 200 } else { 409 },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_clusters_outage_does_not_take_the_others_gateway_away() {
        let found = |name: &str, is_probed, is_usable| Found {
            name: name.to_owned(),
            is_probed,
            is_usable,
        };
        let (up, down) = (found("up", true, true), found("down", true, false));
        assert_eq!(can_serve(false, &[up, down]), Ok(()));
        let down = || found("down", true, false);
        let said = can_serve(false, &[down()]).unwrap_err();
        assert!(said.contains("down"), "{said}");
        assert_eq!(can_serve(true, &[down()]), Ok(()), "the API is served");
        let early = [found("up", true, true), found("new", false, false)];
        let said = can_serve(true, &early).unwrap_err();
        assert!(said.contains("new") && !said.contains("up,"), "{said}");
        assert_eq!(can_serve(false, &[]), Ok(()));
    }
}
