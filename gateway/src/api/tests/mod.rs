//! The API through its own door, over a store in memory: requests in, answers out.

mod access;
mod crud;
mod lists;
mod namespaces;
mod patches;
mod protobuf;
mod watches;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::store::{Store, StoreOptions};

use super::{ApiOptions, ApiServer};
use crate::body::Body;
use crate::clock;
use crate::context::{Connection, RequestContext, RequestId};
use crate::identity::{MASTERS, UserInfo};
use crate::request::RequestInfo;

/// How long a test waits for what must come; longer than a bookmark takes on a paused clock.
const PATIENCE: Duration = Duration::from_secs(90);

struct Client {
    server: Arc<ApiServer>,
    connection: Arc<Connection>,
}

/// An answer, read to its end.
#[derive(Debug)]
struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    json: Value,
}

impl Client {
    /// A server of its own, with what a cluster starts with in it.
    async fn new() -> Client {
        let client = Client::over(store());
        client
            .server
            .start()
            .await
            .expect("what a cluster starts with");
        client
    }

    fn over(store: Store) -> Client {
        let server = ApiServer::open(store, ApiOptions::default()).expect("store is readable");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let connection = Arc::new(Connection::new(address, address, clock::now()));
        Client { server, connection }
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        let (method, uri) = (request.method(), request.uri());
        let info = match RequestInfo::parse(method, uri, request.headers()) {
            Ok(info) => info,
            Err(refusal) => return refusal.into_response(request.headers()),
        };
        let ctx = RequestContext {
            connection: Arc::clone(&self.connection),
            client: self.connection.peer,
            id: RequestId(1),
            received: clock::now(),
            user: Arc::new(UserInfo {
                name: "tester".into(),
                groups: vec![MASTERS.into()],
                ..UserInfo::default()
            }),
            impersonator: None,
            tether: None,
        };
        self.server.serve(&ctx, &info, request).await
    }

    async fn call(&self, method: Method, uri: &str, body: Option<(&str, String)>) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        if let Some((media, _)) = &body {
            request = request.header("content-type", *media);
        }
        let body = body.map_or(Body::Empty, |(_, text)| Body::from(text.into_bytes()));
        let response = self.send(request.body(body).expect("a request")).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a whole body").to_bytes();
        Answer {
            code: parts.status,
            headers: parts.headers,
            json: serde_json::from_slice(&bytes).expect("JSON"),
        }
    }

    async fn get(&self, uri: &str) -> Answer {
        self.call(Method::GET, uri, None).await
    }

    async fn post(&self, uri: &str, object: Value) -> Answer {
        let body = ("application/json", object.to_string());
        self.call(Method::POST, uri, Some(body)).await
    }

    async fn put(&self, uri: &str, object: Value) -> Answer {
        let body = ("application/json", object.to_string());
        self.call(Method::PUT, uri, Some(body)).await
    }

    async fn patch(&self, kind: &str, uri: &str, patch: Value) -> Answer {
        let media = format!("application/{kind}-patch+json");
        self.call(Method::PATCH, uri, Some((&media, patch.to_string())))
            .await
    }

    async fn delete(&self, uri: &str) -> Answer {
        self.call(Method::DELETE, uri, None).await
    }

    /// Creates what must be creatable.
    async fn make(&self, uri: &str, object: Value) -> Value {
        let answer = self.post(uri, object).await;
        assert_eq!(answer.code, 201, "{:?}", answer.json);
        answer.json
    }

    async fn watch(&self, uri: &str) -> Stream {
        let request = Request::get(uri).body(Body::Empty).expect("a request");
        let response = self.send(request).await;
        assert_eq!(response.status(), 200);
        Stream {
            body: response.into_body(),
            rest: Vec::new(),
        }
    }
}

/// The events of a watch.
struct Stream {
    body: Body,
    rest: Vec<u8>,
}

impl Stream {
    /// The next event; `None` at the stream's clean end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.rest.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=at).collect();
                return Some(serde_json::from_slice(&line).expect("a frame is a line of JSON"));
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            let frame = frame.expect("an event within the test's patience")?;
            let data = frame.expect("no break").into_data().expect("data");
            self.rest.extend_from_slice(&data);
        }
    }

    /// The next event as type, name and resource version.
    async fn told(&mut self) -> (String, String, u64) {
        let event = self.next().await.expect("an event");
        let text = |at: &str| {
            event
                .pointer(at)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let version = text("/object/metadata/resourceVersion")
            .parse()
            .unwrap_or(0);
        (
            text("/type").into(),
            text("/object/metadata/name").into(),
            version,
        )
    }
}

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn labelled(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}})
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items").iter();
    items
        .map(|i| i["metadata"]["name"].as_str().unwrap())
        .collect()
}

fn store() -> Store {
    Store::open(Memory::new(), StoreOptions::default()).expect("a store in memory")
}
