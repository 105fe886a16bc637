//! The checks behind `/livez`, `/readyz` and `/health`.
//!
//! Alive is what can read: a restart is no cure for a full disk. Ready is what takes writes as well
//! and is not about to end.

use super::alarms;
use super::proto::etcdserverpb::AlarmType;
use super::shared::Shared;
use crate::KeyRange;
use crate::read::{Projection, Range};

const DATA_CORRUPTION: &str = "data_corruption";
const LOCAL_READ: &str = "serializable_read";
const READ: &str = "linearizable_read";
const NON_LEARNER: &str = "non_learner";
const LIVE: [&str; 1] = [LOCAL_READ];
const READY: [&str; 4] = [DATA_CORRUPTION, LOCAL_READ, READ, NON_LEARNER];

/// A set of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    Live,
    Ready,
}

impl Probe {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Probe::Live => "/livez",
            Probe::Ready => "/readyz",
        }
    }

    /// The names of its checks, in the order they run.
    pub(crate) fn checks(self) -> &'static [&'static str] {
        match self {
            Probe::Live => &LIVE,
            Probe::Ready => &READY,
        }
    }
}

/// Runs one check by its name, and counts what came of it.
///
/// # Errors
/// Why it fails.
pub(crate) fn check(shared: &Shared, probe: Probe, name: &'static str) -> Result<(), String> {
    let outcome = match name {
        DATA_CORRUPTION => corruption(shared),
        LOCAL_READ => local_read(shared),
        READ => read(shared),
        // There are none.
        _ => Ok(()),
    };
    shared.counters.checked(probe, name, outcome.is_ok());
    outcome
}

fn corruption(shared: &Shared) -> Result<(), String> {
    let all = alarms::list(shared);
    let is_corrupt = all.iter().any(|one| one.alarm() == AlarmType::Corrupt);
    if is_corrupt {
        return Err("alarm activated: CORRUPT".to_owned());
    }
    Ok(())
}

/// Whether what is there can be read.
pub(crate) fn local_read(shared: &Shared) -> Result<(), String> {
    let query = Range {
        limit: Some(1),
        projection: Projection::KeysOnly,
        ..Range::of(KeyRange::All)
    };
    let read = shared.store.range(&query);
    read.map(drop).map_err(|error| error.to_string())
}

/// Whether what is there can be read and is the newest there will be: it takes writes.
pub(crate) fn read(shared: &Shared) -> Result<(), String> {
    if shared.stopping.is_cancelled() {
        return Err("draining".to_owned());
    }
    match shared.store.failure() {
        Some(reason) => Err(reason),
        None => local_read(shared),
    }
}
