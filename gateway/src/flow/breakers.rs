//! Breakers that operators move by hand: of a cluster, a rule, or a client.
//!
//! Only breakers that are not closed exist, so the set is small, and requests pay one read of a
//! number while it is empty. A cluster's breaker lets node heartbeats pass unless told otherwise:
//! nodes that cannot renew their leases are taken for dead, and their pods are evicted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::Serialize;
use sluice_ratelimit::{Breaker, BreakerPolicy, Cause, Epoch, Percent, PhaseView, Ramp};

use super::refuse;
use super::terms::Glob;
use crate::identity::UserInfo;
use crate::request::RequestInfo;
use crate::status::Refusal;

/// Breakers that may be open at once. Each costs every request a comparison, and hundreds of them
/// are a rule that should be written down.
const BREAKERS_MAX: usize = 256;

/// When a trip's time runs out, the clients who waited do not all return at once.
const POLICY: BreakerPolicy = BreakerPolicy {
    ramp: Ramp {
        from: match Percent::new(20) {
            Some(percent) => percent,
            None => Percent::ALL,
        },
        over: Duration::from_secs(10),
    },
    ..BreakerPolicy::BY_HAND
};

/// What a breaker stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// All requests to a cluster; its name.
    Cluster,
    /// All requests that match a rule, in each cluster; its id.
    Rule,
    /// All requests of a user; the name, in which `*` stands for any text.
    Client,
}

impl Scope {
    /// The scope's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Cluster => "cluster",
            Scope::Rule => "rule",
            Scope::Client => "client",
        }
    }
}

/// Why a breaker could not be moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BreakerFault {
    /// It is closed.
    #[error("no breaker of {} {name} is open", scope.as_str())]
    Closed {
        /// Its scope.
        scope: Scope,
        /// Its name.
        name: String,
    },
    /// There are too many.
    #[error("{BREAKERS_MAX} breakers are open already: reset some, or write a rule")]
    TooMany,
    /// The name would stop everybody, or nobody.
    #[error("a client breaker named \"{0}\" is of no use: name a user, or trip the cluster")]
    Name(String),
}

/// How a breaker is opened.
#[derive(Clone, Debug)]
pub struct Trip {
    /// Why; clients are told.
    pub reason: String,
    /// For how long; `None` until it is reset.
    pub lasting: Option<Duration>,
    /// Who does it.
    pub by: String,
    /// Of a cluster: whether nodes' heartbeats stop too.
    pub heartbeats: Heartbeats,
}

/// What a cluster's breaker does to the heartbeats of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heartbeats {
    /// They pass.
    #[default]
    Spare,
    /// They are refused as all else; within a minute nodes are taken for dead.
    Stop,
}

#[derive(Debug)]
struct Entry {
    scope: Scope,
    name: String,
    glob: Option<Glob>,
    reason: String,
    by: String,
    heartbeats: Heartbeats,
    breaker: Breaker,
}

impl Entry {
    fn is(&self, scope: Scope, name: &str) -> bool {
        self.scope == scope && self.name == name
    }

    fn stops(&self, scope: Scope, name: &str) -> bool {
        let is_name = || match &self.glob {
            Some(glob) => glob.matches(name),
            None => self.name == name,
        };
        self.scope == scope && is_name()
    }
}

/// A breaker as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManualBreaker {
    /// What it stops.
    pub scope: Scope,
    /// Which.
    pub name: String,
    /// `open` or `ramp`.
    pub phase: &'static str,
    /// What share passes, in per cent.
    pub admitting_percent: u8,
    /// Why it was tripped.
    pub reason: String,
    /// Who did it.
    pub by: String,
    /// How long it has been in its phase.
    pub since_seconds: u64,
    /// Until the phase ends by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_seconds: Option<u64>,
    /// How many requests it refused.
    pub refused: u64,
}

/// Who makes a request: whom it is made as, and who really makes it where that is another.
#[derive(Clone, Copy)]
pub(super) struct Who<'a> {
    pub(super) user: &'a UserInfo,
    pub(super) impersonator: Option<&'a UserInfo>,
}

/// All breakers moved by hand.
#[derive(Debug)]
pub struct Breakers {
    epoch: Epoch,
    /// How many there are: what a request reads when there are none.
    open: AtomicUsize,
    entries: ArcSwap<Vec<Arc<Entry>>>,
    /// Held by who changes `entries`.
    change: Mutex<()>,
}

impl Breakers {
    pub(super) fn new(now: Instant) -> Self {
        Breakers {
            epoch: Epoch::new(now),
            open: AtomicUsize::new(0),
            entries: ArcSwap::default(),
            change: Mutex::default(),
        }
    }

    /// Opens a breaker, or opens it anew under the new terms.
    ///
    /// # Errors
    /// [`BreakerFault::Name`] and [`BreakerFault::TooMany`].
    pub fn trip(
        &self,
        scope: Scope,
        name: &str,
        trip: Trip,
        now: Instant,
    ) -> Result<(), BreakerFault> {
        let breaker = Breaker::new();
        breaker.trip(trip.reason.clone(), trip.lasting, self.epoch.moment(now));
        let entry = entry(scope, name, trip, breaker)?;
        let _held = self.change.lock();
        self.put_locked(entry)
    }

    /// Closes a breaker at once.
    ///
    /// # Errors
    /// [`BreakerFault::Closed`] when it is.
    pub fn reset(&self, scope: Scope, name: &str) -> Result<(), BreakerFault> {
        let _held = self.change.lock();
        let mut entries = Vec::clone(&self.entries.load());
        let before = entries.len();
        entries.retain(|entry| !entry.is(scope, name));
        if entries.len() == before {
            let name = name.to_owned();
            return Err(BreakerFault::Closed { scope, name });
        }
        self.publish_locked(entries);
        Ok(())
    }

    /// Lets a growing share pass, whether the breaker was open or not.
    ///
    /// # Errors
    /// [`BreakerFault::Name`] and [`BreakerFault::TooMany`].
    pub fn ramp(
        &self,
        scope: Scope,
        name: &str,
        ramp: Ramp,
        by: &str,
        now: Instant,
    ) -> Result<(), BreakerFault> {
        let at = self.epoch.moment(now);
        let _held = self.change.lock();
        let entries = self.entries.load();
        if let Some(found) = entries.iter().find(|entry| entry.is(scope, name)) {
            found.breaker.ramp(ramp, at);
            return Ok(());
        }
        let terms = Trip {
            reason: "ramped up by hand".to_owned(),
            lasting: None,
            by: by.to_owned(),
            heartbeats: Heartbeats::Spare,
        };
        let breaker = Breaker::new();
        breaker.ramp(ramp, at);
        self.put_locked(entry(scope, name, terms, breaker)?)
    }

    /// All breakers that are not closed.
    #[must_use]
    pub fn list(&self, now: Instant) -> Vec<ManualBreaker> {
        self.sweep(now);
        let at = self.epoch.moment(now);
        let entries = self.entries.load();
        let show = |entry: &Arc<Entry>| show(entry, &entry.breaker.view(&POLICY, at));
        entries.iter().filter_map(show).collect()
    }

    /// Forgets breakers that have closed by themselves.
    pub(super) fn sweep(&self, now: Instant) {
        if !self.any_open() {
            return;
        }
        let _held = self.change.lock();
        let at = self.epoch.moment(now);
        let mut entries = Vec::clone(&self.entries.load());
        let before = entries.len();
        entries.retain(|entry| entry.breaker.view(&POLICY, at).phase != PhaseView::Closed);
        if entries.len() != before {
            self.publish_locked(entries);
        }
    }

    /// Whether any is not closed: false lets a request skip this phase.
    pub(super) fn any_open(&self) -> bool {
        self.open.load(Ordering::Acquire) != 0
    }

    /// Asks the breakers of cluster and client.
    pub(super) fn admit(
        &self,
        cluster: &str,
        info: &RequestInfo,
        who: Who<'_>,
        now: Instant,
        noise: u64,
    ) -> Result<(), Refusal> {
        // Acting as a node does not make a heartbeat.
        let is_heartbeat = who.impersonator.is_none() && is_heartbeat(info, who.user);
        self.ask(now, noise, |entry| match entry.scope {
            Scope::Cluster => {
                let is_spared = is_heartbeat && entry.heartbeats == Heartbeats::Spare;
                !is_spared && entry.stops(Scope::Cluster, cluster)
            }
            Scope::Client => {
                let mut both = std::iter::once(who.user).chain(who.impersonator);
                both.any(|user| entry.stops(Scope::Client, &user.name))
            }
            Scope::Rule => false,
        })
    }

    /// Asks the breaker of a rule.
    pub(super) fn admit_rule(&self, rule: &str, now: Instant, noise: u64) -> Result<(), Refusal> {
        self.ask(now, noise, |entry| entry.stops(Scope::Rule, rule))
    }

    fn ask(
        &self,
        now: Instant,
        noise: u64,
        concerns: impl Fn(&Entry) -> bool,
    ) -> Result<(), Refusal> {
        let at = self.epoch.moment(now);
        let entries = self.entries.load();
        for entry in entries.iter().filter(|entry| concerns(entry)) {
            if let Err(rejection) = entry.breaker.admit(&POLICY, at, noise) {
                let (name, reason) = (&entry.name, &entry.reason);
                return Err(refuse::by_breaker(entry.scope, name, reason, &rejection));
            }
        }
        Ok(())
    }

    fn put_locked(&self, entry: Entry) -> Result<(), BreakerFault> {
        let mut entries = Vec::clone(&self.entries.load());
        entries.retain(|other| !other.is(entry.scope, &entry.name));
        if entries.len() >= BREAKERS_MAX {
            return Err(BreakerFault::TooMany);
        }
        entries.push(Arc::new(entry));
        self.publish_locked(entries);
        Ok(())
    }

    fn publish_locked(&self, entries: Vec<Arc<Entry>>) {
        let open = entries.len();
        self.entries.store(Arc::new(entries));
        self.open.store(open, Ordering::Release);
    }
}

fn entry(scope: Scope, name: &str, trip: Trip, breaker: Breaker) -> Result<Entry, BreakerFault> {
    let is_everybody = name.chars().all(|c| c == '*');
    if scope == Scope::Client && is_everybody {
        return Err(BreakerFault::Name(name.to_owned()));
    }
    let Trip {
        reason,
        lasting: _, // already in the breaker
        by,
        heartbeats,
    } = trip;
    Ok(Entry {
        scope,
        name: name.to_owned(),
        glob: Glob::new(name).filter(|_| scope == Scope::Client),
        reason,
        by,
        heartbeats,
        breaker,
    })
}

fn show(entry: &Entry, view: &sluice_ratelimit::BreakerView) -> Option<ManualBreaker> {
    let (phase, admitting, remaining) = match &view.phase {
        PhaseView::Open {
            cause: Cause::Hand(_),
            remaining,
        } => ("open", 0, *remaining),
        PhaseView::Ramp {
            admitting,
            remaining,
        } => ("ramp", admitting.get(), Some(*remaining)),
        // Nobody reports outcomes to these breakers, so no other phase occurs.
        PhaseView::Open { .. } | PhaseView::HalfOpen | PhaseView::Closed => return None,
    };
    Some(ManualBreaker {
        scope: entry.scope,
        name: entry.name.clone(),
        phase,
        admitting_percent: admitting,
        reason: entry.reason.clone(),
        by: entry.by.clone(),
        since_seconds: view.since.as_secs(),
        remaining_seconds: remaining.map(|span| span.as_secs()),
        refused: view.refused,
    })
}

/// Whether a node says that it lives: its lease, or its status.
fn is_heartbeat(info: &RequestInfo, user: &UserInfo) -> bool {
    let is_lease = info.resource() == "leases"
        && info.group() == "coordination.k8s.io"
        && info.namespace() == "kube-node-lease";
    let is_status =
        info.resource() == "nodes" && info.group().is_empty() && info.subresource() == "status";
    (is_lease || is_status) && user.is_member("system:nodes")
}
