//! Whether the caller of a long-running request is still somebody.
//!
//! A watch or a session may be open for hours, longer than the token or the certificate it began
//! with. So who makes it is judged again, every [`REJUDGE_EVERY`], by the newest snapshot and as a
//! new request's would be: a token that has run out or was revoked, a certificate that has, an
//! authority that is trusted no more. What does not hold any more ends the request between two
//! frames. An outage of whoever judges is no verdict, and ends nothing.
//!
//! Rights are judged again where they are judged here, in the Kubernetes API of our own; those of an
//! upstream are its own affair, and a kube-apiserver does not end watches for them either.
//!
//! Bound: one sleeping task and one copy of the head a long-running request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, StatusCode};
use tokio::task::AbortHandle;

use crate::clock;
use crate::context::{Connection, Tether};
use crate::identity::UserInfo;
use crate::request::RequestInfo;
use crate::snapshot::{Route, RoutingSnapshot, Target};

/// Half of the time in which a stream has to be over: a verdict may be a moment old.
pub(super) const REJUDGE_EVERY: Duration = Duration::from_secs(15);

/// What a caller was judged by.
pub(super) struct Caller {
    pub(super) connection: Arc<Connection>,
    pub(super) source: IpAddr,
    pub(super) headers: HeaderMap,
    pub(super) info: RequestInfo,
    /// Whom it was found to be.
    pub(super) user: Arc<UserInfo>,
    pub(super) route: Arc<str>,
}

/// Judges again until it is dropped.
pub(super) struct Standing(AbortHandle);

impl Drop for Standing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Standing {
    pub(super) fn of(
        caller: Caller,
        snapshot: Arc<ArcSwap<RoutingSnapshot>>,
        every: Duration,
        tether: Arc<Tether>,
    ) -> Self {
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                let snapshot = snapshot.load_full();
                let route = snapshot.routes().find(|route| route.name == caller.route);
                // A cluster that is gone is its forwarder's affair. Boxed: the task sleeps mostly.
                if let Some(route) = route
                    && !Box::pin(caller.holds(route)).await
                {
                    tracing::debug!(user = caller.user.name, "ends a request of nobody");
                    tether.disown();
                    return;
                }
            }
        });
        Standing(task.abort_handle())
    }
}

impl Caller {
    async fn holds(&self, route: &Route) -> bool {
        let judging = route.authenticator.authenticate_from(
            self.source,
            &self.connection,
            &self.headers,
            clock::wall(),
        );
        let verdict = match judging.await {
            Ok(verdict) => verdict,
            Err(refusal) => {
                return !matches!(
                    refusal.code,
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
                );
            }
        };
        if verdict.user.name != self.user.name {
            return false;
        }
        let Target::Api(api) = &route.target else {
            return true;
        };
        match api.acting(&verdict.user, &self.headers).await {
            Ok(acting) => api.allows(acting.as_deref().unwrap_or(&verdict.user), &self.info),
            Err(refusal) => refusal.code != StatusCode::FORBIDDEN,
        }
    }
}
