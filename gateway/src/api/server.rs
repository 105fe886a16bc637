//! The API server: who may, which kind, which verb.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use serde_json::Value;
use sluice_metastore::Error;
use sluice_metastore::store::Store;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

use super::bootstrap;
use super::compact;
use super::crd::{self, Definitions};
use super::documents::Documents;
use super::errors;
use super::namespaces;
use super::rbac::{self, Attributes, Authorizer, message};
use super::resource::{Registry, ResourceKind};
use super::reviews::{self, Review};
use super::serve::{self, Call};
use super::storage::{Part, Sources, Storage};
use super::view::Views;
use crate::body::Body;
use crate::context::RequestContext;
use crate::identity::UserInfo;
use crate::request::{RequestInfo, Verb};
use crate::status::{Refusal, Stage};

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
    authorizer: Authorizer,
    definitions: Arc<Definitions>,
    documents: Documents,
    /// Filled once what a cluster starts with is there; requests wait for it.
    started: OnceCell<()>,
    /// What runs beside the requests; it ends with the server.
    _tasks: JoinSet<()>,
}

impl ApiServer {
    /// Serves a store, and starts what ends namespaces. Needs a runtime to start it on.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(store: Store, options: ApiOptions) -> Result<Arc<ApiServer>, Error> {
        let authorizer = Authorizer::open(store.clone())?;
        let storage = Storage::new(store, options.sources);
        let registry = Arc::new(Registry::new());
        let definitions = Arc::new(Definitions::open(&storage, Arc::clone(&registry))?);
        let mut tasks = JoinSet::new();
        if let Some(every) = options.compact_every {
            tasks.spawn(compact::run(storage.store().clone(), every));
        }
        tasks.spawn(namespaces::run(storage.clone(), Arc::clone(&registry)));
        let server = Arc::new(ApiServer {
            documents: Documents::new(Arc::clone(&registry), Arc::clone(&definitions)),
            views: Views::default(),
            started: OnceCell::new(),
            storage,
            registry,
            authorizer,
            definitions,
            _tasks: tasks,
        });
        Ok(server)
    }

    /// The objects.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Who may do what.
    #[must_use]
    pub fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// The custom kinds' definitions.
    #[must_use]
    pub fn definitions(&self) -> &Arc<Definitions> {
        &self.definitions
    }

    /// Writes what a cluster starts with, if it is absent; every request waits for this once.
    ///
    /// # Errors
    /// Whatever the store refuses; the next call tries again.
    pub async fn start(&self) -> Result<(), Refusal> {
        let ensure = || bootstrap::ensure(&self.storage, &self.registry);
        self.started.get_or_try_init(ensure).await?;
        self.authorizer
            .reached(self.storage.store().revision())
            .await;
        Ok(())
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
        match Box::pin(self.settle(ctx, info, &parts, body)).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(&parts.headers),
        }
    }

    /// As whom `caller` asks to act, if as somebody else, for the phases before this one.
    ///
    /// # Errors
    /// When it may not, or the store cannot be read.
    pub async fn acting(
        &self,
        caller: &UserInfo,
        headers: &HeaderMap,
    ) -> Result<Option<Arc<UserInfo>>, Refusal> {
        if !self.started.initialized() {
            self.start().await?;
        }
        let target = self.authorizer.impersonate(caller, headers)?;
        Ok(target.map(Arc::new))
    }

    /// Whether `user` may do what a request asks for, as far as roles say.
    #[must_use]
    pub fn allows(&self, user: &UserInfo, info: &RequestInfo) -> bool {
        self.authorize(user, &serve::attributes(info)).is_ok()
    }

    /// Finds out as whom the request is made, answers it, and makes sure that what it changed is in
    /// force before its client hears of it.
    async fn settle(
        &self,
        ctx: &RequestContext,
        info: &RequestInfo,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Refusal> {
        if !self.started.initialized() {
            self.start().await?;
        }
        let mut ctx = ctx.clone();
        // A phase before this one may have done it.
        if ctx.impersonator.is_none()
            && let Some(user) = self.acting(&ctx.user, &parts.headers).await?
        {
            let caller = std::mem::replace(&mut ctx.user, user);
            ctx.impersonator = Some(caller);
        }
        let response = self.route(&ctx, info, parts, body).await?;
        if is_write(info.verb()) {
            let now = self.storage.store().revision();
            match info.group() {
                rbac::GROUP => self.authorizer.reached(now).await,
                crd::GROUP => self.definitions.reached(now).await,
                _ => {}
            }
        }
        Ok(response)
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
            return self.path(info, parts);
        }
        if let Some(review) = Review::of(info.group(), info.version(), info.resource()) {
            return self.review(review, ctx, info, parts, body).await;
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

    /// What is served at no resource: the documents, and whether the server is well.
    fn path(&self, info: &RequestInfo, parts: &Parts) -> Result<Response<Body>, Refusal> {
        if parts.method != Method::GET {
            return Err(errors::no_such_path());
        }
        if matches!(info.path(), "/healthz" | "/livez" | "/readyz") {
            if let Some(failure) = self.storage.store().failure() {
                return Err(Refusal::unavailable(Stage::Api, failure));
            }
            return Ok(Response::new(Body::from(b"ok".to_vec())));
        }
        let document = self.documents.serve(info.uri(), &parts.headers);
        document.ok_or_else(errors::no_such_path)
    }

    async fn review(
        &self,
        review: Review,
        ctx: &RequestContext,
        info: &RequestInfo,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Refusal> {
        if info.verb() != Verb::Create {
            return Err(errors::no_such_path());
        }
        let object = serve::read_question(review, &parts.headers, body).await?;
        let answer = review.answer(&self.authorizer, &ctx.user, info, object)?;
        let bytes = Body::from(answer.to_string().into_bytes());
        Ok(serve::json(reviews::ANSWERED, bytes))
    }

    fn authorize(&self, user: &UserInfo, asked: &Attributes<'_>) -> Result<(), Refusal> {
        let decision = self.authorizer.authorize(user, asked);
        if decision.allowed {
            Ok(())
        } else {
            Err(message::forbidden(user, asked, &decision.reason))
        }
    }

    /// Whether a role or binding gives away no more than the user has.
    pub(super) fn check_escalation(
        &self,
        user: &UserInfo,
        resource: &str,
        object: &Value,
    ) -> Result<(), Refusal> {
        self.authorizer.check_escalation(user, resource, object)
    }
}

fn is_write(verb: Verb) -> bool {
    use Verb::{Create, Delete, DeleteCollection, Patch, Update};
    matches!(verb, Create | Update | Patch | Delete | DeleteCollection)
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
