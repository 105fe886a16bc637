//! From claims to users.

use super::*;

async fn user(tokens: Tokens, claims: &Value) -> Result<UserInfo, String> {
    let signer = Signer::new("ES256", "k");
    let keys = KeyRing::fixed(KeySet::read(signer.json_set().as_bytes()).unwrap());
    let tokens = LocalTokens::new(vec![Issuer {
        names: vec![ISSUER.to_owned()],
        audiences: vec![ISSUER.to_owned()],
        keys,
        tokens,
    }]);
    match judge(&tokens, &signer.sign(claims), WALL).await {
        Local::Accepted { user, .. } => Ok((*user).clone()),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn a_service_account_is_what_a_kube_apiserver_makes_of_it() {
    let kind = || Tokens::ServiceAccounts { confirm: true };
    let mut bound = account();
    bound["kubernetes.io"]["pod"] = json!({"name": "p", "uid": "pu"});
    bound["kubernetes.io"]["node"] = json!({"name": "n", "uid": "nu"});
    let seen = user(kind(), &bound).await.unwrap();
    assert_eq!((seen.name.as_str(), seen.uid.as_str()), (SA, "u"));
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:ns",
        "system:authenticated",
    ];
    assert_eq!(seen.groups, groups);
    let extra: Vec<String> = seen
        .extra
        .iter()
        .map(|(key, values)| format!("{key}={}", values.join(",")))
        .collect();
    let expected = [
        "authentication.kubernetes.io/credential-id=JTI=j",
        "authentication.kubernetes.io/node-name=n",
        "authentication.kubernetes.io/node-uid=nu",
        "authentication.kubernetes.io/pod-name=p",
        "authentication.kubernetes.io/pod-uid=pu",
    ];
    assert_eq!(extra, expected);
    // A pod without its uid is not told.
    bound["kubernetes.io"]["pod"] = json!({"name": "p"});
    bound["kubernetes.io"]["node"] = json!({"uid": "nu"});
    assert_eq!(user(kind(), &bound).await.unwrap().extra.len(), 1);
    for private in [
        Value::Null,
        json!({"namespace": "ns"}),
        json!({"serviceaccount": {"name": "sa"}}),
        json!({"namespace": "", "serviceaccount": {"name": "sa"}}),
        json!({"namespace": "ns", "serviceaccount": {"name": ""}}),
        json!({"namespace": ["ns"], "serviceaccount": {"name": "sa"}}),
    ] {
        let claims = with(account(), "kubernetes.io", private.clone());
        assert!(user(kind(), &claims).await.is_err(), "{private}");
    }
}

fn people(username: &str, prefix: &str, groups: Option<&str>, groups_prefix: &str) -> Tokens {
    Tokens::Oidc(ClaimMapping {
        username_claim: username.to_owned(),
        username_prefix: prefix.to_owned(),
        groups_claim: groups.map(str::to_owned),
        groups_prefix: groups_prefix.to_owned(),
        required: vec![("hd".to_owned(), "example.com".to_owned())],
    })
}

fn person() -> Value {
    json!({
        "iss": ISSUER, "aud": ISSUER, "exp": 1_790_003_600, "hd": "example.com",
        "sub": "7", "email": "jane@example.com", "groups": ["dev", "ops,eu"],
    })
}

#[tokio::test]
async fn a_person_is_named_by_claim_and_prefix() {
    let seen = user(people("email", "oidc:", Some("groups"), "oidc:"), &person()).await;
    let seen = seen.unwrap();
    assert_eq!(seen.name, "oidc:jane@example.com");
    assert_eq!(
        seen.groups,
        ["oidc:dev", "oidc:ops,eu", "system:authenticated"]
    );
    assert_eq!((seen.uid.as_str(), seen.extra.len()), ("", 0));
    let claims = with(with(person(), "groups", json!("dev")), "jti", json!("j"));
    let seen = user(people("sub", "", Some("groups"), ""), &claims)
        .await
        .unwrap();
    assert_eq!(seen.name, "7");
    assert_eq!(seen.groups, ["dev", "system:authenticated"]);
    assert_eq!(seen.extra[0].1, ["JTI=j"]);
    let seen = user(people("sub", "", None, ""), &person()).await.unwrap();
    assert_eq!(seen.groups, ["system:authenticated"]);
}

#[tokio::test]
async fn claims_that_do_not_fit_name_nobody() {
    let mapping = || people("email", "", Some("groups"), "");
    let rows = [
        ("email", Value::Null),
        ("email", json!("")),
        ("email", json!(["jane@example.com"])),
        ("email", json!("system:admin")),
        ("email_verified", json!(false)),
        ("email_verified", json!("true")),
        ("hd", json!("elsewhere.com")),
        ("hd", Value::Null),
        ("groups", json!(7)),
        ("groups", json!(["dev", 7])),
        // It has ended, and nothing is forgiven.
        ("exp", json!(1_790_000_000)),
    ];
    for (claim, value) in rows {
        let claims = with(person(), claim, value.clone());
        assert!(user(mapping(), &claims).await.is_err(), "{claim} {value}");
    }
    for (claim, value) in [("email_verified", json!(true)), ("groups", Value::Null)] {
        let claims = with(person(), claim, value.clone());
        assert!(user(mapping(), &claims).await.is_ok(), "{claim} {value}");
    }
}

#[tokio::test]
async fn an_outside_issuer_makes_nobody_one_of_kubernetes_own() {
    let grab = with(person(), "groups", json!(["system:masters", "dev", ""]));
    let seen = user(people("sub", "", Some("groups"), ""), &grab)
        .await
        .unwrap();
    assert_eq!(seen.groups, ["dev", "system:authenticated"]);
    // Put together of a prefix and a claim, it is refused all the same.
    let halves = with(person(), "sub", json!("admin"));
    assert!(
        user(people("sub", "system:", None, ""), &halves)
            .await
            .is_err()
    );
}
