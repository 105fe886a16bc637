//! The peer's defects, each as a case by its number, with its own objects where they matter.
//!
//! `e2e/tests/kubegateway.rs` lists all cases and the tests that hold them; those of which no other
//! test knows are here.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use sluice_gateway::authn::{
    Authenticator, AuthenticatorOptions, Impersonation, ReviewFuture, Reviewer,
};
use sluice_gateway::context::Connection;
use sluice_gateway::control::{Control, ControlHandle, ControlOptions, Reloaded};
use sluice_gateway::flow::LiveState;
use sluice_gateway::identity::UserInfo;
use sluice_gateway::request::RequestInfo;
use sluice_gateway::snapshot::RoutingSnapshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::rig::Authority;

const PROCESS: &str = "\
apiVersion: sluice.io/v1alpha1
kind: GatewayConfig
listen: { address: 127.0.0.1:0, tls: { certFile: server.crt, keyFile: server.key } }
rulesDir: rules
";

/// A gateway's configuration in force, with the peer's objects in its rules folder.
struct InForce {
    dir: tempfile::TempDir,
    object: String,
    published: Arc<ArcSwap<RoutingSnapshot>>,
    handle: ControlHandle,
    _stop: DropGuard,
}

impl InForce {
    /// The cluster `c1.example` with these schemas and policies, both on one line each.
    async fn new(schemas: &str, policies: &str) -> InForce {
        let authority = Authority::new();
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("rules")).unwrap();
        fs::write(at("gateway.yaml"), PROCESS).unwrap();
        fs::write(at("server.crt"), &authority.server.certificate_pem).unwrap();
        fs::write(at("server.key"), &authority.server.key_pem).unwrap();
        let data = |pem: &[u8]| STANDARD.encode(pem);
        let object = format!(
            "apiVersion: proxy.kubegateway.io/v1alpha1\nkind: UpstreamCluster\n\
             metadata: {{ name: c1.example, annotations: {{ NOTES }} }}\nspec:\n  \
             servers: [{{ endpoint: https://127.0.0.1:1 }}]\n  \
             clientConfig: {{ caData: {ca}, certData: {cert}, keyData: {key} }}\n  \
             secureServing: {{ clientCAData: {ca}, certData: {shown}, keyData: {secret} }}\n  \
             flowControl: {{ flowControlSchemas: [SCHEMAS] }}\n  dispatchPolicies: [POLICIES]\n",
            ca = data(authority.ca_pem.as_bytes()),
            cert = data(authority.client_pem.as_bytes()),
            key = data(authority.client_key_pem.as_bytes()),
            shown = data(&authority.server.certificate_pem),
            secret = data(&authority.server.key_pem),
        );
        let text = filled(&object, "", schemas, policies);
        fs::write(at("rules/c1.yaml"), text).unwrap();
        let loaded = sluice_config::load(&at("gateway.yaml"))
            .unwrap_or_else(|faults| panic!("{}", faults.render()));
        let live = LiveState::new(Instant::now(), 1);
        let options = ControlOptions {
            poll: Duration::from_secs(3600),
            ..ControlOptions::default()
        };
        let opened =
            tokio::task::spawn_blocking(move || Control::open(loaded, &live, None, options));
        let control = opened.await.unwrap().unwrap();
        let published = control.snapshot();
        let stop = CancellationToken::new();
        InForce {
            dir,
            object,
            published,
            handle: control.spawn(stop.clone()),
            _stop: stop.drop_guard(),
        }
    }

    /// Puts another version into force, or says why not. The watch on the folder may have been
    /// faster.
    async fn apply(&self, notes: &str, schemas: &str, policies: &str) -> Result<(), String> {
        let text = filled(&self.object, notes, schemas, policies);
        write_whole(&self.dir.path().join("rules/c1.yaml"), &text);
        match self.handle.reload().await.unwrap() {
            Reloaded::Applied(_) | Reloaded::Unchanged(_) => Ok(()),
            Reloaded::Refused(why) => Err(why),
        }
    }

    fn generation(&self) -> u64 {
        self.published.load().generation
    }

    /// The rule that decides about a request, or the code it is refused with.
    fn decides(&self, (method, path): (Method, &str), user: &UserInfo) -> Result<String, u16> {
        let snapshot = self.published.load_full();
        let route = snapshot.route(None, Some("c1.example:6443")).unwrap();
        let info = RequestInfo::parse(&method, &path.parse().unwrap(), &HeaderMap::new()).unwrap();
        let admitted = route.flows.admit(&info, user, None, Instant::now());
        let admission = admitted.map_err(|refusal| refusal.code.as_u16())?;
        let rule = admission.rule().map(ToString::to_string);
        Ok(rule.unwrap_or_else(|| "none".to_owned()))
    }
}

fn filled(object: &str, notes: &str, schemas: &str, policies: &str) -> String {
    object
        .replace("NOTES", notes)
        .replace("SCHEMAS", schemas)
        .replace("POLICIES", policies)
}

/// As careful tools write: nobody ever reads half of it.
fn write_whole(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    }
}

const PODS: (Method, &str) = (Method::GET, "/api/v1/namespaces/n/pods");
const DEPLOYMENTS: (Method, &str) = (Method::GET, "/apis/apps/v1/deployments");
const SERVICES: (Method, &str) = (Method::GET, "/api/v1/services");
const HEALTHZ: (Method, &str) = (Method::GET, "/healthz");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a01_inverted_rules_exclude() {
    let rules = InForce::new(
        "",
        "{ rules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['-pods', '-deployments'] }] }, \
         { rules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'] }] }",
    )
    .await;
    let alice = user("alice", &[]);
    for (request, policy) in [(PODS, 2), (DEPLOYMENTS, 2), (SERVICES, 1)] {
        let expected = format!("c1.example/policy-{policy}-rule-1");
        assert_eq!(rules.decides(request, &alice), Ok(expected));
    }
    let all = "verbs: ['*'], apiGroups: ['*'], resources: ['*']";
    let groups = format!("{{ rules: [{{ {all}, userGroups: ['-system:nodes'] }}] }}");
    let nodes = format!("{groups}, {{ rules: [{{ {all}, users: ['-system:node:*'] }}] }}");
    rules.apply("", "", &nodes).await.unwrap();
    let node = user("system:node:n1", &["system:nodes", "system:authenticated"]);
    let named = user("system:node:n1", &["system:authenticated"]);
    let other = user("alice", &["system:nodes", "system:authenticated"]);
    assert_eq!(
        rules.decides(PODS, &node),
        Err(403),
        "neither policy is about it"
    );
    let first = Ok("c1.example/policy-1-rule-1".to_owned());
    assert_eq!(rules.decides(PODS, &named), first);
    let second = Ok("c1.example/policy-2-rule-1".to_owned());
    assert_eq!(rules.decides(PODS, &other), second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a02_the_first_match_decides_and_what_none_matches_is_403() {
    let rules = InForce::new(
        "{ name: s, tokenBucket: { qps: 1, burst: 1 } }",
        "{ flowControlSchemaName: s, rules: [{ verbs: [list], apiGroups: [''], resources: [secrets] }] }, \
         { rules: [{ verbs: [get, list], apiGroups: ['*'], resources: ['*'] }] }",
    )
    .await;
    let alice = user("alice", &[]);
    let secrets = (Method::GET, "/api/v1/secrets");
    let one = (Method::GET, "/api/v1/namespaces/n/secrets/s");
    let by = |number| Ok(format!("c1.example/policy-{number}-rule-1"));
    assert_eq!(rules.decides(secrets.clone(), &alice), by(1));
    assert_eq!(rules.decides(secrets, &alice), Err(429));
    assert_eq!(rules.decides(one, &alice), by(2));
    assert_eq!(rules.decides((Method::DELETE, PODS.1), &alice), Err(403));
    assert_eq!(rules.decides(HEALTHZ, &alice), Err(403));
}

/// Policies of one schema and rules of one policy have one bucket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a15_a_schema_is_one_limit_wherever_it_is_named() {
    let rules = InForce::new(
        "{ name: s, tokenBucket: { qps: 2, burst: 2 } }",
        "{ flowControlSchemaName: s, rules: [{ verbs: ['*'], apiGroups: [''], resources: [pods] }, \
         { verbs: ['*'], apiGroups: [apps], resources: [deployments] }] }, \
         { flowControlSchemaName: s, rules: [{ verbs: ['*'], apiGroups: [''], resources: [services] }] }",
    )
    .await;
    let (alice, bob) = (user("alice", &[]), user("bob", &[]));
    assert!(rules.decides(PODS, &alice).is_ok());
    assert!(rules.decides(DEPLOYMENTS, &bob).is_ok());
    assert_eq!(rules.decides(SERVICES, &alice), Err(429));
    // Another size of it is no new bucket.
    let policies = "{ flowControlSchemaName: s, rules: [{ verbs: ['*'], apiGroups: [''], resources: ['*'] }] }";
    let schemas = "{ name: s, tokenBucket: { qps: 3, burst: 3 } }";
    rules.apply("", schemas, policies).await.unwrap();
    let passed = (0..3)
        .filter(|_| rules.decides(PODS, &alice).is_ok())
        .count();
    assert!(passed <= 1, "{passed} of 3 after a resize");
}

/// How often a13 changes the version: enough to meet every step of a reload under two readers.
const VERSIONS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a13_a_request_is_judged_by_one_whole_version() {
    let version = |name: &str, before: &str| {
        (
            format!("{{ name: {name}, tokenBucket: {{ qps: 1000000, burst: 1000000 }} }}"),
            format!(
                "{before}{{ flowControlSchemaName: {name}, rules: [{{ verbs: ['*'], \
                 apiGroups: ['*'], resources: ['*'], nonResourceURLs: ['*'] }}] }}"
            ),
        )
    };
    let nobody = "{ rules: [{ verbs: ['*'], nonResourceURLs: ['/x'], users: [nobody] }] }, ";
    let versions = [version("a", ""), version("b", nobody)];
    let decided = ["c1.example/policy-1-rule-1", "c1.example/policy-2-rule-1"];
    let rules = Arc::new(InForce::new(&versions[0].0, &versions[0].1).await);
    let done = Arc::new(AtomicBool::new(false));
    let judged = Arc::new(AtomicUsize::new(0));
    let mut readers = Vec::new();
    for _ in 0..2 {
        let (rules, done, judged) = (Arc::clone(&rules), Arc::clone(&done), Arc::clone(&judged));
        readers.push(tokio::task::spawn_blocking(move || {
            let alice = user("alice", &[]);
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let generation = rules.generation();
                assert!(generation >= last, "{generation} after {last}");
                last = generation;
                let rule = rules.decides(PODS, &alice).unwrap();
                assert!(decided.contains(&rule.as_str()), "{rule}");
                judged.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        }));
    }
    for number in 1..=VERSIONS {
        let (schemas, policies) = &versions[number % 2];
        rules.apply("", schemas, policies).await.unwrap();
        let rule = rules.decides(PODS, &user("alice", &[]));
        assert_eq!(rule, Ok(decided[number % 2].to_owned()));
        // A version that is faulty in one place is not applied in any.
        let why = rules.apply("", "", policies).await.unwrap_err();
        assert!(why.contains("is no schema"), "{why}");
    }
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(judged.load(Ordering::Relaxed) > VERSIONS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a14_the_breaker_ends_in_each_of_three_ways() {
    let policies =
        "{ rules: [{ verbs: ['*'], apiGroups: ['*'], resources: ['*'], nonResourceURLs: ['*'] }] }";
    let rules = InForce::new("", policies).await;
    let alice = user("alice", &[]);
    let gates = "proxy.kubegateway.io/feature-gates";
    for (on, off) in [
        (
            format!("{gates}: DenyAllRequests=true, a: b"),
            "a: b".to_owned(),
        ),
        (
            format!("{gates}: DenyAllRequests=true"),
            format!("{gates}: Tracing=true"),
        ),
        (format!("{gates}: DenyAllRequests=true"), String::new()),
    ] {
        rules.apply(&on, "", policies).await.unwrap();
        assert_eq!(rules.decides(PODS, &alice), Err(429));
        assert_eq!(rules.decides(HEALTHZ, &alice), Err(429));
        rules.apply(&off, "", policies).await.unwrap();
        assert!(rules.decides(PODS, &alice).is_ok(), "{off:?}");
    }
}

/// Whoever is asked, the answer is yes.
struct Yes;

impl Reviewer for Yes {
    fn post(&self, _path: &'static str, _review: Bytes) -> ReviewFuture<'_> {
        let yes = Bytes::from_static(br#"{"status":{"allowed":true}}"#);
        Box::pin(async move { Ok(yes) })
    }
}

async fn refused_with(line: (&'static str, &'static str)) -> u16 {
    let authenticator = Authenticator::new(AuthenticatorOptions {
        impersonation: Some(Impersonation::new(Arc::new(Yes))),
        anonymous: true,
        ..AuthenticatorOptions::default()
    });
    let address = "127.0.0.1:1".parse().unwrap();
    let connection = Connection::new(address, address, Instant::now());
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static(line.0), line.1.parse().unwrap());
    let now = Duration::from_secs(1_800_000_000);
    let known = authenticator.authenticate(&connection, &headers, now).await;
    known.map_or_else(|refusal| refusal.code.as_u16(), |_| 200)
}

#[tokio::test]
async fn a28_a_lone_uid_is_400() {
    assert_eq!(refused_with(("impersonate-uid", "0")).await, 400);
}

#[tokio::test]
async fn a30_stray_impersonation_headers_are_400() {
    assert_eq!(
        refused_with(("impersonate-group", "system:masters")).await,
        400
    );
    assert_eq!(refused_with(("impersonate-extra-scopes", "all")).await, 400);
}
