//! The API server: who may, which kind, which verb.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use serde_json::Value;
use sluice_metastore::Error;
use sluice_metastore::store::Store;
use tokio::task::JoinSet;

use super::compact;
use super::errors;
use super::namespaces;
use super::rbac::{Attributes, message};
use super::resource::{Registry, ResourceKind};
use super::serve::{self, Call};
use super::storage::{Part, Sources, Storage};
use super::view::Views;
use crate::body::Body;
use crate::context::RequestContext;
use crate::identity::{MASTERS, UserInfo};
use crate::request::{RequestInfo, Verb};
use crate::status::Refusal;

/// How an [`ApiServer`] is opened.
#[derive(Clone)]
pub struct ApiOptions {
    /// Where time and random numbers come from.
    pub sources: Sources,
    /// How often history is let go; never with `None`, when somebody else compacts the store.
    pub compact_every: Option<Duration>,
}

impl Default for ApiOptions {
    fn default() -> Self {
        ApiOptions {
            sources: Sources::default(),
            // A kube-apiserver's interval.
            compact_every: Some(Duration::from_secs(300)),
        }
    }
}

/// The Kubernetes API over one store.
pub struct ApiServer {
    storage: Storage,
    registry: Arc<Registry>,
    views: Views,
    /// What runs beside the requests; it ends with the server.
    _tasks: JoinSet<()>,
}

impl ApiServer {
    /// Serves a store, and starts what ends namespaces. Needs a runtime to start it on.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(store: Store, options: ApiOptions) -> Result<Arc<ApiServer>, Error> {
        let storage = Storage::new(store, options.sources);
        let registry = Arc::new(Registry::new());
        let mut tasks = JoinSet::new();
        if let Some(every) = options.compact_every {
            tasks.spawn(compact::run(storage.store().clone(), every));
        }
        tasks.spawn(namespaces::run(storage.clone(), Arc::clone(&registry)));
        let server = Arc::new(ApiServer {
            storage,
            registry,
            views: Views::default(),
            _tasks: tasks,
        });
        Ok(server)
    }

    /// The objects.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The kinds.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    pub(super) fn views(&self) -> &Views {
        &self.views
    }

    /// Answers a request.
    pub async fn serve(
        &self,
        ctx: &RequestContext,
        info: &RequestInfo,
        req: Request<Body>,
    ) -> Response<Body> {
        let (parts, body) = req.into_parts();
        // Boxed: the futures below are large, and this one is held by every request's own.
        match Box::pin(self.route(ctx, info, &parts, body)).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(&parts.headers),
        }
    }

    async fn route(
        &self,
        ctx: &RequestContext,
        info: &RequestInfo,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Refusal> {
        self.authorize(&ctx.user, &serve::attributes(info))?;
        if !info.is_resource() {
            return Err(errors::no_such_path());
        }
        let kind = self
            .registry
            .resolve(info.group(), info.version(), info.resource());
        let kind = kind.ok_or_else(errors::no_such_path)?;
        check_place(&kind, info)?;
        let call = Call {
            server: self,
            ctx,
            info,
            headers: &parts.headers,
            kind: &kind,
            part: Part::Main,
        };
        match info.subresource() {
            "" => whole(call, body).await,
            "scale" => serve::scale(call, body).await,
            "status" if kind.has_status => {
                part(
                    Call {
                        part: Part::Status,
                        ..call
                    },
                    body,
                )
                .await
            }
            "finalize" if is_namespaces(&kind) && info.verb() == Verb::Update => {
                serve::update(
                    Call {
                        part: Part::Finalizers,
                        ..call
                    },
                    body,
                )
                .await
            }
            _ => Err(errors::no_such_path()),
        }
    }

    fn authorize(&self, user: &UserInfo, asked: &Attributes<'_>) -> Result<(), Refusal> {
        if user.is_member(MASTERS) {
            Ok(())
        } else {
            Err(message::forbidden(user, asked, ""))
        }
    }

    /// Whether a role or binding gives away no more than the user has.
    pub(super) fn check_escalation(
        &self,
        _user: &UserInfo,
        _resource: &str,
        _object: &Value,
    ) -> Result<(), Refusal> {
        Ok(())
    }
}

async fn whole(call: Call<'_>, body: Body) -> Result<Response<Body>, Refusal> {
    let is_named = !call.info.name().is_empty();
    match call.info.verb() {
        Verb::Get => serve::get(call).await,
        Verb::List => serve::list(call).await,
        Verb::Watch => serve::watch(call).await,
        Verb::Create if !is_named => serve::create(call, body).await,
        Verb::Update if is_named => serve::update(call, body).await,
        Verb::Patch if is_named => serve::patch(call, body).await,
        Verb::Delete => serve::delete(call, body).await,
        Verb::DeleteCollection if !is_namespaces(call.kind) => {
            serve::delete_collection(call, body).await
        }
        _ => Err(errors::method_not_allowed(call.kind, call.info.verb_name())),
    }
}

async fn part(call: Call<'_>, body: Body) -> Result<Response<Body>, Refusal> {
    match call.info.verb() {
        Verb::Get => serve::get(call).await,
        Verb::Update => serve::update(call, body).await,
        Verb::Patch => serve::patch(call, body).await,
        _ => Err(errors::method_not_allowed(call.kind, call.info.verb_name())),
    }
}

fn is_namespaces(kind: &ResourceKind) -> bool {
    kind.group.is_empty() && kind.plural == "namespaces"
}

/// A path must have a namespace exactly where the kind needs one.
fn check_place(kind: &ResourceKind, info: &RequestInfo) -> Result<(), Refusal> {
    let has_namespace = !info.namespace().is_empty() && !is_namespaces(kind);
    let is_collection = matches!(
        info.verb(),
        Verb::List | Verb::Watch | Verb::DeleteCollection
    );
    // The old form of a watch, with the word in the path, is not offered: its single-object form
    // would have to be told from the others.
    let is_old_watch = info.is_watch() && info.path().contains("/watch/");
    if info.is_proxied() || is_old_watch || (has_namespace && !kind.is_namespaced()) {
        return Err(errors::no_such_path());
    }
    if kind.is_namespaced() && !has_namespace {
        if info.verb() == Verb::DeleteCollection || info.verb() == Verb::Create {
            return Err(errors::method_not_allowed(kind, info.verb_name()));
        }
        if !is_collection {
            return Err(errors::no_such_path());
        }
    }
    Ok(())
}
