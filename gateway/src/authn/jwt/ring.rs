//! The keys of one issuer in force: fetched when first needed, again now and then, and again when a
//! token names one that is not among them, as issuers rotate.
//!
//! Keys that cannot be fetched again stay good for a stated while; without any, nobody can be
//! judged, which is an outage and no verdict. One fetch at a time, whoever waits for it, and no two
//! within [`REFETCH_MIN`] whatever tokens claim: strangers do not set the pace.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::algorithm::Algorithm;
use super::compact::Compact;
use super::keys::{KeySet, Signature};

/// From one fetch to the next while all is well: a key that was withdrawn is good that long.
const REFRESH: Duration = Duration::from_secs(300);

/// Between two fetches at the least. An issuer publishes a key before it signs with it, so that a
/// key which is still unknown after this long is nobody's.
pub(super) const REFETCH_MIN: Duration = Duration::from_secs(10);

/// How long one fetch may take; requests wait for it.
const FETCH_MAX: Duration = Duration::from_secs(5);

/// Keys could not be had: an outage, never a verdict.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeysOutage(pub String);

/// Keys on their way.
pub type KeysFuture<'a> = Pin<Box<dyn Future<Output = Result<Bytes, KeysOutage>> + Send + 'a>>;

/// Wherever an issuer's keys come from.
pub trait KeySource: Send + Sync {
    /// The text of a key set.
    fn fetch(&self) -> KeysFuture<'_>;
}

/// The keys of one issuer.
pub struct KeyRing {
    source: Option<Arc<dyn KeySource>>,
    stale_for: Duration,
    born: Instant,
    loaded: ArcSwapOption<Loaded>,
    last: Mutex<Option<Attempt>>,
    /// When to look again, in milliseconds after `born`.
    due: AtomicU64,
}

struct Loaded {
    text: Bytes,
    keys: KeySet,
    generation: u64,
    at: Instant,
}

struct Attempt {
    began: Instant,
    outcome: Result<(), KeysOutage>,
}

/// What the keys say of a token.
#[derive(Debug)]
pub(super) enum Signed {
    /// Its issuer has signed it; the generation of the keys that say so.
    Good(u64),
    /// Its issuer has not.
    Bad,
    /// It cannot be said.
    Unknown(KeysOutage),
}

/// What a fetch came to.
enum Fetched {
    /// The newest keys, younger than the question.
    Fresh(Arc<Loaded>),
    /// There was one a moment ago.
    TooSoon,
    Failed(KeysOutage),
}

impl KeyRing {
    /// Keys that do not change.
    #[must_use]
    pub fn fixed(keys: KeySet) -> Arc<Self> {
        let ring = KeyRing::new(None, Duration::MAX);
        ring.loaded.store(Some(Arc::new(Loaded {
            text: Bytes::new(),
            keys,
            generation: 1,
            at: ring.born,
        })));
        Arc::new(ring)
    }

    /// Keys of `source`, which stay good for `stale_for` after they were last fetched.
    #[must_use]
    pub fn following(source: Arc<dyn KeySource>, stale_for: Duration) -> Arc<Self> {
        Arc::new(KeyRing::new(Some(source), stale_for.max(REFRESH)))
    }

    fn new(source: Option<Arc<dyn KeySource>>, stale_for: Duration) -> Self {
        KeyRing {
            source,
            stale_for,
            born: Instant::now(),
            loaded: ArcSwapOption::const_empty(),
            last: Mutex::new(None),
            due: AtomicU64::new(u64::MAX),
        }
    }

    /// Which keys are in force; grows when they change. `None` while there are none.
    pub(super) fn generation(self: &Arc<Self>) -> Option<u64> {
        self.current().map(|loaded| loaded.generation)
    }

    /// Judges a token's signature.
    pub(super) async fn verify(
        self: &Arc<Self>,
        token: &Compact<'_>,
        algorithm: Algorithm,
    ) -> Signed {
        let asked = Instant::now();
        let id = token.key.as_deref();
        let judge = |loaded: &Loaded| {
            let keys = &loaded.keys;
            keys.verify(id, algorithm, token.signed, &token.signature)
        };
        let mut seen = None;
        let mut first = Signature::UnknownKey;
        if let Some(loaded) = self.current() {
            first = judge(&loaded);
            match first {
                Signature::Good => return Signed::Good(loaded.generation),
                Signature::Bad if id.is_some() => return Signed::Bad,
                // A new key, or a new one in the place of one without a name.
                Signature::Bad | Signature::UnknownKey => seen = Some(loaded.generation),
            }
        }
        match self.fetch(asked, seen).await {
            Fetched::Fresh(loaded) => match judge(&loaded) {
                Signature::Good => Signed::Good(loaded.generation),
                Signature::Bad | Signature::UnknownKey => Signed::Bad,
            },
            _ if first == Signature::Bad => Signed::Bad,
            Fetched::TooSoon => {
                let text = "its key is not known yet, and its issuer was asked a moment ago";
                Signed::Unknown(KeysOutage(text.to_owned()))
            }
            Fetched::Failed(outage) => Signed::Unknown(outage),
        }
    }

    /// The keys in force; looks for newer ones in the background when it is time to.
    fn current(self: &Arc<Self>) -> Option<Arc<Loaded>> {
        let loaded = self.loaded.load_full()?;
        let now = Instant::now();
        let due = self.due.load(Ordering::Relaxed);
        if self.since_born(now) >= due {
            let next = self.since_born(now + REFETCH_MIN);
            let order = Ordering::Relaxed;
            if self.due.compare_exchange(due, next, order, order).is_ok() {
                let (me, generation) = (Arc::clone(self), loaded.generation);
                tokio::spawn(async move { me.fetch_once(now, Some(generation)).await });
            }
        }
        (now.duration_since(loaded.at) < self.stale_for).then_some(loaded)
    }

    fn since_born(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.born).as_millis()).unwrap_or(u64::MAX)
    }

    /// Fetches in a task of its own, so that it goes on when who asked has gone.
    async fn fetch(self: &Arc<Self>, asked: Instant, seen: Option<u64>) -> Fetched {
        let me = Arc::clone(self);
        let fetching = tokio::spawn(async move { me.fetch_once(asked, seen).await });
        fetching
            .await
            .unwrap_or_else(|_| Fetched::Failed(KeysOutage("the fetch broke off".to_owned())))
    }

    async fn fetch_once(&self, asked: Instant, seen: Option<u64>) -> Fetched {
        let mut last = self.last.lock().await;
        let current = self.loaded.load_full();
        let Some(source) = &self.source else {
            let none = || Fetched::Failed(KeysOutage("there are no keys".to_owned()));
            return current.map_or_else(none, Fetched::Fresh);
        };
        let now = Instant::now();
        if let Some(last) = last.as_ref() {
            let is_newer = |loaded: &Loaded| Some(loaded.generation) != seen;
            let is_younger = last.began >= asked;
            match (&last.outcome, current) {
                (Ok(()), Some(current)) if is_younger || is_newer(&current) => {
                    return Fetched::Fresh(current);
                }
                (Err(outage), _) if is_younger || now.duration_since(last.began) < REFETCH_MIN => {
                    return Fetched::Failed(outage.clone());
                }
                _ if now.duration_since(last.began) < REFETCH_MIN => return Fetched::TooSoon,
                _ => {}
            }
        }
        let outcome = match tokio::time::timeout(FETCH_MAX, source.fetch()).await {
            Ok(Ok(text)) => self.take(text),
            Ok(Err(outage)) => Err(outage),
            Err(_) => Err(KeysOutage(format!("no answer within {FETCH_MAX:?}"))),
        };
        if let Err(outage) = &outcome {
            tracing::warn!(%outage, "an issuer's keys could not be fetched; the last ones are used");
        }
        *last = Some(Attempt {
            began: now,
            outcome: outcome.as_ref().map(|_| ()).map_err(Clone::clone),
        });
        outcome.map_or_else(Fetched::Failed, Fetched::Fresh)
    }

    /// Puts a key set into force. The generation grows only if it differs.
    fn take(&self, text: Bytes) -> Result<Arc<Loaded>, KeysOutage> {
        let now = Instant::now();
        let old = self.loaded.load_full();
        let (keys, generation) = match old {
            Some(old) if old.text == text => (old.keys.clone(), old.generation),
            old => {
                let keys = KeySet::read(&text).map_err(|fault| KeysOutage(fault.to_string()))?;
                (keys, old.map_or(1, |old| old.generation + 1))
            }
        };
        let loaded = Arc::new(Loaded {
            text,
            keys,
            generation,
            at: now,
        });
        self.loaded.store(Some(Arc::clone(&loaded)));
        let due = self.since_born(now + REFRESH);
        self.due.store(due, Ordering::Relaxed);
        Ok(loaded)
    }
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let generation = self.loaded.load().as_ref().map(|loaded| loaded.generation);
        write!(f, "KeyRing({generation:?})")
    }
}
