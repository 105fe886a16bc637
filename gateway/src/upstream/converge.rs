//! What is done about a cluster once a second: watches move to an apiserver that has come back,
//! leave one that was taken out, and an endpoint far slower than the others rests.
//!
//! Requests are balanced one by one, watches stand for minutes: without this an apiserver that
//! returns would be idle until they end. Only for [`CONVERGE_FOR`] after a return, since what is
//! uneven for other reasons (zones, rules, clients that stick) comes back as it was. The choice of
//! numbers is pure.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::endpoint::Endpoint;
use super::pick::mix;
use super::view::{RESUMES_AFTER, View};
use crate::clock;

/// From one look to the next, a quarter more or less.
const LOOK: Duration = Duration::from_secs(1);

/// How long after a return watches are moved: as long as a reflector's own watch lasts at most.
const CONVERGE_FOR: Duration = Duration::from_secs(600);

/// In how many looks an excess is worked off, and the most watches that one look ends: so many new
/// starts a second an apiserver does not feel.
const LOOKS: usize = 60;
const MOVES_MAX: usize = 20;

/// An endpoint with a tenth too many is let be.
const SLACK_PERCENT: usize = 10;

/// In how many looks an endpoint that was taken out loses its watches.
const LEAVING_LOOKS: usize = 20;

/// An endpoint so many times slower than the fastest, and as slow as this, rests.
const OUTLIER_FACTOR: u64 = 8;
const OUTLIER_US: u64 = 500_000;

/// Looks after the cluster until it is dropped.
pub(super) async fn converge(cluster: Weak<Cluster>, stop: CancellationToken) {
    for round in 0.. {
        let jitter = LOOK * u32::try_from(mix(round) % 512).unwrap_or(0) / 1024;
        tokio::select! {
            biased; // the end comes first
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK - LOOK / 4 + jitter) => {}
        }
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        let (view, now) = (cluster.view(), clock::now());
        view.rest_outlier(now);
        view.move_watches(now);
    }
}

/// Sends the watches of an endpoint that was taken out elsewhere, a part at a time.
pub(super) async fn leave(endpoint: Arc<Endpoint>) {
    for left in (1..=LEAVING_LOOKS).rev() {
        let count = endpoint.watches.count();
        if count == 0 {
            return;
        }
        endpoint.watches.ask(count.div_ceil(left));
        tokio::time::sleep(LOOK).await;
    }
}

impl View {
    fn move_watches(&self, now: Instant) {
        let recent = RESUMES_AFTER + CONVERGE_FOR;
        let good = || self.endpoints().filter(|it| it.is_good(now));
        let takes = |it: &&Arc<Endpoint>| !it.pace.is_back_since_less_than(RESUMES_AFTER, now);
        let is_new = |it: &Arc<Endpoint>| it.pace.is_back_since_less_than(recent, now);
        if !good().filter(takes).any(is_new) {
            return;
        }
        let shares = self.shares();
        let counted = good().filter(takes).map(|it| {
            let share = shares(it);
            (it, it.watches.count(), share)
        });
        let counted: Vec<_> = counted.collect();
        let numbers: Vec<_> = counted
            .iter()
            .map(|(_, count, share)| (*count, *share))
            .collect();
        for ((endpoint, ..), moves) in counted.iter().zip(moves(&numbers)) {
            endpoint.watches.ask(moves);
        }
    }

    /// Takes out the slowest if it is an outlier and another one is left.
    fn rest_outlier(&self, now: Instant) {
        let good = self.endpoints().filter(|it| it.is_good(now));
        let known = good.filter_map(|it| it.pace.latency(now).map(|latency| (latency, it)));
        let known: Vec<_> = known.collect();
        let slowest = known.iter().max_by_key(|(latency, _)| *latency);
        let fastest = known.iter().map(|(latency, _)| *latency).min();
        if let (Some((slowest, endpoint)), Some(fastest)) = (slowest, fastest)
            && *slowest >= OUTLIER_US
            && *slowest / fastest.max(1) >= OUTLIER_FACTOR
        {
            tracing::warn!(
                cluster = self.spec.name,
                endpoint = &*endpoint.id,
                latency_us = slowest,
                fastest_us = fastest,
                "endpoint rests: it is far slower than the others"
            );
            endpoint.gate.rest(&self.spec.ejection, now);
        }
    }
}

/// How many watches each endpoint should give away now, by what each has and its share.
fn moves(counted: &[(usize, u32)]) -> Vec<usize> {
    let all: usize = counted.iter().map(|(count, _)| count).sum();
    let shares: u64 = counted.iter().map(|(_, share)| u64::from(*share)).sum();
    let moves = counted.iter().map(|&(count, share)| {
        let target = all as u64 * u64::from(share) / shares.max(1);
        let target = usize::try_from(target).unwrap_or(usize::MAX);
        let excess = count.saturating_sub(target);
        if excess <= 1 + target * SLACK_PERCENT / 100 {
            0
        } else {
            excess.div_ceil(LOOKS).min(MOVES_MAX)
        }
    });
    moves.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_moves_in_parts_and_converges() {
        assert_eq!(moves(&[(3_000, 1), (0, 1)]), [20, 0]);
        assert_eq!(moves(&[(60, 1), (0, 1)]), [1, 0]);
        assert_eq!(
            moves(&[(1, 1), (0, 1)]),
            [0, 0],
            "one watch has to be somewhere"
        );
        assert_eq!(moves(&[(200, 2), (100, 1)]), [0, 0]);
        assert_eq!(moves(&[]), Vec::<usize>::new());
        let mut counts = [900, 0, 0];
        let mut looks = 0;
        loop {
            let moving = moves(&counts.map(|count| (count, 1)));
            let moved: usize = moving.iter().sum();
            if moved == 0 {
                break;
            }
            assert!(moved <= MOVES_MAX * 3);
            for (count, moves) in counts.iter_mut().zip(&moving) {
                *count -= moves;
            }
            for _ in 0..moved {
                *counts.iter_mut().min().unwrap() += 1; // to the least loaded
            }
            looks += 1;
        }
        assert!(looks < 300, "{looks}");
        assert!(counts.iter().all(|n| (270..=331).contains(n)), "{counts:?}");
    }
}
