//! Counts frames of an endpoint that make work and carry nothing, so that one that has gone mad
//! costs its own requests and not the others' time. Pure: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

use crate::http2::frames::{self, Fatal, Head, Reason};

/// The window in which frames add up.
const WINDOW: Duration = Duration::from_secs(1);

/// Pings, settings, empty data and the like within a window; an apiserver sends some dozen.
const IDLE_MAX: u32 = 1000;

/// Window updates and resets within a window: two for each 4 KiB of an upload at 100 MB a second.
const BUSY_MAX: u32 = 50_000;

/// One connection's frames.
#[derive(Debug)]
pub(super) struct Floods {
    window_began: Instant,
    idle: u32,
    busy: u32,
}

impl Floods {
    pub(super) fn new(now: Instant) -> Self {
        Floods {
            window_began: now,
            idle: 0,
            busy: 0,
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
        match head.kind {
            frames::RST_STREAM | frames::WINDOW_UPDATE => {
                self.turn(now);
                add(&mut self.busy, BUSY_MAX)
            }
            _ => self.nothing(now),
        }
    }

    /// Notes what brings nothing forward.
    pub(super) fn nothing(&mut self, now: Instant) -> Result<(), Fatal> {
        self.turn(now);
        add(&mut self.idle, IDLE_MAX)
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
        let why = "a flood of frames that carry nothing";
        return Err(Fatal::new(Reason::ENHANCE_YOUR_CALM, why));
    }
    Ok(())
}
