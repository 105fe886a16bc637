//! An etcd's client, plainly generated, and what the tests fill a store with.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::mvccpb::{Event, KeyValue};
use tonic::transport::{Channel, Endpoint};

use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::request_op::Request as Op;
use pb::watch_client::WatchClient;

/// Far above what any step takes; only a fault runs into it.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// A connection to an etcd or a Sluice.
#[derive(Clone)]
pub(crate) struct Wire(Channel);

impl Wire {
    pub(crate) async fn connect(url: &str) -> Wire {
        let endpoint = Endpoint::from_shared(url.to_owned()).unwrap();
        Wire(endpoint.connect().await.unwrap())
    }

    fn kv(&self) -> KvClient<Channel> {
        KvClient::new(self.0.clone()).max_decoding_message_size(usize::MAX)
    }

    pub(crate) async fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> i64 {
        self.put_on(key, value, 0).await
    }

    pub(crate) async fn put_on(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        lease: i64,
    ) -> i64 {
        let request = pb::PutRequest {
            key: key.into(),
            value: value.into(),
            lease,
            ..Default::default()
        };
        let answer = self.kv().put(request).await.unwrap().into_inner();
        answer.header.unwrap().revision
    }

    pub(crate) async fn delete(&self, key: &str, end: &str) -> i64 {
        let request = pb::DeleteRangeRequest {
            key: text(key),
            range_end: text(end),
            ..Default::default()
        };
        let answer = self.kv().delete_range(request).await.unwrap().into_inner();
        answer.header.unwrap().revision
    }

    /// Puts several keys in one revision, in this order.
    pub(crate) async fn together(&self, keys: &[&str]) {
        let puts = keys.iter().map(|key| pb::RequestOp {
            request: Some(Op::RequestPut(pb::PutRequest {
                key: text(key),
                value: text("together"),
                ..Default::default()
            })),
        });
        let request = pb::TxnRequest {
            success: puts.collect(),
            ..Default::default()
        };
        self.kv().txn(request).await.unwrap();
    }

    pub(crate) async fn compact(&self, revision: i64) {
        let request = pb::CompactionRequest {
            revision,
            physical: true,
        };
        self.kv().compact(request).await.unwrap();
    }

    /// Everything, and the revision it stands at.
    pub(crate) async fn all(&self) -> (Vec<KeyValue>, i64) {
        self.range("", 0).await.unwrap()
    }

    pub(crate) async fn prefix(&self, prefix: &str) -> Vec<KeyValue> {
        self.range(prefix, 0).await.unwrap().0
    }

    /// Keys from a prefix on at a revision.
    pub(crate) async fn range(
        &self,
        prefix: &str,
        revision: i64,
    ) -> Result<(Vec<KeyValue>, i64), tonic::Status> {
        let zero = Bytes::from_static(b"\0");
        let end = prefix.as_bytes().split_last().map(|(last, before)| {
            let end = [before, &[last + 1]].concat();
            Bytes::from(end)
        });
        let request = pb::RangeRequest {
            key: Some(text(prefix))
                .filter(|key| !key.is_empty())
                .unwrap_or(zero.clone()),
            range_end: end.unwrap_or(zero),
            revision,
            ..Default::default()
        };
        let answer = self.kv().range(request).await?.into_inner();
        Ok((answer.kvs, answer.header.unwrap().revision))
    }

    pub(crate) async fn grant(&self, id: i64, ttl: i64) {
        let request = pb::LeaseGrantRequest { id, ttl };
        let mut client = LeaseClient::new(self.0.clone());
        client.lease_grant(request).await.unwrap();
    }

    /// What is left of a lease, and its keys.
    pub(crate) async fn lease(&self, id: i64) -> (i64, Vec<Bytes>) {
        let request = pb::LeaseTimeToLiveRequest { id, keys: true };
        let mut client = LeaseClient::new(self.0.clone());
        let answer = client.lease_time_to_live(request).await.unwrap();
        let mut answer = answer.into_inner();
        answer.keys.sort();
        (answer.ttl, answer.keys)
    }

    /// So many events from a revision on.
    pub(crate) async fn events(&self, start: i64, count: usize) -> Vec<Event> {
        let create = pb::WatchCreateRequest {
            key: Bytes::from_static(b"\0"),
            range_end: Bytes::from_static(b"\0"),
            start_revision: start,
            ..Default::default()
        };
        let create = pb::WatchRequest {
            request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
        };
        let requests = stream::iter([create]).chain(stream::pending());
        let mut client = WatchClient::new(self.0.clone());
        let mut answers = client.watch(requests).await.unwrap().into_inner();
        let mut events = Vec::new();
        while events.len() < count {
            let answer = tokio::time::timeout(PATIENCE, answers.message()).await;
            let answer = answer.expect("an event").unwrap().unwrap();
            assert!(!answer.canceled, "{answer:?}");
            events.extend(answer.events);
        }
        events
    }
}

/// A lease with keys, and one without.
pub(crate) const LEASE: i64 = 0x1234_5678;
pub(crate) const BARE_LEASE: i64 = 77;
pub(crate) const TTL: i64 = 4000;

/// Fills a store with whatever a key can be: born, changed, gone, born again, binary, large, on a
/// lease, several in one revision; compacted in between. The last revision deletes five keys.
pub(crate) async fn fill(wire: &Wire) -> i64 {
    wire.grant(LEASE, TTL).await;
    wire.grant(BARE_LEASE, TTL).await;
    for n in 0..400 {
        let key = format!("/registry/pods/{}", n % 150);
        wire.put(key, vec![b'v'; 3000 + n]).await;
        if n % 10 == 0 {
            let key = format!("/registry/events/{n}");
            wire.put_on(key, "event", LEASE).await;
        }
        if n % 40 == 39 {
            wire.delete("/registry/pods/1", "/registry/pods/10").await;
            wire.together(&["/registry/z", "/registry/a", "/other/key"])
                .await;
        }
        if n == 200 {
            let (_, revision) = wire.all().await;
            wire.compact(revision - 20).await;
        }
    }
    wire.put(vec![0xff, 0xff, 0], vec![0, 0xff]).await;
    wire.put(vec![1], "").await;
    wire.put("/registry/large", vec![b'l'; 1 << 20]).await;
    for n in 0..5 {
        wire.put(format!("/gone/{n}"), "soon").await;
    }
    wire.delete("/gone/", "/gone0").await
}
