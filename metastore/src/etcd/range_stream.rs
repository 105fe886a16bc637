//! `RangeStream`: one list in several messages, so that neither end holds all of it at once.
//!
//! The first chunk pins the revision; later writes are not seen, and a compaction past it ends the
//! stream with the compacted error. Only the last chunk carries header, `more` and `count`: clients
//! take a stream that ends without them for broken, and an empty chunk before the last for a fault.
//! Nothing is read ahead of what the client takes. A list by another field than the key is one chunk,
//! since its first record may be the last one read.

use std::pin::Pin;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, stream};
use tonic::Status;

use super::kv::REQUEST_BYTES_MAX;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::range_request::SortOrder;
use super::shared::Shared;
use super::{answer, convert, errors};
use crate::read::{At, Projection, Range, RangeAnswer};
use crate::{Error, KeyRange, Revision};

/// etcd's first chunk; small, so that the first bytes leave soon.
const CHUNK_RECORDS_FIRST: usize = 10;

/// The chunks of one answer.
pub(crate) type RangeChunks =
    Pin<Box<dyn Stream<Item = Result<pb::RangeStreamResponse, Status>> + Send>>;

/// Checks the request and prepares its chunks.
pub(crate) fn chunks(
    shared: &Arc<Shared>,
    request: &pb::RangeRequest,
) -> Result<RangeChunks, Status> {
    let query = convert::range(request)?;
    if query.sort.is_some() && request.sort_order != i32::from(SortOrder::None) {
        return Err(errors::stream_sort_unsupported());
    }
    if query.mod_bounds != (None, None) || query.create_bounds != (None, None) {
        return Err(errors::stream_bounds_unsupported());
    }
    // A field without an order: ascending, as in a single answer.
    let whole = query.sort.is_some();
    shared.counters.range_streams.add(1);
    let progress = Progress {
        shared: Arc::clone(shared),
        left: query.limit,
        chunk: if whole {
            usize::MAX
        } else {
            CHUNK_RECORDS_FIRST
        },
        query,
        began: None,
        streamed: 0,
    };
    if whole {
        return Ok(Box::pin(stream::once(sorted(progress))));
    }
    Ok(Box::pin(stream::unfold(Some(progress), |progress| async {
        let mut progress = progress?;
        match progress.next_chunk().await {
            Ok((chunk, true)) => Some((Ok(chunk), None)),
            Ok((chunk, false)) => Some((Ok(chunk), Some(progress))),
            Err(status) => Some((Err(status), None)),
        }
    })))
}

/// Gathered and sorted where blocking holds nobody up.
async fn sorted(mut progress: Progress) -> Result<pb::RangeStreamResponse, Status> {
    let gathered = tokio::task::spawn_blocking(move || progress.only_chunk()).await;
    match gathered {
        Ok(outcome) => outcome.map(|(chunk, _last)| chunk),
        Err(lost) => Err(errors::status(&Error::Stopped {
            reason: lost.to_string(),
        })),
    }
}

struct Progress {
    shared: Arc<Shared>,
    query: Range,
    /// Records the client still wants; `None` is all.
    left: Option<usize>,
    chunk: usize,
    /// The store's revision when the stream began, even for a read of an older one.
    began: Option<Revision>,
    streamed: u64,
}

impl Progress {
    /// The next chunk, and whether it is the last.
    async fn next_chunk(&mut self) -> Result<(pb::RangeStreamResponse, bool), Status> {
        self.limit();
        let answer = self.shared.store.read(&self.query).await;
        self.word(answer.map_err(|error| errors::status(&error))?)
    }

    /// The same. Blocks.
    fn only_chunk(&mut self) -> Result<(pb::RangeStreamResponse, bool), Status> {
        self.limit();
        let answer = self.shared.store.range(&self.query);
        self.word(answer.map_err(|error| errors::status(&error))?)
    }

    fn limit(&mut self) {
        self.query.limit = Some(self.left.map_or(self.chunk, |left| left.min(self.chunk)));
    }

    fn word(&mut self, answer: RangeAnswer) -> Result<(pb::RangeStreamResponse, bool), Status> {
        let began = *self.began.get_or_insert(answer.revision);
        if self.query.at == At::Latest {
            self.query.at = At::Exactly(began);
        }
        let records = answer.records.len();
        self.left = self.left.map(|left| left.saturating_sub(records));
        let last = !answer.more
            || self.left == Some(0)
            || self.query.projection == Projection::CountOnly
            || !self.advance(&answer);
        let keys_only = self.query.projection == Projection::KeysOnly;
        let count = answer.count;
        let mut body = answer::range(answer, keys_only);
        if last {
            body.header = self.shared.header(began);
            body.count = i64::try_from(self.streamed + count).unwrap_or(i64::MAX);
        } else {
            body.more = false;
            body.count = 0;
            self.streamed += records as u64;
        }
        Ok((
            pb::RangeStreamResponse {
                range_response: Some(body),
            },
            last,
        ))
    }

    /// Moves on past what was answered and sizes the next chunk; false when nothing was.
    fn advance(&mut self, answer: &RangeAnswer) -> bool {
        let Some(last) = answer.records.last() else {
            return false;
        };
        let next = after(last.key());
        self.query.range = match &self.query.range {
            KeyRange::Between(_, end) => KeyRange::Between(next, end.clone()),
            KeyRange::From(_) | KeyRange::All => KeyRange::From(next),
            KeyRange::Key(_) => return false,
        };
        let bytes: usize = answer
            .records
            .iter()
            .map(|record| record.encoded().len())
            .sum();
        self.chunk = next_chunk_records(self.chunk, bytes);
        true
    }
}

/// Doubles or halves towards the size of the largest request, and stays put near it.
fn next_chunk_records(records: usize, bytes: usize) -> usize {
    if bytes < REQUEST_BYTES_MAX / 2 {
        records.saturating_mul(2)
    } else if bytes > REQUEST_BYTES_MAX * 2 {
        (records / 2).max(1)
    } else {
        records
    }
}

/// The least key greater than `key`.
fn after(key: &[u8]) -> Bytes {
    let mut next = BytesMut::with_capacity(key.len() + 1);
    next.put_slice(key);
    next.put_u8(0);
    next.freeze()
}
