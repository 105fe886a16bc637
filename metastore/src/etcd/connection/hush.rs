//! The waker that HTTP/2 has: it is told to be quiet while its own driver puts answers in.
//!
//! Every frame that is put in wakes whoever drives the connection, who is the one that puts it in
//! and polls right after: the wake would be for nothing, and on another thread it costs a change of
//! threads. What is woken while it is quiet is seen by that poll.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use futures_util::task::AtomicWaker;

/// Wakes the task behind it unless it is quiet.
#[derive(Debug, Default)]
pub(super) struct Hush {
    is_quiet: AtomicBool,
    task: AtomicWaker,
}

impl Hush {
    /// The task to wake from now on, until it was woken once.
    pub(super) fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    /// Until [`Hush::listen`], which comes before the next poll of the connection.
    pub(super) fn be_quiet(&self) {
        self.is_quiet.store(true, Ordering::SeqCst);
    }

    pub(super) fn listen(&self) {
        self.is_quiet.store(false, Ordering::SeqCst);
    }
}

impl Wake for Hush {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_quiet.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_wake_passes_unless_it_is_quiet() {
        let woken = Arc::new(Woken::default());
        let task = Waker::from(Arc::clone(&woken));
        let hush = Arc::new(Hush::default());
        let waker = Waker::from(Arc::clone(&hush));
        hush.register(&task);
        hush.be_quiet();
        waker.wake_by_ref();
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        hush.listen();
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "once a turn");
        hush.register(&task);
        waker.wake();
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    }
}
