//! Bearer tokens: found in a request, judged by a `TokenReview`, the verdict kept for a while.
//!
//! The cache holds digests and never a token. It is bounded, asks once for any number of callers
//! with one token, keeps refusals shorter than acceptances, and keeps outages not at all: a flood
//! of bad tokens costs the upstream one question a token and negative lifetime, and few at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use moka::future::Cache;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::review::{self, Reviewer, ReviewerOutage};
use crate::identity::{AUTHENTICATED, UserInfo};

/// Digests kept: a verdict is a few hundred bytes, so this is some ten megabytes, and more tokens
/// than the pods of a large cluster show one replica in a cache lifetime.
const VERDICTS_MAX: u64 = 32_768;

/// A token longer than this is refused unread: service-account tokens are about a kilobyte, and
/// the whole header list may not pass 64 KiB.
const TOKEN_BYTES_MAX: usize = 48 * 1024;

/// Tokens judged at once: a review takes milliseconds, so this is thousands a second, and a flood
/// of made-up tokens is no flood of questions to the upstream.
const REVIEWS_AT_ONCE: usize = 64;

/// How long a token waits to be judged: as long as a review may take.
const REVIEW_WAIT: Duration = Duration::from_secs(5);

const REVIEW_PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Marks a WebSocket subprotocol that carries a token.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// How long verdicts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenReviewsOptions {
    /// An acceptance; a revoked token stays good this long.
    pub accepted_for: Duration,
    /// A refusal.
    pub refused_for: Duration,
}

/// Judges tokens.
pub struct TokenReviews {
    reviewer: Arc<dyn Reviewer>,
    verdicts: Cache<[u8; 32], Option<Arc<UserInfo>>>,
    places: Semaphore,
}

struct Lifetimes(TokenReviewsOptions);

impl moka::Expiry<[u8; 32], Option<Arc<UserInfo>>> for Lifetimes {
    fn expire_after_create(
        &self,
        _digest: &[u8; 32],
        verdict: &Option<Arc<UserInfo>>,
        _now: Instant,
    ) -> Option<Duration> {
        Some(if verdict.is_some() {
            self.0.accepted_for
        } else {
            self.0.refused_for
        })
    }
}

impl TokenReviews {
    /// Judges by asking `reviewer`.
    #[must_use]
    pub fn new(reviewer: Arc<dyn Reviewer>, options: TokenReviewsOptions) -> Self {
        let verdicts = Cache::builder()
            .max_capacity(VERDICTS_MAX)
            .expire_after(Lifetimes(options))
            .build();
        TokenReviews {
            reviewer,
            verdicts,
            places: Semaphore::new(REVIEWS_AT_ONCE),
        }
    }

    /// Who the token stands for; `None` when it is not valid.
    ///
    /// # Errors
    /// When nobody could be asked; nothing is kept then.
    pub async fn judge(&self, token: &str) -> Result<Option<Arc<UserInfo>>, ReviewerOutage> {
        if token.len() > TOKEN_BYTES_MAX {
            return Ok(None);
        }
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        self.verdicts
            .try_get_with(digest, self.ask(token))
            .await
            .map_err(|outage| outage.as_ref().clone())
    }

    async fn ask(&self, token: &str) -> Result<Option<Arc<UserInfo>>, ReviewerOutage> {
        let place = tokio::time::timeout(REVIEW_WAIT, self.places.acquire()).await;
        let Ok(Ok(_place)) = place else {
            let text = format!("more than {REVIEWS_AT_ONCE} tokens are being judged already");
            return Err(ReviewerOutage(text));
        };
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token },
        });
        let status = review::ask(self.reviewer.as_ref(), REVIEW_PATH, &review).await?;
        if status.get("authenticated") != Some(&Value::Bool(true)) {
            return Ok(None);
        }
        let user = read_user(status.get("user").unwrap_or(&Value::Null));
        // A name is what makes a user: an empty one would go upstream as the gateway itself.
        Ok((!user.name.is_empty()).then(|| Arc::new(user)))
    }
}

fn read_user(user: &Value) -> UserInfo {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let texts = |value: Option<&Value>| -> Vec<String> {
        let list = value
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        list.iter()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    };
    let mut groups = texts(user.get("groups"));
    if !groups.iter().any(|g| g == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let extra = user
        .get("extra")
        .and_then(Value::as_object)
        .map(|map| {
            map.iter()
                .map(|(k, v)| (k.to_lowercase(), texts(Some(v))))
                .collect()
        })
        .unwrap_or_default();
    UserInfo {
        name: text(user.get("username")),
        uid: text(user.get("uid")),
        groups,
        extra,
    }
}

/// The token a request shows: in `Authorization`, or as a WebSocket subprotocol.
///
/// # Errors
/// Why what is shown is no token, in which case the caller is nobody, and not anonymous.
pub(super) fn find(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    if let Some(value) = headers.get(AUTHORIZATION) {
        let text = std::str::from_utf8(value.as_bytes());
        let text = text.map_err(|_| "the Authorization header is not text")?;
        let mut parts = text.trim().splitn(3, ' ');
        if let (Some(scheme), Some(token)) = (parts.next(), parts.next())
            && scheme.eq_ignore_ascii_case("bearer")
            && !token.is_empty()
        {
            return Ok(Some(token.to_owned()));
        }
    }
    if headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        find_subprotocol(headers)
    } else {
        Ok(None)
    }
}

fn find_subprotocol(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let mut encoded = None;
    let mut others = 0;
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let text = value.to_str().map_err(|_| "a subprotocol is not text")?;
        for entry in text.split(',').map(str::trim) {
            match entry.strip_prefix(WEBSOCKET_PREFIX) {
                Some(_) if encoded.is_some() => return Err("several subprotocols are tokens"),
                Some(token) => encoded = Some(token),
                None => others += 1,
            }
        }
    }
    let Some(encoded) = encoded else {
        return Ok(None);
    };
    if others == 0 {
        return Err("a token alone is no subprotocol: name one that is spoken, too");
    }
    let bytes = URL_SAFE_NO_PAD.decode(encoded);
    let bytes = bytes.map_err(|_| "a subprotocol's token is not base64url without padding")?;
    match String::from_utf8(bytes) {
        Ok(token) if !token.is_empty() => Ok(Some(token)),
        _ => Err("a subprotocol's token is empty or no text"),
    }
}
