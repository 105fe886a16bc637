//! Who may say in headers who calls.

use super::*;
use crate::identity::RequestHeaders;

fn with_proxies(proxies: &Ca, clients: &Ca, allowed: &[&str]) -> Authenticator {
    let name = |text: &'static str| http::HeaderName::from_static(text);
    let headers = RequestHeaders::new(
        vec![name("x-remote-user"), name("x-sso-user")],
        vec![name("x-sso-uid")],
        vec![name("x-sso-group")],
        vec!["x-sso-extra-".to_owned()],
    );
    Authenticator::new(AuthenticatorOptions {
        front_proxies: Some(FrontProxies {
            authority: proxies.loaded(),
            allowed_names: allowed.iter().map(|&name| name.to_owned()).collect(),
            headers: Arc::new(headers),
        }),
        authority: Some(clients.authority()),
        anonymous: true,
        ..AuthenticatorOptions::default()
    })
}

const SAID: [(&str, &str); 7] = [
    ("x-remote-user", ""),
    ("x-sso-user", "jane"),
    ("x-sso-uid", "7"),
    ("x-sso-group", "dev"),
    ("x-sso-group", "ops,eu"),
    ("x-sso-group", ""),
    ("x-sso-extra-example.org%2Fteam", "red"),
];

#[tokio::test]
async fn an_allowed_proxy_names_the_caller() {
    let (proxies, clients) = (Ca::new(), Ca::new());
    let authn = with_proxies(&proxies, &clients, &["front"]);
    let proxy = connection(vec![proxies.leaf("front", "")]);
    let lines = headers(&SAID);
    let user = authn.authenticate(&proxy, &lines, IN_2026).await.unwrap();
    let user = user.user;
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
    assert_eq!(user.groups, ["dev", "ops,eu", "system:authenticated"]);
    let extra = [("example.org/team".to_owned(), vec!["red".to_owned()])];
    assert_eq!(user.extra, extra);
    // The next request on the connection is another's.
    let lines = headers(&[("x-sso-user", "bob")]);
    let user = authn.authenticate(&proxy, &lines, IN_2026).await.unwrap();
    assert_eq!(user.user.name, "bob");
    let anonymous = headers(&[
        ("x-sso-user", "system:anonymous"),
        ("x-sso-group", "system:unauthenticated"),
    ]);
    let user = authn
        .authenticate(&proxy, &anonymous, IN_2026)
        .await
        .unwrap();
    assert_eq!(user.user.groups, ["system:unauthenticated"]);
    // What two readers may read differently is nobody.
    let mut not_text = headers(&[]);
    let bytes = http::HeaderValue::from_bytes(b"j\xffne").unwrap();
    not_text.insert("x-sso-user", bytes);
    let refusal = authn.authenticate(&proxy, &not_text, IN_2026).await;
    assert_eq!(refusal.unwrap_err().code, 401);
}

#[tokio::test]
async fn nobody_elses_headers_are_read() {
    let (proxies, clients) = (Ca::new(), Ca::new());
    let lines = headers(&SAID);
    let authn = with_proxies(&proxies, &clients, &["front"]);
    let name = async |chain, authn: &Authenticator| {
        let verdict = authn
            .authenticate(&connection(chain), &lines, IN_2026)
            .await;
        verdict.map_or_else(|refusal| refusal.code.to_string(), |v| v.user.name.clone())
    };
    // Without a certificate; a client's; one of the proxies' authority that is not allowed.
    assert_eq!(name(vec![], &authn).await, "system:anonymous");
    assert_eq!(name(vec![clients.leaf("front", "")], &authn).await, "front");
    let other = name(vec![proxies.leaf("other", "")], &authn).await;
    assert_eq!(other, "401 Unauthorized");
    // An empty list allows all of that authority, as with a kube-apiserver.
    let open = with_proxies(&proxies, &clients, &[]);
    assert_eq!(name(vec![proxies.leaf("other", "")], &open).await, "jane");
}

#[tokio::test]
async fn without_a_name_a_proxy_is_whom_its_certificate_names() {
    let ca = Ca::new();
    let authn = with_proxies(&ca, &ca, &["front"]);
    let proxy = connection(vec![ca.leaf("front", "")]);
    for lines in [headers(&[]), headers(&[("x-sso-group", "system:masters")])] {
        let user = authn.authenticate(&proxy, &lines, IN_2026).await.unwrap();
        assert_eq!(user.user.name, "front");
        assert_eq!(user.user.groups, ["system:authenticated"]);
    }
}
