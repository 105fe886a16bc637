//! The patch formats, and what a patch may not do.

use super::*;

#[tokio::test]
async fn each_format_changes_an_object() {
    let client = Client::new().await;
    client
        .make(
            CONFIGMAPS,
            json!({"metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}),
        )
        .await;
    let one = format!("{CONFIGMAPS}/a");
    let json = json!([
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/data/x", "value": "3"},
    ]);
    assert_eq!(
        client.patch("json", &one, json.clone()).await.json["data"]["x"],
        "3"
    );
    assert_eq!(
        client.patch("json", &one, json).await.code,
        422,
        "the test no longer holds"
    );
    let merge = client
        .patch("merge", &one, json!({"data": {"y": null, "z": "4"}}))
        .await
        .json;
    assert_eq!(merge["data"], json!({"x": "3", "z": "4"}));
    let strategic = json!({"metadata": {"finalizers": ["x.io/a"]}, "data": {"x": "5"}});
    client.patch("strategic-merge", &one, strategic).await;
    let more = json!({"metadata": {"finalizers": ["x.io/b"]}});
    let merged = client.patch("strategic-merge", &one, more).await.json;
    assert_eq!(
        merged["metadata"]["finalizers"],
        json!(["x.io/a", "x.io/b"])
    );
    assert_eq!(
        client
            .patch("merge", &format!("{CONFIGMAPS}/b"), json!({}))
            .await
            .code,
        404
    );
}

#[tokio::test]
async fn patch_cannot_rename_or_go_back_in_time() {
    let client = Client::new().await;
    let made = client.make(CONFIGMAPS, named("a")).await;
    let one = format!("{CONFIGMAPS}/a");
    let rename = client.patch("merge", &one, named("b")).await;
    assert_eq!(rename.code, 400);
    client
        .patch("merge", &one, json!({"data": {"x": "1"}}))
        .await;
    let stale = json!({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}});
    assert_eq!(client.patch("merge", &one, stale).await.code, 409);
    let uid = client
        .patch("merge", &one, json!({"metadata": {"uid": "x"}}))
        .await;
    assert_eq!(uid.code, 409);
}

#[tokio::test]
async fn server_side_apply_is_refused_with_a_way_out() {
    let client = Client::new().await;
    client.make(CONFIGMAPS, named("a")).await;
    let body = ("application/apply-patch+yaml", "{}".to_owned());
    let one = format!("{CONFIGMAPS}/a");
    let refused = client.call(Method::PATCH, &one, Some(body)).await;
    assert_eq!(refused.code, 415);
    assert!(
        refused.json["message"]
            .as_str()
            .unwrap()
            .contains("server-side apply")
    );
}

#[tokio::test]
async fn racing_patches_all_take_effect() {
    let client = Client::new().await;
    client.make(CONFIGMAPS, named("a")).await;
    let one = format!("{CONFIGMAPS}/a");
    let patch = |n: usize| client.patch("merge", &one, json!({"data": {format!("k{n}"): "v"}}));
    let answers = tokio::join!(patch(1), patch(2), patch(3));
    for answer in [answers.0, answers.1, answers.2] {
        assert_eq!(answer.code, 200);
    }
    let data = client.get(&one).await.json["data"].clone();
    assert_eq!(data.as_object().unwrap().len(), 3);
}

#[tokio::test]
async fn no_patch_makes_an_object_too_deep_to_read_or_to_drop() {
    let client = Client::new().await;
    client
        .make(
            CONFIGMAPS,
            json!({"metadata": {"name": "a"}, "x": {"a": {}}}),
        )
        .await;
    let one = format!("{CONFIGMAPS}/a");
    // Each copy of the whole to its own bottom doubles the depth; seventeen overflow any stack.
    let mut copies = Vec::new();
    let mut depth = 1;
    while depth < 100_000 {
        let bottom = format!("/x{}", "/a".repeat(depth + 1));
        copies.push(json!({"op": "copy", "from": "/x", "path": bottom}));
        depth = 2 * depth + 1;
    }
    assert_eq!(client.patch("json", &one, json!(copies)).await.code, 422);
    // Twice what the parser reads, in two steps that it reads.
    let mut inner = json!({});
    for _ in 0..100 {
        inner = json!({ "a": inner });
    }
    let steps = json!([
        {"op": "add", "path": "/x/b", "value": inner},
        {"op": "add", "path": format!("/x/b{}/c", "/a".repeat(100)), "value": inner},
    ]);
    assert_eq!(client.patch("json", &one, steps).await.code, 400);
    // Moving to and fro is not deep, however often it is done.
    let to_and_fro = [
        json!({"op": "move", "from": "/x/a", "path": "/y"}),
        json!({"op": "move", "from": "/y", "path": "/x/a"}),
    ];
    let moves: Vec<_> = to_and_fro.iter().cycle().take(2000).collect();
    assert_eq!(client.patch("json", &one, json!(moves)).await.code, 200);
    assert_eq!(client.delete(&one).await.code, 200);
}
