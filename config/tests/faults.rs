//! What is wrong is said with place, value and advice, and all of it at once.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::fs;

use sluice_config::{Diagnostics, load, load_process, load_rules};

/// Faults as `file:line:column: message (help)`, without the folder.
fn lines(faults: &Diagnostics, dir: &std::path::Path) -> Vec<String> {
    let prefix = format!("{}/", dir.display());
    faults
        .iter()
        .map(|fault| {
            let help = fault.help.as_deref().map(|help| format!(" ({help})"));
            format!("{fault}{}", help.unwrap_or_default()).replace(&prefix, "")
        })
        .collect()
}

/// A folder with files; `tls/` holds what the snippets name.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tls")).unwrap();
    for name in ["a.crt", "a.key", "token"] {
        fs::write(dir.path().join("tls").join(name), "").unwrap();
    }
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn check_rules(text: &str, expected: &[&str]) {
    let dir = folder(&[("r.yaml", text)]);
    let faults = match load_rules(dir.path()) {
        Ok(_) => Vec::new(),
        Err(faults) => lines(&faults, dir.path()),
    };
    assert_eq!(faults, expected, "of\n{text}");
}

fn check_process(text: &str, expected: &[&str]) {
    let dir = folder(&[("g.yaml", text)]);
    let faults = match load_process(&dir.path().join("g.yaml")) {
        Ok(_) => Vec::new(),
        Err(faults) => lines(&faults, dir.path()),
    };
    assert_eq!(faults, expected, "of\n{text}");
}

/// An editor that writes in place leaves the file empty for a moment.
#[test]
fn a_file_that_was_emptied_ends_no_rules() {
    for text in ["", "\n", " \n\t\n"] {
        check_rules(
            text,
            &["r.yaml: is empty (it may be half written; to end its rules remove the file)"],
        );
    }
    check_rules("# Nothing is limited yet.\n", &[]);
}

const CLUSTER: &str = "\
apiVersion: sluice.io/v1alpha1
kind: UpstreamCluster
metadata: { name: prod }
spec:
  hosts: [prod.example.com]
  endpoints:
  - url: https://10.0.0.1:6443
  tls: { caFile: tls/a.crt }
  credentials: { tokenFile: tls/token }
  clients: { anonymous: true }
";

const RATES: &str = "\
apiVersion: sluice.io/v1alpha1
kind: RateRules
metadata: { name: r }
spec:
  cluster: \"*\"
  rules:
";

#[test]
fn subsets_and_who_sends_to_them_are_checked() {
    let cluster = CLUSTER.replace(
        "  tls: {",
        "  subsets:\n  - { name: big, labels: [tier=big] }\n  - { name: both, labels: [a], \
         endpoints: [\"https://10.0.0.1:6443\"] }\n  - { name: far, endpoints: \
         [\"https://10.0.0.9:6443\"] }\n  - { name: one, endpoints: \
         [\"https://10.0.0.1:6443\"] }\n  tls: {",
    );
    let rules = format!(
        "{cluster}---\n{RATES}  - name: ghost\n    exempt: true\n    sendTo: [{{ subset: onee }}, \
         {{ subset: one }}, {{ subset: one }}]\n"
    );
    check_rules(
        &rules,
        &[
            "r.yaml:9:13: no endpoint has all labels of subset `big` (give the labels to endpoints)",
            "r.yaml:10:13: subset `both` does not say which endpoints it has (give `endpoints` or \
             `labels`, not both)",
            "r.yaml:11:30: subset `far` has an unknown endpoint `https://10.0.0.9:6443` (name one \
             of `spec.endpoints`)",
            "r.yaml:25:24: cluster `prod` has no subset `onee` (did you mean `one`?)",
            "r.yaml:25:59: subset `one` is given twice (use a weight instead)",
        ],
    );
}

const PROCESS: &str = "\
apiVersion: sluice.io/v1alpha1
kind: GatewayConfig
listen:
  address: 127.0.0.1:6443
  tls: { certFile: tls/a.crt, keyFile: tls/a.key }
";

/// The cluster with one piece of its text changed.
fn cluster(from: &str, to: &str) -> String {
    assert!(CLUSTER.contains(from), "{from}");
    CLUSTER.replacen(from, to, 1)
}

fn rates(rules: &str) -> String {
    format!("{RATES}{rules}")
}

fn two(first: &str, second: &str) -> String {
    format!("{first}---\n{second}")
}

#[test]
fn sound_snippets_have_no_fault() {
    check_rules(CLUSTER, &[]);
    check_rules(&rates("  - { name: a, rate: { perSecond: 1 } }\n"), &[]);
    check_process(PROCESS, &[]);
}

#[test]
fn decoding_faults_have_place_value_and_advice() {
    for (text, expected) in [
        (
            cluster("hosts:", "host:"),
            &[
                "r.yaml:5:3: unknown field `host` (did you mean `hosts`? known: hosts, default, serving, endpoints, discovery, subsets, balance, tls, credentials, identity, clients, health, ejection, breaker, timeouts, tunnels)",
            ][..],
        ),
        (
            cluster("caFile:", "cafile:"),
            &[
                "r.yaml:8:10: unknown field `cafile` (did you mean `caFile`? known: caFile, serverName)",
            ][..],
        ),
        (
            cluster(
                "  clients: { anonymous: true }",
                "  clients: { anonymous: yes }",
            ),
            &["r.yaml:10:25: `yes` is not a boolean (write true or false)"][..],
        ),
        (
            cluster(
                "  clients: { anonymous: true }",
                "  clients: { anonymous: maybe }",
            ),
            &["r.yaml:10:25: `maybe` is not a boolean (write true or false)"][..],
        ),
        (
            cluster("  clients: { anonymous: true }\n", ""),
            &["r.yaml:9:3: field `clients` is missing (add `clients:` beside the fields here)"][..],
        ),
        (
            cluster("https://10.0.0.1:6443", "https://[::1"),
            &[
                "r.yaml:7:10: endpoint `https://[::1` has no readable host (write https://host:port)",
            ][..],
        ),
        (
            cluster("https://10.0.0.1:6443", "https://"),
            &["r.yaml:7:10: endpoint `https://` has no readable host (write https://host:port)"][..],
        ),
        (
            cluster("https://10.0.0.1:6443", "http://10.0.0.1:6443"),
            &[
                "r.yaml:7:10: endpoint `http://10.0.0.1:6443` would carry credentials in clear (write https://host:port)",
            ][..],
        ),
        (
            cluster("[prod.example.com]", "prod.example.com"),
            &["r.yaml:5:10: `prod.example.com` will not do (expected a list)"][..],
        ),
        (
            cluster("[prod.example.com]", "[\"https://prod.example.com\"]"),
            &["r.yaml:5:11: host `https://prod.example.com` must be a name without scheme"][..],
        ),
        (
            cluster("[prod.example.com]", "[a, b:6443]"),
            &["r.yaml:5:14: host `b:6443` must be a name without port"][..],
        ),
        (
            cluster(
                "  hosts: [",
                "  default: true\n  default: false\n  hosts: [",
            ),
            &[
                "r.yaml:6:3: key `default` is given twice (keep one of the two; the gateway will not choose)",
            ][..],
        ),
        (
            cluster("  hosts: [", "  health: { interval: 10 }\n  hosts: ["),
            &[
                "r.yaml:5:23: `10` is not a duration (write a number and ms, s, m or h, such as 200ms)",
            ][..],
        ),
        (
            cluster("  hosts: [", "  health: { interval: 10x }\n  hosts: ["),
            &[
                "r.yaml:5:23: `10x` is not a duration (write a number and ms, s, m or h, such as 200ms)",
            ][..],
        ),
        (
            cluster("  hosts: [", "  health: { rise: 0 }\n  hosts: ["),
            &["r.yaml:5:19: `0` is not a count (write a whole number, one or more)"][..],
        ),
        (
            cluster("  hosts: [", "  health: { rise: -1 }\n  hosts: ["),
            &["r.yaml:5:19: `-1` is not a count (write a whole number, one or more)"][..],
        ),
        (
            cluster("  hosts: [", "  health: { rise: two }\n  hosts: ["),
            &["r.yaml:5:19: `two` is not a count (write a whole number, one or more)"][..],
        ),
        (
            cluster(
                "  hosts: [",
                "  identity: { mode: impersonation }\n  hosts: [",
            ),
            &[
                "r.yaml:5:21: unknown value `impersonation` (did you mean `impersonate`? known: impersonate, frontProxy, passThrough)",
            ][..],
        ),
        (
            cluster("kind: UpstreamCluster", "kind: UpstreamClusters"),
            &["r.yaml:2:7: unknown kind `UpstreamClusters` (did you mean `UpstreamCluster`?)"][..],
        ),
        (
            cluster("kind: UpstreamCluster", "kind: Guards"),
            &["r.yaml:2:7: unknown kind `Guards` (known kinds here: UpstreamCluster, RateRules)"][..],
        ),
        (
            cluster("kind: UpstreamCluster", "kind: GatewayConfig"),
            &[
                "r.yaml:2:7: kind GatewayConfig does not belong in the rules folder (the process file is named on the command line; move it out)",
            ][..],
        ),
        (
            cluster("kind: UpstreamCluster\n", ""),
            &["r.yaml:1:1: kind is missing (add `kind: UpstreamCluster` or `kind: RateRules`)"][..],
        ),
        (
            cluster("v1alpha1", "v1"),
            &[
                "r.yaml:1:13: unknown apiVersion `sluice.io/v1` (write `apiVersion: sluice.io/v1alpha1`)",
            ][..],
        ),
        (
            cluster("apiVersion: sluice.io/v1alpha1\n", ""),
            &["r.yaml:1:1: apiVersion is missing (add `apiVersion: sluice.io/v1alpha1`)"][..],
        ),
        (
            cluster(
                "metadata: { name: prod }",
                "metadata: { name: prod, labels: {} }",
            ),
            &["r.yaml:3:25: unknown field `labels` (known: name)"][..],
        ),
        (
            cluster("metadata: { name: prod }", "metadata: prod"),
            &["r.yaml:3:11: `prod` will not do (expected a mapping of fields)"][..],
        ),
        (
            cluster("metadata: { name: prod }", "metadata: { name: [prod] }"),
            &["r.yaml:3:19: `[prod]` will not do (expected text)"][..],
        ),
        (
            cluster("  hosts: [", "  hosts: [["),
            &["r.yaml:6:12: illegal placement of ':' indicator"][..],
        ),
        (
            cluster("  hosts: [", "\thosts: ["),
            &["r.yaml:5:2: tabs disallowed within this context (block indentation)"][..],
        ),
    ] {
        check_rules(&text, expected);
    }
}

#[test]
fn clusters_that_cannot_work_are_faults() {
    for (text, expected) in [
        (
            cluster(
                "  hosts",
                "  ejection: { baseTime: 0s }\n  timeouts: { connect: 0s, head: 0s }\n  breaker: { failurePercent: 101 }\n  hosts",
            ),
            &[
                "r.yaml:5:25: ejection.baseTime is zero (write more than zero, such as 1s)",
                "r.yaml:6:24: timeouts.connect is zero (write more than zero, such as 1s)",
                "r.yaml:6:34: timeouts.head is zero (write more than zero, such as 1s)",
                "r.yaml:7:30: breaker.failurePercent is 101 (write 0 (off) to 100)",
            ][..],
        ),
        (
            cluster("name: prod", "name: Prod_1"),
            &[
                "r.yaml:3:19: name `Prod_1` is not a lower-case DNS name (use letters, digits, hyphens and dots)",
            ][..],
        ),
        (
            cluster("name: prod", "name: local"),
            &["r.yaml:3:19: the name `local` is the metastore's own (choose another)"][..],
        ),
        (
            cluster("  hosts: [prod.example.com]\n", ""),
            &[
                "r.yaml:3:19: no request can reach the cluster (give it `hosts`, or `default: true`)",
            ][..],
        ),
        (
            cluster(
                "endpoints:\n  - url: https://10.0.0.1:6443\n",
                "endpoints: []\n",
            ),
            &["r.yaml:6:14: no endpoints (give at least one `url`)"][..],
        ),
        (
            cluster(
                "  - url: https://10.0.0.1:6443\n",
                "  - url: https://10.0.0.1:6443\n  - url: https://10.0.0.1:6443/\n",
            ),
            &["r.yaml:8:10: endpoint `https://10.0.0.1:6443` is given twice"][..],
        ),
        (
            cluster("  tls: { caFile: tls/a.crt }\n", ""),
            &[
                "r.yaml:7:10: https endpoints and no CA to verify them by (add `tls: { caFile: ... }`)",
            ][..],
        ),
        (
            cluster("  credentials: { tokenFile: tls/token }\n", ""),
            &[
                "r.yaml:7:5: impersonation needs a credential of the gateway (add `credentials`, or choose another `identity.mode`)",
            ][..],
        ),
        (
            cluster(
                "{ tokenFile: tls/token }",
                "{ tokenFile: tls/token, clientCertFile: tls/a.crt, clientKeyFile: tls/a.key }",
            ),
            &[
                "r.yaml:9:16: not exactly one credential (give `clientCertFile` and `clientKeyFile`, or `tokenFile`)",
            ][..],
        ),
        (
            cluster("{ tokenFile: tls/token }", "{ clientCertFile: tls/a.crt }"),
            &[
                "r.yaml:9:16: a certificate needs its key and a key its certificate (give `clientCertFile` and `clientKeyFile`, or `tokenFile`)",
            ][..],
        ),
        (
            cluster("{ tokenFile: tls/token }", "{}"),
            &[
                "r.yaml:9:16: not exactly one credential (give `clientCertFile` and `clientKeyFile`, or `tokenFile`)",
            ][..],
        ),
        (
            cluster("{ anonymous: true }", "{}"),
            &[
                "r.yaml:10:12: nobody can come in (give `clientCAFile`, `frontProxy`, `tokenReview`, `serviceAccounts` or `oidc`, or allow `anonymous`)",
            ][..],
        ),
        (
            cluster("anonymous: true", "serviceAccounts: { issuers: [] }"),
            &[
                "r.yaml:10:31: serviceAccounts.issuers is empty (give the apiservers' --service-account-issuer)",
                "r.yaml:10:31: tokens are confirmed by a TokenReview, and there is none (add `tokenReview`, or write `confirm: false`: tokens of deleted pods then hold until they run out)",
            ][..],
        ),
        (
            cluster(
                "anonymous: true",
                "serviceAccounts: { issuers: [a, a], confirm: false, keysStaleFor: 1m }",
            ),
            &[
                "r.yaml:10:46: issuer `a` is given twice (an issuer's tokens are read in one way)",
                "r.yaml:10:80: serviceAccounts.keysStaleFor is 60s (write 10m or more)",
            ][..],
        ),
        (
            cluster(
                "anonymous: true",
                "oidc: [{ issuer: a, audiences: [], username: { claim: sub, prefix: \"\" } }]",
            ),
            &[
                "r.yaml:10:21: not exactly one source of the issuer's keys (give `caFile` to fetch the keys from the issuer (for a public one the system's bundle), or `keyFile`)",
                "r.yaml:10:45: oidc.audiences is empty (give the client id that the issuer knows the cluster by)",
            ][..],
        ),
        (
            cluster(
                "anonymous: true",
                "oidc: [{ issuer: a, audiences: [k], caFile: tls/a.crt, username: { claim: \"\", prefix: \"\" } }]",
            ),
            &[
                "r.yaml:10:31: issuer `a` cannot be asked for its keys (write an https URL, or give `keyFile`)",
                "r.yaml:10:88: the claim has no name (write one, such as sub)",
            ][..],
        ),
        (
            cluster("  hosts", "  identity: { mode: frontProxy }\n  hosts"),
            &[
                "r.yaml:5:21: frontProxy needs a client certificate of the gateway (give `credentials.clientCertFile` and `clientKeyFile`)",
            ][..],
        ),
        (
            cluster(
                "{ anonymous: true }",
                "{ clientCAFile: tls/a.crt }\n  identity: { mode: passThrough }",
            ),
            &[
                "r.yaml:11:21: passThrough carries bearer tokens only (a client's certificate cannot be passed on; remove `clients.clientCAFile`)",
            ][..],
        ),
        (
            cluster("{ anonymous: true }", "{ clientCAFile: tls/b.crt }"),
            &[
                "r.yaml:10:28: spec.clients.clientCAFile names `tls/b.crt`, which cannot be read: No such file or directory (os error 2) (looked at tls/b.crt)",
            ][..],
        ),
        (
            cluster("{ anonymous: true }", "{ clientCAFile: \"\" }"),
            &["r.yaml:10:28: spec.clients.clientCAFile is empty"][..],
        ),
        (
            cluster(
                "  hosts",
                "  health: { path: readyz, interval: 0s, timeout: 0ms }\n  hosts",
            ),
            &[
                "r.yaml:5:19: health.path `readyz` does not begin with a slash (write a path such as /readyz)",
                "r.yaml:5:37: health.interval is zero (write more than zero, such as 1s)",
                "r.yaml:5:50: health.timeout is zero (write more than zero, such as 1s)",
            ][..],
        ),
        (
            cluster("  hosts", "  breaker: { failurePercent: 300 }\n  hosts"),
            &[
                "r.yaml:5:30: `300` is not a number that fits here (write a whole number without unit)",
            ][..],
        ),
    ] {
        check_rules(&text, expected);
    }
}

#[test]
fn clusters_that_cannot_stand_together_are_faults() {
    for (text, expected) in [
        (
            two(CLUSTER, CLUSTER),
            &[
                "r.yaml:14:19: cluster `prod` is defined twice (the first is at r.yaml:3:19)",
                "r.yaml:16:11: host `prod.example.com` is already of cluster `prod` (a host has one owner)",
            ][..],
        ),
        (
            two(
                &cluster("  hosts", "  default: true\n  hosts"),
                &cluster("  hosts: [prod.", "  default: true\n  hosts: [PROD.").replacen(
                    "name: prod",
                    "name: b",
                    1,
                ),
            ),
            &[
                "r.yaml:17:12: a second default; `prod` is one (the first is at r.yaml:5:12)",
                "r.yaml:18:11: host `prod.example.com` is already of cluster `prod` (a host has one owner)",
            ][..],
        ),
    ] {
        check_rules(&text, expected);
    }
}

#[test]
fn rules_that_cannot_work_are_faults() {
    for (text, expected) in [
        (
            rates(
                "  - { name: a, match: { users: [\"\"], groups: [\"\"], nonResourcePaths: [\"\"] }, inFlight: { max: 1 } }\n",
            ),
            &[
                "r.yaml:7:33: an empty entry of `users` matches nothing",
                "r.yaml:7:47: an empty entry of `groups` matches nothing",
                "r.yaml:7:71: an empty entry of `nonResourcePaths` matches nothing",
            ][..],
        ),
        (
            rates("  - { name: a, match: { users: [\"-\"] }, inFlight: { max: 1 } }\n"),
            &["r.yaml:7:33: `-` excludes nothing (name what to exclude)"][..],
        ),
        (
            rates("  - { name: a, match: { resources: [pods/*] }, inFlight: { max: 1 } }\n"),
            &["r.yaml:7:37: `pods/*` is no one subresource (list each, or use `*`)"][..],
        ),
        (
            rates(
                "  - { name: a, match: { names: [p], namespaces: [\"*\"], nonResourcePaths: [/x] }, inFlight: { max: 1 } }\n",
            ),
            &[
                "r.yaml:7:32: rule `a` can never match: `names` is of resources, `nonResourcePaths` is not (make two rules of it)",
            ][..],
        ),
        (
            rates(
                "  - { name: a, match: { resources: [pods], nonResourcePaths: [/x], verbs: [post] }, longRunning: { max: 1 } }\n",
            ),
            &[][..],
        ),
        (
            RATES.replace("rules:", "rules: []"),
            &["r.yaml:6:10: no rules (give at least one, or remove the object)"][..],
        ),
        (
            rates("  - { name: a }\n"),
            &[
                "r.yaml:7:13: rule `a` has no limit (give `rate`, `inFlight` or `longRunning`, or say `exempt: true` or `refuse`)",
            ][..],
        ),
        (
            rates("  - { name: a, exempt: true, rate: { perSecond: 1 } }\n"),
            &["r.yaml:7:24: rule `a` is exempt and has a limit (keep `exempt` or the limits)"][..],
        ),
        (
            rates("  - { name: a, refuse: busy, rate: { perSecond: 1 } }\n"),
            &["r.yaml:7:24: rule `a` refuses all, and is exempt or has a limit (keep one of them)"]
                [..],
        ),
        (
            rates("  - { name: a, refuse: never }\n"),
            &["r.yaml:7:24: unknown value `never` (known: busy, forbidden)"][..],
        ),
        (
            rates("  - { name: a, exempt: true, share: s }\n"),
            &["r.yaml:7:37: rule `a` has no limit to share (remove `share`, or give a limit)"][..],
        ),
        (
            rates(
                "  - { name: a, match: { verbs: [list] }, share: s, rate: { perSecond: 1 } }\n  \
                 - { name: b, share: s, rate: { perSecond: 2 } }\n",
            ),
            &[
                "r.yaml:8:23: rules `a` and `b` share `s` and have different limits (write the same limits in both)",
            ][..],
        ),
        (
            rates("  - { name: a, exempt: true, mode: observe }\n"),
            &["r.yaml:7:24: rule `a` is exempt: there is nothing to observe (remove `mode`)"][..],
        ),
        (
            rates("  - { name: a, rate: { perSecond: 0 } }\n"),
            &["r.yaml:7:35: `0` is not a count (write a whole number, one or more)"][..],
        ),
        (
            rates("  - { name: a, rate: { perSecond: 1, burst: 0 } }\n"),
            &["r.yaml:7:45: `0` is not a count (write a whole number, one or more)"][..],
        ),
        (
            rates("  - { name: a, rate: { perSecond: 1, burst: -5 } }\n"),
            &["r.yaml:7:45: `-5` is not a count (write a whole number, one or more)"][..],
        ),
        (
            rates("  - { name: a, rate: { perSecond: 1, key: [user, user] } }\n"),
            &["r.yaml:7:43: key field `user` is given twice"][..],
        ),
        (
            rates("  - { name: a, rate: { perSecond: 1, key: [users] } }\n"),
            &[
                "r.yaml:7:44: unknown value `users` (did you mean `user`? known: user, verb, resource, namespace)",
            ][..],
        ),
        (
            rates("  - { name: a, inFlight: { max: 0 } }\n"),
            &["r.yaml:7:33: `0` is not a count (write a whole number, one or more)"][..],
        ),
        (
            rates("  - { name: a, inFlight: { max: 1, queue: { max: 0, wait: 2 } } }\n"),
            &["r.yaml:7:50: `0` is not a count (write a whole number, one or more)"][..],
        ),
        (
            rates("  - { name: a, inFlight: { max: 1, queue: { max: 10001, wait: 61s } } }\n"),
            &[
                "r.yaml:7:50: more than 10000 are not kept waiting (refuse sooner: clients come again by themselves)",
                "r.yaml:7:63: wait is longer than 60s (clients would have given up before)",
            ][..],
        ),
        (
            rates(
                "  - { name: a, mode: observe, inFlight: { max: 1, queue: { max: 1, wait: 0s } } }\n",
            ),
            &[
                "r.yaml:7:58: rule `a` observes, and observing lets nobody wait (remove `queue`, or let the rule enforce)",
                "r.yaml:7:74: wait is zero (write more than zero, such as 1s)",
            ][..],
        ),
        (
            rates("  - { name: a, longRunning: { max: 1, queue: { max: 1, wait: 1s } } }\n"),
            &["r.yaml:7:39: unknown field `queue` (known: max, key)"][..],
        ),
        (
            rates("  - { name: a, match: { verbs: [] }, inFlight: { max: 1 } }\n"),
            &[
                "r.yaml:7:32: `verbs` is empty and matches nothing (remove the field to match any, or write what it should match)",
            ][..],
        ),
        (
            rates("  - { name: a, match: { verbs: [lst] }, inFlight: { max: 1 } }\n"),
            &["r.yaml:7:33: `lst` is not a verb (did you mean `list`?)"][..],
        ),
        (
            rates("  - { name: a, match: { verbs: [get, -get] }, inFlight: { max: 1 } }\n"),
            &[
                "r.yaml:7:32: `verbs` excludes all that it includes (an excluding entry wins over an including one)",
            ][..],
        ),
        (
            rates("  - { name: a, match: { verbs: [\"-*\"] }, inFlight: { max: 1 } }\n"),
            &[
                "r.yaml:7:32: `verbs` excludes all that it includes (an excluding entry wins over an including one)",
            ][..],
        ),
        (
            rates(
                "  - { name: a, match: { users: [\"system:node:*\", \"-system:*\"] }, inFlight: { max: 1 } }\n",
            ),
            &[
                "r.yaml:7:32: `users` excludes all that it includes (an excluding entry wins over an including one)",
            ][..],
        ),
        (
            rates("  - { name: a, match: { resources: [pods/] }, inFlight: { max: 1 } }\n"),
            &["r.yaml:7:37: `pods/` is not a resource (write resource[.group][/subresource])"][..],
        ),
        (
            rates(
                "  - { name: a, match: { resources: [pods], verbs: [post] }, inFlight: { max: 1 } }\n",
            ),
            &[
                "r.yaml:7:51: rule `a` can never match: no such verb on resources (the verbs are those of RBAC)",
            ][..],
        ),
        (
            rates(
                "  - { name: a, match: { nonResourcePaths: [/metrics], verbs: [list, watch] }, inFlight: { max: 1 } }\n",
            ),
            &[
                "r.yaml:7:62: rule `a` can never match: no such verb on non-resource paths (the verbs are those of RBAC)",
            ][..],
        ),
        (
            rates(
                "  - { name: a, rate: { perSecond: 1 } }\n  - { name: a, rate: { perSecond: 1 } }\n",
            ),
            &[
                "r.yaml:8:13: rule `a` is given twice (names keep a limit's state over reloads)",
                "r.yaml:8:13: rule `a` can never match: `a` of `r` takes all its requests (put it before r.yaml:7, or make that one narrower)",
            ][..],
        ),
        (
            rates("  - { name: a, rate: { perSecond: 1 } }\n").replace("\"*\"", "prd"),
            &[
                "r.yaml:5:12: unknown cluster `prd` (write a cluster's name, `local`, or \"*\" for all)",
            ][..],
        ),
        (
            two(
                CLUSTER,
                &rates("  - { name: a, rate: { perSecond: 1 } }\n").replace("\"*\"", "prd"),
            ),
            &["r.yaml:16:12: unknown cluster `prd` (did you mean `prod`?)"][..],
        ),
        (
            rates("  - { name: a, match: { namespace: [x] }, rate: { perSecnd: 1 } }\n"),
            &[
                "r.yaml:7:25: unknown field `namespace` (did you mean `namespaces`? known: users, groups, verbs, resources, namespaces, names, userAgents, nonResourcePaths)",
            ][..],
        ),
    ] {
        check_rules(&text, expected);
    }
}

#[test]
fn process_files_that_cannot_work_are_faults() {
    for (more, expected) in [
        (
            "api: { default: true }\n",
            &[
                "g.yaml:6:6: api needs a metastore to serve from (add `metastore`, or leave out `api`)",
                "g.yaml:6:6: nobody can be known to the api (give `clientCAFile` here or under listen.tls)",
            ][..],
        ),
        (
            "metastore: { dataDir: d }\napi: {}\n",
            &[
                "g.yaml:7:6: no request can reach the api (give it `hosts`, or `default: true`)",
                "g.yaml:7:6: nobody can be known to the api (give `clientCAFile` here or under listen.tls)",
            ][..],
        ),
        (
            "metastore: { dataDir: d, quotaBytes: 0B }\n",
            &["g.yaml:6:12: metastore.quotaBytes is zero (write a size such as 8GiB)"][..],
        ),
        (
            "metastore: { dataDir: d, memoryLimit: 0B }\n",
            &[
                "g.yaml:6:12: metastore.memoryLimit is zero (write a size such as 256MiB, or leave it out)",
            ][..],
        ),
        (
            "metastore: { dataDir: d, quotaBytes: 100 }\n",
            &[
                "g.yaml:6:38: `100` is not a size (write a number and B, KiB, MiB, GiB or TiB, such as 100MiB)",
            ][..],
        ),
        (
            "metastore: { dataDir: d, etcd: { address: 127.0.0.1:2379 } }\n",
            &[
                "g.yaml:6:32: the etcd listener has no tls (give `tls`, or `insecureLoopback: true` with a loopback address)",
            ][..],
        ),
        (
            "metastore: { dataDir: d, etcd: { address: 0.0.0.0:2379, insecureLoopback: true } }\n",
            &[
                "g.yaml:6:43: the etcd listener would be open to the network (give `tls`, or a loopback address)",
            ][..],
        ),
        (
            "metastore: { dataDir: d, etcd: { address: 127.0.0.1:6443, insecureLoopback: true, tls: { certFile: tls/a.crt, keyFile: tls/a.key, clientCAFile: tls/a.crt } } }\n",
            &[
                "g.yaml:6:32: the etcd listener is both with and without tls (keep one of `tls` and `insecureLoopback`)",
                "g.yaml:6:43: metastore.etcd and listen listen on the same address (give each its own port)",
            ][..],
        ),
        (
            "metastore: { dataDir: d, etcd: { address: 127.0.0.1:2379, insecureLoopback: true, access: { writers: [a, \"\"], readers: [a], breakGlass: { reason: \" \" } } } }\n",
            &[
                "g.yaml:6:91: access by certificate name needs certificates (give `tls`, or leave out `access`)",
                "g.yaml:6:106: a name is empty (write the common name of a certificate)",
                "g.yaml:6:121: name `a` is given twice (writers may read too: keep it once)",
                "g.yaml:6:147: the glass is broken without a reason (say why)",
            ][..],
        ),
        (
            "metastore: { dataDir: d, etcd: { address: 127.0.0.1:2379, tls: { certFile: tls/a.crt, keyFile: tls/a.key, clientCAFile: tls/a.crt }, access: { breakGlass: { reason: x, until: tomorrow } } } }\n",
            &[
                "g.yaml:6:176: `tomorrow` is not a moment (write it in UTC, such as 2026-01-31T12:00:00Z)",
            ][..],
        ),
        (
            "metastore: { dataDir: d, etcd: { address: 127.0.0.1:2379, tls: { certFile: tls/a.crt, keyFile: tls/a.key, clientCAFile: tls/a.crt }, access: {} } }\n",
            &[
                "g.yaml:6:142: nobody may use the etcd listener (name who may write or read, or leave out `access`)",
            ][..],
        ),
        (
            "metastore: { dataDir: d, etcd: { address: localhost:2379 } }\n",
            &[
                "g.yaml:6:43: `localhost:2379` is not an IP address with a port, such as 0.0.0.0:6443",
            ][..],
        ),
        (
            "admin: { address: 127.0.0.1:6443, tls: { certFile: tls/a.crt, keyFile: tls/a.key, clientCAFile: tls/a.crt }, allowedGroups: [] }\n",
            &[
                "g.yaml:6:52: nobody may use the admin listener (name a group or a user, or leave out `admin`)",
                "g.yaml:6:52: admin and listen listen on the same address (give each its own port)",
            ][..],
        ),
        (
            "admin: { address: 127.0.0.1:9443, tls: { certFile: tls/a.crt, keyFile: tls/a.key } }\n",
            &[
                "g.yaml:6:63: field `clientCAFile` is missing (add `clientCAFile:` beside the fields here)",
            ][..],
        ),
        (
            "rulesDir: nowhere\n",
            &[
                "g.yaml:6:11: rulesDir names `nowhere`, which cannot be read: No such file or directory (os error 2) (looked at nowhere)",
            ][..],
        ),
        (
            "audit: { path: a.log, maxSize: 0B }\n",
            &["g.yaml:6:32: audit.maxSize is zero (write a size such as 100MiB)"][..],
        ),
        (
            "tracing: { endpoint: \"https://c:4318/v1/traces\", samplesPerMillion: 0 }\n",
            &[
                "g.yaml:6:22: tracing.endpoint is https, and nobody's certificate is believed (give `caFile`)",
            ][..],
        ),
        (
            "tracing: { endpoint: \"http://c/v1/traces\", caFile: tls/a.crt, samplesPerMillion: 1000001 }\n",
            &[
                "g.yaml:6:52: tracing.caFile is of no use: the endpoint is http (remove it, or write https)",
                "g.yaml:6:82: `1000001` of a million is more than all (write 1000000 for all)",
            ][..],
        ),
        (
            "tracing: { endpoint: collector, samplesPerMillion: 0 }\n",
            &[
                "g.yaml:6:22: `collector` is not a collector's URL (write it as https://collector.example.com:4318/v1/traces)",
            ][..],
        ),
        (
            "log: { level: verbose }\n",
            &["g.yaml:6:15: unknown value `verbose` (known: error, warn, info, debug, trace)"][..],
        ),
        (
            "  proxyProtocolFrom: [10.0.0.1/8]\n",
            &[
                "g.yaml:6:23: `10.0.0.1/8` is an address within a network (write 10.0.0.0/8, or the address alone)",
            ][..],
        ),
        (
            "  forwardedForFrom: [\"::/0\"]\n",
            &["g.yaml:6:22: `::/0` is everybody (name the networks of your own proxies)"][..],
        ),
        (
            "  forwardedForFrom: [10.0.0.0/8, 10.1.0.0/16]\n",
            &[
                "g.yaml:6:34: listen.forwardedForFrom: `10.1.0.0/16` is within `10.0.0.0/8` (keep one of them)",
            ][..],
        ),
        (
            "drainTimeout: 30\n",
            &[
                "g.yaml:6:15: `30` is not a duration (write a number and ms, s, m or h, such as 200ms)",
            ][..],
        ),
        (
            "---\napiVersion: sluice.io/v1alpha1\nkind: RateRules\n",
            &[
                "g.yaml:8:7: kind RateRules does not belong in the process file (move it to a file in rulesDir)",
            ][..],
        ),
    ] {
        check_process(&format!("{PROCESS}{more}"), expected);
    }
    check_process(
        &format!("{PROCESS}---\n{PROCESS}"),
        &["g.yaml: more than one GatewayConfig; keep one"],
    );
    check_process(
        "# nothing\n",
        &["g.yaml: holds no GatewayConfig; write one"],
    );
}

/// One fault a document, and every document's.
#[test]
fn every_document_of_every_file_is_heard() {
    let dir = folder(&[
        (
            "b.yml",
            &two(&cluster("hosts", "host"), &rates("  - { name: a }\n")),
        ),
        (
            "a.yaml",
            &two("# only a comment\n", &cluster("prod.example.com", "x:1")),
        ),
        ("c.txt", "not: ours"),
        (".hidden.yaml", "not: ours"),
    ]);
    let faults = load_rules(dir.path()).unwrap_err();
    assert_eq!(
        lines(&faults, dir.path()),
        [
            "a.yaml:7:11: host `x:1` must be a name without port",
            "b.yml:5:3: unknown field `host` (did you mean `hosts`? known: hosts, default, serving, endpoints, discovery, subsets, balance, tls, credentials, identity, clients, health, ejection, breaker, timeouts, tunnels)",
            "b.yml:18:13: rule `a` has no limit (give `rate`, `inFlight` or `longRunning`, or say `exempt: true` or `refuse`)"
        ]
    );
}

#[test]
fn excerpts_point_at_the_column() {
    let dir = folder(&[("r.yaml", &cluster("hosts", "host"))]);
    let faults = load_rules(dir.path()).unwrap_err();
    let shown = faults.render();
    assert!(
        shown.contains(
            "\n  5 |   host: [prod.example.com]\n    |   ^\n  help: did you mean `hosts`?"
        ),
        "{shown}"
    );
}

#[test]
fn process_and_rules_are_checked_together() {
    let api = "metastore: { dataDir: d }\napi: { hosts: [prod.example.com], default: true, clientCAFile: tls/a.crt }\nrulesDir: .\n";
    let rules = two(
        &cluster("  hosts", "  default: true\n  hosts"),
        &rates("  - { name: a, rate: { perSecond: 1 } }\n"),
    );
    for (process, rules, expected) in [
        (
            api,
            rules.as_str(),
            &[
                "conf/g.conf:7:16: host `prod.example.com` is also of cluster `prod` (a host has one owner)",
                "conf/g.conf:7:44: both the api and cluster `prod` are the default (keep one default)",
            ][..],
        ),
        (
            "rulesDir: .\n",
            &rates("  - { name: a, rate: { perSecond: 1 } }\n").replace("\"*\"", "local"),
            &[
                "conf/../r.yaml:5:12: rules for cluster `local`, but the process file has no `api` (add `api` to the process file or name a cluster)",
                "conf/g.conf: neither an api nor any UpstreamCluster: there is nothing to serve (add an UpstreamCluster to rulesDir, or `metastore` and `api`)",
            ][..],
        ),
        (
            "",
            "",
            &[
                "conf/g.conf: neither an api nor any UpstreamCluster: there is nothing to serve (add an UpstreamCluster to rulesDir, or `metastore` and `api`)",
            ][..],
        ),
        (
            "rulesDir: .\ndrain: 1s\n",
            "kind: x\n",
            &[
                "conf/g.conf:7:1: unknown field `drain` (known: apiVersion, kind, listen, admin, metastore, api, rulesDir, lastGoodFile, zone, audit, upgradeSocket, shutdownDelay, drainTimeout, log, tracing)",
            ][..],
        ),
    ] {
        let dir = folder(&[("r.yaml", rules)]);
        fs::create_dir(dir.path().join("conf")).unwrap();
        let process = process.replace("rulesDir: .", "rulesDir: ..");
        let process = format!("{PROCESS}{process}").replace("tls/", "../tls/");
        fs::write(dir.path().join("conf/g.conf"), process).unwrap();
        let faults = load(&dir.path().join("conf/g.conf")).unwrap_err();
        assert_eq!(lines(&faults, dir.path()), expected);
    }
}

/// Two rules in a row: is the second hidden by the first?
#[test]
fn hidden_rules_are_faults_and_only_those() {
    for (first, second, is_hidden) in [
        ("", "", true),
        ("", "users: [a]", true),
        ("users: [a]", "", false),
        ("users: [a, b]", "users: [b]", true),
        ("users: [a, b]", "users: [b, c]", false),
        ("users: [\"system:*\"]", "users: [\"system:node:*\"]", true),
        ("users: [\"system:node:*\"]", "users: [\"system:*\"]", false),
        ("users: [-a]", "users: [b]", true),
        ("users: [-a]", "users: [a]", false),
        ("users: [-a]", "users: [\"*\"]", false),
        ("users: [-a]", "users: [\"b*\"]", false),
        ("users: [-a]", "users: [-a, -b]", true),
        ("users: [-a, -b]", "users: [-a]", false),
        ("users: [\"-a*\"]", "users: [-ab]", false),
        ("users: [-ab]", "users: [\"-a*\"]", true),
        // The user may be in the excluded group as well.
        ("groups: [-a]", "groups: [b]", false),
        ("groups: [a]", "groups: [a, -b]", true),
        ("groups: [-a]", "groups: [b, -a]", true),
        ("verbs: [get, list]", "verbs: [list]", true),
        ("verbs: [\"*\"]", "verbs: [list]", true),
        ("verbs: [\"*\"]", "", false),
        ("resources: [\"*\"]", "resources: [pods]", true),
        ("resources: [pods]", "resources: [pods.]", true),
        ("resources: [pods]", "resources: [pods/log]", false),
        ("resources: [\"*\"]", "", false),
        ("resources: [\"*\"]", "namespaces: [a]", false),
        ("resources: [\"*\"]", "nonResourcePaths: [/x]", false),
        (
            "resources: [\"*\"], nonResourcePaths: [\"*\"]",
            "nonResourcePaths: [/x]",
            true,
        ),
        (
            "resources: [\"*\"], nonResourcePaths: [/y]",
            "nonResourcePaths: [/x]",
            false,
        ),
        (
            "resources: [pods], namespaces: [a]",
            "resources: [pods]",
            false,
        ),
        (
            "resources: [pods]",
            "resources: [pods], namespaces: [a]",
            true,
        ),
        (
            "userAgents: [\"kubectl/*\"]",
            "userAgents: [\"kubectl/v1*\"], names: [x]",
            true,
        ),
    ] {
        let rule = |name: &str, matches: &str| {
            format!("  - {{ name: {name}, match: {{ {matches} }}, rate: {{ perSecond: 1 }} }}\n")
        };
        let text = rates(&(rule("one", first) + &rule("two", second)));
        let fault = "r.yaml:8:13: rule `two` can never match: `one` of `r` takes all its requests (put it before r.yaml:7, or make that one narrower)";
        let expected: &[&str] = if is_hidden { &[fault] } else { &[] };
        check_rules(&text, expected);
    }
}

#[test]
fn only_rules_that_enforce_on_the_same_cluster_hide() {
    let other = |name: &str| {
        cluster("name: prod", &format!("name: {name}"))
            .replace("prod.example", &format!("{name}.example"))
    };
    let rules = |name: &str, cluster: &str, mode: &str| {
        rates(&format!(
            "  - {{ name: {name}, mode: {mode}, rate: {{ perSecond: 1 }} }}\n"
        ))
        .replace("name: r }", &format!("name: of-{name} }}"))
        .replace("\"*\"", cluster)
    };
    for (first, first_mode, second, second_mode, is_hidden) in [
        ("a", "enforce", "a", "enforce", true),
        ("\"*\"", "enforce", "a", "enforce", true),
        ("\"*\"", "enforce", "a", "observe", true),
        ("\"*\"", "enforce", "a", "off", false),
        ("\"*\"", "observe", "a", "enforce", false),
        ("\"*\"", "off", "a", "enforce", false),
        ("a", "enforce", "\"*\"", "enforce", false),
        ("a", "enforce", "b", "enforce", false),
    ] {
        let clusters = two(&other("a"), &other("b"));
        let rules = two(
            &rules("one", first, first_mode),
            &rules("two", second, second_mode),
        );
        let dir = folder(&[("c.yaml", &clusters), ("r.yaml", &rules)]);
        let count = load_rules(dir.path())
            .err()
            .map_or(0, |faults| faults.len());
        assert_eq!(
            count,
            usize::from(is_hidden),
            "{first} {first_mode} {second} {second_mode}"
        );
    }
}
