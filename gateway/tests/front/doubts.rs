//! A 500 to a read: the endpoint's fault, or the answer to what was asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use sluice_gateway::upstream::GateView;

use crate::fake::{Fake, Options, Script, answer, fine, script};
use crate::rig::{Rig, post, text};

const POD: &str = "/api/v1/namespaces/n/pods/p";
const BROKEN: &str = "/api/v1/namespaces/n/pods/broken";

/// Says 500 to everything while the switch says so.
fn ill(is_ill: &Arc<AtomicBool>) -> Script {
    let is_ill = Arc::clone(is_ill);
    script(move |exchange| {
        let status = if is_ill.load(Ordering::SeqCst) {
            StatusCode::INTERNAL_SERVER_ERROR
        } else {
            StatusCode::OK
        };
        answer(exchange, status, "{}")
    })
}

/// Says 500 to the one object that its storage has lost.
fn with_a_broken_object() -> Script {
    script(|exchange| {
        let status = match exchange.request.uri().path() {
            BROKEN => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::OK,
        };
        answer(exchange, status, "{}")
    })
}

#[tokio::test]
async fn an_ill_endpoint_is_not_believed_and_is_left_out() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let sick = Fake::start(Options::default(), ill(&is_ill)).await;
    let healthy = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([sick.url(), healthy.url()]).await;
    rig.probed().await;
    let mut client = rig.http2().await;
    for _ in 0..40 {
        assert_eq!(client.get(POD).await.status(), StatusCode::OK);
    }
    assert_eq!(sick.requests(), 5, "five in a row, then it is left out");
    assert_eq!(rig.cluster.endpoints()[0].gate, GateView::Ejected);
    assert_eq!(rig.cluster.endpoints()[1].failed, 0);
    // A write is never sent twice, whatever came back.
    let before = sick.requests() + healthy.requests();
    for _ in 0..10 {
        let write = post("/api/v1/namespaces/n/pods", "{}");
        text(client.send(write).await.unwrap()).await;
    }
    assert_eq!(sick.requests() + healthy.requests() - before, 10);
}

#[tokio::test]
async fn what_all_of_them_say_is_the_answer_and_nobodys_fault() {
    let first = Fake::start(Options::default(), with_a_broken_object()).await;
    let second = Fake::start(Options::default(), with_a_broken_object()).await;
    let rig = Rig::of([first.url(), second.url()]).await;
    rig.probed().await;
    let mut client = rig.http2().await;
    for _ in 0..40 {
        let answer = client.get(BROKEN).await;
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(text(answer).await, "{}");
    }
    for endpoint in rig.cluster.endpoints() {
        assert_eq!((endpoint.gate, endpoint.failed), (GateView::Admitting, 0));
    }
    assert_eq!(first.requests() + second.requests(), 80);
}

/// Nobody can read it any more, and everybody tries: it is soon asked for once.
#[tokio::test]
async fn doubts_that_are_wrong_end() {
    let is_ill = Arc::new(AtomicBool::new(true));
    let all = [
        Fake::start(Options::default(), ill(&is_ill)).await,
        Fake::start(Options::default(), ill(&is_ill)).await,
        Fake::start(Options::default(), ill(&is_ill)).await,
    ];
    let rig = Rig::of(all.iter().map(Fake::url)).await;
    rig.probed().await;
    let mut client = rig.http2().await;
    for _ in 0..1_000 {
        let status = client.get(POD).await.status();
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    }
    let asked: usize = all.iter().map(Fake::requests).sum();
    assert!(asked <= 1_100, "50 at once and a twentieth: {asked}");
    is_ill.store(false, Ordering::SeqCst);
    assert_eq!(client.get(POD).await.status(), StatusCode::OK);
}
