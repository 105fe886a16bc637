//! The rest of etcd's requests on a few keys that all clients share: puts with every option,
//! deletions of ranges, transactions with several operations, nested ones, compares of every kind.

use std::time::Duration;

use tokio::sync::watch;

use super::super::client::Client;
use super::super::dice::Dice;
use super::go_on;
use crate::history::{Compare, Delete, Op, Put, Range, Relation, Request, Target, Txn};

const KEYS: u64 = 10;

/// Goes on until `over`.
pub async fn etcd(mut client: Client, mut dice: Dice, pace: Duration, over: watch::Receiver<bool>) {
    while go_on(&mut dice, &over, pace).await {
        let request = match dice.below(100) {
            0..30 => {
                let mut put = put(&client, &mut dice);
                match dice.below(20) {
                    0 => put.ignore_value = true,
                    1 => put.ignore_lease = true,
                    _ => {}
                }
                Request::Put(put)
            }
            30..42 => Request::Delete(Delete {
                key: key(&mut dice),
                end: String::new(),
                prev_kv: dice.chance(50),
            }),
            42..47 => {
                let (key, end) = span(&mut dice);
                Request::Delete(Delete {
                    key,
                    end,
                    prev_kv: dice.chance(50),
                })
            }
            47..75 => Request::Txn(txn(&client, &mut dice, 1)),
            75..90 => {
                let (key, end) = span(&mut dice);
                Request::Range(Range {
                    key,
                    end,
                    limit: i64::try_from(dice.below(4)).unwrap_or(0),
                    keys_only: dice.chance(20),
                    count_only: dice.chance(20),
                    ..Range::default()
                })
            }
            _ => {
                let back = i64::try_from(dice.below(60)).unwrap_or(0);
                // A few of them from the future.
                let revision = (client.tape().reach() - back + 3).max(1);
                Request::Range(Range {
                    key: "k".to_owned(),
                    end: "\0".to_owned(),
                    revision,
                    ..Range::default()
                })
            }
        };
        client.ask(request).await;
    }
}

fn key(dice: &mut Dice) -> String {
    format!("k{}", dice.below(KEYS))
}

/// Some keys that lie side by side.
fn span(dice: &mut Dice) -> (String, String) {
    let start = dice.below(KEYS);
    (format!("k{start}"), format!("k{}~", start + dice.below(3)))
}

fn put(client: &Client, dice: &mut Dice) -> Put {
    Put {
        key: key(dice),
        value: client.tape().value(),
        prev_kv: dice.chance(40),
        ..Put::default()
    }
}

fn compare(dice: &mut Dice, reach: i64) -> Compare {
    let relation = [
        Relation::Equal,
        Relation::NotEqual,
        Relation::Greater,
        Relation::Less,
    ];
    let recent = reach - i64::try_from(dice.below(30)).unwrap_or(0);
    let target = match dice.below(5) {
        0 => Target::Version(i64::try_from(dice.below(4)).unwrap_or(0)),
        1 => Target::Create(recent),
        2 => Target::Mod(recent),
        3 => Target::Lease(0),
        _ => Target::Value(format!("v{}", dice.below(2000))),
    };
    Compare {
        key: key(dice),
        target,
        relation: dice.pick(&relation).copied().unwrap_or(Relation::Equal),
    }
}

/// Of puts to different keys, deletions that spare them, and reads; `depth` more within.
///
/// Keys of one transaction are drawn without putting any back: twice the same is refused.
fn txn(client: &Client, dice: &mut Dice, depth: u64) -> Txn {
    let mut keys: Vec<u64> = (0..KEYS).collect();
    nested(client, dice, depth, &mut keys)
}

fn nested(client: &Client, dice: &mut Dice, depth: u64, keys: &mut Vec<u64>) -> Txn {
    let reach = client.tape().reach();
    Txn {
        compares: (0..=dice.below(2)).map(|_| compare(dice, reach)).collect(),
        then: ops(client, dice, depth, keys),
        otherwise: ops(client, dice, 0, keys),
    }
}

fn ops(client: &Client, dice: &mut Dice, depth: u64, keys: &mut Vec<u64>) -> Vec<Op> {
    let mut ops = Vec::new();
    for _ in 0..=dice.below(4) {
        let place = usize::try_from(dice.below(keys.len() as u64)).unwrap_or(0);
        if place >= keys.len() {
            break;
        }
        let key = format!("k{}", keys.swap_remove(place));
        ops.push(match dice.below(10) {
            0..5 => Op::Put(Put {
                key,
                ..put(client, dice)
            }),
            5..7 => Op::Delete(Delete {
                key,
                end: String::new(),
                prev_kv: dice.chance(50),
            }),
            7 if depth > 0 => Op::Txn(nested(client, dice, depth - 1, keys)),
            _ => Op::Range(Range {
                key: "k".to_owned(),
                end: "l".to_owned(),
                limit: 3,
                ..Range::default()
            }),
        });
    }
    ops
}
