//! From YAML to decisions: what a list in a file means when a request comes.

use http::{HeaderMap, Method};

use super::lower_rates;
use crate::clock;
use crate::flow::{FlowTable, LiveState};
use crate::identity::UserInfo;
use crate::request::RequestInfo;

/// A table of one rule that refuses everything it matches but the first request of a second.
fn table(matches: &str) -> FlowTable {
    table_of(&format!(
        "  - name: one\n    match: {matches}\n    rate: {{ perSecond: 1, key: [] }}\n"
    ))
}

/// A table of these rules.
fn table_of(rules: &str) -> FlowTable {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "apiVersion: sluice.io/v1alpha1\nkind: RateRules\nmetadata: {{ name: r }}\nspec:\n  \
         cluster: \"*\"\n  rules:\n{rules}"
    );
    std::fs::write(dir.path().join("r.yaml"), text).unwrap();
    let rules = sluice_config::load_rules(dir.path()).unwrap();
    let spec = lower_rates(rules.rates.iter().map(|rates| &rates.value)).unwrap();
    FlowTable::compile(&spec, "c", &LiveState::new(clock::now(), 1)).unwrap()
}

/// What becomes of a GET by alice: the code and the wait of a refusal.
fn get(table: &FlowTable, path: &str) -> Result<crate::flow::Admission, (u16, Option<u32>)> {
    let info = RequestInfo::parse(&Method::GET, &path.parse().unwrap(), &HeaderMap::new());
    let user = UserInfo {
        name: "alice".to_owned(),
        ..UserInfo::default()
    };
    let admitted = table.admit(&info.unwrap(), &user, None, clock::now());
    admitted.map_err(|refusal| (refusal.code.as_u16(), refusal.retry_after))
}

#[test]
fn rules_that_share_count_together() {
    let table = table_of(
        "  - { name: a, match: { resources: [pods] }, share: s, inFlight: { max: 2, key: [] } }\n  \
         - { name: b, match: { resources: [secrets] }, share: s, inFlight: { max: 2, key: [] } }\n  \
         - { name: c, match: { resources: [nodes] }, inFlight: { max: 2, key: [] } }\n",
    );
    let pods = get(&table, "/api/v1/pods").unwrap();
    let secrets = get(&table, "/api/v1/secrets").unwrap();
    assert!(matches!(get(&table, "/api/v1/pods"), Err((429, Some(_)))));
    assert!(matches!(
        get(&table, "/api/v1/secrets"),
        Err((429, Some(_)))
    ));
    assert!(get(&table, "/api/v1/nodes").is_ok());
    drop(secrets);
    assert!(get(&table, "/api/v1/pods").is_ok());
    drop(pods);
    // What is counted together is no rule of its own to whoever looks at the counters.
    assert_eq!(table.flows().len(), 3);
}

#[test]
fn refusing_rules_refuse_in_their_own_way_and_only_when_enforced() {
    let table = table_of(
        "  - { name: watch, match: { resources: [nodes] }, mode: observe, refuse: forbidden }\n  \
         - { name: never, match: { resources: [secrets] }, refuse: forbidden }\n  \
         - { name: later, match: { resources: [pods] }, refuse: busy }\n",
    );
    assert_eq!(get(&table, "/api/v1/secrets").unwrap_err(), (403, None));
    let (code, wait) = get(&table, "/api/v1/pods?watch=1").unwrap_err();
    assert!(code == 429 && (5..10).contains(&wait.unwrap()));
    let observed = get(&table, "/api/v1/nodes").unwrap();
    assert_eq!(observed.would_refuse().count(), 1);
    let refused: Vec<u64> = table
        .flows()
        .iter()
        .map(|flow| flow.counts.refused_always)
        .collect();
    assert_eq!(refused, [0, 1, 1]);
}

/// Whether the rule is about a request, told by a second one being refused.
fn matches(rule: &str, path: &str, groups: &[&str]) -> bool {
    let table = table(rule);
    let info = RequestInfo::parse(&Method::GET, &path.parse().unwrap(), &HeaderMap::new());
    let info = info.unwrap();
    let user = UserInfo {
        name: "alice".to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    };
    let now = clock::now();
    let first = table.admit(&info, &user, Some("kubectl/v1.33"), now);
    assert!(first.is_ok());
    table
        .admit(&info, &user, Some("kubectl/v1.33"), now)
        .is_err()
}

#[test]
fn lists_mean_what_the_reference_says() {
    let pods = "/api/v1/namespaces/ns/pods";
    let deployments = "/apis/apps/v1/deployments";
    for (rule, path, expected) in [
        ("{}", pods, true),
        ("{}", "/healthz", true),
        ("{ resources: [-pods, -deployments] }", pods, false),
        ("{ resources: [-pods, -deployments] }", deployments, false),
        (
            "{ resources: [-pods, -deployments] }",
            "/api/v1/services",
            true,
        ),
        ("{ resources: [\"*\", \"!pods\"] }", pods, false),
        (
            "{ resources: [\"*\", \"!pods\"] }",
            "/api/v1/services",
            true,
        ),
        (
            "{ resources: [pods] }",
            "/api/v1/namespaces/ns/pods/p/log",
            false,
        ),
        (
            "{ resources: [pods/log] }",
            "/api/v1/namespaces/ns/pods/p/log",
            true,
        ),
        (
            "{ resources: [\"*/log\"] }",
            "/api/v1/namespaces/ns/pods/p/log",
            true,
        ),
        (
            "{ resources: [\"*\"] }",
            "/api/v1/namespaces/ns/pods/p/log",
            true,
        ),
        ("{ resources: [\"*\"] }", "/healthz", false),
        ("{ resources: [deployments] }", deployments, true),
        ("{ resources: [deployments.apps] }", deployments, true),
        ("{ resources: [deployments.] }", deployments, false),
        ("{ resources: [\"*.apps\"] }", deployments, true),
        ("{ resources: [\"*.apps\"] }", pods, false),
        ("{ nonResourcePaths: [/healthz] }", "/healthz", true),
        (
            "{ nonResourcePaths: [\"*\", -/healthz] }",
            "/healthz",
            false,
        ),
        ("{ nonResourcePaths: [\"*\"] }", pods, false),
        ("{ nonResourcePaths: [/x], resources: [pods] }", pods, true),
        ("{ verbs: [list] }", pods, true),
        ("{ verbs: [-list] }", pods, false),
        ("{ verbs: [\"*\"] }", pods, true),
        ("{ namespaces: [ns] }", pods, true),
        ("{ namespaces: [\"\"] }", pods, false),
        ("{ namespaces: [\"\"] }", deployments, true),
        ("{ namespaces: [-kube-system] }", deployments, true),
        ("{ users: [\"al*\"] }", pods, true),
        ("{ users: [\"al*\", -alice] }", pods, false),
        ("{ userAgents: [\"kubectl/*\"] }", pods, true),
        ("{ userAgents: [\"-kubectl/*\"] }", pods, false),
    ] {
        assert_eq!(
            matches(rule, path, &["system:authenticated"]),
            expected,
            "{rule} {path}"
        );
    }
}

/// One excluded group is enough, whatever other groups the user has.
#[test]
fn excluded_group_excludes_its_members() {
    let pods = "/api/v1/pods";
    let node = ["system:nodes", "system:authenticated"];
    for (rule, groups, expected) in [
        ("{ groups: [\"-system:nodes\"] }", &node[..], false),
        (
            "{ groups: [\"-system:nodes\"] }",
            &["system:authenticated"],
            true,
        ),
        ("{ groups: [\"*\", \"-system:nodes\"] }", &node, false),
        ("{ groups: [\"system:*\"] }", &node, true),
        ("{ groups: [dev] }", &node, false),
    ] {
        assert_eq!(matches(rule, pods, groups), expected, "{rule} {groups:?}");
    }
}
