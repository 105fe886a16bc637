//! Real time: what was known to be true before a request began must show in its answer.
//!
//! An answer, an event or a progress notice at revision R proves that the store had reached R when
//! it came. Whatever began later must not stand below R, and a write must stand above it.

use super::guarantee::{Guarantee, Report};
use super::record::{History, Outcome, Request, ms};

/// What the store was known to have reached, by time.
pub(super) struct Reached {
    /// Ascending in time and in revision.
    points: Vec<(u64, i64, String)>,
}

impl Reached {
    pub(super) fn of(history: &History) -> Reached {
        let mut all: Vec<(u64, i64, Proof<'_>)> = Vec::new();
        for call in &history.calls {
            let Outcome::Answered(reply) = &call.outcome else {
                continue;
            };
            all.push((call.ended, reply.revision, Proof::Call(call)));
            if let Request::Compact(at) = call.request {
                all.push((call.ended, at, Proof::Call(call)));
            }
        }
        for log in &history.watches {
            for response in &log.responses {
                let events = response.events.iter().map(|event| event.kv.modified);
                let reached = events.max().unwrap_or(response.revision);
                all.push((response.at, reached, Proof::Watch(log)));
            }
        }
        all.sort_by_key(|(at, ..)| *at);
        let mut points: Vec<(u64, i64, String)> = Vec::new();
        for (at, revision, proof) in all {
            if points.last().is_none_or(|(_, top, _)| *top < revision) {
                points.push((at, revision, proof.to_string()));
            }
        }
        Reached { points }
    }

    /// When it was first known to have reached the most that was known before `at`, what that is,
    /// and by what.
    pub(super) fn before(&self, at: u64) -> Option<&(u64, i64, String)> {
        let count = self.points.partition_point(|(when, ..)| *when < at);
        self.points.get(count.checked_sub(1)?)
    }
}

enum Proof<'a> {
    Call(&'a super::record::Call),
    Watch(&'a super::record::WatchLog),
}

impl std::fmt::Display for Proof<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Proof::Call(call) => call.fmt(f),
            Proof::Watch(log) => log.fmt(f),
        }
    }
}

pub(super) fn check(history: &History, report: &mut Report) {
    let reached = Reached::of(history);
    let mut judge = |began: u64, ended: u64, revision: i64, is_write: bool, who: &str| {
        let Some((at, top, proof)) = reached.before(began) else {
            return;
        };
        if revision > *top || (revision == *top && !is_write) {
            return;
        }
        let is_over_restart = history
            .restarts
            .iter()
            .any(|when| (*at..ended).contains(when));
        let guarantee = if is_over_restart {
            Guarantee::RestartRevision
        } else {
            Guarantee::RealTime
        };
        let what = format!(
            "{who} stands at {revision}; at {} ms the store was at {top}: {proof}",
            ms(*at)
        );
        report.add(guarantee, what);
    };
    for call in &history.calls {
        if let Some(reply) = call.reply() {
            let is_write = reply.answer.is_effective();
            let who = call.to_string();
            judge(call.began, call.ended, reply.revision, is_write, &who);
        }
    }
    for log in &history.watches {
        if let Some(created) = log.responses.iter().find(|one| one.created) {
            judge(
                log.opened,
                created.at,
                created.revision,
                false,
                &log.to_string(),
            );
        }
    }
}
