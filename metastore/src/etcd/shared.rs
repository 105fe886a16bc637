//! What every service of the listener holds: the store, who this member is, and the counters.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::admission::{Budget, Room};
use super::alarms::Alarms;
use super::calls::Calls;
use super::counters::Counters;
use super::errors;
use super::proto::etcdserverpb::ResponseHeader;
use super::watch::nudge::Nudges;
use crate::store::Store;
use crate::{Error, Revision};
use tonic::Status;

/// The version of the API that is answered; clients choose features by it, and 3.7 is the first with
/// streamed lists.
pub const VERSION: &str = "3.7.3";
/// The same without the patch, as etcd's cluster and storage versions are.
pub(crate) const VERSION_MINOR: &str = "3.7.0";
/// The same as etcd's answers about downgrades have it.
pub(crate) const CLUSTER_VERSION: &str = "3.7";
/// One member without elections: the term never changes, and clients only want it non-zero.
pub(crate) const TERM: u64 = 1;

/// Who this member is to its clients.
pub(crate) struct Member {
    pub(crate) cluster_id: u64,
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) client_urls: Vec<String>,
    /// Shown and never used.
    pub(crate) peer_urls: Vec<String>,
}

impl Member {
    /// Ids are made from the name, so that they outlive restarts; etcd makes its own so too.
    pub(crate) fn new(name: String, client_urls: Vec<String>, peer_urls: Vec<String>) -> Self {
        Member {
            cluster_id: id_of("cluster", "sluice"),
            id: id_of("member", &name),
            name,
            client_urls,
            peer_urls,
        }
    }
}

fn id_of(kind: &str, name: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(kind.as_bytes());
    hash.update([0]);
    hash.update(name.as_bytes());
    let first = hash.finalize().into_iter().take(8);
    // The lowest bit keeps it off zero, which clients take for "none".
    first.fold(0_u64, |id, byte| (id << 8) | u64::from(byte)) | 1
}

/// One per listener, behind an `Arc`.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) member: Member,
    pub(crate) counters: Counters,
    pub(crate) calls: Calls,
    pub(crate) alarms: Alarms,
    pub(crate) nudges: Nudges,
    pub(crate) room: Room,
    pub(crate) snapshots: super::snapshot::Desk,
    /// What requests may hold that are not read to their end.
    pub(crate) bodies: Budget,
    /// Cancelled when the listener drains: endless streams end themselves then.
    pub(crate) stopping: CancellationToken,
    pub(crate) progress_interval: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) txn_ops_max: usize,
    pub(crate) request_bytes_max: usize,
}

/// etcd reads a message up to its request limit and half a mebibyte around it.
const OVERHEAD_BYTES: usize = 512 * 1024;

impl Shared {
    /// What a message may have that is read at all.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.request_bytes_max.saturating_add(OVERHEAD_BYTES)
    }

    /// The header of an answer as of `revision`.
    pub(crate) fn header(&self, revision: Revision) -> Option<ResponseHeader> {
        Some(ResponseHeader {
            cluster_id: self.member.cluster_id,
            member_id: self.member.id,
            revision: revision.to_wire(),
            raft_term: TERM,
        })
    }

    /// The header of an answer about now.
    pub(crate) fn header_now(&self) -> Option<ResponseHeader> {
        self.header(self.store.revision())
    }

    /// Waits for a change of the store, but not for ever: past the deadline its outcome is unknown
    /// to us, and the wire has a word for that.
    pub(crate) async fn settle<T>(
        &self,
        change: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Status> {
        match tokio::time::timeout(self.write_timeout, change).await {
            Ok(outcome) => outcome.map_err(|error| errors::status(&error)),
            Err(_elapsed) => Err(errors::timed_out()),
        }
    }
}
