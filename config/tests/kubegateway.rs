//! KubeGateway's `UpstreamCluster` is read as it is, means what its native form means, and every
//! value that has no counterpart is named with its place.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::fs;
use std::path::Path;

use sluice_config::{Located, RateRule, RateRules, RuleSet, Term, import, load_rules};

/// Its documented shape: every field once, most of them twice.
const FULL: &str = r#"
apiVersion: proxy.kubegateway.io/v1alpha1
kind: UpstreamCluster
metadata:
  name: c1.example
  annotations:
    proxy.kubegateway.io/feature-gates: "Tracing=true,DenyAllRequests=false"
    note: of no consequence
  creationTimestamp: "2025-08-11T00:00:00Z"
  generation: 3
spec:
  servers:
  - endpoint: https://10.0.0.1:6443
  - endpoint: https://10.0.0.2:6443
  - endpoint: https://10.0.0.3:6443
    disabled: true
  clientConfig:
    caData: Y2E=
    certData: Y2VydA==
    keyData: a2V5
    qps: 100
  secureServing:
    certData: c2hvd24=
    keyData: c2VjcmV0
    clientCAData: Y2xpZW50cw==
    serverNames: [api.internal, c1.example]
  flowControl:
    flowControlSchemas:
    - name: exempt
      exempt: {}
    - name: slow
      tokenBucket: { qps: 5, burst: 10 }
    - name: few
      maxRequestsInflight: { max: 3 }
      globalMaxRequestsInflight: { max: 9 }
      strategy: globalCount
    - name: none
      maxRequestsInflight: { max: 0 }
  dispatchPolicies:
  - flowControlSchemaName: none
    rules:
    - { verbs: [delete], apiGroups: [""], resources: [namespaces], users: ["-admin"] }
  - strategy: RoundRobin
    upstreamSubset: [https://10.0.0.2:6443, https://10.0.0.3:6443]
    flowControlSchemaName: few
    logMode: "on"
    rules:
    - verbs: [list, watch]
      apiGroups: ["", apps]
      resources: [pods, deployments, "*/scale"]
      users: ["system:node:*"]
      serviceAccounts: [{ namespace: kube-system, name: collector }]
      userGroups: [-system:masters]
  - flowControlSchemaName: slow
    rules:
    - { verbs: ["*"], apiGroups: ["*"], resources: ["-pods", "-deployments"], resourceNames: [a] }
    - { verbs: [get, create], apiGroups: ["-apps"], resources: [pods/log], nonResourceURLs: ["/metrics*"] }
  - rules:
    - { verbs: ["*"], apiGroups: ["*"], resources: ["*"], nonResourceURLs: ["*"] }
  logging: { mode: "off" }
status: {}
"#;

const NATIVE: &str = r#"apiVersion: sluice.io/v1alpha1
kind: UpstreamCluster
metadata: { name: "c1.example" }
spec:
  hosts: ["c1.example", "api.internal"]
  endpoints:
  - url: "https://10.0.0.1:6443"
  - url: "https://10.0.0.2:6443"
  subsets:
  - { name: "policy-2", endpoints: ["https://10.0.0.2:6443"], strict: true }
  tls:
    caFile: "keys/c1.example-ca.crt"
    serverName: "c1.example"
  credentials:
    clientCertFile: "keys/c1.example-client.crt"
    clientKeyFile: "keys/c1.example-client.key"
  clients:
    clientCAFile: "keys/c1.example-clients-ca.crt"
    tokenReview: {}
    anonymous: true
  serving:
    certFile: "keys/c1.example-serving.crt"
    keyFile: "keys/c1.example-serving.key"
---
apiVersion: sluice.io/v1alpha1
kind: RateRules
metadata: { name: "c1.example" }
spec:
  cluster: "c1.example"
  rules:
  - name: "policy-1-rule-1"
    match:
      users: ["-admin"]
      verbs: ["delete"]
      resources: ["namespaces."]
    refuse: busy
  - name: "policy-2-rule-1"
    match:
      users: ["system:node:*", "system:serviceaccount:kube-system:collector"]
      groups: ["-system:masters"]
      verbs: ["list", "watch"]
      resources: ["pods.", "deployments.", "*./scale", "pods.apps", "deployments.apps", "*.apps/scale"]
    share: "few"
    inFlight: { max: 3, key: [] }
    longRunning: { max: 3, key: [] }
    sendTo: [{ subset: "policy-2" }]
  - name: "policy-3-rule-1"
    match:
      resources: ["-pods", "-deployments"]
      names: ["a"]
    share: "slow"
    rate: { perSecond: 5, burst: 10, key: [] }
  - name: "policy-3-rule-2"
    match:
      verbs: ["get", "create"]
      resources: ["pods/log", "-*.apps"]
    share: "slow"
    rate: { perSecond: 5, burst: 10, key: [] }
  - name: "policy-3-rule-2-paths"
    match:
      verbs: ["get"]
      nonResourcePaths: ["/metrics*"]
    share: "slow"
    rate: { perSecond: 5, burst: 10, key: [] }
  - name: "policy-4-rule-1"
    match:
      resources: ["*"]
    exempt: true
  - name: "policy-4-rule-1-paths"
    match:
      nonResourcePaths: ["*"]
    exempt: true
"#;

fn folder(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("c.yaml"), text).unwrap();
    dir
}

/// What is printed of an object, without the comments, which are given apart.
fn printed(text: &str) -> (String, Vec<String>) {
    let dir = folder(text);
    let imported = import(&[&dir.path().join("c.yaml")], Path::new("keys")).unwrap();
    let (comments, lines): (Vec<&str>, Vec<&str>) = imported
        .text
        .lines()
        .partition(|line| line.starts_with('#'));
    let comments = comments.into_iter().skip(1).map(str::to_owned).collect();
    (lines.join("\n") + "\n", comments)
}

fn rules_of(dir: &tempfile::TempDir) -> RuleSet {
    load_rules(dir.path()).unwrap_or_else(|faults| panic!("{}", faults.render()))
}

fn terms<T: std::fmt::Display>(list: &Option<Located<Vec<Located<Term<T>>>>>) -> String {
    let entry = |it: &Located<Term<T>>| it.value.to_string();
    let list = list.iter().flat_map(|list| list.iter());
    list.map(entry).collect::<Vec<_>>().join(" ")
}

/// Everything that a rule says.
fn said(rule: &RateRule) -> String {
    let matches = &rule.matches;
    let sends = rule.send_to.iter().map(|it| it.subset.value.clone());
    format!(
        "{} users={} groups={} verbs={} resources={} names={} paths={} {} {:?} {:?} {:?} {:?} {:?} {:?}",
        *rule.name,
        terms(&matches.users),
        terms(&matches.groups),
        terms(&matches.verbs),
        terms(&matches.resources),
        terms(&matches.names),
        terms(&matches.non_resource_paths),
        *rule.exempt,
        rule.refuse.as_ref().map(|it| it.value),
        rule.share.as_ref().map(|it| &it.value),
        rule.rate.as_ref().map(|it| (it.per_second, it.burst)),
        rule.in_flight.as_ref().map(|it| it.max),
        rule.long_running.as_ref().map(|it| it.max),
        sends.collect::<Vec<_>>(),
    )
}

fn all_said(rates: &RateRules) -> Vec<String> {
    rates.spec.rules.iter().map(said).collect()
}

#[test]
fn every_field_has_its_native_form_and_every_difference_its_reason() {
    let (native, comments) = printed(FULL);
    assert_eq!(native, NATIVE);
    for (line, what) in [
        (13, "servers are asked for /readyz"),
        (21, "qps, burst and qpsDivisor are not followed"),
        (23, "a token that held is asked for again after 2m"),
        (7, "Tracing is not followed"),
        (33, "schema `few` counts in each gateway by itself"),
        (34, "watches, logs and tunnels are counted apart"),
        (38, "max: 0 refuses with 429 and a wait"),
        (43, "servers are picked by load"),
        (46, "logMode is not followed"),
        (53, "inverted entries of userGroups leave out"),
        (56, "inverted entries of resources leave out"),
        (60, "logging.mode is not followed"),
    ] {
        let wanted = format!("# - line {line}: {what}");
        let is_told = comments.iter().any(|comment| comment.starts_with(&wanted));
        assert!(is_told, "{wanted}\nin\n{}", comments.join("\n"));
    }
}

#[test]
fn what_is_printed_loads_and_says_what_the_object_says() {
    let read = folder(FULL);
    let read = rules_of(&read);
    let (native, _) = printed(FULL);
    let wrote = folder(&native);
    fs::create_dir(wrote.path().join("keys")).unwrap();
    let original = folder(FULL);
    let imported = import(&[&original.path().join("c.yaml")], Path::new("keys")).unwrap();
    let mut contents: Vec<(String, String)> = Vec::new();
    for (name, content) in &imported.secrets {
        fs::write(wrote.path().join("keys").join(name), content).unwrap();
        contents.push((name.clone(), String::from_utf8(content.to_vec()).unwrap()));
    }
    let expected = [
        ("ca.crt", "ca"),
        ("client.crt", "cert"),
        ("client.key", "key"),
        ("clients-ca.crt", "clients"),
        ("serving.crt", "shown"),
        ("serving.key", "secret"),
    ];
    let expected = expected.map(|(what, text)| (format!("c1.example-{what}"), text.to_owned()));
    assert_eq!(contents, expected);
    let wrote = rules_of(&wrote);
    assert_eq!(all_said(&read.rates[0]), all_said(&wrote.rates[0]));
    let hosts = |set: &RuleSet| format!("{:?}", set.clusters[0].spec.hosts.len());
    assert_eq!(hosts(&read), hosts(&wrote));
    assert!(!read.differences.is_empty() && wrote.differences.is_empty());
    // The keys of the object stand for files, and no message may show them.
    let ca = &read.clusters[0].spec.tls.as_ref().unwrap().ca_file;
    assert_eq!(ca.as_inline().map(|it| &**it), Some(&b"ca"[..]));
    assert!(ca.as_path().ends_with("c.yaml:18:13"), "{ca:?}");
}

/// The smallest object, with its policies' rules.
fn object(rules: &str) -> String {
    format!(
        "apiVersion: proxy.kubegateway.io/v1alpha1\nkind: UpstreamCluster\n\
         metadata: {{ name: c1.example }}\nspec:\n  servers:\n  - endpoint: https://10.0.0.1:6443\n  \
         clientConfig: {{ caData: Y2E=, bearerToken: dG9rZW4= }}\n  \
         flowControl: {{ flowControlSchemas: [{{ name: s, exempt: {{}} }}] }}\n  \
         dispatchPolicies:\n{rules}"
    )
}

fn one(rule: &str) -> String {
    object(&format!(
        "  - flowControlSchemaName: s\n    rules:\n    - {rule}\n"
    ))
}

const ALL: &str = "{ verbs: [\"*\"], apiGroups: [\"*\"], resources: [\"*\"] }";

#[test]
fn lists_are_read_as_they_are_meant() {
    for (rule, expected) in [
        // Its own reading of the first two is "everything".
        (
            "{ verbs: ['*'], apiGroups: ['*'], resources: ['-pods', '-secrets'] }",
            "resources=-pods -secrets",
        ),
        (
            "{ verbs: ['*'], apiGroups: ['*'], resources: ['*', '-secrets'] }",
            "resources=-secrets",
        ),
        (
            "{ verbs: ['*'], apiGroups: ['-'], resources: ['*'] }",
            "resources=-*.",
        ),
        (
            "{ verbs: ['*'], apiGroups: ['-apps', '-batch'], resources: ['pods'] }",
            "resources=pods -*.apps -*.batch",
        ),
        (
            "{ verbs: ['*'], apiGroups: ['apps'], resources: ['*'] }",
            "resources=*.apps",
        ),
        (
            "{ verbs: ['*'], apiGroups: ['apps'], resources: ['*', '-*/status'] }",
            "resources=*.apps -*/status",
        ),
        (
            "{ verbs: ['*', '-get'], apiGroups: [''], resources: ['pods'] }",
            "verbs=-get resources=pods.",
        ),
        (
            "{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], users: ['*', '-system:node:*'] }",
            "users=-system:node:*",
        ),
        (
            "{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], userGroups: ['*'] }",
            "users= groups= verbs=",
        ),
        (
            "{ verbs: ['get'], nonResourceURLs: ['-/metrics'] }",
            "paths=-/metrics",
        ),
        (
            "{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], serviceAccounts: [{ namespace: a, name: b }] }",
            "users=system:serviceaccount:a:b",
        ),
    ] {
        let dir = folder(&one(rule));
        let rules = all_said(&rules_of(&dir).rates[0]);
        assert!(rules[0].contains(expected), "{rule}: {rules:?}");
    }
}

#[test]
fn one_rule_becomes_several_where_it_must() {
    let names = |text: &str| -> Vec<String> {
        let rules = rules_of(&folder(text));
        let rules = rules.rates[0].spec.rules.iter();
        rules.map(|rule| rule.name.value.clone()).collect()
    };
    // Anybody but x, and one account whatever its name.
    let text = one(
        "{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], users: ['-system:serviceaccount:*'], \
         serviceAccounts: [{ namespace: a, name: b }] }",
    );
    let rule = "policy-1-rule-1";
    assert_eq!(
        names(&text),
        [rule, "policy-1-rule-1-accounts", "no-policy"]
    );
    // Nothing but paths has the verb, and what an earlier rule takes is left out.
    let text = one("{ verbs: [head], apiGroups: ['*'], resources: ['*'], nonResourceURLs: [/x] }");
    assert_eq!(names(&text), ["policy-1-rule-1-paths", "no-policy"]);
    let text = object(&format!("  - rules: [{ALL}]\n  - rules: [{ALL}]\n"));
    assert_eq!(names(&text), [rule, "no-policy"]);
}

#[test]
fn a_policy_whose_servers_are_all_disabled_is_refused_for_now() {
    let text = object(&format!(
        "  - upstreamSubset: [https://10.0.0.2:6443]\n    rules: [{ALL}]\n"
    ));
    let servers = "- endpoint: https://10.0.0.1:6443";
    let more = format!("{servers}\n  - {{ endpoint: https://10.0.0.2:6443, disabled: true }}");
    let rules = rules_of(&folder(&text.replace(servers, &more)));
    let rule = &rules.rates[0].spec.rules[0];
    assert!(rule.refuse.is_some() && rule.send_to.is_empty());
    assert!(rules.clusters[0].spec.subsets.is_empty());
}

#[test]
fn denying_all_is_a_rule_and_ends_with_the_annotation() {
    let gates = |text: &str| {
        let with = format!("name: c1.example, annotations: {{ {text} }} }}");
        let object = one(ALL).replace("name: c1.example }", &with);
        let rules = rules_of(&folder(&object));
        said(&rules.rates[0].spec.rules[0])
    };
    let key = "proxy.kubegateway.io/feature-gates";
    let denied = gates(&format!("{key}: DenyAllRequests=true"));
    assert!(
        denied.starts_with(
            "deny-all users= groups= verbs= resources= names= paths= false Some(Busy)"
        ),
        "{denied}"
    );
    for off in [
        format!("{key}: DenyAllRequests=false"),
        format!("{key}: Tracing=true"),
        "other: x".to_owned(),
        String::new(),
    ] {
        let rule = gates(&off);
        assert!(rule.starts_with("policy-1-rule-1 "), "{off}: {rule}");
    }
}

#[test]
fn what_has_no_counterpart_is_a_fault_with_its_place() {
    let policy = |fields: &str| object(&format!("  - {fields}\n    rules: [{ALL}]\n"));
    let swap = |from: &str, to: &str| one(ALL).replace(from, to);
    let schema = |fields: &str| swap("exempt: {}", fields);
    let mut wrong = String::new();
    for (text, expected) in [
        (
            swap("https://10.0.0.1:6443", "'https://[::1'"),
            "6:15: endpoint `https://[::1` has no readable host (write https://host:port)",
        ),
        (
            swap("https://10.0.0.1:6443", "https://"),
            "6:15: endpoint `https://` has no readable host (write https://host:port)",
        ),
        (
            swap("https://", "http://"),
            "6:15: endpoint `http://10.0.0.1:6443` would carry credentials in clear (write https://host:port)",
        ),
        (
            swap(
                "- endpoint: https://10.0.0.1:6443",
                "- { endpoint: https://a, disabled: true }",
            ),
            "6:5: spec.servers has none that is enabled (enable one, or remove the object)",
        ),
        (
            swap("- endpoint: ", "- endpiont: "),
            "6:5: unknown field `endpiont` (did you mean `endpoint`? known: endpoint, disabled)",
        ),
        (
            swap("caData: Y2E=, ", ""),
            "7:17: clientConfig.caData is missing for https servers (add the CA of the servers' certificates)",
        ),
        (
            swap("caData: Y2E=", "insecure: true"),
            "7:29: clientConfig.insecure would believe any server (give `caData`, the CA of the servers' certificates)",
        ),
        (
            swap(", bearerToken: dG9rZW4=", ""),
            "7:17: clientConfig has no credential of the gateway (give `certData` and `keyData`, or `bearerToken`, of one who may impersonate)",
        ),
        (
            swap("bearerToken: dG9rZW4=", "certData: Y2E="),
            "7:17: clientConfig has one of certData and keyData (give both, or neither)",
        ),
        (
            swap("bearerToken: dG9rZW4=", "bearerToken: '%'"),
            "7:46: clientConfig.bearerToken is not base64 (write what `base64 -w0` makes of the file)",
        ),
        (
            schema("tokenBucket: { qps: -1, burst: 2 }"),
            "8:63: tokenBucket.qps is -1 (write one or more)",
        ),
        (
            schema("tokenBucket: { qps: 5, burst: 2 }"),
            "8:63: tokenBucket.burst 2 is below qps 5 (write a burst of at least qps)",
        ),
        (
            schema("tokenBucket: { qps: 0, burst: 2 }"),
            "8:63: tokenBucket.qps is zero (to refuse all, write `maxRequestsInflight: { max: 0 }`)",
        ),
        (
            schema("globalTokenBucket: { qps: 5, burst: 5 }"),
            "8:39: schema `s` has not exactly one limit (beside a global limit give the local one of its kind, which holds when the other fails)",
        ),
        (
            schema("exempt: {}, strategy: global"),
            "8:72: unknown schema strategy `global` (write `local`, `globalAllocate` or `globalCount`)",
        ),
        (
            schema("maxRequestsInflight: { max: 3000000000 }"),
            "8:78: `3000000000` is not a number that fits here (write a whole number without unit)",
        ),
        (
            policy("strategy: Random"),
            "10:15: unknown strategy `Random` (write `RoundRobin` or leave it out)",
        ),
        (
            policy("flowControlSchemaName: t"),
            "10:28: flowControlSchemaName `t` is no schema (did you mean `s`?)",
        ),
        (
            policy("logMode: maybe"),
            "10:14: unknown logMode `maybe` (write `on` or `off`)",
        ),
        (
            policy("upsteamSubset: [https://10.0.0.1:6443]"),
            "10:5: unknown field `upsteamSubset` (did you mean `upstreamSubset`? known: strategy, upstreamSubset, flowControlSchemaName, logMode, rules)",
        ),
        (
            policy("upstreamSubset: [https://10.0.0.1:6444]"),
            "10:22: upstreamSubset names `https://10.0.0.1:6444`, which is no server (did you mean `https://10.0.0.1:6443`?)",
        ),
        (
            one("{ apiGroups: ['*'], resources: ['*'] }"),
            "12:7: a rule without verbs matches nothing (list verbs, or \"*\" for all)",
        ),
        (
            one("{ verbs: ['*'], resources: ['*'] }"),
            "12:7: a rule on resources without apiGroups matches nothing (list apiGroups, or \"*\" for all)",
        ),
        (
            one("{ verbs: ['*'] }"),
            "12:7: a rule about nothing (give `apiGroups` and `resources`, or `nonResourceURLs`)",
        ),
        (
            one("{ verbs: ['*'], apiGroups: ['*'], resources: [pods/*] }"),
            "12:53: `pods/*` is no one subresource (list each, or use `*`)",
        ),
        (
            one("{ verbs: ['*'], apiGroups: ['*'], resources: [deployments.apps] }"),
            "12:53: `deployments.apps` of resources has a dot (a group belongs in apiGroups)",
        ),
        (
            one("{ verbs: [gett], apiGroups: ['*'], resources: ['*'] }"),
            "12:17: `gett` is not a verb (did you mean `get`?)",
        ),
        (
            one("{ verbs: ['*'], apiGroups: [Apps.x_], resources: ['*'] }"),
            "12:35: `Apps.x_` of apiGroups is no group (write a group's name, \"\" for the core group or \"*\")",
        ),
        (
            one("{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], users: ['!x'] }"),
            "12:67: `!x` of users begins with a mark that excludes here (no name of Kubernetes does; remove it)",
        ),
        (
            one(
                "{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], serviceAccounts: [{ name: x }] }",
            ),
            "12:77: service account `/x` is none (write `namespace` and `name`, both whole)",
        ),
        (
            one("{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], namespaces: [x] }"),
            "12:59: unknown field `namespaces` (known: verbs, apiGroups, resources, resourceNames, users, serviceAccounts, userGroups, nonResourceURLs)",
        ),
        (
            object("  - rules: []\n"),
            "10:5: a policy without rules matches nothing (give it rules)",
        ),
        (
            swap(
                "name: c1.example }",
                "name: c1.example, annotations: { proxy.kubegateway.io/feature-gates: DenyAll=true } }",
            ),
            "3:82: unknown feature gate `DenyAll` (known: CloseConnectionWhenIdle, DenyAllRequests, GlobalRateLimiter, Tracing)",
        ),
        (
            swap(
                "name: c1.example }",
                "name: c1.example, annotations: { proxy.kubegateway.io/feature-gates: Tracing } }",
            ),
            "3:82: feature gate `Tracing` has no readable value (write NAME=true or NAME=false)",
        ),
        (
            swap("kind: UpstreamCluster", "kind: RateLimitCondition"),
            "2:7: kind `RateLimitCondition` of proxy.kubegateway.io/v1alpha1 is not read (it is state of that gateway's limiter; leave it out)",
        ),
        (
            swap(
                "clientConfig",
                "secureServing: { serverNames: [a.b, a.b] }\n  clientConfig",
            ),
            "7:39: host `a.b` is already of cluster `c1.example` (a host has one owner)",
        ),
        (
            swap(
                "clientConfig",
                "secureServing: { keyData: YQ== }\n  clientConfig",
            ),
            "7:18: secureServing has one of certData and keyData (give both, or neither for the listener's own certificate)",
        ),
    ] {
        let dir = folder(&text);
        let prefix = format!("{}/c.yaml:", dir.path().display());
        let said = match load_rules(dir.path()) {
            Ok(_) => "accepted".to_owned(),
            Err(faults) => faults.to_string().replace(&prefix, ""),
        };
        if said != expected {
            wrong += &format!("{text}\nsaid   {said}\nwanted {expected}\n\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn an_import_lists_all_faults_of_all_files() {
    let dir = folder(&one(
        "{ verbs: [gett], apiGroups: ['*'], resources: [po/*] }",
    ));
    fs::write(dir.path().join("d.yaml"), NATIVE).unwrap();
    let files = ["c.yaml", "d.yaml"].map(|name| dir.path().join(name));
    let faults = import(&[&files[0], &files[1]], Path::new("keys")).unwrap_err();
    let text = faults.to_string();
    assert!(text.contains("`gett` is not a verb") && text.contains("`po/*` is no one subresource"));
    assert!(text.contains("this gateway's own already"), "{text}");
}
