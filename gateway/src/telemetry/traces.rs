//! Traces: what requests did and for how long, told to a collector by OTLP over HTTP.
//!
//! Without a collector in the process file there is nothing of this, and a request pays a comparison.
//! With one, the caller's `traceparent` says whose part the request is, and whether it is traced;
//! without such a word one in so many is. What is traced is handed to a queue of [`QUEUE_MAX`] spans,
//! from where a thread sends them on; when the queue is full, spans are dropped and requests do not
//! wait. It knows nothing of clusters, rules or users: names and values are its callers'.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{
    SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider,
};
use tokio::runtime::Handle;

use super::collector::{Collector, CollectorFault};
use crate::clock;

/// Spans that wait to be sent: seven a request at most, so those of a thousand. Some 8 MiB.
const QUEUE_MAX: usize = 8_192;

/// Spans sent at once, and how often what is there is sent.
const BATCH_MAX: usize = 512;
const BATCH_EVERY: Duration = Duration::from_secs(1);

const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// What the end of the process waits for the last spans.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Where traces go, and which.
#[derive(Clone, Debug)]
pub struct TraceOptions {
    /// The collector's URL, `http://` or `https://`, with the path that takes traces.
    pub endpoint: String,
    /// The authorities of its certificate, PEM; needed for `https`.
    pub authorities: Vec<u8>,
    /// Of a million requests about which their callers say nothing, so many are traced.
    pub samples_per_million: u32,
}

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceFault {
    /// The collector cannot be asked.
    #[error(transparent)]
    Collector(#[from] CollectorFault),
    /// The exporter will not have it.
    #[error("traces cannot be set up: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Begins spans, and sends those that have ended; clones are the same.
#[derive(Clone, Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Traces {
    /// Sends to a collector from a thread of its own, whose exchanges run on `runtime`.
    ///
    /// # Errors
    /// [`TraceFault`] says what in the options does not fit; whether the collector is there shows
    /// later, in the log.
    pub fn start(options: &TraceOptions, runtime: Handle) -> Result<Self, TraceFault> {
        let collector = Collector::new(&options.endpoint, &options.authorities, runtime)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&options.endpoint)
            .build()?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(BATCH_EVERY)
            .build();
        let processor = BatchSpanProcessor::builder(exporter)
            .with_batch_config(batches)
            .build();
        let share = f64::from(options.samples_per_million) / 1_000_000.0;
        let strangers = Sampler::TraceIdRatioBased(share);
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(Sampler::ParentBased(Box::new(strangers)))
            .with_resource(Resource::builder().with_service_name("sluice").build())
            .build();
        let tracer = provider.tracer("sluice");
        Ok(Traces { provider, tracer })
    }

    /// Begins the span of a request that came at `now`, if it is traced; its headers then say whose
    /// part is what comes of it.
    pub fn begin(&self, headers: &mut HeaderMap, now: Instant) -> Option<Box<RequestSpan>> {
        let propagator = TraceContextPropagator::new();
        let parent = propagator.extract_with_context(&Context::new(), &HeaderExtractor(headers));
        let wall = UNIX_EPOCH + clock::wall();
        let builder = SpanBuilder::from_name("request")
            .with_kind(SpanKind::Server)
            .with_start_time(wall);
        let span = self.tracer.build_with_context(builder, &parent);
        let context = parent.with_span(span);
        if !context.span().is_recording() {
            return None;
        }
        propagator.inject_context(&context, &mut HeaderInjector(headers));
        // Nobody has said anything in it, and its absence says so.
        if headers.get(TRACESTATE).is_some_and(HeaderValue::is_empty) {
            headers.remove(TRACESTATE);
        }
        Some(Box::new(RequestSpan {
            tracer: self.tracer.clone(),
            context,
            began: now,
            wall,
        }))
    }

    /// Sends what is left, and nothing after that. Blocking; the runtime must go on.
    pub fn close(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(CLOSE_MAX) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// The span of one request under way.
#[derive(Debug)]
pub struct RequestSpan {
    tracer: SdkTracer,
    context: Context,
    began: Instant,
    wall: SystemTime,
}

impl RequestSpan {
    /// Notes a part of it that is over.
    pub fn part(&self, name: &'static str, kind: SpanKind, from: Instant, to: Instant) {
        let builder = SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(self.at(from));
        let span = self.tracer.build_with_context(builder, &self.context);
        self.context
            .with_span(span)
            .span()
            .end_with_timestamp(self.at(to));
    }

    /// Notes a fact about it.
    pub fn fact(&self, key: &'static str, value: impl Into<Value>) {
        let fact = KeyValue::new(key, value);
        self.context.span().set_attribute(fact);
    }

    /// Ends it under a name of its own; `fault` says why it is one.
    pub fn end(&self, name: String, fault: Option<&'static str>, now: Instant) {
        let span = self.context.span();
        span.update_name(name);
        if let Some(fault) = fault {
            span.set_status(Status::error(fault));
        }
        span.end_with_timestamp(self.at(now));
    }

    fn at(&self, instant: Instant) -> SystemTime {
        self.wall + instant.saturating_duration_since(self.began)
    }
}
