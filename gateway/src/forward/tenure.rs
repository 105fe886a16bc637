//! What a tunnel holds for others until it ends, and how much has passed through it.
//!
//! A tunnel outlives its request: the answer is a head, and the bytes pass elsewhere. Whoever has
//! lent the request something for its time (a limit's permit, an account) puts it in here, and the
//! tunnel's end lets go of it. Knows nothing of what it holds.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// An extension of a 101; the tunnel has the other half. What is put in after the tunnel has
/// ended goes with this half.
#[derive(Clone, Default)]
pub struct Tenure {
    held: Arc<OnceLock<Box<dyn Any + Send + Sync>>>,
    traffic: Arc<Traffic>,
}

/// Bytes that have passed a tunnel so far.
#[derive(Debug, Default)]
pub struct Traffic {
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
}

impl Traffic {
    /// From the client.
    #[must_use]
    pub fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    /// To the client.
    #[must_use]
    pub fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }
}

impl Tenure {
    /// Keeps `what` until the tunnel has ended; the first one counts.
    pub fn hold(self, what: impl Send + Sync + 'static) {
        // Only the pipeline puts something in, and once.
        let _ = self.held.set(Box::new(what));
    }

    /// What passes through the tunnel.
    #[must_use]
    pub fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }
}

impl std::fmt::Debug for Tenure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tenure")
    }
}
