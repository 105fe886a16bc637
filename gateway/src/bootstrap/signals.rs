//! What the operating system asks of the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Waits for SIGTERM or SIGINT.
pub(crate) async fn end() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

/// SIGHUP, which asks for a reload.
pub(super) fn reload() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}
