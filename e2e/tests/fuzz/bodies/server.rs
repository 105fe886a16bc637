//! An API server over a store in memory, asked in process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sluice_gateway::api::{ApiOptions, ApiServer};
use sluice_gateway::body::Body;
use sluice_gateway::context::{Connection, RequestContext, RequestId};
use sluice_gateway::identity::{MASTERS, UserInfo};
use sluice_gateway::request::RequestInfo;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::{Store, StoreOptions};
use tokio::runtime::{Builder, Runtime};

use super::check_answer;

/// The server, with an object called `a` of the kinds that are asked about.
pub(crate) struct Server {
    runtime: Runtime,
    api: Arc<ApiServer>,
    context: RequestContext,
}

/// An answer, read to its end.
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) json: Value,
}

impl Server {
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let options = ApiOptions {
            compact_every: None,
            ..ApiOptions::default()
        };
        let api = runtime.block_on(async {
            let store = Store::open(Memory::new(), StoreOptions::default()).unwrap();
            let api = ApiServer::open(store, options).unwrap();
            api.start().await.unwrap();
            api
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let context = RequestContext {
            connection: Arc::new(Connection::new(address, address, Instant::now())),
            client: address,
            id: RequestId(1),
            received: Instant::now(),
            user: Arc::new(UserInfo {
                name: "fuzz".into(),
                groups: vec![MASTERS.into()],
                ..UserInfo::default()
            }),
            impersonator: None,
            tether: None,
        };
        let server = Server {
            runtime,
            api,
            context,
        };
        server.fill();
        server
    }

    fn fill(&self) {
        let pod = json!({"containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v"}]});
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
        let core = "/api/v1/namespaces/default";
        for (place, mut object) in [
            (format!("{core}/configmaps"), json!({"data": {"a": "1"}})),
            (format!("{core}/secrets"), json!({"data": {"a": "MQ=="}})),
            (format!("{core}/pods"), json!({"spec": pod})),
            (
                format!("{core}/services"),
                json!({"spec": {"ports": [{"port": 80}]}}),
            ),
            (
                "/apis/apps/v1/namespaces/default/deployments".to_owned(),
                json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
            ),
        ] {
            object["metadata"] =
                json!({"name": "a", "labels": {"a": "b"}, "finalizers": ["x.y/z"]});
            let text = object.to_string();
            let answer = self.send(&Method::POST, &place, "application/json", text.as_bytes());
            let answer = answer.unwrap().unwrap();
            assert_eq!(answer.code, StatusCode::CREATED, "{}", answer.json);
        }
    }

    /// Asks without wanting anything written; `None` when it cannot be asked so.
    pub(crate) fn ask(
        &self,
        method: &Method,
        uri: &str,
        media: &str,
        body: &[u8],
    ) -> Result<Option<Answer>, String> {
        let before = self.api.storage().store().revision();
        let answer = self.send(method, uri, media, body)?;
        let after = self.api.storage().store().revision();
        if before != after {
            return Err(format!("a dry run has written revision {after}"));
        }
        if let Some(answer) = &answer {
            check_answer(answer.code, &answer.json)?;
        }
        Ok(answer)
    }

    fn send(
        &self,
        method: &Method,
        uri: &str,
        media: &str,
        body: &[u8],
    ) -> Result<Option<Answer>, String> {
        let Ok(media) = HeaderValue::from_str(media) else {
            return Ok(None);
        };
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", media)
            .body(Body::from(body.to_vec()))
            .map_err(|error| format!("{uri}: {error}"))?;
        let info = RequestInfo::parse(method, request.uri(), request.headers())
            .map_err(|refusal| format!("{uri}: {}", refusal.message))?;
        self.runtime.block_on(async {
            let response = self.api.serve(&self.context, &info, request).await;
            let code = response.status();
            let body = response.into_body().collect().await;
            let bytes = body
                .map_err(|error| format!("the answer broke: {error}"))?
                .to_bytes();
            let json = serde_json::from_slice(&bytes)
                .map_err(|error| format!("{code} is no JSON ({error}): {bytes:?}"))?;
            Ok(Some(Answer { code, json }))
        })
    }
}
