//! Rules as operators write them, against requests as clients make them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, StatusCode};
use proptest::prelude::*;
use sluice_ratelimit::{Percent, Quota, Ramp};

use super::terms::{Glob, Terms};
use super::*;
use crate::identity::UserInfo;
use crate::request::RequestInfo;
use crate::status::Refusal;

fn list(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|entry| (*entry).to_owned()).collect()
}

fn rule(id: &str, matches: MatchSpec) -> RuleSpec {
    RuleSpec {
        matches,
        ..RuleSpec::new(id)
    }
}

fn rate(per_second: u32, burst: u32, key: &[KeyField]) -> Option<RateSpec> {
    let number = |n| NonZeroU32::new(n).unwrap();
    Some(RateSpec {
        quota: Quota::per_second(number(per_second), number(burst)).unwrap(),
        key: key.to_vec(),
    })
}

fn at_once(max: u32, key: &[KeyField]) -> Option<InFlightSpec> {
    let key = key.to_vec();
    Some(InFlightSpec {
        max,
        key,
        queue: None,
    })
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: list(groups),
        ..UserInfo::default()
    }
}

fn request(method: &str, uri: &str) -> RequestInfo {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    RequestInfo::parse(&method, &uri.parse().unwrap(), &HeaderMap::new()).unwrap()
}

/// A process with one cluster, `c1`, and a clock moved by hand.
struct Gateway {
    live: Arc<LiveState>,
    table: FlowTable,
    now: Instant,
}

impl Gateway {
    fn new(rules: Vec<RuleSpec>) -> Self {
        let now = Instant::now();
        let live = LiveState::new(now, 7);
        let table = FlowTable::compile(&FlowSpec { rules }, "c1", &live).unwrap();
        Gateway { live, table, now }
    }

    fn reload(&mut self, rules: Vec<RuleSpec>) {
        self.table = FlowTable::compile(&FlowSpec { rules }, "c1", &self.live).unwrap();
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn ask(&self, name: &str, method: &str, uri: &str) -> Result<Admission, Refusal> {
        let info = request(method, uri);
        self.table.admit(&info, &user(name, &[]), None, self.now)
    }

    /// Which rule decides a request.
    fn rule_of(&self, who: &UserInfo, method: &str, uri: &str, agent: Option<&str>) -> String {
        let info = request(method, uri);
        let admission = self.table.admit(&info, who, agent, self.now).unwrap();
        admission.rule().map_or("none", |rule| rule).to_owned()
    }

    fn counts(&self, id: &str) -> RuleCounts {
        let all = self.live.counts();
        all.into_iter().find(|it| &*it.rule == id).unwrap()
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[test]
fn inverted_entries_exclude() {
    // kubegateway.md A1.
    let matches = MatchSpec {
        resources: list(&["-pods", "!deployments"]),
        ..MatchSpec::default()
    };
    let nodes = MatchSpec {
        groups: list(&["-system:nodes"]),
        ..MatchSpec::default()
    };
    let gateway = Gateway::new(vec![rule("x", matches), rule("y", nodes)]);
    let alice = user("alice", &["dev", "system:authenticated"]);
    let node = user("system:node:a", &["system:nodes", "system:authenticated"]);
    let of = |who, uri| gateway.rule_of(who, "GET", uri, None);
    assert_eq!(of(&alice, PODS), "y");
    assert_eq!(of(&alice, "/apis/apps/v1/deployments"), "y");
    assert_eq!(of(&alice, "/api/v1/services"), "x");
    assert_eq!(of(&node, PODS), "none");
}

#[test]
fn the_first_match_decides() {
    // kubegateway.md A2.
    let secrets = |namespaces: &[&str]| MatchSpec {
        verbs: list(&["list"]),
        resources: list(&["secrets"]),
        namespaces: list(namespaces),
        ..MatchSpec::default()
    };
    let gateway = Gateway::new(vec![
        rule("system", secrets(&["kube-system"])),
        rule("everywhere", secrets(&[""])),
        rule("named", secrets(&[])),
        rule("all", MatchSpec::default()),
    ]);
    let alice = user("alice", &[]);
    let of = |method, uri| gateway.rule_of(&alice, method, uri, None);
    assert_eq!(
        of("GET", "/api/v1/namespaces/kube-system/secrets"),
        "system"
    );
    assert_eq!(of("GET", "/api/v1/secrets"), "everywhere");
    assert_eq!(of("GET", "/api/v1/namespaces/default/secrets"), "named");
    assert_eq!(of("GET", "/api/v1/namespaces/default/secrets/a"), "all");
    assert_eq!(of("GET", "/version"), "all");
}

#[test]
fn every_list_of_a_match_is_looked_at() {
    let base = || MatchSpec {
        users: list(&["system:serviceaccount:ci:*", "-*:admin"]),
        groups: list(&["builders", "-interns"]),
        verbs: list(&["create", "brew"]),
        resources: list(&[
            "pods",
            "deployments.apps/scale",
            "*/status",
            "-pods.metrics.k8s.io",
        ]),
        namespaces: list(&["team-*"]),
        names: list(&["", "web-*"]),
        user_agents: list(&["argo/*", "-*evil*"]),
        non_resource_paths: list(&["/teapot/*"]),
    };
    let gateway = Gateway::new(vec![rule("it", base())]);
    let (name, groups) = ("system:serviceaccount:ci:bot", ["builders"]);
    let check = |who: (&str, &[&str]), method: &str, uri: &str, agent: Option<&str>| {
        gateway.rule_of(&user(who.0, who.1), method, uri, agent) == "it"
    };
    let bot: (&str, &[&str]) = (name, &groups);
    let pods = "/api/v1/namespaces/team-a/pods";
    let argo = Some("argo/3 (linux)");
    assert!(check(bot, "POST", pods, argo));
    let scale = "/apis/apps/v1/namespaces/team-a/deployments/web-1/scale";
    assert!(check(bot, "POST", scale, argo));
    let status = "/apis/x.io/v1/namespaces/team-a/things/web-2/status";
    assert!(check(bot, "POST", status, argo));

    assert!(!check(("bob", &groups), "POST", pods, argo), "user");
    let admin = "system:serviceaccount:ci:admin";
    assert!(
        !check((admin, &groups), "POST", pods, argo),
        "excluded user"
    );
    assert!(!check((name, &[]), "POST", pods, argo), "group");
    assert!(
        !check((name, &["builders", "interns"]), "POST", pods, argo),
        "excluded group"
    );
    assert!(!check(bot, "GET", pods, argo), "verb");
    assert!(
        !check(bot, "POST", "/api/v1/namespaces/team-a/configmaps", argo),
        "resource"
    );
    let exec = "/api/v1/namespaces/team-a/pods/web-1/exec";
    assert!(!check(bot, "POST", exec, argo), "subresource");
    let metrics = "/apis/metrics.k8s.io/v1/namespaces/team-a/pods";
    assert!(!check(bot, "POST", metrics, argo), "excluded resource");
    assert!(!check(bot, "POST", PODS, argo), "namespace");
    let named = "/apis/x.io/v1/namespaces/team-a/things/db/status";
    assert!(!check(bot, "POST", named, argo), "name");
    assert!(!check(bot, "POST", pods, Some("kubectl/1")), "user agent");
    assert!(
        !check(bot, "POST", pods, Some("argo/evil")),
        "excluded user agent"
    );
    assert!(!check(bot, "POST", pods, None), "no user agent");
    assert!(
        !check(bot, "BREW", "/teapot/1", argo),
        "paths have no namespace"
    );

    let paths = MatchSpec {
        namespaces: Vec::new(),
        ..base()
    };
    let gateway = Gateway::new(vec![rule("it", paths)]);
    let of = |uri| gateway.rule_of(&user(name, &groups), "BREW", uri, argo);
    assert_eq!(
        (of("/teapot/1"), of("/kettle")),
        ("it".into(), "none".into())
    );
}

#[test]
fn one_kind_of_target_leaves_the_other_out() {
    let resources = MatchSpec {
        resources: list(&["*"]),
        ..MatchSpec::default()
    };
    let paths = MatchSpec {
        non_resource_paths: list(&["*"]),
        ..MatchSpec::default()
    };
    let gateway = Gateway::new(vec![rule("resources", resources), rule("paths", paths)]);
    let of = |uri| gateway.rule_of(&user("alice", &[]), "GET", uri, None);
    assert_eq!(of("/api/v1/namespaces/a/pods/b/log"), "resources");
    assert_eq!(of("/api/v1"), "paths");
}

#[test]
fn a_noisy_user_does_not_spend_anothers_quota() {
    // kubegateway.md A15: alice offers 1,000 a second, bob 50, the rule admits 100 to each.
    let mut by_user = rule("default/by-user", MatchSpec::default());
    by_user.rate = rate(100, 100, &[KeyField::User]);
    let mut gateway = Gateway::new(vec![by_user]);
    let (mut alice, mut bob) = (0, 0);
    for tick in 0..10_000 {
        alice += u32::from(gateway.ask("alice", "GET", PODS).is_ok());
        if tick % 20 == 0 {
            bob += u32::from(gateway.ask("bob", "GET", PODS).is_ok());
        }
        gateway.now += Duration::from_millis(1);
    }
    assert_eq!(bob, 500);
    assert!((1050..=1150).contains(&alice), "{alice}");
    let counts = gateway.counts("default/by-user");
    assert_eq!(counts.admitted, u64::from(alice + bob));
    assert_eq!(counts.refused_rate, u64::from(10_000 - alice));
}

#[test]
fn a_bucket_for_each_combination_of_the_chosen_fields() {
    let mut keyed = rule("keyed", MatchSpec::default());
    keyed.rate = rate(
        1,
        1,
        &[KeyField::Verb, KeyField::Resource, KeyField::Namespace],
    );
    let gateway = Gateway::new(vec![keyed]);
    let pass = |name, method, uri| gateway.ask(name, method, uri).is_ok();
    assert!(pass("alice", "GET", PODS));
    assert!(!pass("bob", "GET", PODS), "users are not told apart");
    assert!(pass("bob", "DELETE", PODS));
    assert!(pass("bob", "GET", "/api/v1/namespaces/other/pods"));
    assert!(pass("bob", "GET", "/api/v1/namespaces/default/secrets"));
    assert!(pass(
        "bob",
        "GET",
        "/apis/metrics.k8s.io/v1/namespaces/default/pods"
    ));
    assert!(pass(
        "bob",
        "GET",
        "/api/v1/namespaces/default/pods/a/status"
    ));
    assert!(pass("bob", "GET", "/version"));
    assert!(!pass("bob", "GET", "/healthz"), "paths count as one");
}

#[test]
fn watches_and_tunnels_do_not_starve_short_calls() {
    // kubernetes/kubernetes#6207.
    let mut ten = rule("ten", MatchSpec::default());
    ten.in_flight = at_once(10, &[KeyField::User]);
    let gateway = Gateway::new(vec![ten]);
    let long = [
        "/api/v1/pods?watch=1",
        "/api/v1/watch/pods",
        "/api/v1/namespaces/default/pods/a/log?follow=true",
        "/api/v1/namespaces/default/pods/a/exec",
        "/api/v1/namespaces/default/pods/a/portforward",
    ];
    let open: Vec<_> = (0..50)
        .map(|n| gateway.ask("u", "GET", long[n % long.len()]).unwrap())
        .collect();
    let short: Vec<_> = (0..10)
        .map(|_| gateway.ask("u", "GET", PODS).unwrap())
        .collect();
    assert!(gateway.ask("u", "GET", PODS).is_err());
    assert!(gateway.ask("other", "GET", PODS).is_ok());
    let counts = gateway.counts("ten");
    assert_eq!((counts.long_running, counts.in_flight), (50, 10));
    drop((open, short));
    let counts = gateway.counts("ten");
    assert_eq!((counts.long_running, counts.in_flight), (0, 0));
}

#[test]
fn long_running_requests_have_a_limit_of_their_own() {
    let mut few = rule("few", MatchSpec::default());
    few.long_running = at_once(1, &[KeyField::User]);
    let gateway = Gateway::new(vec![few]);
    let watch = gateway.ask("u", "GET", "/api/v1/pods?watch=1").unwrap();
    let refusal = gateway.ask("u", "GET", "/api/v1/pods?watch=1").unwrap_err();
    assert!(
        refusal.message.contains("1 at once, for each user"),
        "{}",
        refusal.message
    );
    assert!(gateway.ask("u", "GET", PODS).is_ok());
    drop(watch);
    assert!(gateway.ask("u", "GET", "/api/v1/pods?watch=1").is_ok());
}

#[test]
fn observing_changes_nothing_but_the_count() {
    let mut seen = rule("seen", MatchSpec::default());
    seen.mode = Mode::Observe;
    seen.rate = rate(1, 1, &[]);
    let mut off = rule("off", MatchSpec::default());
    off.mode = Mode::Off;
    off.rate = rate(1, 1, &[]);
    let mut enforced = rule("enforced", MatchSpec::default());
    enforced.rate = rate(1, 3, &[]);
    let gateway = Gateway::new(vec![seen, off, enforced]);
    let first = gateway.ask("u", "GET", PODS).unwrap();
    assert_eq!(
        (first.rule().map(|it| &**it), first.would_refuse().count()),
        (Some("enforced"), 0)
    );
    let second = gateway.ask("u", "GET", PODS).unwrap();
    let seen: Vec<&str> = second.would_refuse().map(|it| &**it).collect();
    assert_eq!(seen, ["seen"]);
    assert!(gateway.ask("u", "GET", PODS).is_ok());
    let refusal = gateway.ask("u", "GET", PODS).unwrap_err();
    assert_eq!(refusal.rule.as_deref(), Some("enforced"));
    let counts = gateway.counts("seen");
    assert_eq!(
        (counts.admitted, counts.would_refuse, counts.refused_rate),
        (1, 3, 0)
    );
}

#[test]
fn a_reload_keeps_buckets_and_permits() {
    let limited = |per_second, burst, max| {
        let mut it = rule("it", MatchSpec::default());
        it.rate = rate(per_second, burst, &[KeyField::User]);
        it.in_flight = at_once(max, &[KeyField::User]);
        it
    };
    let mut gateway = Gateway::new(vec![limited(10, 10, 20)]);
    let held: Vec<_> = (0..10)
        .map(|_| gateway.ask("u", "GET", PODS).unwrap())
        .collect();
    assert!(gateway.ask("u", "GET", PODS).is_err());
    for n in 1..50 {
        gateway.reload(vec![limited(10 + n, 10 + n, 20)]);
        assert!(
            gateway.ask("u", "GET", PODS).is_err(),
            "reload {n} refilled the bucket"
        );
    }
    // Taken out, and put back: as if nothing had been.
    gateway.reload(Vec::new());
    gateway.live.sweep(gateway.now);
    gateway.reload(vec![limited(10, 10, 10)]);
    gateway.pass(1);
    let refusal = gateway.ask("u", "GET", PODS).unwrap_err();
    assert!(
        refusal.message.contains("10 at once"),
        "{}",
        refusal.message
    );
    drop(held);
    assert!(gateway.ask("u", "GET", PODS).is_ok());
}

#[test]
fn removed_rules_are_forgotten_in_the_end() {
    let mut slow = rule("slow", MatchSpec::default());
    slow.rate = Some(RateSpec {
        quota: Quota::every(Duration::from_secs(86_400), NonZeroU32::MIN).unwrap(),
        key: vec![KeyField::User],
    });
    let mut gateway = Gateway::new(vec![slow]);
    for n in 0..100 {
        let _ = gateway.ask(&format!("user-{n}"), "GET", PODS).unwrap();
    }
    gateway.reload(Vec::new());
    gateway.live.sweep(gateway.now);
    assert_eq!(
        gateway.live.keys_len(),
        100,
        "their buckets are empty for a day"
    );
    gateway.pass(601);
    gateway.live.sweep(gateway.now);
    assert_eq!(
        (gateway.live.keys_len(), gateway.live.counts().len()),
        (0, 0)
    );
}

#[test]
fn refusals_say_who_refused_and_when_to_come_back() {
    let mut it = rule("default/noisy-lists", MatchSpec::default());
    it.rate = rate(10, 1, &[KeyField::User]);
    let gateway = Gateway::new(vec![it]);
    let _ = gateway.ask("u", "GET", PODS).unwrap();
    let refusal = gateway.ask("u", "GET", PODS).unwrap_err();
    assert_eq!(refusal.code, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refusal.reason, "TooManyRequests");
    assert_eq!(refusal.rule.as_deref(), Some("default/noisy-lists"));
    assert_eq!(refusal.retry_after, Some(1), "100 ms, rounded up");
    let expected = "too many requests: rule default/noisy-lists admits one each 100ms, \
                    1 in a burst, for each user";
    assert_eq!(refusal.message, expected);
    // The hundredth refused is sent to the end of the row, ten seconds off and some chance.
    let refused: Vec<_> = (0..98)
        .map(|_| gateway.ask("u", "GET", PODS).unwrap_err())
        .collect();
    let last = refused.last().and_then(|it| it.retry_after).unwrap();
    assert!((9..=13).contains(&last), "{last}");

    let mut hourly = rule("hourly", MatchSpec::default());
    hourly.rate = Some(RateSpec {
        quota: Quota::every(Duration::from_secs(3600), NonZeroU32::MIN).unwrap(),
        key: Vec::new(),
    });
    let gateway = Gateway::new(vec![hourly]);
    let _ = gateway.ask("u", "GET", PODS).unwrap();
    let refusal = gateway.ask("u", "GET", PODS).unwrap_err();
    assert_eq!(refusal.retry_after, Some(60), "nobody sleeps for an hour");
}

fn trip(reason: &str, seconds: Option<u64>) -> Trip {
    Trip {
        reason: reason.to_owned(),
        lasting: seconds.map(Duration::from_secs),
        by: "oncall".to_owned(),
        heartbeats: Heartbeats::Spare,
    }
}

#[test]
fn breakers_stop_what_they_name_and_nothing_else() {
    let matches = MatchSpec {
        verbs: list(&["list"]),
        ..MatchSpec::default()
    };
    let gateway = Gateway::new(vec![rule("default/lists", matches)]);
    let breakers = gateway.live.breakers();
    let now = gateway.now;
    breakers
        .trip(Scope::Rule, "default/lists", trip("storm", None), now)
        .unwrap();
    let refusal = gateway.ask("alice", "GET", PODS).unwrap_err();
    assert_eq!(refusal.code, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refusal.stage.as_str(), "breaker");
    assert_eq!(
        refusal.message,
        "circuit breaker of rule default/lists is open: storm"
    );
    assert!((1..=5).contains(&refusal.retry_after.unwrap()));
    assert_eq!(gateway.counts("default/lists").refused_breaker, 1);
    assert!(gateway.ask("alice", "POST", PODS).is_ok());
    breakers.reset(Scope::Rule, "default/lists").unwrap();
    assert!(gateway.ask("alice", "GET", PODS).is_ok());

    let ci = "system:serviceaccount:ci:*";
    breakers
        .trip(Scope::Client, ci, trip("runaway", None), now)
        .unwrap();
    assert!(
        gateway
            .ask("system:serviceaccount:ci:bot", "GET", PODS)
            .is_err()
    );
    assert!(gateway.ask("alice", "GET", PODS).is_ok());
    breakers.reset(Scope::Client, ci).unwrap();

    breakers
        .trip(Scope::Cluster, "c2", trip("elsewhere", None), now)
        .unwrap();
    assert!(gateway.ask("alice", "GET", PODS).is_ok());
    breakers
        .trip(Scope::Cluster, "c1", trip("here", None), now)
        .unwrap();
    assert!(gateway.ask("alice", "GET", PODS).is_err());
}

#[test]
fn a_stopped_client_does_not_get_by_as_somebody_else() {
    let gateway = Gateway::new(Vec::new());
    let breakers = gateway.live.breakers();
    breakers
        .trip(Scope::Client, "ci", trip("runaway", None), gateway.now)
        .unwrap();
    let (ci, bob) = (user("ci", &[]), user("bob", &[]));
    let info = request("GET", PODS);
    let acting = |user, by| {
        let table = &gateway.table;
        table.enter(&info, user, by, None, gateway.now).is_ok()
    };
    assert!(!acting(&bob, Some(&ci)) && !acting(&ci, Some(&bob)));
    assert!(acting(&bob, None) && acting(&bob, Some(&user("carol", &[]))));
    breakers.reset(Scope::Client, "ci").unwrap();

    breakers
        .trip(Scope::Cluster, "c1", trip("shed", None), gateway.now)
        .unwrap();
    let node = user("system:node:a", &["system:nodes"]);
    let status = request("PATCH", "/api/v1/nodes/a/status");
    let as_node = |by| {
        let table = &gateway.table;
        table.enter(&status, &node, by, None, gateway.now).is_ok()
    };
    assert!(as_node(None) && !as_node(Some(&ci)));
}

#[test]
fn a_clusters_breaker_spares_heartbeats_unless_told() {
    let gateway = Gateway::new(Vec::new());
    let breakers = gateway.live.breakers();
    let node = user("system:node:a", &["system:nodes"]);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a";
    let passes = |who: &UserInfo, method, uri| {
        let info = request(method, uri);
        gateway.table.admit(&info, who, None, gateway.now).is_ok()
    };
    breakers
        .trip(Scope::Cluster, "c1", trip("shed", None), gateway.now)
        .unwrap();
    assert!(passes(&node, "PUT", lease));
    assert!(passes(&node, "PATCH", "/api/v1/nodes/a/status"));
    assert!(!passes(&node, "GET", "/api/v1/pods"));
    assert!(!passes(&user("alice", &[]), "PUT", lease));
    let all = Trip {
        heartbeats: Heartbeats::Stop,
        ..trip("corrupt", None)
    };
    breakers
        .trip(Scope::Cluster, "c1", all, gateway.now)
        .unwrap();
    assert!(!passes(&node, "PUT", lease));
    assert_eq!(
        breakers.list(gateway.now).len(),
        1,
        "tripped anew, not twice"
    );
}

#[test]
fn a_trip_runs_out_by_a_ramp_and_is_then_forgotten() {
    let mut gateway = Gateway::new(Vec::new());
    let start = gateway.now;
    let live = Arc::clone(&gateway.live);
    live.breakers()
        .trip(Scope::Client, "u", trip("busy", Some(60)), start)
        .unwrap();
    gateway.pass(59);
    assert!(gateway.ask("u", "GET", PODS).is_err());
    let shown = &live.breakers().list(gateway.now)[0];
    assert_eq!((shown.phase, shown.remaining_seconds), ("open", Some(1)));
    assert_eq!(
        (&*shown.reason, &*shown.by, shown.refused),
        ("busy", "oncall", 1)
    );

    gateway.pass(6);
    let shown = &live.breakers().list(gateway.now)[0];
    assert_eq!((shown.phase, shown.admitting_percent), ("ramp", 60));
    let mut passed = 0;
    for _ in 0..1000 {
        gateway.now += Duration::from_nanos(977);
        passed += u32::from(gateway.ask("u", "GET", PODS).is_ok());
    }
    assert!((540..=660).contains(&passed), "{passed} of 1000 at 60 %");

    gateway.pass(5);
    assert!(gateway.ask("u", "GET", PODS).is_ok());
    live.sweep(gateway.now);
    assert!(live.breakers().list(gateway.now).is_empty());
    let closed = live.breakers().reset(Scope::Client, "u").unwrap_err();
    assert_eq!(closed.to_string(), "no breaker of client u is open");
}

#[test]
fn a_reload_forgets_no_breaker_and_ramps_by_hand_start_anywhere() {
    let mut gateway = Gateway::new(vec![rule("it", MatchSpec::default())]);
    let live = Arc::clone(&gateway.live);
    live.breakers()
        .trip(Scope::Rule, "it", trip("x", None), gateway.now)
        .unwrap();
    gateway.reload(vec![rule("it", MatchSpec::default())]);
    assert!(gateway.ask("u", "GET", PODS).is_err());
    let ramp = Ramp {
        from: Percent::NONE,
        over: Duration::from_secs(100),
    };
    live.breakers()
        .ramp(Scope::Rule, "it", ramp, "me", gateway.now)
        .unwrap();
    assert!(
        gateway.ask("u", "GET", PODS).is_err(),
        "nothing passes at first"
    );
    gateway.pass(100);
    assert!(gateway.ask("u", "GET", PODS).is_ok());
    live.breakers()
        .ramp(Scope::Cluster, "c1", ramp, "me", gateway.now)
        .unwrap();
    assert!(gateway.ask("u", "GET", PODS).is_err());
}

#[test]
fn breakers_are_bounded_and_name_somebody() {
    let gateway = Gateway::new(Vec::new());
    let breakers = gateway.live.breakers();
    let open = |name: &str| breakers.trip(Scope::Client, name, trip("x", None), gateway.now);
    assert!(matches!(open("*"), Err(BreakerFault::Name(_))));
    assert!(matches!(open(""), Err(BreakerFault::Name(_))));
    (0..256).for_each(|n| open(&n.to_string()).unwrap());
    assert_eq!(open("one more"), Err(BreakerFault::TooMany));
    assert_eq!(open("17"), Ok(()), "opened anew");
}

#[test]
fn faults_name_rule_field_and_cure() {
    let compile = |matches: MatchSpec| {
        let rules = vec![rule("r", matches)];
        let live = LiveState::new(Instant::now(), 0);
        let compiled = FlowTable::compile(&FlowSpec { rules }, "c1", &live);
        compiled.unwrap_err().to_string()
    };
    let resources = |entries: &[&str]| MatchSpec {
        resources: list(entries),
        ..MatchSpec::default()
    };
    let expected = "rule r: match.resources[1]: \"pods/*\" is no one subresource: \
                    list each, or use \"*\" for everything";
    assert_eq!(compile(resources(&["pods", "pods/*"])), expected);
    for bad in ["", "/log", "pods/", "po*", "pods.*", "-", "-*"] {
        assert!(
            compile(resources(&[bad])).contains("match.resources[0]"),
            "{bad}"
        );
    }
    let users = MatchSpec {
        users: list(&["-*"]),
        ..MatchSpec::default()
    };
    let expected = "rule r: match.users[0]: excludes everything: remove it";
    assert_eq!(compile(users), expected);
    let twice = vec![
        rule("r", MatchSpec::default()),
        rule("r", MatchSpec::default()),
    ];
    let live = LiveState::new(Instant::now(), 0);
    let fault = FlowTable::compile(&FlowSpec { rules: twice }, "c1", &live).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "rule r: name: another rule has it: rename one"
    );
}

#[test]
fn rules_of_another_cluster_are_left_out_and_shared_ones_count_apart() {
    let mut elsewhere = rule("elsewhere", MatchSpec::default());
    elsewhere.cluster = Some("c2".to_owned());
    let mut everywhere = rule("everywhere", MatchSpec::default());
    everywhere.rate = rate(1, 1, &[]);
    let spec = FlowSpec {
        rules: vec![elsewhere, everywhere],
    };
    let now = Instant::now();
    let live = LiveState::new(now, 0);
    let mut spec_of_third = spec.clone();
    spec_of_third.rules.remove(0);
    let first = FlowTable::compile(&spec, "c1", &live).unwrap();
    let third = FlowTable::compile(&spec, "c3", &live).unwrap();
    let info = request("GET", PODS);
    let alice = user("alice", &[]);
    assert!(first.admit(&info, &alice, None, now).is_ok());
    assert!(first.admit(&info, &alice, None, now).is_err());
    assert!(third.admit(&info, &alice, None, now).is_ok());
    assert_eq!(first.flows().len(), 1);
}

/// Globs by recursion over characters: slow and plainly right.
fn naive(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if naive(rest, text) => true,
        (Some((b'*', _)), Some((_, text))) => naive(pattern, text),
        (Some((p, rest)), Some((t, text))) => p == t && naive(rest, text),
        _ => false,
    }
}

proptest! {
    #[test]
    fn globs_match_as_the_naive_ones_do(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
        prop_assume!(pattern.contains('*'));
        let glob = Glob::new(&pattern).unwrap();
        prop_assert_eq!(glob.matches(&text), naive(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn no_order_of_entries_changes_a_list(
        mut entries in prop::collection::vec("[-!]?[ab]{1,2}[*]?", 1..6),
        text in "[ab]{0,3}",
    ) {
        let compile = |entries: &[String]| Terms::compile(entries).unwrap().unwrap();
        let before = compile(&entries).admits(&text);
        entries.reverse();
        prop_assert_eq!(compile(&entries).admits(&text), before);
        let is_excluded = entries.iter().any(|entry| {
            let excluded = entry.strip_prefix(['-', '!']);
            excluded.is_some_and(|pattern| naive(pattern.as_bytes(), text.as_bytes()))
        });
        prop_assert!(!(is_excluded && before));
    }
}

#[test]
fn headers_of_an_upgrade_do_not_take_a_list_out_of_its_limit() {
    let mut one = rule("one", MatchSpec::default());
    one.in_flight = at_once(1, &[]);
    let gateway = Gateway::new(vec![one]);
    let mut headers = HeaderMap::new();
    headers.insert("connection", "upgrade".parse().unwrap());
    headers.insert("upgrade", "h2c".parse().unwrap());
    let uri = "/api/v1/pods".parse().unwrap();
    let list = RequestInfo::parse(&Method::GET, &uri, &headers).unwrap();
    let jane = user("jane", &[]);
    let admit = || gateway.table.admit(&list, &jane, None, gateway.now);
    let held = admit().unwrap();
    assert_eq!(admit().unwrap_err().code, StatusCode::TOO_MANY_REQUESTS);
    drop(held);
    admit().unwrap();
}
