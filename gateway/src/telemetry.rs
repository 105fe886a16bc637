//! Metrics and logs: instruments bound once, and one place that names them.
