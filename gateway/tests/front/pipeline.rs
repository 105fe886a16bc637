//! The whole pipeline between a real listener and an upstream: one account of each request,
//! whatever becomes of it, and limits that are held as long as what they limit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use sluice_gateway::audit::{self, AdminChange, Event, EventStage, Recorder, Sink};
use sluice_gateway::authn::{Authenticator, AuthenticatorOptions};
use sluice_gateway::drain::Drain;
use sluice_gateway::flow::{
    FlowSpec, FlowTable, InFlightSpec, LiveState, MatchSpec, RuleSpec, SendSpec,
};
use sluice_gateway::listener::{Listener, TlsSource};
use sluice_gateway::pipeline::Gateway;
use sluice_gateway::snapshot::{Route, RoutingSnapshot, Target};
use sluice_gateway::telemetry::Telemetry;
use sluice_gateway::upstream::{Cluster, ClusterSpec, SubsetMembers, SubsetSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fake::{Exchange, Fake, Options, UpgradeAnswer, answer, fine, script};
use crate::rig::{Authority, Rig, get, until};

const EXEC: &str = "/api/v1/namespaces/n/pods/p/exec?command=sh";

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Event>>>);

impl Sink for Seen {
    fn event(&mut self, event: &Event) {
        self.0.lock().push(event.clone());
    }
    fn admin(&mut self, _change: &AdminChange) {}
    fn flush(&mut self) {}
}

pub(crate) struct Whole {
    pub(crate) rig: Rig,
    live: Arc<LiveState>,
    recorder: Recorder,
    seen: Seen,
    telemetry: Telemetry,
    published: Arc<ArcSwap<RoutingSnapshot>>,
    pub(crate) tls: Arc<TlsSource>,
}

impl Whole {
    /// A gateway before `fake` that lets anonymous callers in, under one rule.
    async fn new(fake: &Fake, anonymous: bool, long_running: Option<u32>) -> Whole {
        let cluster = ClusterSpec::new("test", [fake.url()]);
        Whole::before(cluster, anonymous, rule(long_running)).await
    }

    /// A gateway before a cluster, under one rule.
    async fn before(cluster: ClusterSpec, anonymous: bool, rule: RuleSpec) -> Whole {
        let options = AuthenticatorOptions {
            anonymous,
            ..AuthenticatorOptions::default()
        };
        Whole::under(Cluster::spawn(cluster).unwrap(), options, rule).await
    }

    /// A gateway before a cluster that lets in whom the options do.
    pub(crate) async fn with(cluster: Arc<Cluster>, options: AuthenticatorOptions) -> Whole {
        Whole::under(cluster, options, rule(None)).await
    }

    /// The same, where callers of streams are judged again all the time.
    pub(crate) async fn rejudging(cluster: Arc<Cluster>, options: AuthenticatorOptions) -> Whole {
        Whole::made(
            cluster,
            options,
            rule(None),
            Some(Duration::from_millis(20)),
        )
        .await
    }

    async fn under(cluster: Arc<Cluster>, options: AuthenticatorOptions, rule: RuleSpec) -> Whole {
        Whole::made(cluster, options, rule, None).await
    }

    async fn made(
        cluster: Arc<Cluster>,
        options: AuthenticatorOptions,
        rule: RuleSpec,
        rejudge_every: Option<Duration>,
    ) -> Whole {
        let live = LiveState::new(Instant::now(), 1);
        let spec = FlowSpec { rules: vec![rule] };
        let flows = FlowTable::compile(&spec, "test", &live).unwrap();
        let snapshot = snapshot(&cluster, options, flows);
        let published = Arc::new(ArcSwap::from_pointee(snapshot));
        let seen = Seen::default();
        let recorder = audit::spawn(vec![Box::new(seen.clone())]).unwrap();
        let telemetry = Telemetry::new().unwrap();
        let (kept, metrics) = (recorder.clone(), telemetry.requests());
        let gateway = match rejudge_every {
            None => Gateway::new(Arc::clone(&published), kept, metrics),
            Some(every) => Gateway::rejudging(Arc::clone(&published), kept, metrics, every),
        };
        let authority = Authority::new();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let address = listener.address();
        let tls = TlsSource::new(&authority.tls_spec()).unwrap();
        let drain = Drain::new();
        tokio::spawn(listener.serve(Arc::clone(&tls), gateway.handler(), drain.clone()));
        Whole {
            rig: Rig {
                cluster,
                drain,
                address,
                authority,
            },
            live,
            recorder,
            seen,
            telemetry,
            published,
            tls,
        }
    }

    /// Lets in others from now on, as a reload does.
    pub(crate) fn admit(&self, options: AuthenticatorOptions) {
        let spec = FlowSpec { rules: Vec::new() };
        let flows = FlowTable::compile(&spec, "test", &self.live).unwrap();
        let snapshot = snapshot(&self.rig.cluster, options, flows);
        self.published.store(Arc::new(snapshot));
    }

    /// Waits for `count` accounts, and that there are no more.
    pub(crate) async fn events(&self, count: usize) -> Vec<Event> {
        until(|| {
            self.recorder.flush(Duration::from_secs(5));
            self.seen.0.lock().len() >= count
        })
        .await;
        let events = self.seen.0.lock().clone();
        assert_eq!(events.len(), count, "{events:?}");
        events
    }

    pub(crate) fn metrics(&self) -> String {
        self.telemetry.text().unwrap()
    }

    fn has_metric(&self, line: &str) -> bool {
        let text = self.metrics();
        text.lines().any(|l| l == line)
    }

    fn long_running(&self) -> u64 {
        self.live.counts()[0].long_running
    }
}

/// A rule for all that bounds only what is long-running.
fn rule(long_running: Option<u32>) -> RuleSpec {
    RuleSpec {
        long_running: long_running.map(|max| InFlightSpec {
            max,
            key: Vec::new(),
            queue: None,
        }),
        ..RuleSpec::new("all/one")
    }
}

fn snapshot(
    cluster: &Arc<Cluster>,
    options: AuthenticatorOptions,
    flows: FlowTable,
) -> RoutingSnapshot {
    let route = Route {
        name: "test".into(),
        target: Target::Upstream(Arc::clone(cluster)),
        authenticator: Arc::new(Authenticator::new(options)),
        flows: Arc::new(flows),
    };
    RoutingSnapshot::new(1, vec![(route, Vec::new(), true)])
}

fn exec() -> Request<Full<Bytes>> {
    Request::post(EXEC)
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Full::default())
        .unwrap()
}

#[tokio::test]
async fn a_tunnel_keeps_its_place_under_a_limit_until_it_ends() {
    let upgrade = UpgradeAnswer {
        head: "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n".into(),
        echoes: true,
    };
    let options = Options {
        upgrade,
        ..Options::default()
    };
    let fake = Fake::start(options, fine()).await;
    let whole = Whole::new(&fake, true, Some(1)).await;
    let response = whole.rig.http1().await.send_request(exec()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut tunnel = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    tunnel.write_all(b"a").await.unwrap();
    assert_eq!(tunnel.read_u8().await.unwrap(), b'a');
    let second = whole.rig.http1().await.send_request(exec()).await.unwrap();
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(whole.has_metric("apiserver_longrunning_requests 1"));
    drop(tunnel);
    until(|| whole.long_running() == 0).await;
    assert!(whole.has_metric("apiserver_longrunning_requests 0"));
    let third = whole.rig.http1().await.send_request(exec()).await.unwrap();
    assert_eq!(third.status(), StatusCode::SWITCHING_PROTOCOLS);
    let events = whole.events(4).await;
    let told: Vec<_> = events.iter().map(|e| (e.code, e.stage)).collect();
    let (begun, over) = (EventStage::Started, EventStage::Complete);
    assert_eq!(told, [(101, begun), (429, over), (101, over), (101, begun)]);
    assert_eq!(events[0].id, events[2].id, "one session");
    assert_eq!((events[2].taken, events[2].sent), (1, 1), "bytes each way");
    assert!(events[2].took >= events[0].took);
}

#[tokio::test]
async fn a_refused_head_is_answered_by_a_head_alone() {
    let fake = Fake::start(Options::default(), fine()).await;
    let whole = Whole::new(&fake, false, None).await;
    let head = || {
        Request::head("https://localhost/api/v1/pods")
            .body(Full::default())
            .unwrap()
    };
    let response = whole.rig.http2().await.send(head()).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_ne!(response.headers()["content-length"], "0");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "");
    let mut over_http1 = head();
    *over_http1.uri_mut() = "/api/v1/pods".parse().unwrap();
    let headers = over_http1.headers_mut();
    headers.insert("host", "localhost".parse().unwrap());
    let response = whole.rig.http1().await.send_request(over_http1).await;
    assert_eq!(response.unwrap().status(), StatusCode::UNAUTHORIZED);
    for event in whole.events(2).await {
        assert_eq!((event.code, event.sent, event.broken), (401, 0, false));
    }
}

/// A Go server ends a stream with an empty frame of its own, which an HTTP/1.1 connection that
/// knows the length does not wait for.
async fn with_length(mut exchange: Exchange, release: Arc<tokio::sync::Notify>) {
    let response = Response::builder()
        .header("content-type", "application/json")
        .header("content-length", "2")
        .body(())
        .unwrap();
    let mut stream = exchange.respond.send_response(response, false).unwrap();
    stream.send_data(Bytes::from_static(b"{}"), false).unwrap();
    release.notified().await;
    let _ = stream.send_data(Bytes::new(), true);
}

#[tokio::test]
async fn an_answer_of_known_length_is_whole_with_its_last_byte() {
    let release = Arc::new(tokio::sync::Notify::new());
    let held = Arc::clone(&release);
    let act = move |exchange| with_length(exchange, Arc::clone(&held));
    let fake = Fake::start(Options::default(), script(act)).await;
    let whole = Whole::new(&fake, true, None).await;
    let request = Request::get("/api/v1/pods")
        .header("host", "localhost")
        .body(Full::default())
        .unwrap();
    let response = whole.rig.http1().await.send_request(request).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "{}"
    );
    let event = whole.events(1).await.remove(0);
    assert_eq!((event.code, event.sent, event.broken), (200, 2, false));
    release.notify_one();
}

#[tokio::test]
async fn a_frame_that_only_ends_the_stream_is_passed_on_after_the_account() {
    let release = Arc::new(tokio::sync::Notify::new());
    let held = Arc::clone(&release);
    let act = move |exchange| with_length(exchange, Arc::clone(&held));
    let fake = Fake::start(Options::default(), script(act)).await;
    let whole = Whole::new(&fake, true, None).await;
    let mut client = whole.rig.http2().await;
    let mut body = client.get("/api/v1/pods").await.into_body();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "{}");
    let event = whole.events(1).await.remove(0);
    assert_eq!((event.code, event.sent, event.broken), (200, 2, false));
    release.notify_one();
    let rest = body.collect().await.unwrap().to_bytes();
    assert_eq!(rest, "");
    whole.events(1).await;
}

#[tokio::test]
async fn a_client_that_leaves_at_any_time_is_accounted_for_once() {
    let fake = Fake::start(
        Options::default(),
        script(|mut exchange: Exchange| async move {
            match exchange.request.uri().path() {
                "/api/v1/nodes" => std::future::pending().await,
                "/api/v1/pods" => {
                    let response = Response::builder().body(()).unwrap();
                    let mut stream = exchange.respond.send_response(response, false).unwrap();
                    stream.send_data(Bytes::from_static(b"{"), false).unwrap();
                    std::future::pending().await
                }
                _ => answer(exchange, StatusCode::OK, "{}").await,
            }
        }),
    )
    .await;
    let whole = Whole::new(&fake, true, None).await;
    let mut client = whole.rig.http2().await;
    let in_flight = || whole.live.counts()[0].in_flight;
    // Before the head ...
    let waiting = tokio::spawn({
        let mut client = client.clone();
        async move { client.send(get("/api/v1/nodes")).await.map(drop) }
    });
    until(|| fake.seen.requests.load(Ordering::SeqCst) == 1).await;
    waiting.abort();
    whole.events(1).await;
    // ... and in the middle of the content.
    let mut response = client.get("/api/v1/pods").await;
    response.frame().await.unwrap().unwrap();
    assert_eq!(in_flight(), 1);
    drop(response);
    let events = whole.events(2).await;
    assert_eq!((events[0].code, events[0].broken), (0, true));
    assert_eq!((events[1].code, events[1].broken), (200, true));
    until(|| in_flight() == 0).await;
    assert_eq!(client.get("/api/v1/services").await.status(), 200);
    whole.events(3).await;
}

/// A rule that is about lists sends those to its subset, and nothing else.
#[tokio::test]
async fn a_rule_sends_its_requests_to_a_subset() {
    let fakes = [
        Fake::start(Options::default(), fine()).await,
        Fake::start(Options::default(), fine()).await,
        Fake::start(Options::default(), fine()).await,
    ];
    let mut cluster = ClusterSpec::new("test", fakes.iter().map(Fake::url));
    cluster.endpoints[2].labels = vec!["big".to_owned()];
    cluster.subsets = vec![SubsetSpec {
        name: "lists".to_owned(),
        members: SubsetMembers::Labelled(vec!["big".to_owned()]),
        is_strict: true,
    }];
    let rule = RuleSpec {
        matches: MatchSpec {
            verbs: vec!["list".to_owned()],
            ..MatchSpec::default()
        },
        send_to: vec![SendSpec {
            subset: "lists".to_owned(),
            weight: std::num::NonZeroU32::MIN,
        }],
        ..RuleSpec::new("all/lists")
    };
    let whole = Whole::before(cluster, true, rule).await;
    whole.rig.probed().await;
    let mut client = whole.rig.http2().await;
    for _ in 0..20 {
        assert_eq!(client.get("/api/v1/pods").await.status(), StatusCode::OK);
    }
    assert_eq!(fakes.each_ref().map(Fake::requests), [0, 0, 20]);
    for _ in 0..30 {
        let one = client.get("/api/v1/namespaces/n/pods/p").await;
        assert_eq!(one.status(), StatusCode::OK);
    }
    let after = fakes.each_ref().map(Fake::requests);
    assert!(after[0] >= 5 && after[1] >= 5, "{after:?}");
}
