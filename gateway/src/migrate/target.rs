//! What is written to a live etcd: transactions that set keys, and the two keys of our own.
//!
//! The marker says that a copy is going on, from where and of what, so that the same command finds
//! its own unfinished work and another's is left alone. Both keys go at the end.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sluice_metastore::etcd::client::etcdserverpb as pb;

use pb::request_op::Request;

use super::MigrateError;
use super::remote::Remote;
use super::side::Span;

/// What our own keys begin with; never copied and never compared.
pub(super) const OWN: &[u8] = b"sluice.migrate/";
/// Says what is going on.
const MARKER: &[u8] = b"sluice.migrate/marker";
/// Written to raise the revision.
pub(super) const PAD: &[u8] = b"sluice.migrate/pad";

/// What the marker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Marker {
    /// Which source: a cluster id or a directory.
    pub(super) source: String,
    /// Prefixes, escaped.
    pub(super) prefixes: Vec<String>,
    /// Drawn for each marker, so that a target is told from a source that is marked the same way.
    pub(super) nonce: String,
}

impl Marker {
    pub(super) fn new(source: String, prefixes: Vec<String>) -> Marker {
        Marker {
            source,
            prefixes,
            nonce: uuid::Uuid::new_v4().to_string(),
        }
    }

    /// Whether it speaks of the same work.
    pub(super) fn is_of(&self, other: &Marker) -> bool {
        self.source == other.source && self.prefixes == other.prefixes
    }
}

/// The marker in the target; an unreadable one is another's.
pub(super) async fn marker(target: &Remote) -> Result<Option<Marker>, MigrateError> {
    let request = pb::RangeRequest {
        key: Bytes::from_static(MARKER),
        ..Default::default()
    };
    let answer = target.range("read its marker", request).await?;
    Ok(answer.kvs.first().map(|kv| {
        serde_json::from_slice(&kv.value)
            .unwrap_or_else(|_| Marker::new("another version".to_owned(), Vec::new()))
    }))
}

/// Writes the marker.
pub(super) async fn mark(target: &Remote, marker: &Marker) -> Result<(), MigrateError> {
    // A value of plain fields has a form in JSON.
    let text = serde_json::to_vec(marker).unwrap_or_default();
    target.txn(puts(vec![(MARKER, Bytes::from(text))])).await?;
    Ok(())
}

/// Removes what is ours; answers the revision after it.
pub(super) async fn unmark(target: &Remote) -> Result<i64, MigrateError> {
    let own = Span::prefix(OWN);
    let delete = pb::DeleteRangeRequest {
        key: own.start,
        range_end: own.end.unwrap_or_default(),
        prev_kv: false,
    };
    target
        .txn(all(vec![op(Request::RequestDeleteRange(delete))]))
        .await
}

/// A transaction that puts these, come what may.
pub(super) fn puts(pairs: Vec<(&'static [u8], Bytes)>) -> pb::TxnRequest {
    let ops = pairs.into_iter().map(|(key, value)| {
        op(Request::RequestPut(pb::PutRequest {
            key: Bytes::from_static(key),
            value,
            ..Default::default()
        }))
    });
    all(ops.collect())
}

/// A transaction of these operations, come what may.
pub(super) fn all(ops: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest {
        success: ops,
        ..Default::default()
    }
}

pub(super) fn op(request: Request) -> pb::RequestOp {
    pb::RequestOp {
        request: Some(request),
    }
}
