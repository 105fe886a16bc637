//! What a run writes down, and the little that its clients share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::history::{Call, History, Outcome, Request, WatchLog};

/// Revisions of deletions that are remembered, to compact and to watch at.
const DELETES_KEPT: usize = 64;

/// Bytes of values that are large, from the least on.
const LARGE: (u64, u64) = (20_000, 150_000);
/// Bytes of one in sixteen of them: close to what a request may have.
const HUGE: u64 = 1_200_000;

/// The history being made.
#[derive(Debug)]
pub struct Tape {
    began: Instant,
    history: Mutex<History>,
    /// How far the recorder has got: what may be compacted without losing it.
    reach: AtomicI64,
    /// The newest compaction that was acknowledged.
    floor: AtomicI64,
    deletes: Mutex<VecDeque<i64>>,
    leases: Mutex<Vec<i64>>,
    values: AtomicU64,
    /// Of how many values one is large; zero for none.
    large_every: u64,
    clients: AtomicU32,
}

impl Tape {
    /// An empty one.
    #[must_use]
    pub fn new(large_every: u64) -> Self {
        Tape {
            large_every,
            began: Instant::now(),
            history: Mutex::default(),
            reach: AtomicI64::new(1),
            floor: AtomicI64::new(1),
            deletes: Mutex::default(),
            leases: Mutex::default(),
            values: AtomicU64::new(1),
            clients: AtomicU32::new(1),
        }
    }

    /// Nanoseconds since the run began.
    #[must_use]
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A client that there was not yet.
    pub fn client(&self) -> u32 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// A value that was never put. A large one is written as its begin and its length.
    pub fn value(&self) -> String {
        let n = self.values.fetch_add(1, Ordering::Relaxed);
        if self.large_every == 0 || !n.is_multiple_of(self.large_every) {
            return format!("v{n}");
        }
        if n.is_multiple_of(self.large_every * 16) {
            return self.large(HUGE);
        }
        self.large(LARGE.0 + n * 7919 % (LARGE.1 - LARGE.0))
    }

    /// A value of so many bytes that was never put.
    pub fn large(&self, bytes: u64) -> String {
        let n = self.values.fetch_add(1, Ordering::Relaxed);
        format!("v{n}+{bytes}")
    }

    /// Writes down a call that is over.
    pub fn call(&self, client: u32, began: u64, request: Request, outcome: Outcome) {
        let ended = self.now();
        self.history.lock().calls.push(Call {
            client,
            began,
            ended,
            request,
            outcome,
        });
    }

    /// Writes down a watch that is over.
    pub fn watch(&self, log: WatchLog) {
        self.history.lock().watches.push(log);
    }

    /// The server is started again, or goes on, from now on.
    pub fn restarted(&self) {
        let now = self.now();
        self.history.lock().restarts.push(now);
    }

    /// The recorder has everything up to here.
    pub fn reached(&self, revision: i64) {
        self.reach.fetch_max(revision, Ordering::AcqRel);
    }

    /// How far the recorder has got.
    #[must_use]
    pub fn reach(&self) -> i64 {
        self.reach.load(Ordering::Acquire)
    }

    /// A compaction was acknowledged.
    pub fn compacted(&self, revision: i64) {
        self.floor.fetch_max(revision, Ordering::AcqRel);
    }

    /// The newest compaction that was acknowledged.
    #[must_use]
    pub fn floor(&self) -> i64 {
        self.floor.load(Ordering::Acquire)
    }

    /// The recorder was told of a deletion.
    pub fn deleted(&self, revision: i64) {
        let mut deletes = self.deletes.lock();
        deletes.push_back(revision);
        if deletes.len() > DELETES_KEPT {
            deletes.pop_front();
        }
    }

    /// Revisions of recent deletions.
    #[must_use]
    pub fn deletes(&self) -> Vec<i64> {
        self.deletes.lock().iter().copied().collect()
    }

    /// A lease was granted; the run ends what is left of them.
    pub fn granted(&self, id: i64) {
        self.leases.lock().push(id);
    }

    /// All leases ever granted.
    #[must_use]
    pub fn leases(&self) -> Vec<i64> {
        self.leases.lock().clone()
    }

    /// The history so far, which is over.
    #[must_use]
    pub fn finish(&self) -> History {
        let mut history = std::mem::take(&mut *self.history.lock());
        history.ended = self.now();
        history
    }
}
