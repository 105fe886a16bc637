//! An issuer over real TLS, which answers as it is told.

use std::convert::Infallible;

use http::Response;
use serde_json::json;
use tower::util::BoxCloneSyncService;

use super::*;
use crate::body::Body;
use crate::drain::Drain;
use crate::listener::{Listener, ServerIdentity, TlsSource, TlsSpec};

/// Answers the path with a status and a text; `URL` in it is where it is.
async fn issuer(answers: Vec<(&'static str, u16, String)>) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.pem();
    let spec = TlsSpec {
        identities: vec![ServerIdentity {
            certificate_pem: certificate.clone().into_bytes(),
            key_pem: made.signing_key.serialize_pem().into_bytes(),
            names: Vec::new(),
        }],
        ..TlsSpec::default()
    };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let url = format!("https://{}", listener.address());
    let own = url.clone();
    let handler = BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
        let found = answers
            .iter()
            .find(|(path, _, _)| *path == request.uri().path());
        let (status, text) = found.map_or((404, ""), |(_, status, text)| (*status, text));
        let mut response = Response::new(Body::from(text.replace("URL", &own).into_bytes()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        let location = http::HeaderValue::from_str(&format!("{own}/elsewhere")).unwrap();
        response.headers_mut().insert(header::LOCATION, location);
        async move { Ok::<_, Infallible>(response) }
    }));
    let tls = TlsSource::new(&spec).unwrap();
    tokio::spawn(listener.serve(tls, handler, Drain::new()));
    (url, certificate)
}

fn document(issuer: &str, keys: &str) -> String {
    json!({"issuer": issuer, "jwks_uri": keys}).to_string()
}

#[tokio::test]
async fn keys_are_found_by_discovery_and_nowhere_else() {
    let good = document("URL", "URL/keys");
    let rows = [
        (good.clone(), 200, "{}".to_owned(), 200, ""),
        (
            document("https://other", "URL/keys"),
            200,
            "{}".to_owned(),
            200,
            "is the document of issuer",
        ),
        (
            document("URL", "http://127.0.0.1/keys"),
            200,
            "{}".to_owned(),
            200,
            "is not an https URL",
        ),
        (
            "<html>".to_owned(),
            200,
            "{}".to_owned(),
            200,
            "expected value",
        ),
        (good.clone(), 302, "{}".to_owned(), 200, "it answered 302"),
        (good.clone(), 200, "{}".to_owned(), 307, "it answered 307"),
        (good.clone(), 200, "{}".to_owned(), 500, "it answered 500"),
        (
            good,
            200,
            " ".repeat(DOCUMENT_MAX + 1),
            200,
            "length limit exceeded",
        ),
    ];
    for (document, status, keys, keys_status, fault) in rows {
        let answers = vec![(DISCOVERY, status, document), ("/keys", keys_status, keys)];
        let (url, authority) = issuer(answers).await;
        let source = DiscoveredKeys::new(&url, authority.as_bytes()).unwrap();
        match source.fetch().await {
            Ok(keys) => assert_eq!((&*keys, fault), (&b"{}"[..], "")),
            Err(outage) => {
                let text = outage.to_string();
                assert!(
                    !fault.is_empty() && text.contains(fault),
                    "{text}: not {fault:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn an_issuer_of_another_authority_is_not_believed() {
    let (url, _) = issuer(vec![(DISCOVERY, 200, document("URL", "URL/keys"))]).await;
    let (_, other) = issuer(Vec::new()).await;
    let source = DiscoveredKeys::new(&url, other.as_bytes()).unwrap();
    assert!(source.fetch().await.is_err());
    for (issuer, authorities) in [
        ("http://x", &*other),
        ("x", &other),
        (&url, ""),
        (&url, "x"),
    ] {
        let refused = DiscoveredKeys::new(issuer, authorities.as_bytes());
        assert!(refused.is_err(), "{issuer} {authorities}");
    }
}
