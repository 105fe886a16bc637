//! The quota, held against arithmetic: which put is refused, and how long the store says that it is
//! full.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sluice_metastore::engine::Engine;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::txn::{Op, Target};
use sluice_metastore::{Error, LeaseId, Revision, Store, StoreOptions};

use crate::common::*;

const QUOTA: u64 = 20_000;
/// What is reckoned for a put beside its value, with a key of two bytes; and for a lease.
const PUT: u64 = 258;
const GRANT: u64 = 64;

#[derive(Clone, Debug)]
enum Step {
    Put(u64),
    /// A put that just does not fit, or fits with so many bytes less.
    Brink(u64),
    /// A transaction with a put in each branch.
    Either(u64, u64),
    Grant,
    Delete,
    /// What compaction and a checkpoint can let go.
    LetGo,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let size = || prop_oneof![6 => 0..6_000_u64, 1 => (QUOTA - 400)..(QUOTA + 10)];
    prop_oneof![
        8 => size().prop_map(Step::Put),
        3 => (0..3_u64).prop_map(Step::Brink),
        3 => (size(), size()).prop_map(|(one, other)| Step::Either(one, other)),
        1 => Just(Step::Grant),
        2 => Just(Step::Delete),
        2 => Just(Step::LetGo),
        1 => Just(Step::Forget),
    ]
}

/// A put of a value of so many bytes.
fn of(bytes: u64) -> Vec<Op> {
    let value = "v".repeat(usize::try_from(bytes).unwrap());
    vec![put_op("/k", value, LeaseId::NONE)]
}

struct Checked {
    engine: Arc<Memory>,
    store: Store,
    /// The largest that was refused and is still waited for.
    refused: u64,
}

impl Checked {
    fn room(&self) -> u64 {
        QUOTA.saturating_sub(self.engine.size())
    }

    fn begin_write(&mut self) {
        if self.room() > self.refused {
            self.refused = 0;
        }
    }

    /// Judges the answer to what takes `cost` at most and found `room`.
    fn judge(&mut self, cost: u64, room: u64, answer: Result<(), Error>) {
        let added = room.saturating_sub(self.room());
        match answer {
            Ok(()) => {
                assert!(cost < room, "{cost} bytes went into {room}");
                assert!(added > 0 && added <= cost, "{added} bytes, not {cost}");
            }
            Err(Error::NoSpace) => {
                assert!(cost >= room, "{cost} bytes did not go into {room}");
                assert_eq!(added, 0);
                if cost < QUOTA {
                    self.refused = self.refused.max(cost);
                }
            }
            Err(other) => panic!("{other}"),
        }
    }

    async fn write(&mut self, cost: u64, success: Vec<Op>, failure: Vec<Op>) {
        let (room, compare) = (self.room(), is("/k", Target::Version(0)));
        let answer = self.store.txn(txn(vec![compare], success, failure)).await;
        self.judge(cost, room, answer.map(drop));
    }

    async fn put(&mut self, bytes: u64) {
        let (room, put) = (self.room(), txn(vec![], of(bytes), vec![]));
        let answer = self.store.txn(put).await;
        self.judge(PUT + bytes, room, answer.map(drop));
    }

    async fn take(&mut self, step: Step) {
        if !matches!(step, Step::Forget) {
            self.begin_write();
        }
        match step {
            Step::Put(bytes) => self.put(bytes).await,
            Step::Brink(less) => self.put(self.room().saturating_sub(PUT + less)).await,
            Step::Either(one, other) => {
                let cost = PUT + one.max(other);
                self.write(cost, of(one), of(other)).await;
            }
            Step::Grant => {
                let room = self.room();
                let hour = Duration::from_secs(3600);
                let answer = self.store.lease_grant(LeaseId::NONE, hour).await;
                self.judge(GRANT, room, answer.map(drop));
            }
            Step::Delete => {
                let gone = txn(vec![], vec![delete_op(key("/k"))], vec![]);
                self.store.txn(gone).await.expect("what makes room has it");
            }
            Step::LetGo => {
                let at = self.store.revision();
                if at > self.store.compacted().max(Revision::new(1)) {
                    self.store.compact(at).await.expect("so has compaction");
                }
                self.store.defragment().await.unwrap();
            }
            Step::Forget => {
                let was_full_for_it = self.refused >= self.room() && self.room() > 0;
                assert_eq!(self.store.forget_refused(), was_full_for_it);
                self.refused = 0;
            }
        }
        assert_eq!(self.store.is_full(), self.room() <= self.refused);
        assert!(self.store.is_nearly_full() || self.room() > self.refused);
    }
}

async fn check(steps: Vec<Step>) {
    let (engine, store) = fresh_with(StoreOptions {
        quota_bytes: QUOTA,
        checkpoint_every_bytes: u64::MAX,
        ..StoreOptions::default()
    });
    let mut checked = Checked {
        engine,
        store,
        refused: 0,
    };
    for step in steps {
        checked.take(step).await;
    }
    checked.store.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_put_is_refused_exactly_when_it_does_not_fit(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(steps));
    }
}

/// Once, a put was let in as long as anything was: the last one went as far over the quota as it
/// was large.
#[tokio::test]
async fn smaller_puts_go_on_and_a_refused_one_does_once_there_is_room() {
    let (engine, store) = fresh_with(StoreOptions {
        quota_bytes: QUOTA,
        ..StoreOptions::default()
    });
    let large = "v".repeat(7_000);
    let large = || {
        let op = put_op("/large", &large, LeaseId::NONE);
        store.txn(txn(vec![], vec![op], vec![]))
    };
    large().await.unwrap();
    large().await.unwrap();
    assert!(!store.is_full() && !store.is_nearly_full());
    assert!(matches!(large().await, Err(Error::NoSpace)));
    assert!(store.is_full() && store.is_nearly_full());
    let at = put(&store, "/small", "v").await;
    assert!(
        store.is_full(),
        "there still is no room for what was refused"
    );
    store.compact(rev(at)).await.unwrap();
    until(&store, "a checkpoint makes room", |store| !store.is_full()).await;
    large().await.unwrap();
    assert!(engine.size() < QUOTA);
}
