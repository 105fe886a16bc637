//! What is counted of each request: three bound instruments found by a small key, no allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{BoundCounter, BoundHistogram, Counter, Histogram, Meter};

use super::names;
use crate::request::Verb;

/// Bucket bounds of a kube-apiserver's request durations, in seconds, thinned to what is told apart.
const BOUNDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
];

/// How a request is counted while it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedAs {
    /// A short read.
    ReadOnly,
    /// A short write.
    Mutating,
    /// A watch, a log or a tunnel.
    LongRunning,
}

type Key = (usize, Verb, u16);

struct Bound {
    /// Held, so that no other cluster's name comes to lie at the address that is the key.
    _cluster: Arc<str>,
    requests: BoundCounter<u64>,
    duration: BoundHistogram<f64>,
}

struct Inner {
    requests: Counter<u64>,
    duration: Histogram<f64>,
    refusals: Counter<u64>,
    sent: Counter<u64>,
    broken: Counter<u64>,
    bound: DashMap<Key, Arc<Bound>, foldhash::fast::RandomState>,
    serving: [AtomicI64; 3],
}

/// The instruments of requests; cheap to clone.
#[derive(Clone)]
pub struct RequestMetrics {
    inner: Arc<Inner>,
}

/// Counts a request as being served until it is dropped.
pub struct Serving {
    inner: Arc<Inner>,
    class: ServedAs,
}

impl RequestMetrics {
    pub(super) fn new(meter: &Meter) -> Self {
        let inner = Arc::new(Inner {
            requests: meter.u64_counter(names::REQUESTS).build(),
            duration: meter
                .f64_histogram(names::REQUEST_DURATION)
                .with_boundaries(BOUNDS.to_vec())
                .build(),
            refusals: meter.u64_counter(names::REFUSALS).build(),
            sent: meter.u64_counter(names::SENT_BYTES).build(),
            broken: meter.u64_counter(names::BROKEN).build(),
            bound: DashMap::default(),
            serving: Default::default(),
        });
        let read = Arc::downgrade(&inner);
        meter
            .i64_observable_gauge(names::INFLIGHT)
            .with_callback(move |observer| {
                if let Some(inner) = read.upgrade() {
                    for (class, kind) in [
                        (ServedAs::ReadOnly, "readOnly"),
                        (ServedAs::Mutating, "mutating"),
                    ] {
                        let now = inner.slot(class).load(Ordering::Relaxed);
                        observer.observe(now, &[KeyValue::new("request_kind", kind)]);
                    }
                }
            })
            .build();
        let read = Arc::downgrade(&inner);
        meter
            .i64_observable_gauge(names::LONG_RUNNING)
            .with_callback(move |observer| {
                if let Some(inner) = read.upgrade() {
                    let now = inner.slot(ServedAs::LongRunning).load(Ordering::Relaxed);
                    observer.observe(now, &[]);
                }
            })
            .build();
        RequestMetrics { inner }
    }

    /// Counts a request as being served until the value is dropped.
    #[must_use]
    pub fn serve(&self, class: ServedAs) -> Serving {
        self.inner.slot(class).fetch_add(1, Ordering::Relaxed);
        Serving {
            inner: Arc::clone(&self.inner),
            class,
        }
    }

    /// Counts an answer. `cluster` is the routing table's own, so that its address stands for it;
    /// `head_took` is `None` for watches and tunnels, whose time says nothing.
    pub fn answered(&self, cluster: &Arc<str>, verb: Verb, code: u16, head_took: Option<Duration>) {
        let key = (cluster.as_ptr() as usize, verb, code);
        let bound = match self.inner.bound.get(&key) {
            Some(bound) => Arc::clone(&bound),
            None => self.bind(key, cluster, verb, code),
        };
        bound.requests.add(1);
        if let Some(took) = head_took {
            bound.duration.record(took.as_secs_f64());
        }
    }

    /// Counts a refusal of the gateway's own.
    pub fn refused(&self, stage: &'static str, code: u16) {
        let labels = [
            KeyValue::new("stage", stage),
            KeyValue::new("code", i64::from(code)),
        ];
        self.inner.refusals.add(1, &labels);
    }

    /// Counts what was sent of an answer's body.
    pub fn ended(&self, bytes: u64, broken: bool) {
        self.inner.sent.add(bytes, &[]);
        if broken {
            self.inner.broken.add(1, &[]);
        }
    }

    fn bind(&self, key: Key, cluster: &Arc<str>, verb: Verb, code: u16) -> Arc<Bound> {
        let held = Arc::clone(cluster);
        let cluster = KeyValue::new("cluster", cluster.to_string());
        let verb = KeyValue::new("verb", verb.as_str());
        let code = KeyValue::new("code", i64::from(code));
        let bound = Arc::new(Bound {
            _cluster: held,
            requests: self
                .inner
                .requests
                .bind(&[cluster.clone(), verb.clone(), code]),
            duration: self.inner.duration.bind(&[cluster, verb]),
        });
        // Clusters come and go with reloads, whose addresses stay in here: start again when they
        // have become many, which costs a few allocations.
        if self.inner.bound.len() > BOUND_MAX {
            self.inner.bound.clear();
        }
        self.inner.bound.insert(key, Arc::clone(&bound));
        bound
    }
}

/// Bound instruments kept: ten clusters, twelve verbs and twenty codes would be 2,400.
const BOUND_MAX: usize = 4096;

impl Inner {
    fn slot(&self, class: ServedAs) -> &AtomicI64 {
        let [read_only, mutating, long_running] = &self.serving;
        match class {
            ServedAs::ReadOnly => read_only,
            ServedAs::Mutating => mutating,
            ServedAs::LongRunning => long_running,
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.inner.slot(self.class).fetch_sub(1, Ordering::Relaxed);
    }
}
