//! Traces of requests: a collector that takes OTLP over HTTP sees them, the apiserver behind is told
//! whose part its work is, and a collector that is not there costs no request anything.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use sluice_e2e::client::{Client, Http2};
use sluice_e2e::fake::{self, Fake};
use sluice_e2e::process::eventually;
use sluice_e2e::site::Site;
use sluice_e2e::sluice::Gateway;

const LIMIT: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/n/pods";
const SLOW: &str = "/api/v1/namespaces/n/pods?slow";
const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

const RULES: &str = "apiVersion: sluice.io/v1alpha1\nkind: RateRules\nmetadata: { name: limits }\nspec:\n\
                     \x20 cluster: main\n  rules:\n\
                     \x20 - { name: one, inFlight: { max: 1, key: [], queue: { max: 9, wait: 30s } } }\n";

struct Stage {
    site: Site,
    gateway: Gateway,
    upstream: Fake,
    taken: Arc<Mutex<Vec<Span>>>,
    collector: Option<Fake>,
}

async fn stage() -> Stage {
    let site = Site::make();
    let leaf = site.own.issue("upstream", &[], &[]);
    let script = |request: http::Request<hyper::body::Incoming>| async move {
        if request.uri().query() == Some("slow") {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        fake::answer(200, "{}")
    };
    let upstream = Fake::start(0, &leaf, script).await;
    let taken = Arc::<Mutex<Vec<Span>>>::default();
    let kept = Arc::clone(&taken);
    let collector = Fake::start(0, &leaf, move |request| take(request, Arc::clone(&kept))).await;
    let tracing = format!(
        "tracing:\n  endpoint: https://127.0.0.1:{}/v1/traces\n  caFile: own.crt\n  samplesPerMillion: 0\n",
        collector.port
    );
    site.write("sluice.yaml", &format!("{}{tracing}", site.front()));
    site.cluster("main", upstream.port, "own.crt", "  default: true\n");
    site.write("rules/limits.yaml", RULES);
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;
    Stage {
        site,
        gateway,
        upstream,
        taken,
        collector: Some(collector),
    }
}

/// What a collector does.
async fn take(
    request: http::Request<hyper::body::Incoming>,
    kept: Arc<Mutex<Vec<Span>>>,
) -> fake::Answer {
    assert_eq!(request.uri().path(), "/v1/traces");
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let all = ExportTraceServiceRequest::decode(body).unwrap();
    for resource in all.resource_spans {
        let facts = resource.resource.unwrap().attributes;
        let named = facts.iter().find(|fact| fact.key == "service.name");
        let name = named.unwrap().value.clone().unwrap().value;
        assert_eq!(name, Some(Value::StringValue("sluice".to_owned())));
        for scope in resource.scope_spans {
            kept.lock().extend(scope.spans);
        }
    }
    fake::answer(200, "")
}

async fn ask(client: &Client, connection: &Http2, path: &str, parent: Option<&str>) -> u16 {
    let mut request = client.request("GET", path);
    if let Some(parent) = parent {
        request = request.header("traceparent", parent);
    }
    let request = request.body(Full::default()).unwrap();
    connection.exchange(request).await.unwrap().status.as_u16()
}

fn word(span: &Span, key: &str) -> Option<String> {
    let fact = span.attributes.iter().find(|fact| fact.key == key)?;
    match fact.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Stage {
    /// The spans of a server, once there are so many.
    async fn servers(&self, count: usize) -> Vec<Span> {
        let servers = || -> Vec<Span> {
            let taken = self.taken.lock();
            let servers = taken.iter().filter(|span| span.kind == 2);
            servers.cloned().collect()
        };
        eventually(&format!("{count} spans of a server"), LIMIT, || async {
            let there = servers().len();
            if there < count {
                return Err(there.to_string());
            }
            Ok(())
        })
        .await;
        assert_eq!(servers().len(), count);
        servers()
    }

    fn parts(&self, of: &Span) -> Vec<Span> {
        let taken = self.taken.lock();
        let below = taken.iter().filter(|it| it.parent_span_id == of.span_id);
        below.cloned().collect()
    }

    /// What the apiserver was told last.
    fn told(&self) -> Option<String> {
        let seen = self.upstream.seen();
        let header = seen.last().unwrap().headers.get("traceparent")?.clone();
        Some(header.to_str().unwrap().to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_a_span_with_its_parts_and_goes_on_upstream() {
    let mut stage = stage().await;
    let user = stage.site.user();
    let connection = user.http2().await.unwrap();
    assert_eq!(ask(&user, &connection, PODS, Some(SAMPLED)).await, 200);
    let told = stage.told().unwrap();
    let server = stage.servers(1).await.remove(0);
    assert_eq!(hex(&server.trace_id), SAMPLED[3..35]);
    assert_eq!(hex(&server.parent_span_id), SAMPLED[36..52]);
    let (trace, span) = (hex(&server.trace_id), hex(&server.span_id));
    assert_eq!(told, format!("00-{trace}-{span}-01"));
    let seen = stage.upstream.seen();
    assert!(!seen[0].headers.contains_key("tracestate"));
    assert_eq!(server.name, "list pods");
    let facts = [
        ("sluice.cluster", "main"),
        ("sluice.rule", "limits/one"),
        ("sluice.attempts", "1"),
        ("http.response.status_code", "200"),
        ("k8s.namespace.name", "n"),
    ];
    for (key, value) in facts {
        assert_eq!(word(&server, key).as_deref(), Some(value), "{key}");
    }
    let audit = word(&server, "sluice.audit_id").unwrap();
    assert_eq!(audit.len(), 36, "{audit}");
    let parts = stage.parts(&server);
    let names: BTreeSet<&str> = parts.iter().map(|it| it.name.as_str()).collect();
    let expected = ["authn", "body", "connect", "match", "upstream"];
    assert_eq!(names, BTreeSet::from(expected));
    for part in &parts {
        assert_eq!(part.trace_id, server.trace_id);
        let within = server.start_time_unix_nano..=server.end_time_unix_nano;
        assert!(within.contains(&part.start_time_unix_nano), "{}", part.name);
        assert!(within.contains(&part.end_time_unix_nano), "{}", part.name);
    }

    // Nobody asks for these to be traced, and so they go on as they came.
    assert_eq!(ask(&user, &connection, PODS, None).await, 200);
    assert_eq!(stage.told(), None);
    assert_eq!(ask(&user, &connection, PODS, Some(UNSAMPLED)).await, 200);
    assert_eq!(stage.told().as_deref(), Some(UNSAMPLED));

    // One has to wait for its turn; what is left when the process ends is sent before.
    let slow = |path| ask(&user, &connection, path, Some(SAMPLED));
    let (first, second) = tokio::join!(slow(SLOW), slow(SLOW));
    assert_eq!((first, second), (200, 200));
    let process = stage.gateway.process().unwrap();
    assert!(process.terminate(LIMIT).success());
    let servers = stage.servers(3).await;
    let waits = servers.iter().flat_map(|it| stage.parts(it));
    let waits: Vec<Span> = waits.filter(|it| it.name == "limit wait").collect();
    assert_eq!(waits.len(), 1);
    let waited = waits[0].end_time_unix_nano - waits[0].start_time_unix_nano;
    assert!(waited > 100_000_000, "{waited} ns");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_gone_costs_no_request_anything() {
    let mut stage = stage().await;
    stage.collector.take().unwrap().stop().await;
    let user = stage.site.user();
    let connection = user.http2().await.unwrap();
    for _ in 0..3_000 {
        assert_eq!(ask(&user, &connection, PODS, Some(SAMPLED)).await, 200);
    }
    let process = stage.gateway.process().unwrap();
    assert!(process.terminate(LIMIT).success());
    assert!(stage.taken.lock().is_empty());
}
