//! The compacted floor as clients see it, and the words of refusals.
//!
//! A compaction that was acknowledged holds for whatever begins later; one that was asked for may
//! hold from then on. In between both answers are right.

use super::guarantee::{Guarantee, Report};
use super::order::Reached;
use super::record::{Call, History, Op, Outcome, Put, Refusal, Request, Txn, ms};

pub(super) const LEASE_NOT_FOUND: &str = "etcdserver: requested lease not found";
const KEY_NOT_FOUND: &str = "etcdserver: key not found";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const TOO_MANY: &str = "etcdserver: too many requests";

/// gRPC's numbers.
const INVALID: i32 = 3;
const NOT_FOUND: i32 = 5;
const EXHAUSTED: i32 = 8;
const OUT_OF_RANGE: i32 = 11;

/// What was compacted, and when.
pub(super) struct Floors<'a>(Vec<&'a Call>);

impl<'a> Floors<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let all = history.calls.iter();
        Floors(all.filter(|call| compacts(call) > 0).collect())
    }

    /// The floor that surely held when something began.
    pub(super) fn surely(&self, began: u64) -> i64 {
        let done = self
            .0
            .iter()
            .filter(|call| call.ended < began && call.reply().is_some());
        done.map(|call| compacts(call)).max().unwrap_or(0)
    }

    /// The floor that may have held when something ended.
    pub(super) fn perhaps(&self, ended: u64) -> i64 {
        let refused = |call: &Call| matches!(call.outcome, Outcome::Refused(_));
        let asked = self
            .0
            .iter()
            .filter(|call| call.began < ended && !refused(call));
        asked.map(|call| compacts(call)).max().unwrap_or(0)
    }
}

fn compacts(call: &Call) -> i64 {
    match call.request {
        Request::Compact(at) => at,
        _ => 0,
    }
}

pub(super) fn check(history: &History, report: &mut Report) {
    let floors = Floors::of(history);
    let reached = Reached::of(history);
    for call in &history.calls {
        // A compaction of what is compacted already is refused, a read of the floor is not.
        let asked = match &call.request {
            Request::Range(range) if range.revision > 0 => Some((range.revision, range.revision)),
            Request::Compact(at) => Some((*at, *at - 1)),
            _ => None,
        };
        match &call.outcome {
            Outcome::Answered(reply) => {
                let Some((revision, least)) = asked else {
                    continue;
                };
                let floor = floors.surely(call.began);
                if least < floor {
                    let what = format!("{call}: {floor} had been compacted before");
                    report.add(Guarantee::CompactionFloor, what);
                }
                if revision > reply.revision {
                    let what = format!("{call}: it is answered from the future");
                    report.add(Guarantee::Responses, what);
                }
            }
            Outcome::Refused(refusal) => {
                if let (Some((_, least)), COMPACTED) = (asked, refusal.text.as_str()) {
                    // Not itself: it was refused.
                    let floor = floors.perhaps(call.ended);
                    if least >= floor {
                        let what = format!("{call}: no more than {floor} can be compacted");
                        report.add(Guarantee::CompactionFloor, what);
                    }
                }
                if let (Some((revision, _)), FUTURE) = (asked, refusal.text.as_str())
                    && let Some((at, top, _)) = reached.before(call.began)
                    && revision <= *top
                {
                    let what = format!("{call}: the store was at {top} at {} ms", ms(*at));
                    report.add(Guarantee::Refusals, what);
                }
                if !may(&call.request, refusal) {
                    report.add(Guarantee::Refusals, format!("{call}: no reason of etcd's"));
                }
            }
            Outcome::Unknown(_) => {}
        }
    }
}

/// Whether such a request may be refused so.
fn may(request: &Request, refusal: &Refusal) -> bool {
    let writes = !matches!(
        request,
        Request::Range(_) | Request::KeepAlive { .. } | Request::TimeToLive { .. }
    );
    match (refusal.code, refusal.text.as_str()) {
        (OUT_OF_RANGE, COMPACTED | FUTURE) => match request {
            // A stream that is overtaken says so.
            Request::Range(range) => range.revision > 0 || range.stream,
            Request::Compact(_) => true,
            _ => false,
        },
        (NOT_FOUND, LEASE_NOT_FOUND) => match request {
            Request::Revoke { .. } => true,
            request => has_put(request, &|put| put.lease != 0),
        },
        (INVALID, KEY_NOT_FOUND) => has_put(request, &|put| put.ignore_value || put.ignore_lease),
        // Where the disk itself is full and not only the quota, deletions may have no room either.
        (EXHAUSTED, NO_SPACE | TOO_MANY) => writes,
        _ => false,
    }
}

fn has_put(request: &Request, like: &dyn Fn(&Put) -> bool) -> bool {
    match request {
        Request::Put(put) => like(put),
        Request::Txn(txn) => txn_has_put(txn, like),
        _ => false,
    }
}

fn txn_has_put(txn: &Txn, like: &dyn Fn(&Put) -> bool) -> bool {
    txn.then.iter().chain(&txn.otherwise).any(|op| match op {
        Op::Put(put) => like(put),
        Op::Txn(inner) => txn_has_put(inner, like),
        Op::Range(_) | Op::Delete(_) => false,
    })
}
