//! How long an answer may pause, and when one without an end has to be given up.
//!
//! Only waiting for the upstream counts: while a client does not read, nobody asks. No timer is set
//! before the first wait. Knows nothing of what it waits for.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// See the module.
pub(super) struct Patience {
    pause_max: Option<Duration>,
    pause: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
    closing: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Patience {
    /// For an answer that ends.
    pub(super) fn of(pause_max: Duration) -> Self {
        Patience {
            pause_max: Some(pause_max),
            pause: None,
            is_waiting: false,
            closing: None,
        }
    }

    /// For an answer that may be silent for hours, such as a log that is followed.
    pub(super) fn until(closing: CancellationToken) -> Self {
        Patience {
            pause_max: None,
            pause: None,
            is_waiting: false,
            closing: Some(Box::pin(closing.cancelled_owned())),
        }
    }

    /// Whether silence is no fault.
    pub(super) fn is_for_ever(&self) -> bool {
        self.pause_max.is_none()
    }

    /// Something has come.
    pub(super) fn renew(&mut self) {
        self.is_waiting = false;
    }

    /// Nothing has come yet; the reason to wait no longer, if there is one.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<&'static str> {
        if let Some(closing) = &mut self.closing
            && closing.as_mut().poll(cx).is_ready()
        {
            self.closing = None;
            return Poll::Ready("it has to end");
        }
        let Some(max) = self.pause_max else {
            return Poll::Pending;
        };
        let pause = self
            .pause
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(max)));
        if !self.is_waiting {
            self.is_waiting = true;
            pause.as_mut().reset(Instant::now() + max);
        }
        pause.as_mut().poll(cx).map(|()| "upstream body stalled")
    }
}
