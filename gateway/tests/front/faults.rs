//! What clients see of an upstream that misbehaves: as little as can be.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use sluice_gateway::forward::Served;
use sluice_gateway::upstream::{CallOptions, Cluster, ClusterSpec, GateView};

use crate::fake::{Fake, Options, answer, content, fine, script};
use crate::rig::{Rig, alice, get, post, text, until};

const PODS: &str = "/api/v1/namespaces/n/pods";

/// An address where nobody listens.
fn nowhere() -> String {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", socket.local_addr().unwrap())
}

/// Nobody is answered before half of them are there at once, which one connection after the other
/// would never bring about.
#[tokio::test]
async fn streams_beyond_the_limit_get_further_connections() {
    let there = Arc::new(AtomicUsize::new(0));
    let may_answer = Arc::new(tokio::sync::Semaphore::new(0));
    let (counted, gate) = (Arc::clone(&there), Arc::clone(&may_answer));
    let waiting = script(move |exchange| {
        let (counted, gate) = (Arc::clone(&counted), Arc::clone(&gate));
        async move {
            counted.fetch_add(1, Ordering::Relaxed);
            gate.acquire().await.unwrap().forget();
            answer(exchange, StatusCode::OK, "{}").await;
        }
    });
    let options = Options {
        streams_max: 10,
        ..Options::default()
    };
    let fake = Fake::start(options, waiting).await;
    let rig = Rig::of([fake.url()]).await;
    let client = rig.http2().await;
    let all = (0..100).map(|_| {
        let mut client = client.clone();
        tokio::spawn(async move { client.get(PODS).await.status() })
    });
    let all = all.collect::<Vec<_>>();
    until(|| there.load(Ordering::Relaxed) >= 50).await;
    may_answer.add_permits(100);
    for one in all {
        assert_eq!(one.await.unwrap(), StatusCode::OK);
    }
    let opened = rig.cluster.endpoints()[0].connections_opened;
    assert!((5..=20).contains(&opened), "{opened} connections");
}

#[tokio::test]
async fn watches_do_not_crowd_out_short_requests() {
    let endless = script(|mut exchange| async move {
        if exchange.request.uri().query().is_none() {
            return answer(exchange, StatusCode::OK, "{}").await;
        }
        let response = Response::builder().body(()).unwrap();
        let mut stream = exchange.respond.send_response(response, false).unwrap();
        std::future::poll_fn(|cx| stream.poll_reset(cx))
            .await
            .unwrap();
    });
    let fake = Fake::start(Options::default(), endless).await;
    let rig = Rig::of([fake.url()]).await;
    let mut watches = Vec::new();
    let mut client = rig.http2().await;
    for n in 0..450 {
        if n % 200 == 0 {
            client = rig.http2().await; // the gateway's own limit
        }
        watches.push(client.get("/api/v1/pods?watch=true").await);
    }
    let mut client = rig.http2().await;
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(text(client.get(PODS).await).await, "{}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
    let view = &rig.cluster.endpoints()[0];
    assert_eq!((view.long_running, view.in_flight), (450, 0));
    assert!(view.connections >= 5, "{} connections", view.connections);
    drop(watches);
    until(|| rig.cluster.endpoints()[0].long_running == 0).await;
}

/// Every verb: a stream that the endpoint refuses is sent elsewhere, with all of its content.
#[tokio::test]
async fn refused_stream_is_sent_elsewhere_with_its_content() {
    let refusing = script(|mut exchange| async move {
        // Late, so that the content is on its way already.
        tokio::time::sleep(Duration::from_millis(20)).await;
        exchange.respond.send_reset(h2::Reason::REFUSED_STREAM);
    });
    let echoing = script(|mut exchange| async move {
        let body = content(&mut exchange.request).await;
        let head = Response::builder().body(()).unwrap();
        let mut stream = exchange.respond.send_response(head, false).unwrap();
        stream.reserve_capacity(body.len());
        while stream.capacity() < body.len() {
            std::future::poll_fn(|cx| stream.poll_capacity(cx))
                .await
                .unwrap()
                .unwrap();
        }
        stream.send_data(body.into(), true).unwrap();
    });
    let refuser = Fake::start(Options::default(), refusing).await;
    let taker = Fake::start(Options::default(), echoing).await;
    let rig = Rig::of([refuser.url(), taker.url()]).await;
    let mut client = rig.http2().await;
    let body = "x".repeat(200_000);
    for _ in 0..6 {
        let response = client.send(post(PODS, body.clone())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(text(response).await, body);
    }
    assert!(refuser.requests() >= 2, "some went to the refuser first");
    assert_eq!(taker.requests(), 6);
}

#[tokio::test]
async fn content_too_large_to_keep_is_not_sent_twice() {
    let refusing = script(|mut exchange| async move {
        let mut seen = 0;
        while seen < 4 * 1024 * 1024 {
            let data = exchange.request.body_mut().data().await.unwrap().unwrap();
            seen += data.len();
            let _ = exchange
                .request
                .body_mut()
                .flow_control()
                .release_capacity(data.len());
        }
        exchange.respond.send_reset(h2::Reason::REFUSED_STREAM);
    });
    let refuser = Fake::start(Options::default(), refusing).await;
    let taker = Fake::start(Options::default(), refuser_like()).await;
    let rig = Rig::of([refuser.url(), taker.url()]).await;
    let mut client = rig.http2().await;
    let response = client
        .send(post(PODS, vec![0; 5 * 1024 * 1024]))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.headers()["x-sluice-origin"], "forward");
    assert_eq!(refuser.requests() + taker.requests(), 1);
}

fn refuser_like() -> crate::fake::Script {
    script(|mut exchange| async move {
        while let Some(Ok(data)) = exchange.request.body_mut().data().await {
            let _ = exchange
                .request
                .body_mut()
                .flow_control()
                .release_capacity(data.len());
        }
        exchange.respond.send_reset(h2::Reason::REFUSED_STREAM);
    })
}

/// GOAWAY after every forty requests of a connection, eight clients, reads and writes: nobody
/// notices, and nothing is carried out twice.
#[tokio::test(flavor = "multi_thread")]
async fn goaways_are_noticed_by_nobody() {
    let done = Arc::new(Mutex::new(Vec::<String>::new()));
    let counts = Arc::new(Mutex::new(std::collections::HashMap::<usize, usize>::new()));
    let (kept, counted) = (Arc::clone(&done), Arc::clone(&counts));
    let leaving = script(move |mut exchange| {
        let (kept, counted) = (Arc::clone(&kept), Arc::clone(&counted));
        async move {
            let served = {
                let mut counted = counted.lock();
                let served = counted.entry(exchange.connection.number).or_default();
                *served += 1;
                *served
            };
            if served == 40 {
                exchange.connection.goaway.cancel();
            }
            let body = content(&mut exchange.request).await;
            kept.lock().push(String::from_utf8(body).unwrap());
            answer(exchange, StatusCode::OK, "{}").await;
        }
    });
    let fake = Fake::start(Options::default(), leaving).await;
    let rig = Rig::of([fake.url()]).await;
    let mut workers = Vec::new();
    for worker in 0..8 {
        let mut client = rig.http2().await;
        workers.push(tokio::spawn(async move {
            for n in 0..250 {
                let request = if n % 2 == 0 {
                    post(PODS, format!("{worker}/{n}"))
                } else {
                    get(PODS)
                };
                let response = client.send(request).await.unwrap();
                assert_eq!(response.status(), StatusCode::OK, "{worker}/{n}");
                text(response).await;
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    let mut writes: Vec<String> = done
        .lock()
        .iter()
        .filter(|b| !b.is_empty())
        .cloned()
        .collect();
    assert_eq!(writes.len(), 1_000);
    writes.sort();
    writes.dedup();
    assert_eq!(writes.len(), 1_000, "each once");
    assert!(
        fake.connections() > 25,
        "{} connections",
        fake.connections()
    );
    assert_eq!(rig.cluster.endpoints()[0].failed, 0, "leaving is no fault");
}

#[tokio::test]
async fn request_that_cannot_be_sent_goes_elsewhere() {
    let fake = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([nowhere(), fake.url()]).await;
    let mut client = rig.http2().await;
    for n in 0..20 {
        let response = client.send(post(PODS, "{}")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "request {n}");
    }
    assert_eq!(fake.requests(), 20);
}

#[tokio::test]
async fn nobody_there_is_503_with_a_short_wait() {
    let rig = Rig::of([nowhere(), nowhere()]).await;
    let response = rig.http2().await.get(PODS).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    let status: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(
        (&status["kind"], &status["code"]),
        (&"Status".into(), &503.into())
    );
}

#[tokio::test]
async fn sent_write_that_breaks_is_not_replayed_but_a_read_is() {
    let breaking = script(|exchange| async move { exchange.connection.cut.cancel() });
    let breaker = Fake::start(Options::default(), breaking).await;
    let healthy = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([breaker.url(), healthy.url()]).await;
    let mut client = rig.http2().await;
    // Ties alternate, so within four requests of a kind the breaker has had one first.
    let mut answers = Vec::new();
    while breaker.requests() == 0 {
        let response = client.send(post(PODS, "{}")).await.unwrap();
        answers.push((
            response.status(),
            response.headers().contains_key("retry-after"),
        ));
    }
    assert_eq!(answers.last(), Some(&(StatusCode::BAD_GATEWAY, false)));
    assert_eq!(healthy.requests(), answers.len() - 1);
    while breaker.requests() == 1 {
        let response = client.get(PODS).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert!(rig.cluster.counters().retries.load(Ordering::Relaxed) >= 1);
}

/// Breaks its connection in an answer, at the place that the query names.
fn breaking_in_an_answer() -> crate::fake::Script {
    script(|mut exchange| async move {
        let place = exchange
            .request
            .uri()
            .query()
            .unwrap_or_default()
            .to_owned();
        let mut head = Response::builder();
        if place == "in-told-content" || place == "in-its-end" {
            head = head.header("content-length", 4);
        }
        let head = head.body(()).unwrap();
        let mut stream = exchange.respond.send_response(head, false).unwrap();
        let content: &[u8] = match place.as_str() {
            "after-head" => b"",
            "in-its-end" => b"{} \n",
            "in-much" => &[b'x'; 65_000],
            _ => b"{",
        };
        if !content.is_empty() {
            let rounds = if place == "in-much" { 4 } else { 1 };
            for _ in 0..rounds {
                stream.reserve_capacity(content.len());
                while stream.capacity() < content.len() {
                    let _ = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
                }
                stream
                    .send_data(Bytes::copy_from_slice(content), false)
                    .unwrap();
            }
        }
        // Long enough for what was sent to arrive.
        tokio::time::sleep(Duration::from_millis(150)).await;
        exchange.connection.kill();
    })
}

/// A read whose answer has begun and whose apiserver is killed then: nothing has reached the
/// client, so another one is asked.
#[tokio::test]
async fn answer_that_breaks_at_its_beginning_is_had_elsewhere() {
    for place in ["after-head", "in-content", "in-told-content"] {
        let breaker = Fake::start(Options::default(), breaking_in_an_answer()).await;
        let healthy = Fake::start(Options::default(), fine()).await;
        let rig = Rig::of([breaker.url(), healthy.url()]).await;
        rig.probed().await;
        let mut client = rig.http2().await;
        while breaker.requests() == 0 {
            let response = client.get(&format!("{PODS}?{place}")).await;
            assert_eq!(response.status(), StatusCode::OK, "{place}");
            assert_eq!(text(response).await, "{}", "{place}");
        }
        let view = &rig.cluster.endpoints()[0];
        assert_eq!(view.failed, 1, "{place}");
        until(|| rig.cluster.endpoints()[0].in_flight == 0).await;
    }
}

/// What has been told whole is whole, though the stream's end is lost; what has been passed on
/// breaks off; and a write is never sent again.
#[tokio::test]
async fn answer_that_breaks_later_is_cut_and_not_asked_for_again() {
    use http_body_util::BodyExt as _;
    let breaker = Fake::start(Options::default(), breaking_in_an_answer()).await;
    let rig = Rig::of([breaker.url()]).await;
    let mut client = rig.http2().await;
    let whole = client.get(&format!("{PODS}?in-its-end")).await;
    assert_eq!(text(whole).await, "{} \n");
    let much = client.get(&format!("{PODS}?in-much")).await;
    assert_eq!(much.status(), StatusCode::OK);
    assert!(much.into_body().collect().await.is_err());
    until(|| rig.cluster.endpoints()[0].connections == 0).await;
    let write = post(&format!("{PODS}?after-head"), "{}");
    let write = client.send(write).await.unwrap();
    assert!(write.into_body().collect().await.is_err());
    assert_eq!(breaker.requests(), 3, "each once");
    until(|| rig.cluster.endpoints()[0].connections == 0).await;
    // Nobody else to ask: an answer of the gateway's own, and no broken one.
    let alone = client.get(&format!("{PODS}?after-head")).await;
    assert_eq!(alone.status(), StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn missing_answer_is_504_and_a_watch_may_wait() {
    let silent = script(|mut exchange| async move {
        if exchange.request.uri().query().is_some() {
            tokio::time::sleep(Duration::from_millis(400)).await;
            return answer(exchange, StatusCode::OK, "{}\n").await;
        }
        let _ = std::future::poll_fn(|cx| exchange.respond.poll_reset(cx)).await;
    });
    let fake = Fake::start(Options::default(), silent).await;
    let mut spec = ClusterSpec::new("test", [fake.url()]);
    spec.timeouts.head = Duration::from_millis(100);
    let rig = Rig::with(spec, alice()).await;
    let mut client = rig.http2().await;
    let response = client.get(PODS).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert!(!response.headers().contains_key("retry-after"));
    let watch = client.get("/api/v1/pods?watch=1").await;
    assert_eq!(text(watch).await, "{}\n");
}

/// One of two answers every read with 503: clients do not see it, it is left out for a while, and
/// a fault of an aggregated group is not held against anybody.
#[tokio::test]
async fn failing_endpoint_is_left_out_and_others_answer() {
    let failing = script(|exchange| answer(exchange, StatusCode::SERVICE_UNAVAILABLE, "{}"));
    let sick = Fake::start(Options::default(), failing).await;
    let healthy = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([sick.url(), healthy.url()]).await;
    rig.probed().await;
    let mut client = rig.http2().await;
    for _ in 0..6 {
        let aggregated = client.get("/apis/metrics.k8s.io/v1beta1/nodes").await;
        text(aggregated).await;
    }
    assert_eq!(rig.cluster.endpoints()[0].failed, 0);
    let before = sick.requests();
    for _ in 0..40 {
        assert_eq!(client.get(PODS).await.status(), StatusCode::OK);
    }
    let endpoint = &rig.cluster.endpoints()[0];
    assert_eq!(endpoint.gate, GateView::Ejected);
    assert_eq!(
        sick.requests() - before,
        5,
        "five in a row, then it is left out"
    );
}

#[tokio::test]
async fn when_all_are_out_one_is_tried_anyway() {
    let is_sick = Arc::new(AtomicBool::new(true));
    let sick = Arc::clone(&is_sick);
    let flapping = script(move |exchange| {
        let status = if sick.load(Ordering::SeqCst) {
            StatusCode::INTERNAL_SERVER_ERROR
        } else {
            StatusCode::OK
        };
        answer(exchange, status, "{}")
    });
    let fake = Fake::start(Options::default(), flapping).await;
    let rig = Rig::of([fake.url()]).await;
    let mut client = rig.http2().await;
    for _ in 0..10 {
        let status = client.get(PODS).await.status();
        assert_eq!(
            status,
            StatusCode::INTERNAL_SERVER_ERROR,
            "the upstream's own answer"
        );
    }
    assert_eq!(rig.cluster.endpoints()[0].gate, GateView::Ejected);
    is_sick.store(false, Ordering::SeqCst);
    assert_eq!(client.get(PODS).await.status(), StatusCode::OK);
}

/// An endpoint is killed under load, and brought back: no read fails, and it gets its share again.
#[tokio::test(flavor = "multi_thread")]
async fn killed_endpoint_costs_no_read() {
    let slowish = || {
        script(|exchange| async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            answer(exchange, StatusCode::OK, "{}").await;
        })
    };
    let victim = Fake::start(Options::default(), slowish()).await;
    let stays = Fake::start(Options::default(), slowish()).await;
    let mut spec = ClusterSpec::new("test", [victim.url(), stays.url()]);
    spec.health.interval = Duration::from_millis(50);
    spec.ejection.base_time = Duration::from_millis(100);
    let rig = Rig::with(spec, alice()).await;
    rig.probed().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let total = Arc::new(AtomicUsize::new(0));
    let client = rig.http2().await;
    let workers = (0..32).map(|_| {
        let (mut client, is_over, total) =
            (client.clone(), Arc::clone(&is_over), Arc::clone(&total));
        tokio::spawn(async move {
            let mut failed = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let response = client.get(PODS).await;
                total.fetch_add(1, Ordering::Relaxed);
                let status = response.status();
                let body = text(response).await;
                if status != StatusCode::OK {
                    failed.push(body);
                }
            }
            failed
        })
    });
    let workers: Vec<_> = workers.collect();
    until(|| total.load(Ordering::Relaxed) > 500).await;
    let address = victim.kill();
    let then = total.load(Ordering::Relaxed);
    until(|| total.load(Ordering::Relaxed) > then + 500).await;
    let options = Options {
        address: Some(address),
        ..Options::default()
    };
    let back = Fake::start(options, slowish()).await;
    until(|| back.requests() > 200).await;
    is_over.store(true, Ordering::Relaxed);
    for worker in workers {
        assert_eq!(worker.await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn unready_endpoint_gets_no_new_requests() {
    let is_ready = Arc::new(AtomicBool::new(true));
    let ready = Arc::clone(&is_ready);
    // Not by `script`, which answers probes itself.
    let draining: crate::fake::Script = Arc::new(move |exchange| {
        let is_probe = exchange.request.uri().path() == "/readyz";
        let status = if is_probe && !ready.load(Ordering::SeqCst) {
            StatusCode::INTERNAL_SERVER_ERROR
        } else {
            StatusCode::OK
        };
        Box::pin(answer(exchange, status, "{}"))
    });
    let drains = Fake::start(Options::default(), draining).await;
    let stays = Fake::start(Options::default(), fine()).await;
    let mut spec = ClusterSpec::new("test", [drains.url(), stays.url()]);
    spec.health.interval = Duration::from_millis(10);
    spec.health.fall = NonZeroU32::MIN;
    let rig = Rig::with(spec, alice()).await;
    rig.probed().await;
    is_ready.store(false, Ordering::SeqCst);
    use sluice_gateway::upstream::ProbeState;
    until(|| rig.cluster.endpoints()[0].probe == ProbeState::Unready).await;
    let before = drains.requests();
    let mut client = rig.http2().await;
    for _ in 0..20 {
        assert_eq!(client.get(PODS).await.status(), StatusCode::OK);
    }
    assert_eq!(drains.requests(), before);
}

#[tokio::test]
async fn unread_answer_holds_the_upstream_back() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let flood = script(move |mut exchange| {
        let counted = Arc::clone(&counted);
        async move {
            let head = Response::builder().body(()).unwrap();
            let mut stream = exchange.respond.send_response(head, false).unwrap();
            let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
            for _ in 0..1_600 {
                stream.reserve_capacity(chunk.len());
                while stream.capacity() < chunk.len() {
                    if !matches!(
                        std::future::poll_fn(|cx| stream.poll_capacity(cx)).await,
                        Some(Ok(_))
                    ) {
                        return;
                    }
                }
                if stream.send_data(chunk.clone(), false).is_err() {
                    return;
                }
                counted.fetch_add(chunk.len(), Ordering::SeqCst);
            }
        }
    });
    let fake = Fake::start(Options::default(), flood).await;
    let rig = Rig::of([fake.url()]).await;
    let mut client = rig.http2().await;
    let unread = client.get(PODS).await;
    // Nothing more comes once every window between is full.
    let mut last = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = sent.load(Ordering::SeqCst);
        if now == last && now > 0 {
            break;
        }
        last = now;
    }
    assert!(
        last < 8 * 1024 * 1024,
        "{last} of 104857600 bytes are under way"
    );
    let other = client.get("/version").await;
    assert_eq!(other.status(), StatusCode::OK, "others are not held up");
    drop(unread);
}

#[tokio::test]
async fn reload_keeps_what_it_can_and_answers_say_who_served() {
    let first = Fake::start(Options::default(), fine()).await;
    let second = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([first.url()]).await;
    let mut client = rig.http2().await;
    client.get(PODS).await;
    rig.probed().await;
    let urls = [first.url(), second.url()];
    rig.cluster.apply(ClusterSpec::new("test", urls)).unwrap();
    let kept = &rig.cluster.endpoints()[0];
    assert_eq!(
        (kept.served, kept.connections),
        (1, 1),
        "the endpoint that stayed"
    );
    rig.probed().await;
    for _ in 0..10 {
        client.get(PODS).await;
    }
    let (before, after) = (first.requests(), second.requests());
    assert!(
        before + after == 11 && (5..=6).contains(&after),
        "no flood to make up: {before}, {after}"
    );
    let only = ClusterSpec::new("test", [second.url()]);
    rig.cluster.apply(only).unwrap();
    for _ in 0..5 {
        client.get(PODS).await;
    }
    assert_eq!(first.requests(), before);
    let wrong = ClusterSpec::new("test", ["https://[::1".to_owned()]);
    assert!(rig.cluster.apply(wrong).is_err());
    assert_eq!(
        client.get(PODS).await.status(),
        StatusCode::OK,
        "nothing has changed"
    );
}

#[tokio::test]
async fn own_calls_carry_the_gateways_credential_and_fail_over() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "own").unwrap();
    let checking = script(|mut exchange| async move {
        let headers = exchange.request.headers().clone();
        let body = content(&mut exchange.request).await;
        let is_right = headers["authorization"] == "Bearer own"
            && headers["content-type"] == "application/json"
            && !headers.contains_key("impersonate-user")
            && body == b"{\"review\":1}";
        let status = if is_right {
            StatusCode::CREATED
        } else {
            StatusCode::BAD_REQUEST
        };
        answer(exchange, status, "{\"ok\":true}").await;
    });
    let fake = Fake::start(Options::default(), checking).await;
    let mut spec = ClusterSpec::new("test", [nowhere(), fake.url()]);
    spec.credentials.token_file = Some(token.clone().into());
    let cluster = Cluster::spawn(spec).unwrap();
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    for _ in 0..4 {
        let json = Bytes::from_static(b"{\"review\":1}");
        let (status, body) = cluster
            .call(path, json, CallOptions::default())
            .await
            .unwrap();
        assert_eq!(status, StatusCode::CREATED);
        assert_eq!(body, "{\"ok\":true}");
    }
    std::fs::write(&token, "rotated").unwrap();
    cluster.refresh().unwrap();
    let json = Bytes::from_static(b"{\"review\":1}");
    let (status, _) = cluster
        .call(path, json, CallOptions::default())
        .await
        .unwrap();
    assert_eq!(status, StatusCode::BAD_REQUEST, "the new token is in use");
}

#[tokio::test]
async fn served_is_told_to_the_pipeline() {
    use sluice_gateway::context::{Connection, RequestContext, RequestId};
    let fake = Fake::start(Options::default(), fine()).await;
    let cluster = Cluster::spawn(ClusterSpec::new("test", [fake.url()])).unwrap();
    let peer = "192.0.2.1:1".parse().unwrap();
    let ctx = RequestContext {
        connection: Arc::new(Connection::new(peer, peer, Instant::now())),
        client: peer,
        id: RequestId(1),
        received: Instant::now(),
        user: Arc::new(alice()),
        impersonator: None,
        tether: None,
    };
    let request = http::Request::get(PODS)
        .body(sluice_gateway::body::Body::Empty)
        .unwrap();
    let shape = sluice_gateway::forward::Shape::default();
    let response = sluice_gateway::forward::forward_shaped(&cluster, &ctx, shape, request)
        .await
        .unwrap();
    let served = response.extensions().get::<Served>().unwrap();
    assert_eq!(
        (&*served.endpoint, served.attempts),
        (fake.url().as_str(), 1)
    );
}

/// A client that sends slowly is told so; the endpoint that waits with us is not to blame.
#[tokio::test]
async fn slow_content_is_the_clients_fault() {
    let reading = script(|mut exchange| async move {
        content(&mut exchange.request).await;
        answer(exchange, StatusCode::OK, "{}").await;
    });
    let fake = Fake::start(Options::default(), reading).await;
    let mut spec = ClusterSpec::new("test", [fake.url()]);
    spec.timeouts.head = Duration::from_millis(200);
    let rig = Rig::with(spec, alice()).await;
    let mut stream = rig.tls(&[b"http/1.1"]).await;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let head = format!("POST {PODS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nab");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answered = [0; 64];
    let count = stream.read(&mut answered).await.unwrap();
    let text = String::from_utf8_lossy(&answered[..count]);
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    assert_eq!(rig.cluster.endpoints()[0].failed, 0);
}

/// An answer that stops in the middle is given up, and speaks against its endpoint; a log that is
/// followed may be silent, and is cut off for all to see when the gateway has to end it.
#[tokio::test]
async fn stalled_answer_is_given_up_and_a_silent_log_is_not() {
    use http_body_util::BodyExt as _;
    let stalling = script(|mut exchange| async move {
        let head = Response::builder().body(()).unwrap();
        let mut stream = exchange.respond.send_response(head, false).unwrap();
        let chunk = Bytes::from(vec![b'x'; 65_000]);
        let is_log = exchange.request.uri().path().ends_with("/log");
        let rounds = if is_log { 1 } else { 2 };
        for _ in 0..rounds {
            stream.reserve_capacity(chunk.len());
            while stream.capacity() < chunk.len() {
                let _ = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
            }
            stream.send_data(chunk.clone(), false).unwrap();
        }
        let _ = std::future::poll_fn(|cx| stream.poll_reset(cx)).await;
    });
    let fake = Fake::start(Options::default(), stalling).await;
    let mut spec = ClusterSpec::new("test", [fake.url()]);
    spec.timeouts.head = Duration::from_millis(200);
    let rig = Rig::with(spec, alice()).await;
    let mut client = rig.http2().await;
    let stalled = client.get(PODS).await;
    assert_eq!(stalled.status(), StatusCode::OK);
    assert!(stalled.into_body().collect().await.is_err());
    assert_eq!(rig.cluster.endpoints()[0].failed, 1);
    let log = client.get(&format!("{PODS}/p/log?follow=true")).await;
    let mut log = log.into_body();
    let mut seen = 0;
    while seen < 65_000 {
        seen += log
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap()
            .len();
    }
    let silence = tokio::time::timeout(Duration::from_millis(500), log.frame()).await;
    assert!(silence.is_err(), "a log may be silent");
    let drain = rig.drain.clone();
    tokio::spawn(async move { drain.finish(Duration::from_millis(50)).await });
    assert!(log.frame().await.unwrap().is_err(), "not a silent end");
    assert_eq!(rig.cluster.endpoints()[0].failed, 1);
}
