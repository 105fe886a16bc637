//! Every service on one router; gRPC paths are told apart from plain ones by name alone.

use std::sync::Arc;

use tonic::service::Routes;

use super::admission;
use super::auth::AuthService;
use super::cluster::ClusterService;
use super::health::HealthService;
use super::http;
use super::kv::KvService;
use super::lease::LeaseService;
use super::maintenance::MaintenanceService;
use super::proto::etcdserverpb::auth_server::AuthServer;
use super::proto::etcdserverpb::cluster_server::ClusterServer;
use super::proto::etcdserverpb::kv_server::KvServer;
use super::proto::etcdserverpb::lease_server::LeaseServer;
use super::proto::etcdserverpb::maintenance_server::MaintenanceServer;
use super::proto::etcdserverpb::watch_server::WatchServer;
use super::proto::health::health_server::HealthServer;
use super::shared::Shared;
use super::watch::WatchService;

/// All that a member serves.
pub(crate) fn routes(shared: &Arc<Shared>) -> axum::Router {
    let message_bytes_max = shared.message_bytes_max();
    let kv = KvServer::new(KvService(Arc::clone(shared)));
    let watch = WatchServer::new(WatchService(Arc::clone(shared)));
    Routes::new(kv.max_decoding_message_size(message_bytes_max))
        .add_service(watch.max_decoding_message_size(message_bytes_max))
        .add_service(LeaseServer::new(LeaseService(Arc::clone(shared))))
        .add_service(MaintenanceServer::new(MaintenanceService(Arc::clone(
            shared,
        ))))
        .add_service(ClusterServer::new(ClusterService(Arc::clone(shared))))
        .add_service(AuthServer::new(AuthService(Arc::clone(shared))))
        .add_service(HealthServer::new(HealthService(Arc::clone(shared))))
        .prepare()
        .into_axum_router()
        .layer(axum::middleware::map_response(admission::hold))
        .merge(http_routes(shared))
}

/// What is served without gRPC, on ports of its own too.
pub(crate) fn http_routes(shared: &Arc<Shared>) -> axum::Router {
    http::routes(Arc::clone(shared))
}
