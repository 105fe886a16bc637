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

mod front_proxy;
mod impersonate;

/// Answers every review from one function and counts the questions.
pub(super) struct Scripted<F> {
    answer: Mutex<F>,
    pub(super) asked: AtomicUsize,
}

impl<F> Scripted<F> {
    pub(super) fn new(answer: F) -> Arc<Self> {
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
        Arc::new(self.loaded())
    }

    fn loaded(&self) -> ClientAuthority {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        std::fs::write(&path, self.issuer.pem()).unwrap();
        ClientAuthority::load(&path.into()).unwrap()
    }

    fn leaf(&self, name: &str, group: &str) -> CertificateDer<'static> {
        self.leaf_with(name, group, |_| ())
    }

    fn leaf_with(
        &self,
        name: &str,
        group: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertificateDer<'static> {
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
        change(&mut params);
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
        let value = http::HeaderValue::from_bytes(value.as_bytes());
        map.append(*name, value.unwrap());
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

#[tokio::test]
async fn each_bad_certificate_is_401() {
    let ca = Ca::new();
    let authn = Authenticator::new(AuthenticatorOptions {
        authority: Some(ca.authority()),
        anonymous: true,
        ..AuthenticatorOptions::default()
    });
    let leaf = |change: fn(&mut CertificateParams)| ca.leaf_with("jane", "dev", change);
    let of_a_server = leaf(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let ended = leaf(|params| params.not_after = rcgen::date_time_ymd(2021, 1, 1));
    let to_come = leaf(|params| params.not_before = rcgen::date_time_ymd(2029, 1, 1));
    let mut torn = leaf(|_| ()).to_vec();
    torn.truncate(torn.len() / 2);
    // Issued by a leaf, which is no authority.
    let middle = Ca::new();
    let chain = vec![middle.leaf("jane", "dev"), leaf(|_| ())];
    let rows = [
        ("of a server", vec![of_a_server]),
        ("ended", vec![ended]),
        ("to come", vec![to_come]),
        ("torn", vec![CertificateDer::from(torn)]),
        ("by no authority", chain),
        ("of another authority", vec![Ca::new().leaf("jane", "dev")]),
    ];
    for (what, chain) in rows {
        let connection = connection(chain);
        // The second is what was kept of the first.
        for _ in 0..2 {
            let none = HeaderMap::new();
            let known = authn.authenticate(&connection, &none, IN_2026).await;
            assert_eq!(known.unwrap_err().code, 401, "{what}");
        }
    }
}

#[tokio::test]
async fn mixed_credentials_are_taken_in_an_apiservers_order() {
    let reviewer = Scripted::new(|spec: &Value| {
        let holds = spec["token"] == "good";
        Ok(json!({"authenticated": holds, "user": {"username": "bot"}}))
    });
    let (ca, stranger) = (Ca::new(), Ca::new());
    let authn = Authenticator::new(AuthenticatorOptions {
        authority: Some(ca.authority()),
        tokens: Some(Arc::new(TokenReviews::new(reviewer, patient()))),
        anonymous: true,
        ..AuthenticatorOptions::default()
    });
    let jane = || vec![ca.leaf("jane", "")];
    let unknown = || vec![stranger.leaf("root", "system:masters")];
    let rows = [
        (jane(), "", "jane"),
        (jane(), "Bearer good", "jane"),
        (jane(), "Bearer bad", "jane"),
        (jane(), "Basic eDp5", "jane"),
        (unknown(), "", "401"),
        (unknown(), "Bearer good", "bot"),
        (unknown(), "Bearer bad", "401"),
        (unknown(), "Basic eDp5", "401"),
        (vec![], "Bearer good", "bot"),
        (vec![], "Bearer bad", "401"),
        (vec![], "Basic eDp5", "system:anonymous"),
        (vec![], "Bearer", "system:anonymous"),
        (vec![], "Bearer  good", "system:anonymous"),
        (vec![], "", "system:anonymous"),
    ];
    for (chain, shown, expected) in rows {
        let lines = match shown {
            "" => HeaderMap::new(),
            shown => headers(&[("authorization", shown)]),
        };
        let known = authn
            .authenticate(&connection(chain), &lines, IN_2026)
            .await;
        let name = known.map_or_else(|e| e.code.as_u16().to_string(), |v| v.user.name.clone());
        assert_eq!(name, expected, "{shown:?}");
    }
}

/// A certificate with two organisations, which the library used elsewhere here cannot make.
#[tokio::test]
async fn every_organisation_is_a_group() {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let authority = ClientAuthority::load(&fixtures.join("two-groups-ca.crt").into()).unwrap();
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

/// Keeps verdicts for a minute, and asks as often as a test likes.
fn patient() -> TokenReviewsOptions {
    let often = std::num::NonZeroU32::new(100_000).unwrap();
    TokenReviewsOptions {
        accepted_for: Duration::from_secs(60),
        refused_for: Duration::from_secs(60),
        per_second: often,
        failures_per_second: often,
        ..TokenReviewsOptions::default()
    }
}

fn with_tokens(reviewer: Arc<dyn Reviewer>) -> Authenticator {
    Authenticator::new(AuthenticatorOptions {
        tokens: Some(Arc::new(TokenReviews::new(reviewer, patient()))),
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
    let find = |text: &str| {
        bearer::find(&headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", text),
        ]))
    };
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
    // Where no WebSocket is asked for, it is a header like any other.
    let protocols = format!("v5.channel.k8s.io, {token}");
    let ordinary = headers(&[("sec-websocket-protocol", &protocols)]);
    assert_eq!(bearer::find(&ordinary).unwrap(), None);
}

#[tokio::test]
async fn a_token_that_cannot_be_read_is_401_and_not_anonymous() {
    let reviewer = Scripted::new(|_: &Value| Ok(json!({"authenticated": false})));
    let authn = with_tokens(reviewer.clone());
    let mut not_text = HeaderMap::new();
    let bytes = http::HeaderValue::from_bytes(b"Bearer \xff").unwrap();
    not_text.insert("authorization", bytes);
    let alone = headers(&[
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        (
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.Z29vZA",
        ),
    ]);
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
    let authn = Authenticator::new(AuthenticatorOptions {
        tokens: Some(Arc::new(TokenReviews::new(reviewer.clone(), patient()))),
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
