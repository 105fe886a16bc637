//! The Watch service: many watches on one stream, one sender for all of them.
//!
//! The response stream itself is the sender: it is polled by its connection when the client can
//! take more, and only then moves its cursors. So there is no queue to fill behind a slow client
//! and no second task whose messages could overtake: created, events, progress and cancelled leave
//! in the order in which they became true.

mod active;
pub(crate) mod nudge;
mod stream;

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use tonic::{Request, Response, Status, Streaming};

use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::watch_server::Watch;
use super::shared::Shared;

/// The service.
pub(crate) struct WatchService(pub(crate) Arc<Shared>);

#[tonic::async_trait]
impl Watch for WatchService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let sender = stream::Sender::new(Arc::clone(&self.0), request.into_inner());
        let responses = futures_util::stream::unfold(Some(sender), |sender| async {
            let mut sender = sender?;
            match sender.next().await {
                Ok(response) => Some((Ok(response), Some(sender))),
                Err(Some(status)) => Some((Err(status), None)),
                Err(None) => None,
            }
        });
        Ok(Response::new(Box::pin(responses)))
    }
}
