//! The Kubernetes API over a store in memory, on plain HTTP at the loopback address, for trying
//! clients against it by hand: everyone is `system:masters`.
//!
//! `cargo run -p sluice-gateway --example api` prints its address; then
//! `kubectl --server=http://127.0.0.1:PORT get namespaces`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use sluice_gateway::api::{ApiOptions, ApiServer};
use sluice_gateway::body::Body;
use sluice_gateway::clock;
use sluice_gateway::context::{Connection, RequestContext, RequestId};
use sluice_gateway::identity::{MASTERS, UserInfo};
use sluice_gateway::request::RequestInfo;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::{Store, StoreOptions};
use tokio::net::{TcpListener, TcpStream};

type Error = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = Store::open(Memory::new(), StoreOptions::default())?;
    let server = ApiServer::open(store, ApiOptions::default())?;
    let port = std::env::args().nth(1).unwrap_or_else(|| "0".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        tokio::spawn(connection(Arc::clone(&server), stream, peer));
    }
}

async fn connection(server: Arc<ApiServer>, stream: TcpStream, peer: SocketAddr) {
    let local = stream.local_addr().unwrap_or(peer);
    let connection = Arc::new(Connection::new(peer, local, clock::now()));
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, connection) = (Arc::clone(&server), Arc::clone(&connection));
        async move { Ok::<_, Infallible>(answer(&server, connection, request).await) }
    });
    let builder = Builder::new(TokioExecutor::new());
    if let Err(error) = builder
        .serve_connection(TokioIo::new(stream), service)
        .await
    {
        eprintln!("connection: {error}");
    }
}

async fn answer(
    server: &ApiServer,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> http::Response<Body> {
    let uri = request.uri().clone();
    let method = request.method().clone();
    let info = match RequestInfo::parse(&method, &uri, request.headers()) {
        Ok(info) => info,
        Err(refusal) => return refusal.into_response(request.headers()),
    };
    let ctx = RequestContext {
        client: connection.peer,
        connection,
        id: RequestId(0),
        received: clock::now(),
        user: Arc::new(UserInfo {
            name: "admin".into(),
            groups: vec![MASTERS.into()],
            ..UserInfo::default()
        }),
        impersonator: None,
        tether: None,
    };
    let response = server.serve(&ctx, &info, request.map(Body::from)).await;
    eprintln!("{} {method} {uri}", response.status().as_u16());
    response
}
