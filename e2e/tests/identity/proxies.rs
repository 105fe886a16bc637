//! Front proxies before the gateway: a certificate that is named speaks for others, and no other
//! does.

use sluice_e2e::pki::Authority;
use sluice_e2e::site::Site;

use crate::stage::{Stage, whom};

const SAYS_JANE: [(&str, &str); 4] = [
    ("x-remote-user", "jane"),
    ("x-remote-group", "dev"),
    ("x-remote-group", "ops"),
    ("x-remote-extra-team", "blue"),
];

const CLIENTS: &str = "clients:\n    clientCAFile: ../users.crt\n\
                       \x20   frontProxy: { caFile: ../proxies.crt, allowedNames: [proxy] }";

#[tokio::test(flavor = "multi_thread")]
async fn a_named_proxy_speaks_for_others_and_nobody_else_does() {
    let site = Site::make();
    let proxies = Authority::new(site.dir.path(), "proxies");
    let proxy = proxies.issue("proxy", &[], &[]);
    let unnamed = proxies.issue("other", &["system:masters"], &[]);
    let dave = site.users.issue("dave", &["dev"], &[]);
    let stage = Stage::open(site, CLIENTS).await;

    let client = stage.site.client(Some(&proxy));
    let (answer, told) = stage.ask(&client, &SAYS_JANE).await;
    assert_eq!(answer.status, 200);
    let told = told.unwrap();
    assert_eq!(
        whom(Some(&told)),
        ("jane", vec!["dev", "ops", "system:authenticated"])
    );
    assert_eq!(told["impersonate-extra-team"], "blue");
    let is_left = |name: &http::HeaderName| name.as_str().starts_with("x-remote-");
    assert!(!told.keys().any(is_left), "{told:?}");

    // The proxy itself is nobody here.
    let (answer, told) = stage.ask(&client, &[]).await;
    assert!(answer.status == 401 && told.is_none());
    // Nor is one of the same authority under another name, whatever it says.
    for headers in [&SAYS_JANE[..], &[]] {
        let (answer, told) = stage.ask(&stage.site.client(Some(&unnamed)), headers).await;
        assert!(answer.status == 401 && told.is_none());
        let (answer, told) = stage.ask(&stage.site.client(None), headers).await;
        assert!(answer.status == 401 && told.is_none());
    }
    // A user is a user and takes nobody else's name.
    let (answer, told) = stage.ask(&stage.site.client(Some(&dave)), &SAYS_JANE).await;
    assert_eq!(answer.status, 200);
    let told = told.unwrap();
    assert_eq!(
        whom(Some(&told)),
        ("dave", vec!["dev", "system:authenticated"])
    );
    assert!(!told.keys().any(is_left), "{told:?}");
    assert!(!told.contains_key("impersonate-extra-team"));
}

/// A user's certificate under the proxy's name is not the proxy's.
#[tokio::test(flavor = "multi_thread")]
async fn the_name_alone_makes_no_proxy() {
    let site = Site::make();
    let _proxies = Authority::new(site.dir.path(), "proxies");
    let proxy = site.users.issue("proxy", &[], &[]);
    let stage = Stage::open(site, CLIENTS).await;
    let (answer, told) = stage
        .ask(&stage.site.client(Some(&proxy)), &SAYS_JANE)
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(whom(told.as_ref()).0, "proxy");
}
