//! Signed tokens (JWT) judged here, by their issuer's public keys, without asking anybody.
//!
//! ```text
//! the digest is known, by keys still in force, and has not run out ... the verdict kept
//! not a signed token, or of an issuer that nobody named .............. not ours: others judge it
//! signature, audience, times, mapping ................................ the user, or a refusal
//! its key is unknown and cannot be fetched ........................... an outage, no verdict
//! ```
//! A signature says what was true when the token was made. The account, pod or secret that a
//! service-account token is bound to may be gone since, and an issuer may have disowned a user:
//! until the token runs out nobody here can know. For service accounts a `TokenReview` may be had
//! to confirm the verdict ([`Local::Accepted::confirm`]).
//!
//! Bounded: `KNOWN_MAX` users and `REFUSED_MAX` refusals, by digests and never tokens.

mod algorithm;
mod claims;
mod compact;
mod keys;
mod oidc;
mod ring;
mod service_account;

#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;

use self::algorithm::Algorithm;
use self::claims::{Claims, LEEWAY, holds_until, is_meant_for};
use self::compact::Compact;
use self::ring::{REFETCH_MIN, Signed};
use super::bearer::TokenDigest;
use crate::identity::UserInfo;

pub use self::keys::{KeySet, KeysFault};
pub use self::oidc::ClaimMapping;
pub use self::ring::{KeyRing, KeySource, KeysFuture, KeysOutage};

/// Users kept, some hundred bytes each: more than the pods of a large cluster.
const KNOWN_MAX: u64 = 32_768;

/// How long a user is kept: a projected token lives an hour.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// Refusals kept: only a client that repeats itself is helped by them.
const REFUSED_MAX: u64 = 4096;

/// Whose tokens an issuer signs.
#[derive(Clone, Debug)]
pub enum Tokens {
    /// A cluster's service accounts.
    ServiceAccounts {
        /// Whether a `TokenReview` has to confirm each.
        confirm: bool,
    },
    /// People, by OpenID Connect.
    Oidc(ClaimMapping),
}

/// One issuer of tokens.
#[derive(Clone, Debug)]
pub struct Issuer {
    /// What tokens say in `iss`; any of them.
    pub names: Vec<String>,
    /// Tokens must be meant for one of these.
    pub audiences: Vec<String>,
    /// What they are signed with.
    pub keys: Arc<KeyRing>,
    /// Whose they are.
    pub tokens: Tokens,
}

/// A verdict.
#[derive(Clone, Debug)]
pub enum Local {
    /// Nobody here can tell: not a signed token, or of another issuer.
    NotOurs,
    /// It holds.
    Accepted {
        /// Whom it stands for.
        user: Arc<UserInfo>,
        /// Whether a `TokenReview` has to confirm it.
        confirm: bool,
    },
    /// It does not, for this reason.
    Refused(&'static str),
    /// Its issuer's keys cannot be had.
    Outage(KeysOutage),
}

/// Judges the tokens of some issuers.
#[derive(Debug)]
pub struct LocalTokens {
    issuers: Vec<Issuer>,
    known: Cache<TokenDigest, Known>,
    /// Tokens that their issuer has not signed, with the generation of the keys that say so.
    refused: Cache<TokenDigest, u64>,
}

#[derive(Clone)]
struct Known {
    user: Arc<UserInfo>,
    until: Duration,
    issuer: usize,
    generation: u64,
}

const NOT_SIGNED: &str = "the bearer token is not signed by its issuer";

impl LocalTokens {
    /// Judges the tokens of `issuers`.
    #[must_use]
    pub fn new(issuers: Vec<Issuer>) -> Self {
        let known = Cache::builder()
            .max_capacity(KNOWN_MAX)
            .time_to_live(KNOWN_FOR);
        let refused = Cache::builder()
            .max_capacity(REFUSED_MAX)
            .time_to_live(REFETCH_MIN);
        LocalTokens {
            issuers,
            known: known.build(),
            refused: refused.build(),
        }
    }

    /// Judges a token. `wall` is the present as time since the Unix epoch.
    pub async fn judge(&self, token: &str, digest: TokenDigest, wall: Duration) -> Local {
        if let Some(known) = self.known.get(&digest).await
            && let Some(issuer) = self.issuers.get(known.issuer)
            && wall < known.until
            && issuer.keys.generation() == Some(known.generation)
        {
            return Local::Accepted {
                user: known.user,
                confirm: issuer.tokens.need_confirming(),
            };
        }
        let Some(read) = Compact::read(token) else {
            return Local::NotOurs;
        };
        let Some((at, issuer)) = self.issuer(&read) else {
            return Local::NotOurs;
        };
        let Some(algorithm) = Algorithm::named(&read.algorithm) else {
            return Local::Refused("the bearer token is signed in a way that is not accepted");
        };
        if let Some(generation) = self.refused.get(&digest).await
            && issuer.keys.generation() == Some(generation)
        {
            return Local::Refused(NOT_SIGNED);
        }
        let generation = match issuer.keys.verify(&read, algorithm).await {
            Signed::Good(generation) => generation,
            Signed::Unknown(outage) => return Local::Outage(outage),
            Signed::Bad => {
                if let Some(generation) = issuer.keys.generation() {
                    self.refused.insert(digest, generation).await;
                }
                return Local::Refused(NOT_SIGNED);
            }
        };
        match issuer.user(&read.claims, wall) {
            Err(why) => Local::Refused(why),
            Ok((user, until)) => {
                let known = Known {
                    user: Arc::new(user),
                    until,
                    issuer: at,
                    generation,
                };
                self.known.insert(digest, known.clone()).await;
                Local::Accepted {
                    user: known.user,
                    confirm: issuer.tokens.need_confirming(),
                }
            }
        }
    }

    fn issuer(&self, token: &Compact<'_>) -> Option<(usize, &Issuer)> {
        let name = token.issuer()?;
        let mut issuers = self.issuers.iter().enumerate();
        issuers.find(|(_, issuer)| issuer.names.iter().any(|known| known == name))
    }
}

impl Tokens {
    fn need_confirming(&self) -> bool {
        matches!(self, Tokens::ServiceAccounts { confirm: true })
    }
}

impl Issuer {
    /// Whom verified claims stand for, and until when.
    fn user(&self, claims: &Claims, wall: Duration) -> Result<(UserInfo, Duration), &'static str> {
        if !is_meant_for(claims, &self.audiences) {
            return Err("the bearer token is meant for another audience");
        }
        Ok(match &self.tokens {
            Tokens::ServiceAccounts { .. } => {
                let until = holds_until(claims, wall, LEEWAY)?;
                (service_account::user(claims)?, until)
            }
            // A kube-apiserver forgives these nothing at their end.
            Tokens::Oidc(mapping) => {
                let until = holds_until(claims, wall, Duration::ZERO)?;
                (oidc::user(claims, mapping)?, until)
            }
        })
    }
}

/// What a signed token says of itself; nothing of it is verified.
pub(super) struct Peeked {
    /// Who would have signed it.
    pub(super) issuer: Option<String>,
    /// When it would end, as time since the Unix epoch.
    pub(super) ends: Option<Duration>,
}

/// Looks into a token; `None` when it is not a signed one.
pub(super) fn peek(token: &str) -> Option<Peeked> {
    let read = Compact::read(token)?;
    Some(Peeked {
        issuer: read.issuer().map(str::to_owned),
        ends: claims::ends(&read.claims),
    })
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Known({})", self.user.name)
    }
}
