//! The default engine: one directory that holds a log in segments, checkpoints and a lock.
//!
//! ```text
//! sluice.lock                        who may write, and the epoch             (lock)
//! 00000000000000000007.log           a segment of the log, preallocated       (segment, frame)
//! 00000000000000004711.checkpoint    stands for all up to revision 4711       (checkpoint)
//! *.tmp, spare-*                     unfinished or unused, removed at recovery (spare)
//! reserve                            a segment for deletes on a full disk      (spare)
//! import.unfinished                  it is being filled, and not opened before (import)
//! ```
//!
//! One thread writes the log (`log`); a second one makes segments ready ahead (`spare`). Formats
//! and the ways in which a crash can fall into each step are argued in the crate's `DESIGN.md`.
//! It does not repair: what a crash cannot leave behind is reported as damage and nothing is changed.

pub mod faulty;
pub mod files;

mod checkpoint;
mod frame;
pub(crate) mod import;
mod lock;
mod log;
#[cfg(feature = "injected-faults")]
mod mortal;
mod recover;
mod segment;
mod spare;
mod window;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::Mutex;

use self::files::{Files, Lock};
use self::log::{Begin, Log, Request};
use self::recover::{Sources, open_source};
use self::segment::Info;
use self::spare::Spares;
use super::queue::Queue;
use super::{
    AppendOutcome, Batch, Engine, Epoch, Place, PlacedDone, Recovered, Source, misplaced_checkpoint,
};
use crate::stats::{SharedTimings, Timings};
use crate::{Error, Revision};

/// What a segment holds by default: seconds of heavy writing, so that starting one (two syncs) does
/// not count, and little enough to give back soon after a checkpoint.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Below this a segment would be mostly header.
const SEGMENT_BYTES_MIN: u64 = 2 * segment::FRAMES_AT;
/// Below this a reserve would not hold the deletes of one large request.
const RESERVE_BYTES_MIN: u64 = 64 << 10;

/// How an [`Embedded`] is opened.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// The data directory, made when it is missing.
    pub dir: PathBuf,
    /// Size of a log segment; at least 8 KiB are taken.
    pub segment_bytes: u64,
    /// How many segments are made ready ahead.
    pub spares: usize,
    /// Size of a segment set aside for deletes and compaction on a full disk; zero for none. Smaller
    /// sizes are raised to 64 KiB.
    pub reserve_bytes: u64,
}

impl EmbeddedOptions {
    /// The defaults, in this directory.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        EmbeddedOptions {
            dir: dir.into(),
            segment_bytes: SEGMENT_BYTES,
            spares: 1,
            reserve_bytes: 0,
        }
    }
}

/// A log in a directory; see the module. Dropping it closes it.
pub struct Embedded {
    shared: Arc<Shared>,
    /// Written to by its thread, or by a caller that waits. Taken before every lock of `Shared`.
    log: Arc<Mutex<Log>>,
    threads: Vec<JoinHandle<()>>,
}

/// What the handle and its threads see. Lock order: `background`, `holding`, `catalog`.
struct Shared {
    files: Arc<dyn Files>,
    segment_bytes: u64,
    queue: Queue<Request>,
    spares: Arc<Spares>,
    /// Held through a checkpoint and a trim, so that the lock is not let go under them.
    background: Mutex<()>,
    holding: Mutex<Holding>,
    catalog: Mutex<Catalog>,
    /// Why nothing is written any more.
    stopped: Mutex<Option<String>>,
    /// The last durable revision, zero for none.
    durable: AtomicU64,
    log_bytes: AtomicU64,
    syncs: SharedTimings,
}

#[derive(Default)]
struct Holding {
    lock: Option<Arc<dyn Lock>>,
    epoch: Option<Epoch>,
    is_recovered: bool,
}

/// What is in the directory.
#[derive(Default)]
struct Catalog {
    /// Oldest first, without a gap; the last one may be written to.
    segments: VecDeque<Info>,
    /// Revision and bytes of the newest whole one.
    checkpoint: Option<(Revision, u64)>,
    /// Segments before this one are older than the state of the next checkpoint, whatever their
    /// revisions.
    checkpointed_before: u64,
    /// Segments before this one are older than the state of the newest checkpoint.
    covered_before: u64,
    /// Segments that values may be read from: one that still is gets no second life.
    sources: Sources,
    stale: Vec<String>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded")
            .field("dir", &self.shared.files.place())
            .finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens a data directory without looking into it yet: [`Engine::acquire`] does.
    ///
    /// # Errors
    /// `Io` when it cannot be made or read, or a thread cannot be started.
    pub fn open(options: EmbeddedOptions) -> Result<Arc<Self>, Error> {
        let files = files::open(&options.dir).map_err(|source| Error::Io {
            action: format!(
                "cannot open data directory {}, which must be a directory that this process may \
                 read and write",
                options.dir.display()
            ),
            source,
        })?;
        Self::open_over(files, options)
    }

    /// As [`Embedded::open`], over files of the caller's; the options' directory is not used.
    ///
    /// # Errors
    /// `Io` when a thread cannot be started.
    pub fn open_over(files: Arc<dyn Files>, options: EmbeddedOptions) -> Result<Arc<Self>, Error> {
        let EmbeddedOptions {
            dir: _,
            segment_bytes,
            spares,
            reserve_bytes,
        } = options;
        let reserve_bytes = match reserve_bytes {
            0 => 0,
            bytes => bytes.max(RESERVE_BYTES_MIN),
        };
        let segment_bytes = segment_bytes.max(SEGMENT_BYTES_MIN);
        let shared = Arc::new(Shared {
            files: Arc::clone(&files),
            segment_bytes,
            queue: Queue::new(),
            spares: Arc::new(Spares::new(spares, segment_bytes, reserve_bytes)),
            background: Mutex::default(),
            holding: Mutex::default(),
            catalog: Mutex::default(),
            stopped: Mutex::default(),
            durable: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            syncs: SharedTimings::default(),
        });
        let log = Arc::new(Mutex::new(Log::new(Arc::clone(&shared))));
        let mut engine = Embedded {
            shared: Arc::clone(&shared),
            log: Arc::clone(&log),
            threads: Vec::new(),
        };
        let queue = Arc::clone(&shared);
        engine.spawn("metastore-log", move || log::run(&log, &queue.queue))?;
        if shared.spares.is_of_use() {
            engine.spawn("metastore-spare", move || shared.spares.run(&*files))?;
        }
        Ok(Arc::new(engine))
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)
            .map_err(|source| Error::Io {
                action: format!("cannot start thread {name}"),
                source,
            })?;
        self.threads.push(thread);
        Ok(())
    }

    fn is_own_thread(&self) -> bool {
        let current = std::thread::current().id();
        self.threads
            .iter()
            .any(|thread| thread.thread().id() == current)
    }

    fn check_epoch(&self, epoch: Epoch) -> Result<(), Error> {
        if let Some(reason) = self.shared.stopped.lock().clone() {
            return Err(Error::Stopped { reason });
        }
        let held = self.shared.holding.lock().epoch;
        if held == Some(epoch) {
            return Ok(());
        }
        Err(Error::Stopped {
            reason: "the lock is not held under this epoch".to_owned(),
        })
    }

    /// Everything after the last append: the end of the log is marked, the lock let go.
    fn shut(&self) {
        let (sender, closed) = sync_channel(1);
        self.shared.queue.push(Request::Close(sender));
        if self.is_own_thread() {
            // The last handle went within a `done`: the log thread closes once that returns.
            return;
        }
        // An error means that the thread is gone, which is as closed as can be.
        let _ = closed.recv();
        let _background = self.shared.background.lock();
        self.shared.holding.lock().lock = None;
    }
}

impl Engine for Embedded {
    fn acquire(&self, holder: &str) -> Result<Epoch, Error> {
        let mut holding = self.shared.holding.lock();
        if holding.epoch.is_some() {
            return Err(Error::Stopped {
                reason: "this engine has acquired the lock already".to_owned(),
            });
        }
        let (lock, epoch) = lock::acquire(&*self.shared.files, holder)?;
        holding.lock = Some(lock);
        holding.epoch = Some(Epoch(epoch));
        Ok(Epoch(epoch))
    }

    fn recover_placed(
        &self,
        epoch: Epoch,
        sink: &mut dyn FnMut(Recovered, Option<Place>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.check_epoch(epoch)?;
        let mut holding = self.shared.holding.lock();
        let lock = holding.lock.clone().filter(|_| !holding.is_recovered);
        let lock = lock.ok_or_else(|| Error::Stopped {
            reason: "this engine has been recovered or closed already".to_owned(),
        })?;
        let found = recover::recover(&*self.shared.files, sink)?;
        holding.is_recovered = true;
        let newest = found.segments.back().copied();
        let log_bytes = found.segments.iter().map(Info::bytes).sum();
        self.shared.log_bytes.store(log_bytes, Ordering::Relaxed);
        let tail = found.tail.map_or(0, Revision::get);
        self.shared.durable.store(tail, Ordering::Release);
        let sequence = newest.map_or(0, |info| info.sequence);
        *self.shared.catalog.lock() = Catalog {
            segments: found.segments,
            checkpoint: found.checkpoint,
            checkpointed_before: sequence,
            covered_before: 0,
            sources: found.sources,
            stale: found.stale,
        };
        self.shared.queue.push(Request::Begin(Begin {
            epoch,
            lock,
            tail: found.tail,
            newest,
        }));
        self.shared.spares.find_reserve(&*self.shared.files);
        self.shared.spares.ask();
        Ok(())
    }

    fn append_placed(&self, epoch: Epoch, batch: Batch, done: PlacedDone) {
        self.shared
            .queue
            .push(Request::Append { epoch, batch, done });
    }

    fn append_now(&self, epoch: Epoch, batch: &Batch) -> Option<(AppendOutcome, Option<Place>)> {
        let mut log = self.log.lock();
        // What is queued goes first.
        if !self.shared.queue.is_empty() {
            return None;
        }
        log.append_now(epoch, batch)
    }

    fn resume(&self, epoch: Epoch) {
        self.shared.queue.push(Request::Resume(epoch));
    }

    fn checkpoint_placed(
        &self,
        epoch: Epoch,
        at: Revision,
        chunks: &mut dyn Iterator<Item = Result<Bytes, Error>>,
    ) -> Result<Vec<Place>, Error> {
        let shared = &*self.shared;
        let _background = shared.background.lock();
        self.check_epoch(epoch)?;
        let durable = shared.durable.load(Ordering::Acquire);
        let (newest, log_sequence) = {
            let catalog = shared.catalog.lock();
            let sequence = catalog.segments.back().map_or(0, |info| info.sequence);
            (catalog.checkpoint, sequence)
        };
        if (durable > 0 && at.get() > durable) || newest.is_some_and(|(newest, _)| at < newest) {
            return Err(misplaced_checkpoint(at));
        }
        let header = checkpoint::Header {
            at,
            epoch: epoch.0,
            log_sequence,
        };
        let files = &*shared.files;
        let mut noted = Noted::of(chunks);
        let written = checkpoint::write(files, &header, &mut noted);
        let Noted { offsets, error, .. } = noted;
        if let Some(error) = error {
            return Err(error);
        }
        let name = checkpoint::name(at);
        let bytes = written.map_err(|source| io_error(files, "write", &name, source))?;
        // Where there is no log yet, this is what it goes on from.
        let fresh = (0, at.get(), Ordering::AcqRel, Ordering::Relaxed);
        let _ = shared
            .durable
            .compare_exchange(fresh.0, fresh.1, fresh.2, fresh.3);
        shared.catalog.lock().take_checkpoint(at, bytes);
        let source = open_source(files, &name)?;
        let place = |offset| Place {
            source: Arc::clone(&source),
            offset,
        };
        Ok(offsets.into_iter().map(place).collect())
    }

    fn trim(&self) -> Result<(), Error> {
        let _background = self.shared.background.lock();
        if self.shared.stopped.lock().is_some() {
            // Another process may have the directory by now.
            return Ok(());
        }
        self.shared.trim()
    }

    fn size(&self) -> u64 {
        let checkpoint = self.shared.catalog.lock().checkpoint;
        let checkpoint = checkpoint.map_or(0, |(_, bytes)| bytes);
        self.shared.log_bytes.load(Ordering::Relaxed) + checkpoint
    }

    fn syncs(&self) -> Timings {
        self.shared.syncs.read()
    }

    fn is_short(&self) -> bool {
        self.shared.spares.is_short()
    }

    fn close(&self) {
        self.shut();
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shut();
        self.shared.queue.stop();
        self.shared.spares.stop();
        let current = std::thread::current().id();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != current {
                // A panic of the thread has been printed already, and a drop must not panic.
                let _ = thread.join();
            }
        }
    }
}

impl Catalog {
    /// `before` is final, and the log goes on in `info`.
    fn begin_segment(&mut self, before: Option<Info>, info: Info, source: &Arc<Source>) {
        if let (Some(last), Some(before)) = (self.segments.back_mut(), before) {
            *last = before;
        }
        self.sources.insert(info.sequence, Arc::downgrade(source));
        self.segments.push_back(info);
    }

    fn take_checkpoint(&mut self, at: Revision, bytes: u64) {
        if let Some((old, _)) = self.checkpoint.filter(|(old, _)| *old != at) {
            self.stale.push(checkpoint::name(old));
        }
        let name = checkpoint::name(at);
        self.stale.retain(|stale| *stale != name);
        self.checkpoint = Some((at, bytes));
        // The state was taken after the checkpoint before it had returned, hence it holds all that
        // was in the log by then.
        self.covered_before = self.checkpointed_before;
        self.checkpointed_before = self.segments.back().map_or(0, |info| info.sequence);
    }

    /// Takes out the segments that nothing needs, never the newest, and whether values are still
    /// read from them.
    fn take_covered(&mut self) -> Vec<(Info, bool)> {
        let mut covered = Vec::new();
        let Some((at, _)) = self.checkpoint else {
            return covered;
        };
        while self.segments.len() > 1
            && let Some(first) = self.segments.front()
            && (first.is_covered(at) || first.sequence < self.covered_before)
        {
            let source = self.sources.remove(&first.sequence);
            // Once nobody holds it, nobody can come to hold it.
            let is_held = source.is_some_and(|source| source.strong_count() > 0);
            covered.extend(self.segments.pop_front().map(|info| (info, is_held)));
        }
        covered
    }
}

impl Shared {
    fn trim(&self) -> Result<(), Error> {
        let (covered, stale) = {
            let mut catalog = self.catalog.lock();
            (catalog.take_covered(), std::mem::take(&mut catalog.stale))
        };
        let files = &*self.files;
        let mut spares = Vec::new();
        for (info, is_held) in covered {
            let name = segment::name(info.sequence);
            self.log_bytes.fetch_sub(info.bytes(), Ordering::Relaxed);
            let bytes = files.open(&name).and_then(|file| file.len());
            match bytes
                .ok()
                .filter(|_| !is_held)
                .and_then(|bytes| self.spares.name_for(bytes, spares.len()))
            {
                Some(spare) => {
                    files
                        .rename(&name, &spare)
                        .map_err(|source| io_error(files, "rename", &name, source))?;
                    spares.push(spare);
                }
                None => remove(files, &name)?,
            }
        }
        for name in stale {
            remove(files, &name)?;
        }
        files
            .sync_names()
            .map_err(|source| io_error(files, "sync the data directory", "", source))?;
        // Only now: a spare's header is overwritten, which must not reach it under its old name.
        for spare in spares {
            self.spares.add(spare);
        }
        Ok(())
    }
}

/// Chunks on their way into a checkpoint, and where each will lie.
struct Noted<'a> {
    chunks: &'a mut dyn Iterator<Item = Result<Bytes, Error>>,
    next: u64,
    offsets: Vec<u64>,
    /// Why there are no more.
    error: Option<Error>,
}

impl<'a> Noted<'a> {
    fn of(chunks: &'a mut dyn Iterator<Item = Result<Bytes, Error>>) -> Self {
        Noted {
            chunks,
            next: checkpoint::HEADER_BYTES as u64,
            offsets: Vec::new(),
            error: None,
        }
    }
}

impl Iterator for Noted<'_> {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.chunks.next()? {
            Ok(chunk) => {
                let at = self.next + checkpoint::CHUNK_HEADER_BYTES as u64;
                self.offsets.push(at);
                self.next = at + chunk.len() as u64;
                Some(Ok(chunk))
            }
            Err(error) => {
                self.error = Some(error);
                Some(Err(io::ErrorKind::InvalidData.into()))
            }
        }
    }
}

fn remove(files: &dyn Files, name: &str) -> Result<(), Error> {
    match files.remove(name) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(io_error(files, "remove", name, source))
        }
        _ => Ok(()),
    }
}

fn path(place: &Path, name: &str) -> PathBuf {
    if name.is_empty() {
        place.to_owned()
    } else {
        place.join(name)
    }
}

fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn io_error(files: &dyn Files, action: &str, name: &str, source: io::Error) -> Error {
    if is_no_room(&source) {
        return Error::NoSpace;
    }
    Error::Io {
        action: format!("cannot {action} {}", path(files.place(), name).display()),
        source,
    }
}

fn corrupt(files: &dyn Files, name: &str, what: &str, remedy: &str) -> Error {
    Error::Corrupt {
        reason: format!("{} {what}; {remedy}", path(files.place(), name).display()),
    }
}
