//! Where batches become durable: the trait is cut at the log, so that no multi-version store sits
//! on another.
//!
//! An engine keeps an ordered sequence of opaque batches and, now and then, a checkpoint that
//! stands for all batches up to a revision. It knows epochs (who may append) and revisions (which
//! batch follows which), and never looks into a batch.
//!
//! ```text
//! acquire -> recover -> append* -> (checkpoint, trim)* -> close
//! ```
//!
//! What an engine does not know: keys, values, leases, whether a batch makes sense. Its queue of
//! appends has no bound of its own: the caller's window of writes in flight is the bound.

pub mod embedded;
pub mod memory;
mod place;
mod queue;

use bytes::Bytes;

pub use self::place::{Place, Source};
use crate::stats::Timings;
use crate::{Error, Revision};

/// Which holder of the lock an append comes from; a lower epoch than the engine's is fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Encoded writes that become durable together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The last revision before this batch: the one the engine must have appended last.
    pub previous: Revision,
    /// The last revision in this batch. Equal to `previous` for a batch that carries only
    /// housekeeping (a lease granted, the compacted floor), which takes no revision.
    pub last: Revision,
    /// The sequencer's encoding; opaque here.
    pub payload: Bytes,
}

/// What became of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// On stable storage; a crash cannot take it back.
    Durable,
    /// Another holder has a higher epoch; nothing was or will be written.
    Fenced,
    /// It may or may not be there, and everything behind it waits: send the same bytes under the
    /// same revisions again, until the engine knows, then those behind it in their order.
    Uncertain {
        /// What happened, for the log.
        reason: String,
    },
    /// No room; nothing was written. Those behind it get the same, until [`Engine::resume`].
    NoSpace,
    /// Not known to be written, and nothing will ever be again by this holder (a failed sync, a
    /// fault of the caller, an engine closed): stop writing for good, and read the truth back with
    /// a new engine.
    Failed {
        /// What happened, for the log.
        reason: String,
    },
}

/// Called once, from a thread of the engine's, with the outcome.
pub type AppendDone = Box<dyn FnOnce(AppendOutcome) + Send>;

/// As [`AppendDone`], with where the payload of a durable batch lies, from an engine that can read
/// it back.
pub type PlacedDone = Box<dyn FnOnce(AppendOutcome, Option<Place>) + Send>;

/// What recovery hands back, in order: at most one checkpoint, then each batch after it.
pub enum Recovered {
    /// A checkpoint begins: its chunks follow, and stand for all up to this revision.
    Checkpoint(Revision),
    /// The next chunk of the checkpoint, as [`Engine::checkpoint`] was given it.
    Chunk(Bytes),
    /// A batch after the checkpoint.
    Batch(Batch),
}

/// An ordered, durable log of batches with one writer at a time.
///
/// # Contract
///
/// 1. Outcomes are reported in the order of the appends, each once, never from within
///    [`Engine::append`]; appends may be in flight together.
/// 2. After [`AppendOutcome::Durable`], every later recovery returns the batch, or a checkpoint
///    that stands for it.
/// 3. A batch whose `previous` is not the last appended revision, or whose `last` is below its
///    `previous`, is a fault of the caller and is reported as [`AppendOutcome::Failed`]. An engine
///    that holds nothing yet takes any `previous`.
/// 4. After `Failed` or `Fenced` every later append of that epoch reports the same.
/// 5. Recovery returns exactly the durable batches in order, perhaps followed by ones whose
///    outcome was never reported, was `Uncertain` or was `Failed` by a failed write or sync; never
///    a part of a batch, never a gap.
/// 6. A checkpoint that was not completed is as if it had never begun.
/// 7. After `Uncertain`, every append but that same batch (equal revisions, equal bytes) reports
///    `Uncertain` and is not written. Sent again, that batch is in the log once and `Durable`, or
///    `Uncertain` once more.
/// 8. After `NoSpace`, every append made before [`Engine::resume`] reports `NoSpace` and is not
///    written, so that nothing built on a refused batch gets in without it.
/// 9. A batch that takes no revision and stands at the checkpoint's own revision may come back
///    though the checkpoint has it: housekeeping must bear being applied again, in order, on top
///    of its own outcome (assignments, not increments).
/// 10. A checkpoint's `at` is the `last` of a durable batch, and what it holds has every batch that
///     was in the log when the checkpoint before it returned, its outcome heard or not.
pub trait Engine: Send + Sync + 'static {
    /// Takes the lock for `holder` and raises the epoch in the same step.
    ///
    /// # Errors
    /// `Unavailable` when another holder has it, with who; `Corrupt` or `Io` as found.
    fn acquire(&self, holder: &str) -> Result<Epoch, Error>;

    /// Reads back what is durable, oldest first; called once, before the first append. With each
    /// chunk and each batch's payload goes where it lies, from an engine that can read it back.
    ///
    /// # Errors
    /// `Corrupt` when damage precedes valid data (what to do is in the text); `Io`; or what `sink`
    /// answered.
    fn recover_placed(
        &self,
        epoch: Epoch,
        sink: &mut dyn FnMut(Recovered, Option<Place>) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// As [`Engine::recover_placed`], for whoever keeps all of it.
    ///
    /// # Errors
    /// As there.
    fn recover(
        &self,
        epoch: Epoch,
        sink: &mut dyn FnMut(Recovered) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.recover_placed(epoch, &mut |part, _place| sink(part))
    }

    /// Queues a batch; `done` is called when its outcome is known. Never blocks on the disk.
    fn append_placed(&self, epoch: Epoch, batch: Batch, done: PlacedDone);

    /// Makes a batch durable on the caller's thread, which waits for the disk; `None` when something
    /// is in flight or this engine cannot, and [`Engine::append_placed`] is to be called instead.
    /// The outcome is as if it had been reported. For a caller with little to do meanwhile: handing
    /// a small batch to another thread and back costs more than its sync.
    fn append_now(&self, _epoch: Epoch, _batch: &Batch) -> Option<(AppendOutcome, Option<Place>)> {
        None
    }

    /// As [`Engine::append_placed`], for whoever keeps the bytes.
    fn append(&self, epoch: Epoch, batch: Batch, done: AppendDone) {
        let done = |outcome, _place| done(outcome);
        self.append_placed(epoch, batch, Box::new(done));
    }

    /// Takes appends again after [`AppendOutcome::NoSpace`]. The caller first takes back what it
    /// had built on the refused batches; appends made from here on are judged anew.
    fn resume(&self, epoch: Epoch);

    /// Writes a checkpoint that stands for every batch up to `at`, then makes it the newest;
    /// answers where each chunk lies, from an engine that can read it back, else nothing. Blocks;
    /// called from one background thread while appends go on.
    ///
    /// # Errors
    /// `NoSpace`, `Io` (also for an `at` that is not durable, or below the newest checkpoint),
    /// `Stopped` when fenced, failed or closed, or what the chunks answered; the older checkpoint
    /// then still holds.
    fn checkpoint_placed(
        &self,
        epoch: Epoch,
        at: Revision,
        chunks: &mut dyn Iterator<Item = Result<Bytes, Error>>,
    ) -> Result<Vec<Place>, Error>;

    /// As [`Engine::checkpoint_placed`], for chunks that cannot fail and are not looked up again.
    ///
    /// # Errors
    /// As there.
    fn checkpoint(
        &self,
        epoch: Epoch,
        at: Revision,
        chunks: &mut dyn Iterator<Item = Bytes>,
    ) -> Result<(), Error> {
        self.checkpoint_placed(epoch, at, &mut chunks.map(Ok))
            .map(drop)
    }

    /// Forgets batches that the newest checkpoint stands for.
    ///
    /// # Errors
    /// `Io`; the log is then longer than need be and still right.
    fn trim(&self) -> Result<(), Error>;

    /// Whether there was no room for a batch and has not been since: an engine that keeps a reserve
    /// gives it to what is sent meanwhile, which is to be only what makes room.
    fn is_short(&self) -> bool {
        false
    }

    /// Bytes held on stable storage by batches and checkpoints, without room set aside ahead.
    fn size(&self) -> u64;

    /// How long syncs of its log took; nothing from an engine that has none.
    fn syncs(&self) -> Timings {
        Timings::default()
    }

    /// Finishes what is in flight and lets the lock go; later appends report `Failed`. A second
    /// call does nothing.
    fn close(&self);
}

/// What a checkpoint at a revision that is not durable, or is older than the newest, is told.
fn misplaced_checkpoint(at: Revision) -> Error {
    Error::Io {
        action: format!("cannot take a checkpoint at revision={at}"),
        source: std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "the revision is not durable, or lies below the newest checkpoint",
        ),
    }
}
