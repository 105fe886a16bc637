//! Progress: a notice at R says that every event up to R was delivered before it. Never early,
//! never backwards, on request, periodically, and at once when a point read asks for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fixture::*;
use sluice_metastore::etcd::client::etcdserverpb as pb;

const PREFIX: &str = "/registry/pods/";

fn assert_progress(response: &pb::WatchResponse, id: i64, at: i64) {
    assert_eq!(
        (response.watch_id, revision(&response.header)),
        (id, at),
        "{response:?}"
    );
    assert!(response.events.is_empty() && !response.created && !response.canceled);
    assert_eq!(response.compact_revision, 0);
}

#[tokio::test]
async fn a_request_is_answered_once_for_the_stream() {
    let member = Member::start().await;
    let mut watching = member.watching().await;
    watching.ask_progress().await;
    watching.nothing_before_now().await;
    watching.create(watch_prefix(PREFIX, 0)).await;
    watching.create(watch_prefix("/registry/secrets/", 0)).await;
    for _ in 0..5 {
        member.put("/elsewhere", "v").await;
    }
    watching.ask_progress().await;
    assert_progress(&watching.next().await, -1, 6);
    watching.nothing_before_now().await;
}

/// A watch far in the past holds the answer up; then there is one, after every event.
#[tokio::test]
async fn a_lagging_watch_holds_the_answer_up() {
    let member = Member::start().await;
    for n in 0..5000 {
        member.put(&format!("{PREFIX}{}", n % 10), "v").await;
    }
    let mut watching = member.watching().await;
    watching.create(watch_prefix("/registry/secrets/", 0)).await;
    watching.send_create(watch_prefix(PREFIX, 2)).await;
    watching.ask_progress().await;
    assert!(watching.next().await.created);
    let mut next = 2;
    loop {
        let response = watching.next().await;
        for event in &response.events {
            assert_eq!(event.kv.as_ref().unwrap().mod_revision, next);
            next += 1;
        }
        if response.events.is_empty() {
            assert_progress(&response, -1, 5001);
            break;
        }
    }
    assert_eq!(next, 5002, "every event came before the notice");
}

#[tokio::test]
async fn notices_under_writes_are_never_early_and_never_fall() {
    let member = Arc::new(Member::start().await);
    let mut watching = member.watching().await;
    for n in 0..4 {
        watching
            .create(watch_prefix(&format!("/registry/r{n}/"), 0))
            .await;
    }
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let (member, done) = (Arc::clone(&member), Arc::clone(&done));
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    member.put(&format!("/registry/r{n}/k"), "v").await;
                }
            })
        })
        .collect();
    let (mut told, mut heard, mut notices) = (0, 0, 0);
    while notices < 200 {
        watching.ask_progress().await;
        loop {
            let response = watching.next().await;
            for event in &response.events {
                let at = event.kv.as_ref().unwrap().mod_revision;
                assert!(at > told, "an event at {at} came after a notice of {told}");
                heard = heard.max(at);
            }
            if response.events.is_empty() {
                assert_eq!(response.watch_id, -1);
                let at = revision(&response.header);
                assert!(
                    at >= told && at >= heard,
                    "told {told}, heard {heard}, now {at}"
                );
                told = at;
                notices += 1;
                break;
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
}

/// What makes a consistent list fast: the point read of "/registry/pods" tells the watch at once.
#[tokio::test]
async fn a_point_read_of_the_resource_pushes_progress() {
    let member = Member::start().await;
    member.begin_pushing().await;
    let mut watching = member.watching().await;
    let asked = watching.create(watch_prefix(PREFIX, 0)).await.watch_id;
    let silent = pb::WatchCreateRequest {
        progress_notify: false,
        ..watch_prefix(PREFIX, 0)
    };
    watching.create(silent).await;
    watching.create(watch_prefix("/registry/secrets/", 0)).await;
    for _ in 0..5 {
        member.put("/elsewhere", "v").await;
    }
    let read = member
        .range(pb::RangeRequest {
            limit: 1,
            ..get("/registry/pods")
        })
        .await;
    assert_eq!(revision(&read.header), 6);
    assert_progress(&watching.next().await, asked, 6);
    member.range(get("/registry/pods")).await;
    watching.nothing_before_now().await;
}

/// An apiserver whose lists do not wait for its cache decides by how far that cache is where a list
/// is read. It never asks for progress, and hears of it when etcd would tell it.
#[tokio::test]
async fn nothing_is_pushed_before_somebody_asks() {
    let member = Member::start().await;
    let mut watching = member.watching().await;
    watching.create(watch_prefix(PREFIX, 0)).await;
    let read = || {
        member.range(pb::RangeRequest {
            limit: 1,
            ..get("/registry/pods")
        })
    };
    member.put("/elsewhere", "v").await;
    read().await;
    watching.nothing_before_now().await;
    watching.ask_progress().await;
    assert_progress(&watching.next().await, -1, 2);
    member.put("/elsewhere", "v").await;
    read().await;
    assert_progress(&watching.next().await, 0, 3);
}

/// Several apiservers, each with many watches on a stream: every one on the prefix hears of it, and
/// no other; one that lags hears it after its last event.
#[tokio::test]
async fn a_point_read_tells_every_stream_and_a_lagging_watch_last() {
    let member = Member::start().await;
    member.begin_pushing().await;
    let mut streams = Vec::new();
    for apiserver in 0..3 {
        let mut watching = member.watching().await;
        for n in 0..100 {
            let other = format!("/registry/other-{n}/");
            watching.create(watch_prefix(&other, 0)).await;
        }
        let id = watching.create(watch_prefix(PREFIX, 0)).await.watch_id;
        assert_eq!(id, 100, "of apiserver {apiserver}");
        streams.push(watching);
    }
    let mut last = 0;
    for n in 0..3000 {
        last = member.put(&format!("{PREFIX}{}", n % 10), "v").await;
    }
    for watching in &mut streams {
        watching.events(3000).await;
    }
    let mut lagging = member.watching().await;
    lagging.create(watch_prefix("/registry/other/", 0)).await;
    lagging.send_create(watch_prefix(PREFIX, 2)).await;
    assert!(lagging.next().await.created);
    for _ in 0..5 {
        last = member.put("/elsewhere", "v").await;
    }
    let read = member.range(pb::RangeRequest {
        limit: 1,
        ..get("/registry/pods")
    });
    assert_eq!(revision(&read.await.header), last);
    for watching in &mut streams {
        assert_progress(&watching.next().await, 100, last);
        watching.nothing_before_now().await;
    }
    lagging.events(3000).await;
    assert_progress(&lagging.next().await, 1, last);
    lagging.nothing_before_now().await;
}

/// A watch that begins at the next revision has nothing to be told before it is reached.
#[tokio::test]
async fn nothing_is_told_below_the_start() {
    let member = Member::start().await;
    let mut watching = member.watching().await;
    let id = watching.create(watch_prefix(PREFIX, 3)).await.watch_id;
    let read = || {
        member.range(pb::RangeRequest {
            limit: 1,
            ..get("/registry/pods")
        })
    };
    read().await;
    watching.ask_progress().await;
    member.put("/elsewhere", "v").await;
    read().await;
    watching.nothing_before_now().await;
    member.put("/elsewhere", "v").await;
    read().await;
    assert_progress(&watching.next().await, id, 3);
}

#[tokio::test]
async fn quiet_watches_are_told_now_and_then() {
    let member = Member::with_progress_interval(Duration::from_millis(100)).await;
    let mut watching = member.watching().await;
    let id = watching.create(watch_prefix(PREFIX, 0)).await.watch_id;
    let silent = pb::WatchCreateRequest {
        progress_notify: false,
        ..watch_prefix("/s/", 0)
    };
    watching.create(silent).await;
    assert_progress(&watching.next().await, id, 1);
    let at = member.put("/elsewhere", "v").await;
    // One notice may have been on its way.
    let first = watching.next().await;
    if revision(&first.header) < at {
        assert_progress(&watching.next().await, id, at);
    } else {
        assert_progress(&first, id, at);
    }
}
