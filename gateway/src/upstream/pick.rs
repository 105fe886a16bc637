//! Which of several endpoints gets a request: two are drawn, the less loaded one wins, a tie goes
//! to the one that served fewer. Pure: what endpoints look like and randomness are arguments.
//!
//! Endpoints come in tiers (see [`Tier`]); a worse tier is looked at only when the better ones are
//! empty, so there is always an answer while there is an endpoint at all.

/// How good a choice an endpoint is; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// Probed, and admitting.
    Good,
    /// Admitting, and not probed yet.
    Unproven,
    /// Unready or ejected: better than nothing.
    Desperate,
    /// Tried already by this request.
    Tried,
}

/// What an endpoint carries, compared with weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burden {
    pub(super) load: usize,
    pub(super) served: u64,
    pub(super) weight: u32,
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

/// The position of the endpoint chosen among `count`; `None` when there are none.
pub(super) fn choose(
    count: usize,
    random: u64,
    tier: impl Fn(usize) -> Tier,
    burden: impl Fn(usize) -> Burden,
) -> Option<usize> {
    if count == 0 {
        return None;
    }
    let (first, second) = draw(count, random);
    // The common case: both are good, and nothing else is looked at.
    if tier(first) == Tier::Good && tier(second) == Tier::Good {
        return Some(lighter(first, second, burden));
    }
    let best = (0..count).map(&tier).min()?;
    let is_best = |&position: &usize| tier(position) == best;
    let among = (0..count).filter(is_best).count();
    let (first, second) = draw(among, random);
    // The tiers may move between the passes; then the first best one will do.
    let nth = |n: usize| (0..count).filter(is_best).nth(n);
    match (nth(first), nth(second)) {
        (Some(first), Some(second)) => Some(lighter(first, second, burden)),
        _ => Some(0),
    }
}

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

fn lighter(first: usize, second: usize, burden: impl Fn(usize) -> Burden) -> usize {
    let (a, b) = (burden(first), burden(second));
    let scaled = |amount: u64, other: u32| u128::from(amount) * u128::from(other);
    let load_a = scaled(a.load as u64, b.weight);
    let load_b = scaled(b.load as u64, a.weight);
    let served_a = scaled(a.served, b.weight);
    let served_b = scaled(b.served, a.weight);
    if (load_b, served_b) < (load_a, served_a) {
        second
    } else {
        first
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

    fn even(load: usize, served: u64) -> Burden {
        Burden {
            load,
            served,
            weight: 1,
        }
    }

    #[test]
    fn ties_go_to_the_one_that_served_fewer() {
        let mut served = [0u64; 3];
        for n in 0..30_000 {
            let tier = |_| Tier::Good;
            let at = choose(3, mix(n), tier, |i| even(0, served[i])).unwrap();
            served[at] += 1;
        }
        assert!(
            served.iter().all(|&n| (9_900..=10_100).contains(&n)),
            "{served:?}"
        );
    }

    #[test]
    fn less_loaded_wins_and_weight_counts() {
        let tier = |_| Tier::Good;
        for n in 0..100 {
            let loads = |i| even([5, 1][i], 0);
            assert_eq!(choose(2, mix(n), tier, loads), Some(1));
            let weighted = |i: usize| Burden {
                load: [5, 2][i],
                served: 0,
                weight: [4, 1][i],
            };
            assert_eq!(choose(2, mix(n), tier, weighted), Some(0), "5/4 < 2/1");
        }
    }

    #[test]
    fn worse_tiers_only_when_better_ones_are_empty() {
        let tiers = [Tier::Tried, Tier::Desperate, Tier::Unproven, Tier::Good];
        for n in 0..200 {
            let pick = |count| choose(count, mix(n), |i| tiers[i], |_| even(0, 0));
            assert_eq!(pick(4), Some(3));
            assert_eq!(pick(3), Some(2));
            assert_eq!(pick(2), Some(1));
            assert_eq!(pick(1), Some(0));
            assert_eq!(pick(0), None);
        }
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
