//! One connection as its requests and its driver share it: the state, and the socket.
//!
//! A request that meets a quiet connection is written where it is made, so that the endpoint is at
//! work while the others of a burst are still being read; what meets a busy one is left to the
//! driver, which writes all there is at once ([`State::hurry`]). Whoever changes something calls the
//! driver when it has to act, and nobody is woken while the state is held.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::AsyncWrite as _;
use tokio::time::Instant;

use super::core::Core;
use crate::upstream::io::Stream;

/// Requests without an answer up to which a connection is quiet.
const QUIET: usize = 4;

/// Bytes that are worth a write of their own.
const GATHERED: usize = 4 * 1024;

/// Bytes written in one go: some hundred microseconds, then others get their turn.
const WRITE_MAX: usize = 256 * 1024;

/// See the module.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
}

/// Held for as long as one change takes, or one turn of the driver.
pub(super) struct State {
    pub(super) core: Core,
    /// Until the end.
    pub(super) io: Option<Stream>,
    /// The driver's, once it has run.
    waker: Option<Waker>,
    /// The driver was called since its last turn.
    is_called: bool,
    /// The socket takes no more, and calls the driver when it does.
    is_held_up: bool,
    needs_flush: bool,
    /// Somebody may still send requests.
    pub(super) has_sender: bool,
    /// When the driver looks for requests whose time is over.
    pub(super) looks_at: Option<Instant>,
    /// A request's time is over before that.
    pub(super) is_due_earlier: bool,
    /// Why nothing more can be written.
    pub(super) write_fault: Option<io::Error>,
}

impl Shared {
    pub(super) fn new(core: Core, io: Stream) -> Self {
        let state = State {
            core,
            io: Some(io),
            waker: None,
            is_called: false,
            is_held_up: false,
            needs_flush: false,
            has_sender: true,
            looks_at: None,
            is_due_earlier: false,
            write_fault: None,
        };
        Shared {
            state: Mutex::new(state),
        }
    }

    /// Changes something, and wakes whom that concerns.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (answer, wakes, driver) = {
            let mut state = self.state.lock();
            let answer = change(&mut state);
            let wakes = std::mem::take(&mut state.core.wakes);
            (answer, wakes, state.called())
        };
        for waker in wakes {
            waker.wake();
        }
        if let Some(driver) = driver {
            driver.wake();
        }
        answer
    }
}

impl State {
    /// The driver begins a turn.
    pub(super) fn attend(&mut self, waker: &Waker) {
        self.is_called = false;
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            known => *known = Some(waker.clone()),
        }
    }

    /// Whether nothing is left to be done.
    pub(super) fn is_done(&self) -> bool {
        let takes_none = !self.has_sender || self.core.is_closed();
        takes_none && self.core.streams.open() == 0
    }

    /// The driver, if it has to act and was not called yet.
    fn called(&mut self) -> Option<Waker> {
        let has_work = self.core.unwritten() > 0 && !self.is_held_up;
        let is_wanted =
            has_work || self.is_due_earlier || self.write_fault.is_some() || self.is_done();
        if !is_wanted || self.io.is_none() || std::mem::replace(&mut self.is_called, true) {
            return None;
        }
        self.waker.clone()
    }

    /// Writes a request at once where that gains time; see the module.
    pub(super) fn hurry(&mut self) {
        let is_worth_it = self.core.unanswered <= QUIET || self.core.unwritten() >= GATHERED;
        if self.is_held_up || !is_worth_it {
            return;
        }
        // Called by the socket is the driver.
        if let Some(waker) = self.waker.take() {
            self.write(&mut Context::from_waker(&waker));
            self.waker = Some(waker);
        }
    }

    /// Writes what there is, as far as it is taken. Yes when there is more, and the turn is over.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> bool {
        self.is_held_up = false;
        if self.write_fault.is_some() {
            self.core.stop_sending();
            return false;
        }
        match self.write_out(cx) {
            Poll::Pending => {
                self.is_held_up = true;
                false
            }
            Poll::Ready(Ok(is_more)) => is_more,
            Poll::Ready(Err(error)) => {
                // What the endpoint has said before that is still there to be read.
                self.write_fault = Some(error);
                self.core.stop_sending();
                false
            }
        }
    }

    fn write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let State {
            core,
            io,
            needs_flush,
            ..
        } = self;
        let Some(io) = io else {
            return Poll::Ready(Ok(false));
        };
        let mut budget = WRITE_MAX;
        loop {
            core.fill();
            let rest = core.out.get(core.written..).unwrap_or_default();
            if rest.is_empty() {
                break;
            }
            if budget == 0 {
                return Poll::Ready(Ok(true));
            }
            match Pin::new(&mut *io).poll_write(cx, rest) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(count)) => {
                    budget = budget.saturating_sub(count);
                    *needs_flush = true;
                    core.wrote(count);
                }
            }
        }
        if *needs_flush {
            std::task::ready!(Pin::new(io).poll_flush(cx))?;
            *needs_flush = false;
        }
        Poll::Ready(Ok(false))
    }

    /// Whether all is written and on its way.
    pub(super) fn is_flushed(&self) -> bool {
        self.core.unwritten() == 0 && !self.needs_flush
    }
}
