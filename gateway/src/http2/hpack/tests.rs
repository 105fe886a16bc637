//! The examples of RFC 7541, blocks that are none, and what is written.

use std::fmt::Write as _;

use http::{HeaderName, HeaderValue, StatusCode};

use super::table::STATIC;
use super::{BadBlock, Decoder, Encoder, Field, encoder, huffman};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn shown(field: &Field) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match field {
        Field::Method(method) => format!(":method={method}"),
        Field::Scheme(value) => format!(":scheme={}", text(value)),
        Field::Authority(value) => format!(":authority={}", text(value)),
        Field::Path(value) => format!(":path={}", text(value)),
        // No request has one.
        Field::Status(_) => "bad :status".to_owned(),
        Field::Plain(name, value) => format!("{name}={}", text(value.as_bytes())),
        Field::Bad(name) => format!("bad {}", text(name)),
    }
}

/// What a block says, a line a field, and the size of what is remembered afterwards.
fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<(String, usize), BadBlock> {
    let mut lines = String::new();
    decoder.decode(block, |field, _| {
        writeln!(lines, "{}", shown(field)).unwrap();
        true
    })?;
    Ok((lines, decoder.table_size()))
}

#[test]
fn the_examples_of_the_standard_are_read() {
    // RFC 7541, appendix C: each group on one connection; a group of answers within 256 bytes.
    let small = "3fe101";
    let groups: [&[(&str, &str, usize)]; 8] = [
        &[(
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-key=custom-header",
            55,
        )],
        &[(
            "040c 2f73 616d 706c 652f 7061 7468",
            ":path=/sample/path",
            0,
        )],
        &[(
            "1008 7061 7373 776f 7264 0673 6563 7265 74",
            "password=secret",
            0,
        )],
        &[("82", ":method=GET", 0)],
        &[
            (
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                ":method=GET|:scheme=http|:path=/|:authority=www.example.com",
                57,
            ),
            (
                "8286 84be 5808 6e6f 2d63 6163 6865",
                ":method=GET|:scheme=http|:path=/|:authority=www.example.com|cache-control=no-cache",
                110,
            ),
            (
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
                ":method=GET|:scheme=https|:path=/index.html|:authority=www.example.com|custom-key=custom-value",
                164,
            ),
        ],
        &[
            (
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                ":method=GET|:scheme=http|:path=/|:authority=www.example.com",
                57,
            ),
            (
                "8286 84be 5886 a8eb 1064 9cbf",
                ":method=GET|:scheme=http|:path=/|:authority=www.example.com|cache-control=no-cache",
                110,
            ),
            (
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
                ":method=GET|:scheme=https|:path=/index.html|:authority=www.example.com|custom-key=custom-value",
                164,
            ),
        ],
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 \
                 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 \
                 6c65 2e63 6f6d",
                "bad :status|cache-control=private|date=Mon, 21 Oct 2013 20:13:21 GMT|location=https://www.example.com",
                222,
            ),
            (
                "4803 3330 37c1 c0bf",
                "bad :status|cache-control=private|date=Mon, 21 Oct 2013 20:13:21 GMT|location=https://www.example.com",
                222,
            ),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d \
                 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 \
                 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
                 3d31",
                "bad :status|cache-control=private|date=Mon, 21 Oct 2013 20:13:22 GMT|location=https://www.example.com|content-encoding=gzip|set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                215,
            ),
        ],
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
                 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                "bad :status|cache-control=private|date=Mon, 21 Oct 2013 20:13:21 GMT|location=https://www.example.com",
                222,
            ),
            (
                "4883 640e ffc1 c0bf",
                "bad :status|cache-control=private|date=Mon, 21 Oct 2013 20:13:21 GMT|location=https://www.example.com",
                222,
            ),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
                 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
                 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                "bad :status|cache-control=private|date=Mon, 21 Oct 2013 20:13:22 GMT|location=https://www.example.com|content-encoding=gzip|set-cookie=foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
                215,
            ),
        ],
    ];
    for group in groups {
        let mut decoder = Decoder::new();
        if group.iter().any(|(_, _, size)| *size > 200) {
            assert_eq!(decoded(&mut decoder, &bytes(small)), Ok((String::new(), 0)));
        }
        for (block, expected, size) in group {
            let (lines, remembered) = decoded(&mut decoder, &bytes(block)).unwrap();
            let lines: Vec<_> = lines.lines().collect();
            assert_eq!(
                (lines.join("|").as_str(), remembered),
                (*expected, *size),
                "{block}"
            );
        }
    }
}

#[test]
fn blocks_that_are_none_are_refused() {
    use BadBlock::*;
    for (block, expected) in [
        ("80", Index),
        ("be", Index),        // the first that is remembered, and nothing is
        ("ff00", Index),      // far beyond
        ("7f00 0161", Index), // a name from there
        ("40", Cut),
        ("4001", Cut),
        ("4001 61", Cut),
        ("4001 6102 62", Cut),
        ("41", Cut),
        ("ff", Cut),
        ("ff80", Cut),
        ("ff8080808080", Number),
        ("ffffffffffff", Number),
        ("417f ffffffffff", Number),
        ("4181 00", Huffman),       // a code that is followed by zeros
        ("4184 ffffffff", Huffman), // the end's code
        ("4182 1fff", Huffman),     // filled up with more than seven ones
        ("4181 ff", Huffman),
        ("3fe21f", Resize), // 4097 bytes
        ("82 20", Resize),  // not in front
        ("20 82 20", Resize),
    ] {
        let mut decoder = Decoder::new();
        assert_eq!(
            decoded(&mut decoder, &bytes(block)).err(),
            Some(expected),
            "{block}"
        );
    }
    // Empty texts, and two resizes in front, are fine.
    for block in ["4000 00", "4080 80", "20 3fe11f 82", "0f0d 00", ""] {
        let mut decoder = Decoder::new();
        assert!(decoded(&mut decoder, &bytes(block)).is_ok(), "{block}");
    }
}

#[test]
fn what_is_remembered_has_a_bound() {
    let mut decoder = Decoder::new();
    let line = |value: usize| {
        let mut block = vec![0x40, 1, b'a', 0x7f];
        // The value's length, with seven bits and then more.
        let mut rest = value - 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).unwrap() | 0x80);
            rest /= 128;
        }
        block.push(u8::try_from(rest).unwrap());
        block.resize(block.len() + value, b'x');
        block
    };
    for _ in 0..100 {
        decoded(&mut decoder, &line(1000)).unwrap();
        assert!(decoder.table_size() <= 4096);
    }
    assert_eq!(decoder.table_size(), 3 * 1033);
    // Larger than all of it: nothing is left, and that is no fault.
    let (lines, size) = decoded(&mut decoder, &line(5000)).unwrap();
    assert_eq!((lines.len(), size), (5003, 0));
    // Resized to nothing and back.
    decoded(&mut decoder, &line(200)).unwrap();
    assert_eq!(decoded(&mut decoder, &bytes("20")).unwrap().1, 0);
    assert_eq!(decoded(&mut decoder, &bytes("be")), Err(BadBlock::Index));
}

#[test]
fn fields_are_judged_when_they_come_and_when_they_are_named_again() {
    let mut decoder = Decoder::new();
    // An indexed value that no line may have, then its name with a fine one.
    let bad = bytes("4001 6101 0a");
    assert_eq!(decoded(&mut decoder, &bad).unwrap().0, "bad a\n");
    assert_eq!(decoded(&mut decoder, &bytes("be")).unwrap().0, "bad a\n");
    assert_eq!(decoded(&mut decoder, &bytes("7e 0162")).unwrap().0, "a=b\n");
    for (block, expected) in [
        ("0001 4101 62", "bad A"),
        ("0000 0162", "bad "),
        ("0002 6120 0162", "bad a "),
        ("0002 3a61 0162", "bad :a"),
        ("0209 4745 5420 2f78 2048 54", "bad :method"),
        ("0801 31", "bad :status"),
        ("0001 6101 00", "bad a"),
        ("0001 6101 7f", "bad a"),
        ("0001 6101 09", "a=\t"),
        ("0001 6101 ff", "a=\u{fffd}"),
    ] {
        let mut decoder = Decoder::new();
        let lines = decoded(&mut decoder, &bytes(block)).unwrap().0;
        assert_eq!(lines.trim_end_matches('\n'), expected, "{block}");
    }
}

#[test]
fn every_text_survives_huffman() {
    let all: Vec<u8> = (0..=255).collect();
    let mut text = Vec::new();
    huffman::decode(&huffman::encode(&all), &mut text).unwrap();
    assert_eq!(text, all);
    for byte in 0..=255_u8 {
        for count in 1..9 {
            let said = vec![byte; count];
            let mut text = Vec::new();
            huffman::decode(&huffman::encode(&said), &mut text).unwrap();
            assert_eq!(text, said);
        }
    }
}

#[test]
fn what_is_written_is_what_is_read() {
    let mut block = Vec::new();
    let mut writer = Encoder::default();
    writer.begin(&mut block);
    encoder::status(&mut block, StatusCode::OK);
    encoder::status(&mut block, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(block, [0x88, 8, 3, b'4', b'2', b'9']);
    let mut block = Vec::new();
    let mut expected = String::new();
    for (name, _) in STATIC.iter().filter(|(name, _)| !name.starts_with(':')) {
        let name = HeaderName::from_static(name);
        for length in [0, 1, 126, 127, 128, 254, 255, 300, 20_000] {
            let value = HeaderValue::from_str(&"v".repeat(length)).unwrap();
            encoder::field(&mut block, &name, &value);
            writeln!(expected, "{name}={}", "v".repeat(length)).unwrap();
        }
    }
    let mut secret = HeaderValue::from_static("s");
    secret.set_sensitive(true);
    let start = block.len();
    encoder::field(&mut block, &HeaderName::from_static("audit-id"), &secret);
    assert_eq!(block[start], 0x10, "remembered by nobody");
    expected.push_str("audit-id=s\n");
    let (lines, size) = decoded(&mut Decoder::new(), &block).unwrap();
    assert_eq!((lines == expected, size), (true, 0));
}

#[test]
fn a_peer_that_keeps_less_is_told_once() {
    let begun = |writer: &mut Encoder| {
        let mut block = Vec::new();
        writer.begin(&mut block);
        block
    };
    let mut writer = Encoder::default();
    writer.peer_keeps(4096);
    writer.peer_keeps(65_536);
    assert!(begun(&mut writer).is_empty());
    writer.peer_keeps(0);
    assert_eq!(begun(&mut writer), [0x20]);
    writer.peer_keeps(100);
    assert!(begun(&mut writer).is_empty());
}

#[test]
fn what_nobody_is_to_remember_stays_so() {
    let mut reader = Decoder::new();
    for (first, is_secret) in [(0x10, true), (0, false), (0x40, false)] {
        let block = [first, 1, b'a', 1, b'b'];
        let mut seen = None;
        reader
            .decode(&block, |field, _| {
                if let Field::Plain(_, value) = field {
                    seen = Some(value.is_sensitive());
                }
                true
            })
            .unwrap();
        assert_eq!(seen, Some(is_secret), "{first}");
    }
    let mut secret = HeaderValue::from_static("b");
    secret.set_sensitive(true);
    let mut out = Vec::new();
    encoder::field(&mut out, &HeaderName::from_static("a"), &secret);
    assert_eq!(out, [0x10, 1, b'a', 1, b'b']);
}
