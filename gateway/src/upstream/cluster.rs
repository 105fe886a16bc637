//! The handle to a set of equal kube-apiservers: what it is now, and the tasks that keep it so.
//!
//! The current [`View`] is one immutable value, swapped whole; a request takes it once. Endpoints
//! are found again by their URL, so a reload forgets no ejection and closes no stream. Tasks: one
//! prober an endpoint, one keeper a cluster; they end when the last handle is dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderValue;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::budget::Budget;
use super::connect::Connector;
use super::credentials::Files;
use super::endpoint::{Endpoint, EndpointView, LoadClass, Ticket};
use super::health::{self, ProbeState};
use super::kept::Keeper;
use super::pick::{self, Burden, Tier, Tried};
use super::spec::{ClusterSpec, IdentityMode, UpstreamError};

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
    /// Credential files that could not be read again; the last good ones stay in use.
    pub refresh_failures: AtomicU64,
}

/// A set of equal kube-apiservers.
pub struct Cluster {
    view: ArcSwap<View>,
    /// Held while a new view is made, so that two reloads do not lose each other's endpoints.
    applying: Mutex<()>,
    draws: AtomicU64,
    pub(crate) counters: Arc<ClusterCounters>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) budget: Budget,
    me: Weak<Cluster>,
    _stop: DropGuard,
}

/// What a cluster is at one moment.
pub(crate) struct View {
    pub(crate) spec: ClusterSpec,
    pub(crate) bearer: Option<HeaderValue>,
    /// For clients' requests.
    pub(crate) connector: Arc<Connector>,
    /// For the gateway's own; the same, unless callers' tokens must be the only credential.
    pub(crate) own_connector: Arc<Connector>,
    members: Vec<Member>,
    files: Files,
}

struct Member {
    endpoint: Arc<Endpoint>,
    weight: u32,
}

impl Cluster {
    /// Compiles `spec`, and begins to probe the endpoints. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`UpstreamError`] names what does not fit.
    pub fn spawn(spec: ClusterSpec) -> Result<Arc<Self>, UpstreamError> {
        let view = View::compile(spec, None)?;
        let stop = CancellationToken::new();
        let cluster = Arc::new_cyclic(|me| Cluster {
            view: ArcSwap::from_pointee(view),
            applying: Mutex::new(()),
            draws: AtomicU64::new(crate::clock::wall().subsec_nanos().into()),
            counters: Arc::default(),
            keeper: Arc::default(),
            budget: Budget::default(),
            me: me.clone(),
            _stop: stop.clone().drop_guard(),
        });
        for member in &cluster.view().members {
            cluster.probe(&member.endpoint);
        }
        tokio::spawn(keep(cluster.me.clone(), stop));
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
        let _guard = self.applying.lock();
        let old = self.view();
        let new = Arc::new(View::compile(spec, Some(&old))?);
        self.view.store(Arc::clone(&new));
        for member in &new.members {
            if !old.has(&member.endpoint) {
                self.probe(&member.endpoint);
            }
        }
        for member in &old.members {
            if !new.has(&member.endpoint) {
                member.endpoint.stop.cancel();
            }
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
        self.apply(view.spec.clone())
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
        view.members.iter().map(|m| m.endpoint.view()).collect()
    }

    /// Whether a probe of some endpoint has said that traffic makes sense.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let view = self.view.load();
        let usable = |state| matches!(state, ProbeState::Ready | ProbeState::Unjudged);
        view.members
            .iter()
            .any(|m| usable(m.endpoint.standing.get()))
    }

    /// Whether some endpoint has been probed, however that went.
    #[must_use]
    pub fn is_probed(&self) -> bool {
        let view = self.view.load();
        let probed = |m: &Member| m.endpoint.standing.get() != ProbeState::Unprobed;
        view.members.iter().any(probed)
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

impl View {
    fn compile(spec: ClusterSpec, old: Option<&View>) -> Result<View, UpstreamError> {
        if spec.endpoints.is_empty() {
            return Err(UpstreamError::NoEndpoint { cluster: spec.name });
        }
        let files = Files::read(&spec.tls, &spec.credentials)?;
        let bearer = files.bearer(&spec.credentials)?;
        let members = members(&spec, old)?;
        let needs_tls = members.iter().any(|m| m.endpoint.address.is_tls);
        let reusable = old.filter(|old| {
            old.files.has_same_tls(&files)
                && old.spec.identity == spec.identity
                && old.spec.tls.server_name == spec.tls.server_name
                && old.spec.timeouts.connect == spec.timeouts.connect
        });
        let (connector, own_connector) = match reusable {
            Some(old) => (Arc::clone(&old.connector), Arc::clone(&old.own_connector)),
            None => connectors(&spec, &files, needs_tls)?,
        };
        Ok(View {
            spec,
            bearer,
            connector,
            own_connector,
            members,
            files,
        })
    }

    fn has(&self, endpoint: &Arc<Endpoint>) -> bool {
        let is_same = |m: &Member| Arc::ptr_eq(&m.endpoint, endpoint);
        self.members.iter().any(is_same)
    }

    /// Whether an endpoint in good standing is left that `tried` does not name.
    pub(crate) fn has_other(&self, tried: Tried, now: Instant) -> bool {
        let mut members = self.members.iter().enumerate();
        members.any(|(at, m)| !tried.contains(at) && m.endpoint.tier(now) == Tier::Good)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Chooses an endpoint and notes it in `tried`.
    pub(crate) fn pick(
        &self,
        class: LoadClass,
        tried: &mut Tried,
        random: u64,
        now: Instant,
    ) -> Option<Ticket> {
        let before = *tried;
        let tier = |at: usize| match self.members.get(at) {
            Some(member) if !before.contains(at) => member.endpoint.tier(now),
            _ => Tier::Tried,
        };
        let burden = |at: usize| self.burden(at, class);
        let chosen = pick::choose(self.members.len(), random, tier, burden)?;
        let member = self.members.get(chosen)?;
        tried.insert(chosen);
        member.endpoint.gate.enter(now);
        Some(Ticket::new(Arc::clone(&member.endpoint), class))
    }

    fn burden(&self, at: usize, class: LoadClass) -> Burden {
        let Some(member) = self.members.get(at) else {
            return Burden {
                load: usize::MAX,
                served: u64::MAX,
                weight: 1,
            };
        };
        if member.endpoint.take_rejoined() {
            self.level(at, member);
        }
        Burden {
            load: member.endpoint.load(class),
            served: member.endpoint.served(),
            weight: member.weight,
        }
    }

    /// Puts a rejoined endpoint's count beside that of the one that served least of the others.
    fn level(&self, at: usize, member: &Member) {
        let others = self.members.iter().enumerate().filter(|(n, _)| *n != at);
        let share = |m: &Member| m.endpoint.served() / u64::from(m.weight.max(1));
        if let Some(least) = others.map(|(_, m)| share(m)).min() {
            member
                .endpoint
                .level(least.saturating_mul(u64::from(member.weight)));
        }
    }

    fn sweep(&self) {
        for member in &self.members {
            member.endpoint.pool.sweep(self.connector.generation);
            member.endpoint.own.sweep(self.own_connector.generation);
        }
    }
}

impl Endpoint {
    fn tier(&self, now: Instant) -> Tier {
        match self.standing.get() {
            ProbeState::Unready => Tier::Desperate,
            _ if !self.gate.is_open(now) => Tier::Desperate,
            ProbeState::Unprobed => Tier::Unproven,
            ProbeState::Ready | ProbeState::Unjudged => Tier::Good,
        }
    }
}

fn members(spec: &ClusterSpec, old: Option<&View>) -> Result<Vec<Member>, UpstreamError> {
    let mut members: Vec<Member> = Vec::with_capacity(spec.endpoints.len());
    for endpoint in &spec.endpoints {
        let url = endpoint.url.trim_end_matches('/');
        if members.iter().any(|m| &*m.endpoint.id == url) {
            return Err(UpstreamError::Duplicate {
                url: url.to_owned(),
            });
        }
        let known = old.and_then(|old| old.members.iter().find(|m| &*m.endpoint.id == url));
        members.push(Member {
            endpoint: match known {
                Some(member) => Arc::clone(&member.endpoint),
                None => Arc::new(Endpoint::new(url)?),
            },
            weight: endpoint.weight.get(),
        });
    }
    Ok(members)
}

fn connectors(
    spec: &ClusterSpec,
    files: &Files,
    needs_tls: bool,
) -> Result<(Arc<Connector>, Arc<Connector>), UpstreamError> {
    let server_name = match &spec.tls.server_name {
        Some(name) => Some(
            ServerName::try_from(name.clone())
                .map_err(|_| UpstreamError::ServerName { name: name.clone() })?,
        ),
        None => None,
    };
    let connector = |shows_certificate| {
        let tls = files.tls(&spec.tls, &spec.credentials, shows_certificate)?;
        if tls.is_none() && needs_tls {
            let cluster = spec.name.clone();
            return Err(UpstreamError::NoCa { cluster });
        }
        let name = server_name.clone();
        Ok(Arc::new(Connector::new(tls, name, spec.timeouts.connect)))
    };
    let own = connector(true)?;
    let is_hidden = spec.identity == IdentityMode::PassThrough && files.has_client();
    let clients = if is_hidden {
        connector(false)?
    } else {
        Arc::clone(&own)
    };
    Ok((clients, own))
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
        for member in &self.view.load().members {
            member.endpoint.stop.cancel();
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.view.load().spec.name)
    }
}
