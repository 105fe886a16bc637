//! Bearer tokens judged by a `TokenReview`, the verdict kept for a while.
//!
//! ```text
//! accepted not long ago ............................ the verdict kept
//! refused a moment ago; no token to ask about ...... a refusal
//! its source has had too many refused, or too many
//! questions are asked already ...................... too many: no verdict
//! asked, once for all who wait: answered ........... the verdict, kept
//!                               out ................ the last acceptance, if it is not too old;
//!                                                    else an outage: no verdict
//! ```
//! Caches hold digests and never a token, and are bounded. Acceptances and refusals have one each,
//! so that made-up tokens push nobody out. Tokens that were accepted before, or that are well
//! signed, have places of their own to be asked about in: no flood can put their review off.

mod limits;
mod read;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moka::future::Cache;
use serde_json::{Value, json};
use sluice_ratelimit::Rejection;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::limits::Limits;
use super::bearer::TokenDigest;
use super::jwt;
use super::review::{self, Reviewer, ReviewerOutage};
use crate::identity::UserInfo;

/// Acceptances kept: a verdict is a few hundred bytes, so this is some ten megabytes, and more
/// tokens than the pods of a large cluster show one replica in a cache lifetime.
const ACCEPTED_MAX: u64 = 32_768;

/// Verdicts shared while they are asked for, and refusals kept.
const VERDICTS_MAX: u64 = 16_384;

/// Unknown tokens judged at once: a review takes milliseconds, so this is thousands a second.
const STRANGERS_AT_ONCE: usize = 64;

/// Known tokens judged again at once.
const KNOWN_AT_ONCE: usize = 32;

/// How long an unknown token waits to be judged: as long as a review may take.
const REVIEW_WAIT: Duration = Duration::from_secs(5);

/// How long a token waits that has something to go by if nobody answers.
const KNOWN_WAIT: Duration = Duration::from_secs(1);

/// How long nobody is asked about those after nobody has answered.
const OUTAGE_PAUSE: Duration = Duration::from_secs(5);

/// The longest wait that is asked for, in seconds; who is at fault does not wait anyway.
const WAIT_MAX: u64 = 5;

const REVIEW_PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// What is asked about, and how long verdicts are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenReviewsOptions {
    /// An acceptance; a revoked token stays good this long.
    pub accepted_for: Duration,
    /// A refusal.
    pub refused_for: Duration,
    /// How much longer an acceptance is good while nobody can be asked.
    pub stale_for: Duration,
    /// Whether tokens that are not signed ones (JWT) are asked about.
    pub opaque: bool,
    /// Issuers whose signed tokens are asked about; empty: any.
    pub issuers: Vec<String>,
    /// Questions about unknown tokens a second.
    pub per_second: NonZeroU32,
    /// Refused tokens a second of one source.
    pub failures_per_second: NonZeroU32,
}

impl Default for TokenReviewsOptions {
    fn default() -> Self {
        TokenReviewsOptions {
            accepted_for: Duration::from_secs(120),
            refused_for: Duration::from_secs(10),
            stale_for: Duration::from_secs(300),
            opaque: true,
            issuers: Vec::new(),
            per_second: const { NonZeroU32::new(200).expect("not zero") },
            failures_per_second: const { NonZeroU32::new(10).expect("not zero") },
        }
    }
}

/// Why there is no verdict.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Unjudged {
    /// Nobody could be asked.
    #[error(transparent)]
    Outage(#[from] ReviewerOutage),
    /// Too much was asked already; again in so many whole seconds.
    #[error("too many bearer tokens were not valid, or are being judged")]
    TooMany(u32),
}

/// Judges tokens.
pub struct TokenReviews {
    reviewer: Arc<dyn Reviewer>,
    options: TokenReviewsOptions,
    accepted: Cache<TokenDigest, Accepted>,
    /// `None` is a refusal.
    verdicts: Cache<TokenDigest, Option<Arc<UserInfo>>>,
    strangers: Semaphore,
    known: Semaphore,
    limits: Limits,
    born: Instant,
    /// Until when nobody is asked about known tokens, in milliseconds after `born`.
    paused: AtomicU64,
}

#[derive(Clone)]
struct Accepted {
    user: Arc<UserInfo>,
    at: Instant,
    /// When the token itself ends, as time since the Unix epoch.
    ends: Option<Duration>,
}

struct Lifetimes {
    refused_for: Duration,
}

impl moka::Expiry<TokenDigest, Option<Arc<UserInfo>>> for Lifetimes {
    fn expire_after_create(
        &self,
        _digest: &TokenDigest,
        verdict: &Option<Arc<UserInfo>>,
        _now: std::time::Instant,
    ) -> Option<Duration> {
        // An acceptance is in the other cache.
        Some(match verdict {
            Some(_) => Duration::ZERO,
            None => self.refused_for,
        })
    }
}

/// One question: a token, from where, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) token: &'a str,
    pub(super) digest: TokenDigest,
    pub(super) source: IpAddr,
    /// The present as time since the Unix epoch.
    pub(super) wall: Duration,
}

impl TokenReviews {
    /// Judges by asking `reviewer`.
    #[must_use]
    pub fn new(reviewer: Arc<dyn Reviewer>, options: TokenReviewsOptions) -> Self {
        let born = Instant::now();
        let accepted = Cache::builder()
            .max_capacity(ACCEPTED_MAX)
            .time_to_live(options.accepted_for.saturating_add(options.stale_for));
        let verdicts = Cache::builder()
            .max_capacity(VERDICTS_MAX)
            .expire_after(Lifetimes {
                refused_for: options.refused_for,
            });
        TokenReviews {
            reviewer,
            accepted: accepted.build(),
            verdicts: verdicts.build(),
            strangers: Semaphore::new(STRANGERS_AT_ONCE),
            known: Semaphore::new(KNOWN_AT_ONCE),
            limits: Limits::new(
                options.per_second,
                options.failures_per_second,
                born.into_std(),
            ),
            options,
            born,
            paused: AtomicU64::new(0),
        }
    }

    /// Who the token stands for; `None` when it is not valid.
    ///
    /// # Errors
    /// When there is no verdict; nothing is kept then.
    pub(super) async fn judge(&self, asked: Asked<'_>) -> Result<Option<Arc<UserInfo>>, Unjudged> {
        match self.accepted.get(&asked.digest).await {
            Some(accepted) if self.is_fresh(&accepted) => Ok(Some(accepted.user)),
            Some(accepted) if self.is_good_without_asking(&accepted, asked.wall) => {
                let user = Arc::clone(&accepted.user);
                Ok(self.ask_again(asked).await.unwrap_or(Some(user)))
            }
            _ => self.judge_stranger(asked).await,
        }
    }

    /// Whether a token that is well signed holds in the cluster's eyes, too. It does while nobody
    /// can be asked.
    pub(super) async fn confirms(&self, asked: Asked<'_>) -> bool {
        if let Some(accepted) = self.accepted.get(&asked.digest).await
            && self.is_fresh(&accepted)
        {
            return true;
        }
        let answer = self.ask_again(asked).await;
        !matches!(answer, Some(None))
    }

    fn is_fresh(&self, accepted: &Accepted) -> bool {
        accepted.at.elapsed() < self.options.accepted_for
    }

    fn is_good_without_asking(&self, accepted: &Accepted, wall: Duration) -> bool {
        let most = self
            .options
            .accepted_for
            .saturating_add(self.options.stale_for);
        accepted.at.elapsed() < most && accepted.ends.is_none_or(|ends| wall < ends)
    }

    async fn judge_stranger(&self, asked: Asked<'_>) -> Result<Option<Arc<UserInfo>>, Unjudged> {
        if let Some(verdict) = self.verdicts.get(&asked.digest).await {
            return Ok(verdict);
        }
        if !self.is_asked_about(asked.token) {
            return Ok(None);
        }
        let asking = self.ask_for_stranger(asked);
        let verdict = self.verdicts.try_get_with(asked.digest, asking).await;
        verdict.map_err(|unjudged| unjudged.as_ref().clone())
    }

    /// What need not be asked about: in some clusters nobody's token looks so.
    fn is_asked_about(&self, token: &str) -> bool {
        if self.options.opaque && self.options.issuers.is_empty() {
            return true;
        }
        match jwt::peek(token) {
            None => self.options.opaque,
            Some(peeked) => {
                let issuers = &self.options.issuers;
                issuers.is_empty() || issuers.iter().any(|i| peeked.issuer.as_ref() == Some(i))
            }
        }
    }

    async fn ask_for_stranger(&self, asked: Asked<'_>) -> Result<Option<Arc<UserInfo>>, Unjudged> {
        let account = self.limits.account(asked.source, now());
        self.limits.check(&account, now()).map_err(too_many)?;
        let place = tokio::time::timeout(REVIEW_WAIT, self.strangers.acquire()).await;
        let Ok(Ok(_place)) = place else {
            let text = format!("more than {STRANGERS_AT_ONCE} tokens are being judged already");
            return Err(ReviewerOutage(text).into());
        };
        // Others of this source may have been refused meanwhile.
        self.limits.check(&account, now()).map_err(too_many)?;
        self.limits.take(now()).map_err(too_many)?;
        let verdict = self.ask(asked).await?;
        if verdict.is_none() {
            self.limits.refused(&account, now());
        }
        Ok(verdict)
    }

    /// The answer about a token that has something else to go by; `None` when there is none soon.
    async fn ask_again(&self, asked: Asked<'_>) -> Option<Option<Arc<UserInfo>>> {
        if let Some(verdict) = self.verdicts.get(&asked.digest).await {
            return Some(verdict);
        }
        if self.since_born() < self.paused.load(Ordering::Relaxed) {
            return None;
        }
        let asking = async {
            let closed = |_| ReviewerOutage("nobody is asked any more".to_owned());
            let _place = self.known.acquire().await.map_err(closed)?;
            Ok::<_, Unjudged>(self.ask(asked).await?)
        };
        let asking = self.verdicts.try_get_with(asked.digest, asking);
        let why = match tokio::time::timeout(KNOWN_WAIT, asking).await {
            Ok(Ok(verdict)) => return Some(verdict),
            Ok(Err(unjudged)) => unjudged.to_string(),
            Err(_) => format!("no answer within {KNOWN_WAIT:?}"),
        };
        let until = self.since_born() + u64::try_from(OUTAGE_PAUSE.as_millis()).unwrap_or(0);
        if self.paused.fetch_max(until, Ordering::Relaxed) < self.since_born() {
            tracing::warn!("TokenReview is out, known tokens are let in without: {why}");
        }
        None
    }

    fn since_born(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn ask(&self, asked: Asked<'_>) -> Result<Option<Arc<UserInfo>>, ReviewerOutage> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": asked.token },
        });
        let at = Instant::now();
        let status = review::ask(self.reviewer.as_ref(), REVIEW_PATH, &review).await?;
        let user = if status.get("authenticated") == Some(&Value::Bool(true)) {
            read::user(status.get("user").unwrap_or(&Value::Null))
        } else {
            UserInfo::default()
        };
        // A name is what makes a user: an empty one would go upstream as the gateway itself.
        if user.name.is_empty() {
            self.accepted.invalidate(&asked.digest).await;
            return Ok(None);
        }
        let user = self.keep(asked, user, at).await;
        Ok(Some(user))
    }

    /// Keeps an acceptance; the same user stays the same value, by which others know it again.
    async fn keep(&self, asked: Asked<'_>, user: UserInfo, at: Instant) -> Arc<UserInfo> {
        let old = self.accepted.get(&asked.digest).await;
        let user = match old {
            Some(old) if *old.user == user => old.user,
            _ => Arc::new(user),
        };
        let accepted = Accepted {
            user: Arc::clone(&user),
            at,
            ends: jwt::peek(asked.token).and_then(|peeked| peeked.ends),
        };
        self.accepted.insert(asked.digest, accepted).await;
        user
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

fn too_many(rejection: Rejection) -> Unjudged {
    let seconds = rejection
        .retry_after
        .as_secs()
        .saturating_add(1)
        .min(WAIT_MAX);
    Unjudged::TooMany(u32::try_from(seconds).unwrap_or(1))
}
