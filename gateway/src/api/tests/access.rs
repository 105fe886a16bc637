//! Who may: roles in force with the next request, `--as`, questions and their answers.

use super::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A request as somebody, by `--as` of the tester.
async fn ask(client: &Client, name: &str, method: Method, uri: &str, object: Value) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("impersonate-user", name)
        .body(Body::from(object.to_string().into_bytes()));
    let response = client.send(request.expect("a request")).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a whole body").to_bytes();
    Answer {
        code: parts.status,
        headers: parts.headers,
        json: serde_json::from_slice(&bytes).expect("JSON"),
    }
}

async fn get_as(client: &Client, name: &str, uri: &str) -> StatusCode {
    ask(client, name, Method::GET, uri, json!({})).await.code
}

#[tokio::test]
async fn role_is_in_force_with_the_next_request_and_gone_with_its_binding() {
    let client = Client::new().await;
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(get_as(&client, "ann", pods).await, 403);
    assert_eq!(get_as(&client, "ann", "/apis").await, 200);
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    client
        .make(&format!("{RBAC}/namespaces/default/roles"), role)
        .await;
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "ann"}],
    });
    client.make(&bindings, binding).await;
    assert_eq!(get_as(&client, "ann", pods).await, 200);
    assert_eq!(get_as(&client, "bob", pods).await, 403);
    assert_eq!(
        get_as(&client, "ann", "/api/v1/namespaces/kube-system/pods").await,
        403
    );
    client.delete(&format!("{bindings}/b")).await;
    assert_eq!(get_as(&client, "ann", pods).await, 403);
}

#[tokio::test]
async fn default_roles_sum_up_and_give_nothing_away() {
    let client = Client::new().await;
    let binding = json!({
        "metadata": {"name": "admins"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "User", "name": "ann"}],
    });
    client
        .make(&format!("{RBAC}/namespaces/default/rolebindings"), binding)
        .await;
    // `admin` has no rule on pods of its own: `view` and `edit` add them.
    assert_eq!(
        get_as(&client, "ann", "/api/v1/namespaces/default/pods").await,
        200
    );
    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = |resource: &str| {
        let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
        json!({"metadata": {"name": resource}, "rules": rules})
    };
    let made = ask(&client, "ann", Method::POST, &roles, role("pods")).await;
    assert_eq!(made.code, 201, "{:?}", made.json);
    let refused = ask(&client, "ann", Method::POST, &roles, role("nodes")).await;
    assert_eq!(refused.code, 403, "{:?}", refused.json);
}

#[tokio::test]
async fn questions_are_answered_for_the_one_acted_as() {
    let client = Client::new().await;
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = ask(&client, "ann", Method::POST, who, json!({})).await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.json["status"]["userInfo"]["username"], "ann");
    assert_eq!(
        answer.json["status"]["userInfo"]["groups"],
        json!(["system:authenticated"])
    );

    let may = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let path = json!({"spec": {"nonResourceAttributes": {"path": "/apis", "verb": "get"}}});
    let yes = ask(&client, "ann", Method::POST, may, path).await;
    assert_eq!(yes.json["status"]["allowed"], true);
    let pods = json!({"spec": {"resourceAttributes": {"resource": "pods", "verb": "get"}}});
    let no = ask(&client, "ann", Method::POST, may, pods).await;
    assert_eq!(no.json["status"]["allowed"], false);
    let nothing = ask(&client, "ann", Method::POST, may, json!({"spec": {}})).await;
    assert_eq!(nothing.code, 422);
    // To ask about others is a right of its own.
    let others = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let asked = json!({"spec": {"user": "root", "groups": ["system:masters"],
        "resourceAttributes": {"resource": "pods", "verb": "get"}}});
    assert_eq!(
        ask(&client, "ann", Method::POST, others, asked.clone())
            .await
            .code,
        403
    );
    let answer = client.make(others, asked).await;
    assert_eq!(answer["status"]["allowed"], true);
    let token = json!({"spec": {"token": "secret"}});
    let answer = client
        .make("/apis/authentication.k8s.io/v1/tokenreviews", token)
        .await;
    assert_eq!(answer["status"]["authenticated"], false);
    assert!(!answer.to_string().contains("secret"));
}

#[tokio::test]
async fn a_null_in_a_role_is_an_absent_field_and_no_lost_role() {
    let client = Client::new().await;
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"],
        "resourceNames": null, "nonResourceURLs": null});
    let role = json!({"metadata": {"name": "r"}, "rules": [rule], "aggregationRule": null});
    client.make(&format!("{RBAC}/clusterroles"), role).await;
    let selector = json!({"matchLabels": null, "matchExpressions": [
        {"key": "none", "operator": "Exists", "values": null}]});
    let sum = json!({"metadata": {"name": "sum"}, "rules": null,
        "aggregationRule": {"clusterRoleSelectors": [selector]}});
    client.make(&format!("{RBAC}/clusterroles"), sum).await;
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "ann", "namespace": null}],
    });
    client
        .make(&format!("{RBAC}/clusterrolebindings"), binding)
        .await;
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(get_as(&client, "ann", pods).await, 200);
}
