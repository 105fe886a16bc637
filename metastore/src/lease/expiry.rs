//! When leases end: a heap of deadlines driven by the `now` it is given.
//!
//! A renewal only moves the deadline; the heap keeps one entry a lease, and an entry that comes up
//! before its lease's deadline goes back with the new one. So the heap is as large as the number of
//! leases, however often they are renewed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use crate::LeaseId;
use crate::faults::{Fault, injected};

#[derive(Clone, Copy, Debug)]
struct Term {
    ttl: Duration,
    deadline: Instant,
    /// Handed out as expired: the sequencer is about to delete its keys.
    is_due: bool,
}

/// Deadlines of all durable leases.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    terms: HashMap<LeaseId, Term>,
    /// Invariant: one entry for each lease that is not handed out, no later than its deadline.
    heap: BinaryHeap<Reverse<(Instant, LeaseId)>>,
}

impl Expiry {
    /// Begins a lease's term.
    pub(crate) fn grant(&mut self, id: LeaseId, ttl: Duration, now: Instant) {
        let is_short = injected(Fault::LeaseEarly);
        let deadline = now + if is_short { ttl / 2 } else { ttl };
        let term = Term {
            ttl,
            deadline,
            is_due: false,
        };
        self.terms.insert(id, term);
        self.heap.push(Reverse((deadline, id)));
    }

    /// Begins the term anew; `None` when the lease is unknown or already ending.
    pub(crate) fn renew(&mut self, id: LeaseId, now: Instant) -> Option<Duration> {
        let term = self.terms.get_mut(&id).filter(|term| !term.is_due)?;
        term.deadline = now + term.ttl;
        Some(term.ttl)
    }

    /// What is left of the term.
    pub(crate) fn remaining(&self, id: LeaseId, now: Instant) -> Option<Duration> {
        let term = self.terms.get(&id)?;
        Some(term.deadline.saturating_duration_since(now))
    }

    /// Forgets a lease that was revoked.
    pub(crate) fn forget(&mut self, id: LeaseId) {
        self.terms.remove(&id);
    }

    /// Hands out leases whose term is over, at most `limit`; each once, until [`Expiry::put_off`].
    pub(crate) fn due(&mut self, now: Instant, limit: usize) -> Vec<LeaseId> {
        let mut due = Vec::new();
        while due.len() < limit {
            let Some(Reverse((at, id))) = self.heap.peek().copied() else {
                break;
            };
            if at > now {
                break;
            }
            self.heap.pop();
            match self.terms.get_mut(&id) {
                Some(term) if term.is_due => {}
                Some(term) if term.deadline > now => self.heap.push(Reverse((term.deadline, id))),
                Some(term) => {
                    term.is_due = true;
                    due.push(id);
                }
                None => {}
            }
        }
        due
    }

    /// Takes back a lease that was handed out but could not be ended now.
    pub(crate) fn put_off(&mut self, id: LeaseId, until: Instant) {
        if let Some(term) = self.terms.get_mut(&id).filter(|term| term.is_due) {
            term.is_due = false;
            self.heap.push(Reverse((until, id)));
        }
    }

    /// When to ask again at the latest; `None` when there are no leases.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn a_renewed_lease_outlives_its_first_deadline() {
        let start = Instant::now();
        let mut expiry = Expiry::default();
        expiry.grant(LeaseId(1), TTL, start);
        expiry.grant(LeaseId(2), TTL, start);
        assert_eq!(expiry.renew(LeaseId(1), start + TTL / 2), Some(TTL));
        assert_eq!(expiry.due(start + TTL, 10), [LeaseId(2)]);
        assert_eq!(expiry.due(start + TTL, 10), [], "each is handed out once");
        assert_eq!(expiry.renew(LeaseId(2), start + TTL), None, "it is ending");
        assert_eq!(expiry.next(), Some(start + TTL * 3 / 2));
        assert_eq!(expiry.due(start + TTL * 3 / 2, 10), [LeaseId(1)]);
    }

    #[test]
    fn a_lease_put_off_comes_up_again_and_a_forgotten_one_does_not() {
        let start = Instant::now();
        let mut expiry = Expiry::default();
        expiry.grant(LeaseId(1), TTL, start);
        expiry.grant(LeaseId(2), TTL, start);
        expiry.forget(LeaseId(2));
        assert_eq!(expiry.due(start + TTL, 10), [LeaseId(1)]);
        expiry.put_off(LeaseId(1), start + TTL * 2);
        assert_eq!(expiry.due(start + TTL, 10), []);
        assert_eq!(expiry.due(start + TTL * 2, 10), [LeaseId(1)]);
    }
}
