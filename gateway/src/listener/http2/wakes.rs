//! Who of a connection has something to do: each stream has a waker of its own, and the
//! connection's task is woken once for all of them.
//!
//! A stream is in the list at most once, so the list is as long as there are streams. Nobody is
//! woken while the task is in its turn: it looks again before it sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// The number of what is no stream: timers and the wish to stop.
pub(super) const ORDERS: usize = usize::MAX;

/// A connection's list.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    ready: Vec<usize>,
    /// Of a task that sleeps.
    sleeper: Option<Waker>,
}

impl Wakes {
    /// Takes the list, into an empty one, and is in a turn from here on.
    pub(super) fn take(&self, into: &mut Vec<usize>) {
        let mut list = self.list.lock();
        list.sleeper = None;
        std::mem::swap(&mut list.ready, into);
    }

    /// Ends the turn; no when somebody came meanwhile.
    pub(super) fn sleep(&self, waker: &Waker) -> bool {
        let mut list = self.list.lock();
        let may_sleep = list.ready.is_empty();
        if may_sleep {
            list.sleeper = Some(waker.clone());
        }
        may_sleep
    }

    fn push(&self, number: usize) {
        let sleeper = {
            let mut list = self.list.lock();
            list.ready.push(number);
            list.sleeper.take()
        };
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }
}

/// A bell of one number.
#[derive(Debug)]
pub(super) struct Bell {
    number: usize,
    is_rung: AtomicBool,
    wakes: Arc<Wakes>,
}

impl Bell {
    pub(super) fn new(number: usize, wakes: &Arc<Wakes>) -> Arc<Self> {
        Arc::new(Bell {
            number,
            is_rung: AtomicBool::new(false),
            wakes: Arc::clone(wakes),
        })
    }

    pub(super) fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            self.wakes.push(self.number);
        }
    }

    /// It was heard, and may be rung again.
    pub(super) fn heard(&self) {
        // A swap, so that what was done before the last ring is seen by whoever looks after this.
        self.is_rung.swap(false, Ordering::AcqRel);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}
