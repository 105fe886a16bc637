//! Who is calling: a client certificate, a bearer token, or nobody; and with `--as`, as whom.
//!
//! The order is kube-apiserver's: whom a front proxy names, certificate, then token; the first that
//! holds wins, and a credential that does not hold is a 401 and never an anonymous caller. A token
//! is judged by its issuer's keys where these are known ([`jwt`]), else by a `TokenReview`. One
//! [`Authenticator`] belongs to one upstream cluster (or to the Kubernetes API of our own) and
//! trusts only that one's authority. It fails closed: an outage of the reviewer is a 503, never a
//! verdict.

mod bearer;
mod front_proxy;
mod impersonate;
pub mod jwt;
mod review;
mod token;
mod x509;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use self::bearer::{TOKEN_BYTES_MAX, TokenDigest};
use self::jwt::{Local, LocalTokens};
use self::token::{Asked, Unjudged};
use crate::context::Connection;
use crate::identity::UserInfo;
use crate::status::{Refusal, Stage};

pub use front_proxy::FrontProxies;
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
    front_proxies: Option<FrontProxies>,
    authority: Option<Arc<ClientAuthority>>,
    local: Option<LocalTokens>,
    tokens: Option<Arc<TokenReviews>>,
    impersonation: Option<Impersonation>,
    anonymous: Option<Arc<UserInfo>>,
}

/// What an [`Authenticator`] is made of.
#[derive(Default)]
pub struct AuthenticatorOptions {
    /// Who says in headers who calls; `None` reads no such headers.
    pub front_proxies: Option<FrontProxies>,
    /// Whose client certificates count; `None` counts none.
    pub authority: Option<Arc<ClientAuthority>>,
    /// Issuers whose bearer tokens are judged by their keys.
    pub local: Option<LocalTokens>,
    /// Who judges all other bearer tokens; `None` accepts none of them.
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
            front_proxies,
            authority,
            local,
            tokens,
            impersonation,
            anonymous,
        } = options;
        let anonymous = anonymous.then(|| Arc::new(UserInfo::anonymous()));
        Authenticator {
            front_proxies,
            authority,
            local,
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
        let source = connection.peer.ip();
        self.authenticate_from(source, connection, headers, wall)
            .await
    }

    /// As [`Authenticator::authenticate`], of a caller whose address is known better than by the
    /// connection; what is refused is charged to it.
    ///
    /// # Errors
    /// As there.
    pub async fn authenticate_from(
        &self,
        source: IpAddr,
        connection: &Connection,
        headers: &HeaderMap,
        wall: Duration,
    ) -> Result<Verdict, Refusal> {
        let user = self.caller(source, connection, headers, wall).await?;
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
                // Boxed, as what is below: rare, and large for a future that every request moves.
                Box::pin(impersonation.authorize(&user, &target)).await?;
                Ok(Verdict {
                    user: Arc::new(target.into_user()),
                    impersonator: Some(user),
                })
            }
        }
    }

    async fn caller(
        &self,
        source: IpAddr,
        connection: &Connection,
        headers: &HeaderMap,
        wall: Duration,
    ) -> Result<Arc<UserInfo>, Refusal> {
        if let Some(proxies) = &self.front_proxies
            && let Some(user) = proxies
                .user(connection, headers, wall)
                .map_err(unauthorized)?
        {
            return Ok(Arc::new(user));
        }
        let mut shown = None;
        if let Some(authority) = &self.authority
            && !connection.client_chain.is_empty()
        {
            match authority.judge_once(&connection.known, &connection.client_chain, wall) {
                Ok(user) => return Ok(user),
                Err(why) => shown = Some(why),
            }
        }
        if let Some(token) = bearer::find(headers).map_err(unauthorized)? {
            return Box::pin(self.bearer(source, &token, wall)).await;
        }
        match (shown, &self.anonymous) {
            (None, Some(anonymous)) => Ok(Arc::clone(anonymous)),
            (Some(why), _) => Err(unauthorized(&why)),
            (None, None) => Err(unauthorized("no client certificate and no bearer token")),
        }
    }

    /// Whom a token stands for.
    async fn bearer(
        &self,
        source: IpAddr,
        token: &str,
        wall: Duration,
    ) -> Result<Arc<UserInfo>, Refusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(unauthorized("the bearer token is too long"));
        }
        let asked = Asked {
            token,
            digest: TokenDigest::of(token),
            source,
            wall,
        };
        if let Some(local) = &self.local {
            match local.judge(token, asked.digest, wall).await {
                Local::NotOurs => {}
                Local::Accepted { user, confirm } => {
                    return match &self.tokens {
                        Some(tokens) if confirm && !tokens.confirms(asked).await => {
                            Err(unauthorized("the bearer token is not valid any more"))
                        }
                        _ => Ok(user),
                    };
                }
                Local::Refused(why) => return Err(unauthorized(why)),
                Local::Outage(why) => return Err(outage(why)),
            }
        }
        let Some(tokens) = &self.tokens else {
            return Err(unauthorized(
                "no issuer of such bearer tokens is known here",
            ));
        };
        match tokens.judge(asked).await {
            Ok(Some(user)) => Ok(user),
            Ok(None) => Err(unauthorized("the bearer token is not valid")),
            Err(Unjudged::Outage(why)) => Err(outage(why)),
            Err(Unjudged::TooMany(seconds)) => Err(too_many(seconds)),
        }
    }
}

/// 429: strangers have had too many tokens judged; nothing is said about this one.
fn too_many(seconds: u32) -> Refusal {
    let mut refusal = Refusal::new(
        Stage::Authn,
        StatusCode::TOO_MANY_REQUESTS,
        "TooManyRequests",
        "too many bearer tokens were not valid, or are being judged; try again later",
    );
    refusal.retry_after = Some(seconds);
    refusal
}

/// 503: what would say who the token stands for is out, and nothing is said about the token.
fn outage(why: impl std::fmt::Display) -> Refusal {
    let text = format!("the bearer token could not be judged: {why}");
    Refusal::unavailable(Stage::Authn, text)
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
