//! The only reader of clocks in this crate besides the shells that start tasks.
//!
//! Everything else takes `now` as an argument, so that tests move time by hand.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic present.
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock, as time since the Unix epoch; a clock before 1970 reads as the epoch.
#[must_use]
pub fn wall() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
