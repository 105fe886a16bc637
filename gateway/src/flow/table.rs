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
    Bucket, Decision, InFlight, Key, Limits, Moment, Permit, Reason, Rejection, RuleId, decide,
};

use super::admission::{Admission, Ticket};
use super::live::{LiveState, RuleCounts, RuleState};
use super::matcher::{Matcher, Subject};
use super::refuse;
use super::spec::{FlowSpec, InFlightSpec, KeyField, Mode, RateSpec, RuleSpec, SpecFault};
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
    rate: Option<RateSpec>,
    in_flight: Option<InFlightSpec>,
    long_running: Option<InFlightSpec>,
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
                rules.push(lower(rule, matcher, live.rule(&cluster, &rule.id)));
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
        let at = self.live.moment(now);
        let asked = Asked {
            subject: Subject::new(info, user, user_agent),
            is_long_running: info.is_long_running() || info.is_upgrade(),
            at,
            noise: self.live.noise(at),
        };
        let breakers = self.live.breakers();
        let any_open = breakers.any_open();
        if any_open {
            breakers.admit(&self.cluster, info, user, now, asked.noise)?;
        }
        let mut admission = Admission::default();
        let matching = |rule: &&Rule| rule.matcher.admits(&asked.subject);
        for rule in self.rules.iter().filter(matching) {
            if any_open && let Err(refusal) = breakers.admit_rule(&rule.state.id, now, asked.noise)
            {
                rule.state.count_refusal(Reason::BreakerOpen);
                return Err(refusal);
            }
            match (rule.decide(&self.live, &asked), rule.mode) {
                (Decision::Admit(permit), mode) => {
                    admission.add(Ticket::new(&rule.state, asked.is_long_running, permit));
                    if mode == Mode::Enforce {
                        admission.decide(&rule.state);
                        break;
                    }
                }
                (Decision::Reject(rejection), Mode::Enforce) => {
                    return Err(rule.refuse(&asked, &rejection));
                }
                (Decision::Reject(_), Mode::Observe | Mode::Off) => {
                    admission.observe_refusal(&rule.state);
                }
            }
        }
        Ok(admission)
    }

    /// The rules with their counters, in order.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowView> {
        self.rules.iter().map(Rule::view).collect()
    }
}

/// Takes every field of a specification, so that a new one asks what it is to do here.
fn lower(rule: &RuleSpec, matcher: Matcher, state: Arc<RuleState>) -> Rule {
    let RuleSpec {
        id: _,
        cluster: _,
        matches: _,
        mode,
        rate,
        in_flight,
        long_running,
    } = rule;
    Rule {
        state,
        matcher,
        mode: *mode,
        rate: rate.clone(),
        in_flight: in_flight.clone(),
        long_running: long_running.clone(),
    }
}

impl Rule {
    fn decide(&self, live: &LiveState, asked: &Asked<'_>) -> Decision {
        let (at_once, id) = if asked.is_long_running {
            (&self.long_running, self.state.long_id())
        } else {
            (&self.in_flight, self.state.short_id())
        };
        let bucket = self.rate.as_ref().map(|rate| {
            let key = key(self.state.short_id(), &rate.key, asked);
            (
                live.buckets
                    .get(&key, asked.at, || Bucket::new(&rate.quota)),
                rate,
            )
        });
        let count = at_once.as_ref().map(|limit| {
            let key = key(id, &limit.key, asked);
            (live.in_flight.get(&key, asked.at, InFlight::default), limit)
        });
        if bucket.is_none() && count.is_none() {
            return Decision::Admit(Permit::unlimited());
        }
        let limits = Limits {
            rate: bucket
                .as_ref()
                .map(|(bucket, rate)| (&**bucket, &rate.quota)),
            in_flight: count.as_ref().map(|(count, limit)| (count, limit.max)),
        };
        decide(limits, asked.at, asked.noise)
    }

    #[cold]
    fn refuse(&self, asked: &Asked<'_>, rejection: &Rejection) -> Refusal {
        self.state.count_refusal(rejection.reason);
        let limit = match rejection.reason {
            Reason::InFlight if asked.is_long_running => {
                self.long_running.as_ref().map(in_flight_text)
            }
            Reason::InFlight => self.in_flight.as_ref().map(in_flight_text),
            _ => self.rate.as_ref().map(rate_text),
        };
        refuse::by_limit(&self.state.id, &limit.unwrap_or_default(), rejection)
    }

    fn view(&self) -> FlowView {
        FlowView {
            mode: self.mode.as_str(),
            rate: self.rate.as_ref().map(rate_text),
            in_flight_limit: self.in_flight.as_ref().map(in_flight_text),
            long_running_limit: self.long_running.as_ref().map(in_flight_text),
            counts: self.state.counts(),
        }
    }
}

fn key(rule: RuleId, fields: &[KeyField], asked: &Asked<'_>) -> Key {
    let Subject { info, user, .. } = asked.subject;
    let mut key = Key::new(rule);
    for field in fields {
        match field {
            KeyField::User => key.field(user.name.as_bytes()),
            KeyField::Verb => key.field(info.verb_name().as_bytes()),
            KeyField::Namespace => key.field(info.namespace().as_bytes()),
            KeyField::Resource => {
                key.field(info.group().as_bytes());
                key.field(info.resource().as_bytes());
                key.field(info.subresource().as_bytes());
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
    format!("{} at once{}", limit.max, by(&limit.key))
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
