//! `HashKV`: one number over every key and its latest version at a revision; `Hash`: the same now,
//! with the revision and the leases; that one is never zero for want of keys, which etcd's clients
//! take for no hash.
//!
//! Equal content at equal revisions gives equal numbers, on this store. etcd hashes its own file
//! rows, superseded versions included, so its numbers are other ones.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tonic::Status;

use super::errors;
use super::proto::etcdserverpb as pb;
use super::shared::Shared;
use crate::digest::Digest;
use crate::read::{At, Range};
use crate::{Error, KeyRange, Revision};

/// Records gathered at a time; bounds the memory of a hash over a large store.
const PAGE_RECORDS: usize = 10_000;

/// The answer for a revision; zero or less is the newest.
pub(crate) async fn at(shared: &Arc<Shared>, revision: i64) -> Result<pb::HashKvResponse, Status> {
    let task = Arc::clone(shared);
    let hashed = tokio::task::spawn_blocking(move || hashed(&task, Revision::from_wire(revision)));
    let outcome = hashed.await.unwrap_or_else(|lost| {
        Err(Error::Stopped {
            reason: lost.to_string(),
        })
    });
    let (hash, at) = outcome.map_err(|error| errors::status(&error))?;
    Ok(pb::HashKvResponse {
        header: shared.header_now(),
        hash,
        compact_revision: shared.store.compacted().to_wire(),
        hash_revision: at.to_wire(),
    })
}

/// The answer over keys and leases as they are.
pub(crate) async fn of_all(shared: &Arc<Shared>) -> Result<pb::HashResponse, Status> {
    let keys = at(shared, 0).await?;
    let mut hash = crc32c::crc32c_append(keys.hash, &keys.hash_revision.to_be_bytes());
    for id in shared.store.leases() {
        hash = crc32c::crc32c_append(hash, &id.0.to_be_bytes());
    }
    Ok(pb::HashResponse {
        header: keys.header,
        hash,
    })
}

fn hashed(shared: &Shared, wanted: Option<Revision>) -> Result<(u32, Revision), Error> {
    let at = wanted.unwrap_or_else(|| shared.store.revision());
    let mut query = Range {
        at: At::Exactly(at),
        limit: Some(PAGE_RECORDS),
        ..Range::of(KeyRange::All)
    };
    let mut digest = Digest::default();
    loop {
        let page = shared.store.range(&query)?;
        for record in &page.records {
            digest.add(record);
        }
        let Some(last) = page.records.last().filter(|_| page.more) else {
            return Ok((digest.get(), at));
        };
        let mut next = BytesMut::with_capacity(last.key().len() + 1);
        next.put_slice(last.key());
        next.put_u8(0);
        query.range = KeyRange::From(next.freeze());
    }
}
