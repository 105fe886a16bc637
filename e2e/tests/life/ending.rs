//! SIGTERM: readiness fails while all is served, then what is under way ends in its own time, and
//! watches end apart and whole; a second signal ends it at once.

use std::time::{Duration, Instant};

use http_body_util::Full;
use rustix::process::Signal;
use sluice_e2e::lines::Lines;
use sluice_e2e::process::eventually;

use crate::upstream::{Behind, QUICK, SLOW, WATCH};

const LIMIT: Duration = Duration::from_secs(60);

/// Enough that their ends must lie apart, few enough to be opened in a moment.
const WATCHES: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_announced_then_paced() {
    let behind = Behind::of("shutdownDelay: 1500ms\n").await;
    let site = &behind.site;
    let text = site.front().replace("drainTimeout: 2s", "drainTimeout: 4s");
    site.write("sluice.yaml", &format!("{text}shutdownDelay: 1500ms\n"));
    let mut gateway = site.gateway();
    gateway.start();
    gateway.ready().await;

    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let mut lines = Lines::open(&site.user(), WATCH).await.unwrap();
        assert_eq!(lines.event().await.1, "a");
        watches.push(lines);
    }
    let mut idle = site.user().http1().await.unwrap();
    let slow = site.user().http2().await.unwrap();
    let slow = tokio::spawn(async move { slow.send("GET", SLOW, "").await });
    eventually("the slow request to arrive", LIMIT, || async {
        let seen = behind.upstream.seen();
        let has_come = seen.iter().any(|seen| seen.uri == SLOW);
        has_come.then_some(()).ok_or_else(|| "not yet".to_owned())
    })
    .await;

    let asked = Instant::now();
    gateway.process().unwrap().signal(Signal::TERM);
    let admin = gateway.admin.clone();
    eventually("readiness to fail", LIMIT, || async {
        let answer = admin.once("GET", "/readyz?verbose", "").await;
        let answer = answer.map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        let fails = answer.status == 500 && said.contains("[-]shutdown");
        fails.then_some(()).ok_or(said)
    })
    .await;
    // As before, on connections old and new.
    assert_eq!(
        site.user().once("GET", QUICK, "").await.unwrap().status,
        200
    );
    let request = site.user().request("GET", QUICK).uri(QUICK);
    let request = request.header("host", "localhost").body(Full::default());
    let answer = idle.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(
        asked.elapsed() < Duration::from_millis(1500),
        "too slow to say anything about the delay"
    );

    let mut watching = tokio::task::JoinSet::new();
    for mut lines in watches {
        watching.spawn(async move {
            // Whole: an end within a line or a reset is an error here.
            assert_eq!(lines.next().await.unwrap(), None);
            asked.elapsed()
        });
    }
    let mut ends = vec![watching.join_next().await.unwrap().unwrap()];
    // A request that has begun may still end.
    behind.slow.add_permits(1);
    assert_eq!(slow.await.unwrap().unwrap().status, 200);
    ends.extend(watching.join_all().await);
    ends.sort();
    let apart = ends[WATCHES - 1] - ends[0];
    println!(
        "watches ended from {:?} to {:?}",
        ends[0],
        ends[WATCHES - 1]
    );
    assert!(ends[0] >= Duration::from_millis(1500), "within the delay");
    assert!(apart >= Duration::from_secs(1), "together: {ends:?}");
    assert!(
        site.user().http2().await.is_err(),
        "nothing new is taken while it drains"
    );
    let status = gateway.process().unwrap().wait_exit(LIMIT);
    assert_eq!(status.code(), Some(0));
    println!("ended {:?} after the signal", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once() {
    let behind = Behind::of("shutdownDelay: 60s\n").await;
    for (second, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut gateway = behind.site.gateway();
        gateway.start();
        gateway.ready().await;
        let mut lines = Lines::open(&behind.site.user(), WATCH).await.unwrap();
        assert_eq!(lines.event().await.1, "a");
        let process = gateway.process().unwrap();
        process.signal(Signal::TERM);
        let admin = gateway.admin.clone();
        eventually("the first signal to be heard", LIMIT, || async {
            let answer = admin.once("GET", "/readyz", "").await;
            let status = answer.map_err(|e| e.to_string())?.status;
            (status == 500).then_some(()).ok_or(status.to_string())
        })
        .await;
        let asked = Instant::now();
        let process = gateway.process().unwrap();
        process.signal(second);
        let status = process.wait_exit(LIMIT);
        let took = asked.elapsed();
        println!("ended {took:?} after the second signal");
        assert_eq!(status.code(), Some(code));
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}
