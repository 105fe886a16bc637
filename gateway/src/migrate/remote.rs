//! One etcd, reached through whichever of its endpoints answers.
//!
//! A call that fails for a passing reason (no connection, no leader, too many requests) is made
//! again, at the next endpoint, for two minutes; each try is said. So only calls that may be made
//! twice go through here: reads, and writes that set a value.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::maintenance_client::MaintenanceClient;
use pb::watch_client::WatchClient;

use super::access::Address;
use super::report::Report;
use super::{Access, MigrateError};

/// A page of one value as large as an etcd was ever set to take, or of many small ones.
const MESSAGE_BYTES: usize = 64 << 20;
/// A page of [`MESSAGE_BYTES`] over a line of 10 Mbit/s.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A connection that takes longer is taken for none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// etcd's own client pings as often; a server refuses what is more frequent than 5 s.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A member that is restarted is back by then.
const RETRY_FOR: Duration = Duration::from_secs(120);
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(5);
/// A revision of 1.5 MiB asked for in parts, and what its server adds.
const EVENTS_BYTES: usize = MESSAGE_BYTES;

/// What a revision was asked of, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Which cluster answered.
    pub(super) cluster: u64,
    /// Its newest revision.
    pub(super) revision: i64,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Remote(Arc<Inner>);

struct Inner {
    role: &'static str,
    addresses: Vec<Address>,
    tls: Option<Arc<ClientConfig>>,
    connection: Mutex<Connection>,
    report: Arc<dyn Report>,
}

#[derive(Default)]
struct Connection {
    /// Which address is tried next, or is connected to.
    at: usize,
    channel: Option<Channel>,
}

impl Remote {
    /// Connects to the first endpoint that answers. `role` is what the operator calls it.
    ///
    /// # Errors
    /// When none does: there is no waiting for one that was never there.
    pub(super) async fn connect(
        access: &Access,
        role: &'static str,
        report: Arc<dyn Report>,
    ) -> Result<(Remote, Standing), MigrateError> {
        let addresses = access.addresses()?;
        let tls = access.tls.client(&addresses)?;
        let remote = Remote(Arc::new(Inner {
            role,
            addresses,
            tls,
            connection: Mutex::default(),
            report,
        }));
        let mut last = None;
        for _ in 0..remote.0.addresses.len() {
            match remote.channel().await {
                Ok(_) => {
                    let standing = remote.standing().await?;
                    return Ok((remote, standing));
                }
                Err(reason) => {
                    let connection = remote.0.connection.lock().await;
                    last = Some(remote.unreachable(&connection, reason));
                }
            }
            remote.leave().await;
        }
        Err(last.unwrap_or(MigrateError::Interrupted))
    }

    pub(super) fn role(&self) -> &'static str {
        self.0.role
    }

    /// Where it stands now.
    pub(super) async fn standing(&self) -> Result<Standing, MigrateError> {
        let request = pb::RangeRequest {
            key: Bytes::from_static(b"\0"),
            count_only: true,
            ..Default::default()
        };
        let answer = self.range("read its revision", request).await?;
        let header = answer.header.unwrap_or_default();
        Ok(Standing {
            cluster: header.cluster_id,
            revision: header.revision,
        })
    }

    pub(super) async fn range(
        &self,
        call: &'static str,
        request: pb::RangeRequest,
    ) -> Result<pb::RangeResponse, MigrateError> {
        let request = &request;
        self.call(call, |channel| async move {
            let client = KvClient::new(channel);
            let mut client = client.max_decoding_message_size(MESSAGE_BYTES);
            client.range(request.clone()).await
        })
        .await
    }

    /// A transaction that sets values, and so may be made twice.
    pub(super) async fn txn(&self, request: pb::TxnRequest) -> Result<i64, MigrateError> {
        let request = &request;
        let answer = self.call("write", |channel| async move {
            KvClient::new(channel).txn(request.clone()).await
        });
        Ok(answer.await?.header.unwrap_or_default().revision)
    }

    pub(super) async fn leases(&self) -> Result<Vec<i64>, MigrateError> {
        let answer = self.call("list its leases", |channel| async move {
            let client = LeaseClient::new(channel);
            let mut client = client.max_decoding_message_size(MESSAGE_BYTES);
            client.lease_leases(pb::LeaseLeasesRequest {}).await
        });
        Ok(answer.await?.leases.iter().map(|lease| lease.id).collect())
    }

    /// What is left of a lease, in seconds; `None` when it has ended.
    pub(super) async fn lease_left(&self, id: i64) -> Result<Option<i64>, MigrateError> {
        let answer = self.call("say what is left of a lease", |channel| async move {
            let request = pb::LeaseTimeToLiveRequest { id, keys: false };
            LeaseClient::new(channel).lease_time_to_live(request).await
        });
        Ok(Some(answer.await?.ttl).filter(|left| *left > 0))
    }

    /// Grants a lease under an id; one that is there already stays as it is.
    pub(super) async fn grant(&self, id: i64, ttl: i64) -> Result<(), MigrateError> {
        let granted = self.call("grant a lease", |channel| async move {
            let request = pb::LeaseGrantRequest { id, ttl };
            let granted = LeaseClient::new(channel).lease_grant(request).await;
            match granted {
                Err(status) if status.code() == Code::FailedPrecondition => {
                    Ok(Response::new(pb::LeaseGrantResponse::default()))
                }
                other => other,
            }
        });
        granted.await.map(drop)
    }

    /// Begins a watch of everything from a revision on.
    pub(super) async fn watch(
        &self,
        start: i64,
    ) -> Result<Streaming<pb::WatchResponse>, MigrateError> {
        self.call("watch", |channel| async move {
            let create = pb::WatchCreateRequest {
                key: Bytes::from_static(b"\0"),
                range_end: Bytes::from_static(b"\0"),
                start_revision: start,
                fragment: true,
                ..Default::default()
            };
            let create = pb::WatchRequest {
                request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
            };
            // The stream of requests stays open as long as the answers are read.
            let requests = stream::iter([create]).chain(stream::pending());
            let mut request = Request::new(requests);
            // A member cut off from its cluster must end the stream rather than be silent.
            let yes = tonic::metadata::MetadataValue::from_static("true");
            request.metadata_mut().insert("hasleader", yes);
            let client = WatchClient::new(channel);
            let mut client = client.max_decoding_message_size(EVENTS_BYTES);
            client.watch(request).await
        })
        .await
    }

    /// Begins a snapshot.
    pub(super) async fn snapshot(&self) -> Result<Streaming<pb::SnapshotResponse>, MigrateError> {
        self.call("take a snapshot", |channel| async move {
            let client = MaintenanceClient::new(channel);
            let mut client = client.max_decoding_message_size(MESSAGE_BYTES);
            client.snapshot(pb::SnapshotRequest {}).await
        })
        .await
    }

    /// What an answer that broke off is called.
    pub(super) async fn broke_off(&self, call: &'static str, status: &Status) -> MigrateError {
        self.refused(call, status).await
    }

    /// Asks until there is an answer that is not a passing failure.
    async fn call<T, F>(
        &self,
        call: &'static str,
        ask: impl Fn(Channel) -> F,
    ) -> Result<T, MigrateError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let started = Instant::now();
        let mut pause = PAUSE_FIRST;
        loop {
            let reason = match self.channel().await {
                Ok(channel) => match timeout(CALL_TIMEOUT, ask(channel)).await {
                    Ok(Ok(answer)) => return Ok(answer.into_inner()),
                    Ok(Err(status)) if is_passing(&status) => status.message().to_owned(),
                    Ok(Err(status)) => return Err(self.refused(call, &status).await),
                    Err(_elapsed) => format!("no answer within {CALL_TIMEOUT:?}"),
                },
                Err(reason) => reason,
            };
            if started.elapsed() > RETRY_FOR {
                let reason = format!("{reason} (asked to {call} for {RETRY_FOR:?})");
                let connection = self.0.connection.lock().await;
                return Err(self.unreachable(&connection, reason));
            }
            let role = self.0.role;
            self.0.report.say(&format!(
                "the {role} does not answer, trying again to {call}: {reason}"
            ));
            self.leave().await;
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MOST);
        }
    }

    /// The connection there is, or a new one.
    async fn channel(&self) -> Result<Channel, String> {
        let mut connection = self.0.connection.lock().await;
        if let Some(channel) = &connection.channel {
            return Ok(channel.clone());
        }
        let at = connection.at % self.0.addresses.len();
        let address = self.0.addresses.get(at).ok_or("no endpoint")?;
        let channel = open(address, self.0.tls.clone()).await?;
        connection.channel = Some(channel.clone());
        Ok(channel)
    }

    /// Gives the connection up; the next endpoint is tried.
    pub(super) async fn leave(&self) {
        let mut connection = self.0.connection.lock().await;
        connection.channel = None;
        connection.at = (connection.at + 1) % self.0.addresses.len();
    }

    fn unreachable(&self, connection: &Connection, reason: String) -> MigrateError {
        MigrateError::Unreachable {
            role: self.0.role,
            endpoint: self.endpoint(connection),
            reason,
        }
    }

    async fn refused(&self, call: &'static str, status: &Status) -> MigrateError {
        let connection = self.0.connection.lock().await;
        MigrateError::Refused {
            role: self.0.role,
            endpoint: self.endpoint(&connection),
            call,
            reason: status.message().to_owned(),
        }
    }

    fn endpoint(&self, connection: &Connection) -> String {
        let address = self.0.addresses.get(connection.at);
        address.map_or_else(String::new, |address| address.url.clone())
    }
}

/// Whether the same question may get another answer soon.
pub(super) fn is_passing(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Aborted => true,
        Code::ResourceExhausted => status.message().contains("too many requests"),
        // What the transport says of a broken connection; etcd's own texts begin with its name.
        Code::Unknown | Code::Internal => !status.message().starts_with("etcdserver"),
        _ => false,
    }
}

async fn open(address: &Address, tls: Option<Arc<ClientConfig>>) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(address.url.clone())
        .map_err(|error| error.to_string())?
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(CONNECT_TIMEOUT)
        .initial_stream_window_size(16 << 20)
        .initial_connection_window_size(32 << 20);
    let tls = tls.filter(|_| address.is_tls);
    let (host, port) = (address.host.clone(), address.port);
    let connector = tower::service_fn(move |_uri: http::Uri| {
        let (host, tls) = (host.clone(), tls.clone());
        async move { dial(&host, port, tls).await }
    });
    let connected = endpoint.connect_with_connector(connector).await;
    connected.map_err(|error| causes(&error))
}

/// A byte stream to an etcd, encrypted or not.
trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for T {}

async fn dial(
    host: &str,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
) -> std::io::Result<TokioIo<Box<dyn Stream>>> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else {
        return Ok(TokioIo::new(Box::new(stream)));
    };
    let name = ServerName::try_from(host.to_owned()).map_err(std::io::Error::other)?;
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    Ok(TokioIo::new(Box::new(stream)))
}

/// An error with what lies beneath it, where the useful part is.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}
