//! The watches at an endpoint, so that some of them can be asked to go elsewhere.
//!
//! A watch that is asked ends between two events, and its client goes on from its last version,
//! wherever it is sent then. The oldest is asked first: it has the longest history behind it. The
//! list holds those that have left until it is looked at again; bound: what comes and goes in a
//! second.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    list: Mutex<VecDeque<Weak<Seat>>>,
}

/// One watch's.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    is_asked: AtomicBool,
    waker: AtomicWaker,
}

impl Seats {
    /// A watch begins; it has left when its seat is dropped.
    pub(crate) fn sit(&self) -> Arc<Seat> {
        let seat = Arc::new(Seat::default());
        self.list.lock().push_back(Arc::downgrade(&seat));
        seat
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        let mut list = self.list.lock();
        list.retain(|seat| seat.strong_count() > 0);
        list.len()
    }

    /// Asks so many to go.
    pub(super) fn ask(&self, count: usize) {
        for _ in 0..count {
            let Some(oldest) = self.list.lock().pop_front() else {
                return;
            };
            if let Some(seat) = oldest.upgrade() {
                seat.is_asked.store(true, Ordering::Release);
                seat.waker.wake();
            }
        }
    }
}

impl Seat {
    /// Ready when it has been asked to go.
    pub(crate) fn poll_asked(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.is_asked.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_that_is_still_there_is_asked_first() {
        let seats = Seats::default();
        let all: Vec<_> = (0..4).map(|_| seats.sit()).collect();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let asked = |seat: &Arc<Seat>| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            seat.poll_asked(&mut cx).is_ready()
        };
        assert!(all[0].poll_asked(&mut cx).is_pending());
        let mut all = all.into_iter();
        drop(all.next());
        let rest: Vec<_> = all.collect();
        assert_eq!(seats.count(), 3);
        seats.ask(2);
        assert_eq!(
            rest.iter().map(asked).collect::<Vec<_>>(),
            [true, true, false]
        );
        seats.ask(9);
        assert!(asked(&rest[2]));
    }
}
