//! A checker of histories: what clients of an etcd-compatible store asked, heard and watched goes
//! in, named violations come out.
//!
//! Each effective write has a revision of its own, so no search for a linear order is needed. One
//! pass over the revisions decides all: the write acknowledged at a revision, run on the model as
//! it stood before, must give the events that were seen there; every other answer must be what the
//! model gives at the answer's header revision; and no answer may be older than one completed
//! before it began. A request whose outcome is unknown (an error, a time-out, a kill) is settled by
//! the events seen: some revision is its work, or it never happened.
//!
//! ```text
//! calls ----+--> ledger: revision -> events, and whose work they are
//! watches --+      |
//!                  +--> answers, real-time order, leases, compaction, each watch
//! ```
//!
//! The ledger leans on one watch that misses nothing, the *recorder's*: all keys, from the first
//! revision, resumed over restarts, and never overtaken since traffic compacts only what it has.
//! It is judged like every other watch. Time and memory grow with the history, which the run
//! bounds; nothing here reads a clock, opens a socket or knows how the history was made.

mod answers;
mod compaction;
mod guarantee;
mod leases;
mod ledger;
mod model;
mod order;
mod record;
mod watches;

#[cfg(test)]
mod tests;

pub use guarantee::{Guarantee, Report, Violation};
pub use model::Model;
pub use record::{
    Answer, Call, Compare, Delete, Event, History, Kv, Op, Outcome, Put, Range, Refusal, Relation,
    Reply, Request, Target, Txn, WatchLog, WatchResponse, in_range,
};

/// Judges a history by every guarantee.
#[must_use]
pub fn check(history: &History) -> Report {
    let mut report = Report::default();
    let ledger = ledger::Ledger::build(history, &mut report);
    answers::check(history, &ledger, &mut report);
    order::check(history, &mut report);
    leases::check(history, &ledger, &mut report);
    compaction::check(history, &mut report);
    watches::check(history, &ledger, &mut report);
    report
}
