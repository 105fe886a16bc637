//! What RFC 9113 asks of a client, a case a line. There are two requests: 1, and 3 for a head alone.

use super::{block, frame, goodbye, head, heard, ok, reset, settings, update, whole};
use crate::http2::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY,
};

fn check(cases: &[(&str, Vec<Vec<u8>>, &str)]) {
    for (name, frames, expected) in cases {
        assert_eq!(heard(&frames.concat()), *expected, "{name}");
    }
}

#[test]
fn frames_are_held_to_their_rules() {
    let mut huge = frame(DATA, 0, 1, &[]);
    huge[0..3].copy_from_slice(&[0, 0x40, 1]);
    check(&[
        ("too large", vec![huge], "fatal 6"),
        ("unknown kind", vec![frame(0x16, 0xff, 7, b"x")], ""),
        ("unknown flags", vec![frame(PING, 0xfe, 0, &[0; 8])], "pong"),
        ("an ack", vec![frame(PING, ACK, 0, &[0; 8])], ""),
        ("a ping's size", vec![frame(PING, 0, 0, &[0; 7])], "fatal 6"),
        (
            "a ping's stream",
            vec![frame(PING, 0, 1, &[0; 8])],
            "fatal 1",
        ),
        (
            "settings cut",
            vec![frame(SETTINGS, 0, 0, &[0; 5])],
            "fatal 6",
        ),
        (
            "settings' stream",
            vec![frame(SETTINGS, 0, 1, &[])],
            "fatal 1",
        ),
        (
            "settings in an ack",
            vec![frame(SETTINGS, ACK, 0, &[0; 6])],
            "fatal 6",
        ),
        (
            "a window too large",
            vec![settings(&[(4, 1 << 31)])],
            "fatal 3",
        ),
        (
            "a window that is too much",
            vec![update(0, 0x7fff_ffff)],
            "fatal 3",
        ),
        ("frames too small", vec![settings(&[(5, 1)])], "fatal 1"),
        (
            "push",
            vec![frame(PUSH_PROMISE, 4, 1, &[0, 0, 0, 2])],
            "fatal 1",
        ),
        (
            "priority",
            vec![frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])],
            "",
        ),
        (
            "reset's size",
            vec![frame(RST_STREAM, 0, 1, &[0; 3])],
            "fatal 6",
        ),
        ("reset of none", vec![reset(0, 1)], "fatal 1"),
        ("reset of the future", vec![reset(5, 1)], "fatal 1"),
        ("window of the future", vec![update(5, 1)], "fatal 1"),
        (
            "window's size",
            vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])],
            "fatal 6",
        ),
        ("window of nothing", vec![update(0, 0)], "fatal 1"),
        (
            "a stream's window of nothing",
            vec![update(1, 0)],
            "1: malformed, reset 1 1",
        ),
        (
            "a stream's window, too much",
            vec![update(1, 0x7fff_ffff)],
            "1: malformed, reset 1 3",
        ),
        ("goodbye cut", vec![frame(GOAWAY, 0, 0, &[0; 7])], "fatal 6"),
        (
            "goodbye of a stream",
            vec![frame(GOAWAY, 0, 1, &[0; 8])],
            "fatal 1",
        ),
        ("goodbye", vec![goodbye(1)], "3: unseen for ever"),
        (
            "goodbye to all",
            vec![goodbye(0)],
            "1: unseen for ever, 3: unseen for ever",
        ),
        ("head of the future", vec![ok(5)], "fatal 1"),
        ("head of an even one", vec![ok(2)], "fatal 1"),
        ("head of none", vec![ok(0)], "fatal 1"),
        ("data of none", vec![frame(DATA, 0, 0, b"x")], "fatal 1"),
        (
            "data of the future",
            vec![frame(DATA, 0, 5, b"x")],
            "fatal 1",
        ),
    ]);
}

#[test]
fn answers_are_held_to_their_rules() {
    let data = |flags, bytes: &[u8]| frame(DATA, flags, 1, bytes);
    let long = |said: &str| head(1, &[(":status", "200"), ("content-length", said)]);
    check(&[
        ("a head", vec![ok(1)], "1: 200"),
        (
            "a head alone",
            vec![whole(1, &[(":status", "200")])],
            "1: 200 end",
        ),
        (
            "content",
            vec![ok(1), data(0, b"xy"), data(END_STREAM, b"z")],
            "1: 200 +3 end",
        ),
        (
            "an end alone",
            vec![ok(1), data(END_STREAM, b"")],
            "1: 200 end",
        ),
        (
            "padding",
            vec![ok(1), data(PADDED | END_STREAM, &[2, b'x', 0, 0])],
            "1: 200 +1 end",
        ),
        (
            "too much padding",
            vec![ok(1), data(PADDED, &[2, 0])],
            "1: 200, fatal 1",
        ),
        ("data first", vec![data(0, b"x")], "1: malformed, reset 1 1"),
        (
            "data behind the end",
            vec![ok(1), data(1, b""), data(0, b"x")],
            "1: 200 end",
        ),
        (
            "trailers",
            vec![ok(1), data(0, b"x"), whole(1, &[("a", "b")])],
            "1: 200 +1 trailers end",
        ),
        (
            "trailers that go on",
            vec![ok(1), head(1, &[("a", "b")])],
            "1: 200 malformed, reset 1 1",
        ),
        (
            "a second head",
            vec![ok(1), whole(1, &[(":status", "200")])],
            "1: 200 malformed, reset 1 1",
        ),
        (
            "first the early ones",
            vec![head(1, &[(":status", "103")]), ok(1)],
            "1: 200",
        ),
        (
            "an early end",
            vec![whole(1, &[(":status", "100")])],
            "1: malformed, reset 1 1",
        ),
        (
            "a protocol",
            vec![head(1, &[(":status", "101")])],
            "1: malformed, reset 1 1",
        ),
        (
            "no status",
            vec![head(1, &[("a", "b")])],
            "1: malformed, reset 1 1",
        ),
        (
            "two",
            vec![head(1, &[(":status", "200"), (":status", "200")])],
            "1: malformed, reset 1 1",
        ),
        (
            "late",
            vec![head(1, &[("a", "b"), (":status", "200")])],
            "1: malformed, reset 1 1",
        ),
        (
            "a method",
            vec![head(1, &[(":status", "200"), (":method", "GET")])],
            "1: malformed, reset 1 1",
        ),
        (
            "capitals",
            vec![head(1, &[(":status", "200"), ("A", "b")])],
            "1: malformed, reset 1 1",
        ),
        (
            "a line feed",
            vec![head(1, &[(":status", "200"), ("a", "b\nc")])],
            "1: malformed, reset 1 1",
        ),
        (
            "a connection",
            vec![head(1, &[(":status", "200"), ("connection", "a")])],
            "1: malformed, reset 1 1",
        ),
        (
            "no number",
            vec![head(1, &[(":status", "x")])],
            "1: malformed, reset 1 1",
        ),
        (
            "as long as said",
            vec![long("3"), data(0, b"xy"), data(1, b"z")],
            "1: 200 +3 end",
        ),
        (
            "shorter",
            vec![long("3"), data(1, b"xy")],
            "1: 200 malformed, reset 1 1",
        ),
        (
            "shorter, by trailers",
            vec![long("3"), whole(1, &[])],
            "1: 200 malformed, reset 1 1",
        ),
        (
            "nothing of it",
            vec![whole(1, &[(":status", "200"), ("content-length", "3")])],
            "1: malformed, reset 1 1",
        ),
        (
            "longer",
            vec![long("3"), data(0, b"xyzz")],
            "1: 200 malformed, reset 1 1",
        ),
        (
            "a length that is none",
            vec![long("3x")],
            "1: malformed, reset 1 1",
        ),
        (
            "304 and a length",
            vec![whole(1, &[(":status", "304"), ("content-length", "3")])],
            "1: 304 end",
        ),
        (
            "304 and content",
            vec![head(1, &[(":status", "304")]), data(0, b"x")],
            "1: 304 malformed, reset 1 1",
        ),
        (
            "204 and content",
            vec![head(1, &[(":status", "204")]), data(0, b"x")],
            "1: 204 malformed, reset 1 1",
        ),
        (
            "HEAD",
            vec![whole(3, &[(":status", "200"), ("content-length", "3")])],
            "3: 200 end",
        ),
        (
            "HEAD, content",
            vec![ok(3), frame(DATA, 0, 3, b"x")],
            "3: 200 malformed, reset 3 1",
        ),
        ("reset", vec![reset(1, 8)], "1: reset by it 8"),
        ("refused", vec![reset(1, 7)], "1: unseen"),
        (
            "refused, with a head",
            vec![ok(1), reset(1, 7)],
            "1: 200 reset by it 7",
        ),
        (
            "reset behind the end",
            vec![ok(1), data(1, b"x"), reset(1, 0)],
            "1: 200 +1 end",
        ),
        (
            "reset behind content",
            vec![ok(1), data(0, b"x"), reset(1, 2)],
            "1: 200 +1 reset by it 2",
        ),
    ]);
}

#[test]
fn blocks_go_on_until_they_end() {
    let status = block(&[(":status", "200")]);
    let (first, second) = status.split_at(4);
    let begun = frame(HEADERS, 0, 1, first);
    let more = |flags, stream, bytes: &[u8]| frame(CONTINUATION, flags, stream, bytes);
    let priority = [&[0, 0, 0, 0, 1], status.as_slice()].concat();
    let itself = [&[0, 0, 0, 1, 1], status.as_slice()].concat();
    let padded = [&[3], status.as_slice(), &[0; 3]].concat();
    let flags = END_HEADERS | END_STREAM;
    let endless = more(0, 1, b"").repeat(40);
    check(&[
        (
            "in two",
            vec![begun.clone(), more(END_HEADERS, 1, second)],
            "1: 200",
        ),
        (
            "in three",
            vec![begun.clone(), more(0, 1, b""), more(END_HEADERS, 1, second)],
            "1: 200",
        ),
        (
            "torn",
            vec![begun.clone(), frame(PING, 0, 0, &[0; 8])],
            "fatal 1",
        ),
        (
            "of another",
            vec![begun.clone(), more(END_HEADERS, 3, second)],
            "fatal 1",
        ),
        ("of none", vec![more(END_HEADERS, 1, &status)], "fatal 1"),
        ("endless", vec![begun, endless], "fatal 11"),
        (
            "priority",
            vec![frame(HEADERS, flags | WITH_PRIORITY, 1, &priority)],
            "1: 200 end",
        ),
        (
            "its own parent",
            vec![frame(HEADERS, flags | WITH_PRIORITY, 1, &itself)],
            "fatal 1",
        ),
        (
            "padded",
            vec![frame(HEADERS, flags | PADDED, 1, &padded)],
            "1: 200 end",
        ),
        (
            "no block",
            vec![frame(HEADERS, flags, 1, &[0x80])],
            "fatal 9",
        ),
    ]);
    // Large heads are taken up to a bound, and the connection goes on beyond it.
    let large = |count: usize| {
        let line = ("a", "x".repeat(100));
        let mut fields = vec![(":status", "200")];
        fields.extend((0..count).map(|_| (line.0, line.1.as_str())));
        let block = block(&fields);
        let mut frames = Vec::new();
        let mut pieces = block.chunks(16_384).peekable();
        let mut kind = HEADERS;
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() {
                END_HEADERS
            } else {
                0
            };
            frames.extend(frame(kind, flags, 1, piece));
            kind = CONTINUATION;
        }
        frames
    };
    let hear = |bytes: Vec<u8>| {
        let mut met = super::Met::new();
        met.ask();
        met.said();
        met.hear(&bytes)
    };
    assert_eq!(hear(large(1900)), "1: 200");
    assert_eq!(hear(large(2000)), "1: malformed, reset 1 1");
    assert_eq!(hear(large(7000)), "fatal 11");
}

#[test]
fn a_connection_begins_with_settings() {
    use tokio::time::Instant;
    for bytes in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, ACK, 0, &[])] {
        let mut core = super::Core::new(Instant::now());
        assert!(core.receive(&bytes, Instant::now()).is_err());
    }
}
