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

use bytes::Bytes;

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
    /// It may or may not be there. The same bytes under the same revision may be sent again until
    /// the engine knows.
    Uncertain {
        /// What happened, for the log.
        reason: String,
    },
    /// No room; nothing was written, and a smaller or later append may succeed.
    NoSpace,
    /// Not written, and nothing will ever be again (a failed sync): stop writing for good.
    Failed {
        /// What happened, for the log.
        reason: String,
    },
}

/// Called once, from a thread of the engine's, with the outcome.
pub type AppendDone = Box<dyn FnOnce(AppendOutcome) + Send>;

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
/// 1. Outcomes are reported in the order of the appends, and appends may be in flight together.
/// 2. After [`AppendOutcome::Durable`], every later recovery returns the batch.
/// 3. A batch whose `previous` is not the last appended revision is a fault of the caller and is
///    reported as [`AppendOutcome::Failed`].
/// 4. After `Failed` or `Fenced` every later append reports the same.
/// 5. Recovery returns exactly the durable batches in order, perhaps followed by ones whose
///    outcome was never reported or was `Uncertain`; never a part of a batch, never a gap.
/// 6. A checkpoint that was not completed is as if it had never begun.
pub trait Engine: Send + Sync + 'static {
    /// Takes the lock for `holder` and raises the epoch in the same step.
    ///
    /// # Errors
    /// `Unavailable` when another holder has it, with who; `Corrupt` or `Io` as found.
    fn acquire(&self, holder: &str) -> Result<Epoch, Error>;

    /// Reads back what is durable, oldest first; called once, before the first append.
    ///
    /// # Errors
    /// `Corrupt` when damage precedes valid data (what to do is in the text); `Io`; or what `sink`
    /// answered.
    fn recover(
        &self,
        epoch: Epoch,
        sink: &mut dyn FnMut(Recovered) -> Result<(), Error>,
    ) -> Result<(), Error>;

    /// Queues a batch; `done` is called when its outcome is known. Never blocks on the disk.
    fn append(&self, epoch: Epoch, batch: Batch, done: AppendDone);

    /// Writes a checkpoint that stands for every batch up to `at`, then makes it the newest.
    /// Blocks; called from a background thread while appends go on.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, or `Stopped` when fenced; the older checkpoint then still holds.
    fn checkpoint(
        &self,
        epoch: Epoch,
        at: Revision,
        chunks: &mut dyn Iterator<Item = Bytes>,
    ) -> Result<(), Error>;

    /// Forgets batches that the newest checkpoint stands for.
    ///
    /// # Errors
    /// `Io`; the log is then longer than need be and still right.
    fn trim(&self) -> Result<(), Error>;

    /// Bytes held on stable storage: log and checkpoints.
    fn size(&self) -> u64;

    /// Finishes what is in flight, lets the lock go and stops the engine's threads.
    fn close(&self);
}
