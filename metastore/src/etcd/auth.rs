//! The Auth service: there are no users here. Who may come in is decided by client certificate, at
//! the connection.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::errors;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::auth_server::Auth;
use super::shared::Shared;

const NO_USERS: &str = "users and roles are not kept here: access is by client certificate";

/// The service.
pub(crate) struct AuthService(pub(crate) Arc<Shared>);

/// The whole implementation at once, since most calls have the same answer.
macro_rules! auth_without_users {
    ($($call:ident: $request:ident -> $response:ident;)*) => {
        #[tonic::async_trait]
        impl Auth for AuthService {
            async fn auth_status(
                &self,
                _request: Request<pb::AuthStatusRequest>,
            ) -> Result<Response<pb::AuthStatusResponse>, Status> {
                Ok(Response::new(pb::AuthStatusResponse {
                    header: self.0.header_now(),
                    enabled: false,
                    auth_revision: 1,
                }))
            }

            async fn authenticate(
                &self,
                _request: Request<pb::AuthenticateRequest>,
            ) -> Result<Response<pb::AuthenticateResponse>, Status> {
                Err(errors::auth_not_enabled())
            }

            async fn user_list(
                &self,
                _request: Request<pb::AuthUserListRequest>,
            ) -> Result<Response<pb::AuthUserListResponse>, Status> {
                let header = self.0.header_now();
                Ok(Response::new(pb::AuthUserListResponse { header, users: Vec::new() }))
            }

            async fn role_list(
                &self,
                _request: Request<pb::AuthRoleListRequest>,
            ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
                let header = self.0.header_now();
                Ok(Response::new(pb::AuthRoleListResponse { header, roles: Vec::new() }))
            }

            $(async fn $call(
                &self,
                _request: Request<pb::$request>,
            ) -> Result<Response<pb::$response>, Status> {
                Err(errors::unimplemented(NO_USERS))
            })*
        }
    };
}

auth_without_users! {
    auth_enable: AuthEnableRequest -> AuthEnableResponse;
    auth_disable: AuthDisableRequest -> AuthDisableResponse;
    user_add: AuthUserAddRequest -> AuthUserAddResponse;
    user_get: AuthUserGetRequest -> AuthUserGetResponse;
    user_delete: AuthUserDeleteRequest -> AuthUserDeleteResponse;
    user_change_password: AuthUserChangePasswordRequest -> AuthUserChangePasswordResponse;
    user_grant_role: AuthUserGrantRoleRequest -> AuthUserGrantRoleResponse;
    user_revoke_role: AuthUserRevokeRoleRequest -> AuthUserRevokeRoleResponse;
    role_add: AuthRoleAddRequest -> AuthRoleAddResponse;
    role_get: AuthRoleGetRequest -> AuthRoleGetResponse;
    role_delete: AuthRoleDeleteRequest -> AuthRoleDeleteResponse;
    role_grant_permission: AuthRoleGrantPermissionRequest -> AuthRoleGrantPermissionResponse;
    role_revoke_permission: AuthRoleRevokePermissionRequest -> AuthRoleRevokePermissionResponse;
}
