//! How a process ends: nobody is sent to it any more, it goes on serving for a while, then it drains,
//! then it closes what lies below.
//!
//! ```text
//! SIGTERM, SIGINT -> /readyz fails -> shutdownDelay -> drain, drainTimeout -> etcd, audit, store
//!                 \---------- the same signal again: all is cut, gone within a second ---------/
//! ```
//! The store is safe at any moment: what a cut takes away is the answers, not the writes.

use std::pin::pin;
use std::time::Duration;

use super::{BootstrapError, EndSignals, Process};
use crate::drain::Drain;

/// How long the end waits for the audit writer: a healthy disk needs milliseconds.
const AUDIT_FLUSH_MAX: Duration = Duration::from_secs(5);

/// What closing may take once somebody has asked twice: enough for a healthy disk, and together
/// with the rest within the second that they wait.
const HURRIED_MAX: Duration = Duration::from_millis(500);

/// For blocking work that is still out at the very end.
const BLOCKING_MAX: Duration = Duration::from_secs(1);

/// How a process that served has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything had the time it was promised.
    Drained,
    /// The signal of this number asked again, and what was left was cut.
    Cut(u8),
}

/// The times of an end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Serving on while not ready.
    pub(super) delay: Duration,
    /// Draining.
    pub(super) drain: Duration,
}

impl Process {
    /// Waits for the wish to end, then ends everything in order.
    pub(super) async fn serve(self, signals: &mut EndSignals) -> Result<Ended, BootstrapError> {
        tokio::select! {
            biased; // in no order that matters
            _ = signals.next() => {}
            () = self.asked_to_end.cancelled() => {}
        }
        let drain = self.drain.clone();
        let mut ending = pin!(self.end());
        let signal = tokio::select! {
            biased; // a second wish comes before all that it cuts short
            signal = signals.next() => signal,
            done = &mut ending => return done.map(|()| Ended::Drained),
        };
        tracing::warn!(alive = drain.alive(), "asked again: what is left is cut");
        drain.cut_now();
        match tokio::time::timeout(HURRIED_MAX, ending).await {
            Ok(done) => done?,
            Err(_) => {
                tracing::warn!("ended without closing the store; it is read back at the next start")
            }
        }
        Ok(Ended::Cut(signal))
    }

    async fn end(self) -> Result<(), BootstrapError> {
        serve_on(&self.drain, self.pace.delay).await;
        tracing::info!(budget = ?self.pace.drain, "draining");
        self.drain.start(self.pace.drain);
        self.front.await?;
        let drained = self.drain.finish(self.pace.drain).await;
        if drained.cut > 0 {
            let cut = drained.cut;
            tracing::warn!(cut, "connections outlived the drain and were cut");
        }
        self.stop_rest.cancel();
        // The apiservers of store mode are served until nothing comes through them any more.
        self.stop_etcd.cancel();
        if let Some(etcd) = self.etcd {
            etcd.await?;
        }
        self.stop_admin.cancel();
        if let Some(admin) = self.admin {
            admin.await?;
        }
        let recorder = self.recorder;
        tokio::task::spawn_blocking(move || recorder.flush(AUDIT_FLUSH_MAX)).await?;
        self.telemetry.close();
        if let Some(store) = self.store {
            store.close().await;
        }
        tracing::info!("ended");
        Ok(())
    }
}

/// Serves as before while others learn that they should go elsewhere.
async fn serve_on(drain: &Drain, delay: Duration) {
    drain.leave();
    tracing::info!(?delay, "not ready any more, serving on");
    tokio::select! {
        biased; // a delay that was cut short has no sense left
        () = drain.started() => {}
        () = tokio::time::sleep(delay) => {}
    }
}

/// Ends the runtime. Blocking work that is still out must not hold the end up.
pub(super) fn shut_down(runtime: tokio::runtime::Runtime, served: &Result<Ended, BootstrapError>) {
    match served {
        Ok(Ended::Cut(_)) => runtime.shutdown_background(),
        Ok(Ended::Drained) | Err(_) => runtime.shutdown_timeout(BLOCKING_MAX),
    }
}
