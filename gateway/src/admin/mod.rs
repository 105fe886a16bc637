//! The operator's API: breakers, flows, endpoints, profiles, configuration, health, metrics.
//!
//! It listens on a port of its own with TLS, and knows its callers by client certificate: the
//! common name is the user, organizations are groups. Only `/livez` and `/readyz` answer anybody.
//! Every change is handed to an [`AuditSink`], refused ones too. It owns nothing: all it shows and
//! moves comes through [`AdminHandles`], and errors are Kubernetes `Status` objects.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::middleware;
use axum::routing::{get, post};

use crate::flow::{FlowView, LiveState};

mod access;
mod answer;
mod breakers;
mod handles;
mod health;
mod serve;
mod views;

pub use access::{Access, Peer};
pub use handles::{
    AdminChange, AuditSink, BreakerError, BreakerRow, ConfigView, Control, EndpointBreakers, Source,
};
pub use health::{HealthChecks, Probe};
pub use serve::serve;

/// All that the admin API shows and moves.
#[derive(Clone)]
pub struct AdminHandles {
    /// Who may call; swapped on reload.
    pub access: Arc<ArcSwap<Access>>,
    /// Breakers of clusters, rules and clients.
    pub live: Arc<LiveState>,
    /// Breakers of endpoints.
    pub endpoint_breakers: Arc<dyn EndpointBreakers>,
    /// The rules in force, with their counters.
    pub flows: Source<Vec<FlowView>>,
    /// The endpoints of all upstream clusters.
    pub endpoints: Source<serde_json::Value>,
    /// The client profiles.
    pub profiles: Source<serde_json::Value>,
    /// The metrics, in Prometheus' text format.
    pub metrics: Source<String>,
    /// What `/livez` and `/readyz` ask.
    pub health: Arc<HealthChecks>,
    /// The process's configuration and end.
    pub control: Arc<dyn Control>,
    /// Where changes are written down.
    pub audit: Arc<dyn AuditSink>,
}

/// The API over those handles. [`serve()`] puts it on a listener; whoever else does must put a
/// [`Peer`] into each request's extensions.
pub fn router(handles: AdminHandles) -> Router {
    let access = Arc::clone(&handles.access);
    Router::new()
        .route("/livez", get(health::live))
        .route("/livez/{check}", get(health::live_one))
        .route("/readyz", get(health::ready))
        .route("/readyz/{check}", get(health::ready_one))
        .route("/metrics", get(views::metrics))
        .route("/admin/v1/breakers", get(breakers::list))
        .route("/admin/v1/breakers/trip", post(breakers::trip))
        .route("/admin/v1/breakers/reset", post(breakers::reset))
        .route("/admin/v1/breakers/ramp", post(breakers::ramp))
        .route("/admin/v1/flows", get(views::flows))
        .route("/admin/v1/endpoints", get(views::endpoints))
        .route("/admin/v1/profiles", get(views::profiles))
        .route("/admin/v1/config", get(views::config))
        .route("/admin/v1/reload", post(views::reload))
        .route("/admin/v1/drain", post(views::drain))
        .fallback(answer::no_such_path)
        .method_not_allowed_fallback(answer::no_such_method)
        .layer(middleware::from_fn_with_state(access, access::guard))
        .with_state(handles)
}
