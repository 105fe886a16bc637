//! Notices a peer that vanished: a ping after a silence, and an end if nobody answers it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep};

/// The clock of one connection.
pub(super) struct Keepalive {
    pings: PingPong,
    interval: Duration,
    timeout: Duration,
    alarm: Pin<Box<Sleep>>,
    /// Bytes heard when the alarm was last set, and when that was.
    heard: (u64, Instant),
    is_asking: bool,
}

impl Keepalive {
    pub(super) fn new(pings: PingPong, interval: Duration, timeout: Duration) -> Self {
        Keepalive {
            pings,
            interval,
            timeout,
            alarm: Box::pin(tokio::time::sleep(interval)),
            heard: (0, Instant::now()),
            is_asking: false,
        }
    }

    /// Ready when the peer is gone; `heard` is how many bytes came from it so far.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, heard: u64) -> Poll<()> {
        if heard != self.heard.0 {
            self.heard = (heard, Instant::now());
        }
        loop {
            if self.is_asking && self.pings.poll_pong(cx).is_ready() {
                self.is_asking = false;
                self.alarm.as_mut().reset(Instant::now() + self.interval);
            }
            ready!(self.alarm.as_mut().poll(cx));
            let due = self.heard.1 + self.interval;
            if self.is_asking {
                return Poll::Ready(());
            } else if due > Instant::now() {
                self.alarm.as_mut().reset(due);
            } else if self.pings.send_ping(Ping::opaque()).is_ok() {
                self.is_asking = true;
                self.alarm.as_mut().reset(Instant::now() + self.timeout);
            } else {
                // The connection is ending; its own poll says how.
                self.alarm.as_mut().reset(Instant::now() + self.interval);
            }
        }
    }
}
