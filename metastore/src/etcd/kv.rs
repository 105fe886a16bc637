//! The KV service: reads, writes, transactions, compaction.
//!
//! Reads are served from the store's published root and never wait for a write. A write answers
//! when it is durable, with its own revision.

use std::sync::Arc;

use prost::Message;
use tonic::{Request, Response, Status};

use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::kv_server::Kv;
use super::range_stream::{self, RangeChunks};
use super::shared::Shared;
use super::{access, answer, convert, errors};
use crate::read::{At, Projection, Range, RangeAnswer};
use crate::txn::{OpAnswer, TxnAnswer};
use crate::{Error, KeyRange, Revision};

/// etcd's `--max-request-bytes`; what kube-apiserver's own limit of an object is built on.
pub(crate) const REQUEST_BYTES_MAX: usize = 1536 * 1024;
/// Records up to which a read is gathered on the spot: some tens of microseconds. Longer ones move
/// to a thread that may block, so that a full list does not hold up the connections of its core.
const INLINE_RECORDS_MAX: usize = 512;

/// The service.
#[derive(Clone)]
pub(crate) struct KvService(pub(crate) Arc<Shared>);

impl KvService {
    /// Whether a read is gathered on the spot.
    pub(crate) fn is_short(&self, query: &Range) -> bool {
        query.projection == Projection::CountOnly
            || matches!(query.range, KeyRange::Key(_))
            || self.is_small(query)
    }

    pub(crate) async fn read(&self, query: Range) -> Result<RangeAnswer, Status> {
        let outcome = if self.is_short(&query) {
            self.0.store.read(&query).await
        } else {
            let store = self.0.store.clone();
            let gathered = tokio::task::spawn_blocking(move || store.range(&query)).await;
            gathered.unwrap_or_else(|lost| {
                Err(Error::Stopped {
                    reason: lost.to_string(),
                })
            })
        };
        outcome.map_err(|error| errors::status(&error))
    }

    /// Whether few records will be gathered. Counting what is there now costs next to nothing;
    /// counting the past may not, so there only a limit tells.
    fn is_small(&self, query: &Range) -> bool {
        if query.limit.is_some_and(|limit| limit <= INLINE_RECORDS_MAX) && query.sort.is_none() {
            return true;
        }
        let count = Range {
            projection: Projection::CountOnly,
            ..Range::of(query.range.clone())
        };
        let is_now = query.at == At::Latest;
        is_now
            && self
                .0
                .store
                .range(&count)
                .is_ok_and(|now| now.count <= INLINE_RECORDS_MAX as u64)
    }

    /// The answer to a read.
    pub(crate) fn answer_range(
        &self,
        request: &pb::RangeRequest,
        answer: RangeAnswer,
    ) -> pb::RangeResponse {
        self.0.counters.ranges.add(1);
        // How kube-apiserver asks for the current revision before a consistent list: one key that
        // does not exist. Its watch on that prefix is then told at once that it is up to date.
        if answer.count == 0 && request.limit == 1 && request.range_end.is_empty() {
            let nudged = self.0.nudges.touch(&request.key);
            self.0.counters.progress_pushed.add(nudged);
        }
        pb::RangeResponse {
            header: self.0.header(answer.revision),
            ..answer::range(answer, request.keys_only)
        }
    }

    /// The answer to a write of one key.
    pub(crate) fn answer_put(&self, done: TxnAnswer) -> pb::PutResponse {
        self.0.counters.puts.add(1);
        let previous = match done.answers.into_iter().next() {
            Some(OpAnswer::Put(previous)) => previous,
            _ => None,
        };
        pb::PutResponse {
            header: self.0.header(done.revision),
            ..answer::put(previous)
        }
    }

    /// The answer to a delete.
    pub(crate) fn answer_delete(&self, done: TxnAnswer) -> pb::DeleteRangeResponse {
        self.0.counters.deletes.add(1);
        let (deleted, previous) = match done.answers.into_iter().next() {
            Some(OpAnswer::Delete(deleted, previous)) => (deleted, previous),
            _ => (0, Vec::new()),
        };
        pb::DeleteRangeResponse {
            header: self.0.header(done.revision),
            ..answer::delete(deleted, previous)
        }
    }

    /// The answer to a transaction; see [`answer::txn`] for what the request is for.
    pub(crate) fn answer_txn(
        &self,
        done: TxnAnswer,
        request: Option<&pb::TxnRequest>,
    ) -> pb::TxnResponse {
        self.0.counters.txns.add(1);
        pb::TxnResponse {
            header: self.0.header(done.revision),
            ..answer::txn(done, request)
        }
    }
}

#[tonic::async_trait]
impl Kv for KvService {
    type RangeStreamStream = RangeChunks;

    async fn range(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<pb::RangeResponse>, Status> {
        let request = request.into_inner();
        let answer = self.read(convert::range(&request)?).await?;
        let body = self.answer_range(&request, answer);
        let taken = self.0.room.take(body.encoded_len()).await?;
        let mut response = Response::new(body);
        if let Some(taken) = taken {
            response.extensions_mut().insert(taken);
        }
        Ok(response)
    }

    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<RangeChunks>, Status> {
        self.0.counters.ranges.add(1);
        range_stream::chunks(&self.0, &request.into_inner()).map(Response::new)
    }

    async fn put(
        &self,
        request: Request<pb::PutRequest>,
    ) -> Result<Response<pb::PutResponse>, Status> {
        let request = within_limit(request, self.0.request_bytes_max)?;
        let put = convert::put(&request)?;
        let done = self.0.settle(self.0.store.put(put)).await?;
        Ok(Response::new(self.answer_put(done)))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let delete = convert::delete(&within_limit(request, self.0.request_bytes_max)?)?;
        let done = self.0.settle(self.0.store.delete(delete)).await?;
        Ok(Response::new(self.answer_delete(done)))
    }

    async fn txn(
        &self,
        request: Request<pb::TxnRequest>,
    ) -> Result<Response<pb::TxnResponse>, Status> {
        access::check_txn(request.extensions(), request.get_ref())?;
        let request = within_limit(request, self.0.request_bytes_max)?;
        let txn = convert::txn(&request, self.0.txn_ops_max)?;
        let done = self.0.settle(self.0.store.txn(txn)).await?;
        Ok(Response::new(self.answer_txn(done, Some(&request))))
    }

    /// `physical` asks to wait until the space is free. The store forgets as it goes and its floor
    /// holds at once, so both forms answer alike.
    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let at = Revision::from_wire(request.into_inner().revision).unwrap_or(Revision::ZERO);
        let current = self.0.settle(self.0.store.compact(at)).await?;
        Ok(Response::new(pb::CompactionResponse {
            header: self.0.header(current),
        }))
    }
}

fn within_limit<M: Message>(request: Request<M>, bytes_max: usize) -> Result<M, Status> {
    let request = request.into_inner();
    if request.encoded_len() > bytes_max {
        return Err(errors::too_large());
    }
    Ok(request)
}
