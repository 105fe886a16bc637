//! What RFC 9113 asks of a server, a case a line.

use std::sync::Arc;
use std::time::Instant;

use super::super::core::Core;
use super::{LIMITS, Met, block, frame, get, get_with, heard, open, whole};
use crate::http2::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PREFACE,
    PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY,
};

#[test]
fn a_connection_begins_with_preface_and_settings() {
    let begin = |bytes: &[u8]| {
        let now = Instant::now();
        let core = Core::new(LIMITS, Arc::default(), now);
        let uploads = Vec::new();
        Met { core, uploads, now }.hear(bytes)
    };
    let ours = "settings, window 0 4465";
    let settings = frame(SETTINGS, 0, 0, &[]);
    for (bytes, expected) in [
        (b"".to_vec(), String::new()),
        ([PREFACE.as_slice(), &settings].concat(), ", settled".into()),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), ", fatal 1".into()),
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r".to_vec(),
            ", fatal 1".into(),
        ),
        ([PREFACE.as_slice(), &whole(1)].concat(), ", fatal 1".into()),
        (
            [PREFACE.as_slice(), &frame(SETTINGS, ACK, 0, &[])].concat(),
            ", fatal 1".into(),
        ),
    ] {
        assert_eq!(begin(&bytes), format!("{ours}{expected}"), "{bytes:?}");
    }
}

#[test]
fn frames_are_held_to_their_rules() {
    let setting = |name: u16, value: u32| {
        let content = [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        frame(SETTINGS, 0, 0, &content)
    };
    let mut huge = frame(DATA, 0, 1, &[]);
    huge[0..3].copy_from_slice(&[0, 0x40, 1]);
    let update = |stream, more: u32| frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
    let reset = |stream| frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    let cases: Vec<(&str, Vec<Vec<u8>>, &str)> = vec![
        // 4.2, 4.1
        ("too large", vec![huge], "fatal 6"),
        ("unknown kind", vec![frame(0x16, 0xff, 7, b"x")], ""),
        (
            "reserved bit",
            vec![frame(HEADERS, 5, 0x8000_0001, &get())],
            "asked 1",
        ),
        ("unknown flags", vec![frame(PING, 0xfe, 0, &[0; 8])], "pong"),
        // 5.1
        ("data, idle", vec![frame(DATA, 0, 1, b"x")], "fatal 1"),
        (
            "data, idle and even",
            vec![frame(DATA, 0, 2, b"x")],
            "fatal 1",
        ),
        ("reset, idle", vec![reset(1)], "fatal 1"),
        ("window, idle", vec![update(1, 1)], "fatal 1"),
        (
            "reset, idle and even",
            vec![whole(3), reset(2)],
            "asked 3, fatal 1",
        ),
        (
            "window, idle and even",
            vec![whole(3), update(2, 1)],
            "asked 3, fatal 1",
        ),
        (
            "continuation, idle",
            vec![frame(CONTINUATION, 4, 1, &get())],
            "fatal 1",
        ),
        (
            "priority, idle",
            vec![frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])],
            "",
        ),
        (
            "data, half closed",
            vec![whole(1), frame(DATA, 0, 1, b"x")],
            "asked 1, gone 1, reset 1 5",
        ),
        (
            "head, half closed",
            vec![whole(1), whole(1)],
            "asked 1, gone 1, reset 1 5",
        ),
        (
            "window, half closed",
            vec![whole(1), update(1, 1)],
            "asked 1",
        ),
        (
            "priority, half closed",
            vec![whole(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])],
            "asked 1",
        ),
        (
            "data, after a reset",
            vec![open(1), reset(1), frame(DATA, 0, 1, b"x")],
            "asked 1, gone 1, reset 1 5",
        ),
        (
            "head, after a reset",
            vec![open(1), reset(1), whole(1)],
            "asked 1, gone 1, fatal 5",
        ),
        (
            "reset, after a reset",
            vec![open(1), reset(1), reset(1)],
            "asked 1, gone 1",
        ),
        (
            "window, after a reset",
            vec![open(1), reset(1), update(1, 1)],
            "asked 1, gone 1",
        ),
        // 5.1.1
        ("an even stream", vec![whole(2)], "fatal 1"),
        ("stream 0", vec![whole(0)], "fatal 1"),
        (
            "back in number",
            vec![whole(5), whole(3)],
            "asked 5, fatal 5",
        ),
        // 5.1.2
        (
            "too many",
            vec![
                whole(1),
                whole(3),
                whole(5),
                whole(7),
                whole(9),
                open(11),
                frame(DATA, 1, 11, b"x"),
            ],
            "asked 1, asked 3, asked 5, asked 7, reset 9 7, reset 11 7",
        ),
        // 5.3.1 of RFC 7540
        (
            "its own parent",
            vec![frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 1])],
            "fatal 1",
        ),
        (
            "its own parent, with a head",
            vec![frame(
                HEADERS,
                5 | WITH_PRIORITY,
                1,
                &[&[0, 0, 0, 1, 1], get().as_slice()].concat(),
            )],
            "reset 1 1",
        ),
        // 6.1
        ("data of none", vec![frame(DATA, 0, 0, b"x")], "fatal 1"),
        (
            "padding is all",
            vec![open(1), frame(DATA, PADDED, 1, &[1, 0])],
            "asked 1",
        ),
        (
            "padding too long",
            vec![open(1), frame(DATA, PADDED, 1, &[2, 0])],
            "asked 1, fatal 1",
        ),
        (
            "padding without length",
            vec![open(1), frame(DATA, PADDED, 1, &[])],
            "asked 1, fatal 6",
        ),
        // 6.2
        (
            "padded head",
            vec![frame(
                HEADERS,
                5 | PADDED,
                1,
                &[&[3], get().as_slice(), &[0; 3]].concat(),
            )],
            "asked 1",
        ),
        (
            "head padded too long",
            vec![frame(HEADERS, 5 | PADDED, 1, &[255, 0])],
            "fatal 1",
        ),
        (
            "a head with a priority",
            vec![frame(
                HEADERS,
                5 | WITH_PRIORITY,
                1,
                &[&[0x80, 0, 0, 3, 9], get().as_slice()].concat(),
            )],
            "asked 1",
        ),
        (
            "a priority cut short",
            vec![frame(HEADERS, 5 | WITH_PRIORITY, 1, &[0; 4])],
            "fatal 6",
        ),
        // 6.3
        (
            "priority of none",
            vec![frame(PRIORITY, 0, 0, &[0, 0, 0, 1, 1])],
            "fatal 1",
        ),
        (
            "priority of another size",
            vec![frame(PRIORITY, 0, 1, &[0; 4])],
            "fatal 6",
        ),
        (
            "priority of another size, open",
            vec![open(1), frame(PRIORITY, 0, 1, &[0; 4])],
            "asked 1, gone 1, reset 1 6",
        ),
        (
            "its own parent, open",
            vec![open(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 1])],
            "asked 1, gone 1, reset 1 1",
        ),
        // 6.4
        ("reset of none", vec![reset(0)], "fatal 1"),
        (
            "reset of another size",
            vec![open(1), frame(RST_STREAM, 0, 1, &[0; 3])],
            "asked 1, fatal 6",
        ),
        // 6.5
        (
            "acknowledged with content",
            vec![frame(SETTINGS, ACK, 0, &[0; 6])],
            "fatal 6",
        ),
        ("acknowledged", vec![frame(SETTINGS, ACK, 0, &[])], ""),
        (
            "settings of a stream",
            vec![frame(SETTINGS, 0, 1, &[])],
            "fatal 1",
        ),
        (
            "settings cut short",
            vec![frame(SETTINGS, 0, 0, &[0; 5])],
            "fatal 6",
        ),
        ("push 2", vec![setting(2, 2)], "fatal 1"),
        ("push 0", vec![setting(2, 0)], "settled"),
        ("window 2^31", vec![setting(4, 1 << 31)], "fatal 3"),
        (
            "window 2^31 - 1",
            vec![setting(4, (1 << 31) - 1)],
            "settled",
        ),
        ("frames of 16383", vec![setting(5, 16_383)], "fatal 1"),
        ("frames of 2^24", vec![setting(5, 1 << 24)], "fatal 1"),
        (
            "frames of 2^24 - 1",
            vec![setting(5, (1 << 24) - 1)],
            "settled",
        ),
        ("an unknown setting", vec![setting(99, 7)], "settled"),
        // 6.6
        (
            "a push",
            vec![frame(PUSH_PROMISE, 4, 1, &[0, 0, 0, 2])],
            "fatal 1",
        ),
        // 6.7
        ("ping", vec![frame(PING, 0, 0, &[7; 8])], "pong"),
        ("pong", vec![frame(PING, ACK, 0, &[7; 8])], ""),
        (
            "ping of a stream",
            vec![frame(PING, 0, 1, &[7; 8])],
            "fatal 1",
        ),
        (
            "ping of another size",
            vec![frame(PING, 0, 0, &[7; 6])],
            "fatal 6",
        ),
        // 6.8
        (
            "goodbye of a stream",
            vec![frame(GOAWAY, 0, 1, &[0; 8])],
            "fatal 1",
        ),
        (
            "goodbye cut short",
            vec![frame(GOAWAY, 0, 0, &[0; 7])],
            "fatal 6",
        ),
        (
            "goodbye",
            vec![frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0why")],
            "",
        ),
        // 6.9
        ("window by 0", vec![update(0, 0)], "fatal 1"),
        (
            "window of a stream by 0",
            vec![open(1), update(1, 0)],
            "asked 1, gone 1, reset 1 1",
        ),
        (
            "window of another size",
            vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])],
            "fatal 6",
        ),
        ("window beyond", vec![update(0, (1 << 31) - 1)], "fatal 3"),
        (
            "window of a stream beyond",
            vec![open(1), update(1, (1 << 31) - 1)],
            "asked 1, gone 1, reset 1 3",
        ),
        (
            "windows beyond by settings",
            vec![open(1), update(1, 100), setting(4, (1 << 31) - 1)],
            "asked 1, fatal 3",
        ),
        (
            "more than the stream's window",
            vec![open(1), frame(DATA, 0, 1, &[0; 1001])],
            "asked 1, gone 1, reset 1 3",
        ),
        // 6.10
        (
            "in three pieces",
            vec![
                frame(HEADERS, END_STREAM, 1, &get()[..9]),
                frame(CONTINUATION, 0, 1, &get()[9..20]),
                frame(CONTINUATION, END_HEADERS, 1, &get()[20..]),
            ],
            "asked 1",
        ),
        (
            "torn by another frame",
            vec![frame(HEADERS, 0, 1, &get()), frame(PING, 0, 0, &[0; 8])],
            "fatal 1",
        ),
        (
            "torn by another stream",
            vec![frame(HEADERS, 0, 1, &get()), whole(3)],
            "fatal 1",
        ),
        (
            "torn by an unknown one",
            vec![frame(HEADERS, 0, 1, &get()), frame(77, 0, 1, &[])],
            "fatal 1",
        ),
        (
            "continued elsewhere",
            vec![frame(HEADERS, 0, 1, &get()), frame(CONTINUATION, 4, 3, &[])],
            "fatal 1",
        ),
        (
            "continued after its end",
            vec![whole(1), frame(CONTINUATION, 4, 1, &get())],
            "asked 1, fatal 1",
        ),
        (
            "continued for ever",
            [
                vec![frame(HEADERS, 0, 1, &get())],
                vec![frame(CONTINUATION, 0, 1, &[]); 6],
            ]
            .concat(),
            "fatal 11",
        ),
        // 4.3
        (
            "no header block",
            vec![frame(HEADERS, 5, 1, &[0x40, 0x80])],
            "fatal 9",
        ),
    ];
    for (name, frames, expected) in cases {
        assert_eq!(heard(&frames.concat()), expected, "{name}");
    }
}

#[test]
fn requests_are_held_to_their_rules() {
    let fields = |fields: &[(&str, &str)]| block(fields);
    let swap = |name: &str, value: &str| {
        let all = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", "/p"),
        ];
        let all = all.map(|(n, v)| (n, if n == name { value } else { v }));
        let kept: Vec<_> = all.into_iter().filter(|(_, v)| *v != "-").collect();
        block(&kept)
    };
    let refused = "reset 1 1";
    let long = "x".repeat(120);
    let many: Vec<_> = (0..8).map(|_| ("a", long.as_str())).collect();
    let far: Vec<_> = (0..40).map(|_| ("a", long.as_str())).collect();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("plain", get(), "asked 1"),
        ("no authority", swap(":authority", "-"), "asked 1"),
        ("no method", swap(":method", "-"), refused),
        ("no scheme", swap(":scheme", "-"), refused),
        ("no path", swap(":path", "-"), refused),
        ("an empty path", swap(":path", ""), refused),
        ("a star", swap(":path", "*"), "asked 1"),
        ("a space in a path", swap(":path", "/a b"), refused),
        ("a line end in a path", swap(":path", "/a\r\nb: c"), refused),
        ("a space in a method", swap(":method", "GET /"), refused),
        ("an empty method", swap(":method", ""), refused),
        ("no authority at all", swap(":authority", "a b"), refused),
        ("no scheme at all", swap(":scheme", "h ttp"), refused),
        ("two methods", get_with(&[(":method", "GET")]), refused),
        ("two paths", get_with(&[(":path", "/p")]), refused),
        ("two schemes", get_with(&[(":scheme", "https")]), refused),
        ("two authorities", get_with(&[(":authority", "a")]), refused),
        ("a status", get_with(&[(":status", "200")]), refused),
        (
            "a protocol",
            get_with(&[(":protocol", "websocket")]),
            refused,
        ),
        ("an unknown pseudo field", get_with(&[(":x", "y")]), refused),
        (
            "a pseudo field behind",
            fields(&[
                ("a", "b"),
                (":method", "GET"),
                (":scheme", "https"),
                (":path", "/"),
            ]),
            refused,
        ),
        ("capitals", get_with(&[("A", "b")]), refused),
        ("an empty name", get_with(&[("", "b")]), refused),
        ("a space in a name", get_with(&[("a b", "c")]), refused),
        ("a colon in a name", get_with(&[("a:b", "c")]), refused),
        ("connection", get_with(&[("connection", "close")]), refused),
        ("keep-alive", get_with(&[("keep-alive", "1")]), refused),
        (
            "proxy-connection",
            get_with(&[("proxy-connection", "close")]),
            refused,
        ),
        (
            "transfer-encoding",
            get_with(&[("transfer-encoding", "chunked")]),
            refused,
        ),
        ("upgrade", get_with(&[("upgrade", "websocket")]), refused),
        ("te: gzip", get_with(&[("te", "gzip")]), refused),
        (
            "te: trailers, gzip",
            get_with(&[("te", "trailers, gzip")]),
            refused,
        ),
        ("te: trailers", get_with(&[("te", "trailers")]), "asked 1"),
        ("NUL", get_with(&[("a", "b\0")]), refused),
        ("CR", get_with(&[("a", "b\rc")]), refused),
        ("LF", get_with(&[("a", "b\nc")]), refused),
        (
            "a length and no content",
            get_with(&[("content-length", "1")]),
            refused,
        ),
        (
            "a length of none",
            get_with(&[("content-length", "0")]),
            "asked 1",
        ),
        (
            "an empty length",
            get_with(&[("content-length", "")]),
            refused,
        ),
        (
            "a signed length",
            get_with(&[("content-length", "+0")]),
            refused,
        ),
        (
            "a huge length",
            get_with(&[("content-length", "99999999999999999999")]),
            refused,
        ),
        (
            "two lengths",
            get_with(&[("content-length", "0"), ("content-length", "1")]),
            refused,
        ),
        (
            "one length twice",
            get_with(&[("content-length", "0"), ("content-length", "0")]),
            "asked 1",
        ),
        (
            "a tunnel",
            fields(&[(":method", "CONNECT"), (":authority", "a:1")]),
            "asked 1",
        ),
        (
            "a tunnel with a path",
            fields(&[
                (":method", "CONNECT"),
                (":authority", "a:1"),
                (":path", "/"),
            ]),
            refused,
        ),
        (
            "a tunnel with a scheme",
            fields(&[
                (":method", "CONNECT"),
                (":authority", "a:1"),
                (":scheme", "https"),
            ]),
            refused,
        ),
        ("too large", get_with(&many), "head 1 end"),
        ("far too large", get_with(&far), "fatal 11"),
    ];
    for (name, block, expected) in cases {
        let bytes = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
        let heard = heard(&bytes).replace("asked 1, reset", "reset");
        assert_eq!(heard, expected, "{name}");
    }
    // An answer is all there is to a head that is too large.
    let open = frame(HEADERS, END_HEADERS, 1, &get_with(&many));
    assert_eq!(heard(&open), "head 1 end, reset 1 0");
}

#[test]
fn contents_are_held_to_their_length_and_trailers_to_their_rules() {
    let post = |length: &str| {
        frame(
            HEADERS,
            END_HEADERS,
            1,
            &get_with(&[("content-length", length)]),
        )
    };
    let data = |end: u8, bytes: &[u8]| frame(DATA, end, 1, bytes);
    let trailers =
        |flags: u8, fields: &[(&str, &str)]| frame(HEADERS, END_HEADERS | flags, 1, &block(fields));
    let broken = "asked 1, gone 1, reset 1 1";
    for (name, frames, expected) in [
        (
            "as said",
            vec![post("4"), data(0, b"ab"), data(END_STREAM, b"cd")],
            "asked 1",
        ),
        ("less", vec![post("4"), data(END_STREAM, b"abc")], broken),
        ("more", vec![post("4"), data(0, b"abcde")], broken),
        ("more than none", vec![post("0"), data(0, b"a")], broken),
        (
            "none at the end",
            vec![post("4"), data(0, b"abcd"), data(END_STREAM, b"")],
            "asked 1",
        ),
        (
            "trailers",
            vec![
                post("4"),
                data(0, b"abcd"),
                trailers(END_STREAM, &[("a", "b")]),
            ],
            "asked 1",
        ),
        (
            "trailers too early",
            vec![post("4"), trailers(END_STREAM, &[("a", "b")])],
            broken,
        ),
        (
            "trailers that end nothing",
            vec![open(1), trailers(0, &[("a", "b")])],
            broken,
        ),
        (
            "trailers that ask",
            vec![open(1), trailers(END_STREAM, &[(":path", "/")])],
            broken,
        ),
        (
            "trailers with capitals",
            vec![open(1), trailers(END_STREAM, &[("A", "b")])],
            broken,
        ),
        (
            "data after trailers",
            vec![open(1), trailers(END_STREAM, &[]), data(0, b"x")],
            "asked 1, gone 1, reset 1 5",
        ),
    ] {
        assert_eq!(heard(&frames.concat()), expected, "{name}");
    }
}
