//! One cluster's rules, compiled: immutable, swapped whole, judged without allocation.
//!
//! Long-running requests (watches, logs, tunnels) take from the rate of the rule they match when
//! they start, but never hold one of its in-flight permits: a handful of informers would keep
//! everybody else out for hours. They have a gauge, and where the rule says so a limit, of their
//! own.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use sluice_ratelimit::{
    Bucket, Decision, Idle, InFlight, Joined, Key, Keyed, Limits, Moment, Permit, Reason,
    Rejection, RuleId, decide,
};
use tokio::sync::oneshot;

use super::admission::{Admission, Ticket};
use super::breakers::Who;
use super::live::{LiveState, RuleCounts, RuleState};
use super::matcher::{Matcher, Subject};
use super::refuse;
use super::shares::Shares;
use super::spec::{
    FlowSpec, InFlightSpec, KeyField, Mode, QueueSpec, RateSpec, Refuse, RuleSpec, SpecFault,
};
use super::turn::{Turn, Waiting};
use crate::identity::UserInfo;
use crate::request::RequestInfo;
use crate::status::Refusal;

/// The rules of one cluster, over the live state of the process.
#[derive(Debug)]
pub struct FlowTable {
    cluster: Arc<str>,
    live: Arc<LiveState>,
    rules: Box<[Rule]>,
}

#[derive(Debug)]
struct Rule {
    state: Arc<RuleState>,
    matcher: Matcher,
    mode: Mode,
    refuse: Option<Refuse>,
    /// Whose numbers its limits are counted under; held, so that they are not swept.
    _counts: Arc<RuleState>,
    rate: Option<Limit<RateSpec, Bucket>>,
    in_flight: Option<Limit<InFlightSpec, InFlight>>,
    long_running: Option<Limit<InFlightSpec, InFlight>>,
    send_to: Shares,
}

/// A limit, and where it is counted.
#[derive(Debug)]
struct Limit<S, V> {
    spec: S,
    id: RuleId,
    /// The one entry of a limit without key fields; it stays in its map while it is held here.
    only: Option<Arc<V>>,
}

impl<S, V: Idle> Limit<S, V> {
    fn new(
        spec: &S,
        fields: fn(&S) -> &[KeyField],
        id: RuleId,
        map: &Keyed<V>,
        make: impl FnOnce(&S) -> V,
    ) -> Self
    where
        S: Clone,
    {
        let one = || map.get(&Key::new(id), Moment::ZERO, || make(spec));
        Limit {
            only: fields(spec).is_empty().then(one),
            spec: spec.clone(),
            id,
        }
    }

    fn entry(
        &self,
        fields: &[KeyField],
        map: &Keyed<V>,
        asked: &Asked<'_>,
        make: impl FnOnce() -> V,
    ) -> Arc<V> {
        match &self.only {
            Some(only) => Arc::clone(only),
            None => map.get(&key(self.id, fields, asked), asked.at, make),
        }
    }
}

/// What came of asking.
#[derive(Debug)]
pub enum Entry {
    /// It may go on.
    Admitted(Admission),
    /// It may when its turn comes.
    Waiting(Waiting),
}

/// What is asked, by whom and when.
#[derive(Clone, Copy)]
struct Asked<'a> {
    subject: Subject<'a>,
    is_long_running: bool,
    at: Moment,
    noise: u64,
}

impl FlowTable {
    /// Compiles the rules that are for `cluster`. Rules that are off are left out.
    ///
    /// # Errors
    /// The first rule that cannot be read, admits nothing, or has the id of another.
    pub fn compile(
        spec: &FlowSpec,
        cluster: &str,
        live: &Arc<LiveState>,
    ) -> Result<Self, SpecFault> {
        let cluster: Arc<str> = cluster.into();
        let mut seen = HashSet::new();
        let mut rules = Vec::new();
        for rule in &spec.rules {
            let matcher = Matcher::compile(rule)?;
            if !seen.insert(&rule.id) {
                return Err(SpecFault {
                    rule: rule.id.clone(),
                    field: "name".to_owned(),
                    fault: "another rule has it: rename one".to_owned(),
                });
            }
            let is_here = rule.cluster.as_deref().is_none_or(|it| it == &*cluster);
            if is_here && rule.mode != Mode::Off {
                let state = live.rule(&cluster, &rule.id);
                let counts = match &rule.share {
                    Some(share) => live.share(&cluster, share),
                    None => Arc::clone(&state),
                };
                rules.push(lower(rule, matcher, (state, counts), live));
            }
        }
        Ok(FlowTable {
            cluster,
            live: Arc::clone(live),
            rules: rules.into(),
        })
    }

    /// Whether a request may go on. The admission is held until its answer has ended.
    ///
    /// # Errors
    /// The [`Refusal`] of the breaker or limit that is against it.
    pub fn admit(
        &self,
        info: &RequestInfo,
        user: &UserInfo,
        user_agent: Option<&str>,
        now: Instant,
    ) -> Result<Admission, Refusal> {
        match self.enter(info, user, None, user_agent, now)? {
            Entry::Admitted(admission) => Ok(admission),
            Entry::Waiting(waiting) => Err(waiting.give_up(now)),
        }
    }

    /// As [`FlowTable::admit`], but where the rule has a line, it is waited in; of a request made as
    /// `user` by an impersonator. Rules look at the user, as a kube-apiserver's own limits do; a client's breaker stops either, since whom
    /// somebody acts as is theirs to choose.
    ///
    /// # Errors
    /// As [`FlowTable::admit`].
    pub fn enter(
        &self,
        info: &RequestInfo,
        user: &UserInfo,
        impersonator: Option<&UserInfo>,
        user_agent: Option<&str>,
        now: Instant,
    ) -> Result<Entry, Refusal> {
        let at = self.live.moment(now);
        let asked = Asked {
            subject: Subject::new(info, user, user_agent),
            // Not by its headers: those of an upgrade are easily added to a list.
            is_long_running: info.is_long_running(),
            at,
            noise: self.live.noise(at),
        };
        let breakers = self.live.breakers();
        let any_open = breakers.any_open();
        if any_open {
            let who = Who { user, impersonator };
            breakers.admit(&self.cluster, info, who, now, asked.noise)?;
        }
        let mut admission = Admission::default();
        let matching = |rule: &&Rule| rule.matcher.admits(&asked.subject);
        for rule in self.rules.iter().filter(matching) {
            if any_open && let Err(refusal) = breakers.admit_rule(&rule.state.id, now, asked.noise)
            {
                rule.state.count_refusal(Reason::BreakerOpen);
                return Err(refusal);
            }
            if let Some(refuse) = rule.refuse {
                if rule.mode == Mode::Enforce {
                    rule.state.count_refused_always();
                    return Err(refuse::always(&rule.state.id, refuse, asked.noise));
                }
                admission.observe_refusal(&rule.state);
                continue;
            }
            if let Some(entry) = self.enter_rule(rule, &asked, &mut admission)? {
                return Ok(entry);
            }
        }
        Ok(Entry::Admitted(admission))
    }

    /// What one rule says; `None` when those after it are asked, too.
    fn enter_rule(
        &self,
        rule: &Rule,
        asked: &Asked<'_>,
        admission: &mut Admission,
    ) -> Result<Option<Entry>, Refusal> {
        if rule.mode == Mode::Enforce
            && !asked.is_long_running
            && let Some((limit, queue)) = rule.line()
        {
            let decided = self.join(rule, (limit, queue), asked)?;
            admission.decide(&rule.state, rule.send_to.draw(asked.noise));
            return Ok(Some(match decided {
                Ok(permit) => {
                    admission.add(Ticket::new(&rule.state, false, permit));
                    Entry::Admitted(std::mem::take(admission))
                }
                Err(turn) => {
                    Entry::Waiting(Waiting::new(turn, queue.wait, std::mem::take(admission)))
                }
            }));
        }
        match (rule.decide(&self.live, asked), rule.mode) {
            (Decision::Admit(permit), mode) => {
                admission.add(Ticket::new(&rule.state, asked.is_long_running, permit));
                if mode == Mode::Enforce {
                    admission.decide(&rule.state, rule.send_to.draw(asked.noise));
                    return Ok(Some(Entry::Admitted(std::mem::take(admission))));
                }
            }
            (Decision::Reject(rejection), Mode::Enforce) => {
                return Err(rule.refuse(asked, &rejection));
            }
            (Decision::Reject(_), Mode::Observe | Mode::Off) => {
                admission.observe_refusal(&rule.state);
            }
        }
        Ok(None)
    }

    /// A permit, or a turn to wait for. The rate is taken from before the wait: who asks too often
    /// takes no place.
    fn join(
        &self,
        rule: &Rule,
        (limit, queue): (&Limit<InFlightSpec, InFlight>, QueueSpec),
        asked: &Asked<'_>,
    ) -> Result<Result<Permit, Turn>, Refusal> {
        let InFlightSpec { max, key, queue: _ } = &limit.spec;
        let count = limit.entry(key, &self.live.in_flight, asked, InFlight::default);
        let (called, turn) = oneshot::channel();
        let call = move |permit| drop(called.send(permit));
        let joined = count.join((*max, queue.max), asked.at, asked.noise, call);
        let joined = joined.map_err(|rejection| rule.refuse(asked, &rejection))?;
        if let Some(limit) = &rule.rate {
            let RateSpec { quota, key } = &limit.spec;
            let bucket = limit.entry(key, &self.live.buckets, asked, || Bucket::new(quota));
            let checked = bucket.check(quota, asked.at, asked.noise);
            checked.map_err(|rejection| rule.refuse(asked, &rejection))?;
        }
        match joined {
            Joined::Now(permit) => Ok(Ok(permit)),
            Joined::Later(place) if self.live.may_wait() => Ok(Err(Turn::new(
                (place, turn),
                (&rule.state, &self.live),
                (count, *max, in_flight_text(&limit.spec)),
            ))),
            Joined::Later(_) => {
                let rejection = count.reject(*max, asked.at, asked.noise);
                Err(rule.refuse(asked, &rejection))
            }
        }
    }

    /// The rules with their counters, in order.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowView> {
        self.rules.iter().map(Rule::view).collect()
    }
}

/// Takes every field of a specification, so that a new one asks what it is to do here.
fn lower(
    rule: &RuleSpec,
    matcher: Matcher,
    (state, counts): (Arc<RuleState>, Arc<RuleState>),
    live: &LiveState,
) -> Rule {
    let RuleSpec {
        id: _,
        cluster: _,
        matches: _,
        mode,
        refuse,
        share: _,
        rate,
        in_flight,
        long_running,
        send_to,
    } = rule;
    let at_once = |spec: &InFlightSpec, id| {
        Limit::new(
            spec,
            |it| &it.key,
            id,
            &live.in_flight,
            |_| InFlight::default(),
        )
    };
    let rate = rate.as_ref().map(|spec| {
        let make = |it: &RateSpec| Bucket::new(&it.quota);
        Limit::new(spec, |it| &it.key, counts.short_id(), &live.buckets, make)
    });
    Rule {
        matcher,
        mode: *mode,
        refuse: *refuse,
        rate,
        in_flight: in_flight.as_ref().map(|it| at_once(it, counts.short_id())),
        long_running: long_running
            .as_ref()
            .map(|it| at_once(it, counts.long_id())),
        send_to: Shares::new(send_to),
        state,
        _counts: counts,
    }
}

impl Rule {
    /// The limit that may be waited for.
    fn line(&self) -> Option<(&Limit<InFlightSpec, InFlight>, QueueSpec)> {
        let limit = self.in_flight.as_ref()?;
        Some((limit, limit.spec.queue?))
    }

    fn decide(&self, live: &LiveState, asked: &Asked<'_>) -> Decision {
        let at_once = if asked.is_long_running {
            &self.long_running
        } else {
            &self.in_flight
        };
        let bucket = self.rate.as_ref().map(|limit| {
            let RateSpec { quota, key } = &limit.spec;
            let make = || Bucket::new(quota);
            (limit.entry(key, &live.buckets, asked, make), quota)
        });
        let count = at_once.as_ref().map(|limit| {
            let InFlightSpec { max, key, queue: _ } = &limit.spec;
            (
                limit.entry(key, &live.in_flight, asked, InFlight::default),
                *max,
            )
        });
        let limits = Limits {
            rate: bucket.as_ref().map(|(bucket, quota)| (&**bucket, *quota)),
            in_flight: count.as_ref().map(|(count, max)| (count, *max)),
        };
        decide(limits, asked.at, asked.noise)
    }

    #[cold]
    fn refuse(&self, asked: &Asked<'_>, rejection: &Rejection) -> Refusal {
        self.state.count_refusal(rejection.reason);
        let limit = match rejection.reason {
            Reason::InFlight if asked.is_long_running => self
                .long_running
                .as_ref()
                .map(|it| in_flight_text(&it.spec)),
            Reason::InFlight => self.in_flight.as_ref().map(|it| in_flight_text(&it.spec)),
            _ => self.rate.as_ref().map(|it| rate_text(&it.spec)),
        };
        refuse::by_limit(&self.state.id, &limit.unwrap_or_default(), rejection)
    }

    fn view(&self) -> FlowView {
        FlowView {
            mode: self.mode.as_str(),
            refuse: self.refuse.map(Refuse::as_str),
            rate: self.rate.as_ref().map(|it| rate_text(&it.spec)),
            in_flight_limit: self.in_flight.as_ref().map(|it| in_flight_text(&it.spec)),
            long_running_limit: self
                .long_running
                .as_ref()
                .map(|it| in_flight_text(&it.spec)),
            counts: self.state.counts(),
        }
    }
}

fn key(rule: RuleId, fields: &[KeyField], asked: &Asked<'_>) -> Key {
    let subject = asked.subject;
    let mut key = Key::new(rule);
    for field in fields {
        match field {
            KeyField::User => key.field(subject.user.name.as_bytes()),
            KeyField::Verb => key.field(subject.info.verb_name().as_bytes()),
            KeyField::Namespace => key.field(subject.namespace.as_bytes()),
            KeyField::Resource => {
                key.field(subject.group.as_bytes());
                key.field(subject.resource.as_bytes());
                key.field(subject.subresource.as_bytes());
            }
        }
    }
    key
}

fn rate_text(rate: &RateSpec) -> String {
    let (interval, burst) = (rate.quota.interval(), rate.quota.burst());
    format!("one each {interval:?}, {burst} in a burst{}", by(&rate.key))
}

fn in_flight_text(limit: &InFlightSpec) -> String {
    let mut text = format!("{} at once{}", limit.max, by(&limit.key));
    if let Some(QueueSpec { max, wait }) = limit.queue {
        text.push_str(&format!(", and {max} to wait up to {wait:?}"));
    }
    text
}

fn by(key: &[KeyField]) -> String {
    if key.is_empty() {
        return ", for all together".to_owned();
    }
    let fields: Vec<_> = key.iter().map(|field| field.as_str()).collect();
    format!(", for each {}", fields.join(" and "))
}

/// A rule with its counters, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowView {
    /// Whether it refuses.
    pub mode: &'static str,
    /// As what it refuses everything it matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refuse: Option<&'static str>,
    /// Its rate, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Its limit on short requests at once, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight_limit: Option<String>,
    /// Its limit on long-running requests at once, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_running_limit: Option<String>,
    /// What has happened.
    #[serde(flatten)]
    pub counts: RuleCounts,
}
