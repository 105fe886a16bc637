//! Limits, each by itself and all together; what hides what is in the module beside this one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::diagnostic::Diagnostic;
use crate::load::{RuleSet, Sourced};
use crate::located::Located;
use crate::rate::{KeyField, Match, Mode, RateRule, RateRules};
use crate::selector::{Covers, Terms, VerbName};
use crate::suggest::nearest;

use super::cluster::first_at;
use super::{LOCAL_CLUSTER, Report, check_name};

pub(super) fn check(rates: &RateRules, report: &mut Report<'_>) {
    check_name(&rates.metadata.name, report);
    let rules = &rates.spec.rules;
    if rules.is_empty() {
        report.fault(
            rules.at,
            "no rules",
            "give at least one, or remove the object",
        );
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for rule in rules.iter() {
        check_name(&rule.name, report);
        if !seen.insert(&rule.name) {
            let message = format!("rule `{}` is given twice", *rule.name);
            report.fault(
                rule.name.at,
                message,
                "names keep a limit's state over reloads",
            );
        }
        check_limits(rule, report);
        check_sending(rule, report);
        check_match(&rule.matches, rule, report);
    }
    check_shares(rules, report);
}

fn check_limits(rule: &RateRule, report: &mut Report<'_>) {
    let name = &rule.name;
    let has_limit = rule.rate.is_some() || rule.in_flight.is_some() || rule.long_running.is_some();
    check_refusal(rule, has_limit, report);
    if *rule.exempt && has_limit {
        let help = "keep `exempt` or the limits";
        report.fault(
            rule.exempt.at,
            format!("rule `{}` is exempt and has a limit", **name),
            help,
        );
    }
    if *rule.exempt && rule.mode == Mode::Observe {
        let message = format!("rule `{}` is exempt: there is nothing to observe", **name);
        report.fault(rule.exempt.at, message, "remove `mode`");
    }
    if !*rule.exempt && !has_limit && rule.refuse.is_none() {
        let help = "give `rate`, `inFlight` or `longRunning`, or say `exempt: true` or `refuse`";
        report.fault(name.at, format!("rule `{}` has no limit", **name), help);
    }
    let keys = [
        rule.rate.as_ref().map(|rate| &rate.key),
        rule.in_flight.as_ref().map(|limit| &limit.key),
        rule.long_running.as_ref().map(|limit| &limit.key),
    ];
    for key in keys.into_iter().flatten() {
        check_key(key, report);
    }
    check_queues(rule, report);
}

/// The longest that a request may be kept waiting: clients give up after about as much.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The most requests that may wait for one limit: each is held with its head, so that these are some
/// tens of megabytes.
const QUEUE_MAX: u32 = 10_000;

/// Whether what may wait is short, few and soon done.
fn check_queues(rule: &RateRule, report: &mut Report<'_>) {
    let Some(queue) = rule.in_flight.as_ref().and_then(|it| it.queue.as_ref()) else {
        return;
    };
    if rule.mode == Mode::Observe {
        let message = format!(
            "rule `{}` observes, and observing lets nobody wait",
            *rule.name
        );
        report.fault(queue.at, message, "remove `queue`, or let the rule enforce");
    }
    report.not_zero("wait", &queue.wait);
    if queue.wait.get() > WAIT_MAX {
        let message = format!("wait is longer than {WAIT_MAX:?}");
        report.fault(queue.wait.at, message, "clients would have given up before");
    }
    if queue.max.get().get() > QUEUE_MAX {
        let message = format!("more than {QUEUE_MAX} are not kept waiting");
        report.fault(
            queue.max.at,
            message,
            "refuse sooner: clients come again by themselves",
        );
    }
}

fn check_sending(rule: &RateRule, report: &mut Report<'_>) {
    let name = &rule.name;
    if !rule.send_to.is_empty() && rule.mode == Mode::Observe {
        let message = format!("rule `{}` observes, and observing sends nobody", **name);
        report.fault(
            rule.send_to.at,
            message,
            "remove `sendTo`, or let the rule enforce",
        );
    }
    let mut seen: Vec<&str> = Vec::new();
    for send in rule.send_to.iter() {
        let subset = &send.subset;
        if seen.contains(&subset.as_str()) {
            let message = format!("subset `{}` is given twice", **subset);
            report.fault(subset.at, message, "use a weight instead");
        }
        seen.push(subset.as_str());
    }
}

/// Whether every cluster that a rule holds for has the subsets it sends to.
fn check_subsets(rates: &Sourced<RateRules>, rules: &RuleSet, report: &mut Report<'_>) {
    let cluster = &rates.spec.cluster;
    let sends = rates.spec.rules.iter().flat_map(|rule| rule.send_to.iter());
    for send in sends {
        let subset = &send.subset;
        if cluster.as_str() == LOCAL_CLUSTER {
            let message = "`sendTo`, but the API of the metastore has no endpoints";
            report.fault(subset.at, message, "remove it");
            continue;
        }
        let held = rules.clusters.iter().filter(|it| {
            matches!(cluster.as_str(), "*") || it.metadata.name.as_str() == cluster.as_str()
        });
        for it in held {
            let mut names = it.spec.subsets.iter().map(|it| it.name.as_str());
            if names.any(|name| name == subset.as_str()) {
                continue;
            }
            let owner = &*it.metadata.name;
            let message = format!("cluster `{owner}` has no subset `{}`", **subset);
            let names = it.spec.subsets.iter().map(|it| it.name.as_str());
            let help = nearest(subset, names).map_or_else(
                || "add it to `spec.subsets` of the cluster".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            report.fault(subset.at, message, &help);
        }
    }
}

/// Whether a refusal stands alone, and a shared limit is one.
fn check_refusal(rule: &RateRule, has_limit: bool, report: &mut Report<'_>) {
    let name = &*rule.name;
    if let Some(refuse) = &rule.refuse
        && (has_limit || *rule.exempt)
    {
        let message = format!("rule `{name}` refuses all, and is exempt or has a limit");
        report.fault(refuse.at, message, "keep one of them");
    }
    if let Some(share) = &rule.share {
        check_name(share, report);
        if !has_limit {
            let message = format!("rule `{name}` has no limit to share");
            report.fault(share.at, message, "remove `share`, or give a limit");
        }
    }
}

/// Whether rules that count together have the same limits.
fn check_shares(rules: &[RateRule], report: &mut Report<'_>) {
    let mut first: HashMap<&str, &RateRule> = HashMap::new();
    for rule in rules {
        let Some(share) = &rule.share else { continue };
        let other = *first.entry(share.as_str()).or_insert(rule);
        let is_same = other.rate == rule.rate
            && other.in_flight == rule.in_flight
            && other.long_running == rule.long_running;
        if !is_same {
            let message = format!(
                "rules `{}` and `{}` share `{}` and have different limits",
                *other.name, *rule.name, **share
            );
            report.fault(share.at, message, "write the same limits in both");
        }
    }
}

fn check_key(key: &Located<Vec<KeyField>>, report: &mut Report<'_>) {
    let mut seen: Vec<KeyField> = Vec::new();
    for field in key.iter() {
        if seen.contains(field) {
            report.fault(
                key.at,
                format!("key field `{}` is given twice", field.as_str()),
                "",
            );
        }
        seen.push(*field);
    }
}

/// Whether any request can match.
fn check_match(matches: &Match, rule: &RateRule, report: &mut Report<'_>) {
    let Match {
        users,
        groups,
        verbs,
        resources,
        namespaces,
        names,
        user_agents,
        non_resource_paths,
    } = matches;
    check_list("users", users.as_ref(), report);
    check_list("groups", groups.as_ref(), report);
    check_list("verbs", verbs.as_ref(), report);
    check_list("resources", resources.as_ref(), report);
    check_list("namespaces", namespaces.as_ref(), report);
    check_list("names", names.as_ref(), report);
    check_list("userAgents", user_agents.as_ref(), report);
    check_list("nonResourcePaths", non_resource_paths.as_ref(), report);

    for (field, list) in [
        ("users", users),
        ("groups", groups),
        ("nonResourcePaths", non_resource_paths),
    ] {
        for term in list.iter().flat_map(|list| list.iter()) {
            if term.pattern.as_str().is_empty() {
                report.fault(
                    term.at,
                    format!("an empty entry of `{field}` matches nothing"),
                    "",
                );
            }
        }
    }
    // Without `resources`, paths alone are meant, and those have neither namespace nor name.
    let is_paths_only = non_resource_paths.is_some() && resources.is_none();
    for (field, list) in [("namespaces", namespaces), ("names", names)] {
        if let (Some(list), true) = (list, is_paths_only)
            && !list.iter().any(|term| term.excludes)
            && !list
                .iter()
                .any(|term| term.pattern.as_str().trim_matches('*').is_empty())
        {
            let message = format!(
                "rule `{}` can never match: `{field}` is of resources, `nonResourcePaths` is not",
                *rule.name
            );
            report.fault(list.at, message, "make two rules of it");
        }
    }
    if let Some(verbs) = verbs {
        let is_resources_only = resources.is_some() && non_resource_paths.is_none();
        check_verbs(verbs, rule, (is_resources_only, is_paths_only), report);
    }
}

/// Whether a rule that is about one kind of request has a verb of that kind.
fn check_verbs(
    verbs: &Located<Terms<VerbName>>,
    rule: &RateRule,
    (is_resources_only, is_paths_only): (bool, bool),
    report: &mut Report<'_>,
) {
    let mut included = verbs.iter().filter(|term| !term.excludes).peekable();
    if included.peek().is_none() {
        return;
    }
    let kind = if is_resources_only && !included.any(|term| term.pattern.is_for_resources()) {
        "resources"
    } else if is_paths_only && !included.any(|term| term.pattern.is_for_paths()) {
        "non-resource paths"
    } else {
        return;
    };
    let message = format!(
        "rule `{}` can never match: no such verb on {kind}",
        *rule.name
    );
    report.fault(verbs.at, message, "the verbs are those of RBAC");
}

/// Whether a list selects anything.
fn check_list<T: Covers + std::fmt::Display>(
    field: &str,
    list: Option<&Located<Terms<T>>>,
    report: &mut Report<'_>,
) {
    let Some(list) = list else { return };
    if list.is_empty() {
        let help = "remove the field to match any, or write what it should match";
        report.fault(
            list.at,
            format!("`{field}` is empty and matches nothing"),
            help,
        );
        return;
    }
    let (excluded, included): (Vec<_>, Vec<_>) = list.iter().partition(|term| term.excludes);
    let is_out = |pattern: &T| excluded.iter().any(|out| out.pattern.covers(pattern));
    let is_nothing = if included.is_empty() {
        excluded.iter().any(|out| out.pattern.to_string() == "*")
    } else {
        included.iter().all(|term| is_out(&term.pattern))
    };
    if is_nothing {
        let help = "an excluding entry wins over an including one";
        report.fault(
            list.at,
            format!("`{field}` excludes all that it includes"),
            help,
        );
    }
}

/// Names and references over all objects.
pub(super) fn check_all(rules: &RuleSet, is_whole: bool, faults: &mut Vec<Diagnostic>) {
    let mut names = HashMap::new();
    let clusters: Vec<&str> = rules
        .clusters
        .iter()
        .map(|cluster| cluster.metadata.name.as_str())
        .collect();
    for rates in &rules.rates {
        let mut report = Report::new(&rates.source, faults);
        let name = &rates.metadata.name;
        if let Some(first) = names.insert(name.as_str(), rates) {
            let message = format!("RateRules `{}` is defined twice", **name);
            report.fault(name.at, message, &first_at(first, &first.metadata.name));
        }
        let cluster = &rates.spec.cluster;
        let is_known =
            matches!(cluster.as_str(), "*" | LOCAL_CLUSTER) || clusters.contains(&cluster.as_str());
        if is_whole && !is_known {
            let help = nearest(cluster, clusters.iter().copied()).map_or_else(
                || "write a cluster's name, `local`, or \"*\" for all".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            report.fault(
                cluster.at,
                format!("unknown cluster `{}`", **cluster),
                &help,
            );
        }
        if is_whole {
            check_subsets(rates, rules, &mut report);
        }
    }
}
