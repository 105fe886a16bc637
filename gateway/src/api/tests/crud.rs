//! One object: made, read, changed, held up, gone, and every way to be refused.

use super::*;

#[tokio::test]
async fn object_lives_from_create_to_delete() {
    let client = Client::new().await;
    let made = client.make(CONFIGMAPS, json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "managedFields": [{}], "uid": "mine", "creationTimestamp": "x"},
        "data": {"k": "v"},
    })).await;
    let meta = &made["metadata"];
    assert_eq!(made["kind"], "ConfigMap");
    assert_eq!(made["data"]["k"], "v");
    assert_eq!(meta["namespace"], "default");
    assert!(meta["managedFields"].is_null());
    assert_eq!(meta["uid"].as_str().unwrap().len(), 36);
    assert!(meta["creationTimestamp"].as_str().unwrap().ends_with('Z'));
    let one = format!("{CONFIGMAPS}/a");
    let got = client.get(&one).await;
    assert_eq!((got.code, &got.json), (StatusCode::OK, &made));

    let mut changed = made.clone();
    changed["data"]["k"] = "w".into();
    let put = client.put(&one, changed.clone()).await;
    assert_eq!(put.code, 200);
    assert!(version(&put.json) > version(&made));
    // The old version is no longer the present one.
    let stale = client.put(&one, changed).await;
    assert_eq!(
        (stale.code.as_u16(), stale.json["reason"].as_str()),
        (409, Some("Conflict"))
    );
    // What changes nothing takes no version.
    let same = client.put(&one, put.json.clone()).await;
    assert_eq!(same.json, put.json);

    let gone = client.delete(&one).await;
    assert_eq!(
        (gone.code.as_u16(), gone.json["status"].as_str()),
        (200, Some("Success"))
    );
    assert_eq!(gone.json["details"]["uid"], meta["uid"]);
    let missing = client.get(&one).await;
    assert_eq!(missing.code, 404);
    assert_eq!(missing.json["message"], "configmaps \"a\" not found");
    assert_eq!(
        missing.json["details"],
        json!({"name": "a", "kind": "configmaps"})
    );
}

#[tokio::test]
async fn wrong_requests_are_refused_in_kubernetes_words() {
    let client = Client::new().await;
    client.make(CONFIGMAPS, named("a")).await;
    let cases = [
        (CONFIGMAPS, named("a"), 409, "AlreadyExists"),
        (CONFIGMAPS, json!({"metadata": {}}), 422, "Invalid"),
        (CONFIGMAPS, named("Not_A_Name"), 422, "Invalid"),
        (
            CONFIGMAPS,
            json!({"kind": "Pod", "metadata": {"name": "b"}}),
            400,
            "BadRequest",
        ),
        (
            CONFIGMAPS,
            json!({"apiVersion": "v2", "metadata": {"name": "b"}}),
            400,
            "BadRequest",
        ),
        (
            CONFIGMAPS,
            json!({"metadata": {"name": "b", "namespace": "x"}}),
            400,
            "BadRequest",
        ),
        (
            CONFIGMAPS,
            json!({"metadata": {"name": "b", "resourceVersion": "5"}}),
            400,
            "BadRequest",
        ),
        (CONFIGMAPS, labelled("b", json!({"a": "-"})), 422, "Invalid"),
        (
            "/api/v1/namespaces/none/configmaps",
            named("b"),
            404,
            "NotFound",
        ),
        ("/api/v1/configmaps", named("b"), 405, "MethodNotAllowed"),
        (
            "/api/v1/namespaces/default/nodes",
            named("b"),
            404,
            "NotFound",
        ),
        (
            "/api/v1/namespaces/default/nothings",
            named("b"),
            404,
            "NotFound",
        ),
    ];
    for (uri, object, code, reason) in cases {
        let answer = client.post(uri, object.clone()).await;
        let got = (
            answer.code.as_u16(),
            answer.json["reason"].as_str().unwrap(),
        );
        assert_eq!(got, (code, reason), "{uri} {object}");
    }
    let other = client.put(&format!("{CONFIGMAPS}/a"), named("b")).await;
    assert_eq!(other.code, 400);
    let uid = json!({"metadata": {"name": "a", "uid": "other"}});
    assert_eq!(client.put(&format!("{CONFIGMAPS}/a"), uid).await.code, 409);
}

#[tokio::test]
async fn every_refused_field_is_a_cause() {
    let client = Client::new().await;
    let bad = json!({"metadata": {"name": "B", "labels": {"x": "-"}}, "data": {"/": "v"}});
    let answer = client.post(CONFIGMAPS, bad).await;
    assert_eq!(answer.code, 422);
    let causes = answer.json["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes
        .iter()
        .map(|c| c["field"].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["metadata.name", "metadata.labels", "data[/]"]);
}

#[tokio::test]
async fn generated_names_differ() {
    let client = Client::new().await;
    let base = json!({"metadata": {"generateName": "job-"}});
    let one = client.make(CONFIGMAPS, base.clone()).await;
    let two = client.make(CONFIGMAPS, base).await;
    let name = one["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("job-") && name.len() == 9, "{name}");
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

#[tokio::test]
async fn dry_run_writes_nothing() {
    let client = Client::new().await;
    let before = client.server.storage().store().revision();
    let made = client
        .make(&format!("{CONFIGMAPS}?dryRun=All"), named("a"))
        .await;
    assert!(made["metadata"]["resourceVersion"].is_null());
    assert_eq!(client.get(&format!("{CONFIGMAPS}/a")).await.code, 404);
    assert_eq!(client.server.storage().store().revision(), before);

    client.make(CONFIGMAPS, named("a")).await;
    let before = client.server.storage().store().revision();
    let one = format!("{CONFIGMAPS}/a?dryRun=All");
    let put = client
        .put(&one, json!({"metadata": {"name": "a"}, "data": {"x": "y"}}))
        .await;
    assert_eq!(put.json["data"]["x"], "y");
    assert_eq!(client.delete(&one).await.code, 200);
    assert_eq!(
        client
            .delete(&format!("{CONFIGMAPS}?dryRun=All"))
            .await
            .code,
        200
    );
    assert_eq!(
        client
            .post(&format!("{CONFIGMAPS}?dryRun=Some"), named("z"))
            .await
            .code,
        400
    );
    assert_eq!(client.server.storage().store().revision(), before);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_off() {
    let client = Client::new().await;
    let held = json!({"metadata": {"name": "a", "finalizers": ["x.io/a"]}});
    client.make(CONFIGMAPS, held).await;
    let one = format!("{CONFIGMAPS}/a");
    let marked = client.delete(&one).await;
    assert_eq!(
        (marked.code.as_u16(), marked.json["kind"].as_str()),
        (200, Some("ConfigMap"))
    );
    assert!(marked.json["metadata"]["deletionTimestamp"].is_string());
    let again = client.post(CONFIGMAPS, named("a")).await;
    assert!(
        again.json["message"]
            .as_str()
            .unwrap()
            .starts_with("object is being deleted")
    );
    let more = json!({"metadata": {"finalizers": ["x.io/a", "x.io/b"]}});
    assert_eq!(client.patch("merge", &one, more).await.code, 422);
    let off = client
        .patch("merge", &one, json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(off.code, 200);
    assert_eq!(client.get(&one).await.code, 404);
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec_alone() {
    let client = Client::new().await;
    let made = client
        .make(
            DEPLOYMENTS,
            json!({
                "metadata": {"name": "web"}, "spec": {"replicas": 1}, "status": {"replicas": 9},
            }),
        )
        .await;
    assert_eq!(made["metadata"]["generation"], 1);
    assert!(made["status"].is_null(), "status is not the creator's");
    let one = format!("{DEPLOYMENTS}/web");
    let label = client
        .patch("merge", &one, json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    assert_eq!(label.json["metadata"]["generation"], 1);
    let spec = client
        .patch("merge", &one, json!({"spec": {"replicas": 2}}))
        .await;
    assert_eq!(spec.json["metadata"]["generation"], 2);
    let both = json!({"spec": {"replicas": 7}, "status": {"replicas": 2}});
    let status = client
        .patch("merge", &format!("{one}/status"), both)
        .await
        .json;
    assert_eq!(status["status"]["replicas"], 2);
    assert_eq!(
        (
            &status["spec"]["replicas"],
            &status["metadata"]["generation"]
        ),
        (&2.into(), &2.into())
    );
    let scale = client
        .patch(
            "merge",
            &format!("{one}/scale"),
            json!({"spec": {"replicas": 5}}),
        )
        .await;
    assert_eq!(scale.json["kind"], "Scale");
    assert_eq!(
        (
            &scale.json["spec"]["replicas"],
            &scale.json["status"]["replicas"]
        ),
        (&5.into(), &2.into())
    );
    assert_eq!(client.get(&one).await.json["metadata"]["generation"], 3);
}

#[tokio::test]
async fn collection_is_deleted_by_selector() {
    let client = Client::new().await;
    for name in ["a", "b", "c"] {
        client
            .make(CONFIGMAPS, labelled(name, json!({"n": name})))
            .await;
    }
    let gone = client
        .delete(&format!("{CONFIGMAPS}?labelSelector=n+in+(a,c)"))
        .await;
    assert_eq!(names(&gone.json), ["a", "c"]);
    assert_eq!(names(&client.get(CONFIGMAPS).await.json), ["b"]);
    assert_eq!(client.delete("/api/v1/namespaces").await.code, 405);
    assert_eq!(client.delete("/api/v1/configmaps").await.code, 405);
}

#[tokio::test]
async fn preconditions_of_a_delete_hold() {
    let client = Client::new().await;
    let made = client.make(CONFIGMAPS, named("a")).await;
    let one = format!("{CONFIGMAPS}/a");
    let send = |given: Value| {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": given});
        client.call(
            Method::DELETE,
            &one,
            Some(("application/json", body.to_string())),
        )
    };
    assert_eq!(send(json!({"uid": "other"})).await.code, 409);
    assert_eq!(send(json!({"resourceVersion": "1"})).await.code, 409);
    assert_eq!(
        send(json!({"uid": made["metadata"]["uid"]})).await.code,
        200
    );
}

#[tokio::test]
async fn secrets_take_texts_and_keep_bytes() {
    let client = Client::new().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let made = client
        .make(
            secrets,
            json!({
                "metadata": {"name": "s"}, "stringData": {"a": "text"}, "immutable": true,
            }),
        )
        .await;
    assert_eq!(
        (&made["data"]["a"], &made["type"]),
        (&"dGV4dA==".into(), &"Opaque".into())
    );
    assert!(made["stringData"].is_null());
    let bad = json!({"metadata": {"name": "t"}, "data": {"a": "!"}});
    assert_eq!(client.post(secrets, bad).await.code, 422);
    let change = client
        .patch(
            "merge",
            &format!("{secrets}/s"),
            json!({"data": {"a": "eA=="}}),
        )
        .await;
    assert_eq!(change.code, 422, "immutable");
}

#[tokio::test]
async fn who_is_no_master_is_refused_by_default() {
    let client = Client::new().await;
    let request = Request::get("/api/v1/nodes").body(Body::Empty).unwrap();
    let info = RequestInfo::parse(request.method(), request.uri(), request.headers()).unwrap();
    let ctx = RequestContext {
        connection: Arc::clone(&client.connection),
        client: client.connection.peer,
        id: RequestId(1),
        received: clock::now(),
        user: Arc::new(UserInfo {
            name: "joe".into(),
            ..UserInfo::default()
        }),
        impersonator: None,
        tether: None,
    };
    let response = client.server.serve(&ctx, &info, request).await;
    assert_eq!(response.status(), 403);
}

#[tokio::test]
async fn events_hang_on_a_shared_lease_and_others_on_none() {
    let client = Client::new().await;
    let events = "/api/v1/namespaces/default/events";
    for name in ["a", "b"] {
        client.make(events, named(name)).await;
    }
    client.make(CONFIGMAPS, named("c")).await;
    let store = client.server.storage().store();
    let leases = store.leases();
    assert_eq!(leases.len(), 1);
    let lease = store.lease_remaining(leases[0]).unwrap();
    assert_eq!(lease.keys.len(), 2);
    assert_eq!(lease.granted, Duration::from_secs(3660));
    // When it ends, watchers are told of both.
    let mut stream = client.watch(&format!("{events}?watch=1")).await;
    store.lease_revoke(leases[0]).await.unwrap();
    let told: Vec<_> = [
        stream.told().await,
        stream.told().await,
        stream.told().await,
        stream.told().await,
    ]
    .into_iter()
    .map(|(kind, name, _)| (kind, name))
    .collect();
    let expected = [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
        ("DELETED", "b"),
    ];
    assert_eq!(told, expected.map(|(k, n)| (k.to_owned(), n.to_owned())));
}

#[tokio::test]
async fn a_null_in_metadata_is_an_absent_field() {
    let client = Client::new().await;
    let nulls = json!({"name": "shop", "labels": null, "annotations": null, "finalizers": null});
    let made = client
        .make("/api/v1/namespaces", json!({"metadata": nulls}))
        .await;
    assert_eq!(
        made["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "shop"
    );
    // It is a namespace like any other, and what is in it is found by selectors.
    let uri = "/api/v1/namespaces/shop/configmaps";
    let mut object = json!({"metadata": nulls});
    object["metadata"]["name"] = "a".into();
    let made = client.make(uri, object.clone()).await;
    assert!(made["metadata"].get("labels").is_none());
    let found = client.get(&format!("{uri}?labelSelector=!x")).await;
    assert_eq!(names(&found.json), ["a"]);
    client.put(&format!("{uri}/a"), object).await;
    let found = client.get(&format!("{uri}?labelSelector=!x")).await;
    assert_eq!(names(&found.json), ["a"]);
}

#[tokio::test]
async fn a_guard_of_a_deletion_that_cannot_be_read_deletes_nothing() {
    let client = Client::new().await;
    client.make(CONFIGMAPS, named("a")).await;
    let one = format!("{CONFIGMAPS}/a");
    for given in [
        json!({"preconditions": {"uid": 5}}),
        json!({"preconditions": {"resourceVersion": 5}}),
        json!({"preconditions": "mine"}),
        json!({"dryRun": "All"}),
        json!({"dryRun": [true]}),
        json!({"propagationPolicy": {}}),
    ] {
        let body = ("application/json", given.to_string());
        let refused = client.call(Method::DELETE, &one, Some(body)).await;
        assert_eq!(refused.code, 400, "{given}");
    }
    let nulls = json!({"preconditions": null, "dryRun": null, "propagationPolicy": null});
    let body = ("application/json", nulls.to_string());
    assert_eq!(
        client.call(Method::DELETE, &one, Some(body)).await.code,
        200
    );
}

#[tokio::test]
async fn data_that_no_typed_client_could_read_is_refused() {
    let client = Client::new().await;
    for (field, value) in [("data", json!("x")), ("binaryData", json!(["eA=="]))] {
        let object = json!({"metadata": {"name": "a"}, field: value});
        assert_eq!(client.post(CONFIGMAPS, object).await.code, 422, "{field}");
    }
    let null = json!({"metadata": {"name": "a"}, "data": null});
    client.make(CONFIGMAPS, null).await;
}

#[tokio::test]
async fn collection_is_deleted_no_further_than_it_was_asked_for() {
    let client = Client::new().await;
    for name in ["a", "b", "c"] {
        client.make(CONFIGMAPS, named(name)).await;
    }
    for query in ["limit=x", "resourceVersion=x", "resourceVersionMatch=Exact"] {
        let refused = client.delete(&format!("{CONFIGMAPS}?{query}")).await;
        assert!(matches!(refused.code.as_u16(), 400 | 422), "{query}");
    }
    let page = client.delete(&format!("{CONFIGMAPS}?limit=2")).await;
    assert_eq!(page.code, 200);
    assert_eq!(names(&page.json), ["a", "b"]);
    assert_eq!(names(&client.get(CONFIGMAPS).await.json), ["c"]);
}
