//! Which rule decides a request, against the words of the reference: in each list an empty one
//! admits everything, an entry with `-` or `!` excludes, the rest name; the first rule counts.

use std::time::Instant;

use http::{HeaderMap, Method, Uri};
use sluice_gateway::flow::{FlowSpec, FlowTable, LiveState, MatchSpec, Mode, RuleSpec};
use sluice_gateway::identity::UserInfo;
use sluice_gateway::request::RequestInfo;

use crate::feed::Feed;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

pub(crate) fn target() -> Target {
    Target {
        name: "rules",
        shape: Shape::program(400),
        seeds: vec![Vec::new()],
        check: Box::new(check),
    }
}

const USERS: [&str; 4] = ["", "ab", "abba", "b"];
const GROUPS: [&str; 3] = ["ga", "gb", "ab"];
const AGENTS: [&str; 3] = ["", "kubectl/1", "ab"];
const REQUESTS: [&str; 10] = [
    "GET /api/v1/namespaces/ab/pods",
    "GET /api/v1/namespaces/b/pods/ab",
    "GET /api/v1/namespaces/b/pods/ab/log",
    "POST /api/v1/namespaces/ab/pods",
    "DELETE /api/v1/namespaces/abba",
    "GET /api/v1/pods?watch=1",
    "PUT /apis/apps/v1/namespaces/ab/deployments/b/scale",
    "GET /apis/apps/v1/deployments?fieldSelector=metadata.name%3Dab",
    "GET /healthz",
    "POST /healthz/ab",
];

/// Entries of lists of texts; a `*` is any text.
const TEXTS: [&str; 8] = ["a*", "*b", "ab", "b", "*", "a*b*", "kubectl*", "g*"];
const VERBS: [&str; 6] = ["get", "list", "watch", "create", "*", "update"];
const RESOURCES: [&str; 8] = [
    "pods",
    "pods/log",
    "deployments.apps",
    "pods.",
    "*",
    "*/scale",
    "deployments/scale",
    "*.apps",
];
const PATHS: [&str; 3] = ["/healthz", "/healthz*", "*"];

fn list(feed: &mut Feed<'_>, words: &[&str]) -> Vec<String> {
    if feed.below(3) > 0 {
        return Vec::new();
    }
    let entry =
        |feed: &mut Feed<'_>| format!("{}{}", feed.pick(&["", "", "-", "!"]), feed.pick(words));
    (0..=feed.below(3)).map(|_| entry(feed)).collect()
}

fn check(input: &[u8]) -> Result<Verdict, String> {
    let mut feed = Feed::new(input);
    let mut spec = FlowSpec::default();
    for id in 0..=feed.below(4) {
        let matches = MatchSpec {
            users: list(&mut feed, &TEXTS),
            groups: list(&mut feed, &TEXTS),
            verbs: list(&mut feed, &VERBS),
            resources: list(&mut feed, &RESOURCES),
            namespaces: list(&mut feed, &TEXTS),
            names: list(&mut feed, &TEXTS),
            user_agents: list(&mut feed, &TEXTS),
            non_resource_paths: list(&mut feed, &PATHS),
        };
        spec.rules.push(RuleSpec {
            matches,
            mode: feed.pick(&[Mode::Enforce, Mode::Enforce, Mode::Observe, Mode::Off]),
            ..RuleSpec::new(format!("r/{id}"))
        });
    }
    let now = Instant::now();
    let live = LiveState::new(now, 7);
    let Ok(table) = FlowTable::compile(&spec, "c", &live) else {
        return Ok(Verdict::Refused);
    };
    loop {
        let user = UserInfo {
            name: feed.pick(&USERS).to_owned(),
            groups: (0..feed.below(3))
                .map(|_| feed.pick(&GROUPS).to_owned())
                .collect(),
            ..UserInfo::default()
        };
        let agent = feed.pick(&AGENTS);
        let request = feed.pick(&REQUESTS);
        let info = parse(request);
        let admission = table.admit(&info, &user, Some(agent), now);
        let admission = admission.map_err(|refusal| format!("refused: {}", refusal.message))?;
        let expected = spec.rules.iter().find(|rule| {
            rule.mode == Mode::Enforce && is_about(&rule.matches, &info, &user, agent)
        });
        let expected = expected.map(|rule| rule.id.as_str());
        let found = admission.rule().map(|rule| &**rule);
        if found != expected {
            return Err(format!(
                "{request} by {user:?} with {agent:?}: {found:?} decides and not {expected:?} of {:#?}",
                spec.rules
            ));
        }
        if feed.is_empty() {
            return Ok(Verdict::Accepted);
        }
    }
}

fn parse(request: &str) -> RequestInfo {
    let (method, uri) = request.split_once(' ').unwrap();
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let uri: Uri = uri.parse().unwrap();
    RequestInfo::parse(&method, &uri, &HeaderMap::new()).unwrap()
}

fn is_about(matches: &MatchSpec, info: &RequestInfo, user: &UserInfo, agent: &str) -> bool {
    let text = |entries: &[String], value: &str| admits(entries, |entry| fits(entry, value));
    let groups = || {
        let names = |entry: &str| user.groups.iter().any(|group| fits(entry, group));
        admits(&matches.groups, names)
    };
    let target = match (
        matches.resources.is_empty(),
        matches.non_resource_paths.is_empty(),
    ) {
        (true, true) => true,
        (no_resources, no_paths) => match info.is_resource() {
            true => !no_resources && admits(&matches.resources, |e| is_resource(e, info)),
            false => !no_paths && text(&matches.non_resource_paths, info.path()),
        },
    };
    target
        && groups()
        && text(&matches.users, &user.name)
        && text(&matches.verbs, info.verb_name())
        && text(&matches.namespaces, info.namespace())
        && text(&matches.names, info.name())
        && text(&matches.user_agents, agent)
}

fn admits(entries: &[String], names: impl Fn(&str) -> bool) -> bool {
    let excluding = |entry: &&String| entry.starts_with(['-', '!']);
    let (excluded, wanted): (Vec<&String>, Vec<&String>) = entries.iter().partition(excluding);
    let is_named = wanted.is_empty() || wanted.iter().any(|entry| names(entry));
    is_named && !excluded.iter().any(|entry| names(&entry[1..]))
}

/// Whether a text is the pattern with some text for each `*`.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => match text.strip_prefix(head) {
            None => false,
            Some(rest) => (0..=rest.len()).any(|at| fits(tail, &rest[at..])),
        },
    }
}

fn is_resource(entry: &str, info: &RequestInfo) -> bool {
    if entry == "*" {
        return true;
    }
    let (resource, subresource) = entry.split_once('/').unwrap_or((entry, ""));
    let (resource, is_group) = match resource.split_once('.') {
        Some((resource, group)) => (resource, group == info.group()),
        None => (resource, true),
    };
    // All resources of a group are meant with their subresources.
    let is_subresource =
        subresource == info.subresource() || (resource == "*" && subresource.is_empty());
    is_group && is_subresource && (resource == "*" || resource == info.resource())
}
