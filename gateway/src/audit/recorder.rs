//! The bounded hand-over from requests to the writer thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::event::{AdminChange, Event};

/// Events waiting for the writer: at about half a kilobyte each this is 16 MiB at the most, and at
/// 10,000 requests a second three seconds of a disk that does not answer.
const QUEUE_MAX: usize = 32_768;

/// Bytes of events waiting for the writer: a caller chooses how long a URI is, and 64 KiB each
/// would be gigabytes in a full queue.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// What an event takes beside its texts.
const EVENT_BYTES: usize = 512;

/// How long the writer lets events gather once one has come: a waking a request would cost more
/// than writing its line, and a process that is killed has lost no more than this.
const GATHER: Duration = Duration::from_millis(100);

/// Events for which it waits no longer: some 300 KiB, which a core's cache still has.
const GATHERED_MAX: usize = 512;

/// Where events go. Called from one thread only.
pub trait Sink: Send {
    /// Takes a finished request.
    fn event(&mut self, event: &Event);
    /// Takes a change by an operator.
    fn admin(&mut self, change: &AdminChange);
    /// Makes what was taken visible to others.
    fn flush(&mut self);
    /// Events it had to give up since it was last asked.
    fn take_lost(&mut self) -> u64 {
        0
    }
}

enum Message {
    Event(Box<Event>),
    Admin(Box<AdminChange>),
    Flush(SyncSender<()>),
}

/// A handle to the writer; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    /// Tells the writer when the last handle is gone.
    _open: Arc<Open>,
}

/// What handles and writer share.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Rung when the queue is no longer empty, and when the writer shall not let it grow.
    bell: Condvar,
    dropped: AtomicU64,
    /// Messages handed over and not yet written, those the writer has taken among them.
    pending: AtomicUsize,
    queued_bytes: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    messages: Vec<Message>,
    is_hurried: bool,
    is_closed: bool,
}

struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.bell.notify_one();
    }
}

impl Recorder {
    /// Hands over a finished request; never waits.
    pub fn event(&self, event: impl Into<Box<Event>>) {
        let event = event.into();
        let bytes = size(&event);
        let before = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > QUEUE_BYTES_MAX || !self.send(Message::Event(event)) {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.shared.lose(1, "the writer cannot keep up");
        }
    }

    /// Hands over a change by an operator; never waits.
    pub fn admin(&self, change: AdminChange) {
        if !self.send(Message::Admin(Box::new(change))) {
            self.shared.lose(1, "the writer cannot keep up");
        }
    }

    /// Events that were lost: the queue was full, or a file could not be written.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything handed over so far is written; for the end of the process and tests.
    /// Blocks, up to `limit`.
    pub fn flush(&self, limit: Duration) {
        let (done, wait) = sync_channel(1);
        {
            let mut queue = self.shared.queue.lock();
            queue.messages.push(Message::Flush(done));
            queue.is_hurried = true;
        }
        self.shared.bell.notify_one();
        // A writer that does not answer in time has been given its chance.
        let _ = wait.recv_timeout(limit);
    }

    fn send(&self, message: Message) -> bool {
        let mut queue = self.shared.queue.lock();
        // Under the lock, so that no two count as the last.
        if self.shared.pending.load(Ordering::Relaxed) >= QUEUE_MAX {
            return false;
        }
        self.shared.pending.fetch_add(1, Ordering::Relaxed);
        queue.messages.push(message);
        let length = queue.messages.len();
        drop(queue);
        if length == 1 || length == GATHERED_MAX {
            self.shared.bell.notify_one();
        }
        true
    }
}

impl Shared {
    fn lose(&self, count: u64, why: &str) {
        let before = self.dropped.fetch_add(count, Ordering::Relaxed);
        let lost = before + count;
        // At each doubling: a flood of losses must not be one of lines.
        if before.checked_ilog2() != lost.checked_ilog2() {
            tracing::error!(lost, "audit events are lost: {why}");
        }
    }
}

/// About what a waiting event takes.
fn size(event: &Event) -> usize {
    let info = event.info.as_ref().map(|info| info.uri().as_str().len());
    let raw = event
        .raw
        .as_deref()
        .map(|(method, uri)| method.len() + uri.len());
    let agent = event.user_agent.as_ref().map(http::HeaderValue::len);
    EVENT_BYTES + info.unwrap_or(0) + raw.unwrap_or(0) + agent.unwrap_or(0)
}

/// Starts the writer thread; it ends when the last handle is gone.
///
/// # Errors
/// When the thread cannot be started.
pub fn spawn(sinks: Vec<Box<dyn Sink>>) -> std::io::Result<Recorder> {
    let shared = Arc::new(Shared::default());
    let writer = Writer {
        shared: Arc::clone(&shared),
        sinks,
    };
    std::thread::Builder::new()
        .name("audit".to_owned())
        .spawn(move || writer.run())?;
    Ok(Recorder {
        _open: Arc::new(Open(Arc::clone(&shared))),
        shared,
    })
}

struct Writer {
    shared: Arc<Shared>,
    sinks: Vec<Box<dyn Sink>>,
}

impl Writer {
    fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            self.shared.take(&mut batch);
            if batch.is_empty() {
                return;
            }
            for message in batch.drain(..) {
                self.write(message);
            }
            self.flush();
            let lost: u64 = self.sinks.iter_mut().map(|sink| sink.take_lost()).sum();
            if lost > 0 {
                self.shared.lose(lost, "they cannot be written");
            }
        }
    }

    fn write(&mut self, message: Message) {
        match message {
            Message::Event(event) => {
                self.sinks.iter_mut().for_each(|sink| sink.event(&event));
                self.shared
                    .queued_bytes
                    .fetch_sub(size(&event), Ordering::Relaxed);
            }
            Message::Admin(change) => {
                self.sinks.iter_mut().for_each(|sink| sink.admin(&change));
            }
            Message::Flush(done) => {
                self.flush();
                // Whoever asked may have stopped waiting.
                let _ = done.try_send(());
                return;
            }
        }
        self.shared.pending.fetch_sub(1, Ordering::Relaxed);
    }

    fn flush(&mut self) {
        self.sinks.iter_mut().for_each(|sink| sink.flush());
    }
}

impl Shared {
    /// Waits for events, and takes what has gathered; nothing when no more will come.
    fn take(&self, batch: &mut Vec<Message>) {
        let mut queue = self.queue.lock();
        let is_idle = |queue: &mut Queue| queue.messages.is_empty() && !queue.is_closed;
        self.bell.wait_while(&mut queue, is_idle);
        let may_gather = |queue: &mut Queue| {
            queue.messages.len() < GATHERED_MAX && !queue.is_hurried && !queue.is_closed
        };
        self.bell.wait_while_for(&mut queue, may_gather, GATHER);
        std::mem::swap(batch, &mut queue.messages);
        queue.is_hurried = false;
    }
}
