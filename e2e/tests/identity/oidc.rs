//! Tokens of an issuer whose keys are found by discovery.

use std::time::{Duration, Instant};

use serde_json::json;
use sluice_e2e::client::Client;
use sluice_e2e::process::eventually;
use sluice_e2e::site::Site;

use crate::issuer::{Issuer, Key, now};
use crate::stage::{Stage, whom};

/// Keys are fetched again for a token that names an unknown one once in ten seconds.
const LIMIT: Duration = Duration::from_secs(60);

async fn stage() -> (Stage, Issuer, Key) {
    let site = Site::make();
    let issuer = Issuer::start(&site.own.issue("issuer", &[], &[])).await;
    let key = Key::new("first");
    issuer.publish(&[&key]);
    let clients = format!(
        "clients:\n    oidc:\n    - issuer: \"{}\"\n      audiences: [sluice]\n      caFile: ../own.crt\n\
         \x20     username: {{ claim: sub, prefix: \"oidc:\" }}\n\
         \x20     groups: {{ claim: groups, prefix: \"oidc:\" }}",
        issuer.url
    );
    (Stage::open(site, &clients).await, issuer, key)
}

fn with(stage: &Stage, token: &str) -> Client {
    stage.site.client(None).with_token(token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_names_its_user_and_what_does_not_hold_is_401() {
    let (stage, issuer, key) = stage().await;
    let good = issuer.claims();
    let (answer, told) = stage.ask(&with(&stage, &key.sign(&good)), &[]).await;
    assert_eq!(answer.status, 200);
    let told = told.unwrap();
    assert_eq!(
        whom(Some(&told)),
        (
            "oidc:jane",
            vec!["oidc:dev", "oidc:ops", "system:authenticated"]
        )
    );
    assert!(
        !told.contains_key("authorization"),
        "the token goes no further"
    );
    let (answer, told) = stage
        .ask(
            &with(&stage, &key.sign(&good)),
            &[("x-remote-user", "admin")],
        )
        .await;
    assert_eq!(answer.status, 200);
    assert!(!told.unwrap().contains_key("x-remote-user"));

    let stranger = Key::new("first");
    let changed = |name: &str, value: serde_json::Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let mut cut = key.sign(&good);
    cut.truncate(cut.len() - 8);
    let bad = [
        ("expired", key.sign(&changed("exp", json!(now() - 5)))),
        ("not yet", key.sign(&changed("nbf", json!(now() + 600)))),
        ("without an end", key.sign(&changed("exp", json!(null)))),
        ("for another", key.sign(&changed("aud", json!("another")))),
        (
            "of another issuer",
            key.sign(&changed("iss", json!("https://127.0.0.1:1"))),
        ),
        ("without a name", key.sign(&changed("sub", json!(7)))),
        ("signed by a stranger", stranger.sign(&good)),
        ("cut short", cut),
        ("no token", "abc".to_owned()),
    ];
    let before = issuer.asked();
    for (what, token) in bad {
        let (answer, told) = stage.ask(&with(&stage, &token), &[]).await;
        assert_eq!(answer.status, 401, "{what}");
        assert_eq!(answer.headers["x-sluice-origin"], "authn", "{what}");
        assert!(told.is_none(), "{what}");
    }
    let (answer, told) = stage.ask(&stage.site.client(None), &[]).await;
    assert!(answer.status == 401 && told.is_none(), "nothing shown");
    assert_eq!(
        issuer.asked(),
        before,
        "strangers ask nothing of the issuer"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_is_found_a_withdrawn_one_forgotten_and_an_outage_noticed_by_nobody() {
    let (stage, mut issuer, first) = stage().await;
    let (_, told) = stage
        .ask(&with(&stage, &first.sign(&issuer.claims())), &[])
        .await;
    assert_eq!(whom(told.as_ref()).0, "oidc:jane");

    let second = Key::new("second");
    issuer.publish(&[&second]);
    let token = second.sign(&issuer.claims());
    let began = Instant::now();
    eventually("the new key to be known", LIMIT, || async {
        let (answer, told) = stage.ask(&with(&stage, &token), &[]).await;
        match answer.status.as_u16() {
            200 => {
                assert_eq!(whom(told.as_ref()).0, "oidc:jane");
                Ok(())
            }
            // It was asked a moment ago; not known is not refused.
            503 => Err(answer.headers["retry-after"].to_str().unwrap().to_owned()),
            other => panic!("{other}"),
        }
    })
    .await;
    println!("the new key was known after {:?}", began.elapsed());
    let token = first.sign(&issuer.claims());
    eventually("the old key to be forgotten", LIMIT, || async {
        let (answer, told) = stage.ask(&with(&stage, &token), &[]).await;
        assert!(told.is_none(), "a withdrawn key opens nothing");
        match answer.status.as_u16() {
            401 => Ok(()),
            503 => Err("not yet".to_owned()),
            other => panic!("{other}"),
        }
    })
    .await;

    issuer.stop().await;
    let mut claims = issuer.claims();
    claims["sub"] = json!("carol");
    let (answer, told) = stage.ask(&with(&stage, &second.sign(&claims)), &[]).await;
    assert_eq!(answer.status, 200);
    assert_eq!(whom(told.as_ref()).0, "oidc:carol");
}
