//! Write requests and their answers, as values: compare, then one branch or the other.

use bytes::Bytes;

use crate::read::{Range, RangeAnswer};
use crate::{KeyRange, LeaseId, Record, Revision};

pub(crate) mod check;
pub(crate) mod evaluate;

/// What a compare looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Changes in the key's present life; 0 when it is absent.
    Version(u64),
    /// Revision the key was born at; 0 when it is absent.
    Create(Revision),
    /// Revision the key was last changed at; 0 when it is absent.
    Mod(Revision),
    /// The value's bytes; an absent key never matches.
    Value(Bytes),
    /// The lease it hangs on; none when it is absent.
    Lease(LeaseId),
}

/// How the key's state must stand to the given one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same.
    Equal,
    /// Not the same.
    NotEqual,
    /// The key's is greater.
    Greater,
    /// The key's is less.
    Less,
}

/// One condition; over a range it holds when it holds for every key there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The keys looked at.
    pub range: KeyRange,
    /// How they must stand.
    pub relation: Relation,
    /// To what.
    pub target: Target,
}

/// A write of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Never empty.
    pub key: Bytes,
    /// `None` keeps the present value (etcd's `ignore_value`), and needs the key to exist.
    pub value: Option<Bytes>,
    /// `None` keeps the present lease (etcd's `ignore_lease`), and needs the key to exist;
    /// `Some(LeaseId::NONE)` detaches it.
    pub lease: Option<LeaseId>,
    /// Whether the answer carries what was there before.
    pub want_previous: bool,
}

/// A delete of every key in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    /// The keys to remove.
    pub range: KeyRange,
    /// Whether the answer carries what was there before.
    pub want_previous: bool,
}

/// One operation of a transaction; they see the effects of those before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Range(Range),
    /// Write one key.
    Put(Put),
    /// Remove keys.
    Delete(Delete),
    /// A transaction within.
    Txn(Txn),
}

/// Compare, then one branch. All its writes share one revision; if none has an effect, no revision
/// is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// All must hold for `success` to run.
    pub compares: Vec<Compare>,
    /// Run when every compare holds.
    pub success: Vec<Op>,
    /// Run otherwise.
    pub failure: Vec<Op>,
}

/// The answer to one operation, in order.
#[derive(Clone, Debug)]
pub enum OpAnswer {
    /// What was read.
    Range(RangeAnswer),
    /// What was there before a put, if asked for.
    Put(Option<Record>),
    /// How many keys a delete removed, and what they were if asked for.
    Delete(u64, Vec<Record>),
    /// The answer of a transaction within.
    Txn(TxnAnswer),
}

/// What a transaction did.
#[derive(Clone, Debug)]
pub struct TxnAnswer {
    /// The write's own revision, or the newest one when it wrote nothing.
    pub revision: Revision,
    /// Whether the compares held.
    pub succeeded: bool,
    /// One answer an operation of the branch that ran.
    pub answers: Vec<OpAnswer>,
}
