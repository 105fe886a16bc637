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

use crate::cold::Kept;
use crate::events::{Change, Made};
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
    pub(crate) events: Vec<Made>,
    /// What the index keeps of its puts, in their order, where that may leave the memory.
    pub(crate) puts: Vec<Kept>,
    /// The newest revision that its answer depends on: what must be durable before it is given.
    pub(crate) looked_at: Revision,
}

/// Why a transaction was not run; the state is then untouched.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It cannot be, as it stands.
    Error(Error),
    /// It needs values that have left the memory: read them, hold them, and try again. Nothing here
    /// waits for a file, since all other writes wait behind it.
    Cold(Vec<Kept>),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Error(error)
    }
}

/// Runs `txn`, which passed [`super::check::check`], and moves the state on when it wrote.
///
/// # Errors
/// `LeaseNotFound`, `KeyNotFound`, or what a read in it answered; values that are not in memory.
pub(crate) fn evaluate(state: &mut State, txn: &Txn) -> Result<Outcome, Refusal> {
    let mut run = Run {
        revision: state.revision.next(),
        events: Vec::new(),
        puts: Vec::new(),
        looked_at: Revision::ZERO,
        cold: Vec::new(),
        held: Vec::new(),
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
            // Before anything else: which branch runs may hang on it.
            run.check_cold()?;
            run.check_ops(ops)?;
            run.check_cold()?;
            run.branch(succeeded, ops, &mut [].iter())
        }
        _ => {
            let mut plan = Vec::new();
            run.settle(txn, &mut plan);
            run.check_cold()?;
            run.check_branches(txn, &mut plan.iter())?;
            run.check_cold()?;
            run.whole(txn, &mut plan.iter())
        }
    };
    let Run {
        revision,
        events,
        puts,
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
        puts,
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
    events: Vec<Made>,
    puts: Vec<Kept>,
    looked_at: Revision,
    /// What it needs and is not in memory; when there is any, nothing is run.
    cold: Vec<Kept>,
    /// What it needs, kept in memory until it has run.
    held: Vec<Record>,
}

impl Run<'_> {
    /// # Errors
    /// What is needed and not in memory.
    fn check_cold(&mut self) -> Result<(), Refusal> {
        if self.cold.is_empty() {
            return Ok(());
        }
        Err(Refusal::Cold(std::mem::take(&mut self.cold)))
    }

    /// Holds what a read will find, or notes it as cold.
    fn need(&mut self, query: &Range) -> Result<(), Error> {
        if self.state.residence.is_none() || query.projection != Projection::Full {
            return serve::check(self.state, query).map(drop);
        }
        let (answer, cold) = serve::look(self.state, query)?;
        self.held.extend(answer.records);
        self.cold.extend(cold);
        Ok(())
    }

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
                // Operations before it may make room in its page for keys behind.
                Op::Range(query) if ops.len() > 1 && query.limit.is_some() => {
                    let limit = None;
                    let query = query.clone();
                    self.need(&Range { limit, ..query })?;
                }
                Op::Range(query) => self.need(query)?,
                Op::Put(put) => {
                    let lease = put.lease.unwrap_or_default();
                    if lease.is_some() && self.state.lease(lease).is_none() {
                        return Err(Error::LeaseNotFound);
                    }
                    let keeps = put.value.is_none() || put.lease.is_none();
                    if keeps && self.state.live(&put.key).is_none() {
                        return Err(Error::KeyNotFound);
                    }
                    if put.value.is_none() || put.want_previous {
                        self.need(&Range::of(KeyRange::Key(put.key.clone())))?;
                    }
                }
                Op::Delete(delete) if delete.want_previous => {
                    self.need(&Range::of(delete.range.clone()))?;
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
        // Checked before anything ran, and nothing since could make it fail: what it finds is held
        // or new, hence in memory.
        let found = serve::look(self.state, query);
        OpAnswer::Range(found.map(|(answer, _none)| answer).unwrap_or_default())
    }

    fn put(&mut self, put: &Put) -> Option<Record> {
        let revision = self.revision;
        let mut made = None;
        let (kept, previous) = self.state.put(&put.key, |previous| {
            // Held, so that it is in memory.
            let kept = || previous.and_then(Kept::resident);
            let value = match &put.value {
                Some(value) => value,
                None => &kept().map(|kept| kept.value_bytes()).unwrap_or_default(),
            };
            let kept = || previous.map_or(LeaseId::NONE, Kept::lease);
            let lease = put.lease.unwrap_or_else(kept);
            let create = previous.map_or(revision, Kept::create_revision);
            let version = previous.map_or(0, Kept::version) + 1;
            let record = Record::new(&put.key, value, create, revision, version, lease);
            made = Some(record.clone());
            record
        });
        if let Kept::Cell(_) = kept {
            self.puts.push(kept);
        }
        let answer = previous.as_ref().filter(|_| put.want_previous);
        let answer = answer.and_then(Kept::resident);
        if let Some(record) = made {
            let change = Change::Put(record);
            self.events.push(Made { change, previous });
        }
        answer
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
                let keys = found.records.iter().map(Record::key_bytes);
                keys.collect()
            }
        };
        let mut gone = Vec::new();
        let mut count = 0;
        for key in keys {
            if let Some(event) = delete_key(self.state, &key, self.revision) {
                count += 1;
                let previous = event.previous.as_ref().filter(|_| delete.want_previous);
                gone.extend(previous.and_then(Kept::resident));
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
            let kept = history.and_then(History::live);
            return compares(compare, kept, &mut self.cold, &mut self.held);
        }
        self.looked_at = self.state.revision;
        let (start, end) = (compare.range.start(), compare.range.end());
        let walk = self.state.index.range(start, end, self.revision.get());
        let mut live = walk.filter_map(|(_, history)| history.live()).peekable();
        let (cold, held) = (&mut self.cold, &mut self.held);
        if live.peek().is_none() {
            // Over no keys at all, etcd compares once with an absent key.
            return compares(compare, None, cold, held);
        }
        live.all(|kept| compares(compare, Some(kept), cold, held))
    }
}

/// Deletes one key at `revision`, if it is there.
pub(crate) fn delete_key(state: &mut State, key: &[u8], revision: Revision) -> Option<Made> {
    state.live(key)?;
    // The caller's key may be a slice of a large value: the event keeps only the key alive.
    let key = Bytes::copy_from_slice(key);
    let previous = state.delete(&key, revision);
    let change = Change::Delete { key, revision };
    Some(Made { change, previous })
}

fn pick(txn: &Txn, succeeded: bool) -> &[Op] {
    if succeeded {
        &txn.success
    } else {
        &txn.failure
    }
}

/// Whether a version stands as it must. One whose value is not in memory is noted and taken to do
/// so: nothing comes of it.
fn compares(
    compare: &Compare,
    kept: Option<&Kept>,
    cold: &mut Vec<Kept>,
    held: &mut Vec<Record>,
) -> bool {
    let ordering = match &compare.target {
        Target::Version(given) => kept.map_or(0, Kept::version).cmp(given),
        Target::Create(given) => revision_of(kept, Kept::create_revision).cmp(given),
        Target::Mod(given) => revision_of(kept, Kept::mod_revision).cmp(given),
        Target::Lease(given) => kept.map_or(LeaseId::NONE, Kept::lease).cmp(given),
        Target::Value(given) => {
            let Some(kept) = kept else { return false };
            let Some(record) = kept.resident() else {
                cold.push(kept.clone());
                return true;
            };
            let ordering = record.value().cmp(given.as_ref());
            if let Kept::Cell(_) = kept {
                held.push(record);
            }
            ordering
        }
    };
    match compare.relation {
        Relation::Equal => ordering.is_eq(),
        Relation::NotEqual => ordering.is_ne(),
        Relation::Greater => ordering.is_gt(),
        Relation::Less => ordering.is_lt(),
    }
}

fn revision_of(kept: Option<&Kept>, field: impl Fn(&Kept) -> Revision) -> Revision {
    kept.map_or(Revision::ZERO, field)
}
