//! Requests, and not connections, are spread.

use http::StatusCode;

use crate::fake::{Fake, Options, fine};
use crate::rig::{Rig, text};

#[tokio::test]
async fn one_request_comes_through() {
    let fake = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([fake.url()]).await;
    let mut client = rig.http2().await;
    let response = client.get("/api/v1/namespaces/n/configmaps/c").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response).await, "{}");
    assert_eq!(fake.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_requests_of_one_connection_are_halved() {
    let fakes = [
        Fake::start(Options::default(), fine()).await,
        Fake::start(Options::default(), fine()).await,
    ];
    let rig = Rig::of(fakes.iter().map(Fake::url)).await;
    rig.probed().await;
    let client = rig.http2().await;
    let workers = (0..20).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move {
            for _ in 0..500 {
                let response = client.get("/api/v1/namespaces/n/pods/p").await;
                assert_eq!(response.status(), StatusCode::OK);
                text(response).await;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let counts: Vec<usize> = fakes.iter().map(Fake::requests).collect();
    assert_eq!(counts.iter().sum::<usize>(), 10_000);
    assert!(
        counts.iter().all(|n| (4_750..=5_250).contains(n)),
        "{counts:?}"
    );
}
