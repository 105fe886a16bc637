//! Profiles from scripted events: rates that forget, percentiles within their digit, and a bound.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Uri};

use super::*;
use crate::audit::{Event, EventStage, Facts, Sink as _};
use crate::context::RequestId;
use crate::identity::UserInfo;
use crate::request::RequestInfo;

fn event(user: &str, uri: &str, at: u64, millis: u64, code: u16) -> Event {
    let uri: Uri = uri.parse().unwrap();
    let took = Duration::from_millis(millis);
    Event {
        stage: EventStage::Complete,
        id: RequestId(1),
        received: Duration::from_secs(at),
        took,
        head_took: took,
        info: Some(RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new()).unwrap()),
        raw: None,
        user: Some(Arc::new(UserInfo {
            name: user.into(),
            ..UserInfo::default()
        })),
        impersonator: None,
        source: "192.0.2.7:999".parse().unwrap(),
        user_agent: Some("agent/1".parse().unwrap()),
        code,
        sent: 1000,
        taken: 0,
        broken: false,
        facts: Facts::default(),
    }
}

#[test]
fn a_client_is_described_by_what_it_did() {
    let profiles = Profiles::new();
    let mut sink = profiles.sink();
    for n in 0..100 {
        sink.event(&event(
            "bot",
            "/api/v1/pods?resourceVersion=0",
            1000,
            n + 1,
            200,
        ));
    }
    sink.event(&event(
        "bot",
        "/api/v1/namespaces/a/pods?limit=5&labelSelector=x",
        1000,
        1,
        500,
    ));
    sink.event(&event("quiet", "/healthz", 1000, 1, 200));
    let view = profiles.view(Duration::from_secs(1000));
    assert_eq!(view[0].client, "bot");
    assert_eq!(view[0].user_agent, "agent/1");
    let row = &view[0].rows[0];
    assert_eq!(
        (row.verb.as_str(), row.resource.as_str(), row.count),
        ("list", "pods", 101)
    );
    assert_eq!(row.errors, 1);
    let shapes = row.lists.as_ref().unwrap();
    assert_eq!(
        (shapes.total, shapes.unpaged, shapes.from_cache),
        (101, 100, 100)
    );
    assert_eq!((shapes.cluster_wide, shapes.selected), (100, 1));
    let [p50, _, p99] = row.latency_seconds;
    assert!((0.045..0.056).contains(&p50), "{p50}");
    assert!((0.09..0.111).contains(&p99), "{p99}");
    assert_eq!(view[1].rows[0].resource, "/healthz");
    // 101 requests within a minute; five minutes later hardly any are left.
    assert!(
        (1.6..1.7).contains(&row.rate_per_second),
        "{}",
        row.rate_per_second
    );
    let later = profiles.view(Duration::from_secs(1300));
    assert!(later[0].rate_per_second < 0.02);
}

#[test]
fn new_names_take_the_place_of_quiet_ones() {
    let profiles = Profiles::new();
    let mut sink = profiles.sink();
    for n in 0..10_000 {
        sink.event(&event(
            &format!("user-{n}"),
            "/api/v1/pods",
            1000 + n,
            1,
            200,
        ));
    }
    let view = profiles.view(Duration::from_secs(11_000));
    assert!(view.len() <= 4096, "{}", view.len());
    assert!(profiles.evicted() >= 10_000 - 4096);
    assert!(view.iter().any(|c| c.client == "user-9999"));
}

#[test]
fn anonymous_callers_cannot_push_others_out_nor_fill_the_memory() {
    let profiles = Profiles::new();
    let mut sink = profiles.sink();
    sink.event(&event("bot", "/api/v1/pods", 1000, 1, 200));
    for n in 0..5_000 {
        let uri = format!("/api/v1/made-up-{n}");
        sink.event(&event("system:anonymous", &uri, 2000 + n, 1, 403));
        let uri = format!("/apis/group-{n}/v1/made-up");
        sink.event(&event("system:anonymous", &uri, 2000 + n, 1, 403));
    }
    let long = "x".repeat(60_000);
    let mut shouting = event("loud", &format!("/{long}"), 8000, 1, 404);
    shouting.user_agent = Some(long.parse().unwrap());
    sink.event(&shouting);
    assert_eq!(profiles.evicted(), 0);
    let view = profiles.view(Duration::from_secs(8000));
    let find = |name: &str| view.iter().find(|c| c.client == name).unwrap();
    assert_eq!(find("bot").rows[0].resource, "pods");
    assert_eq!(find("system:anonymous").rows.len(), 1);
    let loud = find("loud");
    assert!(loud.rows[0].resource.len() < 300 && loud.user_agent.len() < 300);
}
