//! Bodies in protobuf: objects, questions and options; custom kinds have none.

use super::*;

const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Sends what Kubernetes' own encoder wrote, as a typed client does. A refusal comes in the encoding
/// that such a client likes best, and is handed out as the text it is.
async fn send(client: &Client, method: Method, uri: &str, sample: &str) -> (StatusCode, Value) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/protobuf");
    let bytes = std::fs::read(format!("{folder}/{sample}.pb")).expect("a sample");
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", MEDIA_TYPE)
        .header("accept", format!("{MEDIA_TYPE},application/json"));
    let response = client
        .send(request.body(Body::from(bytes)).expect("a request"))
        .await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a whole body").to_bytes();
    if parts.status.is_success() {
        assert_eq!(parts.headers["content-type"], "application/json");
        return (parts.status, serde_json::from_slice(&bytes).expect("JSON"));
    }
    (parts.status, String::from_utf8_lossy(&bytes).into())
}

#[tokio::test]
async fn objects_are_stored_and_shown_as_json() {
    let client = Client::new().await;
    let (code, made) = send(&client, Method::POST, "/api/v1/namespaces", "namespace").await;
    assert_eq!(
        (code, &made["kind"]),
        (StatusCode::CREATED, &json!("Namespace"))
    );
    let of = |plural: &str| format!("/api/v1/namespaces/shop/{plural}");
    for (uri, sample) in [
        (of("configmaps"), "configmap"),
        (of("services"), "service"),
        (
            "/apis/apps/v1/namespaces/shop/deployments".to_owned(),
            "deployment",
        ),
    ] {
        let (code, made) = send(&client, Method::POST, &uri, sample).await;
        assert_eq!(code, StatusCode::CREATED, "{sample}: {made}");
    }
    let kept = client.get(&format!("{}/settings", of("configmaps"))).await;
    assert_eq!(kept.json["data"]["text"], "line\nline\n");
    assert_eq!(kept.json["binaryData"]["blob"], "AAH/gA==");

    let (code, answer) = send(&client, Method::POST, &of("secrets"), "configmap").await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{answer}");
    let uri = format!("{}/settings", of("configmaps"));
    let (code, answer) = send(&client, Method::PATCH, &uri, "configmap").await;
    assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{answer}");
}

#[tokio::test]
async fn custom_kinds_have_no_protobuf_but_their_deletes_do() {
    let client = Client::new().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let sample = "customresourcedefinition";
    let (code, made) = send(&client, Method::POST, definitions, sample).await;
    assert_eq!(code, StatusCode::CREATED, "{made}");
    let uri = "/apis/stable.example.com/v1/namespaces/default/crontabs";
    let (code, answer) = send(&client, Method::POST, uri, "configmap").await;
    assert_eq!(code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let message = answer.as_str().expect("a text");
    let (_, accepted) = message.split_once("include: ").expect("what is taken");
    assert!(!accepted.contains("protobuf"), "{accepted}");
    let made = client
        .post(
            uri,
            json!({
                "apiVersion": "stable.example.com/v1", "kind": "CronTab",
                "metadata": {"name": "one"}, "spec": {"replicas": 2},
            }),
        )
        .await;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.json);
    // The options ask for another object of that name.
    let one = format!("{uri}/one");
    let (code, answer) = send(&client, Method::DELETE, &one, "deleteoptions").await;
    assert_eq!(code, StatusCode::CONFLICT, "{answer}");
}

#[tokio::test]
async fn questions_are_answered() {
    let client = Client::new().await;
    let uri = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let (code, answer) = send(&client, Method::POST, uri, "subjectaccessreview").await;
    assert_eq!(code, StatusCode::CREATED);
    assert_eq!(answer["status"]["allowed"], false);
    assert_eq!(
        answer["spec"]["extra"]["scopes.example.com"],
        json!(["read", ""])
    );
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, answer) = send(&client, Method::POST, uri, "subjectaccessreview").await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{answer}");
}
