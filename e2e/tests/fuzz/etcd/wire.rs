//! A member on a free port over an engine in memory, and bytes to and from it as they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use prost::Message as _;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::{EtcdOptions, Listener};
use sluice_metastore::{Store, StoreOptions};
use tokio_util::sync::CancellationToken;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::model::Model;

/// A connection, and the server at its other end where that is ours.
pub(crate) struct Wire {
    pub(crate) channel: Channel,
    member: Option<(Store, CancellationToken)>,
}

impl Wire {
    /// A member of our own, whose clock stands still: no lease ends by itself.
    pub(crate) async fn start() -> Wire {
        let options = EtcdOptions {
            insecure_loopback: true,
            progress_interval: Duration::from_secs(3600),
            ..EtcdOptions::new(SocketAddr::from(([127, 0, 0, 1], 0)))
        };
        let listener = Listener::bind(options).await.unwrap();
        let address = listener.local_addr();
        let now = Instant::now();
        let options = StoreOptions {
            now: Arc::new(move || now),
            ..StoreOptions::default()
        };
        let store = Store::open(Memory::new(), options).unwrap();
        let shutdown = CancellationToken::new();
        tokio::spawn(listener.serve(store.clone(), shutdown.clone()));
        let mut wire = Wire::connect(&format!("http://{address}")).await;
        wire.member = Some((store, shutdown));
        wire
    }

    /// A member of somebody else's.
    pub(crate) async fn connect(url: &str) -> Wire {
        let endpoint = Endpoint::from_shared(url.to_owned()).unwrap();
        Wire {
            channel: endpoint.connect().await.unwrap(),
            member: None,
        }
    }

    pub(crate) async fn stop(self) {
        if let Some((store, shutdown)) = self.member {
            shutdown.cancel();
            store.close().await;
        }
    }

    /// Empties a member of somebody else's; answers a model of what is left.
    pub(crate) async fn emptied(&self) -> Result<Model, String> {
        let text = |status: Status| status.message().to_owned();
        let ask = pb::LeaseLeasesRequest {}.encode_to_vec();
        let answer = self
            .call("/etcdserverpb.Lease/LeaseLeases", ask.into())
            .await;
        let leases = pb::LeaseLeasesResponse::decode(answer.map_err(text)?).unwrap();
        for lease in leases.leases {
            let ask = pb::LeaseRevokeRequest { id: lease.id }.encode_to_vec();
            let gone = self
                .call("/etcdserverpb.Lease/LeaseRevoke", ask.into())
                .await;
            gone.map_err(text)?;
        }
        let zero = Bytes::from_static(b"\0");
        let put = pb::PutRequest {
            key: zero.clone(),
            ..Default::default()
        };
        let put = self
            .call("/etcdserverpb.KV/Put", put.encode_to_vec().into())
            .await;
        put.map_err(text)?;
        let delete = pb::DeleteRangeRequest {
            key: zero.clone(),
            range_end: zero,
            prev_kv: false,
        };
        let ask = delete.encode_to_vec().into();
        let answer = self.call("/etcdserverpb.KV/DeleteRange", ask).await;
        let answer = pb::DeleteRangeResponse::decode(answer.map_err(text)?).unwrap();
        let revision = answer.header.unwrap_or_default().revision;
        let compact = pb::CompactionRequest {
            revision,
            physical: true,
        };
        let ask = compact.encode_to_vec().into();
        self.call("/etcdserverpb.KV/Compact", ask)
            .await
            .map_err(text)?;
        Ok(Model::at_base(revision, revision))
    }

    /// One message there, one back.
    pub(crate) async fn call(&self, path: &'static str, bytes: Bytes) -> Result<Bytes, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready()
            .await
            .map_err(|e| Status::unknown(e.to_string()))?;
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(Request::new(bytes), path, Plain).await?;
        Ok(answer.into_inner())
    }

    /// One list there, several parts back, put together as a client does.
    pub(crate) async fn stream(&self, path: &'static str, bytes: Bytes) -> Result<Bytes, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready()
            .await
            .map_err(|e| Status::unknown(e.to_string()))?;
        let path = PathAndQuery::from_static(path);
        let answer = grpc
            .server_streaming(Request::new(bytes), path, Plain)
            .await?;
        let mut parts = answer.into_inner();
        let mut whole = pb::RangeResponse::default();
        let mut is_over = false;
        while let Some(part) = parts.message().await? {
            let part = pb::RangeStreamResponse::decode(part)
                .map_err(|e| Status::unknown(e.to_string()))?;
            let part = part.range_response.unwrap_or_default();
            if is_over {
                return Err(Status::unknown("a part follows the last one"));
            }
            is_over = part.header.is_some();
            if !is_over && (part.kvs.is_empty() || part.more || part.count != 0) {
                return Err(Status::unknown(
                    "a part before the last has what only that has",
                ));
            }
            whole.kvs.extend(part.kvs);
            (whole.header, whole.more, whole.count) = (part.header, part.more, part.count);
        }
        Ok(whole.encode_to_vec().into())
    }
}

/// Messages as bytes.
#[derive(Clone, Copy)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }
}
