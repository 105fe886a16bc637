//! The live state of one address of a cluster; it outlives every reload that keeps the address.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Uri;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::busy::Busy;
use super::connect::Address;
use super::gate::{Gate, Outcome, State};
use super::health::{ProbeState, Standing};
use super::pace::Pace;
use super::pool::Pool;
use super::seats::Seats;
use super::spec::{ClusterSpec, UpstreamError};
use super::wish::{Wish, number};

/// What kind of work a request is. Watches live for minutes and cost little: were they counted
/// with the rest, an endpoint that holds many would get nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadClass {
    /// Answered and done.
    Short,
    /// Watches, logs, tunnels.
    Long,
}

/// See the module.
pub(crate) struct Endpoint {
    /// `scheme://host:port`; by it an endpoint is known across reloads.
    pub(crate) id: Arc<str>,
    pub(crate) address: Arc<Address>,
    /// Connections for clients' requests.
    pub(crate) pool: Pool,
    /// Connections for the gateway's own calls, where those need another credential.
    pub(super) own: Pool,
    pub(super) gate: Gate,
    pub(super) standing: Standing,
    pub(super) pace: Pace,
    busy: Busy,
    /// Its number among those that clients stick to; the same in every gateway.
    pub(super) seed: u64,
    /// Its watches.
    pub(crate) watches: Seats,
    pub(super) probe_now: Notify,
    pub(super) stop: CancellationToken,
    short: AtomicUsize,
    /// The work of the short requests in flight, in ordinary ones.
    work: AtomicU64,
    long: AtomicUsize,
    served: AtomicU64,
    failed: AtomicU64,
}

/// An endpoint as the admin API shows it.
#[derive(Clone, Debug)]
pub struct EndpointView {
    /// Its URL.
    pub id: Arc<str>,
    /// What probes say.
    pub probe: ProbeState,
    /// Why the newest probe was not a good one.
    pub probe_fault: Option<Arc<str>>,
    /// What the outcome of requests says.
    pub gate: GateView,
    /// Short requests in flight.
    pub in_flight: usize,
    /// Watches, logs and tunnels in flight.
    pub long_running: usize,
    /// Requests sent since it was added.
    pub served: u64,
    /// Those that spoke against it.
    pub failed: u64,
    /// Pooled connections.
    pub connections: usize,
    /// Pooled connections opened since it was added.
    pub connections_opened: u64,
}

/// The outcome gate's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateView {
    /// Requests pass.
    Admitting,
    /// None pass while others can take them.
    Ejected,
    /// One is being tried.
    Trial,
}

/// A request's place in an endpoint's load, from the pick to the end of the response.
pub(crate) struct Ticket {
    pub(crate) endpoint: Arc<Endpoint>,
    class: LoadClass,
    cost: u64,
}

impl Endpoint {
    pub(super) fn new(
        url: &str,
        tls_name: Option<String>,
        now: Instant,
    ) -> Result<Self, UpstreamError> {
        let mut address = parse(url)?;
        address.tls_name = tls_name;
        let address = Arc::new(address);
        Ok(Endpoint {
            id: url.into(),
            address,
            pool: Pool::default(),
            own: Pool::default(),
            gate: Gate::default(),
            standing: Standing::default(),
            pace: Pace::new(now),
            busy: Busy::new(now),
            seed: foldhash::quality::FixedState::default().hash_one(url),
            watches: Seats::default(),
            probe_now: Notify::new(),
            stop: CancellationToken::new(),
            short: AtomicUsize::new(0),
            work: AtomicU64::new(0),
            long: AtomicUsize::new(0),
            served: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    pub(super) fn load(&self, class: LoadClass) -> u64 {
        match class {
            LoadClass::Short => self.work.load(Ordering::Relaxed),
            LoadClass::Long => self.long.load(Ordering::Relaxed) as u64,
        }
    }

    /// Whether it is probed and admitting.
    pub(super) fn is_good(&self, now: Instant) -> bool {
        let state = self.standing.get();
        matches!(state, ProbeState::Ready | ProbeState::Unjudged) && self.gate.is_open(now)
    }

    /// A caller was answered with 429.
    pub(crate) fn told_to_wait(&self, caller: &str, wait: Duration, now: Instant) {
        self.busy.tell(number(caller), wait, now);
    }

    /// Whether a caller is to stay away for now.
    pub(super) fn is_busy_for(&self, caller: Option<&str>, now: Instant) -> bool {
        self.busy.has_any(now) && caller.is_some_and(|it| self.busy.has(number(it), now))
    }

    pub(super) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    fn counter(&self, class: LoadClass) -> &AtomicUsize {
        match class {
            LoadClass::Short => &self.short,
            LoadClass::Long => &self.long,
        }
    }

    /// Takes note of how long the head of a small read's answer took.
    pub(crate) fn measure(&self, took: Duration, now: Instant) {
        self.pace.measure(took, now);
    }

    /// Takes note of what became of a request.
    pub(crate) fn observe(&self, outcome: Outcome, spec: &ClusterSpec, now: Instant) {
        if outcome == Outcome::Failure {
            self.failed.fetch_add(1, Ordering::Relaxed);
            self.probe_now.notify_one();
        }
        if self
            .gate
            .observe(outcome, &spec.ejection, &spec.breaker, now)
        {
            self.pace.come_back(now);
        }
    }

    pub(super) fn view(&self) -> EndpointView {
        EndpointView {
            id: Arc::clone(&self.id),
            probe: self.standing.get(),
            probe_fault: self.standing.fault(),
            gate: match self.gate.state() {
                State::Admitting => GateView::Admitting,
                State::Ejected { .. } => GateView::Ejected,
                State::Trial { .. } => GateView::Trial,
            },
            in_flight: self.short.load(Ordering::Relaxed),
            long_running: self.long.load(Ordering::Relaxed),
            served: self.served(),
            failed: self.failed.load(Ordering::Relaxed),
            connections: self.pool.len(),
            connections_opened: self.pool.opened(),
        }
    }
}

impl Ticket {
    pub(super) fn new(endpoint: Arc<Endpoint>, wish: &Wish<'_>) -> Self {
        let (class, cost) = (wish.class, wish.cost);
        endpoint.counter(class).fetch_add(1, Ordering::Relaxed);
        if class == LoadClass::Short {
            endpoint.work.fetch_add(cost, Ordering::Relaxed);
        }
        endpoint.served.fetch_add(1, Ordering::Relaxed);
        Ticket {
            endpoint,
            class,
            cost,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let counter = self.endpoint.counter(self.class);
        counter.fetch_sub(1, Ordering::Relaxed);
        if self.class == LoadClass::Short {
            self.endpoint.work.fetch_sub(self.cost, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ticket({})", self.endpoint.id)
    }
}

pub(super) fn parse(url: &str) -> Result<Address, UpstreamError> {
    let fault = || UpstreamError::Url {
        url: url.to_owned(),
    };
    let uri: Uri = url.parse().map_err(|_| fault())?;
    let is_tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(fault()),
    };
    let authority = uri.authority().ok_or_else(fault)?.clone();
    let has_more = uri.path() != "/" || uri.query().is_some();
    if has_more || authority.as_str().contains('@') {
        return Err(fault());
    }
    let host = authority.host();
    // Brackets belong to the URL, not to the IPv6 address.
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host = bare.unwrap_or(host).to_owned();
    if host.is_empty() {
        return Err(fault());
    }
    // A port that is no number reads as none; it must not become the default one.
    let after_host = authority.as_str().strip_prefix(authority.host());
    let port = match (authority.port(), after_host) {
        (Some(port), _) => port.as_u16(),
        (None, Some("")) if is_tls => 443,
        (None, Some("")) => 80,
        _ => return Err(fault()),
    };
    Ok(Address {
        authority,
        host,
        port,
        is_tls,
        tls_name: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_scheme_host_and_port_only() {
        let good = [
            ("https://10.0.0.1:6443", "10.0.0.1", 6443),
            ("https://api.example", "api.example", 443),
            ("http://[fd00::1]:8080", "fd00::1", 8080),
        ];
        for (url, host, port) in good {
            let address = parse(url).unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port), "{url}");
        }
        let bad = [
            "https://[::1",
            "https://",
            "10.0.0.1:6443",
            "ftp://a:1",
            "https://a:1/prefix",
            "https://u@a:1",
            "https://a:99999",
        ];
        for url in bad {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}
