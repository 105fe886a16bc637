//! Verdicts on certificates, tokens and `--as`, with a scripted reviewer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::*;

/// Answers every review from one function and counts the questions.
struct Scripted<F> {
    answer: Mutex<F>,
    asked: AtomicUsize,
}

impl<F> Scripted<F> {
    fn new(answer: F) -> Arc<Self> {
        Arc::new(Scripted {
            answer: Mutex::new(answer),
            asked: AtomicUsize::new(0),
        })
    }
}

impl<F> Reviewer for Scripted<F>
where
    F: FnMut(&Value) -> Result<Value, ReviewerOutage> + Send,
{
    fn post(&self, _path: &'static str, review: Bytes) -> ReviewFuture<'_> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let review: Value = serde_json::from_slice(&review).unwrap();
        let answer = (self.answer.lock())(&review["spec"]);
        Box::pin(async move {
            answer.map(|status| Bytes::from(json!({ "status": status }).to_string()))
        })
    }
}

struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Ca {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    fn authority(&self) -> Arc<ClientAuthority> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        std::fs::write(&path, self.issuer.pem()).unwrap();
        Arc::new(ClientAuthority::load(&path).unwrap())
    }

    fn leaf(&self, name: &str, group: &str) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        if !group.is_empty() {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, &self.issuer).unwrap().der().clone()
    }
}

const IN_2026: Duration = Duration::from_secs(1_790_000_000);
const IN_2031: Duration = Duration::from_secs(1_930_000_000);

fn connection(chain: Vec<CertificateDer<'static>>) -> Connection {
    let any = "127.0.0.1:1".parse().unwrap();
    let mut connection = Connection::new(any, any, Instant::now());
    connection.client_chain = chain;
    connection
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(*name, value.parse().unwrap());
    }
    map
}

#[tokio::test]
async fn a_certificate_names_user_and_groups_and_is_judged_once() {
    let ca = Ca::new();
    let authn = Authenticator::new(AuthenticatorOptions {
        authority: Some(ca.authority()),
        ..AuthenticatorOptions::default()
    });
    let connection = connection(vec![ca.leaf("jane", "dev")]);
    let none = HeaderMap::new();
    let first = authn
        .authenticate(&connection, &none, IN_2026)
        .await
        .unwrap()
        .user;
    assert_eq!(first.name, "jane");
    assert_eq!(first.groups, ["dev", "system:authenticated"]);
    assert!(first.extra[0].1[0].starts_with("X509SHA256="));
    let second = authn
        .authenticate(&connection, &none, IN_2026)
        .await
        .unwrap()
        .user;
    assert!(Arc::ptr_eq(&first, &second));
    // It has run out on a connection that lived on.
    let late = authn
        .authenticate(&connection, &none, IN_2031)
        .await
        .unwrap_err();
    assert_eq!(late.code, 401);
}

/// A certificate with two organisations, which the library used elsewhere here cannot make.
#[tokio::test]
async fn every_organisation_is_a_group() {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let authority = ClientAuthority::load(&fixtures.join("two-groups-ca.crt")).unwrap();
    let leaf = CertificateDer::from_pem_file(fixtures.join("two-groups.crt")).unwrap();
    let authn = Authenticator::new(AuthenticatorOptions {
        authority: Some(Arc::new(authority)),
        ..AuthenticatorOptions::default()
    });
    let in_2027 = Duration::from_secs(1_800_000_000);
    let verdict = authn
        .authenticate(&connection(vec![leaf]), &HeaderMap::new(), in_2027)
        .await
        .unwrap();
    assert_eq!(verdict.user.name, "jane");
    assert_eq!(verdict.user.groups, ["dev", "ops", "system:authenticated"]);
}

#[tokio::test]
async fn a_certificate_of_another_cluster_or_without_a_name_is_401_not_anonymous() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let authn = Authenticator::new(AuthenticatorOptions {
        authority: Some(ours.authority()),
        anonymous: true,
        ..AuthenticatorOptions::default()
    });
    let none = HeaderMap::new();
    for leaf in [theirs.leaf("jane", "system:masters"), ours.leaf("", "dev")] {
        let refusal = authn
            .authenticate(&connection(vec![leaf]), &none, IN_2026)
            .await
            .unwrap_err();
        assert_eq!(
            (refusal.code.as_u16(), refusal.reason),
            (401, "Unauthorized")
        );
    }
    let nobody = authn
        .authenticate(&connection(vec![]), &none, IN_2026)
        .await
        .unwrap();
    assert_eq!(nobody.user.name, "system:anonymous");
    assert_eq!(nobody.user.groups, ["system:unauthenticated"]);
}

fn with_tokens(reviewer: Arc<dyn Reviewer>) -> Authenticator {
    let options = TokenReviewsOptions {
        accepted_for: Duration::from_secs(60),
        refused_for: Duration::from_secs(60),
    };
    Authenticator::new(AuthenticatorOptions {
        tokens: Some(Arc::new(TokenReviews::new(reviewer, options))),
        anonymous: true,
        ..AuthenticatorOptions::default()
    })
}

#[tokio::test]
async fn a_token_is_judged_once_and_refused_without_becoming_anonymous() {
    let reviewer = Scripted::new(|spec: &Value| {
        Ok(if spec["token"] == "good" {
            json!({"authenticated": true, "user": {
                "username": "bot", "uid": "7", "groups": ["a"], "extra": {"K": ["v"]}}})
        } else {
            json!({"authenticated": false})
        })
    });
    let authn = with_tokens(reviewer.clone());
    let connection = connection(vec![]);
    for _ in 0..3 {
        let good = headers(&[("authorization", "bearer good")]);
        let user = authn
            .authenticate(&connection, &good, IN_2026)
            .await
            .unwrap()
            .user;
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("bot", "7"));
        assert_eq!(user.groups, ["a", "system:authenticated"]);
        assert_eq!(user.extra, [("k".to_owned(), vec!["v".to_owned()])]);
        let bad = headers(&[("authorization", "Bearer bad")]);
        let refusal = authn
            .authenticate(&connection, &bad, IN_2026)
            .await
            .unwrap_err();
        assert_eq!(refusal.code, 401);
    }
    assert_eq!(reviewer.asked.load(Ordering::SeqCst), 2);
    let basic = headers(&[("authorization", "Basic eDp5")]);
    let user = authn
        .authenticate(&connection, &basic, IN_2026)
        .await
        .unwrap()
        .user;
    assert_eq!(user.name, "system:anonymous");
}

#[tokio::test]
async fn an_outage_of_the_reviewer_is_503_and_not_kept() {
    let mut down = true;
    let reviewer = Scripted::new(move |_: &Value| {
        if std::mem::replace(&mut down, false) {
            Err(ReviewerOutage("connection refused".into()))
        } else {
            Ok(json!({"authenticated": true, "user": {"username": "bot"}}))
        }
    });
    let authn = with_tokens(reviewer);
    let lines = headers(&[("authorization", "Bearer good")]);
    let connection = connection(vec![]);
    let refusal = authn
        .authenticate(&connection, &lines, IN_2026)
        .await
        .unwrap_err();
    assert_eq!((refusal.code.as_u16(), refusal.retry_after), (503, Some(1)));
    authn
        .authenticate(&connection, &lines, IN_2026)
        .await
        .unwrap();
}

#[tokio::test]
async fn an_accepted_token_without_a_name_is_nobody() {
    let reviewer = Scripted::new(|_: &Value| Ok(json!({"authenticated": true, "user": {}})));
    let lines = headers(&[("authorization", "Bearer good")]);
    let refusal = with_tokens(reviewer)
        .authenticate(&connection(vec![]), &lines, IN_2026)
        .await
        .unwrap_err();
    assert_eq!(refusal.code, 401);
}

#[test]
fn a_websocket_token_needs_company_and_no_rival() {
    let token = format!("{}{}", "base64url.bearer.authorization.k8s.io.", "Z29vZA");
    let find = |text: &str| token::find(&headers(&[("sec-websocket-protocol", text)]));
    assert_eq!(
        find(&format!("v5.channel.k8s.io, {token}")).unwrap(),
        Some("good".to_owned())
    );
    assert_eq!(find("v5.channel.k8s.io").unwrap(), None);
    for broken in [
        token.clone(),
        format!("v5.channel.k8s.io, {token}, {token}"),
        format!("v5.channel.k8s.io, {token}=="),
        format!("v5.channel.k8s.io, {}", token.replace("Z29vZA", "")),
    ] {
        assert!(find(&broken).is_err(), "{broken}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_read_is_401_and_not_anonymous() {
    let reviewer = Scripted::new(|_: &Value| Ok(json!({"authenticated": false})));
    let authn = with_tokens(reviewer.clone());
    let mut not_text = HeaderMap::new();
    let bytes = http::HeaderValue::from_bytes(b"Bearer \xff").unwrap();
    not_text.insert("authorization", bytes);
    let alone = headers(&[(
        "sec-websocket-protocol",
        "base64url.bearer.authorization.k8s.io.Z29vZA",
    )]);
    for lines in [not_text, alone] {
        let connection = connection(vec![]);
        let known = authn.authenticate(&connection, &lines, IN_2026);
        assert_eq!(known.await.unwrap_err().code, 401, "{lines:?}");
    }
    assert_eq!(reviewer.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_scoped_token_does_not_act_by_the_verdict_on_an_unscoped_one() {
    let reviewer = Scripted::new(|spec: &Value| {
        Ok(match spec["token"].as_str() {
            Some(token) => {
                json!({"authenticated": true, "user": {"username": "jane", "uid": "1",
                "extra": {"scopes": [token]}}})
            }
            None => json!({"allowed": spec["extra"]["scopes"][0] == "full"}),
        })
    });
    let options = TokenReviewsOptions {
        accepted_for: Duration::from_secs(60),
        refused_for: Duration::from_secs(60),
    };
    let authn = Authenticator::new(AuthenticatorOptions {
        tokens: Some(Arc::new(TokenReviews::new(reviewer.clone(), options))),
        impersonation: Some(Impersonation::new(reviewer)),
        ..AuthenticatorOptions::default()
    });
    for (token, code) in [("full", 200), ("read-only", 403), ("full", 200)] {
        let bearer = format!("Bearer {token}");
        let lines = headers(&[("authorization", &bearer), ("impersonate-user", "bob")]);
        let connection = connection(vec![]);
        let known = authn.authenticate(&connection, &lines, IN_2026);
        let got = known.await.map_or_else(|e| e.code.as_u16(), |_| 200);
        assert_eq!(got, code, "{token}");
    }
}

async fn act_as(
    lines: &[(&'static str, &str)],
    allow: &'static [&'static str],
) -> Result<Verdict, Refusal> {
    let reviewer = Scripted::new(move |spec: &Value| {
        let r = &spec["resourceAttributes"];
        assert_eq!(
            (&r["verb"], &spec["user"]),
            (&json!("impersonate"), &json!("jane"))
        );
        let asked = format!(
            "{}/{}/{}/{}",
            r["namespace"].as_str().unwrap(),
            r["resource"].as_str().unwrap(),
            r["subresource"].as_str().unwrap(),
            r["name"].as_str().unwrap()
        );
        Ok(json!({"allowed": allow.contains(&asked.as_str())}))
    });
    let ca = Ca::new();
    let authn = Authenticator::new(AuthenticatorOptions {
        authority: Some(ca.authority()),
        impersonation: Some(Impersonation::new(reviewer)),
        ..AuthenticatorOptions::default()
    });
    authn
        .authenticate(
            &connection(vec![ca.leaf("jane", "")]),
            &headers(lines),
            IN_2026,
        )
        .await
}

#[tokio::test]
async fn each_impersonation_header_is_authorised() {
    let lines = [
        ("impersonate-user", "bob"),
        ("impersonate-group", "dev"),
        ("impersonate-extra-example.org%2Fteam", "red"),
    ];
    let all = &[
        "/users//bob",
        "/groups//dev",
        "/userextras/example.org/team/red",
    ];
    let verdict = act_as(&lines, all).await.unwrap();
    assert_eq!(verdict.user.name, "bob");
    assert_eq!(verdict.user.groups, ["dev", "system:authenticated"]);
    assert_eq!(
        verdict.user.extra,
        [("example.org/team".to_owned(), vec!["red".to_owned()])]
    );
    assert_eq!(verdict.impersonator.unwrap().name, "jane");
    let refusal = act_as(&lines, &["/users//bob", "/userextras/example.org/team/red"]).await;
    let refusal = refusal.unwrap_err();
    assert_eq!(refusal.code, 403);
    assert!(
        refusal.message.contains("groups \"dev\" is forbidden"),
        "{}",
        refusal.message
    );
}

#[tokio::test]
async fn impersonation_edges_are_as_in_an_apiserver() {
    let verdict = act_as(
        &[("impersonate-user", "system:serviceaccount:ns:sa")],
        &["ns/serviceaccounts//sa"],
    )
    .await
    .unwrap();
    assert_eq!(
        verdict.user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:ns",
            "system:authenticated"
        ]
    );
    let groupless = act_as(&[("impersonate-group", "dev")], &[])
        .await
        .unwrap_err();
    assert_eq!(groupless.code, 400);
    let empty = act_as(&[("impersonate-user", "")], &[]).await.unwrap();
    assert_eq!(
        (empty.user.name.as_str(), empty.impersonator.is_none()),
        ("jane", true)
    );
    let anonymous = act_as(
        &[("impersonate-user", "system:anonymous")],
        &["/users//system:anonymous"],
    )
    .await;
    assert_eq!(anonymous.unwrap().user.groups, ["system:unauthenticated"]);
}

/// Answers when it is let, and notes how many questions were open at once.
struct Slow {
    open: AtomicUsize,
    most: AtomicUsize,
    let_go: tokio::sync::Semaphore,
}

impl Reviewer for Slow {
    fn post(&self, _path: &'static str, _review: Bytes) -> ReviewFuture<'_> {
        Box::pin(async {
            let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(open, Ordering::SeqCst);
            let _held = self.let_go.acquire().await.unwrap();
            self.open.fetch_sub(1, Ordering::SeqCst);
            Ok(Bytes::from_static(br#"{"status":{"authenticated":false}}"#))
        })
    }
}

#[tokio::test]
async fn a_flood_of_made_up_tokens_is_no_flood_of_questions() {
    let reviewer = Arc::new(Slow {
        open: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        let_go: tokio::sync::Semaphore::new(0),
    });
    let authn = Arc::new(with_tokens(reviewer.clone()));
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..300 {
        let authn = Arc::clone(&authn);
        callers.spawn(async move {
            let bearer = format!("Bearer made-up-{n}");
            let lines = headers(&[("authorization", &bearer)]);
            let connection = connection(vec![]);
            let known = authn.authenticate(&connection, &lines, IN_2026).await;
            known.unwrap_err().code.as_u16()
        });
    }
    // One thread: each turn runs everybody who can go on.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(reviewer.open.load(Ordering::SeqCst), 64);
    reviewer.let_go.add_permits(1);
    let codes = callers.join_all().await;
    assert!(codes.iter().all(|code| *code == 401), "{codes:?}");
    assert_eq!(reviewer.most.load(Ordering::SeqCst), 64);
}
