//! Drives one connection: the only task that reads it, writes it, and asks the handler.
//!
//! ```text
//! bytes read -> events -> futures that were woken -> content, frame by frame -> one write
//! ```
//! A turn takes what is there, bounded, and ends with one write of all that is to be said: answers
//! that are ready together share a TLS record and a system call. Streams have no task and no timer;
//! each has a waker ([`wakes`](super::wakes)). Where turns take long, since what is asked is made
//! here and not fetched, requests get tasks of their own for a while ([`HEAVY`]).
//!
//! At rest it holds no buffer. Bounds: [`READS`], [`FRAMES`] and [`CONTENT`] a turn, [`OUT`] not
//! written.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;
use tower::{Service as _, ServiceExt as _};

use super::core::{Core, Event, Limits};
use super::orders::{Order, Orders};
use super::upload::Upload;
use super::wakes::{Bell, ORDERS, Wakes};
use super::{date, head};
use crate::body::Body;
use crate::clock;
use crate::context::Connection;
use crate::http2::frames::{Fatal, Reason};
use crate::listener::Handler;
use crate::listener::hurry::Hurry;

/// Reads in one turn, each up to a TLS record: then what was asked gets its turn.
const READS: usize = 8;
/// Bytes that wait to be written before nothing more is read or made: four TLS records, and what a
/// client can make us hold that does not read.
const OUT: usize = 64 * 1024;
/// Bytes written in one turn: some hundred microseconds, then other connections get theirs.
const CONTENT: usize = 256 * 1024;
/// Frames asked for in one turn: a content that is always ready and gives nothing ends, too.
const FRAMES: usize = 1024;
/// A buffer that is larger is given back when it is empty.
const KEEP: usize = 1024;
/// A turn that takes longer makes what it is asked itself.
const LONG_TURN: Duration = Duration::from_millis(1);
/// For how long requests have tasks of their own then.
const HEAVY: Duration = Duration::from_secs(1);

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// How a connection ended, where it did not end in peace.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Ended {
    #[error(transparent)]
    Broken(#[from] io::Error),
    #[error("{0}")]
    Fatal(&'static str),
    #[error("the client is gone")]
    Silent,
    #[error("no request came in time")]
    Unasked,
    #[error("too many requests reset in a hurry")]
    Hasty,
    #[error("the process ends")]
    Cut,
}

impl From<Fatal> for Ended {
    fn from(fatal: Fatal) -> Self {
        Ended::Fatal(fatal.why)
    }
}

/// One stream's work.
struct Work {
    id: u32,
    /// Its answer has a head alone.
    is_head: bool,
    began: Instant,
    stage: Stage,
}

enum Stage {
    Answering(Answer),
    Sending {
        body: Body,
        /// Of the last frame, what had no room yet.
        rest: Bytes,
        /// Nothing comes after `rest`.
        is_last: bool,
        /// It stands in one of the lines.
        is_queued: bool,
    },
}

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// All that was there; whoever sends more wakes the task.
    All,
    /// There may be more.
    More,
    /// Not all, since too much waits to be written.
    NoRoom,
    /// The client has hung up.
    End,
}

/// What became of one step of a stream's content.
enum Step {
    Again,
    NoRoom,
    Waits,
    Over,
}

/// One connection.
pub(in super::super) struct Driver<'a, S> {
    io: S,
    core: Core,
    handler: Handler,
    facts: Arc<Connection>,
    orders: Orders<'a>,
    hurry: Hurry,
    wakes: Arc<Wakes>,
    orders_bell: Arc<Bell>,
    orders_waker: Waker,
    /// By place.
    work: Vec<Option<Work>>,
    wakers: Vec<(Arc<Bell>, Waker)>,
    /// Who was woken; empty between turns.
    ready: Vec<usize>,
    /// Who has content to send, in the order they take turns.
    sending: VecDeque<usize>,
    /// Who has, and no room for it.
    blocked: Vec<usize>,
    /// Of what is to be said, what was written.
    written: usize,
    heavy_until: Option<Instant>,
    /// The last write did not go through.
    is_held_up: bool,
    is_closing: bool,
}

impl<'a, S: AsyncBufRead + AsyncWrite + Unpin> Driver<'a, S> {
    pub(in super::super) fn new(
        io: S,
        limits: Limits,
        handler: Handler,
        facts: Arc<Connection>,
        orders: Orders<'a>,
        hurry: Hurry,
    ) -> Self {
        let wakes = Arc::<Wakes>::default();
        let orders_bell = Bell::new(ORDERS, &wakes);
        // For the first look at the orders.
        orders_bell.ring();
        let core = Core::new(limits, Arc::clone(&wakes), clock::now());
        Driver {
            io,
            core,
            handler,
            facts,
            orders,
            hurry,
            wakes,
            orders_waker: Waker::from(Arc::clone(&orders_bell)),
            orders_bell,
            work: Vec::new(),
            wakers: Vec::new(),
            ready: Vec::new(),
            sending: VecDeque::new(),
            blocked: Vec::new(),
            written: 0,
            heavy_until: None,
            is_held_up: false,
            is_closing: false,
        }
    }

    /// One turn.
    pub(in super::super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let mut ready = std::mem::take(&mut self.ready);
        self.wakes.take(&mut ready);
        let turn = self.turn(&mut ready, cx);
        ready.clear();
        self.ready = ready;
        match turn {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => {}
            Err(ended) => return Poll::Ready(Err(ended)),
        }
        if !self.wakes.sleep(cx.waker()) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Yes when the connection is over.
    fn turn(&mut self, ready: &mut Vec<usize>, cx: &mut Context<'_>) -> Result<bool, Ended> {
        let read = match self.read(cx) {
            Ok(Read::End) => return Ok(true),
            Ok(read) => read,
            Err(fatal) => return self.fail(fatal?, cx),
        };
        let is_busy = !self.core.events.is_empty() || !ready.is_empty();
        let began = is_busy.then(clock::now);
        if let Some(began) = began {
            self.begin(began)?;
            for place in ready.drain(..) {
                if place == ORDERS {
                    self.follow_orders()?;
                } else {
                    self.woken(place);
                }
            }
        }
        let is_full = self.say(cx)?;
        if let Some(began) = began {
            let now = clock::now();
            if now.duration_since(began) >= LONG_TURN {
                self.heavy_until = Some(now + HEAVY);
            }
        }
        if self.core.is_over() || self.is_closing {
            return self.close(cx);
        }
        // What was not read for want of room to answer has woken nobody.
        let is_heard = read == Read::NoRoom && self.has_room();
        if read == Read::More || is_full || is_heard {
            cx.waker().wake_by_ref();
        }
        Ok(false)
    }

    /// Little enough waits to be written.
    fn has_room(&self) -> bool {
        self.core.out.len() - self.written < OUT
    }

    /// Reads what is there.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Read, Result<Fatal, io::Error>> {
        for _ in 0..READS {
            if !self.has_room() {
                return Ok(Read::NoRoom); // whoever does not read is not listened to
            }
            let bytes = match Pin::new(&mut self.io).poll_fill_buf(cx) {
                Poll::Pending => return Ok(Read::All),
                Poll::Ready(read) => read.map_err(Err)?,
            };
            if bytes.is_empty() {
                return Ok(Read::End);
            }
            let now = clock::now();
            self.orders.heard(now);
            self.core.receive(bytes, now).map_err(Ok)?;
            let count = bytes.len();
            Pin::new(&mut self.io).consume(count);
        }
        Ok(Read::More)
    }

    /// The rules were broken: says so, as far as it can be said at once.
    fn fail(&mut self, fatal: Fatal, cx: &mut Context<'_>) -> Result<bool, Ended> {
        self.core.farewell(fatal.reason, fatal.why);
        if let Ok(Poll::Ready(())) = self.write(cx) {
            let _ = Pin::new(&mut self.io).poll_shutdown(cx);
        }
        if fatal.reason == Reason::ENHANCE_YOUR_CALM {
            tracing::warn!(peer = %self.facts.peer, "closed: {}", fatal.why);
        }
        Err(fatal.into())
    }

    /// Does what the frames that came ask for.
    fn begin(&mut self, now: Instant) -> Result<(), Ended> {
        let mut events = std::mem::take(&mut self.core.events);
        for event in events.drain(..) {
            match event {
                Event::Asked {
                    place,
                    id,
                    parts,
                    upload,
                } => {
                    self.orders.asked();
                    if self.core.is_open(place, id) {
                        self.ask(place, id, *parts, upload, now);
                    } else if self.hurry.observe_reset(now, now) {
                        return Err(Ended::Hasty);
                    }
                }
                Event::Gone { place, id } => {
                    let Some(slot) = self.work.get_mut(place) else {
                        continue;
                    };
                    match slot.take_if(|work| work.id == id) {
                        Some(Work {
                            stage: Stage::Answering(_),
                            began,
                            ..
                        }) if self.hurry.observe_reset(began, now) => return Err(Ended::Hasty),
                        Some(Work {
                            stage:
                                Stage::Sending {
                                    is_queued: true, ..
                                },
                            ..
                        }) => {
                            // Another may have its place soon, and a line has everybody once.
                            self.sending.retain(|queued| *queued != place);
                            self.blocked.retain(|queued| *queued != place);
                        }
                        _ => {}
                    }
                }
            }
        }
        if events.capacity() * size_of::<Event>() <= KEEP {
            self.core.events = events;
        }
        Ok(())
    }

    fn ask(&mut self, place: usize, id: u32, parts: Parts, upload: Option<Upload>, now: Instant) {
        let is_head = parts.method == Method::HEAD;
        let body = upload.map_or(Body::Empty, Body::boxed);
        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(Arc::clone(&self.facts));
        while self.wakers.len() <= place {
            let bell = self.core.bell(self.wakers.len());
            self.wakers.push((Arc::clone(&bell), Waker::from(bell)));
            self.work.push(None);
        }
        let is_heavy = self.heavy_until.is_some_and(|until| now < until);
        let is_ready = self
            .handler
            .poll_ready(&mut Context::from_waker(Waker::noop()))
            .is_ready();
        let answer: Answer = if is_heavy || !is_ready {
            let asked = self.handler.clone().oneshot(request);
            let task = AbortOnDropHandle::new(tokio::spawn(asked));
            Box::pin(async move {
                match task.await {
                    Ok(answer) => answer,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        // The runtime ends, and this task with it.
                        Err(_) => std::future::pending().await,
                    },
                }
            })
        } else {
            self.handler.call(request)
        };
        if let Some(slot) = self.work.get_mut(place) {
            *slot = Some(Work {
                id,
                is_head,
                began: now,
                stage: Stage::Answering(answer),
            });
        }
        self.go_on(place);
    }

    /// Somebody rang for a place: its future, or whoever reads its content.
    fn woken(&mut self, place: usize) {
        if let Some((bell, _)) = self.wakers.get(place) {
            bell.heard();
        }
        self.core.collect(place);
        self.go_on(place);
    }

    fn go_on(&mut self, place: usize) {
        let (Some(slot), Some((_, waker))) = (self.work.get_mut(place), self.wakers.get(place))
        else {
            return;
        };
        let Some(work) = slot else { return };
        match &mut work.stage {
            Stage::Answering(answer) => {
                let answered = answer.as_mut().poll(&mut Context::from_waker(waker));
                let Poll::Ready(Ok(response)) = answered else {
                    return;
                };
                let Some(body) = say_head(&mut self.core, place, work.is_head, response) else {
                    *slot = None;
                    return;
                };
                work.stage = Stage::Sending {
                    body,
                    rest: Bytes::new(),
                    is_last: false,
                    is_queued: true,
                };
                self.sending.push_back(place);
            }
            Stage::Sending { is_queued, .. } => {
                if !std::mem::replace(is_queued, true) {
                    self.sending.push_back(place);
                }
            }
        }
    }

    fn follow_orders(&mut self) -> Result<(), Ended> {
        self.orders_bell.heard();
        let cx = &mut Context::from_waker(&self.orders_waker);
        while let Poll::Ready(order) = self.orders.poll(cx) {
            match order? {
                Order::Leave => self.core.leave(),
                Order::Ping if self.is_closing => return Err(Ended::Silent),
                Order::Ping => self.core.ping(),
            }
        }
        Ok(())
    }

    /// Makes content and writes, as long as there is both something to say and somebody who takes
    /// it. Yes when there is more, and the turn is over.
    fn say(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        let (mut budget, mut frames) = (CONTENT, FRAMES);
        loop {
            if std::mem::take(&mut self.core.has_room) {
                self.sending.extend(self.blocked.drain(..));
            }
            while self.core.out.len() < OUT
                && frames > 0
                && let Some(place) = self.sending.pop_front()
            {
                self.content(place);
                frames -= 1;
            }
            let length = self.core.out.len();
            if self.write(cx)?.is_pending() || self.sending.is_empty() {
                return Ok(false);
            }
            if length >= budget || frames == 0 {
                return Ok(true);
            }
            budget -= length;
        }
    }

    /// One frame of a stream's content.
    fn content(&mut self, place: usize) {
        let (Some(slot), Some((_, waker))) = (self.work.get_mut(place), self.wakers.get(place))
        else {
            return;
        };
        let Some(Work {
            stage:
                Stage::Sending {
                    body,
                    rest,
                    is_last,
                    is_queued,
                },
            ..
        }) = slot
        else {
            return; // it is gone, or another has its place
        };
        *is_queued = false;
        let cx = &mut Context::from_waker(waker);
        match step(&mut self.core, place, (body, rest, is_last), cx) {
            Step::Again => {
                *is_queued = true;
                self.sending.push_back(place);
            }
            Step::NoRoom => {
                *is_queued = true;
                self.blocked.push(place);
            }
            Step::Waits => {}
            Step::Over => *slot = None,
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, io::Error> {
        if self.core.out.is_empty() {
            return Ok(Poll::Ready(()));
        }
        while let Some(rest) = self.core.out.get(self.written..)
            && !rest.is_empty()
        {
            match Pin::new(&mut self.io).poll_write(cx, rest) {
                Poll::Pending => {
                    self.is_held_up = true;
                    self.forget_written();
                    return Ok(Poll::Pending);
                }
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => {
                    self.written += count;
                    // A slow reader that reads is alive, though its word of that is behind.
                    if std::mem::take(&mut self.is_held_up) {
                        self.orders.heard(clock::now());
                    }
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(flushed) => flushed?,
        }
        self.written = 0;
        if self.core.out.capacity() > KEEP {
            self.core.out = Vec::new();
        } else {
            self.core.out.clear();
        }
        Ok(Poll::Ready(()))
    }

    /// What was written goes as soon as it is most of what is kept. Else a client that always leaves
    /// a little unread would have us keep all it was ever told.
    fn forget_written(&mut self) {
        if self.written > self.core.out.len() / 2 {
            self.core.out.drain(..self.written);
            self.written = 0;
        }
    }

    /// Bytes that are kept for the client.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.core.out.len()
    }

    /// Ends in peace, once all is written.
    fn close(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        self.is_closing = true;
        if self.write(cx)?.is_pending() {
            return Ok(false);
        }
        match Pin::new(&mut self.io).poll_shutdown(cx) {
            Poll::Pending => Ok(false),
            Poll::Ready(_) => Ok(true),
        }
    }
}

/// Begins an answer, and says it wholly where it has no content; else returns that.
fn say_head(
    core: &mut Core,
    place: usize,
    is_head: bool,
    response: Response<Body>,
) -> Option<Body> {
    let (mut parts, body) = response.into_parts();
    let status = parts.status;
    if status.is_informational() {
        // Nothing may come first but what is asked for here, and there is no changing of protocols.
        core.abort(place, Reason::INTERNAL_ERROR);
        return None;
    }
    head::strip(&mut parts.headers);
    if status == StatusCode::NO_CONTENT {
        parts.headers.remove(CONTENT_LENGTH);
    }
    let is_bare = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let is_whole = body.is_end_stream();
    let length = body.size_hint().exact();
    let length = length.filter(|_| !is_whole && !is_bare);
    let is_last = is_whole || is_bare || is_head;
    let lines = &parts.headers;
    core.head(place, status, lines, length, date::now, is_last);
    (!is_last).then_some(body)
}

/// One frame of content: that which had no room, or a new one.
fn step(
    core: &mut Core,
    place: usize,
    (body, rest, is_last): (&mut Body, &mut Bytes, &mut bool),
    cx: &mut Context<'_>,
) -> Step {
    if rest.is_empty() {
        let frame = match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Pending => return Step::Waits,
            Poll::Ready(None) => {
                core.data(place, rest, true);
                return Step::Over;
            }
            // What an upstream's reset said is not said on: "refused" would promise that nothing was
            // done, behind half an answer.
            Poll::Ready(Some(Err(_))) => {
                core.abort(place, Reason::INTERNAL_ERROR);
                return Step::Over;
            }
            Poll::Ready(Some(Ok(frame))) => frame,
        };
        match frame.into_data() {
            Ok(data) => *rest = data,
            Err(frame) => {
                if let Ok(mut lines) = frame.into_trailers() {
                    head::strip(&mut lines);
                    core.trailers(place, &lines);
                }
                return Step::Over;
            }
        }
        *is_last = body.is_end_stream();
    }
    core.data(place, rest, *is_last);
    match (rest.is_empty(), *is_last) {
        (true, true) => Step::Over,
        (false, _) if core.room(place) == 0 => Step::NoRoom,
        _ => Step::Again,
    }
}
