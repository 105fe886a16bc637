//! How many bytes of values are in memory, and the wish for fewer.
//!
//! The budget is a part of the store's memory limit: what the ring of events holds besides the
//! index is the rest.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The share of the limit that the ring of events may have: as many of the newest events as a
/// quarter of the memory holds, which are the values read most.
const RING_SHARE: usize = 4;
/// How far below the budget the eviction goes once it runs, so that it does not run for each value.
const SLACK_SHARE: usize = 16;

/// The account of one store.
#[derive(Debug)]
pub(crate) struct Residence {
    budget: usize,
    bytes: AtomicUsize,
    /// Values let go, and read back.
    pub(crate) evicted: AtomicU64,
    pub(crate) loaded: AtomicU64,
    wish: Mutex<Wish>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Wish {
    is_over: bool,
    is_stopped: bool,
}

impl Residence {
    /// An account for a store that may hold `limit` bytes of values, its ring included.
    pub(crate) fn new(limit: usize) -> Self {
        Residence {
            budget: limit - limit / RING_SHARE,
            bytes: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
            wish: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// What the ring may hold.
    pub(crate) fn ring_bytes(limit: usize, wanted: usize) -> usize {
        wanted.min(limit / RING_SHARE)
    }

    pub(super) fn add(&self, bytes: usize) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before <= self.budget && before + bytes > self.budget {
            self.nudge();
        }
    }

    pub(super) fn take(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes in memory now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes to let go; zero while within the budget.
    pub(super) fn excess(&self) -> usize {
        let bytes = self.bytes();
        if bytes <= self.budget {
            return 0;
        }
        bytes - (self.budget - self.budget / SLACK_SHARE)
    }

    fn nudge(&self) {
        self.wish.lock().is_over = true;
        self.changed.notify_one();
    }

    /// Ends the eviction.
    pub(crate) fn stop(&self) {
        self.wish.lock().is_stopped = true;
        self.changed.notify_one();
    }

    /// Waits until there may be something to let go, for `patience` at most; false once stopped.
    pub(super) fn wait(&self, patience: Option<Duration>) -> bool {
        let mut wish = self.wish.lock();
        if !wish.is_stopped && !wish.is_over {
            match patience {
                Some(patience) => drop(self.changed.wait_for(&mut wish, patience)),
                None => self.changed.wait(&mut wish),
            }
        }
        wish.is_over = false;
        !wish.is_stopped
    }
}
