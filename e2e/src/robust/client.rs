//! One client of the store: asks one thing at a time and has it written down.

use std::sync::Arc;
use std::time::Duration;

use sluice_metastore::etcd::client::etcdserverpb as pb;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;

use super::tape::Tape;
use super::wire;
use crate::history::{Answer, Outcome, Refusal, Reply, Request};

/// After this a client gives up and does not know; kube-apiserver does after five seconds or more.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a refused connection is not tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// A client with a connection of its own.
#[derive(Debug)]
pub struct Client {
    tape: Arc<Tape>,
    id: u32,
    target: watch::Receiver<String>,
    channel: Channel,
}

/// A connection to whatever the URL names, made when first used.
///
/// # Panics
/// When the URL is none, which is a fault of the test.
pub(super) fn connect(target: &mut watch::Receiver<String>) -> Channel {
    let url = target.borrow_and_update().clone();
    Endpoint::from_shared(url)
        .expect("a URL of a server")
        .connect_timeout(Duration::from_secs(1))
        .connect_lazy()
}

impl Client {
    /// Of the server that `target` names now or later.
    #[must_use]
    pub fn new(tape: &Arc<Tape>, target: &watch::Receiver<String>) -> Self {
        let mut target = target.clone();
        Client {
            channel: connect(&mut target),
            id: tape.client(),
            tape: Arc::clone(tape),
            target,
        }
    }

    /// The history that it writes.
    #[must_use]
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// Asks; the answer if there is one. What came of it is on the tape in any case.
    pub async fn ask(&mut self, request: Request) -> Option<Reply> {
        if self.target.has_changed().unwrap_or(false) {
            self.channel = connect(&mut self.target);
        }
        let began = self.tape.now();
        let asked = tokio::time::timeout(PATIENCE, send(self.channel.clone(), &request)).await;
        let outcome = match asked {
            Ok(Ok(reply)) => Outcome::Answered(reply),
            Ok(Err(status)) => of_status(&status),
            Err(_elapsed) => Outcome::Unknown(format!("no answer within {PATIENCE:?}")),
        };
        if let Outcome::Answered(reply) = &outcome {
            match (&request, &reply.answer) {
                (_, Answer::Granted { id, .. }) => self.tape.granted(*id),
                (Request::Compact(revision), _) => self.tape.compacted(*revision),
                _ => {}
            }
        }
        self.tape.call(self.id, began, request, outcome.clone());
        match outcome {
            Outcome::Answered(reply) => Some(reply),
            Outcome::Refused(_) => None,
            Outcome::Unknown(_) => {
                tokio::time::sleep(PAUSE).await;
                None
            }
        }
    }
}

impl Client {
    /// Has the server write a checkpoint and let go what it stands for; not on the tape, since it
    /// changes nothing that anybody sees.
    pub async fn checkpoint(&mut self) {
        let mut maintenance = MaintenanceClient::new(self.channel.clone());
        let asked = maintenance.defragment(pb::DefragmentRequest {});
        // A server that died in the midst of it has done what it was asked for.
        let _answer = tokio::time::timeout(PATIENCE, asked).await;
    }
}

/// What the server said, if it was the server.
fn of_status(status: &Status) -> Outcome {
    let text = status.message().to_owned();
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Unimplemented => Outcome::Refused(Refusal {
            code: status.code().into(),
            text,
        }),
        code => Outcome::Unknown(format!("{code:?}: {text}")),
    }
}

async fn send(channel: Channel, request: &Request) -> Result<Reply, Status> {
    let kv = || KvClient::new(channel.clone()).max_decoding_message_size(usize::MAX);
    let leases = || LeaseClient::new(channel.clone());
    Ok(match request {
        Request::Range(range) if range.stream => streamed(kv(), wire::range(range)).await?,
        Request::Range(range) => {
            let answer = kv().range(wire::range(range)).await?.into_inner();
            wire::reply(answer.header, wire::range_answer(answer))
        }
        Request::Put(put) => {
            let answer = kv().put(wire::put(put)).await?.into_inner();
            wire::reply(answer.header, wire::put_answer(answer))
        }
        Request::Delete(delete) => {
            let answer = kv().delete_range(wire::delete(delete)).await?.into_inner();
            wire::reply(answer.header, wire::delete_answer(answer))
        }
        Request::Txn(txn) => {
            let answer = kv().txn(wire::txn(txn)).await?.into_inner();
            wire::reply(answer.header, wire::txn_answer(answer))
        }
        Request::Compact(revision) => {
            let request = pb::CompactionRequest {
                revision: *revision,
                physical: false,
            };
            let answer = kv().compact(request).await?.into_inner();
            wire::reply(answer.header, Answer::Done)
        }
        Request::Grant { id, ttl } => {
            let request = pb::LeaseGrantRequest { ttl: *ttl, id: *id };
            let answer = leases().lease_grant(request).await?.into_inner();
            let (id, ttl) = (answer.id, answer.ttl);
            wire::reply(answer.header, Answer::Granted { id, ttl })
        }
        Request::Revoke { id } => {
            let request = pb::LeaseRevokeRequest { id: *id };
            let answer = leases().lease_revoke(request).await?.into_inner();
            wire::reply(answer.header, Answer::Done)
        }
        Request::KeepAlive { id } => renew(leases(), *id).await?,
        Request::TimeToLive { id } => {
            let request = pb::LeaseTimeToLiveRequest {
                id: *id,
                keys: false,
            };
            let answer = leases().lease_time_to_live(request).await?.into_inner();
            // A lease in its last second has none left in whole ones, and is there all the same.
            let is_there = answer.granted_ttl > 0;
            let ttl = if is_there {
                answer.ttl.max(1)
            } else {
                answer.ttl
            };
            wire::reply(answer.header, Answer::Left { ttl })
        }
    })
}

/// A list in parts; the last one says what an answer in one piece would.
async fn streamed(mut kv: KvClient<Channel>, request: pb::RangeRequest) -> Result<Reply, Status> {
    let mut parts = kv.range_stream(request).await?.into_inner();
    let mut whole = pb::RangeResponse::default();
    while let Some(part) = parts.message().await? {
        let part = part.range_response.unwrap_or_default();
        let mut kvs = std::mem::take(&mut whole.kvs);
        kvs.extend(part.kvs);
        whole = pb::RangeResponse {
            header: part.header,
            count: part.count,
            more: part.more,
            kvs,
        };
    }
    if whole.header.is_none() {
        return Err(Status::unavailable("the stream ended before its last part"));
    }
    let header = whole.header.take();
    Ok(wire::reply(header, wire::range_answer(whole)))
}

/// One renewal on a stream of its own.
async fn renew(mut leases: LeaseClient<Channel>, id: i64) -> Result<Reply, Status> {
    let request = pb::LeaseKeepAliveRequest { id };
    let asked = tokio_stream::once(request);
    let mut answers = leases.lease_keep_alive(asked).await?.into_inner();
    let answer = answers.message().await?;
    let answer = answer.ok_or_else(|| Status::unavailable("the stream ended without an answer"))?;
    Ok(wire::reply(answer.header, Answer::Left { ttl: answer.ttl }))
}
