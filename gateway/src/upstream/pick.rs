//! Which of several endpoints gets a request: two are drawn, the less loaded one wins, a tie goes
//! to the one whose turn it is (see `pace`), and one that has missed turns may have one request more
//! until it has made up for them. Pure: what endpoints look like and randomness are
//! arguments.
//!
//! Endpoints come in tiers (see [`Tier`]); a worse tier is looked at only when the better ones are
//! empty, so there is always an answer while there is an endpoint at all.

use super::pace::{is_behind, slowness};

/// How good a choice an endpoint is; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// Probed, and admitting.
    Good,
    /// As good, but too short a time back for what is asked of it.
    Fresh,
    /// Admitting, and not probed yet, or not by more than a refusal.
    Unproven,
    /// Good, and there for when no other is.
    Reserve,
    /// Good, and it has told this caller to come back later.
    Busy,
    /// Unready or ejected: better than nothing.
    Desperate,
    /// Tried already by this request.
    Tried,
}

/// What an endpoint carries, and what it is to carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burden {
    pub(super) load: u64,
    pub(super) pass: u64,
    /// Relative to others', latency not counted.
    pub(super) share: u32,
    /// In microseconds, where it is known.
    pub(super) latency: Option<u64>,
}

/// The endpoints one request has tried, by position; beyond the 64th they are not told apart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried(u64);

impl Tried {
    pub(super) fn insert(&mut self, position: usize) {
        self.0 |= Tried::bit(position);
    }

    pub(super) fn contains(self, position: usize) -> bool {
        self.0 & Tried::bit(position) != 0
    }

    fn bit(position: usize) -> u64 {
        u32::try_from(position)
            .ok()
            .and_then(|shift| 1u64.checked_shl(shift))
            .unwrap_or(0)
    }
}

/// The one of `among` that is chosen, and its share; `None` when there are none.
pub(super) fn choose(
    among: &[usize],
    random: u64,
    tier: impl Fn(usize) -> Tier,
    burden: impl Fn(usize) -> Burden,
) -> Option<(usize, u32)> {
    let (first, second) = draw(among.len(), random);
    let (&first, &second) = (among.get(first)?, among.get(second)?);
    // The common case: both are good, and nothing else is looked at.
    if tier(first) == Tier::Good && tier(second) == Tier::Good {
        return Some(lighter(first, second, burden));
    }
    let all = || among.iter().copied();
    let best = all().map(&tier).min()?;
    let is_best = |position: &usize| tier(*position) == best;
    let (first, second) = draw(all().filter(is_best).count(), random);
    // The tiers may move between the passes; then the first of all will do.
    let nth = |n: usize| all().filter(is_best).nth(n);
    match (nth(first), nth(second)) {
        (Some(first), Some(second)) => Some(lighter(first, second, burden)),
        _ => {
            let first = *among.first()?;
            Some(lighter(first, first, burden))
        }
    }
}

/// Of those in the best tier the one that `number` always comes to, unless it has far more to do
/// than the least loaded one.
pub(super) fn stick(
    among: &[usize],
    number: u64,
    tier: impl Fn(usize) -> Tier,
    seed: impl Fn(usize) -> u64,
    load: impl Fn(usize) -> u64,
) -> Option<usize> {
    let good = || among.iter().copied().filter(|&at| tier(at) == Tier::Good);
    // Rendezvous hashing: whoever leaves or comes back moves nobody else's clients.
    let home = good().max_by_key(|&at| mix(number ^ seed(at)))?;
    let least = good().map(&load).min()?;
    (load(home) <= least.saturating_mul(STICK_FACTOR) + STICK_MORE).then_some(home)
}

/// How much more than the least loaded endpoint one may have to do and still keep its clients.
const STICK_FACTOR: u64 = 4;
const STICK_MORE: u64 = 64;

/// Two positions below `count`, different where that can be.
fn draw(count: usize, random: u64) -> (usize, usize) {
    let count = count.max(1) as u64;
    let first = (random >> 32) % count;
    let step = match count {
        1 => 0,
        _ => 1 + (random & 0xffff_ffff) % (count - 1),
    };
    let position = |n: u64| usize::try_from(n).unwrap_or(0);
    (position(first), position((first + step) % count))
}

/// The better one of two, with the share it has beside the other. Latency only makes turns longer:
/// where requests overlap, a slow endpoint has more of them in flight, which says it already.
fn lighter(first: usize, second: usize, burden: impl Fn(usize) -> Burden) -> (usize, u32) {
    let (a, b) = (burden(first), burden(second));
    let share =
        |mine: &Burden, other: &Burden| (mine.share / slowness(mine.latency, other.latency)).max(1);
    let (share_a, share_b) = (share(&a, &b), share(&b, &a));
    let load = |mine: &Burden, other: &Burden| {
        let more = u64::from(is_behind(other.pass, mine.pass));
        u128::from(mine.load.saturating_add(more)) * u128::from(other.share)
    };
    let (load_a, load_b) = (load(&a, &b), load(&b, &a));
    if (load_b, b.pass) < (load_a, a.pass) {
        (second, share_b)
    } else {
        (first, share_a)
    }
}

/// A sequence of well-mixed numbers from a counter (Steele's splitmix64): no state but the count,
/// so that threads share it without a lock.
pub(super) fn mix(count: u64) -> u64 {
    let mut z = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(load: u64, pass: u64) -> Burden {
        Burden {
            load,
            pass,
            share: 1_000,
            latency: None,
        }
    }

    #[test]
    fn ties_go_to_the_one_whose_turn_it_is() {
        let mut served = [0u64; 3];
        for n in 0..30_000 {
            let tier = |_| Tier::Good;
            let (at, _) = choose(&[0, 1, 2], mix(n), tier, |i| even(0, served[i])).unwrap();
            served[at] += 1;
        }
        assert!(
            served.iter().all(|&n| (9_900..=10_100).contains(&n)),
            "{served:?}"
        );
    }

    /// A steady load: who has answered is asked again, so that nothing ever ties.
    #[test]
    fn what_was_missed_in_a_pause_is_made_up_for() {
        const TURN: u64 = 1 << 16;
        let (mut served, mut load) = ([0, 250], [10u64, 10]);
        for n in 0..10_000 {
            let done = usize::from(mix(n) % 20 >= load[0]);
            load[done] -= 1;
            let burden = |at: usize| even(load[at], served[at] * TURN);
            let (at, _) = choose(&[0, 1], mix(n), |_| Tier::Good, burden).unwrap();
            load[at] += 1;
            served[at] += 1;
            assert!(load[at] <= 12, "one more, and one on its way: {load:?}");
        }
        assert!(served[0].abs_diff(served[1]) < 40, "{served:?}");
    }

    #[test]
    fn less_loaded_wins_and_share_and_latency_count() {
        let tier = |_| Tier::Good;
        for n in 0..100 {
            let chosen =
                |burden: &dyn Fn(usize) -> Burden| choose(&[0, 1], mix(n), tier, burden).unwrap().0;
            assert_eq!(chosen(&|i| even([5, 1][i], 0)), 1);
            let shared = |i: usize| Burden {
                share: [4_000, 1_000][i],
                ..even([5, 2][i], 0)
            };
            assert_eq!(chosen(&shared), 0, "5/4 < 2/1");
            let slow = |i: usize| Burden {
                latency: [Some(70_000), Some(2_000)][i],
                ..even(3, [0, 1][i])
            };
            let taken = choose(&[0, 1], mix(n), tier, slow);
            assert_eq!(taken, Some((0, 100)), "its turn is ten times as long");
        }
    }

    #[test]
    fn worse_tiers_only_when_better_ones_are_empty() {
        let tiers = [Tier::Tried, Tier::Desperate, Tier::Unproven, Tier::Good];
        for n in 0..200 {
            let pick = |count: usize| {
                let among: Vec<usize> = (0..count).collect();
                choose(&among, mix(n), |i| tiers[i], |_| even(0, 0)).map(|(at, _)| at)
            };
            assert_eq!(pick(4), Some(3));
            assert_eq!(pick(3), Some(2));
            assert_eq!(pick(2), Some(1));
            assert_eq!(pick(1), Some(0));
            assert_eq!(pick(0), None);
        }
    }

    #[test]
    fn only_those_given_are_chosen() {
        for n in 0..200 {
            let (at, _) = choose(&[3, 5], mix(n), |_| Tier::Good, |_| even(0, 0)).unwrap();
            assert!(at == 3 || at == 5);
        }
    }

    #[test]
    fn clients_stick_are_spread_and_leave_what_is_overloaded() {
        let all = [0, 1, 2];
        let seed = |at: usize| mix(at as u64);
        let home = |client, tier: fn(usize) -> Tier| stick(&all, client, tier, seed, |_| 0);
        let mut counts = [0; 3];
        for client in (0..3_000).map(mix) {
            let at = home(client, |_| Tier::Good).unwrap();
            counts[at] += 1;
            let without_2 = |at| if at == 2 { Tier::Fresh } else { Tier::Good };
            if at != 2 {
                assert_eq!(home(client, without_2), Some(at), "others stay");
            }
            let load = |it: usize| if it == at { 65 } else { 0 };
            assert_eq!(stick(&all, client, |_| Tier::Good, seed, load), None);
        }
        assert!(
            counts.iter().all(|n| (900..1_100).contains(n)),
            "{counts:?}"
        );
        assert_eq!(home(1, |_| Tier::Desperate), None);
    }

    #[test]
    fn two_of_many_are_never_the_same() {
        for n in 0..10_000 {
            let (a, b) = draw(7, mix(n));
            assert_ne!(a, b);
            assert!(a < 7 && b < 7);
        }
    }
}
