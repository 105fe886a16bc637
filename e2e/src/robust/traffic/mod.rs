//! What clients do: the shapes of kube-apiserver, the whole of etcd's requests, leases, compaction.

mod etcd;
mod kubernetes;
mod leases;

use std::time::Duration;

use tokio::sync::watch;

pub use etcd::etcd;
pub use kubernetes::kubernetes;
pub use leases::leases;

use super::client::Client;
use super::dice::Dice;
use crate::history::{Range, Request};

/// How often history is compacted.
const COMPACT_EVERY: Duration = Duration::from_millis(100);

/// Waits up to `pace` between two requests; `false` when traffic is over.
async fn go_on(dice: &mut Dice, over: &watch::Receiver<bool>, pace: Duration) -> bool {
    if !pace.is_zero() {
        let micros = u64::try_from(pace.as_micros()).unwrap_or(u64::MAX);
        tokio::time::sleep(Duration::from_micros(dice.below(micros))).await;
    }
    !*over.borrow()
}

/// Compacts what the recorder has, at deletions as often as not.
pub async fn compact(mut client: Client, mut dice: Dice, over: watch::Receiver<bool>) {
    let mut floor = 0;
    while !*over.borrow() {
        tokio::time::sleep(COMPACT_EVERY).await;
        if floor > 0 {
            client.ask(everything_at(floor)).await;
        }
        let reach = client.tape().reach();
        let deletes = client.tape().deletes();
        let back = i64::try_from(dice.below(30)).unwrap_or(0);
        let at = match dice.pick(&deletes) {
            Some(delete) if dice.chance(60) => *delete,
            _ => reach - back,
        };
        // Now and then what is compacted already, and what is not there yet.
        let at = if dice.chance(5) { at + 1_000_000 } else { at };
        if at > floor || dice.chance(10) {
            let done = client.ask(Request::Compact(at.max(1))).await;
            if done.is_some() {
                floor = floor.max(at);
                // Itself it stays readable, now and when what lies below is gone.
                client.ask(everything_at(floor)).await;
            }
        }
    }
}

/// In parts, which compaction may come between.
fn everything_at(revision: i64) -> Request {
    Request::Range(Range {
        key: "\0".to_owned(),
        end: "\0".to_owned(),
        revision,
        stream: true,
        ..Range::default()
    })
}
