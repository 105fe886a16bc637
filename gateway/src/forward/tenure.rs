//! What a tunnel holds for others until it ends.
//!
//! A tunnel outlives its request: the answer is a head, and the bytes pass elsewhere. Whoever has
//! lent the request something for its time (a limit's permit) puts it in here, and the tunnel's
//! end lets go of it. Knows nothing of what it holds.

use std::any::Any;
use std::sync::{Arc, OnceLock};

/// An extension of a 101; the tunnel has the other half. What is put in after the tunnel has
/// ended goes with this half.
#[derive(Clone, Default)]
pub struct Tenure(Arc<OnceLock<Box<dyn Any + Send + Sync>>>);

impl Tenure {
    /// Keeps `what` until the tunnel has ended; the first one counts.
    pub fn hold(self, what: impl Send + Sync + 'static) {
        // Only the pipeline puts something in, and once.
        let _ = self.0.set(Box::new(what));
    }
}

impl std::fmt::Debug for Tenure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tenure")
    }
}
