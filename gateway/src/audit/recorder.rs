//! The bounded hand-over from requests to the writer thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use super::event::{AdminChange, Event};
use crate::clock;

/// Events waiting for the writer: at about half a kilobyte each this is 16 MiB at the most, and at
/// 10,000 requests a second three seconds of a disk that does not answer.
const QUEUE_MAX: usize = 32_768;

/// Bytes of events waiting for the writer: a caller chooses how long a URI is, and 64 KiB each
/// would be gigabytes in a full queue.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// What an event takes beside its texts.
const EVENT_BYTES: usize = 512;

/// How often the end looks for room in a full queue.
const FLUSH_TICK: Duration = Duration::from_millis(10);

/// How long a written line may wait in the writer's buffer when nothing else comes.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

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
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
}

/// What handles and writer both count.
#[derive(Default)]
struct Shared {
    dropped: AtomicU64,
    queued_bytes: AtomicUsize,
}

impl Recorder {
    /// Hands over a finished request; never waits.
    pub fn event(&self, event: Event) {
        let bytes = size(&event);
        let before = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > QUEUE_BYTES_MAX || !self.send(Message::Event(Box::new(event))) {
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
        let deadline = clock::now() + limit;
        let left = || deadline.saturating_duration_since(clock::now());
        let (done, wait) = sync_channel(1);
        let mut message = Message::Flush(done);
        while let Err(refused) = self.queue.try_send(message) {
            let TrySendError::Full(again) = refused else {
                return;
            };
            if left().is_zero() {
                return;
            }
            message = again;
            std::thread::sleep(FLUSH_TICK);
        }
        // A writer that does not answer in time has been given its chance.
        let _ = wait.recv_timeout(left());
    }

    fn send(&self, message: Message) -> bool {
        self.queue.try_send(message).is_ok()
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
    let (queue, messages) = sync_channel(QUEUE_MAX);
    let shared = Arc::new(Shared::default());
    std::thread::Builder::new()
        .name("audit".to_owned())
        .spawn({
            let shared = Arc::clone(&shared);
            move || write(&messages, sinks, &shared)
        })?;
    Ok(Recorder { queue, shared })
}

fn write(messages: &Receiver<Message>, mut sinks: Vec<Box<dyn Sink>>, shared: &Shared) {
    let mut unflushed = false;
    loop {
        let lost: u64 = sinks.iter_mut().map(|sink| sink.take_lost()).sum();
        if lost > 0 {
            shared.lose(lost, "they cannot be written");
        }
        match messages.recv_timeout(FLUSH_AFTER) {
            Ok(Message::Event(event)) => {
                sinks.iter_mut().for_each(|sink| sink.event(&event));
                shared
                    .queued_bytes
                    .fetch_sub(size(&event), Ordering::Relaxed);
                unflushed = true;
            }
            Ok(Message::Admin(change)) => {
                sinks.iter_mut().for_each(|sink| sink.admin(&change));
                unflushed = true;
            }
            Ok(Message::Flush(done)) => {
                sinks.iter_mut().for_each(|sink| sink.flush());
                unflushed = false;
                // Whoever asked may have stopped waiting.
                let _ = done.try_send(());
            }
            Err(RecvTimeoutError::Timeout) if unflushed => {
                sinks.iter_mut().for_each(|sink| sink.flush());
                unflushed = false;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                sinks.iter_mut().for_each(|sink| sink.flush());
                return;
            }
        }
    }
}
