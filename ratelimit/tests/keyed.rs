//! The keyed map: bounded, and never generous to whoever it forgets.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sluice_ratelimit::{
    Bucket, Decision, InFlight, Key, Keyed, Limits, Moment, Permit, Quota, Reason, RuleId, decide,
};

const RULE: RuleId = RuleId::new(1);

fn key(rule: RuleId, user: &str) -> Key {
    let mut key = Key::new(rule);
    key.field(user.as_bytes());
    key
}

fn quota(rate: u32, burst: u32) -> Quota {
    Quota::per_second(
        NonZeroU32::new(rate).unwrap(),
        NonZeroU32::new(burst).unwrap(),
    )
    .unwrap()
}

fn at(seconds: u64) -> Moment {
    Moment::ZERO + Duration::from_secs(seconds)
}

#[test]
fn keys_with_moved_boundaries_differ() {
    let mut one = Key::new(RULE);
    one.field(b"ab");
    one.field(b"c");
    let mut other = Key::new(RULE);
    other.field(b"a");
    other.field(b"bc");
    assert_ne!(one.as_bytes(), other.as_bytes());
}

#[test]
fn a_full_map_limits_new_keys_together() {
    let quota = quota(1, 1);
    let map = Keyed::new(2);
    let check = |user: &str, rule| {
        let bucket = map.get(&key(rule, user), at(1), || Bucket::new(&quota));
        bucket.check(&quota, at(1), 0).is_ok()
    };
    assert!(check("alice", RULE) && check("bob", RULE));
    assert!(check("carol", RULE), "first of the shared bucket");
    assert!(!check("dave", RULE), "shares with carol");
    assert!(
        check("carol", RuleId::new(2)),
        "another rule has a bucket of its own"
    );
    assert!(!check("alice", RULE), "nobody was forgotten");
    assert_eq!((map.len(), map.shared_hits()), (2, 3));
}

#[test]
fn idle_keys_make_room_and_busy_ones_do_not() {
    let quota = quota(1, 2);
    let map = Keyed::new(2);
    let bucket = |user: &str, now| map.get(&key(RULE, user), now, || Bucket::new(&quota));
    for user in ["alice", "bob"] {
        bucket(user, at(1)).check(&quota, at(1), 0).unwrap();
    }
    for _ in 0..2 {
        bucket("alice", at(2)).check(&quota, at(2), 0).unwrap();
    }
    // Bob's bucket is full again, alice's is empty: bob makes room for carol.
    bucket("carol", at(2)).check(&quota, at(2), 0).unwrap();
    assert_eq!(map.shared_hits(), 0);
    assert!(
        bucket("alice", at(2)).check(&quota, at(2), 0).is_err(),
        "no fresh burst"
    );
}

#[test]
fn a_held_entry_survives_every_sweep() {
    let map = Keyed::new(10);
    let held = map.get(&key(RULE, "alice"), at(1), InFlight::default);
    let permit = {
        let other = map.get(&key(RULE, "bob"), at(1), InFlight::default);
        other.acquire(1, at(1), 0).unwrap()
    };
    assert_eq!(map.sweep(at(1_000_000), |_| true), 0);
    assert!(Arc::ptr_eq(
        &held,
        &map.get(&key(RULE, "alice"), at(1), InFlight::default)
    ));
    let bob = map.get(&key(RULE, "bob"), at(1), InFlight::default);
    assert_eq!(
        bob.acquire(1, at(1), 0).unwrap_err().reason,
        Reason::InFlight
    );
    drop((permit, bob, held));
    assert_eq!(map.sweep(at(1), |_| false), 2);
    assert!(map.is_empty());
}

#[test]
fn entries_of_gone_rules_are_swept_before_they_are_idle() {
    let quota = quota(1, 100);
    let map = Keyed::new(10);
    for rule in [1, 2] {
        let bucket = map.get(&key(RuleId::new(rule), "alice"), at(1), || {
            Bucket::new(&quota)
        });
        bucket.check(&quota, at(1), 0).unwrap();
    }
    assert_eq!(map.sweep(at(1), |rule| rule == RuleId::new(2)), 1);
    assert_eq!(map.len(), 1);
}

#[test]
fn who_is_refused_by_the_one_limit_pays_nothing_at_the_other() {
    let quota = quota(1, 1);
    let bucket = Bucket::new(&quota);
    let in_flight = Arc::new(InFlight::default());
    let limits = Limits {
        rate: Some((&bucket, &quota)),
        in_flight: Some((&in_flight, 1)),
    };
    let other = in_flight.acquire(1, at(1), 0).unwrap();
    assert!(
        matches!(decide(limits, at(1), 0), Decision::Reject(r) if r.reason == Reason::InFlight)
    );
    drop(other);
    let Decision::Admit(permit) = decide(limits, at(1), 0) else {
        panic!("the bucket was charged for a rejected request");
    };
    drop(permit);
    assert!(matches!(decide(limits, at(1), 0), Decision::Reject(r) if r.reason == Reason::Rate));
    assert_eq!(in_flight.held(), 0, "a rejected request keeps no permit");
}

#[test]
fn a_lowered_maximum_waits_for_its_permits() {
    let in_flight = Arc::new(InFlight::default());
    let permits: Vec<Permit> = (0..5)
        .map(|_| in_flight.acquire(5, at(1), 0).unwrap())
        .collect();
    assert!(in_flight.acquire(2, at(1), 0).is_err());
    for permit in permits {
        assert!(in_flight.acquire(2, at(1), 0).is_err() || in_flight.held() < 3);
        drop(permit);
    }
    assert!(in_flight.acquire(2, at(1), 0).is_ok());
    assert!(
        in_flight.acquire(0, at(1), 0).is_err(),
        "zero admits nobody"
    );
}

proptest! {
    /// Users come, finish and are swept in any order: each holds at most his maximum, the map
    /// never outgrows its bound, and no permit is lost or made up.
    #[test]
    fn permits_add_up(steps in prop::collection::vec((0_usize..8, 0_u8..4), 1..300)) {
        const KEYS_MAX: usize = 4;
        const MAX: u32 = 3;
        let map: Keyed<InFlight> = Keyed::new(KEYS_MAX);
        let mut held: HashMap<usize, Vec<Permit>> = HashMap::new();
        for (tick, (user, action)) in (1_u64..).zip(steps) {
            match action {
                0 => { held.get_mut(&user).and_then(Vec::pop); }
                1 => { map.sweep(at(tick), |_| false); }
                _ => {
                    let entry = map.get(&key(RULE, &user.to_string()), at(tick), InFlight::default);
                    if let Ok(permit) = entry.acquire(MAX, at(tick), 0) {
                        held.entry(user).or_default().push(permit);
                    }
                }
            }
            prop_assert!(map.len() <= KEYS_MAX);
            prop_assert!(held.values().all(|permits| permits.len() <= 2 * MAX as usize));
            let total: usize = held.values().map(Vec::len).sum();
            prop_assert!(total <= (KEYS_MAX + 1) * MAX as usize);
        }
        held.clear();
        map.sweep(at(1_000_000), |_| false);
        prop_assert_eq!(map.len(), 0);
    }

    /// However keys are composed, different fields make different keys.
    #[test]
    fn keys_are_unambiguous(fields in prop::collection::hash_set(
        prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..4), 1..20)) {
        let keys: HashSet<Vec<u8>> = fields.iter().map(|fields| {
            let mut key = Key::new(RULE);
            fields.iter().for_each(|field| key.field(field));
            key.as_bytes().to_vec()
        }).collect();
        prop_assert_eq!(keys.len(), fields.len());
    }
}
