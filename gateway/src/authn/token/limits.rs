//! How often strangers may have a token judged: a flood of made-up ones is no flood of questions.
//!
//! Each source (an address, or an IPv6 network of 64 bits) pays for its refused tokens, and is not
//! asked about while it owes too much; all sources together get so many questions a second. Only
//! tokens that were not accepted before come here, so whoever is known is not hurt. Bounded by
//! [`SOURCES_MAX`]; sources beyond share one account.

use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Instant;

use sluice_ratelimit::{Bucket, Debt, Epoch, Key, Keyed, Moment, Quota, Rejection, RuleId};

/// Sources with an account, some 100 bytes each; one that owes nothing is forgotten.
const SOURCES_MAX: usize = 16_384;

/// How many seconds' worth of refusals a source has at once: a deployment whose tokens have all
/// run out is no flood.
const BURST_SECONDS: u64 = 5;

const SOURCES: RuleId = RuleId::new(0);

/// Bounds on questions about tokens that are not known.
pub(super) struct Limits {
    epoch: Epoch,
    all: Bucket,
    quota: Quota,
    sources: Keyed<Debt>,
    failures: NonZeroU64,
}

/// What a source owes.
pub(super) struct Account {
    debt: Arc<Debt>,
    failures: NonZeroU64,
}

impl Limits {
    /// `per_second` questions for all, `failures` refusals a second for a source.
    pub(super) fn new(per_second: NonZeroU32, failures: NonZeroU32, now: Instant) -> Self {
        // A count a second is always a quota; the smallest stands in for what cannot be.
        let quota = Quota::per_second(per_second, per_second)
            .or_else(|_| Quota::per_second(NonZeroU32::MIN, NonZeroU32::MIN))
            .expect("one a second is a quota");
        Limits {
            epoch: Epoch::new(now),
            all: Bucket::new(&quota),
            quota,
            sources: Keyed::new(SOURCES_MAX),
            failures: failures.into(),
        }
    }

    /// The account of whoever calls from there.
    pub(super) fn account(&self, source: IpAddr, now: Instant) -> Account {
        let mut key = Key::new(SOURCES);
        match source.to_canonical() {
            IpAddr::V4(address) => key.field(&address.octets()),
            IpAddr::V6(address) => {
                let network: [u8; 16] = address.octets();
                key.field(network.get(..8).unwrap_or_default());
            }
        }
        Account {
            debt: self.sources.get(&key, self.moment(now), Debt::default),
            failures: self.failures,
        }
    }

    /// Whether a source may have a token judged.
    pub(super) fn check(&self, account: &Account, now: Instant) -> Result<(), Rejection> {
        let burst = account.burst();
        account
            .debt
            .check(account.failures, burst, self.moment(now))
    }

    /// Takes one question out of everybody's.
    pub(super) fn take(&self, now: Instant) -> Result<(), Rejection> {
        // Nothing has to be spread: those who wait are strangers to each other.
        self.all.check(&self.quota, self.moment(now), 0)
    }

    /// Notes that a token of this source was refused.
    pub(super) fn refused(&self, account: &Account, now: Instant) {
        let burst = account.burst();
        account
            .debt
            .charge(1, account.failures, burst, self.moment(now));
    }

    /// How many sources have an account.
    #[cfg(test)]
    pub(super) fn sources(&self) -> usize {
        self.sources.len()
    }

    fn moment(&self, now: Instant) -> Moment {
        self.epoch.moment(now)
    }
}

impl Account {
    fn burst(&self) -> u64 {
        self.failures.get().saturating_mul(BURST_SECONDS)
    }
}
