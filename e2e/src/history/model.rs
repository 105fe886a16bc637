//! The plainest store there is: a map, and what one request does to it.
//!
//! It runs requests on a state without changing it, and takes events as they are. It knows no
//! leases beyond the number a key carries, no time and no compaction.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::record::{
    Answer, Compare, Delete, Event, Kv, Op, Put, Range, Relation, Request, Target, Txn, in_range,
};

/// What there is at one revision.
#[derive(Clone, Debug)]
pub struct Model {
    kvs: BTreeMap<String, Kv>,
    revision: i64,
}

impl Default for Model {
    fn default() -> Self {
        Model {
            kvs: BTreeMap::new(),
            revision: 1,
        }
    }
}

impl Model {
    /// Where it stands.
    #[must_use]
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// What a key holds.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Kv> {
        self.kvs.get(key)
    }

    /// The keys that hang on a lease, in order.
    #[must_use]
    pub fn on_lease(&self, lease: i64) -> Vec<&Kv> {
        let all = self.kvs.values();
        all.filter(|kv| lease != 0 && kv.lease == lease).collect()
    }

    /// What a request would change, as the next revision, and what it would be answered; `None`
    /// when it would be refused, or is not one about keys.
    #[must_use]
    pub fn run(&self, request: &Request) -> Option<(Vec<Event>, Answer)> {
        let mut run = Run {
            base: self,
            over: BTreeMap::new(),
            events: Vec::new(),
            revision: self.revision + 1,
        };
        let answer = match request {
            Request::Range(range) => run.range(range),
            Request::Put(put) => run.put(put)?,
            Request::Delete(delete) => run.delete(delete),
            Request::Txn(txn) => {
                let mut plan = Vec::new();
                run.settle(txn, &mut plan);
                run.txn(txn, &mut plan.into_iter())?
            }
            Request::Revoke { id } => {
                for kv in self.on_lease(*id) {
                    run.erase(kv.clone());
                }
                Answer::Done
            }
            _ => return None,
        };
        Some((run.events, answer))
    }

    /// Goes on to a revision that made these events.
    pub fn apply(&mut self, revision: i64, events: &[Event]) {
        self.revision = revision;
        for event in events {
            if event.is_delete {
                self.kvs.remove(&event.kv.key);
            } else {
                self.kvs.insert(event.kv.key.clone(), event.kv.clone());
            }
        }
    }

    /// An event as it must be at the next revision, given what it says was done to which key.
    #[must_use]
    pub fn complete(&self, event: &Event, revision: i64) -> Event {
        let prev = self.get(&event.kv.key).cloned();
        let kv = if event.is_delete {
            Kv {
                key: event.kv.key.clone(),
                modified: revision,
                ..Kv::default()
            }
        } else {
            Kv {
                create: prev.as_ref().map_or(revision, |prev| prev.create),
                version: prev.as_ref().map_or(1, |prev| prev.version + 1),
                modified: revision,
                ..event.kv.clone()
            }
        };
        Event {
            is_delete: event.is_delete,
            kv,
            prev,
        }
    }
}

/// A request on its way: what it has written lies over what was there.
struct Run<'a> {
    base: &'a Model,
    over: BTreeMap<String, Option<Kv>>,
    events: Vec<Event>,
    revision: i64,
}

impl Run<'_> {
    fn get(&self, key: &str) -> Option<&Kv> {
        match self.over.get(key) {
            Some(written) => written.as_ref(),
            None => self.base.get(key),
        }
    }

    fn within(&self, key: &str, end: &str) -> Vec<Kv> {
        if end.is_empty() {
            return self.get(key).cloned().into_iter().collect();
        }
        let start = key.to_owned();
        let below = self.base.kvs.range(start..);
        let mut found: BTreeMap<&str, &Kv> = below
            .take_while(|(name, _)| in_range(name, key, end))
            .map(|(name, kv)| (name.as_str(), kv))
            .collect();
        for (name, written) in &self.over {
            match written {
                Some(kv) if in_range(name, key, end) => drop(found.insert(name, kv)),
                _ => drop(found.remove(name.as_str())),
            }
        }
        found.into_values().cloned().collect()
    }

    fn range(&self, range: &Range) -> Answer {
        let mut kvs = self.within(&range.key, &range.end);
        let count = i64::try_from(kvs.len()).unwrap_or(i64::MAX);
        if range.count_only {
            return Answer::Range {
                kvs: Vec::new(),
                count,
                more: false,
            };
        }
        let limit = usize::try_from(range.limit).ok().filter(|limit| *limit > 0);
        let more = limit.is_some_and(|limit| kvs.len() > limit);
        kvs.truncate(limit.unwrap_or(usize::MAX));
        if range.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        Answer::Range { kvs, count, more }
    }

    fn put(&mut self, put: &Put) -> Option<Answer> {
        let prev = self.get(&put.key).cloned();
        if prev.is_none() && (put.ignore_value || put.ignore_lease) {
            return None;
        }
        let kept = prev.as_ref();
        let kv = Kv {
            key: put.key.clone(),
            value: match kept {
                Some(kept) if put.ignore_value => kept.value.clone(),
                _ => put.value.clone(),
            },
            lease: match kept {
                Some(kept) if put.ignore_lease => kept.lease,
                _ => put.lease,
            },
            create: kept.map_or(self.revision, |kept| kept.create),
            version: kept.map_or(1, |kept| kept.version + 1),
            modified: self.revision,
        };
        self.over.insert(put.key.clone(), Some(kv.clone()));
        let is_delete = false;
        let event = Event {
            is_delete,
            kv,
            prev: prev.clone(),
        };
        self.events.push(event);
        let prev = prev.filter(|_| put.prev_kv);
        Some(Answer::Put { prev })
    }

    fn erase(&mut self, prev: Kv) {
        self.over.insert(prev.key.clone(), None);
        let kv = Kv {
            key: prev.key.clone(),
            modified: self.revision,
            ..Kv::default()
        };
        self.events.push(Event {
            is_delete: true,
            kv,
            prev: Some(prev),
        });
    }

    fn delete(&mut self, delete: &Delete) -> Answer {
        let found = self.within(&delete.key, &delete.end);
        let deleted = i64::try_from(found.len()).unwrap_or(i64::MAX);
        for kv in found.iter().cloned() {
            self.erase(kv);
        }
        let prev = if delete.prev_kv { found } else { Vec::new() };
        Answer::Delete { deleted, prev }
    }

    /// Which branches run is settled before anything is written.
    fn settle(&self, txn: &Txn, plan: &mut Vec<bool>) {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        plan.push(succeeded);
        for op in branch(txn, succeeded) {
            if let Op::Txn(inner) = op {
                self.settle(inner, plan);
            }
        }
    }

    fn txn(&mut self, txn: &Txn, plan: &mut std::vec::IntoIter<bool>) -> Option<Answer> {
        let succeeded = plan.next()?;
        let answers = branch(txn, succeeded).iter().map(|op| match op {
            Op::Range(range) => Some(self.range(range)),
            Op::Put(put) => self.put(put),
            Op::Delete(delete) => Some(self.delete(delete)),
            Op::Txn(inner) => self.txn(inner, plan),
        });
        let answers = answers.collect::<Option<Vec<Answer>>>()?;
        Some(Answer::Txn { succeeded, answers })
    }

    fn holds(&self, compare: &Compare) -> bool {
        let kv = self.get(&compare.key);
        let number = |field: fn(&Kv) -> i64, given: i64| kv.map_or(0, field).cmp(&given);
        let order = match &compare.target {
            Target::Version(given) => number(|kv| kv.version, *given),
            Target::Create(given) => number(|kv| kv.create, *given),
            Target::Mod(given) => number(|kv| kv.modified, *given),
            Target::Lease(given) => number(|kv| kv.lease, *given),
            Target::Value(given) => match kv {
                Some(kv) => kv.value.cmp(given),
                None => return false,
            },
        };
        match compare.relation {
            Relation::Equal => order == Ordering::Equal,
            Relation::NotEqual => order != Ordering::Equal,
            Relation::Greater => order == Ordering::Greater,
            Relation::Less => order == Ordering::Less,
        }
    }
}

fn branch(txn: &Txn, succeeded: bool) -> &[Op] {
    if succeeded { &txn.then } else { &txn.otherwise }
}
