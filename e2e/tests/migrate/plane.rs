//! A real kube-apiserver whose etcd is moved away from under it.

use serde_json::{Value, json};
use sluice_e2e::apiserver::{Apiserver, ClusterPki, Storage};
use sluice_e2e::etcd::Etcd;
use sluice_e2e::parts::Parts;

use crate::moving::{begin, path, says, serve};

const PLACE: &str = "/api/v1/namespaces/default/configmaps";

async fn ask(server: &Apiserver, method: &str, path: &str, body: Value) -> Value {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let answer = server.direct.once(method, path, body).await.unwrap();
    assert!(
        answer.status.is_success(),
        "{method} {path}: {}",
        answer.json()
    );
    answer.json()
}

fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apiserver_finds_every_object_at_the_resource_version_it_had() {
    let Some(parts) = Parts::find(&["etcd", "kube-apiserver"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(&parts, dir.path()).await;
    let pki = ClusterPki::new(dir.path(), &[]);
    let storage = |url: &str| Storage {
        url: url.to_owned(),
        tls: None,
    };
    let before = &storage(&etcd.url);
    let mut server = Apiserver::new("before", &parts, dir.path(), &pki, before, &[]);
    server.start();
    server.ready().await;
    let data = dir.path().join("data");
    let args = ["--from", &etcd.url, "--data-dir", path(&data), "--follow"];
    let mut moving = begin("moving", dir.path(), &args);
    says(&moving, "caught up").await;
    // Written while it follows.
    for n in 0..20 {
        let object = json!({"metadata": {"name": format!("one-{n}")}, "data": {"n": "1"}});
        ask(&server, "POST", PLACE, object).await;
    }
    let known = ask(&server, "GET", &format!("{PLACE}/one-7"), Value::Null).await;
    let listed = ask(&server, "GET", PLACE, Value::Null).await;
    server.terminate();
    let status = moving.terminate(crate::moving::LIMIT);
    assert!(status.success(), "{}", moving.log_tail(40));

    let served = serve("served", &data).await;
    let after = &storage(&served.url);
    let mut server = Apiserver::new("after", &parts, dir.path(), &pki, after, &[]);
    server.start();
    server.ready().await;
    let again = ask(&server, "GET", PLACE, Value::Null).await;
    assert!(
        version(&again) >= version(&listed),
        "resource versions went back"
    );
    let objects = |list: &Value| {
        let items = list["items"].as_array().unwrap().clone();
        let named = items.into_iter().filter(|item| {
            let name = item["metadata"]["name"].as_str().unwrap();
            name.starts_with("one-")
        });
        named.collect::<Vec<Value>>()
    };
    assert_eq!(objects(&again).len(), 20);
    assert_eq!(objects(&again), objects(&listed));
    // What a client read before the move, it can write after it.
    let mut changed = known.clone();
    changed["data"]["n"] = json!("2");
    let written = ask(&server, "PUT", &format!("{PLACE}/one-7"), changed).await;
    assert!(version(&written) > version(&again));
    // And whoever knew the list hears of it, from the store's own history.
    let watch = format!(
        "{PLACE}?watch=1&timeoutSeconds=1&resourceVersion={}",
        version(&again)
    );
    let answer = server.direct.once("GET", &watch, "").await.unwrap();
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(
        text.contains("\"MODIFIED\"") && text.contains("one-7"),
        "{text}"
    );
    server.terminate();
}
