//! The handle to a set of equal kube-apiservers: what it is now, and the tasks that keep it so.
//!
//! The current `View` is one immutable value, swapped whole; a request takes it once. Endpoints
//! are found again by their URL, so a reload forgets no ejection and closes no stream. Tasks: one
//! prober an endpoint, three keepers a cluster; they end when the last handle is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::budget::Budget;
use super::converge::{converge, leave};
use super::credentials::Files;
use super::discover::{discover, merge};
use super::endpoint::{Endpoint, EndpointView};
use super::estimate::Estimates;
use super::health::{self, ProbeState};
use super::kept::Keeper;
use super::pick;
use super::spec::{ClusterSpec, EndpointSpec, IdentityMode, UpstreamError};
use super::view::View;

/// How often idle connections are looked for and credential files read again. kubelet-style
/// rotation leaves minutes between the new file and the old one's end.
const KEEPING: Duration = Duration::from_secs(15);

/// Counters of a cluster; all only grow, but for `tunnels_open`.
#[derive(Debug, Default)]
pub struct ClusterCounters {
    /// Requests sent once more.
    pub retries: AtomicU64,
    /// Retries that the budget refused.
    pub retries_refused: AtomicU64,
    /// Tunnels that stand.
    pub tunnels_open: AtomicU64,
    /// Bytes that tunnels have carried from clients.
    pub tunnel_bytes_up: AtomicU64,
    /// Bytes that tunnels have carried to clients.
    pub tunnel_bytes_down: AtomicU64,
    /// Credential files that could not be read again; the last good ones stay in use.
    pub refresh_failures: AtomicU64,
}

/// A set of equal kube-apiservers.
pub struct Cluster {
    view: ArcSwap<View>,
    /// What views are made of; held while one is made, so that a reload and a discovery do not
    /// lose each other's endpoints.
    parts: Mutex<Parts>,
    /// The way to find endpoints is another one.
    pub(super) discovery_changed: Arc<Notify>,
    draws: AtomicU64,
    pub(crate) counters: Arc<ClusterCounters>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) budget: Budget,
    pub(crate) doubts: Budget,
    pub(crate) estimates: Arc<Estimates>,
    me: Weak<Cluster>,
    _stop: DropGuard,
}

/// What a view is made of.
struct Parts {
    /// As operators wrote it.
    written: ClusterSpec,
    found: Vec<EndpointSpec>,
}

impl Parts {
    fn spec(&self) -> ClusterSpec {
        ClusterSpec {
            endpoints: merge(&self.written.endpoints, &self.found),
            ..self.written.clone()
        }
    }
}

impl Cluster {
    /// Compiles `spec`, and begins to probe the endpoints. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`UpstreamError`] names what does not fit.
    pub fn spawn(spec: ClusterSpec) -> Result<Arc<Self>, UpstreamError> {
        let view = View::compile(spec.clone(), None)?;
        let stop = CancellationToken::new();
        let cluster = Arc::new_cyclic(|me| Cluster {
            view: ArcSwap::from_pointee(view),
            parts: Mutex::new(Parts {
                written: spec,
                found: Vec::new(),
            }),
            discovery_changed: Arc::default(),
            draws: AtomicU64::new(crate::clock::wall().subsec_nanos().into()),
            counters: Arc::default(),
            keeper: Arc::default(),
            budget: Budget::of_retries(),
            doubts: Budget::of_doubts(),
            estimates: Arc::default(),
            me: me.clone(),
            _stop: stop.clone().drop_guard(),
        });
        for endpoint in cluster.view().endpoints() {
            cluster.probe(endpoint);
        }
        tokio::spawn(keep(cluster.me.clone(), stop.clone()));
        tokio::spawn(converge(cluster.me.clone(), stop.clone()));
        tokio::spawn(discover(cluster.me.clone(), stop));
        Ok(cluster)
    }

    /// Compiles `spec` and keeps nothing of it: whether [`Cluster::apply`] would take it. Blocking.
    ///
    /// # Errors
    /// [`UpstreamError`] names what does not fit.
    pub fn check(spec: ClusterSpec) -> Result<(), UpstreamError> {
        View::compile(spec, None).map(drop)
    }

    /// Takes a new spec: endpoints that stay keep their state, connections stay unless
    /// credentials have changed, requests in flight run to their end.
    ///
    /// # Errors
    /// [`UpstreamError`] names what does not fit; nothing has changed then.
    pub fn apply(&self, spec: ClusterSpec) -> Result<(), UpstreamError> {
        let mut parts = self.parts.lock();
        let is_found_anew = parts.written.discovery != spec.discovery;
        let new = Parts {
            written: spec,
            // What another way has found says nothing of this one.
            found: if is_found_anew {
                Vec::new()
            } else {
                parts.found.clone()
            },
        };
        self.replace(new.spec())?;
        *parts = new;
        if is_found_anew {
            self.discovery_changed.notify_one();
        }
        Ok(())
    }

    /// Takes the endpoints that were found. Blocking.
    pub(super) fn found(&self, found: Vec<EndpointSpec>) -> Result<(), UpstreamError> {
        let mut parts = self.parts.lock();
        let urls = |all: &[EndpointSpec]| -> Vec<(String, Option<String>)> {
            all.iter()
                .map(|it| (it.url.clone(), it.zone.clone()))
                .collect()
        };
        if parts.written.discovery.is_none() || urls(&parts.found) == urls(&found) {
            return Ok(());
        }
        let new = Parts {
            written: parts.written.clone(),
            found,
        };
        self.replace(new.spec())?;
        let found: Vec<&str> = new.found.iter().map(|it| it.url.as_str()).collect();
        tracing::info!(cluster = new.written.name, ?found, "endpoints found");
        *parts = new;
        Ok(())
    }

    /// Makes a view of `spec` and moves over to it.
    fn replace(&self, spec: ClusterSpec) -> Result<(), UpstreamError> {
        let old = self.view();
        let new = Arc::new(View::compile(spec, Some(&old))?);
        self.view.store(Arc::clone(&new));
        for endpoint in new.endpoints().filter(|it| !old.has(it)) {
            self.probe(endpoint);
        }
        for endpoint in old.endpoints().filter(|it| !new.has(it)) {
            endpoint.stop.cancel();
            tokio::spawn(leave(Arc::clone(endpoint)));
        }
        new.sweep();
        Ok(())
    }

    /// Reads the credential files again, and takes what has changed. Blocking.
    ///
    /// # Errors
    /// [`UpstreamError`] when a file cannot be used; the last good ones stay in use.
    pub fn refresh(&self) -> Result<(), UpstreamError> {
        let view = self.view();
        let files = Files::read(&view.spec.tls, &view.spec.credentials)?;
        if files == view.files {
            return Ok(());
        }
        tracing::info!(cluster = view.spec.name, "credential files have changed");
        let parts = self.parts.lock();
        self.replace(parts.spec())
    }

    fn probe(&self, endpoint: &Arc<Endpoint>) {
        tokio::spawn(health::watch_over(Arc::clone(endpoint), self.me.clone()));
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.view.load().spec.name.clone()
    }

    /// How identities travel to it.
    #[must_use]
    pub fn identity_mode(&self) -> IdentityMode {
        self.view.load().spec.identity
    }

    /// Its endpoints, in the order of the spec.
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointView> {
        let view = self.view.load();
        view.endpoints().map(|it| it.view()).collect()
    }

    /// Whether a probe of some endpoint has said that traffic makes sense.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let view = self.view.load();
        let usable = |state| !matches!(state, ProbeState::Unprobed | ProbeState::Unready);
        view.endpoints().any(|it| usable(it.standing.get()))
    }

    /// Whether some endpoint has been probed, however that went.
    #[must_use]
    pub fn is_probed(&self) -> bool {
        let view = self.view.load();
        let probed = |it: &Arc<Endpoint>| it.standing.get() != ProbeState::Unprobed;
        view.endpoints().any(probed)
    }

    /// What has been counted.
    #[must_use]
    pub fn counters(&self) -> &ClusterCounters {
        &self.counters
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// A number nobody can foresee well enough to matter.
    pub(crate) fn random(&self) -> u64 {
        pick::mix(self.draws.fetch_add(1, Ordering::Relaxed))
    }
}

/// Looks after the cluster until it is dropped.
async fn keep(cluster: Weak<Cluster>, stop: CancellationToken) {
    loop {
        tokio::select! {
            biased; // the end comes first
            () = stop.cancelled() => return,
            () = tokio::time::sleep(KEEPING) => {}
        }
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        cluster.view().sweep();
        let refreshed = tokio::task::spawn_blocking(move || {
            let refreshed = cluster.refresh();
            if let Err(error) = refreshed {
                let failures = &cluster.counters.refresh_failures;
                failures.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "credentials not refreshed; the last good ones are used");
            }
        });
        let _ = refreshed.await; // a panic in it is no reason to stop looking after the rest
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for endpoint in self.view.load().endpoints() {
            endpoint.stop.cancel();
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.view.load().spec.name)
    }
}
