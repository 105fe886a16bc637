//! The right to go on, held until the answer has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluice_ratelimit::Permit;

use super::live::RuleState;

/// Let through. It lives in the response's body: what it holds is given back when it is dropped.
#[derive(Debug, Default)]
pub struct Admission {
    /// Of the rule that decided, or of the first that observed.
    first: Option<Ticket>,
    /// Of further ones; rules seldom observe, so this seldom allocates.
    more: Vec<Ticket>,
    decided_by: Option<Arc<RuleState>>,
    subset: Option<Arc<str>>,
    would_refuse: Vec<Arc<RuleState>>,
}

impl Admission {
    /// The rule whose limits it was admitted by; `None` when no enforced rule matched.
    #[must_use]
    pub fn rule(&self) -> Option<&Arc<str>> {
        self.decided_by.as_deref().map(|rule| &rule.id)
    }

    /// The subset of its cluster's endpoints that it has to go to; `None` for any endpoint.
    #[must_use]
    pub fn subset(&self) -> Option<&str> {
        self.subset.as_deref()
    }

    /// The observing rules that would have refused it.
    pub fn would_refuse(&self) -> impl Iterator<Item = &Arc<str>> {
        self.would_refuse.iter().map(|rule| &rule.id)
    }

    pub(super) fn add(&mut self, ticket: Ticket) {
        if self.first.is_none() {
            self.first = Some(ticket);
        } else {
            self.more.push(ticket);
        }
    }

    pub(super) fn observe_refusal(&mut self, rule: &Arc<RuleState>) {
        rule.tally.would_refuse.fetch_add(1, Ordering::Relaxed);
        self.would_refuse.push(Arc::clone(rule));
    }

    pub(super) fn decide(&mut self, rule: &Arc<RuleState>, subset: Option<&Arc<str>>) {
        self.decided_by = Some(Arc::clone(rule));
        self.subset = subset.map(Arc::clone);
    }
}

/// One request running under one rule: counted, and holding the rule's permit.
#[derive(Debug)]
pub(super) struct Ticket {
    rule: Arc<RuleState>,
    is_long_running: bool,
    _permit: Permit,
}

impl Ticket {
    pub(super) fn new(rule: &Arc<RuleState>, is_long_running: bool, permit: Permit) -> Self {
        rule.tally.admitted.fetch_add(1, Ordering::Relaxed);
        let ticket = Ticket {
            rule: Arc::clone(rule),
            is_long_running,
            _permit: permit,
        };
        ticket.gauge().fetch_add(1, Ordering::Relaxed);
        ticket
    }

    fn gauge(&self) -> &std::sync::atomic::AtomicU64 {
        if self.is_long_running {
            &self.rule.tally.long_running
        } else {
            &self.rule.tally.in_flight
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.gauge().fetch_sub(1, Ordering::Relaxed);
    }
}
