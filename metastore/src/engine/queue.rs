//! The way from callers to an engine's one thread: first in, first out, everything at once.
//!
//! The thread takes all that is there in one go, which is what makes a group commit without a
//! timer: the group is whatever came while the last one was being written. No bound here: see
//! [`super`].

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// A queue of requests with one taker.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    stopped: bool,
}

impl<T> Queue<T> {
    pub(super) fn new() -> Self {
        let state = State {
            items: VecDeque::new(),
            stopped: false,
        };
        Queue {
            state: Mutex::new(state),
            filled: Condvar::new(),
        }
    }

    /// Adds one; what comes after [`Queue::stop`] is dropped.
    pub(super) fn push(&self, item: T) {
        let mut state = self.state.lock();
        if state.stopped {
            return;
        }
        let was_empty = state.items.is_empty();
        state.items.push_back(item);
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Whether nothing waits to be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().items.is_empty()
    }

    /// Moves all that is there behind `into`; waits for something when both are empty. False when
    /// the queue was stopped and there is nothing left.
    pub(super) fn take(&self, into: &mut VecDeque<T>) -> bool {
        let mut state = self.state.lock();
        while into.is_empty() && state.items.is_empty() {
            if state.stopped {
                return false;
            }
            self.filled.wait(&mut state);
        }
        if into.is_empty() {
            std::mem::swap(into, &mut state.items);
        } else {
            into.append(&mut state.items);
        }
        true
    }

    /// Lets the taker go once it has taken what is there.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.filled.notify_one();
    }
}
