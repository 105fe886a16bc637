//! The Auth service: there are no users here. Who may come in is decided by client certificate, at
//! the connection; see [`super::access`].
//!
//! Each call answers what an etcd without users answers, so that what looks for one learns that it
//! is not there; only what would make one is refused for what it is.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::errors;
use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::auth_server::Auth;
use super::shared::Shared;

const NO_USERS: &str =
    "users and roles are not kept here: access is by the common name of the client certificate";

/// The service.
pub(crate) struct AuthService(pub(crate) Arc<Shared>);

/// The whole implementation at once: calls that answer, and calls that look for what is not there.
macro_rules! auth_without_users {
    (answered {
        $($call:ident: $request:ident -> $response:ident { $($field:ident: $value:expr),* };)*
    }
    refused { $($refused:ident: $asked:ident -> $never:ident = $why:expr;)* }) => {
        #[tonic::async_trait]
        impl Auth for AuthService {
            $(async fn $call(
                &self,
                _request: Request<pb::$request>,
            ) -> Result<Response<pb::$response>, Status> {
                let header = self.0.header_now();
                Ok(Response::new(pb::$response { header, $($field: $value),* }))
            })*

            $(async fn $refused(
                &self,
                request: Request<pb::$asked>,
            ) -> Result<Response<pb::$never>, Status> {
                let why: fn(&pb::$asked) -> Status = $why;
                Err(why(request.get_ref()))
            })*
        }
    };
}

auth_without_users! {
    answered {
        auth_status: AuthStatusRequest -> AuthStatusResponse { enabled: false, auth_revision: 1 };
        // Off already, which etcd calls success too.
        auth_disable: AuthDisableRequest -> AuthDisableResponse {};
        user_list: AuthUserListRequest -> AuthUserListResponse { users: Vec::new() };
        role_list: AuthRoleListRequest -> AuthRoleListResponse { roles: Vec::new() };
    }
    refused {
        authenticate: AuthenticateRequest -> AuthenticateResponse = |_| errors::auth_not_enabled();
        auth_enable: AuthEnableRequest -> AuthEnableResponse = |_| errors::root_user_not_found();
        user_add: AuthUserAddRequest -> AuthUserAddResponse = |request| {
            if request.name.is_empty() {
                return errors::user_empty();
            }
            errors::not_capable(NO_USERS)
        };
        user_get: AuthUserGetRequest -> AuthUserGetResponse = |_| errors::user_not_found();
        user_delete: AuthUserDeleteRequest -> AuthUserDeleteResponse = |_| errors::user_not_found();
        user_change_password: AuthUserChangePasswordRequest -> AuthUserChangePasswordResponse =
            |_| errors::user_not_found();
        user_grant_role: AuthUserGrantRoleRequest -> AuthUserGrantRoleResponse =
            |_| errors::user_not_found();
        user_revoke_role: AuthUserRevokeRoleRequest -> AuthUserRevokeRoleResponse =
            |_| errors::user_not_found();
        role_add: AuthRoleAddRequest -> AuthRoleAddResponse = |request| {
            if request.name.is_empty() {
                return errors::role_empty();
            }
            errors::not_capable(NO_USERS)
        };
        role_get: AuthRoleGetRequest -> AuthRoleGetResponse = |_| errors::role_not_found();
        role_delete: AuthRoleDeleteRequest -> AuthRoleDeleteResponse = |_| errors::role_not_found();
        role_grant_permission: AuthRoleGrantPermissionRequest -> AuthRoleGrantPermissionResponse =
            |_| errors::role_not_found();
        role_revoke_permission: AuthRoleRevokePermissionRequest -> AuthRoleRevokePermissionResponse =
            |_| errors::role_not_found();
    }
}
