//! Header blocks that are broken in every way, read by us and by another library: both take the
//! same ones, and read the same in them.

use std::sync::Arc;
use std::time::Instant;

use http::Request;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt as _;

use super::super::core::{Core, Event, Limits};
use crate::http2::frames::{self, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS};

/// How a request shows a length that is no number.
const EMPTY_LENGTH: &str = "(\"content-length\", \"\")";

/// How a request shows a target that is empty.
const NO_PATH: &str = "  [";

/// Requests that one connection is asked.
const BLOCKS: usize = 3;

/// A piece of a header block; most are well made.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Indexed(u8),
    Literal { kind: u8, name: Name, value: Text },
    Resize(u8),
    Raw(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(super) enum Name {
    Index(u8),
    Text(Text),
}

#[derive(Clone, Debug)]
pub(super) struct Text {
    bytes: Vec<u8>,
    is_coded: bool,
}

fn text() -> impl Strategy<Value = Text> {
    let known = prop::sample::select(vec![
        "",
        "/",
        "/api",
        "GET",
        "POST",
        "https",
        "http",
        "a",
        "b",
        "te",
        "trailers",
        "host",
        "connection",
        "content-length",
        "0",
        "5",
        ":path",
        ":method",
        ":scheme",
        ":authority",
        ":status",
        ":x",
        "A",
        "a b",
        "x\r\ny",
        "x\0",
        "localhost:1",
        "u@h",
        "*",
        "/a b",
        "/a#b",
    ]);
    let bytes = prop_oneof![
        8 => known.prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ];
    (bytes, any::<bool>()).prop_map(|(bytes, is_coded)| Text { bytes, is_coded })
}

pub(super) fn piece() -> impl Strategy<Value = Piece> {
    let name = prop_oneof![
        (0..70_u8).prop_map(Name::Index),
        text().prop_map(Name::Text),
    ];
    let kind = prop::sample::select(vec![0x40_u8, 0x40, 0, 0x10]);
    prop_oneof![
        6 => (1..70_u8).prop_map(Piece::Indexed),
        6 => (kind, name, text()).prop_map(|(kind, name, value)| Piece::Literal { kind, name, value }),
        1 => (0..31_u8).prop_map(Piece::Resize),
        1 => prop::collection::vec(any::<u8>(), 1..5).prop_map(Piece::Raw),
    ]
}

fn put(block: &mut Vec<u8>, text: &Text) {
    if text.is_coded {
        let coded = crate::http2::hpack::huffman::encode(&text.bytes);
        block.push(0x80 | u8::try_from(coded.len()).unwrap());
        block.extend(coded);
    } else {
        block.push(u8::try_from(text.bytes.len()).unwrap());
        block.extend(&text.bytes);
    }
}

fn number(block: &mut Vec<u8>, kind: u8, mask: u8, number: u8) {
    if number < mask {
        block.push(kind | number);
    } else {
        block.extend([kind | mask, number - mask]);
    }
}

pub(super) fn block(pieces: &[Piece], is_begun: bool) -> Vec<u8> {
    // Most begin as requests do, so that what follows matters.
    let mut block = if is_begun {
        vec![0x82, 0x87, 0x84]
    } else {
        Vec::new()
    };
    for piece in pieces {
        match piece {
            Piece::Indexed(index) => block.push(0x80 | index),
            Piece::Literal { kind, name, value } => {
                let mask = if *kind == 0x40 { 0x3f } else { 0xf };
                match name {
                    Name::Index(index) => number(&mut block, *kind, mask, (*index).max(1)),
                    Name::Text(text) => {
                        block.push(*kind);
                        put(&mut block, text);
                    }
                }
                put(&mut block, value);
            }
            Piece::Resize(size) => number(&mut block, 0x20, 0x1f, *size),
            Piece::Raw(bytes) => block.extend(bytes),
        }
    }
    block
}

fn shown<B>(request: &Request<B>) -> String {
    let lines: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
        .collect();
    format!("{} {} {lines:?}", request.method(), request.uri())
}

fn stream(blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frames::write(&mut bytes, SETTINGS, 0, 0, &[]);
    for (number, block) in (0_u32..).zip(blocks) {
        let id = 2 * number + 1;
        frames::write(&mut bytes, HEADERS, END_HEADERS | END_STREAM, id, block);
    }
    bytes
}

fn ours(bytes: &[u8]) -> Vec<String> {
    let limits = Limits {
        streams: 100,
        header_bytes: 16 << 10,
        stream_window: 65_535,
        connection_window: 65_535,
    };
    let now = Instant::now();
    let mut core = Core::new(limits, Arc::default(), now);
    // What was taken before a fault of the connection counts for neither.
    let fatal = core.receive(bytes, now).err();
    let asked = core.events.drain(..).filter_map(|event| match event {
        Event::Asked { parts, .. } => Some(shown(&Request::from_parts(*parts, ()))),
        Event::Gone { .. } => None,
    });
    let asked: Vec<_> = asked.collect();
    if fatal.is_some() {
        vec!["fatal".to_owned()]
    } else {
        asked
    }
}

async fn theirs(bytes: &[u8]) -> Vec<String> {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    far.write_all(bytes).await.unwrap();
    let mut server = h2::server::handshake(near).await.unwrap();
    let mut asked = Vec::new();
    let mut answers = Vec::new();
    // Until there is nothing more to read: the peer has not hung up, so the last poll waits.
    for _ in 0..2 * BLOCKS {
        use futures_util::FutureExt as _;
        match server.accept().now_or_never() {
            Some(Some(Ok((request, answer)))) => {
                asked.push(shown(&request));
                answers.push(answer);
            }
            Some(Some(Err(_)) | None) => return vec!["fatal".to_owned()],
            None => {}
        }
    }
    asked
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn another_library_reads_the_same_requests(
        pieces in prop::collection::vec((prop::collection::vec(piece(), 0..6), prop::bool::weighted(0.8)), BLOCKS),
    ) {
        let blocks: Vec<_> = pieces.iter().map(|(pieces, is_begun)| block(pieces, *is_begun)).collect();
        let bytes = stream(&blocks);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let theirs = runtime.block_on(theirs(&bytes));
        let ours = ours(&bytes);
        // A field that no request may have costs them the connection, and us the stream; they take
        // an empty length for none, and a request without a path.
        let is_odd = |it: &String| it == "fatal" || it.contains(EMPTY_LENGTH) || it.contains(NO_PATH);
        let is_odd = theirs.iter().any(is_odd);
        if !is_odd {
            prop_assert_eq!(ours, theirs, "{:02x?}", blocks);
        }
    }
}
