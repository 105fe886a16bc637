//! Who comes in, over real connections: strangers' certificates, sessions that are resumed, and
//! authorities that change while streams run, and streams that end with their caller's credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use rustls::HandshakeKind;
use serde_json::json;
use sluice_gateway::authn::{
    AuthenticatorOptions, ClientAuthority, ReviewFuture, Reviewer, ReviewerOutage, TokenReviews,
    TokenReviewsOptions,
};
use sluice_gateway::upstream::{Cluster, ClusterSpec};
use tokio::sync::{Notify, Semaphore};

use crate::fake::{Fake, Options, Script, fine, script};
use crate::pipeline::Whole;
use crate::rig::{Authority, Client, get, text, until};

/// Lets every token be bot's.
struct Everybody;

impl Reviewer for Everybody {
    fn post(&self, _path: &'static str, _review: Bytes) -> ReviewFuture<'_> {
        Box::pin(async {
            let user = json!({"username": "bot"});
            let status = json!({"authenticated": true, "user": user});
            Ok(Bytes::from(json!({ "status": status }).to_string()))
        })
    }
}

fn authority(of: &Authority) -> Arc<ClientAuthority> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.crt");
    std::fs::write(&path, &of.ca_pem).unwrap();
    Arc::new(ClientAuthority::load(&path.into()).unwrap())
}

/// By certificates of one authority, and by token.
fn options(of: &Authority) -> AuthenticatorOptions {
    let tokens = TokenReviews::new(Arc::new(Everybody), TokenReviewsOptions::default());
    AuthenticatorOptions {
        authority: Some(authority(of)),
        tokens: Some(Arc::new(tokens)),
        anonymous: true,
        ..AuthenticatorOptions::default()
    }
}

async fn front(script: Script, clients: &Authority) -> (Fake, Whole) {
    let fake = Fake::start(Options::default(), script).await;
    let cluster = Cluster::spawn(ClusterSpec::new("test", [fake.url()])).unwrap();
    let whole = Whole::with(cluster, options(clients)).await;
    (fake, whole)
}

/// A client that trusts the gateway and shows a certificate of another authority's.
fn showing(whole: &Whole, clients: &Authority) -> Arc<rustls::ClientConfig> {
    let mut both = Authority::new();
    both.ca_pem.clone_from(&whole.rig.authority.ca_pem);
    both.client_der = clients.client_der.clone();
    both.client_key.clone_from(&clients.client_key);
    Arc::new(both.client_config(true, &[b"h2"]))
}

async fn status(client: &mut Client, bearer: Option<&'static str>) -> StatusCode {
    let mut request = get("/api/v1/pods");
    if let Some(bearer) = bearer {
        let headers = request.headers_mut();
        headers.insert("authorization", bearer.parse().unwrap());
    }
    let response = client.send(request).await.unwrap();
    let status = response.status();
    text(response).await;
    status
}

#[tokio::test]
async fn a_strangers_certificate_is_401_and_a_token_beside_it_counts() {
    let (clients, stranger) = (Authority::new(), Authority::new());
    let (_fake, whole) = front(fine(), &clients).await;
    let stream = whole.rig.tls_by(showing(&whole, &stranger)).await;
    let mut client = Client::over(stream).await;
    for _ in 0..2 {
        let refused = status(&mut client, None).await;
        assert_eq!(refused, StatusCode::UNAUTHORIZED, "and not anonymous");
        let known = status(&mut client, Some("Bearer good")).await;
        assert_eq!(known, StatusCode::OK, "on the same connection");
    }
    let stream = whole.rig.tls_by(showing(&whole, &clients)).await;
    let mut client = Client::over(stream).await;
    assert_eq!(status(&mut client, None).await, StatusCode::OK);
}

#[tokio::test]
async fn a_resumed_session_is_judged_anew_and_ends_with_its_authorities() {
    let (old, new) = (Authority::new(), Authority::new());
    let (_fake, whole) = front(fine(), &old).await;
    let jane = showing(&whole, &old);
    let ask = async || {
        let stream = whole.rig.tls_by(Arc::clone(&jane)).await;
        let kind = stream.get_ref().1.handshake_kind();
        let mut client = Client::over(stream).await;
        (kind, status(&mut client, None).await)
    };
    let resumed = Some(HandshakeKind::Resumed);
    assert_eq!(ask().await, (Some(HandshakeKind::Full), StatusCode::OK));
    assert_eq!(ask().await, (resumed, StatusCode::OK));
    // The same spec again, as a reload of other things does: sessions stay.
    whole.tls.replace(&whole.rig.authority.tls_spec()).unwrap();
    assert_eq!(ask().await, (resumed, StatusCode::OK));
    // The authority has changed and the listener has not heard of it yet.
    whole.admit(options(&new));
    assert_eq!(ask().await, (resumed, StatusCode::UNAUTHORIZED));
    let mut spec = whole.rig.authority.tls_spec();
    spec.client_cas_pem = vec![new.ca_pem.clone().into_bytes()];
    whole.tls.replace(&spec).unwrap();
    let full = Some(HandshakeKind::Full);
    assert_eq!(ask().await.0, full, "no session outlives its authorities");
}

#[tokio::test]
async fn an_authority_changes_while_streams_run() {
    let (old, new) = (Authority::new(), Authority::new());
    let go_on = Arc::new(Notify::new());
    let going_on = Arc::clone(&go_on);
    let streaming = script(move |mut exchange| {
        let going_on = Arc::clone(&going_on);
        async move {
            let is_watch = exchange.request.uri().query().is_some();
            let head = Response::builder()
                .header("content-type", "application/json")
                .body(())
                .unwrap();
            let mut stream = exchange.respond.send_response(head, false).unwrap();
            if is_watch {
                stream
                    .send_data(Bytes::from_static(b"{1}\n"), false)
                    .unwrap();
                going_on.notified().await;
            }
            stream
                .send_data(Bytes::from_static(b"{2}\n"), true)
                .unwrap();
        }
    });
    let (_fake, whole) = front(streaming, &old).await;
    let stream = whole.rig.tls_by(showing(&whole, &old)).await;
    let mut jane = Client::over(stream).await;
    let watch = jane.get("/api/v1/pods?watch=true").await;
    assert_eq!(watch.status(), StatusCode::OK);
    let mut watch = watch.into_body();
    let first = watch.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "{1}\n");

    whole.admit(options(&new));
    // What runs goes on; the next request of the same connection is judged by the new authority.
    assert_eq!(status(&mut jane, None).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&mut jane, Some("Bearer good")).await, StatusCode::OK);
    go_on.notify_one();
    let second = watch.frame().await.unwrap().unwrap();
    assert_eq!(second.into_data().unwrap(), "{2}\n");
    let stream = whole.rig.tls_by(showing(&whole, &new)).await;
    let mut bob = Client::over(stream).await;
    assert_eq!(status(&mut bob, None).await, StatusCode::OK);
}

/// Of whom it may be said that nobody knows: [`GOOD`], [`OUT`] or [`BAD`].
#[derive(Default)]
struct Changing {
    says: AtomicU8,
    asked: AtomicUsize,
}

const GOOD: u8 = 0;
const OUT: u8 = 1;
const BAD: u8 = 2;

/// Shared with the test.
struct Asked(Arc<Changing>);

impl Reviewer for Asked {
    fn post(&self, _path: &'static str, _review: Bytes) -> ReviewFuture<'_> {
        Box::pin(async {
            self.0.asked.fetch_add(1, Ordering::Relaxed);
            let says = self.0.says.load(Ordering::Relaxed);
            if says == OUT {
                return Err(ReviewerOutage("it is out".to_owned()));
            }
            let status = json!({"authenticated": says == GOOD, "user": {"username": "bot"}});
            Ok(Bytes::from(json!({ "status": status }).to_string()))
        })
    }
}

/// An event at once, and one for each permit.
fn on_demand(go_on: &Arc<Semaphore>) -> Script {
    let go_on = Arc::clone(go_on);
    script(move |mut exchange| {
        let go_on = Arc::clone(&go_on);
        async move {
            let head = Response::builder()
                .header("content-type", "application/json")
                .body(())
                .unwrap();
            let mut stream = exchange.respond.send_response(head, false).unwrap();
            let event = Bytes::from_static(b"{1}\n");
            while stream.send_data(event.clone(), false).is_ok() {
                go_on.acquire().await.unwrap().forget();
            }
        }
    })
}

/// Of a stream: that it goes on, or ends whole.
async fn next(watch: &mut hyper::body::Incoming) -> Option<Bytes> {
    loop {
        let frame = tokio::time::timeout(Duration::from_secs(20), watch.frame()).await;
        let frame = frame.expect("an event or the end")?;
        let data = frame.unwrap().into_data().unwrap();
        // The end may come with a frame of its own, in which there is nothing.
        if !data.is_empty() {
            return Some(data);
        }
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_callers_token_and_not_with_an_outage() {
    let (go_on, reviewer) = (Arc::new(Semaphore::new(0)), Arc::new(Changing::default()));
    let fake = Fake::start(Options::default(), on_demand(&go_on)).await;
    let cluster = Cluster::spawn(ClusterSpec::new("test", [fake.url()])).unwrap();
    let tokens = TokenReviewsOptions {
        accepted_for: Duration::from_millis(10),
        refused_for: Duration::from_millis(10),
        ..TokenReviewsOptions::default()
    };
    let tokens = TokenReviews::new(Arc::new(Asked(Arc::clone(&reviewer))), tokens);
    let options = AuthenticatorOptions {
        tokens: Some(Arc::new(tokens)),
        ..AuthenticatorOptions::default()
    };
    let whole = Whole::rejudging(cluster, options).await;
    let mut bot = whole.rig.http2().await;
    let mut request = get("/api/v1/pods?watch=true");
    let headers = request.headers_mut();
    headers.insert("authorization", "Bearer token".parse().unwrap());
    let watch = bot.send(request).await.unwrap();
    assert_eq!(watch.status(), StatusCode::OK);
    let mut watch = watch.into_body();
    assert!(next(&mut watch).await.is_some());

    until(|| reviewer.asked.load(Ordering::Relaxed) >= 4).await;
    reviewer.says.store(OUT, Ordering::Relaxed);
    let before = reviewer.asked.load(Ordering::Relaxed);
    until(|| reviewer.asked.load(Ordering::Relaxed) > before).await;
    go_on.add_permits(1);
    assert!(next(&mut watch).await.is_some(), "an outage is no verdict");

    reviewer.says.store(BAD, Ordering::Relaxed);
    assert_eq!(next(&mut watch).await, None, "whole, between two events");
}

#[tokio::test]
async fn a_stream_ends_with_the_authority_of_its_callers_certificate() {
    let (old, new) = (Authority::new(), Authority::new());
    let go_on = Arc::new(Semaphore::new(0));
    let fake = Fake::start(Options::default(), on_demand(&go_on)).await;
    let cluster = Cluster::spawn(ClusterSpec::new("test", [fake.url()])).unwrap();
    let whole = Whole::rejudging(cluster, options(&old)).await;
    let stream = whole.rig.tls_by(showing(&whole, &old)).await;
    let mut jane = Client::over(stream).await;
    let mut watch = jane.get("/api/v1/pods?watch=true").await.into_body();
    assert!(next(&mut watch).await.is_some());
    // Another snapshot that still trusts it changes nothing.
    whole.admit(options(&old));
    go_on.add_permits(1);
    assert!(next(&mut watch).await.is_some());
    whole.admit(options(&new));
    assert_eq!(next(&mut watch).await, None, "whole, between two events");
}
