//! Counts frames that make work and carry nothing: pings, settings, priorities, continuations,
//! empty data, window updates, resets and what nobody knows.
//!
//! Honest clients send a handful of the first kinds a second; window updates come with what is
//! read, and resets with watches that end, so those have a bound of their own. So have streams that
//! a client has us reset by breaking the rules (CVE-2025-8671). Pure: time is an argument.

use std::time::{Duration, Instant};

use crate::http2::frames::{self, Fatal, Head, Reason};

/// The window in which frames add up.
const WINDOW: Duration = Duration::from_secs(1);

/// Pings, settings, empty data and the like within a window: the busiest gRPC client probes its
/// bandwidth some dozen times a second.
const IDLE_MAX: u32 = 500;

/// Window updates and resets within a window: a client that reads 100 MB a second in frames of
/// 16 KiB, and updates stream and connection for each, sends 13,000.
const BUSY_MAX: u32 = 20_000;

/// Streams reset for a fault of the client's within a window: what a client cancels may still have
/// some frames on their way.
const FAULTS_MAX: u32 = 500;

/// One connection's frames.
#[derive(Debug)]
pub(super) struct Floods {
    window_began: Instant,
    idle: u32,
    busy: u32,
    faults: u32,
}

impl Floods {
    pub(super) fn new(now: Instant) -> Self {
        Floods {
            window_began: now,
            idle: 0,
            busy: 0,
            faults: 0,
        }
    }

    /// Notes a frame.
    pub(super) fn frame(&mut self, head: Head, now: Instant) -> Result<(), Fatal> {
        let is_work = match head.kind {
            frames::HEADERS => true,
            frames::DATA => head.length > 0 || head.has(frames::END_STREAM),
            _ => false,
        };
        if is_work {
            return Ok(());
        }
        self.turn(now);
        let (count, max) = match head.kind {
            frames::RST_STREAM | frames::WINDOW_UPDATE => (&mut self.busy, BUSY_MAX),
            _ => (&mut self.idle, IDLE_MAX),
        };
        add(count, max)
    }

    /// Notes a stream that broke the rules.
    pub(super) fn fault(&mut self, now: Instant) -> Result<(), Fatal> {
        self.turn(now);
        add(&mut self.faults, FAULTS_MAX)
    }

    fn turn(&mut self, now: Instant) {
        if now.duration_since(self.window_began) >= WINDOW {
            *self = Floods::new(now);
        }
    }
}

fn add(count: &mut u32, max: u32) -> Result<(), Fatal> {
    *count += 1;
    if *count > max {
        return Err(Fatal::new(
            Reason::ENHANCE_YOUR_CALM,
            "a flood of frames that carry nothing",
        ));
    }
    Ok(())
}
