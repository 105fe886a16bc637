//! An engine that says late what it has done, as a busy machine makes any engine do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::engine::{AppendOutcome, Batch, Engine, Epoch, Place, PlacedDone, Recovered};
use sluice_metastore::{Error, LeaseId, Revision, Store, StoreOptions};

use crate::common::*;

/// The memory engine, with outcomes held back while it is told to. A checkpoint is let through once
/// something is held back.
#[derive(Clone)]
struct Late {
    memory: Arc<Memory>,
    shared: Arc<(Mutex<Held>, Condvar)>,
}

#[derive(Default)]
struct Held {
    is_holding: bool,
    unsaid: Vec<(PlacedDone, AppendOutcome)>,
    appended: usize,
    /// Of each checkpoint, whether outcomes were unsaid when it began.
    checkpoints: Vec<bool>,
    trimmed: usize,
}

impl Late {
    fn new() -> Self {
        Late {
            memory: Memory::new(),
            shared: Arc::default(),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        let answer = change(&mut self.shared.0.lock());
        self.shared.1.notify_all();
        answer
    }

    /// Says everything, in order, and holds nothing back any more.
    fn say(&self) {
        let unsaid = self.change(|held| {
            held.is_holding = false;
            std::mem::take(&mut held.unsaid)
        });
        for (done, outcome) in unsaid {
            done(outcome, None);
        }
    }
}

impl Engine for Late {
    fn acquire(&self, holder: &str) -> Result<Epoch, Error> {
        self.memory.acquire(holder)
    }

    fn recover_placed(
        &self,
        epoch: Epoch,
        sink: &mut dyn FnMut(Recovered, Option<Place>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.memory.recover_placed(epoch, sink)
    }

    fn append_placed(&self, epoch: Epoch, batch: Batch, done: PlacedDone) {
        self.change(|held| held.appended += 1);
        let late = self.clone();
        let late_done = move |outcome| {
            let now = late.change(|held| {
                if held.is_holding {
                    held.unsaid.push((done, outcome));
                    return None;
                }
                Some((done, outcome))
            });
            if let Some((done, outcome)) = now {
                done(outcome, None);
            }
        };
        self.memory.append(epoch, batch, Box::new(late_done));
    }

    fn resume(&self, epoch: Epoch) {
        self.memory.resume(epoch);
    }

    fn checkpoint_placed(
        &self,
        epoch: Epoch,
        at: Revision,
        chunks: &mut dyn Iterator<Item = Result<Bytes, Error>>,
    ) -> Result<Vec<Place>, Error> {
        let mut held = self.shared.0.lock();
        while held.is_holding && held.unsaid.is_empty() {
            self.shared.1.wait(&mut held);
        }
        let is_unsaid = !held.unsaid.is_empty();
        held.checkpoints.push(is_unsaid);
        drop(held);
        self.memory.checkpoint_placed(epoch, at, chunks)
    }

    fn trim(&self) -> Result<(), Error> {
        let trimmed = self.memory.trim();
        self.change(|held| held.trimmed += 1);
        trimmed
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn close(&self) {
        self.memory.close();
    }
}

/// A compaction was answered, the store was killed, and then the floor was the old one:
/// history that clients had been told was gone was there again, without the versions already swept.
/// The floor's batch was in the log, and the sequencer did not know it yet, when one checkpoint
/// ended and the next began. The second lacked the floor, and trimming let go all that was in the
/// log at the end of the first: a batch that takes no revision is not missed by its number.
#[tokio::test]
async fn a_checkpoint_drops_nothing_that_it_has_not_seen() {
    const BIG: usize = 10_000;
    let late = Late::new();
    let options = StoreOptions {
        checkpoint_every_bytes: BIG as u64,
        ..StoreOptions::default()
    };
    let store = Store::open(Arc::new(late.clone()), options).unwrap();
    for _ in 0..5 {
        put(&store, "/k", "v").await;
    }
    let until = async |what: &str, holds: &dyn Fn(&Held) -> bool| {
        let waiting = async {
            while !holds(&late.shared.0.lock()) {
                tokio::task::yield_now().await;
            }
        };
        let patience = Duration::from_secs(10);
        tokio::time::timeout(patience, waiting).await.expect(what);
    };
    let start_big = || {
        let store = store.clone();
        let op = put_op("/big", "v".repeat(BIG), LeaseId::NONE);
        tokio::spawn(async move { store.txn(txn(vec![], vec![op], vec![])).await.unwrap() })
    };

    late.change(|held| held.is_holding = true);
    let other = store.clone();
    let floor = tokio::spawn(async move { other.compact(rev(4)).await.unwrap() });
    until("the floor is sent", &|held| held.appended == 6).await;
    let first = start_big();
    until("a checkpoint ended", &|held| held.trimmed == 1).await;
    let second = start_big();
    until("the second is sent", &|held| held.appended == 8).await;
    late.say();
    floor.await.unwrap();
    first.await.unwrap();
    second.await.unwrap();
    until("the next checkpoint ended", &|held| held.trimmed == 2).await;

    let killed = Store::open(late.memory.reopened(), StoreOptions::default()).unwrap();
    assert_eq!((killed.revision(), killed.compacted()), (rev(8), rev(4)));
    assert_eq!(late.shared.0.lock().checkpoints, [true, false]);
}
