//! Tokens of issuers that are made up here, signed by real keys.

mod mapping;
mod rotation;
pub(in crate::authn) mod signer;

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use signer::Signer;

const WALL: Duration = Duration::from_secs(1_790_000_000);
const ISSUER: &str = "https://kubernetes.default.svc";

/// Claims of a service account's token that holds for an hour.
fn account() -> Value {
    json!({
        "iss": ISSUER, "aud": [ISSUER], "sub": "system:serviceaccount:ns:sa", "jti": "j",
        "exp": 1_790_003_600, "nbf": 1_790_000_000, "iat": 1_790_000_000,
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "sa", "uid": "u"}},
    })
}

fn with(mut claims: Value, field: &str, value: Value) -> Value {
    claims[field] = value;
    claims
}

fn accounts(keys: Arc<KeyRing>) -> LocalTokens {
    LocalTokens::new(vec![Issuer {
        names: vec![ISSUER.to_owned()],
        audiences: vec![ISSUER.to_owned()],
        keys,
        tokens: Tokens::ServiceAccounts { confirm: false },
    }])
}

async fn judge(tokens: &LocalTokens, token: &str, wall: Duration) -> Local {
    tokens.judge(token, TokenDigest::of(token), wall).await
}

/// The verdict in a word: the user's name, or why not.
async fn word(tokens: &LocalTokens, token: &str, wall: Duration) -> String {
    match judge(tokens, token, wall).await {
        Local::NotOurs => "not ours".to_owned(),
        Local::Accepted { user, .. } => user.name.clone(),
        Local::Refused(why) => why.replace("the bearer token ", ""),
        Local::Outage(why) => format!("outage: {why}"),
    }
}

const SA: &str = "system:serviceaccount:ns:sa";
const UNSIGNED: &str = "is not signed by its issuer";

#[tokio::test]
async fn each_algorithm_is_verified_by_key_set_and_by_pem() {
    for name in [
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
    ] {
        let signer = Signer::new(name, "k");
        for text in [signer.json_set(), signer.pem()] {
            let keys = KeyRing::fixed(KeySet::read(text.as_bytes()).unwrap());
            let tokens = accounts(keys);
            let token = signer.sign(&account());
            assert_eq!(word(&tokens, &token, WALL).await, SA, "{name} {text}");
            // Any one character of the payload changed.
            let (head, rest) = token.split_once('.').unwrap();
            let forged = Signer::new(name, "k").sign(&account());
            let swapped = format!("{head}.{}", rest.replacen('I', "J", 1));
            assert_eq!(word(&tokens, &forged, WALL).await, UNSIGNED, "{name}");
            assert_ne!(word(&tokens, &swapped, WALL).await, SA, "{name}");
        }
    }
}

#[tokio::test]
async fn a_public_key_is_never_a_shared_secret_nor_used_otherwise_than_it_says() {
    let signer = Signer::new("RS256", "k");
    let keys = KeySet::read(signer.json_set().as_bytes()).unwrap();
    let tokens = accounts(KeyRing::fixed(keys));
    let not_accepted = "is signed in a way that is not accepted";
    for alg in ["none", "None", "HS256", "HS512", "EdDSA", "", "RS1"] {
        let token = signer.sign_as(&json!({"alg": alg, "kid": "k"}), &account());
        assert_eq!(word(&tokens, &token, WALL).await, not_accepted, "{alg:?}");
    }
    // The key's own `alg` is RS256; and another kind of key.
    for alg in ["PS256", "RS512", "ES256"] {
        let token = signer.sign_as(&json!({"alg": alg, "kid": "k"}), &account());
        assert_eq!(word(&tokens, &token, WALL).await, UNSIGNED, "{alg}");
    }
    // Without a signature; with an extension that must be known.
    let token = signer.sign(&account());
    let (signed, _) = token.rsplit_once('.').unwrap();
    assert_eq!(word(&tokens, &format!("{signed}."), WALL).await, UNSIGNED);
    for torn in ["=", "!", "A"] {
        let token = format!("{signed}.{torn}");
        assert_eq!(word(&tokens, &token, WALL).await, UNSIGNED, "{torn}");
    }
    let header = json!({"alg": "RS256", "kid": "k", "crit": ["b64"], "b64": false});
    let token = signer.sign_as(&header, &account());
    assert_eq!(word(&tokens, &token, WALL).await, "not ours");
}

#[tokio::test]
async fn what_is_no_token_of_ours_is_left_to_others() {
    let signer = Signer::new("ES256", "k");
    let keys = KeySet::read(signer.pem().as_bytes()).unwrap();
    let tokens = accounts(KeyRing::fixed(keys));
    let elsewhere = signer.sign(&with(account(), "iss", json!("https://elsewhere")));
    let nobody = signer.sign(&with(account(), "iss", json!(7)));
    let good = signer.sign(&account());
    let five = format!("{good}.a.b");
    let padded = good.replacen('.', "=.", 1);
    for token in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "opaque",
        &elsewhere,
        &nobody,
        &five,
        &padded,
        "e30.e30.e30",
        "\u{e9}.\u{e9}.\u{e9}",
    ] {
        assert_eq!(word(&tokens, token, WALL).await, "not ours", "{token}");
    }
}

#[tokio::test]
async fn times_and_audiences_are_held_against_the_clock_and_the_issuer() {
    let signer = Signer::new("ES256", "k");
    let keys = KeySet::read(signer.json_set().as_bytes()).unwrap();
    let tokens = accounts(KeyRing::fixed(keys));
    let other = "is meant for another audience";
    let rows = [
        ("aud", json!(ISSUER), SA),
        ("aud", json!(["x", ISSUER]), SA),
        ("aud", json!("vault"), other),
        ("aud", json!([]), other),
        ("aud", Value::Null, other),
        ("exp", json!(1_790_000_000.5), SA),
        ("exp", json!(1_789_999_941), SA),
        ("exp", json!(1_789_999_940), "has expired"),
        ("exp", json!(-1), "does not say until when it holds"),
        ("exp", json!("soon"), "does not say until when it holds"),
        ("exp", Value::Null, "does not say until when it holds"),
        ("nbf", json!(1_790_000_060), SA),
        ("nbf", json!(1_790_000_061), "does not hold yet"),
        ("nbf", json!("now"), "does not hold yet"),
        ("nbf", Value::Null, SA),
    ];
    for (claim, value, expected) in rows {
        let token = signer.sign(&with(account(), claim, value.clone()));
        assert_eq!(
            word(&tokens, &token, WALL).await,
            expected,
            "{claim} {value}"
        );
    }
    // A verdict that is kept ends when the token does.
    let token = signer.sign(&account());
    let minutes = |n: u64| WALL + Duration::from_secs(60 * n);
    assert_eq!(word(&tokens, &token, WALL).await, SA);
    assert_eq!(word(&tokens, &token, minutes(60)).await, SA);
    assert_eq!(word(&tokens, &token, minutes(61)).await, "has expired");
}

#[test]
fn keys_that_cannot_be_used_are_said_or_passed_over() {
    let good = Signer::new("ES384", "k");
    let mut set: Value = serde_json::from_str(&good.json_set()).unwrap();
    let keys = set["keys"].as_array_mut().unwrap();
    let key = keys[0].clone();
    keys.push(json!({"kty": "oct", "k": "c2VjcmV0"}));
    keys.push(json!({"kty": "OKP", "crv": "Ed25519", "x": "AA"}));
    keys.push(with(key.clone(), "use", json!("enc")));
    keys.push(with(key.clone(), "x", json!("AAAA")));
    keys.push(with(key, "crv", json!("P-224")));
    keys.push(json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"}));
    keys.push(json!(7));
    assert!(KeySet::read(set.to_string().as_bytes()).is_ok());
    let without = json!({"keys": set["keys"].as_array().unwrap()[1..]});
    let nothing = KeySet::read(without.to_string().as_bytes());
    assert_eq!(nothing.unwrap_err(), KeysFault::NoKey);
    assert_eq!(KeySet::read(b"").unwrap_err(), KeysFault::NoKey);
    let torn = KeySet::read(b"{\"keys\": [").unwrap_err();
    assert!(matches!(torn, KeysFault::Unreadable(_)), "{torn}");
    let private = rcgen::KeyPair::generate().unwrap().serialize_pem();
    assert_eq!(
        KeySet::read(private.as_bytes()).unwrap_err(),
        KeysFault::NoKey
    );
}
