//! How callers and the engine reach the sequencer, and how many may wait.
//!
//! Room is counted in units of a request and a kibibyte, and held until the request is answered:
//! so what is queued and what is undecided are bounded together, in number and in bytes. A caller
//! without room waits in line; when the line itself is too long it is told so at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::request::Waiting;
use crate::Error;
use crate::engine::{self, AppendOutcome};

/// Callers that may wait for room, for each unit of it: far more than a loaded apiserver has
/// requests open, and still only some hundred bytes each.
const LINE_PER_UNIT: usize = 2;

/// What the sequencer is told.
pub(crate) enum Message {
    /// Somebody wants something done.
    Request(Waiting),
    /// The engine knows what became of an append, and perhaps where its payload lies.
    Outcome(u64, AppendOutcome, Option<engine::Place>),
    /// The background checkpoint is over.
    Checkpointed(Result<(), Error>),
    /// Write a checkpoint soon; the sender learns what came of it.
    Defragment(oneshot::Sender<Result<(), Error>>),
    /// Finish and stop; the sender learns when that is done.
    Close(Option<oneshot::Sender<()>>),
}

#[derive(Default)]
struct Queue {
    messages: Vec<Message>,
    is_asleep: bool,
    is_shut: bool,
}

/// The sequencer's one queue.
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    bell: Condvar,
    room: Arc<Semaphore>,
    units: usize,
    in_line: AtomicUsize,
}

/// One place in the line of those who wait for room; given back on drop.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inbox {
    pub(crate) fn new(units: usize) -> Self {
        let units = units.min(Semaphore::MAX_PERMITS);
        Inbox {
            queue: Mutex::default(),
            bell: Condvar::new(),
            room: Arc::new(Semaphore::new(units)),
            units,
            in_line: AtomicUsize::new(0),
        }
    }

    /// Units of room that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.units.saturating_sub(self.room.available_permits())
    }

    /// Waits for room for a request of so many bytes.
    ///
    /// # Errors
    /// `Overloaded` when too many wait already.
    pub(crate) async fn room_for(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
        if let Some(permit) = self.room_now(bytes) {
            return Ok(permit);
        }
        let units = self.units_of(bytes);
        let before = self.in_line.fetch_add(1, Ordering::Relaxed);
        let _place = Place(&self.in_line);
        if before >= self.units * LINE_PER_UNIT {
            return Err(Error::Overloaded);
        }
        let permit = Arc::clone(&self.room).acquire_many_owned(units).await;
        permit.map_err(|_closed| Error::Overloaded)
    }

    /// Room for a request of so many bytes, if there is some at once.
    pub(crate) fn room_now(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = self.units_of(bytes);
        Arc::clone(&self.room).try_acquire_many_owned(units).ok()
    }

    /// A request larger than all the room takes all of it.
    fn units_of(&self, bytes: usize) -> u32 {
        let units = (1 + bytes / 1024).min(self.units);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// Puts messages in, all at once and in order; leaves them when nobody will read them.
    pub(crate) fn send_all(&self, messages: &mut Vec<Message>) {
        let mut queue = self.queue.lock();
        if queue.is_shut {
            return;
        }
        queue.messages.append(messages);
        let wake = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if wake {
            self.bell.notify_one();
        }
    }

    /// Puts a message in; `false` when the sequencer is gone and nobody will read it.
    pub(crate) fn send(&self, message: Message) -> bool {
        let mut queue = self.queue.lock();
        if queue.is_shut {
            return false;
        }
        queue.messages.push(message);
        let wake = std::mem::take(&mut queue.is_asleep);
        drop(queue);
        if wake {
            self.bell.notify_one();
        }
        true
    }

    /// Whether nobody has asked for anything that was not taken yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().messages.is_empty()
    }

    /// Takes all there is into `into`; if there is nothing, waits so long at most.
    pub(crate) fn take(&self, patience: Option<Duration>, into: &mut Vec<Message>) {
        let mut queue = self.queue.lock();
        if queue.messages.is_empty() {
            queue.is_asleep = true;
            match patience {
                Some(Duration::ZERO) => {}
                Some(limit) => drop(self.bell.wait_for(&mut queue, limit)),
                None => self.bell.wait(&mut queue),
            }
            queue.is_asleep = false;
        }
        std::mem::swap(&mut queue.messages, into);
    }

    /// Takes no more; answers what was left, to be refused.
    pub(crate) fn shut(&self) -> Vec<Message> {
        let mut queue = self.queue.lock();
        queue.is_shut = true;
        std::mem::take(&mut queue.messages)
    }
}
