//! The requests of a kube-apiserver: four transactions, gets, paged lists, counts, and the read of
//! the current revision.

use std::time::Duration;

use tokio::sync::watch;

use super::super::client::Client;
use super::super::dice::Dice;
use super::go_on;
use crate::history::{Answer, Compare, Delete, Op, Put, Range, Relation, Request, Target, Txn};

const RESOURCES: [&str; 3] = ["pods", "configmaps", "leases"];
/// Objects of a resource: few enough that clients meet.
const OBJECTS: u64 = 12;
const PAGE: i64 = 4;

/// Goes on until `over`.
pub async fn kubernetes(
    mut client: Client,
    mut dice: Dice,
    pace: Duration,
    over: watch::Receiver<bool>,
) {
    // What it believes of the object it looked at last: as often wrong as right.
    let mut believed = 0;
    while go_on(&mut dice, &over, pace).await {
        let resource = dice.pick(&RESOURCES).copied().unwrap_or("pods");
        let key = format!("/registry/{resource}/ns/o{}", dice.below(OBJECTS));
        match dice.below(100) {
            0..20 => {
                let value = client.tape().value();
                let create = guarded(&key, 0, put(&key, value), false);
                client.ask(create).await;
            }
            20..50 => {
                if dice.chance(80) {
                    believed = seen(&mut client, &key).await;
                }
                let value = client.tape().value();
                let update = guarded(&key, believed, put(&key, value), true);
                client.ask(update).await;
            }
            50..60 => {
                believed = seen(&mut client, &key).await;
                let delete = Op::Delete(Delete {
                    key: key.clone(),
                    prev_kv: true,
                    ..Delete::default()
                });
                client.ask(guarded(&key, believed, delete, true)).await;
            }
            60..70 => believed = seen(&mut client, &key).await,
            70..82 => pages(&mut client, &mut dice, resource, &over).await,
            82..88 => {
                let Request::Range(range) = list(resource, 0, 0) else {
                    continue;
                };
                let stream = dice.chance(50);
                client.ask(Request::Range(Range { stream, ..range })).await;
            }
            88..92 => {
                let Request::Range(range) = list(resource, 0, 0) else {
                    continue;
                };
                let count = Request::Range(Range {
                    count_only: true,
                    ..range
                });
                client.ask(count).await;
            }
            92..96 => {
                let back = i64::try_from(dice.below(40)).unwrap_or(0);
                let at = (client.tape().reach() - back).max(1);
                client.ask(list(resource, at, PAGE)).await;
            }
            _ => drop(client.ask(current(resource)).await),
        }
    }
}

fn put(key: &str, value: String) -> Op {
    Op::Put(Put {
        key: key.to_owned(),
        value,
        ..Put::default()
    })
}

/// An operation that is done if the key stands at a revision, and a read if it does not.
fn guarded(key: &str, at: i64, op: Op, reads: bool) -> Request {
    let key = key.to_owned();
    let otherwise = Op::Range(Range {
        key: key.clone(),
        ..Range::default()
    });
    Request::Txn(Txn {
        compares: vec![Compare {
            key,
            target: Target::Mod(at),
            relation: Relation::Equal,
        }],
        then: vec![op],
        otherwise: if reads { vec![otherwise] } else { vec![] },
    })
}

fn list(resource: &str, revision: i64, limit: i64) -> Request {
    Request::Range(Range {
        key: format!("/registry/{resource}/"),
        end: format!("/registry/{resource}0"),
        revision,
        limit,
        ..Range::default()
    })
}

/// How kube-apiserver asks for the current revision.
fn current(resource: &str) -> Request {
    Request::Range(Range {
        key: format!("/registry/{resource}"),
        limit: 1,
        ..Range::default()
    })
}

/// The revision an object stands at; zero when there is none.
async fn seen(client: &mut Client, key: &str) -> i64 {
    let get = Range {
        key: key.to_owned(),
        ..Range::default()
    };
    match client
        .ask(Request::Range(get))
        .await
        .map(|reply| reply.answer)
    {
        Some(Answer::Range { kvs, .. }) => kvs.first().map_or(0, |kv| kv.modified),
        _ => 0,
    }
}

/// A list in pages, all of the first one's revision.
async fn pages(client: &mut Client, dice: &mut Dice, resource: &str, over: &watch::Receiver<bool>) {
    let Some(mut reply) = client.ask(list(resource, 0, PAGE)).await else {
        return;
    };
    let revision = reply.revision;
    while let Answer::Range {
        kvs, more: true, ..
    } = &reply.answer
    {
        let Some(last) = kvs.last() else { return };
        if !go_on(dice, over, Duration::ZERO).await {
            return;
        }
        let next = Range {
            key: format!("{}\0", last.key),
            end: format!("/registry/{resource}0"),
            revision,
            limit: PAGE,
            ..Range::default()
        };
        match client.ask(Request::Range(next)).await {
            Some(page) => reply = page,
            None => return,
        }
    }
}
