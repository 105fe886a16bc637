//! How a process ends: nobody is sent to it any more, it goes on serving for a while, then it drains,
//! then it closes what lies below.
//!
//! ```text
//! SIGTERM, SIGINT -> /readyz fails -> shutdownDelay -> drain, drainTimeout -> etcd, audit, store
//!                 \---------- the same signal again: all is cut, gone within a second ---------/
//! ```
//! When another process has taken over, the same without the first two steps: whoever connects meets
//! that one. The store is safe at any moment: what a cut takes away is the answers, not the writes.

use std::pin::pin;
use std::time::Duration;

use super::handover::{Asked, Giver, spawn_successor};
use super::notify::notify;
use super::process::Process;
use super::{BootstrapError, EndSignals};
use crate::drain::Drain;
use crate::telemetry::Traces;

/// How long the end waits for the audit writer: a healthy disk needs milliseconds.
const AUDIT_FLUSH_MAX: Duration = Duration::from_secs(5);

/// What closing may take once somebody has asked twice: enough for a healthy disk, and together
/// with the rest within the second that they wait.
const HURRIED_MAX: Duration = Duration::from_millis(500);

/// For blocking work that is still out at the very end.
const BLOCKING_MAX: Duration = Duration::from_secs(1);

/// What the clients of a store have to end in when the data directory changes hands: a request of
/// theirs takes milliseconds, and those that come meanwhile wait in the kernel's queue.
const STORE_PACE: Duration = Duration::from_millis(300);

/// How a process that served has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything had the time it was promised.
    Drained,
    /// As that, and another process serves in its place.
    HandedOver,
    /// The signal of this number asked again, and what was left was cut.
    Cut(u8),
}

/// What came after serving.
pub(super) enum Over {
    /// The end.
    Ended(Ended),
    /// The process that was to take over has failed, and all has to be started once more.
    Again,
}

/// Why a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Asked,
    HandedOver,
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
    /// Waits for the wish to end or the next process, then ends everything in order.
    pub(super) async fn serve(
        mut self,
        signals: &mut EndSignals,
        upgrades: &mut tokio::signal::unix::Signal,
    ) -> Result<Over, BootstrapError> {
        let why = loop {
            tokio::select! {
                biased; // whoever wants an end does not want a successor
                _ = signals.next() => break Why::Asked,
                () = self.asked_to_end.cancelled() => break Why::Asked,
                asked = next(&mut self.giver) => match asked {
                    Asked::Store(free) => {
                        self.let_store_go().await;
                        // An error means that the next process is gone, which is told next.
                        let _ = free.send(());
                    }
                    Asked::Leave { successor, left } => {
                        self.drain.hand_over(self.pace.drain);
                        self.stop_admin.cancel();
                        if let Some(process) = successor {
                            notify(&format!("MAINPID={process}"));
                        }
                        let _ = left.send(());
                        break Why::HandedOver;
                    }
                    Asked::Gone => {
                        self.drop_all().await;
                        return Ok(Over::Again);
                    }
                },
                Some(()) = upgrades.recv() => self.raise(),
            }
        };
        if why == Why::Asked {
            notify("STOPPING=1");
        }
        let drain = self.drain.clone();
        let mut ending = pin!(self.end(why));
        let signal = tokio::select! {
            biased; // a second wish comes before all that it cuts short
            signal = signals.next() => signal,
            done = &mut ending => return done.map(|()| Over::Ended(why.ended())),
        };
        tracing::warn!(alive = drain.alive(), "asked again: what is left is cut");
        drain.cut_now();
        match tokio::time::timeout(HURRIED_MAX, ending).await {
            Ok(done) => done?,
            Err(_) => {
                tracing::warn!(
                    "ended without closing the store; it is read back at the next start"
                );
            }
        }
        Ok(Over::Ended(Ended::Cut(signal)))
    }

    async fn end(self, why: Why) -> Result<(), BootstrapError> {
        if why == Why::Asked {
            serve_on(&self.drain, self.pace.delay).await;
        }
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
        close_traces(self.traces).await;
        self.telemetry.close();
        if let Some(store) = self.store {
            store.close().await;
        }
        tracing::info!("ended");
        Ok(())
    }

    /// Starts the next process, where it could take over.
    fn raise(&self) {
        if self.giver.is_none() {
            tracing::warn!(
                "SIGUSR2 asks for the next process, which needs `upgradeSocket` in the process file"
            );
        } else if let Err(error) = spawn_successor() {
            tracing::error!(%error, "the next process cannot be started");
        }
    }

    /// Ends all that is answered from the store, and closes it: the data directory is free then.
    async fn let_store_go(&mut self) {
        tracing::info!("the next process takes the data directory");
        self.stop_rest.cancel();
        self.stop_etcd.cancel();
        let (etcd, drain) = (self.etcd.take(), self.drain.clone());
        let serves_api = self.serves_api;
        let etcd = async {
            if let Some(etcd) = etcd {
                // It has said itself what went wrong.
                let _ = etcd.await;
            }
        };
        let front = async {
            if serves_api {
                drain.hand_over(STORE_PACE);
                drain.finish(STORE_PACE).await;
            }
        };
        tokio::join!(etcd, front);
        if let Some(store) = self.store.take() {
            store.close().await;
        }
    }

    /// Drops everything but the sockets, which others hold as well.
    async fn drop_all(self) {
        self.drain.hand_over(Duration::ZERO);
        self.drain.cut_now();
        self.stop_rest.cancel();
        self.stop_admin.cancel();
        // Whatever went wrong in them, they are over.
        let _ = self.front.await;
        if let Some(admin) = self.admin {
            let _ = admin.await;
        }
        let recorder = self.recorder;
        let _ = tokio::task::spawn_blocking(move || recorder.flush(AUDIT_FLUSH_MAX)).await;
        close_traces(self.traces).await;
        self.telemetry.close();
    }
}

/// Off the runtime's threads, which send what is left.
async fn close_traces(traces: Option<Traces>) {
    if let Some(traces) = traces {
        // It has no way to fail that is not in the log already.
        let _ = tokio::task::spawn_blocking(move || traces.close()).await;
    }
}

impl Why {
    fn ended(self) -> Ended {
        match self {
            Why::Asked => Ended::Drained,
            Why::HandedOver => Ended::HandedOver,
        }
    }
}

/// # Cancellation
/// Loses nothing.
async fn next(giver: &mut Option<Giver>) -> Asked {
    match giver {
        Some(giver) => giver.next().await,
        None => std::future::pending().await,
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
        Ok(Ended::Drained | Ended::HandedOver) | Err(_) => runtime.shutdown_timeout(BLOCKING_MAX),
    }
}
