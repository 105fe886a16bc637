//! A gateway in front of scripted kube-apiservers that can be told to fail, and that count.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use sluice_e2e::fake::{self, Answer, Fake, Streamed};
use sluice_e2e::pki::Leaf;
use sluice_e2e::ports;
use sluice_e2e::site::Site;
use sluice_e2e::sluice::Gateway;
use tokio::sync::mpsc::{self, UnboundedSender};

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/n/configmaps";
pub(crate) const QUICK: &str = "/api/v1/namespaces/n/configmaps/quick";
pub(crate) const WATCH: &str = "/api/v1/namespaces/n/configmaps?watch=1&resourceVersion=1";
pub(crate) const SLOW: &str = "/api/v1/namespaces/n/configmaps?slow";
pub(crate) const LARGE: &str = "/api/v1/namespaces/n/configmaps?large";

/// Only reached when what is waited for does not come.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Bytes of a large list.
pub(crate) const LARGE_BYTES: usize = 4 << 20;

/// How long a slow list takes.
pub(crate) const SLOW_TAKES: Duration = Duration::from_millis(100);

/// How much of a test is done: once in the gate, more by `make faults`.
pub(crate) fn full(smoke: usize, full: usize) -> usize {
    if std::env::var_os("SLUICE_FAULTS_FULL").is_some() {
        full
    } else {
        smoke
    }
}

/// One scripted kube-apiserver.
pub(crate) struct Upstream {
    pub(crate) port: u16,
    pub(crate) told: Arc<Told>,
    leaf: Leaf,
    running: Option<Fake>,
}

/// What an upstream is told, and what it has seen.
#[derive(Default)]
pub(crate) struct Told {
    /// A status to answer everything with but the probe; none is 0.
    pub(crate) failing: AtomicU16,
    pub(crate) reads: AtomicUsize,
    pub(crate) writes: Mutex<HashMap<String, usize>>,
    /// Slow lists under way, and the most there were.
    slow: AtomicUsize,
    pub(crate) slow_max: AtomicUsize,
    watches: Mutex<Vec<UnboundedSender<Bytes>>>,
}

impl Told {
    /// Says an event of this version on every watch that is open.
    pub(crate) fn event(&self, version: u64) {
        let event = format!(
            "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"{version}\"}}}}}}\n"
        );
        let event = Bytes::from(event);
        self.watches
            .lock()
            .retain(|watch| watch.send(event.clone()).is_ok());
    }

    /// Watches that somebody still reads.
    pub(crate) fn open(&self) -> usize {
        let mut watches = self.watches.lock();
        watches.retain(|watch| !watch.is_closed());
        watches.len()
    }
}

async fn script(told: Arc<Told>, request: Request<Incoming>) -> Answer {
    let failing = told.failing.load(Ordering::Relaxed);
    if request.method() == Method::GET {
        told.reads.fetch_add(1, Ordering::Relaxed);
    } else {
        let path = request.uri().path().to_owned();
        // All of it, so that the connection is left as it was.
        let _ = request.into_body().collect().await;
        *told.writes.lock().entry(path).or_default() += 1;
        let status = if failing == 0 { 201 } else { failing };
        return fake::answer(status, "{}");
    }
    if failing != 0 {
        return fake::answer(failing, r#"{"kind":"Status","status":"Failure"}"#);
    }
    match request.uri().query().unwrap_or_default() {
        query if query.contains("watch=1") => {
            let head = Response::builder().header("content-type", "application/json");
            let (send, events) = mpsc::unbounded_channel();
            told.watches.lock().push(send);
            head.body(Streamed(events).boxed()).unwrap()
        }
        "slow" => {
            let under_way = told.slow.fetch_add(1, Ordering::SeqCst) + 1;
            told.slow_max.fetch_max(under_way, Ordering::SeqCst);
            tokio::time::sleep(SLOW_TAKES).await;
            told.slow.fetch_sub(1, Ordering::SeqCst);
            fake::answer(
                200,
                r#"{"kind":"ConfigMapList","apiVersion":"v1","items":[]}"#,
            )
        }
        "large" => fake::answer(200, vec![b'x'; LARGE_BYTES]),
        _ => fake::answer(200, r#"{"kind":"ConfigMap","apiVersion":"v1"}"#),
    }
}

impl Upstream {
    fn new(site: &Site, number: usize) -> Upstream {
        Upstream {
            port: ports::free(),
            told: Arc::default(),
            leaf: site.own.issue(&format!("upstream-{number}"), &[], &[]),
            running: None,
        }
    }

    pub(crate) async fn start(&mut self) {
        let told = Arc::clone(&self.told);
        let script = move |request| script(Arc::clone(&told), request);
        self.running = Some(Fake::start(self.port, &self.leaf, script).await);
    }

    /// With its connections, at once.
    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop().await;
        }
    }
}

/// A gateway, with upstreams that run.
pub(crate) struct Front {
    pub(crate) site: Site,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) gateway: Gateway,
}

impl Front {
    /// Writes the files and starts the upstreams; the gateway is not started.
    pub(crate) async fn of(upstreams: usize) -> Front {
        Front::behind(upstreams, |port| port).await
    }

    /// As [`Front::of`], with each upstream found at the port that `at` makes of its own.
    pub(crate) async fn behind(upstreams: usize, mut at: impl FnMut(u16) -> u16) -> Front {
        let site = Site::make();
        site.write("sluice.yaml", &site.front());
        let mut all = Vec::new();
        for number in 0..upstreams {
            let mut one = Upstream::new(&site, number);
            one.start().await;
            all.push(one);
        }
        let urls: Vec<String> = all
            .iter()
            .map(|one| format!("{{ url: \"https://127.0.0.1:{}\" }}", at(one.port)))
            .collect();
        site.cluster("main", 1, "own.crt", "  default: true\n");
        let text = std::fs::read_to_string(site.path("rules/main.yaml")).unwrap();
        let text = text.replace("{ url: \"https://127.0.0.1:1\" }", &urls.join(", "));
        site.write("rules/main.yaml", &text);
        let gateway = site.gateway();
        Front {
            site,
            upstreams: all,
            gateway,
        }
    }

    /// As [`Front::of`], started and ready.
    pub(crate) async fn ready(upstreams: usize) -> Front {
        let mut front = Front::of(upstreams).await;
        front.gateway.start();
        front.gateway.ready().await;
        front
    }

    /// Requests that reached the upstreams.
    pub(crate) fn reads(&self) -> usize {
        let reads = self.upstreams.iter().map(|one| &one.told.reads);
        reads.map(|reads| reads.load(Ordering::Relaxed)).sum()
    }

    /// The most often that one write was carried out, over all upstreams.
    pub(crate) fn repeats(&self) -> usize {
        let mut all = HashMap::<String, usize>::new();
        for one in &self.upstreams {
            for (path, count) in one.told.writes.lock().iter() {
                *all.entry(path.clone()).or_default() += count;
            }
        }
        all.into_values().max().unwrap_or_default()
    }

    /// The value of a series of the gateway's metrics: the first line that begins so.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let answer = self
            .gateway
            .admin
            .once("GET", "/metrics", "")
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let line = text.lines().find(|line| line.starts_with(series));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no series {series} in:\n{text}"))
    }

    /// Bytes of memory that the gateway has now.
    pub(crate) fn resident(&mut self) -> u64 {
        self.gateway.process().unwrap().usage().resident
    }
}
