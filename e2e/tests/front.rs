//! A gateway in front of two real kube-apiservers on a real etcd: who comes in and as whom, how
//! requests are spread, and what clients notice when things behind the gateway or it itself change.
//!
//! The parts take seconds to start, so one test starts them once and walks through the cases; each
//! case is a function that says what it shows.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_e2e::client::Client;
use sluice_e2e::etcd::Etcd;
use sluice_e2e::kubectl::Credential;
use sluice_e2e::load::Load;
use sluice_e2e::parts::Parts;
use sluice_e2e::pki::Authority;
use sluice_e2e::process::eventually;
use sluice_e2e::sluice;
use sluice_e2e::stack::{Stack, StackOptions, Store};

const TOKENS: &[(&str, &str, &[&str])] = &[
    ("alice-token", "alice", &["dev"]),
    ("bob-token", "bob", &["dev"]),
];

const RULES: &str = r#"
apiVersion: sluice.io/v1alpha1
kind: RateRules
metadata: { name: limits }
spec:
  cluster: main
  rules:
  - name: alice-is-noisy
    match: { users: [alice], verbs: [list], resources: [configmaps] }
    mode: enforce
    rate: { perSecond: 1, burst: 3, key: [user] }
"#;

const SERVICE_ACCOUNTS: &str =
    "    serviceAccounts:\n      issuers: [\"https://kubernetes.default.svc\"]\n";

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Of the 95 groups those about what a gateway has most to do with: who somebody is, on whose behalf,
/// large answers of known length, watches that have to arrive at once.
const FEW_GROUPS: &str =
    "^run_(swagger|impersonation|exec_credentials|kubectl_auth_whoami|assert_short_name)_tests$";

/// The whole suite is `make conformance PART=kubectl`.
#[test]
fn a_few_groups_of_kubernetes_own_kubectl_suite() {
    let dir = tempfile::tempdir().unwrap();
    let summary = dir.path().join("summary.tsv");
    let suite = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/kubectl/suite.sh");
    let output = Command::new("bash")
        .arg(suite)
        .env("SLUICE", sluice::binary().canonicalize().unwrap())
        .env("OUT", dir.path())
        .env("SUMMARY", &summary)
        .env("WAYS", "certificate")
        .env("RUN", FEW_GROUPS)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let text = std::fs::read_to_string(&summary).unwrap();
    if output.status.success() && text.contains("\tSKIPPED\t") {
        // Not by a macro: the harness keeps those of passing tests to itself.
        let line = format!("SKIPPED: {}\n", text.trim().replace('\t', " "));
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return;
    }
    assert!(output.status.success(), "{said}");
    assert_eq!(text, "kubectl-certificate\t5\t0\t0\t0\n", "{said}");
    let log = dir.path().join("kubectl-certificate/stack/sluice.log");
    sluice::without_panic(&log);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_apiservers_behind_one_front() {
    let Some(parts) = Parts::find(&["kube-apiserver", "kubectl", "etcd"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(&parts, dir.path()).await;
    let options = StackOptions {
        store: Store::Etcd(etcd.url.clone()),
        tokens: TOKENS,
        rules: Some(RULES),
        clients: SERVICE_ACCOUNTS,
        ..StackOptions::default()
    };
    let mut stack = Stack::new(&parts, dir.path(), &options);
    stack.start().await;
    grant_dev(&stack).await;

    certificates_and_tokens_name_their_users(&stack).await;
    a_bad_credential_is_401_and_none_is_401(&stack).await;
    a_strangers_certificate_does_not_fail_the_handshake(&stack).await;
    a_service_account_is_whom_the_apiserver_says(&stack).await;
    impersonation_is_authorised_and_written_down(&stack, &parts).await;
    identity_headers_of_clients_do_not_survive(&stack).await;
    kubectl_works_by_certificate_and_by_token(&stack, &parts);
    ten_thousand_requests_of_one_connection_are_spread(&stack).await;
    one_user_is_limited_and_another_is_not(&stack).await;
    rules_reload_under_load_without_a_failed_request(&stack).await;
    a_tripped_breaker_refuses_and_a_ramp_lets_in(&stack).await;
    an_apiserver_dies_and_returns_without_a_failed_get(&mut stack).await;
    an_outage_of_all_apiservers_is_503_and_not_401(&mut stack).await;
    the_audit_says_who_did_what(&stack);
    metrics_and_profiles_count_it(&stack).await;
}

/// With a front proxy's certificate users travel in `X-Remote-*`, and the gateway asks its own
/// questions as a user of its own, who needs the usual role of those that ask.
#[tokio::test(flavor = "multi_thread")]
async fn a_front_proxy_carries_users_and_asks_as_itself() {
    let Some(parts) = Parts::find(&["kube-apiserver", "etcd"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(&parts, dir.path()).await;
    let options = StackOptions {
        store: Store::Etcd(etcd.url.clone()),
        apiservers: 1,
        identity: "frontProxy",
        tokens: TOKENS,
        ..StackOptions::default()
    };
    let mut stack = Stack::new(&parts, dir.path(), &options);
    stack.start().await;
    assert_eq!(whoami(&stack.admin()).await["username"], "admin");
    let alice = stack.client(None).with_token("alice-token");
    // Not allowed to ask yet: an outage, and no verdict on the token.
    let unasked = alice.once("GET", CONFIGMAPS, "").await.unwrap();
    assert_eq!(unasked.status, 503);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "sluice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:sluice"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let bound = stack.admin().once("POST", path, binding.to_string()).await;
    assert_eq!(bound.unwrap().status, 201);
    let seen = whoami(&alice).await;
    assert_eq!(
        (&seen["username"], &seen["uid"]),
        (&json!("alice"), &json!("uid-alice"))
    );
    grant_dev(&stack).await;
    let request = alice
        .request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("content-type", "application/json")
        .header("impersonate-user", "bob")
        .body(http_body_util::Full::from(
            r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#,
        ))
        .unwrap();
    let answer = alice
        .http2()
        .await
        .unwrap()
        .exchange(request)
        .await
        .unwrap();
    assert_eq!(answer.json()["status"]["userInfo"]["username"], "bob");
}

/// What the group `dev` may do, and that alice may be bob.
async fn grant_dev(stack: &Stack) {
    let admin = stack.admin().http2().await.unwrap();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "dev"},
        "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "dev"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dev"},
        "subjects": [
            {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "dev"},
            {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"},
        ],
    });
    let base = "/apis/rbac.authorization.k8s.io/v1";
    for (kind, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let answer = admin
            .send("POST", &format!("{base}/{kind}"), object.to_string())
            .await;
        assert_eq!(answer.unwrap().status, 201);
    }
}

async fn whoami(client: &Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = client.once("POST", path, review.to_string()).await.unwrap();
    assert_eq!(
        answer.status,
        201,
        "{}",
        String::from_utf8_lossy(&answer.body)
    );
    answer.json()["status"]["userInfo"].clone()
}

async fn certificates_and_tokens_name_their_users(stack: &Stack) {
    let admin = whoami(&stack.admin()).await;
    assert_eq!(admin["username"], "admin");
    assert!(
        admin["groups"]
            .as_array()
            .unwrap()
            .contains(&json!("system:masters"))
    );
    let jane = stack.pki.authority.issue("jane", &["dev"], &[]);
    let jane = whoami(&stack.client(Some(&jane))).await;
    assert_eq!(jane["username"], "jane");
    assert_eq!(jane["groups"], json!(["dev", "system:authenticated"]));
    let alice = whoami(&stack.client(None).with_token("alice-token")).await;
    assert_eq!(
        (&alice["username"], &alice["uid"]),
        (&json!("alice"), &json!("uid-alice"))
    );
}

async fn a_bad_credential_is_401_and_none_is_401(stack: &Stack) {
    for client in [stack.client(None).with_token("wrong"), stack.client(None)] {
        let answer = client.once("GET", CONFIGMAPS, "").await.unwrap();
        assert_eq!(answer.status, 401);
        assert_eq!(answer.json()["reason"], "Unauthorized");
        assert_eq!(answer.headers["x-sluice-origin"], "authn");
    }
}

/// A certificate of an authority that nobody here knows is a 401, and a token beside it counts.
async fn a_strangers_certificate_does_not_fail_the_handshake(stack: &Stack) {
    let stranger = Authority::new(&stack.dir, "stranger-ca");
    let stranger = stranger.issue("intruder", &["system:masters"], &[]);
    let client = stack.client(Some(&stranger));
    let answer = client.once("GET", CONFIGMAPS, "").await.unwrap();
    assert_eq!(answer.status, 401);
    assert_eq!(answer.headers["x-sluice-origin"], "authn");
    let alice = whoami(&client.with_token("alice-token")).await;
    assert_eq!(alice["username"], "alice");
}

async fn tokenreviews(stack: &Stack) -> f64 {
    let mut all = 0.0;
    for apiserver in &stack.apiservers {
        let needles = ["resource=\"tokenreviews\""];
        all += apiserver.counter("apiserver_request_total", &needles).await;
    }
    all
}

/// A29: a service account's token, judged by its signature, is the same user as without the
/// gateway, uid and extras included; and forged ones are no question to the apiservers.
async fn a_service_account_is_whom_the_apiserver_says(stack: &Stack) {
    let base = "/api/v1/namespaces/default/serviceaccounts";
    let admin = stack.admin();
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let made = admin.once("POST", base, account.to_string()).await.unwrap();
    assert_eq!(made.status, 201);
    let ask = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    });
    let path = format!("{base}/robot/token");
    let made = admin.once("POST", &path, ask.to_string()).await.unwrap();
    assert_eq!(made.status, 201);
    let made = made.json();
    let token = made["status"]["token"].as_str().unwrap();
    let port = stack.apiservers[0].port;
    let direct = Client::new(port, &stack.pki.authority.ca, None).with_token(token);
    let through = whoami(&stack.client(None).with_token(token)).await;
    assert_eq!(through["username"], "system:serviceaccount:default:robot");
    assert_eq!(through, whoami(&direct).await);

    let before = tokenreviews(stack).await;
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let forged: String = signature.chars().rev().collect();
    let connection = stack.client(None).http2().await.unwrap();
    for n in 0..100 {
        let forged = format!(
            "Bearer {signed}.{}{forged}",
            if n % 2 == 0 { "" } else { "AAAA" }
        );
        let request = stack
            .client(None)
            .request("GET", CONFIGMAPS)
            .header("authorization", forged)
            .body(http_body_util::Full::default())
            .unwrap();
        assert_eq!(connection.exchange(request).await.unwrap().status, 401);
    }
    assert!((tokenreviews(stack).await - before).abs() < 0.5);
}

async fn impersonation_is_authorised_and_written_down(stack: &Stack, parts: &Parts) {
    let alice = stack.kubectl(parts, "alice", &Credential::Token("alice-token"));
    let as_bob = alice.ok(&[
        "auth",
        "whoami",
        "--as=bob",
        "-o=jsonpath={.status.userInfo.username}",
    ]);
    assert_eq!(as_bob, "bob");
    let client = stack.client(None).with_token("alice-token");
    let request = client
        .request("GET", CONFIGMAPS)
        .header("impersonate-user", "admin")
        .body(http_body_util::Full::default())
        .unwrap();
    let refused = client
        .http2()
        .await
        .unwrap()
        .exchange(request)
        .await
        .unwrap();
    assert_eq!(refused.status, 403);
    let why = refused.json()["message"].to_string();
    assert!(why.contains("cannot impersonate"), "{why}");
}

async fn identity_headers_of_clients_do_not_survive(stack: &Stack) {
    let client = stack.client(None).with_token("bob-token");
    let connection = client.http2().await.unwrap();
    for (name, value) in [
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
        ("connection-identity", "impersonate-user"),
    ] {
        let request = client
            .request("GET", "/api/v1/secrets")
            .header(name, value)
            .body(http_body_util::Full::default())
            .unwrap();
        assert_eq!(
            connection.exchange(request).await.unwrap().status,
            403,
            "{name}"
        );
    }
}

fn kubectl_works_by_certificate_and_by_token(stack: &Stack, parts: &Parts) {
    let admin = stack.kubectl(parts, "admin", &Credential::Certificate(&stack.pki.admin));
    admin.ok(&["create", "namespace", "front"]);
    admin.ok(&[
        "-n=front",
        "create",
        "configmap",
        "one",
        "--from-literal=a=b",
    ]);
    admin.ok(&["-n=front", "annotate", "configmap", "one", "x=y"]);
    let bob = stack.kubectl(parts, "bob", &Credential::Token("bob-token"));
    let seen = bob.ok(&[
        "-n=front",
        "get",
        "configmap",
        "one",
        "-o=jsonpath={.data.a}",
    ]);
    assert_eq!(seen, "b");
    bob.ok(&["-n=front", "delete", "configmap", "one", "--wait=true"]);
}

async fn served_gets(stack: &Stack) -> Vec<f64> {
    let mut all = Vec::new();
    for apiserver in &stack.apiservers {
        let needles = ["resource=\"configmaps\"", "verb=\"GET\""];
        all.push(apiserver.counter("apiserver_request_total", &needles).await);
    }
    all
}

async fn ten_thousand_requests_of_one_connection_are_spread(stack: &Stack) {
    const REQUESTS: usize = 10_000;
    const AT_ONCE: usize = 20;
    let before = served_gets(stack).await;
    let connection = stack.admin().http2().await.unwrap();
    let path = format!("{CONFIGMAPS}/kube-root-ca.crt-none");
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (connection, path) = (connection.clone(), path.clone());
        workers.spawn(async move {
            for _ in 0..REQUESTS / AT_ONCE {
                let answer = connection.send("GET", &path, "").await.unwrap();
                assert_eq!(answer.status, 404);
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    let after = served_gets(stack).await;
    let served: Vec<f64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    println!("10,000 requests of one connection: {served:?}");
    let half = REQUESTS as f64 / 2.0;
    for share in &served {
        assert!(
            (share - half).abs() <= half * 0.05,
            "spread within 5 %: {served:?}"
        );
    }
}

async fn one_user_is_limited_and_another_is_not(stack: &Stack) {
    let alice = stack
        .client(None)
        .with_token("alice-token")
        .http2()
        .await
        .unwrap();
    let bob = stack
        .client(None)
        .with_token("bob-token")
        .http2()
        .await
        .unwrap();
    let mut refused = 0;
    for _ in 0..10 {
        let answer = alice.send("GET", CONFIGMAPS, "").await.unwrap();
        if answer.status == 429 {
            refused += 1;
            let wait: u32 = answer.headers["retry-after"]
                .to_str()
                .unwrap()
                .parse()
                .unwrap();
            assert!(wait >= 1);
            let status = answer.json();
            assert_eq!(status["reason"], "TooManyRequests");
            assert!(status.to_string().contains("alice-is-noisy"), "{status}");
        } else {
            assert_eq!(answer.status, 200);
        }
        assert_eq!(bob.send("GET", CONFIGMAPS, "").await.unwrap().status, 200);
    }
    assert!(
        (6..=7).contains(&refused),
        "{refused} of 10 lists were refused with a burst of 3"
    );
}

async fn generation(stack: &Stack) -> u64 {
    let answer = stack
        .gateway
        .admin
        .once("GET", "/admin/v1/config", "")
        .await
        .unwrap();
    assert_eq!(answer.status, 200);
    answer.json()["generation"].as_u64().unwrap()
}

async fn rules_reload_under_load_without_a_failed_request(stack: &Stack) {
    let bob = stack.client(None).with_token("bob-token");
    let load = Load::start(&bob, CONFIGMAPS);
    let file = stack.rules.join("limits.yaml");
    for round in 0..5 {
        let before = generation(stack).await;
        std::fs::write(
            &file,
            RULES.replace("burst: 3", &format!("burst: {}", 4 + round)),
        )
        .unwrap();
        let answer = stack
            .gateway
            .admin
            .once("POST", "/admin/v1/reload", "")
            .await
            .unwrap();
        assert!(answer.status.is_success(), "{:?}", answer.json());
        assert!(generation(stack).await > before);
        load.more(50).await;
    }
    // A broken file changes nothing, and is said with its place.
    let good = generation(stack).await;
    std::fs::write(&file, RULES.replace("perSecond: 1", "perSecnd: 1")).unwrap();
    let answer = stack
        .gateway
        .admin
        .once("POST", "/admin/v1/reload", "")
        .await
        .unwrap();
    assert!(!answer.status.is_success());
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(
        text.contains("limits.yaml") && text.contains("perSecnd"),
        "{text}"
    );
    assert_eq!(generation(stack).await, good);
    load.more(50).await;
    std::fs::write(&file, RULES).unwrap();
    load.end("reloads under load").await;
}

async fn a_tripped_breaker_refuses_and_a_ramp_lets_in(stack: &Stack) {
    let bob = stack
        .client(None)
        .with_token("bob-token")
        .http2()
        .await
        .unwrap();
    let admin = stack.gateway.admin.http2().await.unwrap();
    let change = |verb: &str, body: Value| {
        let (admin, path) = (admin.clone(), format!("/admin/v1/breakers/{verb}"));
        async move {
            let answer = admin.send("POST", &path, body.to_string()).await.unwrap();
            assert!(answer.status.is_success(), "{path}: {}", answer.json());
        }
    };
    let client = json!({"scope": "client", "name": "bob", "reason": "a test of the breaker"});
    change("trip", client).await;
    let answer = bob.send("GET", CONFIGMAPS, "").await.unwrap();
    assert!(
        [429, 503].contains(&answer.status.as_u16()),
        "{}",
        answer.status
    );
    assert!(
        answer.json()["message"]
            .as_str()
            .unwrap()
            .contains("a test of the breaker")
    );
    assert_eq!(
        stack
            .admin()
            .once("GET", CONFIGMAPS, "")
            .await
            .unwrap()
            .status,
        200
    );
    let listed = admin
        .send("GET", "/admin/v1/breakers", "")
        .await
        .unwrap()
        .json()
        .to_string();
    assert!(listed.contains("bob"), "{listed}");
    change(
        "ramp",
        json!({"scope": "client", "name": "bob", "from": 50, "over": "2s"}),
    )
    .await;
    let started = Instant::now();
    let (mut let_in, mut kept_out) = (0, 0);
    while started.elapsed() < Duration::from_secs(1) {
        match bob
            .send("GET", CONFIGMAPS, "")
            .await
            .unwrap()
            .status
            .as_u16()
        {
            200 => let_in += 1,
            _ => kept_out += 1,
        }
    }
    println!("within the first half of a ramp from 50 %: {let_in} in, {kept_out} out");
    assert!(let_in > 0 && kept_out > 0);
    eventually("the ramp to end", Duration::from_secs(10), || async {
        for _ in 0..20 {
            let status = bob.send("GET", CONFIGMAPS, "").await.unwrap().status;
            if status != 200 {
                return Err(status.to_string());
            }
        }
        Ok(())
    })
    .await;
}

async fn an_apiserver_dies_and_returns_without_a_failed_get(stack: &mut Stack) {
    let load = Load::start(&stack.admin(), CONFIGMAPS);
    load.more(100).await;
    stack.apiservers[0].kill();
    load.more(500).await;
    stack.apiservers[0].start();
    stack.apiservers[0].ready().await;
    let before = served_lists(stack).await;
    // Back in the pool: it is given requests again.
    let served = &stack.apiservers[0];
    eventually(
        "the returned apiserver to be used",
        Duration::from_secs(30),
        || async {
            let needles = ["resource=\"configmaps\"", "verb=\"LIST\""];
            let now = served.counter("apiserver_request_total", &needles).await;
            if now > before + 50.0 {
                Ok(())
            } else {
                Err(format!("{now} after {before}"))
            }
        },
    )
    .await;
    load.end("an apiserver killed and brought back").await;
}

async fn served_lists(stack: &Stack) -> f64 {
    let needles = ["resource=\"configmaps\"", "verb=\"LIST\""];
    stack.apiservers[0]
        .counter("apiserver_request_total", &needles)
        .await
}

async fn an_outage_of_all_apiservers_is_503_and_not_401(stack: &mut Stack) {
    for apiserver in &mut stack.apiservers {
        apiserver.kill();
    }
    // A token never seen before cannot be judged now, and must not be called wrong.
    for client in [stack.client(None).with_token("never-seen"), stack.admin()] {
        let answer = client.once("GET", CONFIGMAPS, "").await.unwrap();
        assert_eq!(
            answer.status,
            503,
            "{}",
            String::from_utf8_lossy(&answer.body)
        );
        assert!(answer.headers.contains_key("retry-after"));
    }
    for apiserver in &mut stack.apiservers {
        apiserver.start();
    }
    for apiserver in &mut stack.apiservers {
        apiserver.ready().await;
    }
    stack.gateway.ready().await;
}

fn the_audit_says_who_did_what(stack: &Stack) {
    let text = std::fs::read_to_string(&stack.audit).unwrap();
    let events: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    let find = |what: &str, test: &dyn Fn(&Value) -> bool| {
        assert!(events.iter().any(test), "the audit has no event of {what}");
    };
    find("alice being bob", &|e| {
        e["user"]["username"] == "alice" && e["impersonatedUser"]["username"] == "bob"
    });
    find("alice being refused", &|e| {
        e["user"]["username"] == "alice"
            && e["responseStatus"]["code"] == 429
            && e["annotations"]["sluice.io/rule"]
                .as_str()
                .is_some_and(|r| r.contains("noisy"))
    });
    find("an operator tripping a breaker", &|e| {
        e["user"]["username"] == "operator" && e["requestURI"].as_str().unwrap().contains("trip")
    });
    find("an endpoint that answered", &|e| {
        e["annotations"]["sluice.io/endpoint"]
            .as_str()
            .is_some_and(|u| u.contains("https://"))
    });
    for secret in ["alice-token", "bob-token"] {
        assert!(!text.contains(secret), "the audit holds a token");
    }
    let log = std::fs::read_to_string(stack.dir.join("sluice.log")).unwrap();
    for secret in ["alice-token", "bob-token"] {
        assert!(!log.contains(secret), "the log holds a token");
    }
}

async fn metrics_and_profiles_count_it(stack: &Stack) {
    let metrics = stack
        .gateway
        .admin
        .once("GET", "/metrics", "")
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    for name in [
        "sluice_connections_total ",
        "sluice_connections_given_up_total{reason=\"hasty_resets\"}",
        "apiserver_request_total{cluster=\"main\",code=\"200\",verb=\"list\"}",
        "sluice_refusals_total{code=\"429\",stage=\"limit\"}",
        "sluice_endpoint_ready{",
        "sluice_rule_refused_total{",
        "sluice_config_generation",
    ] {
        assert!(
            text.contains(name),
            "{name} is not among the metrics:\n{text}"
        );
    }
    let profiles = stack
        .gateway
        .admin
        .once("GET", "/admin/v1/profiles", "")
        .await
        .unwrap()
        .json();
    let text = profiles.to_string();
    assert!(
        text.contains("\"alice\"") && text.contains("configmaps"),
        "{text}"
    );
}
