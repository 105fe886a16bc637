//! Why a move cannot go on, and what to do about it.

use std::path::{Path, PathBuf};

/// A move that ended early; begun again it goes on, unless its text says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// An address or a prefix cannot be understood, or flags do not fit together.
    #[error("{0}")]
    Usage(String),
    /// A certificate or a key cannot be used.
    #[error("cannot use {path}: {reason}")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody answers.
    #[error("cannot reach the {role} at {endpoint}: {reason}")]
    Unreachable {
        /// Source or target.
        role: &'static str,
        /// Its address.
        endpoint: String,
        /// What happened, and for how long it was tried.
        reason: String,
    },
    /// It answered no.
    #[error("the {role} at {endpoint} refused to {call}: {reason}")]
    Refused {
        /// Source or target.
        role: &'static str,
        /// Its address.
        endpoint: String,
        /// What was asked.
        call: &'static str,
        /// Its words.
        reason: String,
    },
    /// The revision being read was compacted away.
    #[error(
        "the {role} has compacted revision {revision} away while it was being read; lengthen its \
         compaction interval while the move runs (kube-apiserver: --etcd-compaction-interval)"
    )]
    Compacted {
        /// Source or target.
        role: &'static str,
        /// The revision that was needed.
        revision: i64,
    },
    /// What is to be filled holds something else.
    #[error("{0}")]
    NotEmpty(String),
    /// The target's revisions are too far behind.
    #[error(
        "the target stands at revision {target} and the source at {source_revision}: clients that \
         know the source would see revisions go back. {needed} cheap writes close the gap: allow \
         them with --pad, or begin with a target whose revision was raised (etcdutl snapshot \
         restore --bump-revision)"
    )]
    Behind {
        /// Where the target stands.
        target: i64,
        /// Where the source stands.
        source_revision: i64,
        /// How many writes it takes.
        needed: i64,
    },
    /// Both sides were read to the end, and are not the same.
    #[error(
        "{count} keys differ, the first is {key}: {how} (source {left}, other side {right}); \
         nothing was taken back: begin the move anew"
    )]
    Differs {
        /// How many keys.
        count: u64,
        /// The first of them.
        key: String,
        /// In what.
        how: String,
        /// The source's digest.
        left: String,
        /// The other side's.
        right: String,
    },
    /// The source did something that cannot be carried over one revision at a time.
    #[error("{0}")]
    Unfit(String),
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// The refusal.
        source: std::io::Error,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] sluice_metastore::Error),
    /// The operator asked to end before it was done.
    #[error("ended before it was done; the same command goes on from here")]
    Interrupted,
}

impl MigrateError {
    pub(super) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Self {
        MigrateError::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// A key as people can read it: printable as it is, everything else escaped.
pub(super) fn shown(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
