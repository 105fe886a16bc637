//! Metrics, logs and traces: instruments bound once, and one place that names them.
//!
//! Instruments are OpenTelemetry's, read as Prometheus text. No user name is a label: who does what
//! is in the profiles. Labels come from closed sets, so that no caller can make series.

mod collector;
mod gauges;
mod logs;
mod names;
mod requests;
mod traces;

use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Encoder as _, TextEncoder};

pub use collector::CollectorFault;
pub use gauges::{Gauge, GaugeSource, Reading};
pub use logs::{LogFormat, init as init_logs};
pub use requests::{RequestMetrics, ServedAs, Serving};
pub use traces::{RequestSpan, TraceFault, TraceOptions, Traces};

#[cfg(test)]
mod tests;

/// Why metrics cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be set up: {0}")]
pub struct TelemetryError(String);

/// All instruments, and their text.
pub struct Telemetry {
    registry: prometheus::Registry,
    provider: SdkMeterProvider,
    meter: Meter,
}

impl Telemetry {
    /// Sets up a registry of its own; nothing is global.
    ///
    /// # Errors
    /// When the exporter refuses its registry.
    pub fn new() -> Result<Self, TelemetryError> {
        let registry = prometheus::Registry::new();
        let exporter = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .without_target_info()
            .without_counter_suffixes()
            .without_units()
            .build()
            .map_err(|e| TelemetryError(e.to_string()))?;
        let provider = SdkMeterProvider::builder().with_reader(exporter).build();
        let meter = provider.meter("sluice");
        Ok(Telemetry {
            registry,
            provider,
            meter,
        })
    }

    /// The instruments of requests.
    #[must_use]
    pub fn requests(&self) -> RequestMetrics {
        RequestMetrics::new(&self.meter)
    }

    /// Reads values of others whenever the text is asked for.
    pub fn observe(&self, source: GaugeSource) {
        gauges::register(&self.meter, source);
    }

    /// Everything in Prometheus' text format.
    ///
    /// # Errors
    /// When it cannot be encoded, which no registered value should cause.
    pub fn text(&self) -> Result<String, TelemetryError> {
        let mut out = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut out)
            .map_err(|e| TelemetryError(e.to_string()))?;
        String::from_utf8(out).map_err(|e| TelemetryError(e.to_string()))
    }

    /// Ends the collection.
    pub fn close(&self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::debug!(%error, "metrics were closed already");
        }
    }
}
