//! Runs a transaction against the assigned state.
//!
//! Which branches run is settled before anything is written (so compares within see what was there
//! before, as in etcd), then everything that could refuse is checked, then the operations run in
//! order, each seeing those before it. So a refused transaction has changed nothing, and nothing
//! need be undone.
//!
//! A transaction of the shape an apiserver sends (one compare of one key, one put or delete of a
//! key) takes the same three steps over one operation without building a plan.

use bytes::Bytes;

use crate::events::{Change, Event};
use crate::index::History;
use crate::read::{At, Projection, Range, serve};
use crate::state::State;
use crate::txn::{Compare, Delete, Op, OpAnswer, Put, Relation, Target, Txn, TxnAnswer};
use crate::{Error, KeyRange, LeaseId, Record, Revision};

/// What a transaction came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) answer: TxnAnswer,
    /// Its changes, in the order made; all of one revision.
    pub(crate) events: Vec<Event>,
    /// The newest revision that its answer depends on: what must be durable before it is given.
    pub(crate) looked_at: Revision,
}

/// Runs `txn`, which passed [`super::check::check`], and moves the state on when it wrote.
///
/// # Errors
/// `LeaseNotFound`, `KeyNotFound`, or what a read in it answered; the state is then untouched.
pub(crate) fn evaluate(state: &mut State, txn: &Txn) -> Result<Outcome, Error> {
    let mut run = Run {
        revision: state.revision.next(),
        events: Vec::new(),
        looked_at: Revision::ZERO,
        state,
    };
    let answer = match (txn.compares.as_slice(), txn.success.as_slice()) {
        ([compare], [op @ (Op::Put(_) | Op::Delete(_))]) if is_flat(&txn.failure) => {
            let succeeded = run.holds(compare);
            let ops = if succeeded {
                std::slice::from_ref(op)
            } else {
                &txn.failure
            };
            run.check_ops(ops)?;
            run.branch(succeeded, ops, &mut [].iter())
        }
        _ => {
            let mut plan = Vec::new();
            run.settle(txn, &mut plan);
            run.check_branches(txn, &mut plan.iter())?;
            run.whole(txn, &mut plan.iter())
        }
    };
    let Run {
        revision,
        events,
        looked_at,
        ..
    } = run;
    let looked_at = if events.is_empty() {
        looked_at
    } else {
        revision
    };
    if !events.is_empty() {
        state.revision = revision;
    }
    let mut answer = answer;
    stamp(&mut answer, state.revision);
    Ok(Outcome {
        answer,
        events,
        looked_at,
    })
}

/// Says the final revision in every answer: the write's own, or the newest.
fn stamp(answer: &mut TxnAnswer, revision: Revision) {
    answer.revision = revision;
    for answer in &mut answer.answers {
        match answer {
            OpAnswer::Range(range) => range.revision = revision,
            OpAnswer::Txn(inner) => stamp(inner, revision),
            OpAnswer::Put(_) | OpAnswer::Delete(..) => {}
        }
    }
}

/// Says of a transaction that wrote nothing that it was served at `revision`.
pub(crate) fn restamp(answer: &mut TxnAnswer, revision: Revision) {
    stamp(answer, revision);
}

fn is_flat(ops: &[Op]) -> bool {
    !ops.iter().any(|op| matches!(op, Op::Txn(_)))
}

type Plan<'p> = std::slice::Iter<'p, bool>;

struct Run<'a> {
    state: &'a mut State,
    /// What its writes are stamped with, if there are any.
    revision: Revision,
    events: Vec<Event>,
    looked_at: Revision,
}

impl Run<'_> {
    /// Notes, depth first, which branch of each transaction runs.
    fn settle(&mut self, txn: &Txn, plan: &mut Vec<bool>) {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        plan.push(succeeded);
        for op in pick(txn, succeeded) {
            if let Op::Txn(inner) = op {
                self.settle(inner, plan);
            }
        }
    }

    fn check_branches(&mut self, txn: &Txn, plan: &mut Plan<'_>) -> Result<(), Error> {
        let succeeded = plan.next().copied().unwrap_or(false);
        let ops = pick(txn, succeeded);
        self.check_ops(ops)?;
        for op in ops {
            if let Op::Txn(inner) = op {
                self.check_branches(inner, plan)?;
            }
        }
        Ok(())
    }

    fn check_ops(&mut self, ops: &[Op]) -> Result<(), Error> {
        for op in ops {
            match op {
                Op::Range(query) => drop(serve::check(self.state, query)?),
                Op::Put(put) => {
                    let lease = put.lease.unwrap_or_default();
                    if lease.is_some() && self.state.lease(lease).is_none() {
                        return Err(Error::LeaseNotFound);
                    }
                    let keeps = put.value.is_none() || put.lease.is_none();
                    if keeps && self.state.live(&put.key).is_none() {
                        return Err(Error::KeyNotFound);
                    }
                }
                Op::Delete(_) | Op::Txn(_) => {}
            }
        }
        Ok(())
    }

    fn whole(&mut self, txn: &Txn, plan: &mut Plan<'_>) -> TxnAnswer {
        let succeeded = plan.next().copied().unwrap_or(false);
        self.branch(succeeded, pick(txn, succeeded), plan)
    }

    fn branch(&mut self, succeeded: bool, ops: &[Op], plan: &mut Plan<'_>) -> TxnAnswer {
        let answers = ops.iter().map(|op| match op {
            Op::Range(query) => self.range(query),
            Op::Put(put) => OpAnswer::Put(self.put(put)),
            Op::Delete(delete) => self.delete(delete),
            Op::Txn(inner) => OpAnswer::Txn(self.whole(inner, plan)),
        });
        TxnAnswer {
            revision: Revision::ZERO,
            succeeded,
            answers: answers.collect(),
        }
    }

    fn range(&mut self, query: &Range) -> OpAnswer {
        match &query.range {
            KeyRange::Key(key) => self.look(key),
            _ => self.looked_at = self.state.revision,
        }
        // Checked before anything ran, and nothing since could make it fail.
        OpAnswer::Range(serve::serve(self.state, query).unwrap_or_default())
    }

    fn put(&mut self, put: &Put) -> Option<Record> {
        let revision = self.revision;
        let (record, previous) = self.state.put(&put.key, |previous| {
            let value = match (&put.value, previous) {
                (Some(value), _) => value,
                (None, Some(kept)) => kept.value(),
                (None, None) => &Bytes::new(),
            };
            let kept = || previous.map_or(LeaseId::NONE, Record::lease);
            let lease = put.lease.unwrap_or_else(kept);
            let create = previous.map_or(revision, Record::create_revision);
            let version = previous.map_or(0, Record::version) + 1;
            Record::new(&put.key, value, create, revision, version, lease)
        });
        self.events.push(Event {
            change: Change::Put(record),
            previous: previous.clone(),
        });
        previous.filter(|_| put.want_previous)
    }

    fn delete(&mut self, delete: &Delete) -> OpAnswer {
        let keys: Vec<Bytes> = match &delete.range {
            KeyRange::Key(key) => {
                self.look(key);
                vec![key.clone()]
            }
            range => {
                self.looked_at = self.state.revision;
                let mut query = Range::of(range.clone());
                query.projection = Projection::KeysOnly;
                query.at = At::Latest;
                let found = serve::serve(self.state, &query).unwrap_or_default();
                let keys = found.records.iter().map(|record| record.key().clone());
                keys.collect()
            }
        };
        let mut gone = Vec::new();
        let mut count = 0;
        for key in keys {
            if let Some(event) = delete_key(self.state, &key, self.revision) {
                count += 1;
                gone.extend(event.previous.clone().filter(|_| delete.want_previous));
                self.events.push(event);
            }
        }
        OpAnswer::Delete(count, gone)
    }

    fn look(&mut self, key: &[u8]) {
        let seen = self.state.index.get(key).map(|h| h.newest().revision());
        self.looked_at = self.looked_at.max(seen.unwrap_or_default());
    }

    fn holds(&mut self, compare: &Compare) -> bool {
        if let KeyRange::Key(key) = &compare.range {
            let history = self.state.index.get(key);
            let seen = history.map(|history| history.newest().revision());
            self.looked_at = self.looked_at.max(seen.unwrap_or_default());
            return matches(compare, history.and_then(History::live));
        }
        self.looked_at = self.state.revision;
        let (start, end) = (compare.range.start(), compare.range.end());
        let walk = self.state.index.range(start, end, self.revision.get());
        let mut live = walk.filter_map(|(_, history)| history.live()).peekable();
        if live.peek().is_none() {
            // Over no keys at all, etcd compares once with an absent key.
            return matches(compare, None);
        }
        live.all(|record| matches(compare, Some(record)))
    }
}

/// Deletes one key at `revision`, if it is there.
pub(crate) fn delete_key(state: &mut State, key: &[u8], revision: Revision) -> Option<Event> {
    let record = state.live(key)?;
    // The record's own key may be a slice of a large value: the event keeps only the key alive.
    let key = Bytes::copy_from_slice(record.key());
    let previous = state.delete(&key, revision);
    let change = Change::Delete { key, revision };
    Some(Event { change, previous })
}

fn pick(txn: &Txn, succeeded: bool) -> &[Op] {
    if succeeded {
        &txn.success
    } else {
        &txn.failure
    }
}

fn matches(compare: &Compare, record: Option<&Record>) -> bool {
    let ordering = match &compare.target {
        Target::Version(given) => record.map_or(0, Record::version).cmp(given),
        Target::Create(given) => revision_of(record, Record::create_revision).cmp(given),
        Target::Mod(given) => revision_of(record, Record::mod_revision).cmp(given),
        Target::Lease(given) => record.map_or(LeaseId::NONE, Record::lease).cmp(given),
        Target::Value(given) => match record {
            Some(record) => record.value().cmp(given),
            None => return false,
        },
    };
    match compare.relation {
        Relation::Equal => ordering.is_eq(),
        Relation::NotEqual => ordering.is_ne(),
        Relation::Greater => ordering.is_gt(),
        Relation::Less => ordering.is_lt(),
    }
}

fn revision_of(record: Option<&Record>, field: impl Fn(&Record) -> Revision) -> Revision {
    record.map_or(Revision::ZERO, field)
}
