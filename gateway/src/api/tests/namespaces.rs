//! How namespaces begin and end.

use super::*;

/// Waits until an object is gone, by watching it.
async fn gone(client: &Client, name: &str) {
    let uri = format!("/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3D{name}");
    let mut stream = client.watch(&uri).await;
    if client.get(&format!("/api/v1/namespaces/{name}")).await.code == 404 {
        return;
    }
    while stream.told().await.0 != "DELETED" {}
}

#[tokio::test]
async fn namespace_takes_its_content_along() {
    let client = Client::new().await;
    let made = client.make("/api/v1/namespaces", named("shop")).await;
    assert_eq!(made["status"]["phase"], "Active");
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(
        made["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "shop"
    );
    client
        .make("/api/v1/namespaces/shop/configmaps", named("a"))
        .await;
    client
        .make("/apis/apps/v1/namespaces/shop/deployments", named("d"))
        .await;
    let ending = client.delete("/api/v1/namespaces/shop").await.json;
    assert_eq!(ending["status"]["phase"], "Terminating");
    gone(&client, "shop").await;
    assert_eq!(names(&client.get("/api/v1/configmaps").await.json).len(), 0);
    assert_eq!(
        names(&client.get("/apis/apps/v1/deployments").await.json).len(),
        0
    );
}

#[tokio::test]
async fn held_object_holds_its_namespace_and_nothing_new_comes_in() {
    let client = Client::new().await;
    client.make("/api/v1/namespaces", named("shop")).await;
    let configmaps = "/api/v1/namespaces/shop/configmaps";
    client
        .make(
            configmaps,
            json!({"metadata": {"name": "a", "finalizers": ["x.io/a"]}}),
        )
        .await;
    client.delete("/api/v1/namespaces/shop").await;
    let refused = client.post(configmaps, named("b")).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.json["details"]["causes"][0]["reason"],
        "NamespaceTerminating"
    );
    // The object is marked before it is let go.
    let mut stream = client.watch(&format!("{configmaps}?watch=1")).await;
    loop {
        let event = stream.next().await.unwrap();
        if event["object"]["metadata"]["deletionTimestamp"].is_string() {
            break;
        }
    }
    assert_eq!(client.get("/api/v1/namespaces/shop").await.code, 200);
    let off = json!({"metadata": {"finalizers": null}});
    client.patch("merge", &format!("{configmaps}/a"), off).await;
    gone(&client, "shop").await;
}

#[tokio::test]
async fn ending_goes_on_after_a_restart() {
    let store = store();
    // Nothing runs on a runtime that is gone: the first server never gets to ending it.
    let first = tokio::task::spawn_blocking({
        let store = store.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            runtime.expect("a runtime").block_on(async {
                let client = Client::over(store);
                client.make("/api/v1/namespaces", named("shop")).await;
                client.delete("/api/v1/namespaces/shop").await.json
            })
        }
    });
    assert_eq!(first.await.unwrap()["status"]["phase"], "Terminating");
    let client = Client::over(store);
    gone(&client, "shop").await;
}

#[tokio::test]
async fn namespaces_that_must_stay_stay() {
    let client = Client::new().await;
    let refused = client.delete("/api/v1/namespaces/default").await;
    assert_eq!(refused.code, 403);
    // Neither does an ordinary write take the finalizer off.
    let patch = json!({"spec": {"finalizers": []}});
    let patched = client
        .patch("merge", "/api/v1/namespaces/default", patch)
        .await
        .json;
    assert_eq!(patched["spec"]["finalizers"], json!(["kubernetes"]));
}
