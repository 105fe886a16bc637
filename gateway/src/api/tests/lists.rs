//! Lists: order, pages, selectors, versions, forms.

use super::*;

async fn filled() -> Client {
    let client = Client::new().await;
    client.make("/api/v1/namespaces", named("a-b")).await;
    client.make("/api/v1/namespaces", named("a")).await;
    for (namespace, name) in [
        ("default", "x"),
        ("a", "y"),
        ("a-b", "z"),
        ("a", "x"),
        ("a", "z"),
    ] {
        let uri = format!("/api/v1/namespaces/{namespace}/configmaps");
        client
            .make(&uri, labelled(name, json!({"name": name})))
            .await;
    }
    client
}

#[tokio::test]
async fn items_come_in_key_order_with_their_versions() {
    let client = filled().await;
    let list = client.get("/api/v1/configmaps").await.json;
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&"ConfigMapList".into(), &"v1".into())
    );
    let items = list["items"].as_array().unwrap();
    let places: Vec<_> = items
        .iter()
        .map(|i| {
            format!(
                "{}/{}",
                i["metadata"]["namespace"].as_str().unwrap(),
                i["metadata"]["name"].as_str().unwrap()
            )
        })
        .collect();
    // By the joined key: "-" sorts before "/".
    assert_eq!(places, ["a-b/z", "a/x", "a/y", "a/z", "default/x"]);
    assert!(
        items.iter().all(|i| i["kind"].is_null()),
        "items of built-in lists carry no kind"
    );
    assert!(items.iter().all(|i| version(i) <= version(&list)));
    let empty = client.get("/api/v1/namespaces/none/configmaps").await;
    assert_eq!(
        (empty.code.as_u16(), &empty.json["items"]),
        (200, &json!([]))
    );
}

#[tokio::test]
async fn pages_are_of_one_version() {
    let client = filled().await;
    let first = client
        .get("/api/v1/namespaces/a/configmaps?limit=2")
        .await
        .json;
    assert_eq!(names(&first), ["x", "y"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    client
        .make("/api/v1/namespaces/a/configmaps", named("zz"))
        .await;
    client.delete("/api/v1/namespaces/a/configmaps/z").await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let next = format!("/api/v1/namespaces/a/configmaps?limit=2&continue={token}");
    let second = client.get(&next).await.json;
    assert_eq!(
        names(&second),
        ["z"],
        "as it was at the first page's version"
    );
    assert_eq!(version(&second), version(&first));
    assert!(second["metadata"]["continue"].is_null());
    let both = client.get(&format!("{next}&resourceVersion=7")).await;
    assert_eq!(both.code, 400);
    assert_eq!(
        client.get("/api/v1/configmaps?continue=rubbish").await.code,
        400
    );
}

#[tokio::test]
async fn selectors_narrow_and_pages_count_matches() {
    let client = filled().await;
    for (query, expected) in [
        ("labelSelector=name%3Dx", vec!["x", "x"]),
        ("labelSelector=name+notin+(x,y)", vec!["z", "z"]),
        ("fieldSelector=metadata.name%3Dx", vec!["x", "x"]),
        (
            "fieldSelector=metadata.namespace%3Da,metadata.name!%3Dx",
            vec!["y", "z"],
        ),
        (
            "fieldSelector=metadata.namespace%3Da,metadata.name%3Dx",
            vec!["x"],
        ),
    ] {
        let list = client
            .get(&format!("/api/v1/configmaps?{query}"))
            .await
            .json;
        assert_eq!(names(&list), expected, "{query}");
    }
    let page = client
        .get("/api/v1/configmaps?limit=1&labelSelector=name%3Dx")
        .await
        .json;
    assert_eq!(names(&page), ["x"]);
    assert!(page["metadata"]["remainingItemCount"].is_null());
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = format!("/api/v1/configmaps?labelSelector=name%3Dx&continue={token}");
    assert_eq!(names(&client.get(&rest).await.json), ["x"]);
    for bad in ["fieldSelector=spec.x%3D1", "labelSelector=a,,b", "limit=x"] {
        assert_eq!(
            client.get(&format!("/api/v1/configmaps?{bad}")).await.code,
            400,
            "{bad}"
        );
    }
}

#[tokio::test]
async fn versions_mean_what_the_matrix_says() {
    let client = filled().await;
    let list = "/api/v1/namespaces/a/configmaps";
    let then = version(&client.get(list).await.json);
    client.make(list, named("later")).await;
    let count = async |query: &str| {
        let answer = client.get(&format!("{list}?{query}")).await;
        assert_eq!(answer.code, 200, "{query} {}", answer.json);
        (names(&answer.json).len(), version(&answer.json))
    };
    let now = then + 1;
    assert_eq!(count("").await, (4, now));
    assert_eq!(count("resourceVersion=0&limit=1").await, (4, now));
    assert_eq!(count(&format!("resourceVersion={then}")).await, (4, now));
    assert_eq!(
        count(&format!("resourceVersion={then}&limit=9")).await,
        (3, then)
    );
    let exact = format!("resourceVersion={then}&resourceVersionMatch=Exact");
    assert_eq!(count(&exact).await, (3, then));
    let newer = format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan&limit=9");
    assert_eq!(count(&newer).await, (4, now));
}

#[tokio::test]
async fn version_that_never_comes_is_a_timeout_to_retry() {
    let client = filled().await;
    tokio::time::pause();
    for uri in [
        "/api/v1/configmaps?resourceVersion=900",
        "/api/v1/namespaces/a/configmaps/x?resourceVersion=900",
    ] {
        let late = client.get(uri).await;
        assert_eq!(late.code, 504);
        assert_eq!(late.headers["retry-after"], "1");
        assert_eq!(
            late.json["details"]["causes"][0]["reason"],
            "ResourceVersionTooLarge"
        );
    }
}

#[tokio::test]
async fn long_list_goes_out_in_pieces() {
    let client = Client::new().await;
    for n in 0..200 {
        let big =
            json!({"metadata": {"name": format!("n{n:03}")}, "data": {"k": "v".repeat(2000)}});
        client.make(CONFIGMAPS, big).await;
    }
    let request = Request::get(CONFIGMAPS).body(Body::Empty).unwrap();
    let mut body = client.send(request).await.into_body();
    let (mut n_pieces, mut all) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.len() < 128 << 10, "a piece stays small");
        n_pieces += 1;
        all.extend_from_slice(&data);
    }
    let list: Value = serde_json::from_slice(&all).unwrap();
    assert_eq!(names(&list).len(), 200);
    assert!(n_pieces > 4, "{n_pieces}");
}

#[tokio::test]
async fn list_of_rows_and_of_metadata() {
    let client = filled().await;
    let ask = async |accept: &str| {
        let request = Request::get("/api/v1/configmaps").header("accept", accept);
        let response = client.send(request.body(Body::Empty).unwrap()).await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let table = ask("application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"].as_array().unwrap().len(), 5);
    let partial = ask("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").await;
    assert_eq!(partial["kind"], "PartialObjectMetadataList");
    assert_eq!(names(&partial).len(), 5);
    let request = Request::get("/api/v1/configmaps");
    let request = request.header("accept", "application/vnd.kubernetes.protobuf");
    let refused = client.send(request.body(Body::Empty).unwrap()).await;
    assert_eq!(refused.status(), 406);
}

#[tokio::test]
async fn page_of_a_forgotten_version_offers_to_go_on() {
    let client = filled().await;
    let first = client.get("/api/v1/configmaps?limit=2").await.json;
    let token = first["metadata"]["continue"].as_str().unwrap();
    client.make(CONFIGMAPS, named("more")).await;
    let store = client.server.storage().store();
    store.compact(store.revision()).await.unwrap();
    let gone = client
        .get(&format!("/api/v1/configmaps?limit=2&continue={token}"))
        .await;
    assert_eq!(
        (gone.code.as_u16(), &gone.json["reason"]),
        (410, &"Expired".into())
    );
    let on = gone.json["metadata"]["continue"].as_str().unwrap();
    let rest = client
        .get(&format!("/api/v1/configmaps?continue={on}"))
        .await
        .json;
    assert_eq!(names(&rest), ["y", "z", "more", "x"]);
    let exact = format!(
        "resourceVersion={}&resourceVersionMatch=Exact",
        version(&first)
    );
    assert_eq!(
        client
            .get(&format!("/api/v1/configmaps?{exact}"))
            .await
            .code,
        410
    );
}

#[tokio::test]
async fn pages_of_any_size_make_up_the_list() {
    let client = filled().await;
    for filter in [
        "",
        "&labelSelector=name+notin+(y)",
        "&fieldSelector=metadata.namespace%3Da",
    ] {
        let whole = client
            .get(&format!("/api/v1/configmaps?x{filter}"))
            .await
            .json;
        for limit in 1..7 {
            let (mut seen, mut token) = (Vec::new(), String::new());
            loop {
                let uri = format!("/api/v1/configmaps?limit={limit}&continue={token}{filter}");
                let page = client.get(&uri).await.json;
                let items = page["items"].as_array().unwrap();
                assert!(items.len() <= limit);
                seen.extend(items.clone());
                match page["metadata"]["continue"].as_str() {
                    Some(next) => token = next.to_owned(),
                    None => break,
                }
            }
            assert_eq!(Value::from(seen), whole["items"], "limit {limit} {filter}");
        }
    }
}
