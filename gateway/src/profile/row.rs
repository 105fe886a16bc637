//! The counts of one client, verb and resource.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::view::{RowView, ShapesView};
use crate::audit::Event;
use crate::request::RequestInfo;

/// Latencies are counted up to an hour: beyond it only watches live, which are not counted here.
const MICROS_MAX: u64 = 3_600_000_000;
/// Sizes are counted up to 16 GiB.
const BYTES_MAX: u64 = 1 << 34;
/// One significant digit: a percentile is right within 10 %, and a histogram is a few kilobytes.
const DIGITS: u8 = 1;
/// The window over which a rate is averaged: after it, a burst counts by a third.
const RATE_WINDOW: f64 = 60.0;

/// What is counted; every field only grows, but for the rate, which forgets.
pub(super) struct Row {
    count: u64,
    errors: u64,
    refused: u64,
    would_refuse: u64,
    watches: u64,
    shapes: ShapesView,
    latency: Histogram<u32>,
    size: Histogram<u32>,
    rate: f64,
    pub(super) last_seen: Duration,
}

impl Row {
    pub(super) fn new(now: Duration) -> Self {
        let histogram = |max| {
            Histogram::new_with_bounds(1, max, DIGITS).expect("constant bounds and digits hold")
        };
        Row {
            count: 0,
            errors: 0,
            refused: 0,
            would_refuse: 0,
            watches: 0,
            shapes: ShapesView::default(),
            latency: histogram(MICROS_MAX),
            size: histogram(BYTES_MAX),
            rate: 0.0,
            last_seen: now,
        }
    }

    pub(super) fn observe(&mut self, event: &Event) {
        let now = event.received + event.took;
        self.rate = decayed(self.rate, self.last_seen, now) + 1.0 / RATE_WINDOW;
        self.last_seen = self.last_seen.max(now);
        self.count += 1;
        if event.facts.refused_by.is_some() {
            self.refused += 1;
        } else if event.code >= 500 || event.broken {
            self.errors += 1;
        }
        if !event.facts.would_refuse.is_empty() {
            self.would_refuse += 1;
        }
        let Some(info) = &event.info else { return };
        if info.is_watch() {
            self.watches += 1;
        } else {
            let micros = u64::try_from(event.head_took.as_micros()).unwrap_or(MICROS_MAX);
            self.latency.saturating_record(micros.clamp(1, MICROS_MAX));
        }
        self.size.saturating_record(event.sent.clamp(1, BYTES_MAX));
        if info.is_list() {
            count_shape(&mut self.shapes, info);
        }
    }

    pub(super) fn view(&self, now: Duration) -> RowView {
        let latency = |q| self.latency.value_at_quantile(q) as f64 / 1e6;
        let size = |q| self.size.value_at_quantile(q);
        RowView {
            verb: String::new(),
            group: String::new(),
            resource: String::new(),
            count: self.count,
            rate_per_second: decayed(self.rate, self.last_seen, now),
            errors: self.errors,
            refused: self.refused,
            would_refuse: self.would_refuse,
            watches: self.watches,
            lists: (self.shapes != ShapesView::default()).then(|| self.shapes.clone()),
            latency_seconds: [latency(0.5), latency(0.9), latency(0.99)],
            response_bytes: [size(0.5), size(0.9), size(0.99)],
        }
    }
}

/// A rate after the time from `since` to `now` without a request.
fn decayed(rate: f64, since: Duration, now: Duration) -> f64 {
    rate * (-now.saturating_sub(since).as_secs_f64() / RATE_WINDOW).exp()
}

fn count_shape(shapes: &mut ShapesView, info: &RequestInfo) {
    shapes.total += 1;
    shapes.unpaged += u64::from(info.limit().is_none());
    shapes.from_cache += u64::from(info.resource_version() == "0");
    shapes.cluster_wide += u64::from(info.namespace().is_empty());
    shapes.selected +=
        u64::from(!info.label_selector().is_empty() || !info.field_selector().is_empty());
}
