//! HTTP/2 clients that make work without asking for anything, at the real binary.
//! The flood of each kind of frame by itself is in the gateway's own `front/floods.rs`.

use std::time::{Duration, Instant};

use sluice_e2e::client::Client;
use sluice_e2e::process::eventually;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::rig::{Front, LIMIT, QUICK};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame as it travels.
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(content.len()).unwrap().to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(content);
    bytes
}

/// A request's head, each field spelt out.
fn head(method: &str) -> Vec<u8> {
    let fields = [
        (":method", method),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", QUICK),
    ];
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// What came of an attack.
#[derive(Debug)]
struct Outcome {
    lasted: Duration,
    said_goaway: bool,
    requests: u32,
}

/// Sends what `next` makes for each stream until the gateway ends the connection.
async fn attack(user: &Client, mut next: impl FnMut(u32) -> Vec<u8>) -> Outcome {
    let stream = user.connect_tls("h2").await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    hello.extend(frame(SETTINGS, 0, 0, &[]));
    writer.write_all(&hello).await.unwrap();
    let began = Instant::now();
    let mut requests = 0;
    let mut said_goaway = false;
    let reading = async {
        let mut head = [0; 9];
        while reader.read_exact(&mut head).await.is_ok() {
            said_goaway |= head[3] == GOAWAY;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut content = vec![0; usize::try_from(length).unwrap()];
            if reader.read_exact(&mut content).await.is_err() {
                return;
            }
        }
    };
    let writing = async {
        for number in 0.. {
            let bytes: Vec<u8> = (0..20)
                .flat_map(|i| next(2 * (number * 20 + i) + 1))
                .collect();
            if writer.write_all(&bytes).await.is_err() {
                break;
            }
            requests += 20;
        }
        std::future::pending::<()>().await;
    };
    let over = async {
        tokio::select! { () = reading => {}, () = writing => {} }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(30), over).await;
    assert!(in_time.is_ok(), "it goes on for ever");
    Outcome {
        lasted: began.elapsed(),
        said_goaway,
        requests,
    }
}

/// Requests that are taken back at once, by the client or by what it makes the gateway do: the
/// connection ends, the upstream has seen few of them, and afterwards all is quiet.
#[tokio::test(flavor = "multi_thread")]
async fn fault_14_rapid_reset() {
    let mut front = Front::ready(1).await;
    let user = front.site.user();
    let neighbour = user.http2().await.unwrap();
    type Next = Box<dyn FnMut(u32) -> Vec<u8>>;
    let get = || head("GET");
    let attacks: [(&str, Next); 3] = [
        (
            "taken back",
            Box::new(move |stream| {
                let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get());
                bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
                bytes
            }),
        ),
        (
            "a window that grows by nothing",
            Box::new(|stream| {
                let mut bytes = frame(HEADERS, END_HEADERS, stream, &head("POST"));
                bytes.extend(frame(WINDOW_UPDATE, 0, stream, &[0; 4]));
                bytes
            }),
        ),
        (
            "content after the end",
            Box::new(move |stream| {
                let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get());
                bytes.extend(frame(DATA, 0, stream, b"x"));
                bytes
            }),
        ),
    ];
    for (name, next) in attacks {
        let before = seen(&front);
        let outcome = attack(&user, next).await;
        let reached = seen(&front) - before;
        let Outcome {
            lasted,
            said_goaway,
            requests,
        } = outcome;
        println!(
            "{name}: {requests} requests in {lasted:?}, goaway {said_goaway}, {reached} upstream"
        );
        // 1 s is the bound where nothing else runs.
        assert!(lasted < Duration::from_secs(10), "{name}: {lasted:?}");
        // A hundred in a hurry, and what was on its way in one reading.
        assert!(reached <= 400, "{name}: {reached}");
        assert_eq!(neighbour.send("GET", QUICK, "").await.unwrap().status, 200);
    }
    let process = front.gateway.process().unwrap();
    let (before, at) = (process.usage().cpu, Instant::now());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let busy = process.usage().cpu - before;
    let share = busy.as_secs_f64() / at.elapsed().as_secs_f64();
    println!("afterwards: {:.1} % of a processor", share * 100.0);
    assert!(share <= 0.2, "{busy:?}");
}

fn seen(front: &Front) -> usize {
    let told = &front.upstreams[0].told;
    let writes: usize = told.writes.lock().values().sum();
    front.reads() + writes
}

/// One large field, said once and meant ten thousand times: it is never unfolded.
#[tokio::test(flavor = "multi_thread")]
async fn fault_15_header_bomb() {
    let mut front = Front::ready(1).await;
    let user = front.site.user();
    let neighbour = user.http2().await.unwrap();
    for _ in 0..50 {
        assert_eq!(neighbour.send("GET", QUICK, "").await.unwrap().status, 200);
    }
    let before = front.resident();
    let mut stream = user.connect_tls("h2").await.unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    // To be remembered: a name of one letter and a value of 3,900 bytes, in HPACK's own numbers: 127,
    // and the rest in pieces of seven bits.
    let mut large = head("GET");
    large.extend([0x40, 1, b'a', 0x7f, 0xbd, 0x1d]);
    large.extend([b'v'; 3900]);
    bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &large));
    stream.write_all(&bytes).await.unwrap();
    // It was understood: what is meant again below is in the table.
    eventually("the large field to arrive", LIMIT, || async {
        let reads = front.reads();
        (reads == 51).then_some(()).ok_or_else(|| reads.to_string())
    })
    .await;
    let mut bytes = Vec::new();
    for number in 1..100 {
        let mut bomb = head("GET");
        // The newest entry of the table, again and again: 40 MB if it were spelt out.
        bomb.extend([0xbe; 10_000]);
        bytes.extend(frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            2 * number + 1,
            &bomb,
        ));
    }
    // Refused by a reset or by the connection's end; both are what is wanted.
    let _ = stream.write_all(&bytes).await;
    let mut answers = Vec::new();
    let reading = stream.read_to_end(&mut answers);
    let _ = tokio::time::timeout(Duration::from_secs(2), reading).await;
    let grown = front.resident().saturating_sub(before) >> 10;
    println!(
        "{} KiB of answers, {grown} KiB more memory",
        answers.len() >> 10
    );
    assert!(grown <= 8 << 10, "{grown} KiB");
    assert!(
        front.reads() <= 60,
        "{} reached the upstream",
        front.reads()
    );
    assert_eq!(neighbour.send("GET", QUICK, "").await.unwrap().status, 200);
}
