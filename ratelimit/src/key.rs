//! The name of one counted thing: a rule and the values of its key fields, as bytes.
//!
//! Each field is preceded by its length, so that `("ab", "c")` and `("a", "bc")` differ. Keys are
//! built on the stack; only those longer than [`INLINE`] bytes (a few names) allocate.

use std::fmt;

/// The room of a key without allocation: a service account's name, a namespace, a resource.
const INLINE: usize = 184;

/// A rule's number, stable over reloads; its owner gives them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(u64);

impl RuleId {
    /// Bytes that a key spends on its rule.
    pub(crate) const LEN: usize = 8;

    /// The rule of that number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        RuleId(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The rule that a key's bytes begin with.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let number = bytes.first_chunk().copied().unwrap_or_default();
        RuleId(u64::from_be_bytes(number))
    }
}

/// A rule and the values of its key fields.
#[derive(Clone)]
pub struct Key(Room);

#[derive(Clone)]
enum Room {
    Inline { bytes: [u8; INLINE], len: usize },
    Heap(Vec<u8>),
}

impl Key {
    /// The rule's one key without fields.
    #[must_use]
    pub fn new(rule: RuleId) -> Self {
        let mut key = Key(Room::Inline {
            bytes: [0; INLINE],
            len: 0,
        });
        key.put(&rule.0.to_be_bytes());
        key
    }

    /// Adds a field's value.
    pub fn field(&mut self, value: &[u8]) {
        let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
        self.put(&len.to_be_bytes());
        self.put(value);
    }

    /// The rule it belongs to.
    #[must_use]
    pub fn rule(&self) -> RuleId {
        RuleId::of(self.as_bytes())
    }

    /// The whole key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Room::Inline { bytes, len } => bytes.get(..*len).unwrap_or_default(),
            Room::Heap(bytes) => bytes,
        }
    }

    fn put(&mut self, part: &[u8]) {
        match &mut self.0 {
            Room::Heap(bytes) => bytes.extend_from_slice(part),
            Room::Inline { bytes, len } => {
                let end = *len + part.len();
                if let Some(room) = bytes.get_mut(*len..end) {
                    room.copy_from_slice(part);
                    *len = end;
                    return;
                }
                let mut heap = Vec::with_capacity(2 * end);
                heap.extend_from_slice(self.as_bytes());
                heap.extend_from_slice(part);
                self.0 = Room::Heap(heap);
            }
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.as_bytes().get(RuleId::LEN..).unwrap_or_default();
        write!(f, "{:?}:{}", self.rule(), fields.escape_ascii())
    }
}
