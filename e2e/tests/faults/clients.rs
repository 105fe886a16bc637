//! Clients in numbers: more than there is room for, slower than there is patience for.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use sluice_e2e::client::Client;
use sluice_e2e::process::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::rig::{Front, LARGE, LIMIT, QUICK, full};

/// Descriptors of the process, and clients that want one each.
const DESCRIPTORS: usize = 256;
const CLIENTS: usize = 300;

/// Who is in is served, nothing spins, and who waited comes in when there is room again.
#[tokio::test(flavor = "multi_thread")]
async fn fault_09_fd_exhaustion() {
    let mut front = Front::of(1).await;
    front
        .gateway
        .start_after(&format!("ulimit -n {DESCRIPTORS}"));
    front.gateway.ready().await;
    let inside = front.site.user().http2().await.unwrap();
    assert_eq!(inside.send("GET", QUICK, "").await.unwrap().status, 200);
    // Without a handshake, for which they have ten seconds: the rest of the time is short.
    let began = Instant::now();
    let mut crowd = Vec::new();
    for _ in 0..CLIENTS {
        crowd.push(
            TcpStream::connect(("127.0.0.1", front.site.ports[0]))
                .await
                .unwrap(),
        );
    }
    let log = front.gateway.process().unwrap().log.clone();
    eventually("the descriptors to run out", LIMIT, || async {
        let text = std::fs::read_to_string(&log).unwrap();
        let is_out = text.contains("cannot accept");
        is_out.then_some(()).ok_or_else(|| "not yet".to_owned())
    })
    .await;
    let outside = front.site.user();
    let waiting = tokio::spawn(async move {
        let answer = outside.once("GET", QUICK, "").await;
        (answer.map(|answer| answer.status.as_u16()), Instant::now())
    });
    for _ in 0..200 {
        assert_eq!(inside.send("GET", QUICK, "").await.unwrap().status, 200);
    }
    let process = front.gateway.process().unwrap();
    let (before, at) = (process.usage().cpu, Instant::now());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let busy = process.usage().cpu - before;
    let share = busy.as_secs_f64() / at.elapsed().as_secs_f64();
    println!(
        "out of descriptors and idle: {:.1} % of a processor",
        share * 100.0
    );
    assert!(share <= 0.2, "{busy:?} of {:?}", at.elapsed());
    if began.elapsed() < Duration::from_secs(9) {
        assert!(!waiting.is_finished(), "there was room after all");
    }
    let released = Instant::now();
    drop(crowd);
    let (status, at) = waiting.await.unwrap();
    assert_eq!(status.unwrap(), 200);
    let took = at.saturating_duration_since(released);
    println!("accepted again {took:?} after");
    // 1 s on a machine that does nothing else.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// Clients that read nothing, send their heads or their contents byte by byte: each costs a bounded
/// piece of memory, those with a head that does not end are closed, and a neighbour is served.
#[tokio::test(flavor = "multi_thread")]
async fn fault_11_slow_clients() {
    let mut front = Front::ready(1).await;
    let neighbour = front.site.user().http2().await.unwrap();
    let alone = ask(&neighbour).await;
    let clients = full(100, 2_000);

    let before = front.resident();
    let mut unread = Vec::new();
    for _ in 0..clients {
        let connection = front.site.user().http2().await.unwrap();
        let request = front.site.user().request("GET", LARGE);
        let request = request.body(Full::default()).unwrap();
        // Its head has come; what follows fills the windows and stays there.
        let answer = connection.open(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        unread.push((connection, answer));
    }
    let beside = ask(&neighbour).await;
    let each = (front.resident().saturating_sub(before)) / clients as u64;
    println!("{clients} that do not read: {} KiB each", each >> 10);
    // The answer's beginning, what is kept of it for one stream, and what one stream's window
    // upstream holds.
    assert!(each <= 640 << 10, "{each} bytes each");
    println!("a neighbour's 50 reads took {alone:?} alone and {beside:?} beside them");
    let (_, first) = unread.pop().unwrap();
    let whole = first.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(whole.len(), crate::rig::LARGE_BYTES, "late is not never");
    drop(unread);

    let before = front.resident();
    let began = Instant::now();
    let mut writers = JoinSet::new();
    for number in 0..clients {
        let user = front.site.user();
        writers.spawn(async move { write_slowly(&user, number % 2 == 0).await });
    }
    let beside = ask(&neighbour).await;
    let each = (front.resident().saturating_sub(before)) / clients as u64;
    println!(
        "{clients} slow writers: {} KiB each, a neighbour {beside:?}",
        each >> 10
    );
    assert!(each <= 256 << 10, "{each} bytes each");
    let closed = writers.join_all().await;
    let heads = closed.iter().filter(|is_head| **is_head).count();
    println!("{heads} heads closed within {:?}", began.elapsed());
    assert_eq!(heads, clients.div_ceil(2));
}

/// A neighbour's reads, all of them good.
async fn ask(neighbour: &sluice_e2e::client::Http2) -> Duration {
    let began = Instant::now();
    for _ in 0..50 {
        assert_eq!(neighbour.send("GET", QUICK, "").await.unwrap().status, 200);
    }
    began.elapsed()
}

/// Sends a head (true) or a content byte by byte until it is closed, or long enough. Whether it was
/// a head and is closed.
async fn write_slowly(user: &Client, is_head: bool) -> bool {
    let stream = user.connect_tls("http/1.1").await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let text = if is_head {
        format!(
            "GET {QUICK} HTTP/1.1\r\nhost: localhost\r\nx-filler: {}",
            "x".repeat(4096)
        )
    } else {
        let head =
            format!("POST {QUICK} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4096\r\n\r\n");
        writer.write_all(head.as_bytes()).await.unwrap();
        "x".repeat(4096)
    };
    // A head that ends the connection has ten seconds; the margin is the machine's.
    let limit = if is_head {
        LIMIT
    } else {
        Duration::from_secs(12)
    };
    let writing = async {
        for byte in text.bytes() {
            if writer.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        std::future::pending::<()>().await;
    };
    let reading = async {
        let mut rest = Vec::new();
        // Closed with or without a word; both are an end.
        let _ = reader.read_to_end(&mut rest).await;
    };
    tokio::select! {
        () = writing => false,
        () = reading => is_head,
        () = tokio::time::sleep(limit) => false,
    }
}

/// Handshakes that do not end, that are junk, and that lead to nothing: who is in is served, and
/// memory stays.
#[tokio::test(flavor = "multi_thread")]
async fn fault_13_handshake_flood() {
    let mut front = Front::ready(1).await;
    let inside = front.site.user().http2().await.unwrap();
    let _ = ask(&inside).await;
    let before = front.resident();
    let port = front.site.ports[0];
    let user = front.site.user();
    let all = full(1_500, 100_000);
    let flood = tokio::spawn(async move {
        let mut open = JoinSet::new();
        for number in 0..all {
            let user = user.clone();
            open.spawn(async move {
                let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else {
                    return;
                };
                // An error says that the gateway has closed it, as it may.
                match number % 3 {
                    0 => {
                        let _ = stream.write_all(&[22, 3, 1, 2, 0, 1]).await;
                        tokio::time::sleep(Duration::from_secs(2)).await;
                    }
                    1 => {
                        let _ = stream.write_all(&[b'x'; 1024]).await;
                        let _ = stream.read(&mut [0; 64]).await;
                    }
                    _ => {
                        drop(stream);
                        let _ = user.connect_tls("h2").await;
                    }
                }
            });
            // So many at once as one machine of clients can have.
            while open.len() >= 500 {
                open.join_next().await;
            }
        }
        open.join_all().await;
    });
    let mut answers = 0;
    while !flood.is_finished() {
        assert_eq!(inside.send("GET", QUICK, "").await.unwrap().status, 200);
        answers += 1;
    }
    flood.await.unwrap();
    let grown = front.resident().saturating_sub(before) >> 20;
    println!("{answers} answers to one client beside the flood, {grown} MiB more");
    assert!(answers >= 50, "{answers}");
    assert!(grown <= 64, "{grown} MiB");
    let mut given_up = 0.0;
    for reason in ["handshake_failed", "handshake_shed"] {
        let series = format!("sluice_connections_given_up_total{{reason=\"{reason}\"}}");
        given_up += front.metric(&series).await;
    }
    println!("{given_up} of {all} are counted as given up");
    assert!(given_up >= all as f64 / 2.0, "{given_up}");
    // And newcomers come in.
    let newcomer = front.site.user().once("GET", QUICK, "").await.unwrap();
    assert_eq!(newcomer.status, 200);
}
