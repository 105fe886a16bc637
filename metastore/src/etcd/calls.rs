//! Counts of calls: by method and how they ended, and by what client libraries say of themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tonic::Code;

use super::counters::Count;
use super::methods::METHODS;

/// Codes of gRPC, zero to sixteen, under the names its own metrics give them.
pub(crate) const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];
/// Versions counted apart: a client chooses the text, so there must be an end to them.
const VERSIONS_MAX: usize = 32;
/// Under which the rest is counted.
const VERSION_OTHER: &str = "other";
/// The longest version counted by itself.
const VERSION_BYTES_MAX: usize = 64;

/// Calls of one version of client.
#[derive(Default)]
pub(crate) struct Requests {
    pub(crate) unary: Count,
    pub(crate) stream: Count,
}

/// All counts of calls.
pub(crate) struct Calls {
    started: Vec<Count>,
    ended: Vec<[Count; CODES.len()]>,
    versions: Mutex<BTreeMap<String, Arc<Requests>>>,
}

impl Default for Calls {
    fn default() -> Self {
        Calls {
            started: METHODS.iter().map(|_| Count::default()).collect(),
            ended: METHODS.iter().map(|_| Default::default()).collect(),
            versions: Mutex::default(),
        }
    }
}

impl Calls {
    /// A call of the method at this place of the table began.
    pub(crate) fn started(&self, place: usize) {
        if let Some(count) = self.started.get(place) {
            count.add(1);
        }
    }

    /// It ended so.
    pub(crate) fn ended(&self, place: usize, code: Code) {
        let code = usize::try_from(i32::from(code)).unwrap_or_default();
        let counts = self.ended.get(place);
        if let Some(count) = counts.and_then(|counts| counts.get(code)) {
            count.add(1);
        }
    }

    /// Where calls of a client's version are counted.
    pub(crate) fn requests_of(&self, version: &str) -> Arc<Requests> {
        let mut versions = self.versions.lock();
        let is_new = !versions.contains_key(version);
        let is_over = versions.len() >= VERSIONS_MAX || version.len() > VERSION_BYTES_MAX;
        let name = if is_new && is_over {
            VERSION_OTHER
        } else {
            version
        };
        Arc::clone(versions.entry(name.to_owned()).or_default())
    }

    /// Each version with its unary calls and its streams.
    pub(crate) fn versions(&self) -> Vec<(String, u64, u64)> {
        let versions = self.versions.lock();
        let counts = |(name, one): (&String, &Arc<Requests>)| {
            (name.clone(), one.unary.get(), one.stream.get())
        };
        versions.iter().map(counts).collect()
    }

    /// For each method, in the table's order: begun, and ended by code.
    pub(crate) fn by_method(&self) -> impl Iterator<Item = (u64, [u64; CODES.len()])> + '_ {
        let ended = self.ended.iter();
        self.started
            .iter()
            .zip(ended)
            .map(|(started, ended)| (started.get(), ended.each_ref().map(Count::get)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_invent_versions_without_end() {
        let calls = Calls::default();
        for n in 0..1000 {
            calls.requests_of(&format!("3.{n}")).unary.add(1);
        }
        calls.requests_of(&"x".repeat(65)).unary.add(1);
        let versions = calls.versions();
        assert_eq!(versions.len(), VERSIONS_MAX + 1);
        let counted: u64 = versions.iter().map(|(_, unary, _)| unary).sum();
        assert_eq!(counted, 1001, "none is lost");
    }
}
