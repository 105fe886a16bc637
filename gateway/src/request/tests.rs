//! The resolver against a table of paths, and the shape of lists.

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use proptest::prelude::*;

use super::*;

fn parse(method: &str, uri: &str) -> Result<RequestInfo, Refusal> {
    RequestInfo::parse(
        &Method::from_bytes(method.as_bytes()).unwrap(),
        &uri.parse().unwrap(),
        &HeaderMap::new(),
    )
}

fn get(uri: &str) -> RequestInfo {
    parse("GET", uri).unwrap()
}

fn describe(answer: &Result<RequestInfo, Refusal>) -> String {
    let info = match answer {
        Ok(info) => info,
        Err(refusal) => {
            assert_eq!(refusal.stage, Stage::Request);
            let message = refusal.message.replace("ambiguous ", "");
            return format!("{} {message}", refusal.code.as_u16());
        }
    };
    let mut out = info.verb_name().to_owned();
    if info.is_resource() {
        let slash = if info.group().is_empty() { "" } else { "/" };
        out += &format!(
            " {}{slash}{} {}",
            info.group(),
            info.version(),
            info.resource()
        );
        for (mark, value) in [
            ("/", info.subresource()),
            (" ns=", info.namespace()),
            (" name=", info.name()),
        ] {
            if !value.is_empty() {
                out += &format!("{mark}{value}");
            }
        }
    } else {
        out += &format!(" path {}", info.path());
    }
    if info.is_long_running() {
        out += " long";
    }
    out
}

#[test]
fn paths_resolve_as_in_kube_apiserver() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("paths.txt").lines() {
        if line.starts_with("# ") {
            continue;
        }
        let (request, expected) = line.split_once(" | ").unwrap();
        let (method, uri) = request.split_once(' ').unwrap();
        let expected = expected.replace("\\u{e9}", "\u{e9}");
        let answer = describe(&parse(method, uri));
        if answer != expected {
            wrong.push(format!(
                "{request}\n  is       {answer}\n  expected {expected}"
            ));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 200, "the table lost rows: {count}");
}

#[test]
fn uri_is_kept_byte_for_byte() {
    let uri = "/api/v1/namespaces/a/services/s:80/proxy/x%2Fy?b=2&a=1;c&flag";
    let info = get(uri);
    assert_eq!(info.uri().as_str(), uri);
    assert!(info.is_proxied());
}

#[test]
fn ordinary_requests_share_the_uri() {
    let uri: Uri = "/api/v1/namespaces/ns/pods?limit=500&resourceVersion=0"
        .parse()
        .unwrap();
    let info = RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new()).unwrap();
    let shared = uri.path().as_bytes().as_ptr_range();
    assert!(shared.contains(&info.resource().as_ptr()));
    assert!(info.decoded.is_none() && info.selected_name.is_none() && info.other_verb.is_none());
    assert!(matches!(info.query.resource_version, text::Text::Raw(_)));
}

#[test]
fn list_shape_is_read() {
    let info = get(
        "/api/v1/pods?limit=500&continue=abc%3D&resourceVersion=12&resourceVersionMatch=Exact\
         &labelSelector=app%3Dx,tier+in+(a)&fieldSelector=spec.nodeName%3Dn1&timeoutSeconds=9\
         &allowWatchBookmarks=true&sendInitialEvents=false&fieldManager=a%20b",
    );
    assert_eq!(info.limit().map(NonZeroU64::get), Some(500));
    assert_eq!(info.continue_token(), "abc=");
    assert_eq!(info.resource_version(), "12");
    assert_eq!(info.resource_version_match(), "Exact");
    assert_eq!(info.label_selector(), "app=x,tier in (a)");
    assert_eq!(info.field_selector(), "spec.nodeName=n1");
    assert_eq!(info.timeout_seconds(), Some(9));
    assert!(info.allow_watch_bookmarks());
    assert_eq!(info.send_initial_events(), Some(false));
    assert_eq!(info.query_value("fieldManager").as_deref(), Some("a b"));
    assert_eq!(info.query_value("missing"), None);
    assert_eq!(get("/api/v1/pods").send_initial_events(), None);
}

#[test]
fn limits_of_zero_less_or_nonsense_are_none() {
    for (uri, fault) in [
        ("/api/v1/pods?limit=0", None),
        ("/api/v1/pods?limit=-5", None),
        ("/api/v1/pods?limit=0&limit=7", None),
        ("/api/v1/pods?limit=", Some("limit is not a number")),
        ("/api/v1/pods?limit=1e3", Some("limit is not a number")),
        (
            "/api/v1/pods?limit=9223372036854775808",
            Some("limit is not a number"),
        ),
    ] {
        let info = get(uri);
        assert_eq!(info.limit(), None, "{uri}");
        assert_eq!(info.query_fault(), fault, "{uri}");
    }
    assert_eq!(get("/api/v1/pods?limit=%2B5").limit(), NonZeroU64::new(5));
}

#[test]
fn selectors_are_attributes_of_collections_only() {
    let query = "?labelSelector=a%3Db&fieldSelector=c%3Dd";
    for (method, path, recorded) in [
        ("GET", "/api/v1/pods", true),
        ("DELETE", "/api/v1/namespaces/ns/pods", true),
        ("GET", "/api/v1/namespaces/ns/pods/p", false),
        ("GET", "/api/v1/watch/pods", false),
        ("POST", "/api/v1/namespaces/ns/pods", false),
        ("GET", "/healthz", false),
    ] {
        let info = parse(method, &format!("{path}{query}")).unwrap();
        assert_eq!(info.label_selector() == "a=b", recorded, "{method} {path}");
        assert_eq!(info.field_selector() == "c=d", recorded, "{method} {path}");
    }
}

#[test]
fn upgrades_need_both_headers() {
    let uri: Uri = "/api/v1/namespaces/ns/pods/p/exec".parse().unwrap();
    for (connection, upgrade, expected) in [
        (Some("Upgrade"), Some("SPDY/3.1"), true),
        (Some("keep-alive, upgrade"), Some("websocket"), true),
        (Some("keep-alive"), Some("websocket"), false),
        (Some("x-upgrade"), Some("websocket"), false),
        (Some("Upgrade"), None, false),
        (None, Some("websocket"), false),
    ] {
        let mut headers = HeaderMap::new();
        if let Some(value) = connection {
            headers.insert(CONNECTION, HeaderValue::from_static(value));
        }
        if let Some(value) = upgrade {
            headers.insert(UPGRADE, HeaderValue::from_static(value));
        }
        let info = RequestInfo::parse(&Method::GET, &uri, &headers).unwrap();
        assert_eq!(info.is_upgrade(), expected, "{connection:?} {upgrade:?}");
    }
    // An HTTP/2 extended CONNECT has a path.
    let info = RequestInfo::parse(&Method::CONNECT, &uri, &HeaderMap::new()).unwrap();
    assert!(info.is_upgrade());
    assert_eq!(info.verb(), Verb::Empty);
}

/// Pieces that paths are made of, the awkward ones included.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "/",
        "/",
        "/",
        "api",
        "apis",
        "v1",
        "apps",
        "namespaces",
        "watch",
        "proxy",
        "pods",
        "a",
        "..",
        ".",
        ";",
        "%2F",
        "%2e",
        "%25",
        "%",
        "%zz",
        "%ff",
        "%00",
        "%5c",
        "?",
        "&",
        "=",
        "+",
        "watch=1",
        "limit=",
        "fieldSelector=metadata.name%3D",
        ",",
        "status",
        "log",
    ];
    proptest::sample::select(words.to_vec()).prop_map(str::to_owned)
}

proptest! {
    /// Whatever is accepted has attributes that no second reading could take apart.
    #[test]
    fn accepted_attributes_are_single_segments(pieces in proptest::collection::vec(piece(), 0..24)) {
        let Ok(uri) = format!("/{}", pieces.concat()).parse::<Uri>() else {
            return Ok(());
        };
        let Ok(info) = RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new()) else {
            return Ok(());
        };
        prop_assert_eq!(info.uri(), uri.path_and_query().unwrap());
        for text in [
            info.group(), info.version(), info.resource(), info.subresource(), info.namespace(),
            info.name(),
        ] {
            prop_assert!(!text.contains(['/', '%']) && !matches!(text, "." | ".."), "{}", text);
        }
        prop_assert_eq!(info.is_resource(), !info.resource().is_empty());
        if !info.is_proxied() {
            prop_assert!(!info.path().contains("//") && !info.path().contains("/../"));
        }
    }
}
