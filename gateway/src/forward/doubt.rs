//! Whether a 500 is the endpoint's fault or the answer to what was asked.
//!
//! An apiserver says 500 when it is ill, and also when it is well and the object is not, or when
//! the storage behind all of them is not. One answer does not tell these apart; a second one from
//! another endpoint does. So the first is held back, unjudged, and the second is what the client
//! gets: the same again speaks against neither endpoint, anything else against the first. It holds
//! one endpoint, and knows nothing of when another may be asked.

use std::sync::Arc;

use crate::clock;
use crate::upstream::{Cluster, Endpoint, Outcome, Ticket, View};

/// The endpoint whose 500 another one is asked about.
#[derive(Default)]
pub(super) struct Doubt(Option<Arc<Endpoint>>);

impl Doubt {
    /// Leaves the judgement of an endpoint to the next answer.
    pub(super) fn hold(&mut self, ticket: &Ticket) {
        self.0 = Some(Arc::clone(&ticket.endpoint));
    }

    /// What an answer says of the endpoint that gave it. Whoever was doubted is judged by it.
    pub(super) fn judge(
        &mut self,
        is_500: bool,
        outcome: Outcome,
        (cluster, view): (&Cluster, &View),
    ) -> Outcome {
        match self.0.take() {
            None => outcome,
            Some(_) if is_500 => Outcome::Neutral,
            Some(first) => {
                cluster.doubts.refund();
                first.observe(Outcome::Failure, &view.spec, clock::now());
                outcome
            }
        }
    }
}
