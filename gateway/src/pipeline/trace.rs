//! What is gathered of one request on its way, and told to audit and metrics when its last byte is
//! gone: by then the answer's body holds this, and dropping it ends the account.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderValue, Method, Response, StatusCode, Uri};

use super::span;
use super::standing::Standing;
use crate::audit::{Event, EventStage, Recorder};
use crate::authn::Verdict;
use crate::body::{Body, Witness};
use crate::clock;
use crate::context::RequestId;
use crate::flow::Admission;
use crate::forward::{Served, Tenure, Traffic};
use crate::request::RequestInfo;
use crate::status::Refusal;
use crate::telemetry::{RequestMetrics, RequestSpan, ServedAs, Serving};

/// Numbers for requests: a random half of this process and a counter, in the form of a UUID.
pub(super) struct Ids {
    high: u64,
    next: AtomicU64,
}

impl Ids {
    pub(super) fn new() -> Self {
        let random = uuid::Uuid::new_v4().as_u64_pair();
        Ids {
            high: random.0,
            next: AtomicU64::new(random.1 >> 2),
        }
    }

    pub(super) fn next(&self) -> RequestId {
        let low = self.next.fetch_add(1, Ordering::Relaxed);
        // The variant's two bits, so that the number reads as a UUID.
        let low = (low & !(0b11 << 62)) | (0b10 << 62);
        RequestId((u128::from(self.high) << 64) | u128::from(low))
    }
}

/// The account of one request.
pub(super) struct Trace {
    event: Option<Box<Event>>,
    started: Instant,
    recorder: Recorder,
    metrics: RequestMetrics,
    serving: Option<Serving>,
    cluster: Option<Arc<str>>,
    standing: Option<Standing>,
    span: Option<Box<RequestSpan>>,
}

impl Trace {
    pub(super) fn new(
        id: RequestId,
        client: SocketAddr,
        user_agent: Option<HeaderValue>,
        recorder: Recorder,
        metrics: RequestMetrics,
    ) -> Self {
        let event = Event {
            stage: EventStage::Complete,
            id,
            received: clock::wall(),
            took: Duration::ZERO,
            head_took: Duration::ZERO,
            info: None,
            raw: None,
            user: None,
            impersonator: None,
            source: client,
            user_agent,
            code: 0,
            sent: 0,
            taken: 0,
            broken: false,
            facts: crate::audit::Facts::default(),
        };
        Trace {
            event: Some(Box::new(event)),
            started: clock::now(),
            recorder,
            metrics,
            serving: None,
            cluster: None,
            standing: None,
            span: None,
        }
    }

    /// Gives it the span of a request that is traced.
    pub(super) fn traced(&mut self, span: Option<Box<RequestSpan>>) {
        self.span = span;
    }

    pub(super) fn is_traced(&self) -> bool {
        self.span.is_some()
    }

    /// The beginning of a part, where that is traced.
    pub(super) fn mark(&self) -> Option<Instant> {
        self.is_traced().then(clock::now)
    }

    /// A part that began at `mark` is over.
    pub(super) fn part(&self, name: &'static str, mark: Option<Instant>) {
        if let (Some(span), Some(mark)) = (&self.span, mark) {
            span::part(span, name, mark, clock::now());
        }
    }

    fn event(&mut self) -> &mut Event {
        self.event
            .as_deref_mut()
            .expect("the event is there until the account is ended by its drop")
    }

    fn seen(&self) -> &Event {
        self.event
            .as_deref()
            .expect("the event is there until the account is ended by its drop")
    }

    pub(super) fn id(&self) -> RequestId {
        self.seen().id
    }

    pub(super) fn wall(&self) -> Duration {
        self.seen().received
    }

    pub(super) fn received(&self) -> Instant {
        self.started
    }

    pub(super) fn user_agent(&self) -> Option<&str> {
        self.seen()
            .user_agent
            .as_ref()
            .and_then(|value| value.to_str().ok())
    }

    /// Notes what is asked for, and hands it back for the phases.
    pub(super) fn asked(&mut self, info: RequestInfo) -> RequestInfo {
        let class = if info.is_long_running() {
            ServedAs::LongRunning
        } else if info.verb().is_read_only() {
            ServedAs::ReadOnly
        } else {
            ServedAs::Mutating
        };
        self.serving = Some(self.metrics.serve(class));
        self.event().info = Some(info.clone());
        info
    }

    pub(super) fn unreadable(&mut self, method: &Method, uri: &Uri) {
        self.event().raw = Some(Box::new((method.to_string(), uri.to_string())));
    }

    pub(super) fn routed(&mut self, cluster: &Arc<str>) {
        self.cluster = Some(Arc::clone(cluster));
        self.event().facts.cluster = Some(Arc::clone(cluster));
    }

    pub(super) fn known(&mut self, verdict: &Verdict) {
        let event = self.event();
        event.user = Some(Arc::clone(&verdict.user));
        event.impersonator.clone_from(&verdict.impersonator);
    }

    pub(super) fn admitted(&mut self, admission: &Admission) {
        let facts = &mut self.event().facts;
        facts.rule = admission.rule().map(Arc::clone);
        facts.would_refuse = admission.would_refuse().map(Arc::clone).collect();
    }

    /// Keeps judging its caller until its end.
    pub(super) fn stands(&mut self, standing: Standing) {
        self.standing = Some(standing);
    }

    pub(super) fn endpoint(&mut self, served: Served) {
        if let (Some(span), Some(times)) = (&self.span, served.times) {
            span::attempt(span, times);
        }
        let facts = &mut self.event().facts;
        facts.endpoint = Some(served.endpoint);
        facts.attempts = served.attempts;
    }

    pub(super) fn refused(&mut self, refusal: &Refusal) {
        self.metrics
            .refused(refusal.stage.as_str(), refusal.code.as_u16());
        let facts = &mut self.event().facts;
        facts.refused_by = Some(refusal.stage.as_str());
        if let Some(rule) = &refusal.rule {
            facts.rule = Some(Arc::from(rule.as_str()));
        }
    }

    /// Writes a tunnel's beginning down; its end is the account's.
    fn begun(self, traffic: Arc<Traffic>) -> TunnelEnd {
        let mut event = self.seen().clone();
        event.stage = EventStage::Started;
        event.took = clock::now().saturating_duration_since(self.started);
        self.recorder.event(event);
        TunnelEnd {
            trace: self,
            traffic,
        }
    }

    /// Notes the answer's head, and gives its body the rest of the account. What was admitted is
    /// held until that body has ended.
    pub(super) fn served(
        mut self,
        mut response: Response<Body>,
        admission: Admission,
    ) -> Response<Body> {
        let head_took = clock::now().saturating_duration_since(self.started);
        let code = response.status().as_u16();
        let event = self.event();
        event.head_took = head_took;
        event.code = code;
        if let (Some(cluster), Some(info)) = (&self.cluster, &self.seen().info) {
            let timed = !info.is_long_running();
            self.metrics
                .answered(cluster, info.verb(), code, timed.then_some(head_took));
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // A tunnel is written down when it begins: a session of hours must not wait for its
            // end, which is another event. Its place under the limits is taken until then.
            let serving = self.serving.take();
            if let Some(tenure) = response.extensions_mut().remove::<Tenure>() {
                let end = self.begun(tenure.traffic());
                tenure.hold((serving, admission, end));
            }
            return response;
        }
        let account = Account {
            trace: self,
            admission,
            is_over: false,
        };
        response.map(|body| body.watched(account))
    }
}

/// Ends the account of a tunnel when the tunnel lets go of it.
struct TunnelEnd {
    trace: Trace,
    traffic: Arc<Traffic>,
}

impl Drop for TunnelEnd {
    fn drop(&mut self) {
        let event = self.trace.event();
        event.sent = self.traffic.down();
        event.taken = self.traffic.up();
        self.trace.ended(true);
    }
}

impl Witness for Trace {
    fn passed(&mut self, bytes: usize) {
        self.event().sent += bytes as u64;
    }

    fn ended(&mut self, whole: bool) {
        let now = clock::now();
        if let Some(mut event) = self.event.take() {
            event.took = now.saturating_duration_since(self.started);
            event.broken = !whole;
            if let Some(span) = self.span.take() {
                span::end(&span, &event, (self.started, now));
            }
            self.metrics.ended(event.sent, event.broken);
            self.recorder.event(event);
        }
        self.serving = None;
        self.standing = None;
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // A client that went away: the end of a watch is its way of closing it, not a fault.
        let is_watch = self
            .event
            .as_ref()
            .and_then(|event| event.info.as_ref())
            .is_some_and(RequestInfo::is_long_running);
        self.ended(is_watch);
    }
}

/// The account of an answer under way, with what was admitted for it.
struct Account {
    trace: Trace,
    admission: Admission,
    is_over: bool,
}

impl Witness for Account {
    fn passed(&mut self, bytes: usize) {
        self.trace.passed(bytes);
    }

    fn ended(&mut self, whole: bool) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.trace.ended(whole);
            // The permit is free before the connection lets the body go.
            self.admission = Admission::default();
        }
    }
}
