//! Tokens in floods and in outages, with a scripted reviewer and time moved by hand.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::advance;

use super::super::jwt::{Issuer, KeyRing, KeySet, LocalTokens, Tokens};
use super::super::tests::Scripted;
use super::super::{Authenticator, AuthenticatorOptions, ReviewFuture};
use super::*;
use crate::context::Connection;

const WALL: Duration = Duration::from_secs(1_790_000_000);

/// Knows tokens that begin with `good`; may be out, or answer nothing at all.
#[derive(Default)]
struct Cluster {
    asked: AtomicUsize,
    is_out: AtomicBool,
    hangs: AtomicBool,
    revokes: AtomicBool,
    takes: Duration,
}

impl Cluster {
    fn set(flag: &AtomicBool, to: bool) {
        flag.store(to, Ordering::SeqCst);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Reviewer for Cluster {
    fn post(&self, _path: &'static str, review: Bytes) -> ReviewFuture<'_> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            tokio::time::sleep(self.takes).await;
            if self.hangs.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            if self.is_out.load(Ordering::SeqCst) {
                return Err(ReviewerOutage("connection refused".to_owned()));
            }
            let review: Value = serde_json::from_slice(&review).unwrap();
            let token = review["spec"]["token"].as_str().unwrap();
            let holds = token.starts_with("good") && !self.revokes.load(Ordering::SeqCst);
            let user = json!({"username": token});
            let status = json!({"authenticated": holds, "user": user});
            Ok(Bytes::from(json!({ "status": status }).to_string()))
        })
    }
}

fn authenticator(cluster: &Arc<Cluster>, options: TokenReviewsOptions) -> Authenticator {
    let reviewer: Arc<dyn Reviewer> = Arc::clone(cluster) as _;
    Authenticator::new(AuthenticatorOptions {
        tokens: Some(Arc::new(TokenReviews::new(reviewer, options))),
        anonymous: true,
        ..AuthenticatorOptions::default()
    })
}

fn from(address: &str) -> Connection {
    let peer = std::net::SocketAddr::new(address.parse().unwrap(), 1);
    Connection::new(peer, peer, std::time::Instant::now())
}

/// The code of the answer, and the wait it asks for.
async fn ask_at(
    authn: &Authenticator,
    connection: &Connection,
    token: &str,
    wall: Duration,
) -> (u16, Option<u32>) {
    let mut headers = HeaderMap::new();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    match authn.authenticate(connection, &headers, wall).await {
        Ok(_) => (200, None),
        Err(refusal) => (refusal.code.as_u16(), refusal.retry_after),
    }
}

async fn ask(authn: &Authenticator, connection: &Connection, token: &str) -> (u16, Option<u32>) {
    ask_at(authn, connection, token, WALL).await
}

const OK: (u16, Option<u32>) = (200, None);
const BAD: (u16, Option<u32>) = (401, None);
const OUT: (u16, Option<u32>) = (503, Some(1));

/// Refusals are not kept, as their clock cannot be moved.
fn forgetful() -> TokenReviewsOptions {
    TokenReviewsOptions {
        refused_for: Duration::ZERO,
        ..TokenReviewsOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_held_outlives_an_outage_as_long_as_stated() {
    let cluster = Arc::new(Cluster::default());
    let authn = authenticator(&cluster, forgetful());
    let here = from("192.0.2.1");
    assert_eq!(ask(&authn, &here, "good").await, OK);
    Cluster::set(&cluster.is_out, true);
    advance(Duration::from_secs(121)).await;
    for _ in 0..100 {
        assert_eq!(ask(&authn, &here, "good").await, OK);
    }
    assert_eq!(cluster.asked(), 2, "nobody is asked again in a hurry");
    assert_eq!(ask(&authn, &here, "good-unknown").await, OUT);
    advance(Duration::from_secs(298)).await;
    assert_eq!(ask(&authn, &here, "good").await, OK);
    advance(Duration::from_secs(2)).await;
    assert_eq!(ask(&authn, &here, "good").await, OUT);
    Cluster::set(&cluster.is_out, false);
    assert_eq!(ask(&authn, &here, "good").await, OK);
}

#[tokio::test(start_paused = true)]
async fn a_reviewer_that_hangs_is_waited_for_once_and_shortly() {
    let cluster = Arc::new(Cluster::default());
    let authn = authenticator(&cluster, forgetful());
    let here = from("192.0.2.1");
    assert_eq!(ask(&authn, &here, "good").await, OK);
    Cluster::set(&cluster.hangs, true);
    advance(Duration::from_secs(121)).await;
    let before = Instant::now();
    for _ in 0..100 {
        assert_eq!(ask(&authn, &here, "good").await, OK);
    }
    assert_eq!(before.elapsed(), KNOWN_WAIT);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_revoked_ends_when_it_is_asked_about_again() {
    let cluster = Arc::new(Cluster::default());
    let authn = authenticator(&cluster, forgetful());
    let here = from("192.0.2.1");
    assert_eq!(ask(&authn, &here, "good").await, OK);
    Cluster::set(&cluster.revokes, true);
    advance(Duration::from_secs(119)).await;
    assert_eq!(ask(&authn, &here, "good").await, OK);
    advance(Duration::from_secs(2)).await;
    assert_eq!(ask(&authn, &here, "good").await, BAD);
    // It held once: an outage does not bring it back.
    Cluster::set(&cluster.is_out, true);
    assert_eq!(ask(&authn, &here, "good").await, OUT);
}

/// A signed token, as it looks; its signature is the cluster's business.
fn looks_signed(claims: &Value) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.AAAA", part(&json!({"alg": "RS256"})), part(claims))
}

#[tokio::test(start_paused = true)]
async fn no_outage_lets_a_token_outlive_its_own_end() {
    let reviewer = Scripted::new({
        let mut asked = 0;
        move |_: &Value| {
            asked += 1;
            if asked == 1 {
                Ok(json!({"authenticated": true, "user": {"username": "bot"}}))
            } else {
                Err(ReviewerOutage("out".to_owned()))
            }
        }
    });
    let authn = Authenticator::new(AuthenticatorOptions {
        tokens: Some(Arc::new(TokenReviews::new(reviewer, forgetful()))),
        ..AuthenticatorOptions::default()
    });
    let token = looks_signed(&json!({"iss": "i", "exp": WALL.as_secs() + 150}));
    let here = from("192.0.2.1");
    let later = |seconds| WALL + Duration::from_secs(seconds);
    assert_eq!(ask_at(&authn, &here, &token, WALL).await, OK);
    advance(Duration::from_secs(140)).await;
    assert_eq!(ask_at(&authn, &here, &token, later(140)).await, OK);
    advance(Duration::from_secs(10)).await;
    assert_eq!(ask_at(&authn, &here, &token, later(150)).await, OUT);
}

#[tokio::test(start_paused = true)]
async fn a_source_of_bad_tokens_is_not_asked_about_for_ever() {
    let cluster = Arc::new(Cluster::default());
    let authn = authenticator(&cluster, forgetful());
    let (bad, good) = (from("2001:db8::1"), from("192.0.2.1"));
    let neighbour = from("2001:db8::2");
    assert_eq!(ask(&authn, &bad, "good-and-known").await, OK);
    let mut codes = Vec::new();
    for n in 0..10_000 {
        codes.push(ask(&authn, &bad, &format!("bad-{n}")).await);
    }
    let judged = codes.iter().filter(|code| **code == BAD).count();
    assert_eq!(judged, 51, "five seconds' worth of ten a second");
    assert_eq!(codes.last(), Some(&(429, Some(1))));
    assert_eq!(cluster.asked(), 52);
    // Its network is one source; what is known still holds there; others are not touched.
    assert_eq!(ask(&authn, &neighbour, "good-new").await, (429, Some(1)));
    assert_eq!(ask(&authn, &bad, "good-and-known").await, OK);
    assert_eq!(ask(&authn, &good, "good-new").await, OK);
    assert_eq!(ask(&authn, &good, "bad").await, BAD);
    advance(Duration::from_secs(1)).await;
    assert_eq!(ask(&authn, &neighbour, "good-newer").await, OK);
}

#[tokio::test(start_paused = true)]
async fn all_strangers_together_have_so_many_questions_a_second() {
    let cluster = Arc::new(Cluster::default());
    let options = TokenReviewsOptions {
        per_second: NonZeroU32::new(20).unwrap(),
        ..forgetful()
    };
    let authn = authenticator(&cluster, options);
    for n in 0..1_000_u32 {
        let address = format!("10.0.{}.{}", n / 250, n % 250);
        ask(&authn, &from(&address), &format!("bad-{n}")).await;
    }
    assert_eq!(cluster.asked(), 20);
    let here = from("192.0.2.1");
    assert_eq!(ask(&authn, &here, "good").await, (429, Some(1)));
    advance(Duration::from_secs(1)).await;
    assert_eq!(ask(&authn, &here, "good").await, OK);
}

#[test]
fn accounts_of_sources_are_bounded() {
    let now = std::time::Instant::now();
    let limits = Limits::new(NonZeroU32::MIN, NonZeroU32::MIN, now);
    for n in 0..100_000_u32 {
        let account = limits.account(IpAddr::from(n.to_be_bytes()), now);
        limits.refused(&account, now);
    }
    assert!(limits.sources() <= 16_384, "{}", limits.sources());
}

#[tokio::test]
async fn what_no_token_of_the_cluster_looks_like_is_refused_unasked() {
    let of = |issuer: &str| looks_signed(&json!({"iss": issuer}));
    // opaque, issuers, token, whether it is asked about
    let rows = [
        (true, &[][..], "opaque".to_owned(), true),
        (true, &[][..], of("any"), true),
        (false, &[][..], "opaque".to_owned(), false),
        (false, &[][..], "a.b.c".to_owned(), false),
        (false, &[][..], of("any"), true),
        (true, &["ours"][..], "opaque".to_owned(), true),
        (true, &["ours"][..], of("any"), false),
        (true, &["ours"][..], of("ours"), true),
        (false, &["ours"][..], looks_signed(&json!({})), false),
    ];
    for (opaque, issuers, token, expected) in rows {
        let cluster = Arc::new(Cluster::default());
        let options = TokenReviewsOptions {
            opaque,
            issuers: issuers.iter().map(|&issuer| issuer.to_owned()).collect(),
            ..TokenReviewsOptions::default()
        };
        let authn = authenticator(&cluster, options);
        assert_eq!(ask(&authn, &from("192.0.2.1"), &token).await, BAD);
        let asked = cluster.asked() == 1;
        assert_eq!(asked, expected, "{opaque} {issuers:?} {token}");
    }
}

/// A service account's token by an issuer of our own, and who judges it.
fn signed(cluster: &Arc<Cluster>) -> (Authenticator, String) {
    use super::super::jwt::tests::signer::Signer;
    let signer = Signer::new("ES256", "k");
    let keys = KeySet::read(signer.json_set().as_bytes()).unwrap();
    let local = LocalTokens::new(vec![Issuer {
        names: vec!["i".to_owned()],
        audiences: vec!["i".to_owned()],
        keys: KeyRing::fixed(keys),
        tokens: Tokens::ServiceAccounts { confirm: true },
    }]);
    let reviewer: Arc<dyn Reviewer> = Arc::clone(cluster) as _;
    let authn = Authenticator::new(AuthenticatorOptions {
        local: Some(local),
        tokens: Some(Arc::new(TokenReviews::new(reviewer, forgetful()))),
        ..AuthenticatorOptions::default()
    });
    let claims = json!({
        "iss": "i", "aud": "i", "exp": WALL.as_secs() + 3600,
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "sa"}},
    });
    (authn, signer.sign(&claims))
}

#[tokio::test(start_paused = true)]
async fn a_signed_token_is_confirmed_and_ends_with_its_pod() {
    let cluster = Arc::new(Cluster::default());
    let (authn, token) = signed(&cluster);
    let here = from("192.0.2.1");
    // The scripted cluster does not know it: its pod is gone.
    assert_eq!(ask(&authn, &here, &token).await, BAD);
    assert_eq!(cluster.asked(), 1);
    // While nobody can say, the signature does.
    Cluster::set(&cluster.is_out, true);
    assert_eq!(ask(&authn, &here, &token).await, OK);
    assert_eq!(ask(&authn, &here, &token).await, OK);
    assert_eq!(cluster.asked(), 2);
    Cluster::set(&cluster.is_out, false);
    advance(OUTAGE_PAUSE + Duration::from_millis(1)).await;
    assert_eq!(ask(&authn, &here, &token).await, BAD);
    // Forged ones are nobody's business upstream.
    let (signed, _) = token.rsplit_once('.').unwrap();
    for n in 0..1_000 {
        let forged = format!("{signed}.{n:08}");
        assert_eq!(ask(&authn, &here, &forged).await, BAD);
    }
    assert_eq!(cluster.asked(), 3);
}

/// Ten thousand made-up tokens from one address at once; others go on as if nothing were.
#[tokio::test(start_paused = true)]
async fn a_flood_of_bad_tokens_holds_up_nobody_else() {
    let cluster = Arc::new(Cluster {
        takes: Duration::from_millis(10),
        ..Cluster::default()
    });
    let authn = Arc::new(authenticator(&cluster, TokenReviewsOptions::default()));
    let here = from("192.0.2.1");
    assert_eq!(ask(&authn, &here, "good-known").await, OK);
    let mut flood = tokio::task::JoinSet::new();
    for n in 0..10_000 {
        let authn = Arc::clone(&authn);
        flood.spawn(async move {
            tokio::time::sleep(Duration::from_micros(n * 100)).await;
            ask(&authn, &from("198.51.100.1"), &format!("bad-{n}")).await
        });
    }
    let began = Instant::now();
    let mut waits = Vec::new();
    for n in 0..100 {
        let before = Instant::now();
        assert_eq!(ask(&authn, &here, "good-known").await, OK);
        assert_eq!(before.elapsed(), Duration::ZERO, "it is not waited for");
        assert_eq!(ask(&authn, &here, &format!("good-{n}")).await, OK);
        waits.push(before.elapsed());
    }
    waits.sort();
    // A review takes ten; the flood's own take the places of sixty-four at most, once.
    assert!(waits[98] <= Duration::from_millis(25), "{waits:?}");
    let codes = flood.join_all().await;
    let asked = cluster.asked() - 101;
    let most =
        51 + STRANGERS_AT_ONCE + 10 * usize::try_from(began.elapsed().as_secs() + 1).unwrap();
    assert!(asked <= most, "{asked} questions of 10,000");
    assert!(codes.iter().all(|code| matches!(code.0, 401 | 429)));
    let refused = codes.iter().filter(|code| code.0 == 429).count();
    assert!(refused >= 10_000 - most, "{refused}");
}
