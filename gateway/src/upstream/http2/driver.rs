//! Drives one connection to an endpoint: reads it, writes what waits, and asks a silent endpoint
//! whether it is there.
//!
//! A turn writes first: what waits is what the endpoint could be at work on. Then it reads what is
//! there, bounded by [`READ_MAX`], and wakes those whose answers came.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncBufRead as _, AsyncWrite as _};
use tokio::time::{Instant, Sleep};

use super::shared::{Shared, State};
use crate::http2::frames::{Fatal, Reason};

/// In which a half-open connection has to be noticed.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes read in one turn, then others get theirs.
const READ_MAX: usize = 256 * 1024;

/// Why a connection ended otherwise than in order.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    /// Neither an answer nor a pong.
    #[error("nothing was heard of the endpoint any more")]
    Silent,
    /// It broke.
    #[error(transparent)]
    Broken(#[from] io::Error),
    /// The endpoint hung up on requests that wait for their answers.
    #[error("the endpoint closed it")]
    Closed,
    /// The endpoint broke the rules.
    #[error("{0}")]
    Fatal(&'static str),
}

/// What reads and writes; it has to be polled for anything to happen.
pub(crate) struct Http2Driver {
    shared: Arc<Shared>,
    silence: Silence,
    look: Pin<Box<Sleep>>,
    woken: Vec<Waker>,
    streams_max: usize,
    is_over: bool,
    is_closing: bool,
}

impl Http2Driver {
    pub(super) fn new(shared: Arc<Shared>, now: Instant) -> Self {
        Http2Driver {
            shared,
            silence: Silence::new(now),
            look: Box::pin(tokio::time::sleep_until(now)),
            woken: Vec::new(),
            streams_max: 0,
            is_over: false,
            is_closing: false,
        }
    }

    /// As many streams as the endpoint takes at once; zero until it has said so.
    pub(in crate::upstream) fn streams_max(&self) -> usize {
        self.streams_max
    }

    /// Whether it takes no more requests.
    pub(in crate::upstream) fn is_over(&self) -> bool {
        self.is_over
    }

    fn turn(&mut self, state: &mut State, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        state.attend(cx.waker());
        let mut is_more = state.write(cx);
        let heard = match read(state, cx) {
            Ok(heard) => heard,
            Err(Ok(fatal)) => return Poll::Ready(Err(fail(state, fatal, cx))),
            Err(Err(ended)) => {
                let is_orderly = matches!(ended, Ended::Closed) && state.core.streams.open() == 0;
                let ended = state.write_fault.take().map_or(ended, Ended::Broken);
                return Poll::Ready(if is_orderly { Ok(()) } else { Err(ended) });
            }
        };
        is_more |= heard.is_more;
        self.look_for_overdue(state, cx);
        match self.silence.poll(heard.at, cx) {
            Poll::Pending => {}
            Poll::Ready(Silent::Ask) => state.core.ping(),
            Poll::Ready(Silent::Gone) => return Poll::Ready(Err(Ended::Silent)),
        }
        if state.is_done() && !std::mem::replace(&mut self.is_closing, true) {
            state.core.farewell(Reason::NO_ERROR, "");
        }
        is_more |= state.write(cx);
        if self.is_closing && (state.is_flushed() || state.write_fault.is_some()) {
            let closed = state.io.as_mut().map(|io| Pin::new(io).poll_shutdown(cx));
            if !matches!(closed, Some(Poll::Pending)) {
                return Poll::Ready(Ok(()));
            }
        }
        if is_more {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Gives up requests whose time is over.
    fn look_for_overdue(&mut self, state: &mut State, cx: &mut Context<'_>) {
        let is_early = std::mem::take(&mut state.is_due_earlier);
        if !is_early && state.looks_at.is_none() {
            return;
        }
        loop {
            if let Some(at) = state.looks_at {
                if self.look.deadline() != at {
                    self.look.as_mut().reset(at);
                }
                if self.look.as_mut().poll(cx).is_pending() {
                    return;
                }
            }
            state.looks_at = state.core.expire(Instant::now());
            if state.looks_at.is_none() {
                return;
            }
        }
    }
}

/// What one turn has read.
struct Heard {
    at: Option<Instant>,
    is_more: bool,
}

fn read(state: &mut State, cx: &mut Context<'_>) -> Result<Heard, Result<Fatal, Ended>> {
    let State { core, io, .. } = state;
    let mut heard = Heard {
        at: None,
        is_more: false,
    };
    let Some(io) = io else {
        return Err(Err(Ended::Closed));
    };
    let mut budget = READ_MAX;
    loop {
        if budget == 0 {
            heard.is_more = true;
            return Ok(heard);
        }
        let bytes = match Pin::new(&mut *io).poll_fill_buf(cx) {
            Poll::Pending => return Ok(heard),
            Poll::Ready(Err(error)) => return Err(Err(Ended::Broken(error))),
            Poll::Ready(Ok([])) => return Err(Err(Ended::Closed)),
            Poll::Ready(Ok(bytes)) => bytes,
        };
        let now = *heard.at.get_or_insert_with(Instant::now);
        core.receive(bytes, now).map_err(Ok)?;
        let count = bytes.len();
        budget = budget.saturating_sub(count);
        Pin::new(&mut *io).consume(count);
    }
}

/// The rules were broken: says so, as far as it can be said at once.
fn fail(state: &mut State, fatal: Fatal, cx: &mut Context<'_>) -> Ended {
    state.core.farewell(fatal.reason, fatal.why);
    state.write(cx);
    if let Some(io) = &mut state.io {
        let _ = Pin::new(io).poll_shutdown(cx);
    }
    Ended::Fatal(fatal.why)
}

impl Future for Http2Driver {
    type Output = Result<(), Ended>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let shared = Arc::clone(&this.shared);
        let mut woken = std::mem::take(&mut this.woken);
        let mut io = None;
        let turn = {
            let mut state = shared.state.lock();
            let turn = this.turn(&mut state, cx);
            if let Poll::Ready(ended) = &turn {
                io = state.io.take();
                let why = ended.as_ref().err().map(ToString::to_string);
                state.core.end(why.as_deref().unwrap_or("it was closed"));
            }
            this.streams_max = state.core.streams_max;
            this.is_over = state.core.is_closed();
            std::mem::swap(&mut state.core.wakes, &mut woken);
            turn
        };
        drop(io);
        for waker in woken.drain(..) {
            waker.wake();
        }
        this.woken = woken;
        turn
    }
}

impl Drop for Http2Driver {
    /// Nobody is left waiting, should the task have ended before the connection.
    fn drop(&mut self) {
        let io = self.shared.change(|state| {
            if state.io.is_some() {
                state.core.end("it was given up");
            }
            state.io.take()
        });
        drop(io);
    }
}

/// Notices an endpoint that says nothing any more.
struct Silence {
    last_heard: Instant,
    asked: Option<Instant>,
    alarm: Pin<Box<Sleep>>,
}

/// What to do about it.
enum Silent {
    Ask,
    Gone,
}

impl Silence {
    fn new(now: Instant) -> Self {
        Silence {
            last_heard: now,
            asked: None,
            alarm: Box::pin(tokio::time::sleep_until(now + PING_INTERVAL)),
        }
    }

    fn poll(&mut self, heard: Option<Instant>, cx: &mut Context<'_>) -> Poll<Silent> {
        if let Some(now) = heard {
            self.last_heard = now;
        }
        loop {
            if self.asked.is_some_and(|asked| self.last_heard >= asked) {
                self.asked = None;
                self.alarm.as_mut().reset(self.last_heard + PING_INTERVAL);
            }
            if self.alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if self.asked.is_some() {
                return Poll::Ready(Silent::Gone);
            }
            let now = Instant::now();
            let due = self.last_heard + PING_INTERVAL;
            if due > now {
                self.alarm.as_mut().reset(due);
                continue;
            }
            self.asked = Some(now);
            self.alarm.as_mut().reset(now + PING_TIMEOUT);
            // The alarm has to be looked at again, to call when it is time.
            let _ = self.alarm.as_mut().poll(cx);
            return Poll::Ready(Silent::Ask);
        }
    }
}
