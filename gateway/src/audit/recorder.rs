//! The bounded hand-over from requests to the writer thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use super::event::{AdminChange, Event};

/// Events waiting for the writer: at about half a kilobyte each this is 16 MiB at the most, and at
/// 10,000 requests a second three seconds of a disk that does not answer.
const QUEUE_MAX: usize = 32_768;

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
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// Hands over a finished request; never waits.
    pub fn event(&self, event: Event) {
        self.send(Message::Event(Box::new(event)));
    }

    /// Hands over a change by an operator; never waits.
    pub fn admin(&self, change: AdminChange) {
        self.send(Message::Admin(Box::new(change)));
    }

    /// Events that were lost since the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything handed over so far is written; for the end of the process and tests.
    /// Blocks, up to `limit`.
    pub fn flush(&self, limit: Duration) {
        let (done, wait) = sync_channel(1);
        if self.queue.send(Message::Flush(done)).is_ok() {
            // A writer that does not answer in time has been given its chance.
            let _ = wait.recv_timeout(limit);
        }
    }

    fn send(&self, message: Message) {
        match self.queue.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                let lost = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
                if lost.is_power_of_two() {
                    tracing::error!(lost, "audit events are lost: the writer cannot keep up");
                }
            }
        }
    }
}

/// Starts the writer thread; it ends when the last handle is gone.
///
/// # Errors
/// When the thread cannot be started.
pub fn spawn(sinks: Vec<Box<dyn Sink>>) -> std::io::Result<Recorder> {
    let (queue, messages) = sync_channel(QUEUE_MAX);
    std::thread::Builder::new()
        .name("audit".to_owned())
        .spawn(move || write(&messages, sinks))?;
    Ok(Recorder {
        queue,
        dropped: Arc::default(),
    })
}

fn write(messages: &Receiver<Message>, mut sinks: Vec<Box<dyn Sink>>) {
    let mut unflushed = false;
    loop {
        match messages.recv_timeout(FLUSH_AFTER) {
            Ok(Message::Event(event)) => {
                sinks.iter_mut().for_each(|sink| sink.event(&event));
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
