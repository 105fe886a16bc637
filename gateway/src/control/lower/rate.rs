//! `kind: RateRules`.

use sluice_config as config;
use sluice_ratelimit::{Quota, QuotaError};

use crate::flow::{
    FlowSpec, InFlightSpec, KeyField, MatchSpec, Mode, QueueSpec, RateSpec, Refuse, RuleSpec,
    SendSpec,
};

/// A rate that no bucket can hold.
#[derive(Debug, thiserror::Error)]
#[error("rule {rule}: {source}")]
pub(in crate::control) struct RateFault {
    rule: String,
    source: QuotaError,
}

/// All rules in the order in which they are tried.
pub(in crate::control) fn lower_rates<'a>(
    all: impl Iterator<Item = &'a config::RateRules>,
) -> Result<FlowSpec, RateFault> {
    let mut rules = Vec::new();
    for object in all {
        let config::RateRules {
            api_version: _,
            kind: _,
            metadata: config::Metadata { name },
            spec:
                config::RateRulesSpec {
                    cluster,
                    rules: written,
                },
        } = object;
        let cluster = (cluster.as_str() != "*").then(|| cluster.value.clone());
        for written in written.iter() {
            let id = format!("{}/{}", **name, *written.name);
            let mut rule = rule(id, cluster.clone(), written)?;
            // A rule's name cannot have the colon, so that no rule counts here by accident.
            let share = written.share.as_ref();
            rule.share = share.map(|share| format!("{}/share:{}", **name, **share));
            rules.push(rule);
        }
    }
    Ok(FlowSpec { rules })
}

fn rule(
    id: String,
    cluster: Option<String>,
    written: &config::RateRule,
) -> Result<RuleSpec, RateFault> {
    let config::RateRule {
        name: _,
        matches,
        mode,
        // Validation leaves an exempt rule without limits: it matches and admits.
        exempt: _,
        refuse,
        share: _,
        rate,
        in_flight,
        long_running,
        send_to,
    } = written;
    let rate = match rate {
        Some(rate) => Some(lower_rate(rate).map_err(|source| RateFault {
            rule: id.clone(),
            source,
        })?),
        None => None,
    };
    Ok(RuleSpec {
        id,
        cluster,
        matches: lower_match(matches),
        mode: match mode {
            config::Mode::Enforce => Mode::Enforce,
            config::Mode::Observe => Mode::Observe,
            config::Mode::Off => Mode::Off,
        },
        refuse: refuse.as_ref().map(|refuse| match refuse.value {
            config::Refuse::Busy => Refuse::Busy,
            config::Refuse::Forbidden => Refuse::Forbidden,
        }),
        share: None,
        rate,
        in_flight: in_flight.as_ref().map(lower_in_flight),
        long_running: long_running.as_ref().map(lower_long_running),
        send_to: send_to.iter().map(lower_send).collect(),
    })
}

fn lower_rate(rate: &config::Rate) -> Result<RateSpec, QuotaError> {
    let config::Rate {
        per_second,
        burst,
        key,
    } = rate;
    let burst = burst.unwrap_or(*per_second);
    Ok(RateSpec {
        quota: Quota::per_second(per_second.get(), burst.get())?,
        key: lower_key(key),
    })
}

fn lower_send(send: &config::SendTo) -> SendSpec {
    let config::SendTo { subset, weight } = send;
    SendSpec {
        subset: subset.value.clone(),
        weight: weight.get(),
    }
}

fn lower_in_flight(limit: &config::InFlight) -> InFlightSpec {
    let config::InFlight { max, key, queue } = limit;
    InFlightSpec {
        max: max.get().get(),
        key: lower_key(key),
        queue: queue.as_ref().map(|queue| lower_queue(queue)),
    }
}

fn lower_long_running(limit: &config::LongRunning) -> InFlightSpec {
    let config::LongRunning { max, key } = limit;
    InFlightSpec {
        max: max.get().get(),
        key: lower_key(key),
        queue: None,
    }
}

fn lower_queue(queue: &config::Queue) -> QueueSpec {
    let config::Queue { max, wait } = queue;
    QueueSpec {
        max: max.get().get(),
        wait: wait.get(),
    }
}

fn lower_key(key: &[config::KeyField]) -> Vec<KeyField> {
    key.iter()
        .map(|field| match field {
            config::KeyField::User => KeyField::User,
            config::KeyField::Verb => KeyField::Verb,
            config::KeyField::Resource => KeyField::Resource,
            config::KeyField::Namespace => KeyField::Namespace,
        })
        .collect()
}

fn lower_match(matches: &config::Match) -> MatchSpec {
    let config::Match {
        users,
        groups,
        verbs,
        resources,
        namespaces,
        names,
        user_agents,
        non_resource_paths,
    } = matches;
    MatchSpec {
        users: entries(users),
        groups: entries(groups),
        verbs: entries(verbs),
        resources: entries(resources),
        namespaces: entries(namespaces),
        names: entries(names),
        user_agents: entries(user_agents),
        non_resource_paths: entries(non_resource_paths),
    }
}

/// The entries as text; none for an absent list, which selects everything, as an empty one does to
/// the flow table. Validation has refused lists that were written empty.
fn entries<T: std::fmt::Display>(list: &Option<config::Located<config::Terms<T>>>) -> Vec<String> {
    let terms = list.iter().flat_map(|list| list.iter());
    terms.map(|term| term.value.to_string()).collect()
}
