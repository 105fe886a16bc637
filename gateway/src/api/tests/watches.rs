//! Watches, named after what they guarantee.

use super::*;

fn watch_uri(query: &str) -> String {
    format!("{CONFIGMAPS}?watch=1&{query}")
}

#[tokio::test]
async fn events_are_ordered_and_resumable() {
    let client = Client::new().await;
    let start = version(&client.get(CONFIGMAPS).await.json);
    let mut live = client
        .watch(&watch_uri(&format!("resourceVersion={start}")))
        .await;
    let one = format!("{CONFIGMAPS}/a");
    client.make(CONFIGMAPS, named("a")).await;
    client
        .patch("merge", &one, json!({"data": {"x": "1"}}))
        .await;
    client.delete(&one).await;
    let told = [live.told().await, live.told().await, live.told().await];
    let expected = [
        ("ADDED", start + 1),
        ("MODIFIED", start + 2),
        ("DELETED", start + 3),
    ];
    for (told, (kind, version)) in told.iter().zip(expected) {
        assert_eq!(told, &(kind.to_owned(), "a".to_owned(), version));
    }
    // From the middle again: what came after, and nothing else.
    let mut again = client
        .watch(&watch_uri(&format!("resourceVersion={}", start + 1)))
        .await;
    assert_eq!(again.told().await, told[1]);
    assert_eq!(again.told().await, told[2]);
}

#[tokio::test]
async fn selection_turns_changes_into_comings_and_goings() {
    let client = Client::new().await;
    let mut stream = client.watch(&watch_uri("labelSelector=on")).await;
    let one = format!("{CONFIGMAPS}/a");
    let label = |value: Value| json!({"metadata": {"labels": value}});
    client.make(CONFIGMAPS, named("a")).await;
    let on = client
        .patch("merge", &one, label(json!({"on": "1"})))
        .await
        .json;
    let more = client
        .patch("merge", &one, label(json!({"on": "2"})))
        .await
        .json;
    let off = client
        .patch("merge", &one, label(json!({"on": null})))
        .await
        .json;
    client.delete(&one).await;
    client
        .make(CONFIGMAPS, labelled("b", json!({"on": "1"})))
        .await;
    client.delete(&format!("{CONFIGMAPS}/b")).await;

    assert_eq!(
        stream.told().await,
        ("ADDED".into(), "a".into(), version(&on))
    );
    assert_eq!(
        stream.told().await,
        ("MODIFIED".into(), "a".into(), version(&more))
    );
    let left = stream.next().await.unwrap();
    assert_eq!(
        (&left["type"], version(&left["object"])),
        (&"DELETED".into(), version(&off))
    );
    // The state before it left, at the version at which it left.
    assert_eq!(left["object"]["metadata"]["labels"]["on"], "2");
    assert_eq!(stream.told().await.0, "ADDED");
    assert_eq!(stream.told().await.0, "DELETED");
}

#[tokio::test]
async fn streamed_list_ends_in_its_mark() {
    let client = Client::new().await;
    for name in ["a", "b"] {
        client.make(CONFIGMAPS, named(name)).await;
    }
    let now = version(&client.get(CONFIGMAPS).await.json);
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut stream = client.watch(&watch_uri(query)).await;
    assert_eq!(stream.told().await.1, "a");
    assert_eq!(stream.told().await.1, "b");
    let mark = stream.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["kind"], "ConfigMap");
    assert_eq!(
        mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(version(&mark["object"]), now);
    client.make(CONFIGMAPS, named("c")).await;
    assert_eq!(stream.told().await, ("ADDED".into(), "c".into(), now + 1));
}

#[tokio::test]
async fn bookmarks_move_on_and_time_ends_the_watch() {
    let client = Client::new().await;
    let query = "allowWatchBookmarks=true&timeoutSeconds=100";
    let mut stream = client.watch(&watch_uri(query)).await;
    // A change of another kind moves the bookmark too.
    client
        .make("/api/v1/namespaces/default/secrets", named("s"))
        .await;
    let now = client.server.storage().store().revision().get();
    // Only now: a paused clock runs ahead while the store's own thread works.
    tokio::time::pause();
    for _ in 0..2 {
        let mark = stream.next().await.unwrap();
        assert_eq!(
            (&mark["type"], version(&mark["object"])),
            (&"BOOKMARK".into(), now)
        );
    }
    assert!(
        stream.next().await.is_none(),
        "a clean end without an error event"
    );
}

#[tokio::test]
async fn watch_at_a_version_that_never_comes_is_told_so() {
    let client = Client::new().await;
    tokio::time::pause();
    let query = "resourceVersion=900&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mut stream = client.watch(&watch_uri(query)).await;
    let error = stream.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&"ERROR".into(), &504.into())
    );
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn drain_ends_watches_cleanly() {
    let client = Client::new().await;
    let mut stream = client.watch(&watch_uri("")).await;
    client.connection.drain.ending.cancel();
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn table_watch_names_its_columns_once() {
    let client = Client::new().await;
    client.make(CONFIGMAPS, named("a")).await;
    client.make(CONFIGMAPS, named("b")).await;
    let request = Request::get(watch_uri(""))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Body::Empty);
    let body = client.send(request.unwrap()).await.into_body();
    let mut stream = Stream {
        body,
        rest: Vec::new(),
    };
    let first = stream.next().await.unwrap();
    let second = stream.next().await.unwrap();
    assert_eq!(first["object"]["kind"], "Table");
    assert!(first["object"]["columnDefinitions"].is_array());
    assert!(!second["object"]["columnDefinitions"].is_array());
}

#[tokio::test]
async fn forgotten_history_is_told_in_the_stream() {
    let client = Client::new().await;
    let old = version(&client.get(CONFIGMAPS).await.json);
    for name in ["a", "b", "c"] {
        client.make(CONFIGMAPS, named(name)).await;
    }
    let store = client.server.storage().store();
    store.compact(store.revision()).await.unwrap();
    let uri = watch_uri(&format!("resourceVersion={old}"));
    let mut stream = client.watch(&uri).await;
    let error = stream.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["reason"]),
        (&"ERROR".into(), &"Expired".into())
    );
    assert_eq!(error["object"]["code"], 410);
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn watch_that_would_outlast_the_clock_is_served() {
    let client = Client::new().await;
    let uri = watch_uri("resourceVersion=0&timeoutSeconds=9223372036854775807");
    let mut stream = client.watch(&uri).await;
    client.make(CONFIGMAPS, named("a")).await;
    assert_eq!(stream.told().await.0, "ADDED");
}
