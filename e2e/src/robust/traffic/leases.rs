//! Leases: keys on them, renewals, revocations, keys that move to another, and time that passes.

use std::time::Duration;

use tokio::sync::watch;

use super::super::client::Client;
use super::super::dice::Dice;
use super::go_on;
use crate::history::{Answer, Op, Put, Request, Txn};

/// Names of keys: few enough that a key is put on one lease after the other.
const NAMES: u64 = 6;
/// Leases one client holds at a time.
const HELD: usize = 4;
/// What a short one is asked for, in seconds.
const SHORT: i64 = 1;
/// What one that must be revoked or renewed is asked for.
const LONG: i64 = 60;

/// Goes on until `over`.
pub async fn leases(
    mut client: Client,
    mut dice: Dice,
    pace: Duration,
    over: watch::Receiver<bool>,
) {
    let mut held: Vec<i64> = Vec::new();
    while go_on(&mut dice, &over, pace).await {
        let lease = dice.pick(&held).copied();
        match (dice.below(100), lease) {
            (0..15, _) | (_, None) => {
                let ttl = if dice.chance(60) { SHORT } else { LONG };
                let reply = client.ask(Request::Grant { id: 0, ttl }).await;
                if let Some(Answer::Granted { id, .. }) = reply.map(|reply| reply.answer) {
                    held.push(id);
                    if held.len() > HELD {
                        held.remove(0);
                    }
                    // Several at once, so that its end is of several.
                    let ops = (0..3).map(|n| Op::Put(put(&client, format!("l{id}/{n}"), id)));
                    let txn = Txn {
                        then: ops.collect(),
                        ..Txn::default()
                    };
                    client.ask(Request::Txn(txn)).await;
                }
            }
            (15..55, Some(lease)) => {
                let lease = if dice.chance(20) { 0 } else { lease };
                let key = format!("l/shared{}", dice.below(NAMES));
                let put = put(&client, key, lease);
                client.ask(Request::Put(put)).await;
            }
            // One of its own keys leaves it.
            (55..62, Some(lease)) => {
                let put = put(&client, format!("l{lease}/1"), 0);
                client.ask(Request::Put(put)).await;
            }
            (62..72, Some(id)) => drop(client.ask(Request::KeepAlive { id }).await),
            (72..92, Some(id)) => drop(client.ask(Request::TimeToLive { id }).await),
            (_, Some(id)) => {
                client.ask(Request::Revoke { id }).await;
                held.retain(|one| *one != id);
            }
        }
    }
}

fn put(client: &Client, key: String, lease: i64) -> Put {
    Put {
        key,
        value: client.tape().value(),
        lease,
        ..Put::default()
    }
}
