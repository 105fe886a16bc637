//! HTTP/2 clients that make work without asking for anything: each is cut off within a second, and
//! a neighbour on another connection notices nothing.

use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::io::AsyncWriteExt as _;

use crate::fake::{Fake, Options, answer, fine, script};
use crate::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GET, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE,
};
use crate::rig::{Rig, text};

/// How long a flood may last, on a machine that runs other suites beside.
const CUT_WITHIN: Duration = Duration::from_secs(1);

/// How long a neighbour may wait for any one answer.
const NEIGHBOUR_MAX: Duration = Duration::from_secs(1);

/// Floods until the gateway ends the connection; how long that took.
async fn flood(rig: &Rig, mut next: impl FnMut(u32) -> Vec<u8>) -> Duration {
    let stream = frames::connect(rig).await;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let began = Instant::now();
    let reading = async move { while frames::next(&mut reader).await.is_some() {} };
    let writing = async move {
        for number in 0.. {
            // Some hundred frames a write, as fast as they are taken.
            let bytes: Vec<u8> = (0..100).flat_map(|i| next(number * 100 + i)).collect();
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let ended = async {
        tokio::select! { () = reading => {}, () = writing => {} }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), ended).await;
    assert!(in_time.is_ok(), "it goes on for ever");
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_are_cut_off_and_neighbours_notice_nothing() {
    let fake = Fake::start(Options::default(), fine()).await;
    let rig = Rig::of([fake.url()]).await;
    rig.probed().await;
    let get = frames::block(&GET);
    let open = frames::frame(HEADERS, END_HEADERS, 1, &get);
    type Next = Box<dyn FnMut(u32) -> Vec<u8> + Send>;
    let floods: Vec<(&str, Next)> = vec![
        ("resets", {
            let get = get.clone();
            Box::new(move |number| {
                let stream = 2 * number + 1;
                let mut bytes = frames::frame(HEADERS, END_HEADERS | END_STREAM, stream, &get);
                bytes.extend(frames::frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
                bytes
            })
        }),
        ("continuations", {
            let get = get.clone();
            Box::new(move |number| match number {
                0 => frames::frame(HEADERS, 0, 1, &get),
                _ => frames::frame(CONTINUATION, 0, 1, &frames::field("a", "b")),
            })
        }),
        ("settings", Box::new(|_| frames::frame(SETTINGS, 0, 0, &[]))),
        ("pings", Box::new(|_| frames::frame(PING, 0, 0, &[0; 8]))),
        ("empty data", {
            let open = open.clone();
            Box::new(move |number| match number {
                0 => open.clone(),
                _ => frames::frame(DATA, 0, 1, &[]),
            })
        }),
        (
            "window updates",
            Box::new(|_| frames::frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ),
        (
            "priorities",
            Box::new(|_| frames::frame(2, 0, 1, &[0, 0, 0, 0, 1])),
        ),
        ("unknown frames", Box::new(|_| frames::frame(77, 0, 0, &[]))),
    ];
    for (name, next) in floods {
        let mut neighbour = rig.http2().await;
        let asking = async {
            let mut longest = Duration::ZERO;
            loop {
                let began = Instant::now();
                let response = neighbour.get("/api/v1/pods").await;
                assert_eq!(response.status(), StatusCode::OK);
                text(response).await;
                longest = longest.max(began.elapsed());
                assert!(longest < NEIGHBOUR_MAX, "{name}: {longest:?}");
            }
        };
        let lasted = tokio::select! {
            lasted = flood(&rig, next) => lasted,
            () = asking => unreachable!("it asks until the flood is over"),
        };
        assert!(lasted < CUT_WITHIN, "{name} lasted {lasted:?}");
    }
}

/// Unread answers that would fill the window of a connection upstream several times over.
const UNREAD: usize = 64;

/// Answers that a client asks for and does not read hold back nobody but itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_holds_up_nobody() {
    let large: &'static str = Box::leak("x".repeat(2 << 20).into_boxed_str());
    let large = move |exchange: crate::fake::Exchange| async move {
        let is_large = exchange.request.uri().path().ends_with("/pods");
        answer(
            exchange,
            StatusCode::OK,
            if is_large { large } else { "{}" },
        )
        .await;
    };
    let fake = Fake::start(Options::default(), script(large)).await;
    let rig = Rig::of([fake.url()]).await;
    rig.probed().await;
    let mut stalled = frames::connect(&rig).await;
    // Its windows are those of the protocol's beginning, and stay so: a good hundred of these come
    // through before it is read from no more.
    for number in 0..200 {
        let get = frames::block(&GET);
        let head = frames::frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &get);
        stalled.write_all(&head).await.unwrap();
    }
    crate::rig::until(|| fake.requests() >= UNREAD).await;
    let mut neighbour = rig.http2().await;
    for _ in 0..20 {
        let began = Instant::now();
        let response = neighbour.get("/api/v1/nodes").await;
        assert_eq!(text(response).await, "{}");
        assert!(began.elapsed() < NEIGHBOUR_MAX, "{:?}", began.elapsed());
    }
    let response = neighbour.get("/api/v1/pods").await;
    let read = tokio::time::timeout(Duration::from_secs(10), text(response)).await;
    assert_eq!(read.map(|text| text.len()), Ok(2 << 20), "a large one, too");
}

/// Uploads that an endpoint does not read hold back nobody, while they wait and after they are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_that_nobody_reads_hold_up_nobody() {
    let deaf = |exchange: crate::fake::Exchange| async move {
        if exchange.request.method() == http::Method::POST {
            // It keeps the stream and reads nothing of it.
            let _kept = exchange;
            std::future::pending::<()>().await;
        } else {
            answer(exchange, StatusCode::OK, "{}").await;
        }
    };
    let fake = Fake::start(Options::default(), script(deaf)).await;
    let rig = Rig::of([fake.url()]).await;
    rig.probed().await;
    let mut client = rig.http2().await;
    for _ in 0..5 {
        let mut uploads = tokio::task::JoinSet::new();
        let before = fake.requests();
        for _ in 0..20 {
            let mut client = client.clone();
            let content = vec![b'x'; 1_500_000];
            uploads.spawn(async move {
                let _ = client.send(crate::rig::post("/api/v1/pods", content)).await;
            });
        }
        crate::rig::until(|| fake.requests() == before + 20).await;
        let began = Instant::now();
        assert_eq!(client.get("/version").await.status(), StatusCode::OK);
        assert!(began.elapsed() < NEIGHBOUR_MAX, "{:?}", began.elapsed());
        // All of them are given up, and the next round finds its windows as new.
        uploads.shutdown().await;
    }
}
