//! The model's writes: every one is a transaction, whose branches are settled before it writes.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::Bytes;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::mvccpb::KeyValue;

use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::request_op::Request as Op;
use pb::response_op::Response as Done;

use super::model::{
    Content, DUPLICATE, EMPTY_KEY, LEASE_PROVIDED, Model, NO_KEY, NO_LEASE, Refusal, TOO_MANY_OPS,
    VALUE_PROVIDED, is_within, range_faults, within,
};

/// etcd's default.
const OPS_MOST: usize = 128;

impl Model {
    /// A put by itself is a transaction of one.
    pub(crate) fn put(&mut self, ask: &pb::PutRequest) -> Result<pb::PutResponse, Refusal> {
        match self.one(Op::RequestPut(ask.clone()))? {
            Done::ResponsePut(done) => Ok(done),
            other => unreachable!("a put came to {other:?}"),
        }
    }

    pub(crate) fn delete(
        &mut self,
        ask: &pb::DeleteRangeRequest,
    ) -> Result<pb::DeleteRangeResponse, Refusal> {
        match self.one(Op::RequestDeleteRange(ask.clone()))? {
            Done::ResponseDeleteRange(done) => Ok(done),
            other => unreachable!("a delete came to {other:?}"),
        }
    }

    fn one(&mut self, op: Op) -> Result<Done, Refusal> {
        let txn = pb::TxnRequest {
            success: vec![pb::RequestOp { request: Some(op) }],
            ..Default::default()
        };
        let mut done = self.txn(&txn)?;
        Ok(done.responses.remove(0).response.unwrap())
    }

    pub(crate) fn txn(&mut self, ask: &pb::TxnRequest) -> Result<pb::TxnResponse, Refusal> {
        let mut wrong = BTreeSet::new();
        faults(ask, OPS_MOST, &mut wrong);
        if wrong.is_empty() && paths(ask).iter().any(|path| changes_a_key_twice(path)) {
            wrong.insert(DUPLICATE);
        }
        if wrong.is_empty() {
            self.look(ask, &mut wrong);
        }
        if !wrong.is_empty() {
            return Err(Refusal(wrong.into_iter().collect()));
        }
        let mut run = Run {
            model: self,
            at: self.revision() + 1,
            content: self.now().clone(),
            changes: Vec::new(),
        };
        let done = run.txn(ask);
        let Run {
            content, changes, ..
        } = run;
        self.push(content, changes);
        Ok(done)
    }

    fn succeeds(&self, ask: &pb::TxnRequest) -> bool {
        ask.compare.iter().all(|compare| {
            let mut seen = within(self.now(), &compare.key, &compare.range_end).peekable();
            if seen.peek().is_none() {
                let is_value = compare.target == i32::from(CompareTarget::Value);
                return !is_value && holds(compare, &KeyValue::default());
            }
            seen.all(|kv| holds(compare, kv))
        })
    }

    fn branch<'a>(&self, ask: &'a pb::TxnRequest) -> &'a [pb::RequestOp] {
        if self.succeeds(ask) {
            &ask.success
        } else {
            &ask.failure
        }
    }

    /// What the operations that would run are refused for.
    fn look(&self, ask: &pb::TxnRequest, wrong: &mut BTreeSet<&'static str>) {
        for op in self.branch(ask) {
            match op.request.as_ref().unwrap() {
                Op::RequestRange(range) => wrong.extend(self.unreadable(range.revision)),
                Op::RequestPut(put) => {
                    if put.lease != 0 && !self.leases.contains_key(&put.lease) {
                        wrong.insert(NO_LEASE);
                    }
                    let keeps = put.ignore_value || put.ignore_lease;
                    if keeps && !self.now().contains_key(&put.key) {
                        wrong.insert(NO_KEY);
                    }
                }
                Op::RequestDeleteRange(_) => {}
                Op::RequestTxn(inner) => self.look(inner, wrong),
            }
        }
    }
}

/// A transaction that is carried out.
struct Run<'a> {
    model: &'a Model,
    at: i64,
    content: Content,
    changes: Vec<Bytes>,
}

impl Run<'_> {
    fn txn(&mut self, ask: &pb::TxnRequest) -> pb::TxnResponse {
        let ops = self.model.branch(ask);
        let responses = ops.iter().map(|op| pb::ResponseOp {
            response: Some(self.op(op.request.as_ref().unwrap())),
        });
        pb::TxnResponse {
            responses: responses.collect(),
            succeeded: self.model.succeeds(ask),
            ..Default::default()
        }
    }

    fn op(&mut self, op: &Op) -> Done {
        match op {
            Op::RequestRange(ask) => Done::ResponseRange(self.model.read(&self.content, ask)),
            Op::RequestPut(ask) => Done::ResponsePut(self.put(ask)),
            Op::RequestDeleteRange(ask) => Done::ResponseDeleteRange(self.delete(ask)),
            Op::RequestTxn(ask) => Done::ResponseTxn(self.txn(ask)),
        }
    }

    fn put(&mut self, ask: &pb::PutRequest) -> pb::PutResponse {
        let before = self.content.get(&ask.key).cloned();
        let kept = before.clone().unwrap_or_default();
        let kv = KeyValue {
            key: ask.key.clone(),
            value: if ask.ignore_value {
                kept.value
            } else {
                ask.value.clone()
            },
            create_revision: if before.is_some() {
                kept.create_revision
            } else {
                self.at
            },
            mod_revision: self.at,
            version: kept.version + 1,
            lease: if ask.ignore_lease {
                kept.lease
            } else {
                ask.lease
            },
        };
        self.content.insert(ask.key.clone(), kv);
        self.changes.push(ask.key.clone());
        pb::PutResponse {
            prev_kv: before.filter(|_| ask.prev_kv),
            ..Default::default()
        }
    }

    fn delete(&mut self, ask: &pb::DeleteRangeRequest) -> pb::DeleteRangeResponse {
        let gone = within(&self.content, &ask.key, &ask.range_end);
        let gone: Vec<KeyValue> = gone.cloned().collect();
        for kv in &gone {
            self.content.remove(&kv.key);
            self.changes.push(kv.key.clone());
        }
        pb::DeleteRangeResponse {
            deleted: i64::try_from(gone.len()).unwrap(),
            prev_kvs: if ask.prev_kv { gone } else { Vec::new() },
            ..Default::default()
        }
    }
}

/// What a transaction is refused for, whatever the content.
fn faults(ask: &pb::TxnRequest, may: usize, wrong: &mut BTreeSet<&'static str>) {
    let widest = ask
        .compare
        .len()
        .max(ask.success.len())
        .max(ask.failure.len());
    if widest > may {
        wrong.insert(TOO_MANY_OPS);
    }
    let left = may.saturating_sub(widest);
    if ask.compare.iter().any(|compare| compare.key.is_empty()) {
        wrong.insert(EMPTY_KEY);
    }
    for op in ask.success.iter().chain(&ask.failure) {
        match &op.request {
            None => drop(wrong.insert(NO_KEY)),
            Some(Op::RequestRange(ask)) => wrong.extend(range_faults(ask)),
            Some(Op::RequestPut(put)) => {
                if put.key.is_empty() {
                    wrong.insert(EMPTY_KEY);
                }
                if put.ignore_value && !put.value.is_empty() {
                    wrong.insert(VALUE_PROVIDED);
                }
                if put.ignore_lease && put.lease != 0 {
                    wrong.insert(LEASE_PROVIDED);
                }
            }
            Some(Op::RequestDeleteRange(delete)) => {
                if delete.key.is_empty() {
                    wrong.insert(EMPTY_KEY);
                }
            }
            Some(Op::RequestTxn(inner)) => faults(inner, left, wrong),
        }
    }
}

/// Every way through the branches, as what it would put and delete.
fn paths(ask: &pb::TxnRequest) -> Vec<Vec<&Op>> {
    let branches = [&ask.success, &ask.failure].map(|ops| {
        let mut ways: Vec<Vec<&Op>> = vec![Vec::new()];
        for op in ops {
            let further = match op.request.as_ref() {
                Some(Op::RequestTxn(inner)) => paths(inner),
                Some(op) => vec![vec![op]],
                None => continue,
            };
            let longer = ways.iter().flat_map(|way| {
                let joined = further.iter().map(|more| [&way[..], more].concat());
                joined.collect::<Vec<_>>()
            });
            ways = longer.collect();
        }
        ways
    });
    branches.concat()
}

/// Whether a key is put twice, or put and also deleted.
fn changes_a_key_twice(path: &[&Op]) -> bool {
    let mut put = BTreeSet::new();
    for op in path {
        if let Op::RequestPut(ask) = op
            && !put.insert(&ask.key)
        {
            return true;
        }
    }
    path.iter().any(|op| match op {
        Op::RequestDeleteRange(ask) => put
            .iter()
            .any(|key| is_within(key, &ask.key, &ask.range_end)),
        _ => false,
    })
}

fn holds(compare: &pb::Compare, kv: &KeyValue) -> bool {
    let number = |is_it: bool, given: i64, number: i64| {
        // What is given of another kind than it is compared with counts for nothing.
        number.cmp(if is_it { &given } else { &0 })
    };
    let (is_it, given) = match (&compare.target_union, compare.target) {
        (Some(TargetUnion::Version(n)), 0)
        | (Some(TargetUnion::CreateRevision(n)), 1)
        | (Some(TargetUnion::ModRevision(n)), 2)
        | (Some(TargetUnion::Lease(n)), 4) => (true, *n),
        _ => (false, 0),
    };
    let order = match CompareTarget::try_from(compare.target) {
        Ok(CompareTarget::Version) => number(is_it, given, kv.version),
        Ok(CompareTarget::Create) => number(is_it, given, kv.create_revision),
        Ok(CompareTarget::Mod) => number(is_it, given, kv.mod_revision),
        Ok(CompareTarget::Lease) => number(is_it, given, kv.lease),
        Ok(CompareTarget::Value) => match &compare.target_union {
            Some(TargetUnion::Value(value)) => kv.value.cmp(value),
            _ => kv.value.cmp(&Bytes::new()),
        },
        // Nothing is compared, and nothing is as much as nothing.
        Err(_) => Ordering::Equal,
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => order.is_eq(),
        Ok(CompareResult::NotEqual) => order.is_ne(),
        Ok(CompareResult::Greater) => order.is_gt(),
        Ok(CompareResult::Less) => order.is_lt(),
        Err(_) => true,
    }
}
