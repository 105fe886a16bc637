//! An engine without a disk, which answers what a test tells it to.
//!
//! The log lives in a [`Memory`]'s store, which outlives the handle: [`Memory::reopened`] is the
//! same log seen by a process started later, while the older handle is the deposed holder whose
//! late appends are fenced. Nothing is bounded: it holds what tests put in.
//!
//! ```text
//! memory.script([Script::Slow(gate), Script::UncertainApplied]);
//!   append 1   waits at the gate, then is written and reported `Uncertain`
//!   append 2   `Uncertain`, not written: it stands behind an unsettled one
//!   append 1   again: `Durable`, still in the log once
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::queue::Queue;
use super::{
    AppendOutcome, Batch, Engine, Epoch, Place, PlacedDone, Recovered, misplaced_checkpoint,
};
use crate::{Error, Revision};

/// What the next append comes to.
#[derive(Clone, Debug)]
pub enum Script {
    /// Written and reported so.
    Durable,
    /// Written, and reported as `Uncertain`.
    UncertainApplied,
    /// Not written, and reported as `Uncertain`.
    UncertainLost,
    /// Not written: another holder is said to have a higher epoch, from here on.
    Fenced,
    /// Not written, and nothing after it.
    Failed,
    /// Not written for want of room, until [`Engine::resume`].
    NoSpace,
    /// Waits at the gate; then the next entry of the script says what it comes to.
    Slow(Gate),
}

/// Where an append waits until it is let through.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    reached: bool,
    released: bool,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Gate::default()
    }

    /// Lets through what waits and whatever comes later.
    pub fn release(&self) {
        let (state, changed) = &*self.0;
        state.lock().released = true;
        changed.notify_all();
    }

    /// Blocks until something waits here (or has passed).
    ///
    /// # Panics
    /// When nothing comes for a minute: a test that waits for ever tells nothing.
    pub fn wait_reached(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        while !state.reached {
            let waited = changed.wait_for(&mut state, Duration::from_secs(60));
            assert!(
                !waited.timed_out(),
                "nothing came to the gate within a minute"
            );
        }
    }

    /// Waits here until released.
    pub(super) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        state.reached = true;
        changed.notify_all();
        while !state.released {
            changed.wait(&mut state);
        }
    }
}

/// An in-memory engine; see the module.
pub struct Memory {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the handle and its thread both see. Lock order: `script` before `disk`, never both held.
struct Shared {
    disk: Arc<Mutex<Disk>>,
    queue: Queue<Request>,
    script: Mutex<VecDeque<Script>>,
    gates: Mutex<Gates>,
}

/// Gates an append may be waiting at; a handle that closes opens them and passes later ones by.
#[derive(Default)]
struct Gates {
    waiting: Vec<Gate>,
    is_closing: bool,
}

/// What a restart finds.
#[derive(Default)]
struct Disk {
    epoch: u64,
    checkpoint: Option<(Revision, Vec<Bytes>)>,
    batches: Vec<Batch>,
    /// How many of the batches are older than the state of the next checkpoint.
    checkpointed: usize,
    /// How many are older than the state of the newest one, whatever their revisions.
    covered: usize,
}

enum Request {
    Append {
        epoch: Epoch,
        batch: Batch,
        done: PlacedDone,
    },
    Resume,
    Close(SyncSender<()>),
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.shared.disk.lock();
        f.debug_struct("Memory")
            .field("epoch", &disk.epoch)
            .field("batches", &disk.batches.len())
            .finish_non_exhaustive()
    }
}

impl Memory {
    /// An engine that holds nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::over(Arc::default())
    }

    /// The same log, as a process started now finds it: without what is still queued or held in
    /// this one. Once the new handle has acquired, appends of this one are fenced.
    #[must_use]
    pub fn reopened(&self) -> Arc<Self> {
        Self::over(Arc::clone(&self.shared.disk))
    }

    /// Says what the next appends come to, one entry each (`Slow` takes the one after it as well);
    /// appends beyond the script are durable. Appends that are refused without being tried take no
    /// entry.
    pub fn script(&self, entries: impl IntoIterator<Item = Script>) {
        self.shared.script.lock().extend(entries);
    }

    fn over(disk: Arc<Mutex<Disk>>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            disk,
            queue: Queue::new(),
            script: Mutex::default(),
            gates: Mutex::default(),
        });
        let worker = Worker {
            shared: Arc::clone(&shared),
            stopped: None,
            is_closed: false,
            unsettled: None,
            is_refusing: false,
        };
        let thread = std::thread::Builder::new()
            .name("memory-log".to_owned())
            .spawn(move || worker.run())
            .expect("a thread can be started in a test");
        Arc::new(Memory {
            shared,
            thread: Some(thread),
        })
    }

    fn open_gates(&self) {
        let mut gates = self.shared.gates.lock();
        gates.is_closing = true;
        for gate in gates.waiting.drain(..) {
            gate.release();
        }
    }
}

impl Engine for Memory {
    fn acquire(&self, _holder: &str) -> Result<Epoch, Error> {
        let mut disk = self.shared.disk.lock();
        disk.epoch += 1;
        Ok(Epoch(disk.epoch))
    }

    fn recover_placed(
        &self,
        epoch: Epoch,
        sink: &mut dyn FnMut(Recovered, Option<Place>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (checkpoint, batches) = {
            let disk = self.shared.disk.lock();
            check_epoch(&disk, epoch)?;
            (disk.checkpoint.clone(), disk.batches.clone())
        };
        let at = checkpoint.as_ref().map(|(at, _)| *at);
        if let Some((at, chunks)) = checkpoint {
            sink(Recovered::Checkpoint(at), None)?;
            for chunk in chunks {
                sink(Recovered::Chunk(chunk), None)?;
            }
        }
        for batch in batches {
            if at.is_none_or(|at| batch.previous >= at) {
                sink(Recovered::Batch(batch), None)?;
            }
        }
        Ok(())
    }

    fn append_placed(&self, epoch: Epoch, batch: Batch, done: PlacedDone) {
        self.shared
            .queue
            .push(Request::Append { epoch, batch, done });
    }

    fn resume(&self, _epoch: Epoch) {
        self.shared.queue.push(Request::Resume);
    }

    fn checkpoint_placed(
        &self,
        epoch: Epoch,
        at: Revision,
        chunks: &mut dyn Iterator<Item = Result<Bytes, Error>>,
    ) -> Result<Vec<Place>, Error> {
        let chunks = chunks.collect::<Result<_, _>>()?;
        let mut disk = self.shared.disk.lock();
        check_epoch(&disk, epoch)?;
        if disk.tail().is_some_and(|tail| at > tail) || disk.floor().is_some_and(|old| at < old) {
            return Err(misplaced_checkpoint(at));
        }
        disk.checkpoint = Some((at, chunks));
        disk.covered = disk.checkpointed;
        disk.checkpointed = disk.batches.len();
        Ok(Vec::new())
    }

    fn trim(&self) -> Result<(), Error> {
        let mut disk = self.shared.disk.lock();
        if let Some(at) = disk.floor() {
            let below = disk.batches.partition_point(|batch| batch.previous < at);
            let count = below.max(disk.covered);
            disk.batches.drain(..count);
            disk.checkpointed = disk.checkpointed.saturating_sub(count);
            disk.covered = 0;
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        let disk = self.shared.disk.lock();
        let batches = disk.batches.iter().map(|batch| batch.payload.len());
        let chunks = disk.checkpoint.iter().flat_map(|(_, chunks)| chunks);
        let bytes: usize = batches.chain(chunks.map(Bytes::len)).sum();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn close(&self) {
        self.open_gates();
        let (sender, closed) = sync_channel(1);
        self.shared.queue.push(Request::Close(sender));
        // An error means that the thread is gone, which is as closed as can be.
        let _ = closed.recv();
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.open_gates();
        self.shared.queue.stop();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread has been printed already, and a drop must not panic.
            let _ = thread.join();
        }
    }
}

fn check_epoch(disk: &Disk, epoch: Epoch) -> Result<(), Error> {
    if epoch.0 == disk.epoch {
        return Ok(());
    }
    Err(Error::Stopped {
        reason: format!("another holder took the lock epoch={}", disk.epoch),
    })
}

impl Disk {
    fn floor(&self) -> Option<Revision> {
        self.checkpoint.as_ref().map(|(at, _)| *at)
    }

    fn tail(&self) -> Option<Revision> {
        let last = self.batches.last().map(|batch| batch.last);
        last.max(self.floor())
    }
}

/// The thread's own state: that of the process, gone with it.
struct Worker {
    shared: Arc<Shared>,
    /// `Failed` or `Fenced`, answered to that epoch and older ones from then on.
    stopped: Option<(Epoch, AppendOutcome)>,
    is_closed: bool,
    /// The batch that was reported `Uncertain`, and whether it is in the log.
    unsettled: Option<(Batch, bool)>,
    is_refusing: bool,
}

impl Worker {
    fn run(mut self) {
        let mut work = VecDeque::new();
        while self.shared.queue.take(&mut work) {
            for request in work.drain(..) {
                match request {
                    Request::Append { epoch, batch, done } => done(self.append(epoch, batch), None),
                    Request::Resume => self.is_refusing = false,
                    Request::Close(closed) => {
                        self.is_closed = true;
                        // Nobody waits any more when the closer is gone.
                        let _ = closed.send(());
                    }
                }
            }
        }
    }

    fn append(&mut self, epoch: Epoch, batch: Batch) -> AppendOutcome {
        if let Some(outcome) = self.refusal(epoch, &batch) {
            return outcome;
        }
        let step = self.next_step();
        // Judged after the wait: a holder deposed meanwhile must not get in.
        let shared = Arc::clone(&self.shared);
        let mut disk = shared.disk.lock();
        if epoch.0 != disk.epoch {
            return self.stop(epoch, AppendOutcome::Fenced);
        }
        let was_applied = matches!(self.unsettled, Some((_, true)));
        let fits = disk.tail().is_none_or(|tail| batch.previous == tail);
        if !was_applied && (!fits || batch.last < batch.previous) {
            return self.stop(epoch, failed("the batch does not follow the last one"));
        }
        match step {
            Script::Durable | Script::Slow(_) => {
                self.unsettled = None;
                if !was_applied {
                    disk.batches.push(batch);
                }
                AppendOutcome::Durable
            }
            Script::UncertainApplied => {
                if !was_applied {
                    disk.batches.push(batch.clone());
                }
                self.unsettled = Some((batch, true));
                uncertain("no answer came")
            }
            Script::UncertainLost => {
                self.unsettled = Some((batch, was_applied));
                uncertain("no answer came")
            }
            Script::Fenced => self.stop(epoch, AppendOutcome::Fenced),
            Script::Failed => self.stop(epoch, failed("the script says so")),
            // An engine that may hold the batch cannot claim that nothing was written.
            Script::NoSpace if self.unsettled.is_some() => uncertain("no room to settle it"),
            Script::NoSpace => {
                self.is_refusing = true;
                AppendOutcome::NoSpace
            }
        }
    }

    /// What the batch is answered without being tried.
    fn refusal(&self, epoch: Epoch, batch: &Batch) -> Option<AppendOutcome> {
        if let Some((_, outcome)) = self.stopped.as_ref().filter(|(old, _)| epoch <= *old) {
            return Some(outcome.clone());
        }
        if self.is_closed {
            return Some(failed("the engine is closed"));
        }
        if self.is_refusing {
            return Some(AppendOutcome::NoSpace);
        }
        let (unsettled, _) = self.unsettled.as_ref()?;
        let is_same = unsettled.previous == batch.previous
            && unsettled.last == batch.last
            && unsettled.payload == batch.payload;
        (!is_same).then(|| uncertain("a batch before it is unsettled"))
    }

    /// The next outcome of the script, after waiting at the gates before it.
    fn next_step(&self) -> Script {
        loop {
            // Taken in a statement of its own, so that a wait does not hold the script's lock.
            let step = self.shared.script.lock().pop_front();
            match step {
                Some(Script::Slow(gate)) => {
                    let mut gates = self.shared.gates.lock();
                    if !gates.is_closing {
                        gates.waiting.push(gate.clone());
                        drop(gates);
                        gate.pass();
                    }
                }
                Some(step) => return step,
                None => return Script::Durable,
            }
        }
    }

    fn stop(&mut self, epoch: Epoch, outcome: AppendOutcome) -> AppendOutcome {
        self.stopped = Some((epoch, outcome.clone()));
        self.unsettled = None;
        self.is_refusing = false;
        outcome
    }
}

fn failed(reason: &str) -> AppendOutcome {
    AppendOutcome::Failed {
        reason: reason.to_owned(),
    }
}

fn uncertain(reason: &str) -> AppendOutcome {
    AppendOutcome::Uncertain {
        reason: reason.to_owned(),
    }
}
