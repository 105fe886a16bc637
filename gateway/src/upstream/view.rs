//! What a cluster is at one moment: compiled, immutable, taken once by a request, and the choice of
//! an endpoint in it. Endpoints are shared with the views before and after it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use http::HeaderValue;
use rustls_pki_types::ServerName;

use super::connect::Connector;
use super::credentials::Files;
use super::endpoint::{Endpoint, Ticket};
use super::group::Groups;
use super::health::ProbeState;
use super::pace::SHARE_FULL;
use super::pick::{self, Burden, Tier, Tried};
use super::spec::{ClusterSpec, IdentityMode, UpstreamError};
use super::wish::Wish;
use crate::clock;

/// An apiserver that starts knows no resource version older than its first lists: who goes on with
/// a watch there starts anew with a list. Clients hear of newer versions about once a minute.
pub(super) const RESUMES_AFTER: Duration = Duration::from_secs(120);

/// See the module.
pub(crate) struct View {
    pub(crate) spec: ClusterSpec,
    pub(crate) bearer: Option<HeaderValue>,
    /// For clients' requests.
    pub(crate) connector: Arc<Connector>,
    /// For the gateway's own; the same, unless callers' tokens must be the only credential.
    pub(crate) own_connector: Arc<Connector>,
    members: Vec<Member>,
    groups: Groups,
    /// The newest turn that any endpoint has begun.
    newest: Arc<AtomicU64>,
    pub(super) files: Files,
}

struct Member {
    endpoint: Arc<Endpoint>,
    /// Of [`SHARE_FULL`], by its weight.
    share: u32,
    is_reserve: bool,
}

impl View {
    pub(super) fn compile(spec: ClusterSpec, old: Option<&View>) -> Result<View, UpstreamError> {
        if spec.endpoints.is_empty() && spec.discovery.is_none() {
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
            groups: Groups::compile(&spec),
            newest: old.map(|old| Arc::clone(&old.newest)).unwrap_or_default(),
            spec,
            bearer,
            connector,
            own_connector,
            members,
            files,
        })
    }

    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.members.iter().map(|member| &member.endpoint)
    }

    /// The share of each endpoint.
    pub(super) fn shares(&self) -> impl Fn(&Arc<Endpoint>) -> u32 + '_ {
        |endpoint| {
            let mut members = self.members.iter();
            let member = members.find(|it| Arc::ptr_eq(&it.endpoint, endpoint));
            member.map_or(1, |it| it.share)
        }
    }

    pub(super) fn has(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoints().any(|it| Arc::ptr_eq(it, endpoint))
    }

    /// Whether an endpoint in good standing is left that `tried` does not name.
    pub(crate) fn has_other(&self, wish: &Wish<'_>, tried: Tried, now: Instant) -> bool {
        let tier = |at| self.tier(at, wish, tried, now);
        let among = self.groups.candidates(wish.subset, tier);
        among.iter().any(|&at| tier(at) <= Tier::Fresh)
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Chooses an endpoint and notes it in `tried`.
    pub(crate) fn pick(
        &self,
        wish: &Wish<'_>,
        tried: &mut Tried,
        random: u64,
        now: Instant,
    ) -> Option<Ticket> {
        let before = *tried;
        let tier = |at| self.tier(at, wish, before, now);
        let among = self.groups.candidates(wish.subset, tier);
        let home = wish.client.and_then(|client| {
            let member = |at: usize| self.members.get(at);
            let seed = |at| member(at).map_or(0, |it| it.endpoint.seed);
            let load = |at| member(at).map_or(u64::MAX, |it| it.endpoint.load(wish.class));
            pick::stick(among, client, tier, seed, load)
        });
        let (chosen, share) = match home {
            Some(home) => (home, SHARE_FULL),
            None => pick::choose(among, random, tier, |at| self.burden(at, wish, now))?,
        };
        let endpoint = &self.members.get(chosen)?.endpoint;
        tried.insert(chosen);
        endpoint.gate.enter(now);
        endpoint.pace.take_turn(share, &self.newest);
        Some(Ticket::new(Arc::clone(endpoint), wish))
    }

    fn tier(&self, at: usize, wish: &Wish<'_>, tried: Tried, now: Instant) -> Tier {
        let Some(Member {
            endpoint,
            is_reserve,
            ..
        }) = self.members.get(at)
        else {
            return Tier::Tried;
        };
        if tried.contains(at) {
            return Tier::Tried;
        }
        match endpoint.standing.get() {
            ProbeState::Unready => Tier::Desperate,
            _ if !endpoint.gate.is_open(now) => Tier::Desperate,
            _ if endpoint.is_busy_for(wish.caller, now) => Tier::Busy,
            _ if *is_reserve => Tier::Reserve,
            ProbeState::Unprobed | ProbeState::Refusing => Tier::Unproven,
            ProbeState::Ready | ProbeState::Unjudged => {
                let pace = &endpoint.pace;
                if wish.is_resumed && pace.is_back_since_less_than(RESUMES_AFTER, now) {
                    Tier::Fresh
                } else {
                    Tier::Good
                }
            }
        }
    }

    fn burden(&self, at: usize, wish: &Wish<'_>, now: Instant) -> Burden {
        let Some(Member {
            endpoint, share, ..
        }) = self.members.get(at)
        else {
            return Burden {
                load: u64::MAX,
                pass: u64::MAX,
                share: 1,
                latency: None,
            };
        };
        Burden {
            load: endpoint.load(wish.class),
            pass: endpoint.pace.pass(&self.newest),
            share: endpoint.pace.ramp(*share, self.spec.slow_start, now),
            latency: endpoint.pace.latency(now),
        }
    }

    pub(super) fn sweep(&self) {
        for endpoint in self.endpoints() {
            endpoint.pool.sweep(self.connector.generation);
            endpoint.own.sweep(self.own_connector.generation);
        }
    }
}

fn members(spec: &ClusterSpec, old: Option<&View>) -> Result<Vec<Member>, UpstreamError> {
    let mut members: Vec<Member> = Vec::with_capacity(spec.endpoints.len());
    let largest = spec.endpoints.iter().map(|it| it.weight).max();
    let largest = largest.map_or(1, |weight| u64::from(weight.get()));
    for endpoint in &spec.endpoints {
        let url = endpoint.url.trim_end_matches('/');
        if members.iter().any(|m| &*m.endpoint.id == url) {
            return Err(UpstreamError::Duplicate {
                url: url.to_owned(),
            });
        }
        let known = old.and_then(|old| old.endpoints().find(|it| &*it.id == url));
        let share = u64::from(endpoint.weight.get()) * u64::from(SHARE_FULL) / largest;
        members.push(Member {
            endpoint: match known {
                Some(endpoint) => Arc::clone(endpoint),
                None => Arc::new(added(url, endpoint.tls_name.clone(), old.is_some())?),
            },
            is_reserve: endpoint.is_reserve,
            share: u32::try_from(share).unwrap_or(SHARE_FULL).max(1),
        });
    }
    Ok(members)
}

/// An endpoint that joins others has most likely just been started.
fn added(url: &str, tls_name: Option<String>, joins: bool) -> Result<Endpoint, UpstreamError> {
    let now = clock::now();
    let endpoint = Endpoint::new(url, tls_name, now)?;
    if joins {
        endpoint.pace.come_back(now);
    }
    Ok(endpoint)
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
