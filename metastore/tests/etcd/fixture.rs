//! One member on a free port over the memory engine, and short words for what the cases say often.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::mvccpb::Event;
use sluice_metastore::etcd::{EtcdOptions, Listener};
use sluice_metastore::store::{Store, StoreOptions};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::request_op::Request as Op;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;

/// Far above what any step takes; only a fault runs into it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running member. It stops when dropped.
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    pub(crate) channel: Channel,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Member {
    /// Without periodic progress, so that what is heard was asked for.
    pub(crate) async fn start() -> Member {
        Member::with_progress_interval(Duration::from_secs(3600)).await
    }

    pub(crate) async fn with_progress_interval(progress_interval: Duration) -> Member {
        Member::with_options(EtcdOptions {
            progress_interval,
            ..plain()
        })
        .await
    }

    pub(crate) async fn with_write_timeout(write_timeout: Duration) -> Member {
        Member::with_options(EtcdOptions {
            write_timeout,
            ..plain()
        })
        .await
    }

    pub(crate) async fn with_options(options: EtcdOptions) -> Member {
        Member::over(Memory::new(), options, StoreOptions::default()).await
    }

    pub(crate) async fn with_quota(quota_bytes: u64) -> Member {
        let store = StoreOptions {
            quota_bytes,
            ..StoreOptions::default()
        };
        Member::over(Memory::new(), plain(), store).await
    }

    pub(crate) async fn with_engine(engine: Arc<Memory>) -> Member {
        Member::over(engine, plain(), StoreOptions::default()).await
    }

    async fn over(engine: Arc<Memory>, options: EtcdOptions, store: StoreOptions) -> Member {
        let listener = Listener::bind(options).await.unwrap();
        let address = listener.local_addr();
        let store = open_with(engine, store).await;
        let shutdown = CancellationToken::new();
        tokio::spawn(listener.serve(store, shutdown.clone()));
        let channel = connect(address).await;
        Member {
            address,
            shutdown,
            channel,
        }
    }

    pub(crate) fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX)
    }

    pub(crate) fn lease(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    pub(crate) fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    /// A watch stream without watches.
    pub(crate) async fn watching(&self) -> Watching {
        let (requests, outgoing) = mpsc::channel(64);
        let outgoing = tokio_stream::wrappers::ReceiverStream::new(outgoing);
        let mut client =
            WatchClient::new(self.channel.clone()).max_decoding_message_size(usize::MAX);
        let responses = client.watch(outgoing).await.unwrap().into_inner();
        Watching {
            requests,
            responses,
        }
    }

    /// Asks for progress as an apiserver does whose lists wait.
    pub(crate) async fn begin_pushing(&self) {
        let mut watching = self.watching().await;
        let id = watching.create(watch_prefix("/", 0)).await.watch_id;
        watching.ask_progress().await;
        assert_eq!((id, watching.next().await.watch_id), (0, -1));
    }

    /// kube-apiserver's create: put if the key does not exist.
    pub(crate) async fn create(&self, key: &str, value: &str) -> pb::TxnResponse {
        let request = txn(vec![mod_is(key, 0)], vec![put_op(key, value)], vec![]);
        self.kv().txn(request).await.unwrap().into_inner()
    }

    /// kube-apiserver's update: put if the revision is still this one, else read.
    pub(crate) async fn update(&self, key: &str, value: &str, at: i64) -> pb::TxnResponse {
        let request = txn(
            vec![mod_is(key, at)],
            vec![put_op(key, value)],
            vec![get_op(key)],
        );
        self.kv().txn(request).await.unwrap().into_inner()
    }

    /// kube-apiserver's delete.
    pub(crate) async fn delete(&self, key: &str, at: i64) -> pb::TxnResponse {
        let request = txn(
            vec![mod_is(key, at)],
            vec![delete_op(key)],
            vec![get_op(key)],
        );
        self.kv().txn(request).await.unwrap().into_inner()
    }

    /// A plain put; answers its revision.
    pub(crate) async fn put(&self, key: &str, value: &str) -> i64 {
        let request = pb::PutRequest {
            key: text(key),
            value: text(value),
            ..Default::default()
        };
        revision(&self.kv().put(request).await.unwrap().into_inner().header)
    }

    pub(crate) async fn compact(&self, revision: i64) -> Result<i64, Status> {
        let request = pb::CompactionRequest {
            revision,
            physical: true,
        };
        let answer = self.kv().compact(request).await?.into_inner();
        Ok(self::revision(&answer.header))
    }

    pub(crate) async fn range(&self, request: pb::RangeRequest) -> pb::RangeResponse {
        self.kv().range(request).await.unwrap().into_inner()
    }
}

/// Plain text on a free port, without periodic progress.
pub(crate) fn plain() -> EtcdOptions {
    EtcdOptions {
        insecure_loopback: true,
        progress_interval: Duration::from_secs(3600),
        ..EtcdOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    }
}

pub(crate) async fn open(engine: Arc<Memory>) -> Store {
    open_with(engine, StoreOptions::default()).await
}

async fn open_with(engine: Arc<Memory>, options: StoreOptions) -> Store {
    tokio::task::spawn_blocking(|| Store::open(engine, options))
        .await
        .unwrap()
        .unwrap()
}

pub(crate) async fn connect(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// Both directions of a watch stream.
pub(crate) struct Watching {
    pub(crate) requests: mpsc::Sender<pb::WatchRequest>,
    pub(crate) responses: Streaming<pb::WatchResponse>,
}

impl Watching {
    pub(crate) async fn ask(&mut self, request: RequestUnion) {
        self.requests
            .send(pb::WatchRequest {
                request_union: Some(request),
            })
            .await
            .unwrap();
    }

    pub(crate) async fn send_create(&mut self, request: pb::WatchCreateRequest) {
        self.ask(RequestUnion::CreateRequest(request)).await;
    }

    /// Begins a watch and takes its first response.
    pub(crate) async fn create(&mut self, request: pb::WatchCreateRequest) -> pb::WatchResponse {
        self.send_create(request).await;
        let created = self.next().await;
        assert!(
            created.created,
            "the first response of a watch is Created: {created:?}"
        );
        created
    }

    pub(crate) async fn ask_progress(&mut self) {
        self.ask(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}))
            .await;
    }

    pub(crate) async fn cancel(&mut self, watch_id: i64) {
        self.ask(RequestUnion::CancelRequest(pb::WatchCancelRequest {
            watch_id,
        }))
        .await;
    }

    pub(crate) async fn next(&mut self) -> pb::WatchResponse {
        self.try_next().await.unwrap()
    }

    pub(crate) async fn try_next(&mut self) -> Result<pb::WatchResponse, Status> {
        let next = tokio::time::timeout(PATIENCE, self.responses.message()).await;
        let next = next.expect("a watch response was due");
        next.map(|response| response.expect("the stream goes on"))
    }

    /// The next `n` events, however they are grouped.
    pub(crate) async fn events(&mut self, n: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < n {
            let response = self.next().await;
            assert!(
                !response.events.is_empty(),
                "events were due, not {response:?}"
            );
            events.extend(response.events);
        }
        assert_eq!(events.len(), n);
        events
    }

    /// Proves that nothing was pending: the next thing heard answers this.
    pub(crate) async fn nothing_before_now(&mut self) {
        let key = text("/fence");
        let created = self
            .create(pb::WatchCreateRequest {
                key,
                ..Default::default()
            })
            .await;
        self.cancel(created.watch_id).await;
        assert!(self.next().await.canceled);
    }
}

pub(crate) fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The end of the keys that start with `prefix`.
pub(crate) fn end_of(prefix: &str) -> Bytes {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut().unwrap() += 1;
    end.into()
}

pub(crate) fn revision(header: &Option<pb::ResponseHeader>) -> i64 {
    let header = header.as_ref().expect("every answer has a header");
    assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);
    header.revision
}

pub(crate) fn get(key: &str) -> pb::RangeRequest {
    pb::RangeRequest {
        key: text(key),
        ..Default::default()
    }
}

pub(crate) fn list(prefix: &str) -> pb::RangeRequest {
    pb::RangeRequest {
        key: text(prefix),
        range_end: end_of(prefix),
        ..Default::default()
    }
}

pub(crate) fn watch_prefix(prefix: &str, start_revision: i64) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest {
        key: text(prefix),
        range_end: end_of(prefix),
        start_revision,
        prev_kv: true,
        progress_notify: true,
        ..Default::default()
    }
}

pub(crate) fn txn(
    compare: Vec<pb::Compare>,
    success: Vec<pb::RequestOp>,
    failure: Vec<pb::RequestOp>,
) -> pb::TxnRequest {
    pb::TxnRequest {
        compare,
        success,
        failure,
    }
}

pub(crate) fn mod_is(key: &str, revision: i64) -> pb::Compare {
    pb::Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: text(key),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..Default::default()
    }
}

pub(crate) fn op(request: Op) -> pb::RequestOp {
    pb::RequestOp {
        request: Some(request),
    }
}

pub(crate) fn put_op(key: &str, value: &str) -> pb::RequestOp {
    op(Op::RequestPut(pb::PutRequest {
        key: text(key),
        value: text(value),
        ..Default::default()
    }))
}

pub(crate) fn get_op(key: &str) -> pb::RequestOp {
    op(Op::RequestRange(get(key)))
}

pub(crate) fn delete_op(key: &str) -> pb::RequestOp {
    op(Op::RequestDeleteRange(pb::DeleteRangeRequest {
        key: text(key),
        ..Default::default()
    }))
}

/// The keys read by the first operation of a transaction's answer.
pub(crate) fn read_of(answer: &pb::TxnResponse) -> &pb::RangeResponse {
    match answer
        .responses
        .first()
        .and_then(|one| one.response.as_ref())
    {
        Some(pb::response_op::Response::ResponseRange(range)) => range,
        other => panic!("a range answer was due, not {other:?}"),
    }
}

/// Asserts a refusal by the code and text that clients compare.
pub(crate) fn assert_refused<T: std::fmt::Debug>(
    outcome: Result<T, Status>,
    code: Code,
    text: &str,
) {
    let status = outcome.expect_err(text);
    assert_eq!((status.code(), status.message()), (code, text));
}
