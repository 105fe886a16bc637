//! `--as`: each header is authorised, and none can be read in two ways.

use super::*;

async fn act_as(
    lines: &[(&'static str, &str)],
    allow: &'static [&'static str],
) -> Result<Verdict, Refusal> {
    let reviewer = Scripted::new(move |spec: &Value| {
        let r = &spec["resourceAttributes"];
        assert_eq!(
            (&r["verb"], &spec["user"]),
            (&json!("impersonate"), &json!("jane"))
        );
        let asked = format!(
            "{}/{}/{}/{}",
            r["namespace"].as_str().unwrap(),
            r["resource"].as_str().unwrap(),
            r["subresource"].as_str().unwrap(),
            r["name"].as_str().unwrap()
        );
        Ok(json!({"allowed": allow.contains(&asked.as_str())}))
    });
    let ca = Ca::new();
    let authn = Authenticator::new(AuthenticatorOptions {
        authority: Some(ca.authority()),
        impersonation: Some(Impersonation::new(reviewer)),
        ..AuthenticatorOptions::default()
    });
    authn
        .authenticate(
            &connection(vec![ca.leaf("jane", "")]),
            &headers(lines),
            IN_2026,
        )
        .await
}

#[tokio::test]
async fn each_impersonation_header_is_authorised() {
    let lines = [
        ("impersonate-user", "bob"),
        ("impersonate-group", "dev"),
        ("impersonate-extra-example.org%2Fteam", "red"),
    ];
    let all = &[
        "/users//bob",
        "/groups//dev",
        "/userextras/example.org/team/red",
    ];
    let verdict = act_as(&lines, all).await.unwrap();
    assert_eq!(verdict.user.name, "bob");
    assert_eq!(verdict.user.groups, ["dev", "system:authenticated"]);
    assert_eq!(
        verdict.user.extra,
        [("example.org/team".to_owned(), vec!["red".to_owned()])]
    );
    assert_eq!(verdict.impersonator.unwrap().name, "jane");
    let refusal = act_as(&lines, &["/users//bob", "/userextras/example.org/team/red"]).await;
    let refusal = refusal.unwrap_err();
    assert_eq!(refusal.code, 403);
    assert!(
        refusal.message.contains("groups \"dev\" is forbidden"),
        "{}",
        refusal.message
    );
}

#[tokio::test]
async fn impersonation_edges_are_as_in_an_apiserver() {
    let verdict = act_as(
        &[("impersonate-user", "system:serviceaccount:ns:sa")],
        &["ns/serviceaccounts//sa"],
    )
    .await
    .unwrap();
    assert_eq!(
        verdict.user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:ns",
            "system:authenticated"
        ]
    );
    let groupless = act_as(&[("impersonate-group", "dev")], &[])
        .await
        .unwrap_err();
    assert_eq!(groupless.code, 400);
    let empty = act_as(&[("impersonate-user", "")], &[]).await.unwrap();
    assert_eq!(
        (empty.user.name.as_str(), empty.impersonator.is_none()),
        ("jane", true)
    );
    let anonymous = act_as(
        &[("impersonate-user", "system:anonymous")],
        &["/users//system:anonymous"],
    )
    .await;
    assert_eq!(anonymous.unwrap().user.groups, ["system:unauthenticated"]);
}

#[tokio::test]
async fn headers_that_can_be_read_in_two_ways_are_400_and_nobody_is_asked() {
    let rows: [&[(&'static str, &str)]; 11] = [
        // Without a user.
        &[("impersonate-uid", "0")],
        &[("impersonate-group", "system:masters")],
        &[("impersonate-extra-scopes", "all")],
        &[("impersonate-user", ""), ("impersonate-uid", "0")],
        // More than once, be the first empty or not.
        &[("impersonate-user", "bob"), ("impersonate-user", "carol")],
        &[("impersonate-user", ""), ("impersonate-user", "carol")],
        &[
            ("impersonate-user", "bob"),
            ("impersonate-uid", "1"),
            ("impersonate-uid", "2"),
        ],
        // Names nothing; is not known.
        &[("impersonate-user", "bob"), ("impersonate-group", "")],
        &[("impersonate-user", "bob"), ("impersonate-extra-", "x")],
        &[("impersonate-user", "bob"), ("impersonate-groups", "dev")],
        &[("impersonate-foo", "bar")],
    ];
    for lines in rows {
        // Nothing is allowed: a question would be a 403.
        let refusal = act_as(lines, &[]).await.unwrap_err();
        assert_eq!(refusal.code, 400, "{lines:?}: {}", refusal.message);
        assert_eq!(refusal.reason, "BadRequest");
    }
    let mut not_text = headers(&[]);
    let bytes = http::HeaderValue::from_bytes(b"b\xffb").unwrap();
    not_text.insert("impersonate-user", bytes);
    let refusal = super::super::impersonate::read(&not_text).unwrap_err();
    assert_eq!(refusal.code, 400);
}

#[tokio::test]
async fn names_and_keys_come_through_whatever_they_are_made_of() {
    let lines = [
        ("impersonate-user", "j\u{fc}rgen@example.com"),
        ("impersonate-group", "a,b"),
        ("impersonate-extra-Example.org%2Fteam", "red"),
        ("impersonate-extra-example.org%2fteam", "green"),
        ("impersonate-extra-100%", "x"),
    ];
    let all = &[
        "/users//j\u{fc}rgen@example.com",
        "/groups//a,b",
        "/userextras/example.org/team/red",
        "/userextras/example.org/team/green",
        "/userextras/100%/x",
    ];
    let user = act_as(&lines, all).await.unwrap().user;
    assert_eq!(user.name, "j\u{fc}rgen@example.com");
    assert_eq!(user.groups, ["a,b", "system:authenticated"]);
    let mut extra = user.extra.clone();
    extra.sort();
    let expected = [
        ("100%".to_owned(), vec!["x".to_owned()]),
        (
            "example.org/team".to_owned(),
            vec!["red".to_owned(), "green".to_owned()],
        ),
    ];
    assert_eq!(extra, expected);
}

/// A slow authorizer is asked about many headers at once, and about no more than a bound.
#[tokio::test(start_paused = true)]
async fn many_headers_are_authorised_side_by_side() {
    struct Slow;
    impl Reviewer for Slow {
        fn post(&self, _path: &'static str, _review: Bytes) -> ReviewFuture<'_> {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(Bytes::from_static(br#"{"status":{"allowed":true}}"#))
            })
        }
    }
    let ca = Ca::new();
    let authn = Authenticator::new(AuthenticatorOptions {
        authority: Some(ca.authority()),
        impersonation: Some(Impersonation::new(Arc::new(Slow))),
        ..AuthenticatorOptions::default()
    });
    let jane = connection(vec![ca.leaf("jane", "")]);
    let mut lines = headers(&[("impersonate-user", "bob")]);
    for n in 0..50 {
        lines.append("impersonate-group", format!("g{n}").parse().unwrap());
    }
    let began = tokio::time::Instant::now();
    authn.authenticate(&jane, &lines, IN_2026).await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    for n in 50..64 {
        lines.append("impersonate-group", format!("g{n}").parse().unwrap());
    }
    let refusal = authn.authenticate(&jane, &lines, IN_2026).await;
    assert_eq!(refusal.unwrap_err().code, 431);
}

#[tokio::test]
async fn an_outage_of_the_authorizer_is_503_and_not_403() {
    let reviewer = Scripted::new(|_: &Value| Err(ReviewerOutage("out".into())));
    let ca = Ca::new();
    let authn = Authenticator::new(AuthenticatorOptions {
        authority: Some(ca.authority()),
        impersonation: Some(Impersonation::new(reviewer)),
        ..AuthenticatorOptions::default()
    });
    let jane = connection(vec![ca.leaf("jane", "")]);
    let lines = headers(&[("impersonate-user", "bob")]);
    let refusal = authn
        .authenticate(&jane, &lines, IN_2026)
        .await
        .unwrap_err();
    assert_eq!((refusal.code.as_u16(), refusal.retry_after), (503, Some(1)));
}
