//! Steps of the store at which a process may be ended, beside those of its disk.

/// A step; `death` gives each its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A batch is durable, and nothing shows it.
    Durable,
    /// Reads show a batch, and nobody was answered.
    Shown,
    /// The callers of a batch were answered.
    Answered,
    /// Leases are over, and nothing says so yet.
    Expiring,
    /// A compaction is asked for.
    Compacting,
    /// A floor is durable, and nothing shows it.
    FloorDurable,
    /// Something below the floor was let go.
    Sweeping,
    /// A checkpoint has its state, and nothing of it is written.
    Checkpointing,
    /// A checkpoint is durable, and all that it stands for is still there.
    Checkpointed,
}
