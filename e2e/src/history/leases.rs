//! Leases in real time: none ends early, each ends, and a restart forgets none.
//!
//! That a lease's keys go together, and only its own, the ledger tells. Here it is about when. A
//! lease's term begins no sooner than the request for it, or for its last renewal, was sent; so
//! whoever learns before then that it is gone, without anybody having revoked it, was told too
//! early.

use std::collections::HashMap;

use super::compaction::LEASE_NOT_FOUND;
use super::guarantee::{Guarantee, Report};
use super::ledger::{Ledger, Work};
use super::record::{Answer, History, Op, Outcome, Request, Txn, ms};

/// How much later than its time a lease may end, on a machine that does other things besides.
const LATE_MAX: u64 = 5_000_000_000;

/// What is known of one lease.
#[derive(Debug, Default)]
struct Life {
    ttl: u64,
    /// When the newest term that was acknowledged can have begun at the earliest.
    term: u64,
    granted: u64,
    /// When the newest term can have begun at the latest, renewals without an answer included.
    term_latest: u64,
    /// When revocations were sent.
    revokes: Vec<u64>,
    /// The revision that took its keys.
    ended: Option<i64>,
}

pub(super) fn check(history: &History, ledger: &Ledger, report: &mut Report) {
    let mut lives = gather(history);
    check_ends(history, ledger, &mut lives, report);
    for call in &history.calls {
        let (gone, is_told) = match (&call.request, &call.outcome) {
            (Request::KeepAlive { id } | Request::TimeToLive { id }, Outcome::Answered(reply)) => (
                vec![*id],
                matches!(reply.answer, Answer::Left { ttl } if ttl <= 0),
            ),
            (request, Outcome::Refused(refusal)) => {
                (named(request), refusal.text == LEASE_NOT_FOUND)
            }
            _ => continue,
        };
        let might = |life: &Life| {
            let is_revoked = life.revokes.iter().any(|began| *began < call.ended);
            // A question on its way when the time was over may say either.
            is_revoked || life.term + life.ttl <= call.ended || life.granted > call.began
        };
        let known: Vec<&Life> = gone.iter().filter_map(|id| lives.get(id)).collect();
        // Of several leases named, any may be the one that is missed.
        if is_told
            && !known.is_empty()
            && known.len() == gone.len()
            && !known.iter().any(|l| might(l))
        {
            let first = known.iter().map(|life| life.granted).min().unwrap_or(0);
            let is_over_restart = history
                .restarts
                .iter()
                .any(|at| (first..call.ended).contains(at));
            let guarantee = if is_over_restart {
                Guarantee::LeaseSurvives
            } else {
                Guarantee::LeaseEarly
            };
            report.add(guarantee, format!("{call}: the lease has time left"));
        }
    }
    let mut alive = HashMap::new();
    for event in ledger.entries.iter().flat_map(|entry| &entry.events) {
        alive.remove(event.kv.key.as_str());
        if !event.is_delete && event.kv.lease != 0 {
            alive.insert(event.kv.key.as_str(), event.kv.lease);
        }
    }
    for (key, lease) in alive {
        let Some(life) = lives.get(&lease) else {
            continue;
        };
        let begun = history
            .restarts
            .iter()
            .copied()
            .chain([life.term_latest])
            .max();
        let late = begun.unwrap_or(0) + life.ttl + LATE_MAX;
        if late < history.ended {
            let (term, ended) = (ms(life.term_latest), ms(history.ended));
            let what =
                format!("lease {lease}, last renewed by {term} ms, still has {key} at {ended} ms");
            report.add(Guarantee::LeaseEnds, what);
        }
    }
}

fn gather(history: &History) -> HashMap<i64, Life> {
    let mut lives: HashMap<i64, Life> = HashMap::new();
    for call in &history.calls {
        if let Some(Answer::Granted { id, ttl }) = call.reply().map(|reply| &reply.answer) {
            let life = lives.entry(*id).or_default();
            life.ttl = u64::try_from(*ttl).unwrap_or(0) * 1_000_000_000;
            life.term = life.term.max(call.began);
            life.granted = call.ended;
            life.term_latest = life.term_latest.max(call.ended);
        }
    }
    for call in &history.calls {
        match call.request {
            Request::KeepAlive { id } => {
                let Some(life) = lives.get_mut(&id) else {
                    continue;
                };
                if let Some(Answer::Left { ttl: 1.. }) = call.reply().map(|reply| &reply.answer) {
                    life.term = life.term.max(call.began);
                }
                life.term_latest = life.term_latest.max(call.ended);
            }
            // One that was refused ended nothing.
            Request::Revoke { id } if !matches!(call.outcome, Outcome::Refused(_)) => {
                if let Some(life) = lives.get_mut(&id) {
                    life.revokes.push(call.began);
                }
            }
            _ => {}
        }
    }
    lives
}

/// Ends that the ledger has, by revision, and puts on leases that had ended.
fn check_ends(
    history: &History,
    ledger: &Ledger,
    lives: &mut HashMap<i64, Life>,
    report: &mut Report,
) {
    for entry in &ledger.entries {
        let revision = entry.revision;
        for event in entry.events.iter().filter(|event| !event.is_delete) {
            let life = lives.get(&event.kv.lease);
            if let Some(ended) = life.and_then(|life| life.ended) {
                let what = format!("{event} hangs on a lease that ended at {ended}");
                report.add(Guarantee::Responses, what);
            }
        }
        let revoked = |place: usize| match history.calls.get(place).map(|call| &call.request) {
            Some(Request::Revoke { id }) => Some(*id),
            _ => None,
        };
        let lease = match entry.work {
            Work::LeaseEnd(lease) => Some(lease),
            Work::Call(place) => revoked(place),
            Work::Nobody => None,
        };
        let Some(life) = lease.and_then(|lease| lives.get_mut(&lease)) else {
            continue;
        };
        life.ended = Some(revision);
        let (Some(at), Work::LeaseEnd(lease)) = (entry.seen_at, entry.work) else {
            continue;
        };
        let is_revoked = life.revokes.iter().any(|began| *began < at);
        if !is_revoked && at < life.term + life.ttl {
            let (at, due) = (ms(at), ms(life.term + life.ttl));
            let what = format!(
                "revision {revision}, seen at {at} ms, ends lease {lease}, which has time until {due} ms"
            );
            report.add(Guarantee::LeaseEarly, what);
        }
    }
}

/// The leases that a request names.
fn named(request: &Request) -> Vec<i64> {
    match request {
        Request::Put(put) => Some(put.lease).into_iter().filter(|id| *id != 0).collect(),
        Request::Revoke { id } => vec![*id],
        Request::Txn(txn) => {
            let mut named = Vec::new();
            name_all(txn, &mut named);
            named
        }
        _ => Vec::new(),
    }
}

fn name_all(txn: &Txn, named: &mut Vec<i64>) {
    for op in txn.then.iter().chain(&txn.otherwise) {
        match op {
            Op::Put(put) if put.lease != 0 => named.push(put.lease),
            Op::Txn(inner) => name_all(inner, named),
            _ => {}
        }
    }
}
