//! Access by certificate name: who writes, who reads, who gets nothing, and the broken glass.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::health::HealthCheckRequest;
use sluice_metastore::etcd::client::health::health_client::HealthClient;
use sluice_metastore::etcd::{
    AccessEvent, AccessLog, BreakGlass, EtcdAccess, EtcdOptions, ListenError, Listener,
};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::fixture::*;
use super::pki::Authority;
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;

fn access(break_glass: Option<BreakGlass>) -> EtcdAccess {
    EtcdAccess {
        writers: ["writer".to_owned()].into(),
        readers: ["reader".to_owned()].into(),
        break_glass,
    }
}

/// What an access log was told, in words.
#[derive(Debug, Default)]
struct Notes(Mutex<Vec<String>>);

impl AccessLog for Notes {
    fn note(&self, event: &AccessEvent<'_>) {
        self.0.lock().push(match event {
            AccessEvent::Broken { glass } => format!("broken: {}", glass.reason),
            AccessEvent::Admitted { glass, name, peer } => {
                assert!(peer.ip().is_loopback());
                format!("admitted {name}: {}", glass.reason)
            }
        });
    }
}

struct Guarded {
    address: SocketAddr,
    authority: Authority,
    notes: Arc<Notes>,
    shutdown: CancellationToken,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Guarded {
    async fn start(access: EtcdAccess) -> Guarded {
        let authority = Authority::new();
        let options = EtcdOptions {
            tls: Some(authority.serving()),
            access: Some(access),
            ..EtcdOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))
        };
        let listener = Listener::bind(options).await.unwrap();
        let address = listener.local_addr();
        let notes = Arc::new(Notes::default());
        let listener = listener.with_access_log(Arc::clone(&notes) as Arc<dyn AccessLog>);
        let shutdown = CancellationToken::new();
        tokio::spawn(listener.serve(open(Memory::new()).await, shutdown.clone()));
        Guarded {
            address,
            authority,
            notes,
            shutdown,
        }
    }

    async fn channel(&self, name: &str) -> Channel {
        self.authority.channel(self.address, name).await
    }
}

fn denied<T: std::fmt::Debug>(outcome: Result<T, Status>) {
    assert_refused(
        outcome,
        Code::PermissionDenied,
        "etcdserver: permission denied",
    );
}

/// Every kind of write, each by itself.
async fn writes(channel: &Channel) -> Vec<Result<(), Status>> {
    let mut kv = KvClient::new(channel.clone());
    let mut lease = LeaseClient::new(channel.clone());
    let mut maintenance = MaintenanceClient::new(channel.clone());
    let put = pb::PutRequest {
        key: text("k"),
        value: text("v"),
        ..Default::default()
    };
    let delete = pb::DeleteRangeRequest {
        key: text("x"),
        ..Default::default()
    };
    // Only the branch not taken writes.
    let hidden = txn(
        vec![mod_is("k", 99)],
        vec![put_op("k", "2")],
        vec![get_op("k")],
    );
    let inner = pb::request_op::Request::RequestTxn(hidden.clone());
    let nested = txn(vec![], vec![op(inner)], vec![]);
    let raise = pb::AlarmRequest {
        action: 2,
        member_id: 1,
        alarm: 1,
    };
    let grant = pb::LeaseGrantRequest { ttl: 60, id: 0 };
    vec![
        kv.put(put).await.map(drop),
        kv.delete_range(delete).await.map(drop),
        kv.txn(hidden).await.map(drop),
        kv.txn(nested).await.map(drop),
        lease.lease_grant(grant).await.map(drop),
        maintenance.alarm(raise).await.map(drop),
        maintenance
            .defragment(pb::DefragmentRequest {})
            .await
            .map(drop),
    ]
}

/// Every kind of read, each by itself.
async fn reads(channel: &Channel) -> Vec<Result<(), Status>> {
    let mut kv = KvClient::new(channel.clone());
    let mut maintenance = MaintenanceClient::new(channel.clone());
    let looking = txn(vec![mod_is("k", 99)], vec![get_op("k")], vec![get_op("k")]);
    let requests = tokio_stream::iter(Vec::<pb::WatchRequest>::new());
    vec![
        kv.range(get("k")).await.map(drop),
        kv.txn(looking).await.map(drop),
        WatchClient::new(channel.clone())
            .watch(requests)
            .await
            .map(drop),
        maintenance
            .alarm(pb::AlarmRequest::default())
            .await
            .map(drop),
        maintenance.status(pb::StatusRequest {}).await.map(drop),
        maintenance
            .hash_kv(pb::HashKvRequest::default())
            .await
            .map(drop),
    ]
}

#[tokio::test]
async fn each_name_may_what_was_written_down_for_it() {
    let guarded = Guarded::start(access(None)).await;
    let writer = guarded.channel("writer").await;
    for outcome in writes(&writer)
        .await
        .into_iter()
        .chain(reads(&writer).await)
    {
        outcome.unwrap();
    }
    let reader = guarded.channel("reader").await;
    writes(&reader).await.into_iter().for_each(denied);
    for outcome in reads(&reader).await {
        outcome.unwrap();
    }
    for name in ["other", "Writer", ""] {
        let other = guarded.channel(name).await;
        let all = writes(&other).await.into_iter().chain(reads(&other).await);
        all.for_each(denied);
        let probe = HealthCheckRequest::default();
        HealthClient::new(other).check(probe).await.unwrap();
    }
    assert!(guarded.notes.0.lock().is_empty());
}

#[tokio::test]
async fn broken_glass_lets_everybody_write_and_each_is_noted() {
    let glass = BreakGlass {
        reason: "the CA was lost".to_owned(),
        until: Some(SystemTime::now() + Duration::from_secs(3600)),
    };
    let guarded = Guarded::start(access(Some(glass))).await;
    for name in ["writer", "reader", "other"] {
        let channel = guarded.channel(name).await;
        for outcome in writes(&channel)
            .await
            .into_iter()
            .chain(reads(&channel).await)
        {
            outcome.unwrap();
        }
    }
    let expected = [
        "broken: the CA was lost",
        "admitted reader: the CA was lost",
        "admitted other: the CA was lost",
    ];
    assert_eq!(
        *guarded.notes.0.lock(),
        expected,
        "writers may write anyway"
    );
}

#[tokio::test]
async fn glass_heals_at_its_end_for_connections_that_are_open() {
    let end = SystemTime::now() + Duration::from_secs(2);
    let glass = BreakGlass {
        reason: "a while".to_owned(),
        until: Some(end),
    };
    let guarded = Guarded::start(access(Some(glass))).await;
    let reader = guarded.channel("reader").await;
    let other = guarded.channel("other").await;
    let is_before = SystemTime::now() < end;
    let first = writes(&reader).await;
    if is_before && SystemTime::now() < end {
        first.into_iter().for_each(|outcome| outcome.unwrap());
    }
    let left = end.duration_since(SystemTime::now()).unwrap_or_default();
    tokio::time::sleep(left).await;
    writes(&reader).await.into_iter().for_each(denied);
    for outcome in reads(&reader).await {
        outcome.unwrap();
    }
    reads(&other).await.into_iter().for_each(denied);
}

#[tokio::test]
async fn names_cannot_be_asked_for_where_none_is_shown() {
    let options = EtcdOptions {
        insecure_loopback: true,
        access: Some(access(None)),
        ..EtcdOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    let refused = Listener::bind(options).await.err().expect("a refusal");
    assert!(matches!(refused, ListenError::AccessWithoutNames { .. }));
}
