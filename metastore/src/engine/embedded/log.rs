//! The log thread: takes everything queued, makes it durable with one write and one sync, answers.
//!
//! ```text
//! queue -> judge each -> one frame (up to 1 MiB) -> room? else next segment -> write -> sync -> done*
//! ```
//!
//! There is no timer: a group is whatever came while the last one was being synced. A failed write or
//! sync ends all writing, since nobody can say what of it is on the disk; want of room shows when a
//! segment is made ready, before anything of a batch is written.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use parking_lot::Mutex;

use super::super::queue::Queue;
use super::super::{AppendOutcome, Batch, Epoch, Place as Kept, PlacedDone, Source};
use super::files::{File, Files, Lock};
use super::frame::{self, Builder, Kind, Place};
use super::segment::{self, Info};
use super::{Shared, is_no_room, spare};
use crate::Revision;
use crate::faults::{self, Fault, injected};

/// One write: beyond this a longer write costs more than another sync.
const GROUP_BYTES: u64 = 1 << 20;
/// The largest payload of a batch; far above the store's own limit, far below the frame's `u32`.
const BATCH_BYTES_MAX: usize = 256 << 20;

/// What callers ask of the thread.
pub(super) enum Request {
    /// Recovery is done; appends may come.
    Begin(Begin),
    Append {
        epoch: Epoch,
        batch: Batch,
        done: PlacedDone,
    },
    Resume(Epoch),
    Close(SyncSender<()>),
}

/// What recovery hands to the log.
pub(super) struct Begin {
    pub(super) epoch: Epoch,
    pub(super) lock: Arc<dyn Lock>,
    pub(super) tail: Option<Revision>,
    /// The newest segment; never written to again.
    pub(super) newest: Option<Info>,
}

/// The thread's state. Lives and ends with the handle.
pub(super) struct Log {
    shared: Arc<Shared>,
    state: State,
    frame: Builder,
    /// Who hears of the frame's batches, and where in the frame each payload begins.
    dones: VecDeque<(PlacedDone, u64)>,
}

enum State {
    /// -> `Open`, `Stopped`
    Waiting,
    /// -> `Stopped`
    Open(Box<Open>),
    /// Answered to everything from then on.
    Stopped(AppendOutcome),
}

/// A log that is written to.
struct Open {
    epoch: Epoch,
    lock: Arc<dyn Lock>,
    /// The last durable revision.
    tail: Option<Revision>,
    /// The segment written to; none before the first append.
    active: Option<Active>,
    /// The newest segment before that.
    newest: Option<Info>,
    /// After `NoSpace`, until resumed.
    is_refusing: bool,
}

struct Active {
    file: Arc<dyn File>,
    /// The same file, for values that are read back from it.
    source: Arc<Source>,
    info: Info,
    salt: u32,
    ordinal: u64,
    /// Length of the file.
    capacity: u64,
}

/// What is said of what was being written when writing panicked.
const PANICKED: &str = "the log's thread panicked";

/// Until the queue is stopped. A panic stops the log as a failed write does: what was being written
/// may be there, and whoever waits is told. (A release build ends the process instead.)
pub(super) fn run(log: &Mutex<Log>, queue: &Queue<Request>) {
    let mut work = VecDeque::new();
    while queue.take(&mut work) {
        let mut log = log.lock();
        let turn = catch_unwind(AssertUnwindSafe(|| log.turn(&mut work)));
        if turn.is_err() {
            let outcome = log.stop(failed(PANICKED));
            while let Some((done, _)) = log.dones.pop_front() {
                done(outcome.clone(), None);
            }
        }
    }
}

impl Log {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Log {
            shared,
            state: State::Waiting,
            frame: Builder::default(),
            dones: VecDeque::new(),
        }
    }

    /// Makes a batch durable on the caller's thread; `None` when it is not to be written now. It is
    /// not known to be written if that panics, and then nothing more is.
    pub(super) fn append_now(
        &mut self,
        epoch: Epoch,
        batch: &Batch,
    ) -> Option<(AppendOutcome, Option<Kept>)> {
        let is_open = matches!(&self.state, State::Open(open) if !open.is_refusing);
        if !is_open {
            return None;
        }
        if let Some(outcome) = self.judge(epoch, batch, self.tail()) {
            return Some((outcome, None));
        }
        let written = catch_unwind(AssertUnwindSafe(|| {
            self.frame.begin();
            let at = self.frame.push(batch);
            let (outcome, frame) = self.write((batch.previous, batch.last));
            (outcome, frame.map(|frame| frame.after(at)))
        }));
        Some(written.unwrap_or_else(|_panic| (self.stop(failed(PANICKED)), None)))
    }

    fn turn(&mut self, work: &mut VecDeque<Request>) {
        match work.pop_front() {
            Some(Request::Begin(begin)) => self.begin(begin),
            Some(Request::Append { epoch, batch, done }) => {
                match self.judge(epoch, &batch, self.tail()) {
                    Some(outcome) => done(outcome, None),
                    None => self.commit(&batch, done, work),
                }
            }
            Some(Request::Resume(epoch)) => self.resume(epoch),
            Some(Request::Close(closed)) => {
                self.close();
                // Nobody waits any more when the closer is gone.
                let _ = closed.send(());
            }
            None => {}
        }
    }

    fn begin(&mut self, begin: Begin) {
        let Begin {
            epoch,
            lock,
            tail,
            newest,
        } = begin;
        self.state = State::Open(Box::new(Open {
            epoch,
            lock,
            tail,
            active: None,
            newest,
            is_refusing: false,
        }));
    }

    fn resume(&mut self, epoch: Epoch) {
        if let State::Open(open) = &mut self.state
            && open.epoch == epoch
        {
            open.is_refusing = false;
        }
    }

    fn tail(&self) -> Option<Revision> {
        match &self.state {
            State::Open(open) => open.tail(&self.shared),
            _ => None,
        }
    }

    /// What a batch that follows `tail` is answered without being written; `None` to write it.
    fn judge(
        &mut self,
        epoch: Epoch,
        batch: &Batch,
        tail: Option<Revision>,
    ) -> Option<AppendOutcome> {
        let open = match &self.state {
            State::Stopped(outcome) => return Some(outcome.clone()),
            State::Waiting => return Some(failed("nothing was recovered yet")),
            State::Open(open) => open,
        };
        if epoch < open.epoch {
            return Some(AppendOutcome::Fenced);
        }
        if open.is_refusing {
            return Some(AppendOutcome::NoSpace);
        }
        let fault = if epoch > open.epoch {
            "the epoch is not one that was handed out"
        } else if tail.is_some_and(|tail| tail != batch.previous) && !is_chain_broken() {
            "the batch does not follow the last one"
        } else if batch.last < batch.previous {
            "the batch ends before it begins"
        } else if batch.payload.len() > BATCH_BYTES_MAX {
            "the batch is too large"
        } else {
            return None;
        };
        Some(self.stop(failed(fault)))
    }

    /// Makes a batch durable together with those queued behind it.
    fn commit(&mut self, first: &Batch, done: PlacedDone, work: &mut VecDeque<Request>) {
        self.frame.begin();
        let at = self.frame.push(first);
        self.dones.push_back((done, at));
        let mut end = (first.previous, first.last);
        while let Some(Request::Append { epoch, batch, .. }) = work.front() {
            let bytes = self.frame.frame_bytes() + frame::batch_bytes(batch) as u64;
            let follows = self.is_current(*epoch) && batch.previous == end.1 && batch.last >= end.1;
            if bytes > GROUP_BYTES || !follows {
                break;
            }
            let at = self.frame.push(batch);
            end = (batch.previous, batch.last);
            if let Some(Request::Append { done, .. }) = work.pop_front() {
                self.dones.push_back((done, at));
            }
        }
        let (outcome, frame) = self.write(end);
        while let Some((done, at)) = self.dones.pop_front() {
            done(outcome.clone(), frame.as_ref().map(|frame| frame.after(at)));
        }
    }

    fn is_current(&self, epoch: Epoch) -> bool {
        matches!(&self.state, State::Open(open) if open.epoch == epoch)
    }

    /// Writes the gathered frame, whose last batch is at `end`, and syncs it; tells where it lies.
    fn write(&mut self, end: (Revision, Revision)) -> (AppendOutcome, Option<Kept>) {
        let State::Open(open) = &mut self.state else {
            return (failed("the log is not open"), None);
        };
        let outcome = match open.write(&self.shared, &mut self.frame, Kind::Batches) {
            Ok(frame) => {
                open.tail = Some(end.1);
                if let Some(active) = &mut open.active {
                    active.info.last_batch = Some(end);
                }
                self.shared.durable.store(end.1.get(), Ordering::Release);
                return (AppendOutcome::Durable, frame);
            }
            Err(Refusal::NoSpace) => {
                let bytes = self.shared.segment_bytes;
                tracing::warn!(bytes, "no room for another log segment, writes are refused");
                open.is_refusing = true;
                AppendOutcome::NoSpace
            }
            Err(Refusal::Fenced) => self.stop(AppendOutcome::Fenced),
            Err(Refusal::Failed(error)) => {
                let place = self.shared.files.place().display();
                let reason = format!("the log in {place} cannot be written: {error}");
                tracing::error!(
                    reason,
                    "writes stop for good, restart once the disk is right"
                );
                self.stop(AppendOutcome::Failed { reason })
            }
        };
        (outcome, None)
    }

    fn stop(&mut self, outcome: AppendOutcome) -> AppendOutcome {
        *self.shared.stopped.lock() = Some(match &outcome {
            AppendOutcome::Failed { reason } => reason.clone(),
            _ => "another holder has the data directory".to_owned(),
        });
        self.state = State::Stopped(outcome.clone());
        outcome
    }

    /// Marks the end of the log, so that a later recovery can tell damage to the last frame from a
    /// frame that was being written.
    fn close(&mut self) {
        if let State::Open(open) = &mut self.state
            && open.active.is_some()
        {
            self.frame.begin();
            if let Err(error) = open.write(&self.shared, &mut self.frame, Kind::Closed) {
                tracing::warn!(?error, "the log could not be marked as closed");
            }
        }
        if !matches!(self.state, State::Stopped(_)) {
            self.stop(failed("the engine is closed"));
        }
    }
}

/// Faults whose batches do not follow each other would be found here and by nobody else.
fn is_chain_broken() -> bool {
    injected(Fault::RevisionReused) || injected(Fault::LostCompareTakes)
}

/// Why a frame is not durable.
#[derive(Debug)]
enum Refusal {
    NoSpace,
    Fenced,
    Failed(io::Error),
}

impl Open {
    /// The last durable revision; that of a checkpoint where there is no log yet.
    fn tail(&self, shared: &Shared) -> Option<Revision> {
        let durable = Revision::new(shared.durable.load(Ordering::Acquire));
        self.tail
            .or_else(|| (durable > Revision::ZERO).then_some(durable))
    }

    fn write(
        &mut self,
        shared: &Shared,
        frame: &mut Builder,
        kind: Kind,
    ) -> Result<Option<Kept>, Refusal> {
        if !self.lock.is_current().map_err(Refusal::Failed)? {
            return Err(Refusal::Fenced);
        }
        let bytes = frame.frame_bytes();
        let has_room = |active: &Active| active.info.end + bytes <= active.capacity;
        if !self.active.as_ref().is_some_and(has_room) {
            if kind == Kind::Closed {
                return Ok(None);
            }
            self.next_segment(shared, bytes).map_err(|error| {
                if is_no_room(&error) {
                    Refusal::NoSpace
                } else {
                    Refusal::Failed(error)
                }
            })?;
        }
        let Some(active) = &mut self.active else {
            return Err(Refusal::Failed(io::ErrorKind::NotFound.into()));
        };
        let place = Place {
            sequence: active.info.sequence,
            salt: active.salt,
            ordinal: active.ordinal,
        };
        let frame = frame.seal(kind, place);
        let end = active.info.end;
        let written = match faults::held_back(frame, end) {
            Some((earlier, at)) => active.file.write_at(&earlier, at),
            None => active.file.write_at(frame, end),
        };
        written.map_err(Refusal::Failed)?;
        let begun = Instant::now();
        active.file.sync().map_err(Refusal::Failed)?;
        shared.syncs.add(begun.elapsed());
        // Whoever took the directory over before now may not have read this frame.
        if !self.lock.is_current().map_err(Refusal::Failed)? {
            return Err(Refusal::Fenced);
        }
        let written = Kept {
            source: Arc::clone(&active.source),
            offset: active.info.end,
        };
        active.info.end += bytes;
        active.ordinal += 1;
        shared.log_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Some(written))
    }

    /// Goes on in a new segment with room for `bytes`. Nothing of the log depends on it before the
    /// last step, so that a failure leaves everything as it was.
    fn next_segment(&mut self, shared: &Shared, bytes: u64) -> io::Result<()> {
        let before = self
            .active
            .as_ref()
            .map(|active| active.info)
            .or(self.newest);
        let capacity = shared.segment_bytes.max(segment::FRAMES_AT + bytes);
        let header = segment::Header {
            salt: shared.files.salt(),
            sequence: before.map_or(1, |info| info.sequence + 1),
            epoch: self.epoch.0,
            base: self.tail(shared).unwrap_or(Revision::ZERO),
            previous_end: before.map_or(0, |info| info.end),
        };
        let (file, capacity) = make_segment_or_draw(shared, &header, capacity, bytes)?;
        if self.active.is_none() {
            give_back_tail(shared, self.newest);
        }
        let info = Info {
            sequence: header.sequence,
            base: header.base,
            end: segment::FRAMES_AT,
            last_batch: None,
        };
        let file: Arc<dyn File> = Arc::from(file);
        let path = shared.files.place().join(segment::name(info.sequence));
        let source = Source::new(path, Arc::clone(&file));
        shared.catalog.lock().begin_segment(before, info, &source);
        self.active = Some(Active {
            file,
            source,
            info,
            salt: header.salt,
            ordinal: 0,
            capacity,
        });
        Ok(())
    }
}

/// A segment, or the reserve when there is no room for one and that was known before: then the
/// caller sends only what makes room. Answers how much it holds.
fn make_segment_or_draw(
    shared: &Shared,
    header: &segment::Header,
    capacity: u64,
    bytes: u64,
) -> io::Result<(Box<dyn File>, u64)> {
    let error = match make_segment(shared, header, capacity) {
        Ok(file) => return Ok((file, capacity)),
        Err(error) => error,
    };
    let reserve = shared.spares.reserve_bytes;
    let fits = segment::FRAMES_AT + bytes <= reserve;
    if !is_no_room(&error) || !shared.spares.fall_short() || !fits || !shared.spares.take_reserve()
    {
        return Err(error);
    }
    let files = &*shared.files;
    let file = files.open(spare::RESERVE)?;
    begin_segment(files, &*file, header, spare::RESERVE)?;
    tracing::warn!("the log goes on in its reserve, for deletes and compaction alone");
    Ok((file, reserve))
}

/// Makes the header durable, then gives the file its name.
fn begin_segment(
    files: &dyn Files,
    file: &dyn File,
    header: &segment::Header,
    temporary: &str,
) -> io::Result<()> {
    file.write_at(&header.encode(), 0)?;
    file.sync()?;
    files.rename(temporary, &segment::name(header.sequence))?;
    files.sync_names()
}

/// A segment with room for all of it, whose header is durable before it gets its name.
fn make_segment(
    shared: &Shared,
    header: &segment::Header,
    capacity: u64,
) -> io::Result<Box<dyn File>> {
    let files = &*shared.files;
    let is_usual = capacity == shared.segment_bytes;
    let spare = is_usual.then(|| shared.spares.take()).flatten();
    let temporary = spare.as_deref().unwrap_or(spare::TEMPORARY);
    let make = || {
        let file = if spare.is_some() {
            files.open(temporary)?
        } else {
            let file = files.create(temporary)?;
            file.reserve(capacity)?;
            file
        };
        begin_segment(files, &*file, header, temporary)?;
        Ok(file)
    };
    let made = make();
    if made.is_err() {
        // Gives back what room was got; what stays is removed by the next recovery.
        let _ = files.remove(temporary);
    }
    made
}

/// Frees the room of the segment that the last process wrote to, beyond its data: no one reads it.
fn give_back_tail(shared: &Shared, newest: Option<Info>) {
    let Some(info) = newest else { return };
    let name = segment::name(info.sequence);
    if let Err(error) = shared
        .files
        .open(&name)
        .and_then(|file| file.truncate(info.end))
    {
        tracing::debug!(%error, segment = name, "the unused end of a segment was not given back");
    }
}

fn failed(reason: &str) -> AppendOutcome {
    AppendOutcome::Failed {
        reason: reason.to_owned(),
    }
}
