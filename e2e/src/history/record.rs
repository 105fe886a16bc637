//! A history as values: calls with their times and outcomes, watches with what they were told.
//!
//! Times are nanoseconds since the run began, of one monotonic clock. Keys and values are text, so
//! that a kept history can be read. Everything is written as JSON and read back the same.

use std::fmt;

use serde::{Deserialize, Serialize};

/// All that was recorded in a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// In any order.
    pub calls: Vec<Call>,
    /// In any order.
    pub watches: Vec<WatchLog>,
    /// When the server was killed and a new one was ready to begin, or it was halted and went on.
    pub restarts: Vec<u64>,
    /// When the run was over.
    pub ended: u64,
}

/// One request of one client, which has one at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Who asked.
    pub client: u32,
    /// Before it was sent.
    pub began: u64,
    /// After its outcome was known.
    pub ended: u64,
    /// What was asked.
    pub request: Request,
    /// What came of it.
    pub outcome: Outcome,
}

impl Call {
    /// The answer, if there was one.
    #[must_use]
    pub fn reply(&self) -> Option<&Reply> {
        match &self.outcome {
            Outcome::Answered(reply) => Some(reply),
            Outcome::Refused(_) | Outcome::Unknown(_) => None,
        }
    }

    /// Whether nobody knows what came of it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self.outcome, Outcome::Unknown(_))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (began, ended) = (ms(self.began), ms(self.ended));
        let Call {
            client,
            request,
            outcome,
            ..
        } = self;
        write!(
            f,
            "client {client} at {began}..{ended} ms: {request:?} -> {outcome:?}"
        )
    }
}

/// Milliseconds, for people.
pub(super) fn ms(nanos: u64) -> u64 {
    nanos / 1_000_000
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub enum Request {
    Range(Range),
    Put(Put),
    Delete(Delete),
    Txn(Txn),
    Compact(i64),
    Grant { id: i64, ttl: i64 },
    Revoke { id: i64 },
    KeepAlive { id: i64 },
    TimeToLive { id: i64 },
}

/// A read; `end` is empty for one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Range {
    pub key: String,
    pub end: String,
    pub revision: i64,
    pub limit: i64,
    pub count_only: bool,
    pub keys_only: bool,
    /// Asked for as a stream, which answers the same in parts.
    #[serde(default)]
    pub stream: bool,
}

/// A write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Put {
    pub key: String,
    pub value: String,
    pub lease: i64,
    pub prev_kv: bool,
    pub ignore_value: bool,
    pub ignore_lease: bool,
}

/// A deletion; `end` is empty for one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Delete {
    pub key: String,
    pub end: String,
    pub prev_kv: bool,
}

/// A transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Txn {
    pub compares: Vec<Compare>,
    pub then: Vec<Op>,
    pub otherwise: Vec<Op>,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub enum Op {
    Range(Range),
    Put(Put),
    Delete(Delete),
    Txn(Txn),
}

/// A condition on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Compare {
    pub key: String,
    pub target: Target,
    pub relation: Relation,
}

/// What is compared, with what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub enum Target {
    Version(i64),
    Create(i64),
    Mod(i64),
    Lease(i64),
    Value(String),
}

/// How.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub enum Relation {
    Equal,
    NotEqual,
    Greater,
    Less,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done.
    Answered(Reply),
    /// The server said why it was not done.
    Refused(Refusal),
    /// It may have been done or not.
    Unknown(String),
}

/// Why the server did not do it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The gRPC code.
    pub code: i32,
    /// The words.
    pub text: String,
}

/// An answer with its header's revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Reply {
    pub revision: i64,
    pub answer: Answer,
}

/// An answer's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub enum Answer {
    Range {
        kvs: Vec<Kv>,
        count: i64,
        more: bool,
    },
    Put {
        prev: Option<Kv>,
    },
    Delete {
        deleted: i64,
        prev: Vec<Kv>,
    },
    Txn {
        succeeded: bool,
        answers: Vec<Answer>,
    },
    /// Of a compaction or a revocation.
    Done,
    /// Of a grant.
    Granted {
        id: i64,
        ttl: i64,
    },
    /// Of a renewal or a question after a lease; not positive when there is no such lease.
    Left {
        ttl: i64,
    },
}

impl Answer {
    /// Whether it says that something was written or deleted.
    #[must_use]
    pub fn is_effective(&self) -> bool {
        match self {
            Answer::Put { .. } => true,
            Answer::Delete { deleted, .. } => *deleted > 0,
            Answer::Txn { answers, .. } => answers.iter().any(Answer::is_effective),
            _ => false,
        }
    }
}

/// A key with its value and what is known of its life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Kv {
    pub key: String,
    pub value: String,
    pub create: i64,
    pub modified: i64,
    pub version: i64,
    pub lease: i64,
}

impl fmt::Display for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kv {
            key,
            value,
            create,
            modified,
            version,
            lease,
        } = self;
        write!(
            f,
            "{key}={value} (create {create}, mod {modified}, version {version}, lease {lease})"
        )
    }
}

/// A change of one key; of a deletion, `kv` has the key and the revision alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Event {
    pub is_delete: bool,
    pub kv: Kv,
    pub prev: Option<Kv>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_delete {
            write!(f, "DELETE {} at {}", self.kv.key, self.kv.modified)
        } else {
            write!(f, "PUT {}", self.kv)
        }
    }
}

/// One watch on one connection; resumed, it is another one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct WatchLog {
    pub client: u32,
    /// The watch that the ledger is made from; there may be several, one after the other.
    pub is_recorder: bool,
    pub key: String,
    pub end: String,
    /// As asked for: zero is from now on.
    pub start: i64,
    pub prev_kv: bool,
    pub no_put: bool,
    pub no_delete: bool,
    /// When it was asked for.
    pub opened: u64,
    pub responses: Vec<WatchResponse>,
    /// It was open when the run ended and is owed everything up to here; zero when it was not.
    pub owed_until: i64,
}

/// What a watch was told in one response.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct WatchResponse {
    pub at: u64,
    pub revision: i64,
    pub created: bool,
    pub canceled: bool,
    pub compact_revision: i64,
    /// More of the same revision may follow.
    pub fragment: bool,
    pub events: Vec<Event>,
}

impl WatchResponse {
    /// Whether it only says how far the watch is.
    #[must_use]
    pub fn is_progress(&self) -> bool {
        self.events.is_empty() && !self.created && !self.canceled
    }
}

impl WatchLog {
    /// Whether it wants such an event.
    #[must_use]
    pub fn wants(&self, event: &Event) -> bool {
        let is_filtered = if event.is_delete {
            self.no_delete
        } else {
            self.no_put
        };
        !is_filtered && in_range(&event.kv.key, &self.key, &self.end)
    }

    /// The first revision it is owed; `None` when it never began.
    #[must_use]
    pub fn first(&self) -> Option<i64> {
        let created = self.responses.iter().find(|one| one.created)?;
        Some(if self.start > 0 {
            self.start
        } else {
            created.revision + 1
        })
    }
}

impl fmt::Display for WatchLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "watch of client {} on [{:?}, {:?}) from {} opened at {} ms",
            self.client,
            self.key,
            self.end,
            self.start,
            ms(self.opened)
        )
    }
}

/// Whether a key lies in a range of etcd's.
#[must_use]
pub fn in_range(key: &str, start: &str, end: &str) -> bool {
    match end {
        "" => key == start,
        "\0" => key >= start,
        end => key >= start && key < end,
    }
}
