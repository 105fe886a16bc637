//! Random requests against a store and against the plainest model there is: one whole copy of the
//! content for each revision.
//!
//! The store is restarted, compacted, checkpointed and refused by its engine on the way; answers,
//! reads at every readable revision, and the changes a watch hands out must agree throughout.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use sluice_metastore::engine::embedded::faulty::FaultyDisk;
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::engine::memory::{Memory, Script};
use sluice_metastore::events::Change;
use sluice_metastore::read::{At, Projection, Range};
use sluice_metastore::txn::{Compare, Delete, Op, OpAnswer, Put, Relation, Target, Txn, TxnAnswer};
use sluice_metastore::{Error, KeyRange, LeaseId, Record, Revision, Store, StoreOptions};

use crate::common::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    value: Bytes,
    create: u64,
    modified: u64,
    version: u64,
    lease: LeaseId,
}

type Content = BTreeMap<Bytes, Held>;

struct Model {
    /// Content by revision; the first is of revision 1.
    contents: Vec<Content>,
    /// Of each of them, the keys that were changed, in the order made.
    changes: Vec<Vec<Bytes>>,
    floor: u64,
    leases: Vec<LeaseId>,
}

impl Model {
    fn revision(&self) -> u64 {
        self.contents.len() as u64
    }

    fn now(&self) -> &Content {
        self.contents.last().unwrap()
    }

    fn at(&self, revision: u64) -> &Content {
        &self.contents[usize::try_from(revision - 1).unwrap()]
    }

    fn holds(&self, compare: &Compare) -> bool {
        let absent = Held {
            value: Bytes::new(),
            create: 0,
            modified: 0,
            version: 0,
            lease: LeaseId::NONE,
        };
        let one = |held: Option<&Held>| {
            let order = match &compare.target {
                Target::Value(given) => match held {
                    Some(held) => held.value.cmp(given),
                    None => return false,
                },
                Target::Version(given) => held.unwrap_or(&absent).version.cmp(given),
                Target::Create(given) => held.unwrap_or(&absent).create.cmp(&given.get()),
                Target::Mod(given) => held.unwrap_or(&absent).modified.cmp(&given.get()),
                Target::Lease(given) => held.unwrap_or(&absent).lease.cmp(given),
            };
            match compare.relation {
                Relation::Equal => order.is_eq(),
                Relation::NotEqual => order.is_ne(),
                Relation::Greater => order.is_gt(),
                Relation::Less => order.is_lt(),
            }
        };
        let inside: Vec<_> = within(self.now(), &compare.range).collect();
        match inside.as_slice() {
            [] => one(None),
            all => all.iter().all(|(_, held)| one(Some(held))),
        }
    }

    /// The branches that run, flattened in order; what is nested is chosen up front.
    fn chosen<'t>(&self, txn: &'t Txn, ops: &mut Vec<&'t Op>) {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        for op in if succeeded {
            &txn.success
        } else {
            &txn.failure
        } {
            match op {
                Op::Txn(inner) => self.chosen(inner, ops),
                other => ops.push(other),
            }
        }
    }

    /// Runs a transaction; answers the puts' previous, deletes' counts and reads' keys as text.
    fn run(&mut self, txn: &Txn) -> Result<Vec<String>, &'static str> {
        let mut ops = Vec::new();
        self.chosen(txn, &mut ops);
        for op in &ops {
            if let Op::Put(put) = op {
                let lease = put.lease.unwrap_or(LeaseId::NONE);
                if lease.is_some() && !self.leases.contains(&lease) {
                    return Err("lease");
                }
                let keeps = put.value.is_none() || put.lease.is_none();
                if keeps && !self.now().contains_key(&put.key) {
                    return Err("key");
                }
            }
        }
        let mut content = self.now().clone();
        let revision = self.revision() + 1;
        let (mut answers, mut changes) = (Vec::new(), Vec::new());
        for op in ops {
            match op {
                Op::Range(query) => {
                    let keys: Vec<_> = within(&content, &query.range).collect();
                    answers.push(format!("{keys:?}"));
                }
                Op::Put(put) => {
                    changes.push(put.key.clone());
                    let old = content.get(&put.key).cloned();
                    let held = Held {
                        value: put
                            .value
                            .clone()
                            .unwrap_or_else(|| old.clone().unwrap().value),
                        create: old.as_ref().map_or(revision, |old| old.create),
                        modified: revision,
                        version: old.as_ref().map_or(1, |old| old.version + 1),
                        lease: put.lease.unwrap_or_else(|| old.clone().unwrap().lease),
                    };
                    content.insert(put.key.clone(), held);
                    answers.push(format!("{:?}", old.filter(|_| put.want_previous)));
                }
                Op::Delete(delete) => {
                    let gone: Vec<_> = within(&content, &delete.range)
                        .map(|(name, held)| (name.clone(), held.clone()))
                        .collect();
                    for (name, _) in &gone {
                        content.remove(name);
                        changes.push(name.clone());
                    }
                    answers.push(format!("{}", gone.len()));
                }
                Op::Txn(_) => unreachable!("flattened"),
            }
        }
        if !changes.is_empty() {
            self.contents.push(content);
            self.changes.push(changes);
        }
        Ok(answers)
    }

    fn revoke(&mut self, id: LeaseId) {
        self.leases.retain(|lease| *lease != id);
        let mut content = self.now().clone();
        let gone = content.extract_if(.., |_, held| held.lease == id);
        let gone: Vec<Bytes> = gone.map(|(name, _)| name).collect();
        if !gone.is_empty() {
            self.contents.push(content);
            self.changes.push(gone);
        }
    }
}

fn within<'a>(
    content: &'a Content,
    range: &'a KeyRange,
) -> impl Iterator<Item = (&'a Bytes, &'a Held)> {
    content.iter().filter(|(name, _)| range.contains(name))
}

fn held(record: &Record) -> Held {
    Held {
        value: record.value_bytes(),
        create: record.create_revision().get(),
        modified: record.mod_revision().get(),
        version: record.version(),
        lease: record.lease(),
    }
}

/// The store's answers in the model's words.
fn words(answer: &TxnAnswer, out: &mut Vec<String>) {
    for answer in &answer.answers {
        match answer {
            OpAnswer::Range(range) => {
                let all: Vec<_> = range
                    .records
                    .iter()
                    .map(|r| (r.key_bytes(), held(r)))
                    .collect();
                out.push(format!("{all:?}"));
            }
            OpAnswer::Put(previous) => out.push(format!("{:?}", previous.as_ref().map(held))),
            OpAnswer::Delete(count, _) => out.push(count.to_string()),
            OpAnswer::Txn(inner) => words(inner, out),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Txn(Txn),
    Grant(i64),
    Revoke(i64),
    /// To so many percent between the floor and the newest revision.
    Compact(u64),
    Read(KeyRange, u64, usize),
    Fault(usize),
    Restart,
}

fn name() -> impl Strategy<Value = Bytes> {
    let names = [
        "/r/a/1", "/r/a/2", "/r/a/3", "/r/b/1", "/r/b/x/2", "/q", "z", "\u{7f}",
    ];
    prop::sample::select(names.to_vec()).prop_map(bytes)
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        4 => name().prop_map(KeyRange::Key),
        2 => prop::sample::select(vec!["/r/a/", "/r/", "/", "z"]).prop_map(prefix),
        1 => (name(), name()).prop_map(|(start, end)| KeyRange::Between(start, end)),
        1 => name().prop_map(KeyRange::From),
        1 => Just(KeyRange::All),
    ]
}

fn compare() -> impl Strategy<Value = Compare> {
    let relation = prop::sample::select(vec![
        Relation::Equal,
        Relation::NotEqual,
        Relation::Greater,
        Relation::Less,
    ]);
    let target = prop_oneof![
        (0u64..3).prop_map(Target::Version),
        (0u64..30).prop_map(|n| Target::Create(rev(n))),
        (0u64..30).prop_map(|n| Target::Mod(rev(n))),
        (0u8..4).prop_map(|n| Target::Value(bytes(n.to_string()))),
        (0i64..3).prop_map(|n| Target::Lease(LeaseId(n))),
    ];
    (range(), relation, target).prop_map(|(range, relation, target)| Compare {
        range,
        relation,
        target,
    })
}

fn op(depth: u32) -> BoxedStrategy<Op> {
    let keep = |share| prop::option::weighted(share, 0u8..4);
    let put = (
        name(),
        keep(0.95),
        prop::option::weighted(0.95, 0i64..3),
        any::<bool>(),
    );
    let put = put.prop_map(|(key, value, lease, want_previous)| {
        Op::Put(Put {
            key,
            value: value.map(|value| bytes(value.to_string())),
            lease: lease.map(LeaseId),
            want_previous,
        })
    });
    let delete = range().prop_map(|range| {
        Op::Delete(Delete {
            range,
            want_previous: true,
        })
    });
    let read = range().prop_map(|range| Op::Range(Range::of(range)));
    if depth == 0 {
        return prop_oneof![6 => put, 2 => delete, 2 => read].boxed();
    }
    let inner = request(depth - 1).prop_map(Op::Txn);
    prop_oneof![12 => put, 4 => delete, 4 => read, 1 => inner].boxed()
}

fn request(depth: u32) -> BoxedStrategy<Txn> {
    let ops = move |most| prop::collection::vec(op(depth), 0..most);
    let compares = prop::collection::vec(compare(), 0..3);
    (compares, ops(4), ops(3))
        .prop_map(|(compares, success, failure)| txn(compares, success, failure))
        .boxed()
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => request(2).prop_map(Step::Txn),
        2 => (1i64..3).prop_map(Step::Grant),
        2 => (1i64..3).prop_map(Step::Revoke),
        2 => (0u64..=100).prop_map(Step::Compact),
        12 => (range(), 0u64..=100, 1usize..6).prop_map(|(r, at, n)| Step::Read(r, at, n)),
        2 => (0usize..3).prop_map(Step::Fault),
        1 => Just(Step::Restart),
    ]
}

struct Run {
    under: Under,
    store: Store,
    model: Model,
}

/// What the store is over.
enum Under {
    /// An engine that refuses what it is told to.
    Memory(Arc<Memory>),
    /// One with files, over which hardly a value may stay in memory.
    Files(FaultyDisk),
}

impl Under {
    fn open(&self) -> Store {
        let options = StoreOptions {
            ring_bytes: 1500,
            checkpoint_every_bytes: 800,
            ..StoreOptions::default()
        };
        match self {
            Under::Memory(engine) => Store::open(Arc::clone(engine) as _, options).unwrap(),
            Under::Files(disk) => {
                let mut engine = EmbeddedOptions::new("");
                engine.segment_bytes = 8 << 10;
                let engine = Embedded::open_over(Arc::new(disk.clone()), engine).unwrap();
                let options = StoreOptions {
                    memory_limit_bytes: Some(1000),
                    ..options
                };
                Store::open(engine, options).unwrap()
            }
        }
    }

    fn fault(&self, script: Script) {
        if let Under::Memory(engine) = self {
            engine.script([script]);
        }
    }

    fn reopened(&self) -> Self {
        match self {
            Under::Memory(engine) => Under::Memory(engine.reopened()),
            Under::Files(disk) => Under::Files(disk.clone()),
        }
    }
}

impl Run {
    async fn step(&mut self, step: Step) {
        match step {
            Step::Txn(txn) => self.txn(txn).await,
            Step::Grant(id) => {
                let ttl = Duration::from_secs(1000);
                match self.store.lease_grant(LeaseId(id), ttl).await {
                    Ok(_) => self.model.leases.push(LeaseId(id)),
                    Err(Error::LeaseExists) => assert!(self.model.leases.contains(&LeaseId(id))),
                    Err(Error::NoSpace) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Revoke(id) => match self.store.lease_revoke(LeaseId(id)).await {
                Ok(revision) => {
                    self.model.revoke(LeaseId(id));
                    assert_eq!(revision.get(), self.model.revision());
                }
                Err(Error::LeaseNotFound) => assert!(!self.model.leases.contains(&LeaseId(id))),
                // Refused twice in a row.
                Err(Error::NoSpace) => {}
                Err(other) => panic!("{other}"),
            },
            Step::Compact(percent) => {
                let at = self.between(percent);
                match self.store.compact(rev(at)).await {
                    Ok(_) => {
                        assert!(at > self.model.floor);
                        self.model.floor = at;
                    }
                    Err(Error::Compacted { .. }) => assert_eq!(at, self.model.floor),
                    Err(Error::NoSpace) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Read(range, percent, limit) => self.read(&range, self.between(percent), limit),
            Step::Fault(0) => self.under.fault(Script::NoSpace),
            Step::Fault(1) => self.under.fault(Script::UncertainApplied),
            Step::Fault(_) => self.under.fault(Script::UncertainLost),
            Step::Restart => self.restart().await,
        }
        assert_eq!(self.store.revision().get(), self.model.revision());
    }

    fn between(&self, percent: u64) -> u64 {
        let (least, newest) = (self.model.floor.max(1), self.model.revision());
        least + (newest - least) * percent / 100
    }

    async fn txn(&mut self, txn: Txn) {
        match self.store.txn(txn.clone()).await {
            Ok(answer) => {
                let expected = self.model.run(&txn).unwrap();
                let mut given = Vec::new();
                words(&answer, &mut given);
                assert_eq!(given, expected);
                assert_eq!(answer.revision.get(), self.model.revision());
            }
            Err(error @ (Error::LeaseNotFound | Error::KeyNotFound)) => {
                assert!(self.model.run(&txn).is_err(), "{error}");
            }
            // Refused whole; that they are refused rightly is for the tests of each.
            Err(Error::DuplicateKey | Error::NoSpace) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn read(&self, range: &KeyRange, at: u64, limit: usize) {
        let content = self.model.at(at);
        let expected: Vec<_> = within(content, range)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let mut query = Range::of(range.clone());
        query.at = At::Exactly(rev(at));
        query.limit = Some(limit);
        let answer = self.store.range(&query).unwrap();
        let given: Vec<_> = answer
            .records
            .iter()
            .map(|r| (r.key_bytes(), held(r)))
            .collect();
        let page = expected.len().min(limit);
        assert_eq!(given, expected[..page]);
        assert_eq!(answer.count, expected.len() as u64);
        assert_eq!(answer.more, page < expected.len());
        assert_eq!(answer.revision.get(), self.model.revision());
        query.projection = Projection::CountOnly;
        assert_eq!(
            self.store.range(&query).unwrap().count,
            expected.len() as u64
        );
    }

    async fn restart(&mut self) {
        self.store.clone().close().await;
        self.under = self.under.reopened();
        self.store = self.under.open();
        assert_eq!(self.store.compacted().get(), self.model.floor);
    }

    /// Everything that can be read or watched, at the end.
    async fn check_all(&mut self) {
        let least = self.model.floor.max(1);
        for at in least..=self.model.revision() {
            for range in [KeyRange::All, prefix("/r/a/"), key("/q")] {
                self.read(&range, at, 100);
            }
        }
        for lease in self.store.leases() {
            let keys = self.store.lease_remaining(lease).unwrap().keys;
            let hanging = self
                .model
                .now()
                .iter()
                .filter(|(_, held)| held.lease == lease);
            assert!(keys.iter().eq(hanging.map(|(name, _)| name)));
        }
        for range in [KeyRange::All, prefix("/r/a/"), key("/q")] {
            self.check_watch(&range, least).await;
        }
    }

    async fn check_watch(&self, range: &KeyRange, start: u64) {
        let mut watcher = try_watch(&self.store, range.clone(), start).unwrap();
        let mut given = Vec::new();
        while watcher.through().get() < self.model.revision() {
            let bell = watcher.bell();
            let Some(batch) = watcher.poll_now().unwrap() else {
                if watcher.through().get() < self.model.revision() {
                    // Values are being read.
                    bell.await;
                }
                continue;
            };
            for event in batch.events {
                let at = event.change.revision().get();
                let name = Bytes::copy_from_slice(event.change.key());
                let put = match &event.change {
                    Change::Put(record) => Some(held(record)),
                    Change::Delete { .. } => None,
                };
                let previous = event.previous.as_ref().map(held);
                given.push((at, name, put, previous));
            }
        }
        assert_eq!(watcher.through().get(), self.model.revision());
        let mut expected = Vec::new();
        // Changes at the floor itself cannot be told from the model's copies below it when those
        // are gone for readers, but the model keeps them.
        for at in start.max(2)..=self.model.revision() {
            let (old, new) = (self.model.at(at - 1), self.model.at(at));
            let changed = &self.model.changes[usize::try_from(at - 1).unwrap()];
            for name in changed.iter().filter(|name| range.contains(name)) {
                let was = old.get(name).filter(|_| at > self.model.floor);
                let is = new.get(name).cloned();
                expected.push((at, name.clone(), is, was.cloned()));
            }
        }
        assert_eq!(given, expected);
    }
}

fn check(under: Under, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let store = under.open();
        let model = Model {
            contents: vec![Content::new()],
            changes: vec![Vec::new()],
            floor: Revision::ZERO.get(),
            leases: Vec::new(),
        };
        let mut run = Run {
            under,
            store,
            model,
        };
        for step in steps {
            run.step(step).await;
        }
        run.check_all().await;
        run.restart().await;
        run.check_all().await;
        run.store.close().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_store_is_a_copy_of_the_content_for_each_revision(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        check(Under::Memory(Memory::new()), steps);
    }

    #[test]
    fn so_is_one_whose_values_are_mostly_on_the_disk(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        check(Under::Files(FaultyDisk::new()), steps);
    }
}
