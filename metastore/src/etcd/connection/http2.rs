//! The task of one HTTP/2 connection: everything that happens on it happens in one loop.
//!
//! ```text
//! answers of the store -> requests read -> hot calls answered or queued -> one write
//! ```
//!
//! A turn takes what is there, bounded, and ends with one hand-over to the sequencer and one write
//! to the socket. Hot calls have no task and no timer of their own; writes on their way share one
//! alarm, which works since all have the same patience.
//!
//! A lone write costs a sync and as little else as can be: the sequencer's thread, with nothing else
//! to do, passes its answer to the socket itself ([`Driven`]), and the acknowledgement of a ping that
//! came with the request waits for that answer, to go out in the same write ([`Line::is_lone_pong`]).

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use foldhash::fast::FixedState;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::RecvStream;
use h2::server::{Builder, Connection, SendResponse};
use http::Request;
use http::request::Parts;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::bridge::{self, Received};
use super::hush::Hush;
use super::keepalive::Keepalive;
use super::line::Line;
use super::reading::{End, Reading, Share, Slow};
use super::reply::{self, Caller};
use super::unary::{self, Asked};
use super::{HANDSHAKE_TIMEOUT, Site};
use crate::etcd::access::ReadOnly;
use crate::etcd::admission::Budget;
use crate::etcd::errors;
use crate::etcd::gate::Entry;
use crate::etcd::kv::KvService;
use crate::etcd::shared::Shared;
use crate::sequencer::inbox::Message;
use crate::sequencer::mailbox::{Courier, Letter, Mailbox};
use crate::sequencer::request::Said;

/// A request fits a stream's window, so that a writer never waits for a round trip.
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// Eight requests at full size on one connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Bytes held for a stream whose client does not read; a thousand such watches hold 64 MiB.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Clients send a path, a token and little else.
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// Streams a client may open and reset before they are looked at: deadlines cut calls off in
/// bursts, so more than the library's twenty, and still a bound against floods.
const RESET_STREAMS_MAX: usize = 1024;
/// How long a ping waits for its answer while a write is on its way: more than a quick sync, and
/// nothing to a client that asks whether we are alive.
const PONG_PATIENCE: Duration = Duration::from_millis(10);
/// Requests taken in one turn: some hundred microseconds, then other connections get theirs.
const TURN_REQUESTS: usize = 128;

/// Serves HTTP/2 to the end of the connection; `ahead` was read of it already.
pub(super) async fn serve<S>(io: S, ahead: BytesMut, site: Site) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (http, line) = Line::new(io, ahead);
    let shaken = tokio::time::timeout(
        HANDSHAKE_TIMEOUT,
        builder(site.options.streams_max).handshake(http),
    )
    .await;
    let Ok(http) = shaken else {
        return Ok(());
    };
    let http = http.map_err(|error| error.to_string())?;
    let mailbox = Arc::default();
    let driven = Arc::new(Driven {
        task: Mutex::new(Task::new(http, line, site, Arc::clone(&mailbox))),
        runtime: Handle::current(),
    });
    let courier: Arc<dyn Courier> = Arc::clone(&driven) as _;
    mailbox.brought_by(Arc::downgrade(&courier));
    drop(courier);
    poll_fn(|cx| driven.task.lock().poll(cx)).await
}

/// A connection that is driven by its task, and for the length of one answer by the thread that has
/// it.
struct Driven<S> {
    task: Mutex<Task<S>>,
    /// Of the task: what is begun elsewhere runs there too.
    runtime: Handle,
}

impl<S> Courier for Driven<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    fn bring(&self) -> bool {
        let Some(mut task) = self.task.try_lock() else {
            return false;
        };
        let _runtime = self.runtime.enter();
        task.bring();
        true
    }
}

fn builder(streams_max: u32) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(streams_max)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX);
    builder
}

/// A write that the store has not answered yet.
struct Waiting {
    caller: Caller,
    asked: Asked,
}

/// The state of a connection.
struct Task<S> {
    http: Connection<Line<S>, Bytes>,
    line: Line<S>,
    site: Site,
    kv: KvService,
    keepalive: Option<Keepalive>,
    /// Told once.
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// Calls whose bodies are on their way.
    slow: FuturesUnordered<Slow>,
    /// What bodies may hold that are not complete.
    bodies: Arc<Budget>,
    mailbox: Arc<Mailbox>,
    letters: Vec<Letter>,
    /// Writes on their way, by ticket.
    waiting: HashMap<u64, Waiting, FixedState>,
    ticket: u64,
    /// When each ticket's patience ends, oldest first; answered ones are passed over.
    deadlines: VecDeque<(Instant, u64)>,
    alarm: Pin<Box<Sleep>>,
    /// The alarm is set for the front of the deadlines.
    is_alarmed: bool,
    /// Gathered in this turn for the sequencer.
    outgoing: Vec<Message>,
    /// When this turn was, read once and only where a write asks.
    now: Option<Instant>,
    /// Until when a pong may wait for an answer, and whether one does.
    pong: Pin<Box<Sleep>>,
    is_pong_held: bool,
    /// Wakes the task; what HTTP/2 has instead.
    waker: Waker,
    hush: Arc<Hush>,
    http_waker: Waker,
}

impl<S> Task<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    fn new(
        mut http: Connection<Line<S>, Bytes>,
        line: Line<S>,
        site: Site,
        mailbox: Arc<Mailbox>,
    ) -> Self {
        let timeout = site.options.keepalive_timeout;
        let asked = site.options.keepalive_interval.zip(http.ping_pong());
        let keepalive = asked.map(|(interval, pings)| Keepalive::new(pings, interval, timeout));
        let stopping = site.shared.stopping.clone().cancelled_owned();
        let hush = Arc::<Hush>::default();
        Task {
            http,
            line,
            kv: KvService(Arc::clone(&site.shared)),
            site,
            keepalive,
            stopping: Some(Box::pin(stopping)),
            slow: FuturesUnordered::new(),
            bodies: Arc::new(Budget::of_connection()),
            mailbox,
            letters: Vec::new(),
            waiting: HashMap::default(),
            ticket: 0,
            deadlines: VecDeque::new(),
            alarm: Box::pin(tokio::time::sleep(Duration::ZERO)),
            is_alarmed: false,
            outgoing: Vec::new(),
            now: None,
            pong: Box::pin(tokio::time::sleep(Duration::ZERO)),
            is_pong_held: false,
            waker: Waker::noop().clone(),
            http_waker: Waker::from(Arc::clone(&hush)),
            hush,
        }
    }

    /// Passes the answers on that are there, on a thread that is not the task's. All else is left
    /// to the task, which is woken when there is something.
    fn bring(&mut self) {
        let waker = self.waker.clone();
        let cx = &mut Context::from_waker(&waker);
        let heard = self.line.heard();
        self.hush.register(&waker);
        self.deliver(cx);
        let http = &mut Context::from_waker(&self.http_waker);
        let is_well = matches!(self.http.poll_closed(http), Poll::Pending)
            && !matches!(self.line.poll_drain(cx), Poll::Ready(Err(_)));
        self.is_pong_held = false;
        if !is_well || self.line.heard() != heard {
            waker.wake();
        }
    }

    /// One turn.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        self.now = None;
        self.waker.clone_from(cx.waker());
        self.hush.register(cx.waker());
        if let Some(stopping) = &mut self.stopping
            && stopping.as_mut().poll(cx).is_ready()
        {
            self.stopping = None;
            self.http.graceful_shutdown();
        }
        self.deliver(cx);
        let is_over = self.accept(cx).map_err(|error| error.to_string())?;
        while let Poll::Ready(Some(read)) = self.slow.poll_next_unpin(cx) {
            if let Some((reading, end)) = read {
                self.ended(reading, end);
            }
        }
        if !self.outgoing.is_empty() {
            self.site.shared.store.send_all(&mut self.outgoing);
        }
        self.expire(cx);
        if is_over {
            return Poll::Ready(Ok(()));
        }
        let heard = self.line.heard();
        if let Some(keepalive) = &mut self.keepalive
            && keepalive.poll(cx, heard).is_ready()
        {
            tracing::debug!("an etcd client is gone");
            return Poll::Ready(Ok(()));
        }
        if self.holds_pong(cx) {
            return Poll::Pending;
        }
        match self.line.poll_drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.to_string())),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    /// Whether all there is to write is a pong that had better go with an answer.
    fn holds_pong(&mut self, cx: &mut Context<'_>) -> bool {
        if self.waiting.is_empty() || !self.line.is_lone_pong() {
            self.is_pong_held = false;
            return false;
        }
        if !self.is_pong_held {
            self.is_pong_held = true;
            self.pong.as_mut().reset(Instant::now() + PONG_PATIENCE);
        }
        let is_held = self.pong.as_mut().poll(cx).is_pending();
        self.is_pong_held = is_held;
        is_held
    }

    /// Takes the requests that are there; answers whether the connection is over.
    fn accept(&mut self, cx: &mut Context<'_>) -> Result<bool, h2::Error> {
        for _ in 0..TURN_REQUESTS {
            let http = &mut Context::from_waker(&self.http_waker);
            match self.http.poll_accept(http) {
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.hush.be_quiet();
                    self.request(request, respond, cx);
                    self.hush.listen();
                }
                Poll::Ready(Some(Err(error))) => return Err(error),
                Poll::Ready(None) => return Ok(true),
                Poll::Pending => return Ok(false),
            }
        }
        cx.waker().wake_by_ref();
        Ok(false)
    }

    fn request(
        &mut self,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        cx: &mut Context<'_>,
    ) {
        let (mut parts, body) = request.into_parts();
        let entry = self.site.visit.enter(&mut parts);
        let mut caller = Caller {
            respond,
            counted: None,
        };
        match entry {
            Entry::Plain => {}
            Entry::Call(counted) => caller.counted = Some(counted),
            Entry::Refused(status) => return reply::refuse(&mut caller, status),
        }
        // Whoever may only read has each transaction looked at; that is done behind the router.
        let is_marked = parts.extensions.get::<ReadOnly>().is_some();
        let Some(call) = unary::of(&parts).filter(|_| !is_marked) else {
            self.pass_on(parts, Bytes::new(), body, caller);
            return;
        };
        let bytes_max = self.site.shared.message_bytes_max();
        let mut reading = Reading::new(call, parts, body, caller, bytes_max);
        match reading.poll(cx) {
            Poll::Ready(end) => self.ended(reading, end),
            Poll::Pending => {
                let patience = self.site.shared.write_timeout;
                self.slow.push(Slow::new(reading, self.share(), patience));
            }
        }
    }

    fn share(&self) -> Share {
        Share::new(&self.bodies, &self.site.shared)
    }

    fn pass_on(&self, parts: Parts, ahead: Bytes, body: RecvStream, caller: Caller) {
        let body = Received::new(ahead, body, self.share());
        let routes = self.site.routes.clone();
        let shared = Arc::clone(&self.site.shared);
        tokio::spawn(bridge::pass(shared, routes, parts, body, caller));
    }

    /// A hot call has been read.
    fn ended(&mut self, mut reading: Reading, end: End) {
        let refusal = match end {
            End::Broken => return,
            End::NoRoom => Some(errors::too_many_requests()),
            End::Late => Some(errors::timed_out()),
            End::TooLong(length) => {
                let most = self.site.shared.message_bytes_max();
                Some(errors::message_too_large(length, most))
            }
            End::Whole | End::TooMuch => None,
        };
        if let Some(status) = refusal {
            return reply::refuse(&mut reading.caller, status);
        }
        let body = reading.take();
        let step = reply::unframed(&body)
            .filter(|_| end == End::Whole)
            .and_then(|message| unary::begin(&self.kv, reading.call, message));
        match step {
            // The library says what is wrong with it.
            None => self.pass_on(reading.parts, body, reading.body, reading.caller),
            Some(unary::Step::Answer(frame)) => reply::send(&mut reading.caller, frame),
            Some(unary::Step::Refuse(status)) => reply::refuse(&mut reading.caller, status),
            Some(unary::Step::Later(answer)) => {
                unary::spawn(Arc::clone(&self.site.shared), answer, reading.caller);
            }
            Some(unary::Step::Write(txn, asked)) => self.write(txn, asked, reading.caller),
        }
    }

    fn write(&mut self, txn: crate::txn::Txn, asked: Asked, mut caller: Caller) {
        let shared = &self.site.shared;
        self.ticket += 1;
        match shared.store.prepare(txn, &self.mailbox, self.ticket) {
            Err(error) => reply::refuse(&mut caller, errors::status(&error)),
            Ok(crate::store::Prepared::Answered(answer)) => {
                answer_with(shared, unary::written(&self.kv, answer, &asked), caller);
            }
            Ok(crate::store::Prepared::Later(txn)) => {
                let answer = unary::write_later(Arc::clone(shared), txn, asked);
                unary::spawn(Arc::clone(shared), answer, caller);
            }
            Ok(crate::store::Prepared::Message(message)) => {
                self.outgoing.push(message);
                self.waiting.insert(self.ticket, Waiting { caller, asked });
                let deadline = *self.now.get_or_insert_with(Instant::now) + shared.write_timeout;
                self.deadlines.push_back((deadline, self.ticket));
            }
        }
    }

    /// Passes on the answers that came; HTTP/2 is polled next.
    fn deliver(&mut self, cx: &mut Context<'_>) {
        self.mailbox.take(cx, &mut self.letters);
        self.hush.be_quiet();
        for letter in self.letters.drain(..) {
            let Some(mut waiting) = self.waiting.remove(&letter.ticket) else {
                // Its caller was told already that nobody knows.
                continue;
            };
            match letter.outcome {
                Ok(Said::Answer(answer)) => {
                    let answer = unary::written(&self.kv, answer, &waiting.asked);
                    answer_with(&self.site.shared, answer, waiting.caller);
                }
                Ok(Said::Cold(txn, _)) => {
                    let shared = &self.site.shared;
                    let later = unary::write_later(Arc::clone(shared), txn, waiting.asked);
                    unary::spawn(Arc::clone(shared), later, waiting.caller);
                }
                Err(error) => reply::refuse(&mut waiting.caller, errors::status(&error)),
            }
        }
        self.hush.listen();
    }

    /// Tells those who waited too long that the outcome is unknown.
    fn expire(&mut self, cx: &mut Context<'_>) {
        loop {
            while let Some((_, ticket)) = self.deadlines.front()
                && !self.waiting.contains_key(ticket)
            {
                self.deadlines.pop_front();
            }
            let Some((at, ticket)) = self.deadlines.front().copied() else {
                return;
            };
            if !self.is_alarmed {
                self.alarm.as_mut().reset(at);
                self.is_alarmed = true;
            }
            if self.alarm.as_mut().poll(cx).is_pending() {
                return;
            }
            self.is_alarmed = false;
            if at <= Instant::now()
                && let Some(mut waiting) = self.waiting.remove(&ticket)
            {
                reply::refuse(&mut waiting.caller, errors::timed_out());
            }
        }
    }
}

/// Gives an answer that is there, or has it given once there is room.
fn answer_with(shared: &Arc<Shared>, answer: unary::Answer, mut caller: Caller) {
    match answer {
        unary::Answer::Frame(frame) => reply::send(&mut caller, frame),
        unary::Answer::Later(answer) => unary::spawn(Arc::clone(shared), answer, caller),
    }
}
