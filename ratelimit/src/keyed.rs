//! From (rule, key) to what is counted for it, with a bound on the number of keys.
//!
//! An entry may be forgotten only when nothing is lost by it: it is idle (a full bucket, no permit
//! held) and nobody else holds its `Arc`. Evicting a client's half-empty bucket would hand him a
//! fresh burst. So when the map is full of entries in use, a new key shares one entry with all
//! other such keys of its rule: they are limited together, and nobody is limited less.
//!
//! Callers may keep an entry's `Arc` (for a connection, say) and skip the look-up; the entry stays
//! in the map meanwhile, so that whoever looks it up finds the same. [`Keyed::sweep`] is for a
//! timer; a full map also sweeps itself, at most once in [`SWEEP_PAUSE`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use foldhash::quality::RandomState;

use crate::bucket::Bucket;
use crate::debt::Debt;
use crate::inflight::InFlight;
use crate::key::{Key, RuleId};
use crate::moment::{Moment, nanos};

/// Keys kept at once: 50,000 nodes under five keyed rules. At some 250 bytes each, 64 MiB.
pub const KEYS_MAX_DEFAULT: usize = 262_144;

/// Between two sweeps that a full map makes by itself: one takes milliseconds.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// Shards: a sweep locks one at a time, for about 4,096 entries of a full map (0.2 ms).
const SHARDS: usize = 64;

/// What may be kept by key.
pub trait Idle {
    /// Whether a new one would answer everything the same from now on.
    fn is_idle(&self, now: Moment) -> bool;
}

impl Idle for Bucket {
    fn is_idle(&self, now: Moment) -> bool {
        self.is_full(now)
    }
}

impl Idle for InFlight {
    fn is_idle(&self, _now: Moment) -> bool {
        self.held() == 0 && self.waiting() == 0
    }
}

impl Idle for Debt {
    fn is_idle(&self, now: Moment) -> bool {
        self.owed(now).is_zero()
    }
}

/// (rule, key) to `V`, bounded.
#[derive(Debug)]
pub struct Keyed<V> {
    entries: DashMap<Box<[u8]>, Arc<V>, RandomState>,
    /// Entries, counted here since the map's own count locks every shard. At most `keys_max`.
    keys: AtomicUsize,
    keys_max: usize,
    /// One a rule, for keys beyond the bound; bounded by the number of rules.
    shared: DashMap<RuleId, Arc<V>, RandomState>,
    shared_hits: AtomicU64,
    swept_at: AtomicU64,
}

impl<V: Idle> Keyed<V> {
    /// An empty map for at most `keys_max` keys.
    #[must_use]
    pub fn new(keys_max: usize) -> Self {
        Keyed {
            entries: DashMap::with_hasher_and_shard_amount(RandomState::default(), SHARDS),
            keys: AtomicUsize::new(0),
            keys_max,
            shared: DashMap::with_hasher_and_shard_amount(RandomState::default(), 2),
            shared_hits: AtomicU64::new(0),
            swept_at: AtomicU64::new(0),
        }
    }

    /// The key's entry, made by `make` if there is none; the rule's shared entry when there is no
    /// room for one.
    pub fn get(&self, key: &Key, now: Moment, make: impl FnOnce() -> V) -> Arc<V> {
        if let Some(found) = self.entries.get(key.as_bytes()) {
            return Arc::clone(&found);
        }
        self.insert(key, now, make)
    }

    #[cold]
    fn insert(&self, key: &Key, now: Moment, make: impl FnOnce() -> V) -> Arc<V> {
        let has_room = self.reserve() || (self.sweep_if_due(now) && self.reserve());
        if !has_room {
            self.shared_hits.fetch_add(1, Ordering::Relaxed);
            let shared = self
                .shared
                .entry(key.rule())
                .or_insert_with(|| Arc::new(make()));
            return Arc::clone(&shared);
        }
        match self.entries.entry(key.as_bytes().into()) {
            Entry::Occupied(found) => {
                self.keys.fetch_sub(1, Ordering::Relaxed);
                Arc::clone(found.get())
            }
            Entry::Vacant(room) => Arc::clone(&room.insert(Arc::new(make()))),
        }
    }

    fn reserve(&self) -> bool {
        let add = |keys: usize| (keys < self.keys_max).then(|| keys + 1);
        self.keys
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    fn sweep_if_due(&self, now: Moment) -> bool {
        let due = |last: u64| {
            let next = last.saturating_add(nanos(SWEEP_PAUSE));
            (last == 0 || next <= now.as_nanos()).then_some(now.as_nanos().max(1))
        };
        let is_due = self
            .swept_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, due)
            .is_ok();
        is_due && self.sweep(now, |_| false) > 0
    }

    /// Forgets idle entries, and those of rules that are `gone` whether idle or not, unless
    /// somebody holds them. Answers how many.
    pub fn sweep(&self, now: Moment, gone: impl Fn(RuleId) -> bool) -> usize {
        let keeps = |rule: RuleId, entry: &Arc<V>| {
            // Nobody can take the Arc out meanwhile: its shard is locked.
            Arc::strong_count(entry) > 1 || !(gone(rule) || entry.is_idle(now))
        };
        let mut swept = 0;
        self.entries.retain(|key, entry| {
            let keep = keeps(RuleId::of(key), entry);
            swept += usize::from(!keep);
            keep
        });
        self.shared.retain(|rule, entry| keeps(*rule, entry));
        let before = self.keys.fetch_sub(swept, Ordering::Relaxed);
        if swept > before / 2 && before > SHARDS * SHARDS {
            self.entries.shrink_to_fit();
        }
        swept
    }

    /// How many keys have an entry of their own.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Whether no key has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many look-ups ended at a shared entry for want of room.
    #[must_use]
    pub fn shared_hits(&self) -> u64 {
        self.shared_hits.load(Ordering::Relaxed)
    }
}
