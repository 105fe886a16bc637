//! What every watch promises: ordered, unique, reliable, atomic per revision, resumable, filtered
//! exactly, previous values right.

use tonic::Code;

use super::fixture::*;
use pb::watch_create_request::FilterType;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::mvccpb::Event;
use sluice_metastore::etcd::client::mvccpb::event::EventType;

const PREFIX: &str = "/registry/pods/";
const KEY: &str = "/registry/pods/a/x";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";

fn revisions(events: &[Event]) -> Vec<i64> {
    events
        .iter()
        .map(|event| event.kv.as_ref().unwrap().mod_revision)
        .collect()
}

#[tokio::test]
async fn events_carry_what_kube_apiserver_reads() {
    let member = Member::start().await;
    let mut watching = member.watching().await;
    let created = watching.create(watch_prefix(PREFIX, 2)).await;
    assert_eq!(
        (
            created.watch_id,
            revision(&created.header),
            created.canceled
        ),
        (0, 1, false)
    );
    let mut one = member.watching().await;
    let single = pb::WatchCreateRequest {
        range_end: text(""),
        key: text(KEY),
        ..watch_prefix(PREFIX, 2)
    };
    one.create(single).await;

    member.create(KEY, "1").await;
    member.update(KEY, "2", 2).await;
    member.delete(KEY, 3).await;
    member.create("/registry/pods/a/x2", "other").await;
    let events = watching.events(4).await;
    assert_eq!(revisions(&events), [2, 3, 4, 5]);

    let (put, kv) = (events[0].r#type(), events[0].kv.as_ref().unwrap());
    assert_eq!(
        (put, kv.create_revision, kv.version, &kv.value[..]),
        (EventType::Put, 2, 1, &b"1"[..])
    );
    assert!(
        events[0].prev_kv.is_none(),
        "a created key had no value before"
    );

    let (kv, before) = (
        events[1].kv.as_ref().unwrap(),
        events[1].prev_kv.as_ref().unwrap(),
    );
    assert_eq!(
        (kv.create_revision, kv.version, &kv.value[..]),
        (2, 2, &b"2"[..])
    );
    assert_eq!(
        (before.mod_revision, before.version, &before.value[..]),
        (2, 1, &b"1"[..])
    );

    assert_eq!(events[2].r#type(), EventType::Delete);
    let (kv, before) = (
        events[2].kv.as_ref().unwrap(),
        events[2].prev_kv.as_ref().unwrap(),
    );
    assert_eq!(
        (&kv.key[..], kv.create_revision, kv.version),
        (KEY.as_bytes(), 0, 0)
    );
    assert!(kv.value.is_empty());
    assert_eq!((before.mod_revision, &before.value[..]), (3, &b"2"[..]));

    assert_eq!(revisions(&one.events(3).await), [2, 3, 4]);
    one.nothing_before_now().await;
}

#[tokio::test]
async fn a_transaction_is_one_response() {
    let member = Member::start().await;
    let mut watching = member.watching().await;
    watching.create(watch_prefix(PREFIX, 0)).await;
    let puts = ["c", "a", "b"].map(|name| put_op(&format!("{PREFIX}{name}"), "v"));
    member
        .kv()
        .txn(txn(vec![], puts.to_vec(), vec![]))
        .await
        .unwrap();
    let response = watching.next().await;
    assert_eq!(revisions(&response.events), [2, 2, 2]);
    let order: Vec<_> = response
        .events
        .iter()
        .map(|e| e.kv.as_ref().unwrap().key.clone())
        .collect();
    assert_eq!(
        order,
        ["c", "a", "b"].map(|name| text(&format!("{PREFIX}{name}")))
    );
}

#[tokio::test]
async fn a_watch_resumes_from_history_without_gap_or_repeat() {
    let member = Member::start().await;
    for n in 0..3000 {
        member
            .put(&format!("{PREFIX}{}", n % 7), &n.to_string())
            .await;
    }
    for start in [2, 1500, 3001] {
        let mut watching = member.watching().await;
        watching.create(watch_prefix(PREFIX, start)).await;
        let left = usize::try_from(3002 - start).unwrap();
        let seen = revisions(&watching.events(left).await);
        assert_eq!(seen, (start..=3001).collect::<Vec<_>>());
        watching.nothing_before_now().await;
    }
}

#[tokio::test]
async fn many_watches_share_a_stream_in_one_order() {
    let member = Member::start().await;
    let mut watching = member.watching().await;
    for n in 0..20 {
        let created = watching.create(watch_prefix(&format!("/r{n}/"), 0)).await;
        assert_eq!(created.watch_id, n);
    }
    for n in 0..200 {
        member.put(&format!("/r{}/k", n % 20), "v").await;
    }
    let mut last = [0; 20];
    let mut events = 0;
    while events < 200 {
        let response = watching.next().await;
        let id = usize::try_from(response.watch_id).unwrap();
        for (event, at) in response.events.iter().zip(revisions(&response.events)) {
            let key = &event.kv.as_ref().unwrap().key;
            assert_eq!(
                key,
                &text(&format!("/r{id}/k")),
                "a watch hears of its own keys only"
            );
            assert!(
                at > last[id],
                "each watch hears in revision order, and once"
            );
            assert!(revision(&response.header) >= at);
            last[id] = at;
            events += 1;
        }
    }
}

#[tokio::test]
async fn ids_are_chosen_refused_and_given_back() {
    let member = Member::start().await;
    let mut watching = member.watching().await;
    let with_id = |watch_id| pb::WatchCreateRequest {
        watch_id,
        ..watch_prefix(PREFIX, 0)
    };
    assert_eq!(watching.create(with_id(1)).await.watch_id, 1);
    assert_eq!(watching.create(with_id(0)).await.watch_id, 0);
    assert_eq!(watching.create(with_id(0)).await.watch_id, 2, "1 is taken");
    let refused = watching.create(with_id(1)).await;
    assert_eq!((refused.watch_id, refused.canceled), (-1, true));
    assert_eq!(
        refused.cancel_reason,
        "mvcc: duplicate watch ID provided on the WatchStream"
    );
    let backwards = pb::WatchCreateRequest {
        key: text("b"),
        range_end: text("a"),
        ..Default::default()
    };
    let refused = watching.create(backwards).await;
    assert_eq!(refused.cancel_reason, "mvcc: watcher range is empty");
    assert_eq!((refused.watch_id, refused.canceled), (-1, true));

    watching.cancel(77).await;
    watching.cancel(1).await;
    let cancelled = watching.next().await;
    assert_eq!(
        (cancelled.watch_id, cancelled.canceled, cancelled.created),
        (1, true, false)
    );
    assert_eq!(
        (&cancelled.cancel_reason[..], cancelled.compact_revision),
        ("", 0)
    );
    member.put(KEY, "v").await;
    let mut heard = [
        watching.next().await.watch_id,
        watching.next().await.watch_id,
    ];
    heard.sort_unstable();
    assert_eq!(heard, [0, 2]);
    watching.nothing_before_now().await;
}

#[tokio::test]
async fn a_start_below_the_floor_is_cancelled_with_the_floor() {
    let member = Member::start().await;
    for n in 2..=20 {
        member
            .put(&format!("{PREFIX}{}", n % 2), &n.to_string())
            .await;
    }
    member.compact(10).await.unwrap();
    let mut watching = member.watching().await;
    let created = watching.create(watch_prefix(PREFIX, 9)).await;
    assert_eq!((created.canceled, revision(&created.header)), (false, 20));
    let cancelled = watching.next().await;
    assert_eq!(
        (cancelled.watch_id, cancelled.canceled),
        (created.watch_id, true)
    );
    assert_eq!(cancelled.compact_revision, 10);

    watching.create(watch_prefix(PREFIX, 10)).await;
    let events = watching.events(11).await;
    assert_eq!(revisions(&events), (10..=20).collect::<Vec<_>>());
    assert!(
        events[0].prev_kv.is_none(),
        "the event at the floor comes without what was before"
    );
    assert!(events[1..].iter().all(|event| event.prev_kv.is_some()));

    let refused = watching.create(watch_prefix(PREFIX, -1)).await;
    assert_eq!((refused.watch_id, refused.canceled), (-1, true));
    assert_eq!(refused.cancel_reason, COMPACTED);
}

/// etcd issue 19179: the delete at the compacted revision was lost.
#[tokio::test]
async fn a_delete_at_the_floor_is_still_delivered() {
    let member = Member::start().await;
    member.put(KEY, "1").await;
    let gone = pb::DeleteRangeRequest {
        key: text(KEY),
        ..Default::default()
    };
    member.kv().delete_range(gone).await.unwrap();
    member.put("/other", "v").await;
    member.compact(3).await.unwrap();
    let mut watching = member.watching().await;
    watching.create(watch_prefix(PREFIX, 3)).await;
    let events = watching.events(1).await;
    assert_eq!(
        (revisions(&events)[0], events[0].r#type()),
        (3, EventType::Delete)
    );
}

#[tokio::test]
async fn a_watch_may_wait_for_the_future() {
    let member = Member::start().await;
    for _ in 2..=5 {
        member.put(KEY, "v").await;
    }
    let mut watching = member.watching().await;
    let created = watching.create(watch_prefix(PREFIX, 100)).await;
    assert_eq!(revision(&created.header), 5);
    for _ in 6..100 {
        member.put(KEY, "v").await;
    }
    watching.ask_progress().await;
    watching.nothing_before_now().await;
    member.put(KEY, "the hundredth").await;
    assert_eq!(revisions(&watching.events(1).await), [100]);
}

#[tokio::test]
async fn filters_leave_out_a_kind() {
    let member = Member::start().await;
    let mut watching = member.watching().await;
    for filter in [FilterType::Noput, FilterType::Nodelete] {
        let filters = vec![filter.into()];
        watching
            .create(pb::WatchCreateRequest {
                filters,
                ..watch_prefix(PREFIX, 0)
            })
            .await;
    }
    member.create(KEY, "1").await;
    member.delete(KEY, 2).await;
    let mut heard = Vec::new();
    for _ in 0..2 {
        let response = watching.next().await;
        assert_eq!(response.events.len(), 1);
        heard.push((response.watch_id, response.events[0].r#type()));
    }
    heard.sort_unstable_by_key(|(id, _)| *id);
    assert_eq!(heard, [(0, EventType::Delete), (1, EventType::Put)]);
}

/// Eight deletes that carry 400 KB of what was before each: more than a message should hold.
#[tokio::test]
async fn a_large_revision_comes_in_fragments_if_asked_for() {
    let member = Member::start().await;
    let value = "v".repeat(400_000);
    for n in 0..8 {
        member.put(&format!("{PREFIX}{n}"), &value).await;
    }
    let gone = pb::DeleteRangeRequest {
        key: text(PREFIX),
        range_end: end_of(PREFIX),
        prev_kv: false,
    };
    member.kv().delete_range(gone).await.unwrap();
    let mut watching = member.watching().await;
    watching.create(watch_prefix(PREFIX, 10)).await;
    let whole = watching.next().await;
    assert_eq!((whole.events.len(), whole.fragment), (8, false));
    let request = pb::WatchCreateRequest {
        fragment: true,
        ..watch_prefix(PREFIX, 10)
    };
    watching.create(request).await;
    let mut parts = vec![watching.next().await];
    while parts.last().unwrap().fragment {
        parts.push(watching.next().await);
    }
    assert!(parts.len() > 1);
    let joined: Vec<_> = parts.into_iter().flat_map(|part| part.events).collect();
    assert_eq!(joined, whole.events);
}

#[tokio::test]
async fn a_slow_client_hears_everything_and_others_do_not_wait() {
    let member = Member::start().await;
    let mut slow = member.watching().await;
    slow.create(watch_prefix(PREFIX, 2)).await;
    // Its own connection, so that it shares no window with the slow one.
    let channel = connect(member.address).await;
    let mut kv = pb::kv_client::KvClient::new(channel);
    let value = "v".repeat(10_000);
    for n in 0..2000 {
        let key = text(&format!("{PREFIX}{}", n % 3));
        let request = pb::PutRequest {
            key,
            value: text(&value),
            ..Default::default()
        };
        kv.put(request).await.unwrap();
    }
    let seen = revisions(&slow.events(2000).await);
    assert_eq!(seen, (2..=2001).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_running_watch_overtaken_by_compaction_is_told_so() {
    let member = Member::start().await;
    let value = "v".repeat(10_000);
    let mut slow = member.watching().await;
    slow.create(watch_prefix(PREFIX, 2)).await;
    for n in 0..3000 {
        member.put(&format!("{PREFIX}{}", n % 3), &value).await;
    }
    member.compact(3001).await.unwrap();
    let mut next = 2;
    loop {
        let response = slow.next().await;
        if response.canceled {
            assert_eq!(response.compact_revision, 3001);
            assert!(
                next <= 3001,
                "what was not delivered is what the cancel is about"
            );
            break;
        }
        for at in revisions(&response.events) {
            assert_eq!(at, next, "never a gap, compaction or not");
            next += 1;
        }
        if next > 3001 {
            panic!("30 MB cannot have fitted the client's windows");
        }
    }
}

#[tokio::test]
async fn streams_end_with_unavailable_when_the_listener_drains() {
    let member = Member::start().await;
    let mut watching = member.watching().await;
    watching.create(watch_prefix(PREFIX, 0)).await;
    member.shutdown.cancel();
    let end = watching.try_next().await;
    assert_refused(end, Code::Unavailable, "etcdserver: server stopped");
}
