//! What has happened, found by stable ids: it outlives every table and every reload.
//!
//! A rule's state is kept while any table or running request holds it, and for [`GONE_GRACE`] after
//! that: taking a rule out and putting it back refills nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use sluice_ratelimit::{Bucket, Epoch, InFlight, KEYS_MAX_DEFAULT, Keyed, Moment, Reason, RuleId};

use super::breakers::Breakers;

/// How long the state of a removed rule is kept: longer than an operator needs to see that an edit
/// was a mistake, short against the uptime of a gateway.
const GONE_GRACE: Duration = Duration::from_secs(600);

/// Requests that wait for their turn under all rules together. Each keeps its head, some KiB, and a
/// stream of its client's connection.
const WAITING_MAX: u64 = 16_384;

/// A rule's number leaves room for the kinds of limits it has.
const KINDS: u64 = 2;

/// All live state of limits and breakers; one a process.
#[derive(Debug)]
pub struct LiveState {
    epoch: Epoch,
    seed: u64,
    pub(super) buckets: Keyed<Bucket>,
    pub(super) in_flight: Keyed<InFlight>,
    breakers: Breakers,
    rules: Mutex<Rules>,
    waiting: AtomicU64,
}

#[derive(Debug, Default)]
struct Rules {
    /// By cluster and rule. Bounded by what operators write, within the grace.
    by_id: HashMap<(Arc<str>, Arc<str>), Arc<RuleState>>,
    next_number: u64,
}

impl LiveState {
    /// Nothing has happened yet. `seed` differs from gateway to gateway, so that they do not send
    /// their clients back in step.
    #[must_use]
    pub fn new(now: Instant, seed: u64) -> Arc<Self> {
        Arc::new(LiveState {
            epoch: Epoch::new(now),
            seed,
            buckets: Keyed::new(KEYS_MAX_DEFAULT),
            in_flight: Keyed::new(KEYS_MAX_DEFAULT),
            breakers: Breakers::new(now),
            rules: Mutex::default(),
            waiting: AtomicU64::new(0),
        })
    }

    /// The breakers that are moved by hand.
    #[must_use]
    pub fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    /// The counters of every rule known, those of removed ones included until they are swept.
    #[must_use]
    pub fn counts(&self) -> Vec<RuleCounts> {
        let mut counts: Vec<_> = self
            .rules
            .lock()
            .by_id
            .values()
            .filter(|it| !it.is_share)
            .map(|it| it.counts())
            .collect();
        counts.sort_by(|a, b| (&a.cluster, &a.rule).cmp(&(&b.cluster, &b.rule)));
        counts
    }

    /// How many keys have a bucket or a count of their own.
    #[must_use]
    pub fn keys_len(&self) -> usize {
        self.buckets.len() + self.in_flight.len()
    }

    /// How many decisions fell to a shared bucket because there were too many keys.
    #[must_use]
    pub fn keys_shared(&self) -> u64 {
        self.buckets.shared_hits() + self.in_flight.shared_hits()
    }

    /// Forgets what is idle: for a timer, every ten seconds or so.
    pub fn sweep(&self, now: Instant) {
        self.breakers.sweep(now);
        let now = self.moment(now);
        let mut gone = Vec::new();
        self.rules.lock().by_id.retain(|_, rule| {
            let keep = rule.settle_use(Arc::strong_count(rule) > 1, now);
            if !keep {
                gone.push(rule.number);
            }
            keep
        });
        let is_gone = |rule: RuleId| gone.contains(&(rule.get() / KINDS));
        self.buckets.sweep(now, is_gone);
        self.in_flight.sweep(now, is_gone);
    }

    /// Whether one more may wait; if so it is counted until it is let go by [`LiveState::go_on`].
    pub(super) fn may_wait(&self) -> bool {
        let add = |waiting: u64| (waiting < WAITING_MAX).then(|| waiting + 1);
        let counted = &self.waiting;
        counted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    pub(super) fn go_on(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn moment(&self, now: Instant) -> Moment {
        self.epoch.moment(now)
    }

    /// Sixty-four bits that look random: the present and the seed, mixed. Requests of the same
    /// nanosecond draw the same lot, which harms nobody.
    pub(super) fn noise(&self, now: Moment) -> u64 {
        let mut bits = now.as_nanos() ^ self.seed;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// The state of a rule in a cluster, made when it is new.
    pub(super) fn rule(&self, cluster: &Arc<str>, id: &str) -> Arc<RuleState> {
        self.state(cluster, id, false)
    }

    /// What rules that count together in a cluster are counted under, made when it is new.
    pub(super) fn share(&self, cluster: &Arc<str>, id: &str) -> Arc<RuleState> {
        self.state(cluster, id, true)
    }

    fn state(&self, cluster: &Arc<str>, id: &str, is_share: bool) -> Arc<RuleState> {
        let mut rules = self.rules.lock();
        let id: Arc<str> = id.into();
        let key = (Arc::clone(cluster), Arc::clone(&id));
        if let Some(found) = rules.by_id.get(&key) {
            return Arc::clone(found);
        }
        let number = rules.next_number;
        rules.next_number += 1;
        let state = Arc::new(RuleState {
            number,
            cluster: Arc::clone(cluster),
            id,
            is_share,
            tally: Tally::default(),
            unused_since: AtomicU64::new(0),
        });
        rules.by_id.insert(key, Arc::clone(&state));
        state
    }
}

/// What has happened under one rule in one cluster.
#[derive(Debug)]
pub(super) struct RuleState {
    number: u64,
    pub(super) cluster: Arc<str>,
    pub(super) id: Arc<str>,
    /// It is no rule and has a number only, which is of several rules' limits.
    is_share: bool,
    pub(super) tally: Tally,
    /// Since when nobody holds it, in nanoseconds; zero while somebody does.
    unused_since: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) admitted: AtomicU64,
    pub(super) refused_rate: AtomicU64,
    pub(super) refused_in_flight: AtomicU64,
    pub(super) refused_breaker: AtomicU64,
    pub(super) refused_always: AtomicU64,
    pub(super) would_refuse: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) long_running: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) waiting: AtomicU64,
}

impl RuleState {
    /// The rule's number among buckets, and among counts of short requests.
    pub(super) fn short_id(&self) -> RuleId {
        RuleId::new(self.number * KINDS)
    }

    /// The rule's number among counts of long-running requests.
    pub(super) fn long_id(&self) -> RuleId {
        RuleId::new(self.number * KINDS + 1)
    }

    pub(super) fn count_refusal(&self, reason: Reason) {
        let counter = match reason {
            Reason::Rate | Reason::Debt => &self.tally.refused_rate,
            Reason::InFlight => &self.tally.refused_in_flight,
            Reason::BreakerOpen | Reason::BreakerHalfOpen | Reason::BreakerRamp => {
                &self.tally.refused_breaker
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_refused_always(&self) {
        self.tally.refused_always.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> RuleCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RuleCounts {
            cluster: Arc::clone(&self.cluster),
            rule: Arc::clone(&self.id),
            admitted: read(&self.tally.admitted),
            refused_rate: read(&self.tally.refused_rate),
            refused_in_flight: read(&self.tally.refused_in_flight),
            refused_breaker: read(&self.tally.refused_breaker),
            refused_always: read(&self.tally.refused_always),
            would_refuse: read(&self.tally.would_refuse),
            in_flight: read(&self.tally.in_flight),
            long_running: read(&self.tally.long_running),
            waited: read(&self.tally.waited),
            waiting: read(&self.tally.waiting),
        }
    }

    /// Notes whether somebody holds it; answers whether to keep it.
    fn settle_use(&self, is_used: bool, now: Moment) -> bool {
        if is_used {
            self.unused_since.store(0, Ordering::Relaxed);
            return true;
        }
        match self.unused_since.load(Ordering::Relaxed) {
            0 => {
                self.unused_since
                    .store(now.as_nanos().max(1), Ordering::Relaxed);
                true
            }
            since => now.since(Moment::from_nanos(since)) < GONE_GRACE,
        }
    }
}

/// A rule's counters, since the rule was first seen, and what is running now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleCounts {
    /// The cluster.
    pub cluster: Arc<str>,
    /// The rule's id.
    pub rule: Arc<str>,
    /// Requests it let through.
    pub admitted: u64,
    /// Requests refused: too often.
    pub refused_rate: u64,
    /// Requests refused: too many at once.
    pub refused_in_flight: u64,
    /// Requests refused by the rule's breaker.
    pub refused_breaker: u64,
    /// Requests refused: the rule refuses all.
    pub refused_always: u64,
    /// Requests it would have refused if it were enforced.
    pub would_refuse: u64,
    /// Short requests running under it.
    pub in_flight: u64,
    /// Watches, logs and tunnels running under it.
    pub long_running: u64,
    /// Requests that had to wait for their turn, whether or not it came.
    pub waited: u64,
    /// Requests that wait now.
    pub waiting: u64,
}
