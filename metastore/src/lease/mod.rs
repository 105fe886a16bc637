//! Time-bounded ownership of keys: what is known of a lease, and when it ends.
//!
//! That a lease exists, and what hangs on it, is part of the store's state and of its log. When it
//! ends is not: deadlines live in `expiry::Expiry` alone, and begin anew at the full time to live
//! when the store is opened, so that a lease never ends early.

pub(crate) mod expiry;

use std::time::Duration;

use bytes::Bytes;

/// A lease as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// The time to live it was granted, and gets again with each renewal.
    pub granted: Duration,
    /// What is left of it.
    pub remaining: Duration,
    /// The keys that go with it, in order.
    pub keys: Vec<Bytes>,
}
