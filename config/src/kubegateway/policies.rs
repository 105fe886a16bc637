//! Its dispatch policies as rules: in their order, the first that matches decides.
//!
//! One rule there may be up to four here: what is about resources and about other paths at once,
//! and what names users or service accounts. Rules of policies under one schema count together.

use crate::address::is_dns_name;
use crate::balance::Subset;
use crate::cluster::Metadata;
use crate::decode::API_VERSION;
use crate::located::{Located, Position};
use crate::rate::{LongRunning, Match, Mode, RateRule, RateRules, RateRulesSpec, Refuse, SendTo};
use crate::selector::{Glob, Term};
use crate::suggest::nearest;
use crate::units::Count;
use crate::validate::covers;

use super::Said;
use super::limits::{Limit, Schemas};
use super::shape::{Cluster, Endpoint, Policy, Rule, Text};
use super::terms::{self, Made, Verbs};

/// The annotation of its switches.
const GATES: &str = "proxy.kubegateway.io/feature-gates";
const GATE_NAMES: [&str; 4] = [
    "CloseConnectionWhenIdle",
    "DenyAllRequests",
    "GlobalRateLimiter",
    "Tracing",
];

/// Bytes of a name that are spelt out in one label.
const LABEL_BYTES: usize = 30;

/// The rules, and the parts of the endpoints that they send to.
pub(super) fn translate(
    cluster: &Cluster,
    schemas: &Schemas,
    said: &mut Said<'_>,
) -> (RateRules, Vec<Subset>) {
    let name = &cluster.metadata.name;
    let is_denied = gates(cluster, said);
    log_mode(
        "logging.mode",
        cluster
            .spec
            .logging
            .as_ref()
            .and_then(|it| it.mode.as_ref()),
        said,
    );
    let mut rules = Vec::new();
    let policies = cluster.spec.dispatch_policies.as_ref();
    let at = policies.map_or(name.at, |policies| policies.at);
    let policies = policies.iter().flat_map(|policies| policies.iter());
    let mut subsets = Vec::new();
    let mut made = Maker {
        rules: &mut rules,
        subsets: &mut subsets,
        servers: cluster,
        schemas,
    };
    for (number, policy) in policies.enumerate() {
        made.policy(number + 1, policy, said);
    }
    if rules.is_empty() && said.faults.is_empty() {
        said.fault(at, "spec.dispatchPolicies has no rule", "give at least one");
    }
    if let Some(at) = is_denied {
        rules = vec![refusing("deny-all", Refuse::Busy, at)];
    } else if !leaves_nothing(&rules) {
        said.differs(
            at,
            "what no policy matches is refused with 403",
            "there with 500, which clients try again",
        );
        rules.push(refusing("no-policy", Refuse::Forbidden, at));
    }
    let rates = RateRules {
        api_version: API_VERSION.to_owned(),
        kind: "RateRules".to_owned(),
        metadata: Metadata { name: name.clone() },
        spec: RateRulesSpec {
            cluster: name.clone(),
            rules: Located { value: rules, at },
        },
    };
    (rates, subsets)
}

/// Its switches; where the one that denies all is on.
fn gates(cluster: &Cluster, said: &mut Said<'_>) -> Option<Position> {
    let annotations = cluster.metadata.annotations.as_ref();
    let mut denied = None;
    for (key, text) in annotations.into_iter().flatten() {
        if key != GATES {
            if key.starts_with("proxy.kubegateway.io/") {
                let message = format!("annotation `{key}` is not known");
                said.fault(text.at, message, &format!("known: {GATES}"));
            }
            continue;
        }
        for gate in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            if let Some((name, true)) = switch(gate, text.at, said) {
                tell_gate(name, text.at, said);
                if name == "DenyAllRequests" {
                    denied = Some(text.at);
                }
            }
        }
    }
    denied
}

fn switch(gate: &str, at: Position, said: &mut Said<'_>) -> Option<(&'static str, bool)> {
    let (name, value) = gate.split_once('=').unwrap_or((gate, ""));
    let Some(known) = GATE_NAMES.into_iter().find(|known| *known == name) else {
        let help = nearest(name, GATE_NAMES).map_or_else(
            || format!("known: {}", GATE_NAMES.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        said.fault(at, format!("unknown feature gate `{name}`"), &help);
        return None;
    };
    match value {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Some((known, true)),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Some((known, false)),
        _ => {
            let message = format!("feature gate `{gate}` has no readable value");
            said.fault(at, message, "write NAME=true or NAME=false");
            None
        }
    }
}

fn tell_gate(name: &str, at: Position, said: &mut Said<'_>) {
    let (message, why) = match name {
        "DenyAllRequests" => (
            "DenyAllRequests refuses callers who are known, with 429 and a wait",
            "there before it is known who asks; who shows a bad credential sees 401 here",
        ),
        "CloseConnectionWhenIdle" => (
            "CloseConnectionWhenIdle is not followed",
            "requests of one connection are spread over all servers here",
        ),
        "GlobalRateLimiter" => (
            "GlobalRateLimiter is not followed",
            "limits count in each gateway by itself",
        ),
        _ => (
            "Tracing is not followed",
            "audit and metrics tell how long each request took, of all clusters",
        ),
    };
    said.differs(at, message, why);
}

fn log_mode(field: &str, mode: Option<&Located<String>>, said: &mut Said<'_>) {
    match mode.map(|mode| (mode.as_str(), mode.at)) {
        None | Some(("", _)) => {}
        Some(("on" | "off", at)) => said.differs(
            at,
            format!("{field} is not followed"),
            "the audit log of the process file has every request or none",
        ),
        Some((other, at)) => {
            said.fault(
                at,
                format!("unknown {field} `{other}`"),
                "write `on` or `off`",
            );
        }
    }
}

fn refusing(name: &str, refuse: Refuse, at: Position) -> RateRule {
    RateRule {
        refuse: Some(Located { value: refuse, at }),
        ..rule(name.to_owned(), Match::default(), at)
    }
}

/// A rule that limits nothing yet.
fn rule(name: String, matches: Match, at: Position) -> RateRule {
    RateRule {
        name: Located { value: name, at },
        matches,
        mode: Mode::Enforce,
        exempt: Located::unwritten(false),
        refuse: None,
        share: None,
        rate: None,
        in_flight: None,
        long_running: None,
        send_to: Located::default(),
    }
}

/// Whether some rule takes all resources and some rule all other paths.
fn leaves_nothing(rules: &[RateRule]) -> bool {
    let all = |is_paths: bool| {
        let text = |matches: &Match| match (&matches.resources, &matches.non_resource_paths) {
            (Some(list), None) if !is_paths => list.iter().map(|it| it.to_string()).collect(),
            (None, Some(list)) if is_paths => list.iter().map(|it| it.to_string()).collect(),
            _ => String::new(),
        };
        rules.iter().any(|rule| {
            let matches = &rule.matches;
            let has_more = matches.users.is_some()
                || matches.groups.is_some()
                || matches.verbs.is_some()
                || matches.names.is_some();
            !has_more && text(matches) == "*"
        })
    };
    all(false) && all(true)
}

/// Where requests go.
enum To {
    Anywhere,
    Subset(Located<String>),
    /// There is no server for them.
    Nobody,
}

struct Maker<'a> {
    rules: &'a mut Vec<RateRule>,
    subsets: &'a mut Vec<Subset>,
    servers: &'a Cluster,
    schemas: &'a Schemas,
}

impl Maker<'_> {
    fn policy(&mut self, number: usize, policy: &Located<Policy>, said: &mut Said<'_>) {
        strategy(&policy.strategy, said);
        log_mode("logMode", policy.log_mode.as_ref(), said);
        let to = self.subset(number, policy, said);
        let schema = policy.flow_control_schema_name.as_ref();
        let schema = schema.filter(|name| !name.is_empty());
        let limit = match (schema, &to) {
            (_, To::Nobody) => Some(Limit::Refuse(Refuse::Busy)),
            (None, _) => Some(Limit::Exempt),
            (Some(name), _) => self.schemas.find(name, said),
        };
        let written = policy.rules.as_ref().map(|rules| &rules.value);
        let written = written.map(Vec::as_slice).unwrap_or_default();
        if written.is_empty() {
            said.fault(
                policy.at,
                "a policy without rules matches nothing",
                "give it rules",
            );
        }
        for (index, rule) in written.iter().enumerate() {
            let name = format!("policy-{number}-rule-{}", index + 1);
            for (name, matches) in matches(&name, rule, said) {
                let share = schema.map(|schema| share_name(schema));
                if let Some(limit) = &limit {
                    self.push((name, matches), (limit, share, &to), rule.at, said);
                }
            }
        }
    }

    /// Where a policy sends its requests.
    fn subset(&mut self, number: usize, policy: &Policy, said: &mut Said<'_>) -> To {
        let Some(subset) = policy.upstream_subset.as_ref().filter(|it| !it.is_empty()) else {
            return To::Anywhere;
        };
        let servers = self.servers.spec.servers.as_ref();
        let servers = || servers.iter().flat_map(|servers| servers.iter());
        let known = said.faults.len();
        for url in subset.iter() {
            if !servers().any(|server| server.endpoint.value == url.value) {
                let known = servers().map(|server| server.endpoint.as_str());
                let help = nearest(url, known).map_or_else(
                    || "name endpoints of spec.servers".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                );
                let message = format!("upstreamSubset names `{}`, which is no server", **url);
                said.fault(url.at, message, &help);
            }
        }
        if said.faults.len() > known {
            return To::Anywhere;
        }
        let is_in = |server: &&Endpoint| {
            let endpoint = &server.endpoint.value;
            server.disabled != Some(true) && subset.iter().any(|url| url.value == *endpoint)
        };
        let endpoints: Vec<_> = servers()
            .filter(is_in)
            .filter_map(|server| {
                let value = server.endpoint.parse().ok()?;
                let at = server.endpoint.at;
                Some(Located { value, at })
            })
            .collect();
        if endpoints.is_empty() {
            let why = "there with 503; its servers are all disabled";
            said.differs(
                subset.at,
                format!("policy {number} is refused with 429"),
                why,
            );
            return To::Nobody;
        }
        let name = Located {
            value: format!("policy-{number}"),
            at: subset.at,
        };
        self.subsets.push(Subset {
            name: name.clone(),
            endpoints,
            labels: Vec::new(),
            strict: true,
        });
        To::Subset(name)
    }

    fn push(
        &mut self,
        (name, matches): (String, Match),
        (limit, share, to): (&Limit, Option<String>, &To),
        at: Position,
        said: &mut Said<'_>,
    ) {
        if self.rules.iter().any(|it| covers(&it.matches, &matches)) {
            let message = format!("{name} is left out: rules before it take all it matches");
            said.differs(at, message, "there it is never reached either");
            return;
        }
        let mut made = rule(name, matches, at);
        let share = share.map(|value| Located { value, at });
        match limit {
            Limit::Exempt => made.exempt = Located { value: true, at },
            Limit::Refuse(refuse) => made.refuse = Some(Located { value: *refuse, at }),
            Limit::AtOnce(limit) => {
                made.in_flight = Some(limit.clone());
                made.long_running = Some(LongRunning {
                    max: limit.max,
                    key: limit.key.clone(),
                });
                made.share = share;
            }
            Limit::Rate(rate) => {
                made.rate = Some(rate.clone());
                made.share = share;
            }
        }
        if let (To::Subset(subset), None) = (to, &made.refuse) {
            let send = SendTo {
                subset: subset.clone(),
                weight: const { Count::of(1) },
            };
            made.send_to = Located {
                value: vec![send],
                at: subset.at,
            };
        }
        self.rules.push(made);
    }
}

fn strategy(strategy: &Text, said: &mut Said<'_>) {
    match strategy.as_ref().map(|it| (it.as_str(), it.at)) {
        None | Some(("", _)) => {}
        Some(("RoundRobin", at)) => said.differs(
            at,
            "servers are picked by load, of two drawn ones the less busy",
            "there in turn, whatever each has to do",
        ),
        Some((other, at)) => {
            let message = format!("unknown strategy `{other}`");
            said.fault(at, message, "write `RoundRobin` or leave it out");
        }
    }
}

/// A schema's name, or its bytes spelt out where no rule may be called that.
fn share_name(schema: &str) -> String {
    let is_lower = !schema.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_lower && is_dns_name(schema) {
        return schema.to_owned();
    }
    let spelt: Vec<String> = schema
        .as_bytes()
        .chunks(LABEL_BYTES)
        .map(|chunk| chunk.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    format!("schema.{}", spelt.join("."))
}

/// The matches of one rule, each with a name; none when it is faulty.
fn matches(name: &str, rule: &Located<Rule>, said: &mut Said<'_>) -> Vec<(String, Match)> {
    let has_resources = [&rule.api_groups, &rule.resources]
        .into_iter()
        .flatten()
        .any(|list| !list.is_empty());
    let paths = terms::globs("nonResourceURLs", &rule.non_resource_urls, said);
    if !has_resources && paths.is_none() {
        let help = "give `apiGroups` and `resources`, or `nonResourceURLs`";
        said.fault(rule.at, "a rule about nothing", help);
    }
    let [on_resources, on_paths] = terms::verbs(&rule.verbs, rule.at, said);
    let mut targets = Vec::new();
    if has_resources {
        let resources = terms::resources(&rule.api_groups, &rule.resources, rule.at, said);
        let names = terms::globs("resourceNames", &rule.resource_names, said);
        let target = Match {
            resources,
            names,
            ..Match::default()
        };
        targets.push((on_resources, target, name.to_owned()));
    }
    if paths.is_some() {
        let target = Match {
            non_resource_paths: paths,
            ..Match::default()
        };
        let suffix = if has_resources { "-paths" } else { "" };
        targets.push((on_paths, target, format!("{name}{suffix}")));
    }
    let groups = terms::globs("userGroups", &rule.user_groups, said);
    let users = users(rule, said);
    let mut made = Vec::new();
    for (verbs, target, name) in targets {
        let verbs = match verbs {
            Verbs::Any => None,
            Verbs::Some(verbs) => Some(verbs),
            Verbs::None => {
                let message = format!("{name} is left out: there are no such verbs on that");
                said.differs(rule.at, message, "there it matches nothing either");
                continue;
            }
        };
        for (suffix, users) in users.clone() {
            let matches = Match {
                users,
                groups: groups.clone(),
                verbs: verbs.clone(),
                ..target.clone()
            };
            made.push((format!("{name}{suffix}"), matches));
        }
    }
    made
}

/// Whom a rule is about, users or service accounts; each way with what is added to its name.
fn users(rule: &Located<Rule>, said: &mut Said<'_>) -> Vec<(&'static str, Made<Glob>)> {
    let has_users = rule.users.as_ref().is_some_and(|list| !list.is_empty());
    let users = terms::globs("users", &rule.users, said);
    let accounts = accounts(rule, said);
    match (has_users, users, accounts) {
        (_, users, None) => vec![("", users)],
        (false, _, accounts) => vec![("", accounts)],
        // Anybody, accounts among them.
        (true, None, Some(_)) => vec![("", None)],
        (true, Some(mut users), Some(accounts)) => {
            if users.iter().any(|term| term.excludes) {
                return vec![("", Some(users)), ("-accounts", Some(accounts))];
            }
            users.value.extend(accounts.value);
            vec![("", Some(users))]
        }
    }
}

fn accounts(rule: &Located<Rule>, said: &mut Said<'_>) -> Made<Glob> {
    let list = rule.service_accounts.as_ref();
    let list = list.filter(|list| !list.is_empty())?;
    let mut terms = Vec::new();
    for account in list.iter() {
        let (namespace, name) = (&account.namespace, &account.name);
        if ![namespace, name].into_iter().all(|text| is_dns_name(text)) {
            let message = format!("service account `{namespace}/{name}` is none");
            said.fault(
                account.at,
                message,
                "write `namespace` and `name`, both whole",
            );
            continue;
        }
        let user = format!("system:serviceaccount:{namespace}:{name}");
        if let Ok(pattern) = user.parse() {
            terms.push(Located {
                value: Term {
                    excludes: false,
                    pattern,
                },
                at: account.at,
            });
        }
    }
    Some(Located {
        value: terms,
        at: list.at,
    })
}
