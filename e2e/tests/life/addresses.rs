//! Who a client is when a load balancer or a proxy stands in front: in what the upstream is told,
//! and in the audit. Only those that are named are believed.

use http_body_util::Full;
use sluice_e2e::client::Client;
use sluice_e2e::process::eventually;
use std::time::Duration;

use crate::upstream::{Behind, QUICK};

const LIMIT: Duration = Duration::from_secs(60);

const PROXY: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 8080 6443\r\n";

/// Asks with headers by which a client might pose as somebody else, or a proxy speak for one.
async fn ask(client: &Client) -> Result<u16, String> {
    let connection = client.http2().await.map_err(|e| e.to_string())?;
    let request = client
        .request("GET", QUICK)
        .header("x-forwarded-for", "6.6.6.6, 198.51.100.9")
        .header("x-real-ip", "6.6.6.6")
        .header("forwarded", "for=6.6.6.6")
        .body(Full::default())
        .unwrap();
    let answer = connection.exchange(request).await;
    answer
        .map(|answer| answer.status.as_u16())
        .map_err(|e| e.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn named_balancers_and_proxies_are_believed_and_nobody_else() {
    let behind = Behind::of("").await;
    let site = &behind.site;
    let bare = site.user();
    let balanced = site.user().with_preface(PROXY);
    for (line, good, bad, expected) in [
        ("", &bare, &balanced, "127.0.0.1"),
        (
            "proxyProtocolFrom: [192.0.2.0/24]",
            &bare,
            &balanced,
            "127.0.0.1",
        ),
        (
            "proxyProtocolFrom: [127.0.0.1]",
            &balanced,
            &bare,
            "192.0.2.7",
        ),
        (
            "forwardedForFrom: [127.0.0.1]",
            &bare,
            &balanced,
            "198.51.100.9",
        ),
    ] {
        let text = site.front();
        let text = text.replacen("  tls:", &format!("  {line}\n  tls:"), 1);
        let audit = format!("{}.log", expected.replace('.', "-"));
        site.write(
            "sluice.yaml",
            &format!("{text}audit: {{ path: {audit} }}\n"),
        );
        let mut gateway = site.gateway();
        gateway.start();
        gateway.ready().await;
        assert_eq!(ask(good).await, Ok(200), "{line}");
        let seen = behind.upstream.seen().pop().unwrap();
        let told: Vec<_> = seen.headers.get_all("x-forwarded-for").iter().collect();
        assert_eq!(told, [expected], "{line}");
        assert!(!seen.headers.contains_key("x-real-ip"), "{seen:?}");
        assert!(!seen.headers.contains_key("forwarded"), "{seen:?}");
        let posed = ask(bad).await;
        assert!(posed.is_err(), "{line}: {posed:?}");
        let path = site.path(&audit);
        eventually("the event", LIMIT, || async {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let is_there = text.contains(&format!("\"sourceIPs\":[\"{expected}\"]"));
            is_there.then_some(()).ok_or(text)
        })
        .await;
        gateway.kill();
    }
}
