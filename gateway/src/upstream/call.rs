//! Small JSON calls of the gateway itself: reviews, endpoints, keys of service accounts; with its own
//! credential, a bounded answer and a bounded time. They change nothing upstream, so they are
//! made again elsewhere when an endpoint fails.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::cluster::Cluster;
use super::endpoint::{LoadClass, Ticket};
use super::gate::Outcome;
use super::http2::Ask;
use super::pick::Tried;
use super::send::SendBody;
use super::spec::IdentityMode;
use super::view::View;
use super::wish::Wish;
use crate::body::Body;
use crate::clock;

/// Whom the gateway names as itself where it is a front proxy; that user needs the cluster role
/// `system:auth-delegator`, as whoever asks for reviews does.
const OWN_USER: &str = "system:sluice";

/// Endpoints asked for one call.
const ATTEMPTS_MAX: u32 = 3;

/// Bounds of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallOptions {
    /// For all attempts together.
    pub timeout: Duration,
    /// Bytes of the answer.
    pub answer_max: usize,
}

impl Default for CallOptions {
    /// Reviews answer in milliseconds and in a few KiB; a user with 10,000 groups needs 500 KiB.
    fn default() -> Self {
        CallOptions {
            timeout: Duration::from_secs(5),
            answer_max: 1024 * 1024,
        }
    }
}

/// Why a call has no answer: the upstream is out, which says nothing about the caller.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Not in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// No endpoint answered.
    #[error("no endpoint answered: {0}")]
    Unavailable(String),
    /// The path is none.
    #[error("path={0} is not one")]
    Path(String),
}

impl Cluster {
    /// Posts `json` to `path` with the gateway's own credential.
    ///
    /// # Errors
    /// [`CallError`]; any HTTP status is an answer and no error.
    ///
    /// # Cancellation
    /// Dropping the future resets the call.
    pub async fn call(
        &self,
        path: &str,
        json: Bytes,
        options: CallOptions,
    ) -> Result<(StatusCode, Bytes), CallError> {
        self.ask(path, Some(json), options).await
    }

    /// Reads `path` with the gateway's own credential.
    ///
    /// # Errors
    /// As [`Cluster::call`].
    ///
    /// # Cancellation
    /// As [`Cluster::call`].
    pub async fn read(
        &self,
        path: &str,
        options: CallOptions,
    ) -> Result<(StatusCode, Bytes), CallError> {
        self.ask(path, None, options).await
    }

    /// Gets `path` with the gateway's own credential, within `timeout`.
    pub(super) async fn get(
        &self,
        path: &str,
        timeout: Duration,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let options = CallOptions {
            timeout,
            ..CallOptions::default()
        };
        self.ask(path, None, options).await
    }

    async fn ask(
        &self,
        path: &str,
        json: Option<Bytes>,
        options: CallOptions,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let path = PathAndQuery::try_from(path).map_err(|_| CallError::Path(path.to_owned()))?;
        let calling = self.call_somewhere(&path, json.as_ref(), options.answer_max);
        match tokio::time::timeout(options.timeout, calling).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::Timeout(options.timeout)),
        }
    }

    async fn call_somewhere(
        &self,
        path: &PathAndQuery,
        json: Option<&Bytes>,
        answer_max: usize,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let view = self.view();
        let mut tried = Tried::default();
        let mut last = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let wish = Wish::any(LoadClass::Short);
            let ticket = view.pick(&wish, &mut tried, self.random(), clock::now());
            let Some(ticket) = ticket else { break };
            match view.call(&ticket, path, json, answer_max).await {
                Ok(answer) => {
                    ticket
                        .endpoint
                        .observe(Outcome::Success, &view.spec, clock::now());
                    return Ok(answer);
                }
                Err(reason) => {
                    ticket
                        .endpoint
                        .observe(Outcome::Failure, &view.spec, clock::now());
                    last = reason;
                }
            }
        }
        Err(CallError::Unavailable(last))
    }
}

impl View {
    async fn call(
        &self,
        ticket: &Ticket,
        path: &PathAndQuery,
        json: Option<&Bytes>,
        answer_max: usize,
    ) -> Result<(StatusCode, Bytes), String> {
        let endpoint = &ticket.endpoint;
        let pool = if self.connector.generation == self.own_connector.generation {
            &endpoint.pool
        } else {
            &endpoint.own
        };
        let lease = pool
            .lease(&endpoint.address, &self.own_connector)
            .await
            .map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        let (method, body) = match json {
            Some(json) => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                (&Method::POST, SendBody::Full(json.clone()))
            }
            None => (&Method::GET, SendBody::Empty),
        };
        // A kube-apiserver serves key sets as nothing but what they are.
        let accept = HeaderValue::from_static("application/json, application/jwk-set+json");
        headers.insert(ACCEPT, accept);
        headers.insert(USER_AGENT, HeaderValue::from_static("sluice"));
        if let Some(bearer) = &self.bearer {
            headers.insert(AUTHORIZATION, bearer.clone());
        } else if self.spec.identity == IdentityMode::FrontProxy {
            // A front proxy's certificate by itself is nobody: it speaks for whom it names.
            if let Some(name) = self.spec.request_headers.user.first() {
                headers.insert(name.clone(), HeaderValue::from_static(OWN_USER));
            }
        }
        let ask = Ask {
            method,
            is_tls: endpoint.address.is_tls,
            authority: &endpoint.address.authority,
            path,
            headers: &headers,
            length: None,
        };
        let answer = lease
            .send(ask, body, None)
            .await
            .map_err(|failure| failure.to_string())?;
        let status = answer.status();
        let body = Body::boxed(answer.into_body()).collect_up_to(answer_max);
        let body = body.await.map_err(|error| error.to_string())?;
        Ok((status, body))
    }
}
