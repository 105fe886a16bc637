//! Who is calling: a client certificate, a bearer token, or nobody; and with `--as`, as whom.
//!
//! The order is kube-apiserver's: certificate, then token; the first that holds wins, and a
//! credential that does not hold is a 401 and never an anonymous caller. One [`Authenticator`]
//! belongs to one upstream cluster (or to the Kubernetes API of our own) and trusts only that
//! one's authority. It fails closed: an outage of the reviewer is a 503, never a verdict.

mod impersonate;
mod review;
mod token;
mod x509;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::context::Connection;
use crate::identity::UserInfo;
use crate::status::{Refusal, Stage};

pub use impersonate::Impersonation;
pub use review::{ReviewFuture, Reviewer, ReviewerOutage};
pub use token::{TokenReviews, TokenReviewsOptions};
pub use x509::{ClientAuthority, ClientAuthorityError};

/// Who a request is made by.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Whom it is made as.
    pub user: Arc<UserInfo>,
    /// With `--as`: who really makes it.
    pub impersonator: Option<Arc<UserInfo>>,
}

/// Who may come in to one cluster, and how they are known.
pub struct Authenticator {
    authority: Option<Arc<ClientAuthority>>,
    tokens: Option<Arc<TokenReviews>>,
    impersonation: Option<Impersonation>,
    anonymous: Option<Arc<UserInfo>>,
}

/// What an [`Authenticator`] is made of.
#[derive(Default)]
pub struct AuthenticatorOptions {
    /// Whose client certificates count; `None` counts none.
    pub authority: Option<Arc<ClientAuthority>>,
    /// Who judges bearer tokens; `None` accepts none.
    pub tokens: Option<Arc<TokenReviews>>,
    /// Who judges `--as`; `None` leaves the headers to whoever serves the request.
    pub impersonation: Option<Impersonation>,
    /// Whether callers who show nothing come in as `system:anonymous`.
    pub anonymous: bool,
}

impl Authenticator {
    /// Puts it together.
    #[must_use]
    pub fn new(options: AuthenticatorOptions) -> Self {
        let AuthenticatorOptions {
            authority,
            tokens,
            impersonation,
            anonymous,
        } = options;
        let anonymous = anonymous.then(|| Arc::new(UserInfo::anonymous()));
        Authenticator {
            authority,
            tokens,
            impersonation,
            anonymous,
        }
    }

    /// Says who a request is made by. `wall` is the present as time since the Unix epoch.
    ///
    /// # Errors
    /// 401 when what was shown does not hold or nothing was shown and that is not enough; 400 for
    /// impersonation headers that contradict themselves; 403 when `--as` is not allowed; 503 when
    /// nobody could be asked.
    pub async fn authenticate(
        &self,
        connection: &Connection,
        headers: &HeaderMap,
        wall: Duration,
    ) -> Result<Verdict, Refusal> {
        let user = self.caller(connection, headers, wall).await?;
        let Some(impersonation) = &self.impersonation else {
            return Ok(Verdict {
                user,
                impersonator: None,
            });
        };
        match impersonate::read(headers)? {
            None => Ok(Verdict {
                user,
                impersonator: None,
            }),
            Some(target) => {
                impersonation.authorize(&user, &target).await?;
                Ok(Verdict {
                    user: Arc::new(target.into_user()),
                    impersonator: Some(user),
                })
            }
        }
    }

    async fn caller(
        &self,
        connection: &Connection,
        headers: &HeaderMap,
        wall: Duration,
    ) -> Result<Arc<UserInfo>, Refusal> {
        let mut shown = None;
        if let Some(authority) = &self.authority
            && !connection.client_chain.is_empty()
        {
            match authority.judge_connection(connection, wall) {
                Ok(user) => return Ok(user),
                Err(e) => shown = Some(e.to_string()),
            }
        }
        let token = token::find(headers).map_err(unauthorized)?;
        if let Some(token) = token {
            let Some(tokens) = &self.tokens else {
                return Err(unauthorized("bearer tokens are not accepted here"));
            };
            return match tokens.judge(&token).await {
                Ok(Some(user)) => Ok(user),
                Ok(None) => Err(unauthorized("the bearer token is not valid")),
                Err(outage) => Err(Refusal::unavailable(
                    Stage::Authn,
                    format!("the bearer token could not be judged: {outage}"),
                )),
            };
        }
        match (shown, &self.anonymous) {
            (None, Some(anonymous)) => Ok(Arc::clone(anonymous)),
            (Some(why), _) => Err(unauthorized(&why)),
            (None, None) => Err(unauthorized("no client certificate and no bearer token")),
        }
    }
}

/// 401 in kube-apiserver's words, with the reason for a person behind them.
fn unauthorized(why: &str) -> Refusal {
    Refusal::new(
        Stage::Authn,
        StatusCode::UNAUTHORIZED,
        "Unauthorized",
        format!("Unauthorized: {why}"),
    )
}

#[cfg(test)]
mod tests;
