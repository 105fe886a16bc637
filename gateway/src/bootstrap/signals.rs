//! What the operating system asks of the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGUSR2, which asks for the next process; without a receiver it would end this one.
pub(super) fn upgrade() -> std::io::Result<Signal> {
    signal(SignalKind::user_defined2())
}

/// SIGTERM and SIGINT, from the moment it is made: none that comes in between is lost.
pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(EndSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one, and says its number.
    ///
    /// # Cancellation
    /// Loses nothing.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            biased; // in no order that matters
            _ = self.terminate.recv() => 15,
            _ = self.interrupt.recv() => 2,
        }
    }
}
