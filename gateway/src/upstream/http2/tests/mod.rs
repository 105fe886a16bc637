//! A connection without a socket: what it says to what it hears.

mod driving;
mod oracle;
mod rules;

use std::task::Waker;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method};
use tokio::time::Instant;

use super::core::{Ask, Core, Room};
use super::error::StreamError;
use super::streams::{End, Ending};
use crate::http2::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEAD_BYTES, HEADERS, Head, PING,
    PREFACE, RST_STREAM, Reason, SETTINGS, WINDOW_UPDATE,
};

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::http2::frames::write(&mut bytes, kind, flags, stream, content);
    bytes
}

/// Fields spelt out and remembered by nobody.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(u8::try_from(text.len()).unwrap());
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

/// A head that more follows, and one that is all.
fn head(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(fields))
}

fn whole(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(fields))
}

fn ok(stream: u32) -> Vec<u8> {
    head(stream, &[(":status", "200")])
}

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let content: Vec<u8> = pairs
        .iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    frame(SETTINGS, 0, 0, &content)
}

fn update(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

fn reset(stream: u32, reason: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &reason.to_be_bytes())
}

fn goodbye(last: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat())
}

struct Met {
    core: Core,
    now: Instant,
    places: Vec<(u32, usize)>,
}

impl Met {
    /// A connection that has begun.
    fn new() -> Met {
        let now = Instant::now();
        let mut met = Met {
            core: Core::new(now),
            now,
            places: Vec::new(),
        };
        assert_eq!(met.said(), ["settings", "window 0 67043329"]);
        assert_eq!(met.hear(&settings(&[(3, 4)])), "settled");
        met
    }

    fn ask_as(&mut self, method: &Method, has_content: bool) -> u32 {
        let id = self.core.next_id;
        let ask = Ask {
            method,
            is_tls: true,
            authority: &Authority::from_static("a"),
            path: &PathAndQuery::from_static("/p"),
            headers: &HeaderMap::new(),
            length: None,
        };
        assert_eq!(self.core.room(), Room::Free);
        let place = self.core.open(&ask, has_content, None);
        self.places.push((id, place));
        id
    }

    fn ask(&mut self) -> u32 {
        self.ask_as(&Method::GET, false)
    }

    fn place(&self, id: u32) -> usize {
        self.places.iter().find(|(it, _)| *it == id).unwrap().1
    }

    fn send(&mut self, id: u32, bytes: usize, is_last: bool) {
        let ending = is_last.then_some(Ending::Plain);
        let place = self.place(id);
        self.core.send(place, Bytes::from(vec![0; bytes]), ending);
    }

    fn drop_reader(&mut self, id: u32) {
        let place = self.place(id);
        self.core.leave_reading(place);
        self.places.retain(|(it, _)| *it != id);
    }

    /// What became of these bytes: the state of each request that has one, what was said, and
    /// whether that was the end.
    fn hear(&mut self, bytes: &[u8]) -> String {
        let heard = self.core.receive(bytes, self.now);
        self.core.fill();
        let mut words = Vec::new();
        for (id, place) in &self.places {
            let stream = self.core.streams.get(*place).unwrap();
            let mut word = String::new();
            if let Some(head) = &stream.head {
                word += &format!(" {}", head.status.as_u16());
            }
            if !stream.held.is_empty() {
                word += &format!(" +{}", stream.held_bytes());
            }
            if stream.trailers.is_some() {
                word += " trailers";
            }
            match &stream.end {
                End::Open => {}
                End::Whole => word += " end",
                End::Broken(error) => word += &format!(" {}", shown(error)),
            }
            if !word.is_empty() {
                words.push(format!("{id}:{word}"));
            }
        }
        words.extend(self.said());
        if let Err(fatal) = heard {
            words.push(format!("fatal {}", fatal.reason.0));
        }
        words.join(", ")
    }

    /// The frames that were written.
    fn said(&mut self) -> Vec<String> {
        let out = self.core.out.clone();
        self.core.wrote(out.len() - self.core.written);
        let mut rest = out.strip_prefix(PREFACE).unwrap_or(&out);
        let mut said = Vec::new();
        while let Some((head, more)) = rest.split_first_chunk::<HEAD_BYTES>() {
            let head = Head::read(*head);
            let (content, more) = more.split_at(usize::try_from(head.length).unwrap());
            rest = more;
            let word = crate::http2::frames::word(content).unwrap_or_default();
            let end = if head.has(END_STREAM) { " end" } else { "" };
            said.push(match head.kind {
                DATA => format!("data {} {}{end}", head.stream, content.len()),
                HEADERS => format!("head {}{end}", head.stream),
                CONTINUATION => format!("more {}", head.stream),
                RST_STREAM => format!("reset {} {word}", head.stream),
                SETTINGS if head.flags == ACK => "settled".to_owned(),
                SETTINGS => "settings".to_owned(),
                PING if head.flags == ACK => "pong".to_owned(),
                PING => "ping".to_owned(),
                GOAWAY => format!("goodbye {word}"),
                WINDOW_UPDATE => format!("window {} {word}", head.stream),
                other => format!("frame {other}"),
            });
        }
        said
    }
}

fn shown(error: &StreamError) -> String {
    match error {
        StreamError::Unseen { is_leaving: true } => "unseen for ever".to_owned(),
        StreamError::Unseen { .. } => "unseen".to_owned(),
        StreamError::Reset(Reason(reason)) => format!("reset by it {reason}"),
        StreamError::Malformed(_) => "malformed".to_owned(),
        StreamError::Ended(_) => "ended".to_owned(),
        StreamError::GivenUp => "given up".to_owned(),
        StreamError::TimedOut => "late".to_owned(),
    }
}

/// Two requests asked, then this taken whole, byte by byte, and in threes.
fn heard(bytes: &[u8]) -> String {
    let hear = |cut: usize| {
        let mut met = Met::new();
        met.ask();
        met.ask_as(&Method::HEAD, false);
        met.said();
        let mut words: Vec<String> = Vec::new();
        let (mut states, mut is_over) = (String::new(), false);
        for piece in bytes.chunks(cut) {
            if is_over {
                break;
            }
            let word = met.hear(piece);
            is_over = word.contains("fatal");
            // States are the last; what was said adds up.
            let (now, said): (Vec<&str>, Vec<&str>) =
                word.split(", ").partition(|it| it.contains(':'));
            states = now.join(", ");
            words.extend(
                said.iter()
                    .filter(|it| !it.is_empty())
                    .map(|it| (*it).to_owned()),
            );
        }
        let mut all: Vec<String> = (!states.is_empty()).then_some(states).into_iter().collect();
        all.extend(words);
        all.join(", ")
    };
    let whole = hear(bytes.len().max(1));
    for cut in [1, 3] {
        assert_eq!(hear(cut), whole, "{bytes:?} by {cut}");
    }
    whole
}

#[test]
fn a_request_is_one_head_and_one_that_is_long_goes_on() {
    let mut met = Met::new();
    met.ask();
    met.ask_as(&Method::POST, true);
    assert_eq!(met.said(), ["head 1 end", "head 3"]);
    let mut headers = HeaderMap::new();
    headers.insert("a", "x".repeat(40_000).parse().unwrap());
    let ask = Ask {
        method: &Method::GET,
        is_tls: false,
        authority: &Authority::from_static("a"),
        path: &PathAndQuery::from_static("/p?q"),
        headers: &headers,
        length: Some(0),
    };
    met.core.open(&ask, false, None);
    assert_eq!(met.said(), ["head 5 end", "more 5", "more 5"]);
}

#[test]
fn content_keeps_within_windows() {
    let mut met = Met::new();
    met.hear(&settings(&[(4, 10)]));
    let one = met.ask_as(&Method::POST, true);
    met.send(one, 25, false);
    assert_eq!(met.said(), ["head 1", "data 1 10"]);
    assert_eq!(met.hear(&update(1, 5)), "data 1 5");
    // Taken back, below nothing, and given again.
    assert_eq!(met.hear(&settings(&[(4, 0)])), "settled");
    assert_eq!(met.hear(&update(1, 10)), "");
    assert_eq!(met.hear(&update(1, 10)), "data 1 10");
    met.send(one, 0, true);
    assert_eq!(met.said(), ["data 1 0 end"], "an end needs no room");
    assert_eq!(met.hear(&ok(1)), "1: 200");
}

#[test]
fn the_connections_window_is_shared_frame_by_frame() {
    let mut met = Met::new();
    met.hear(&settings(&[(4, 1_000_000)]));
    let one = met.ask_as(&Method::POST, true);
    let two = met.ask_as(&Method::POST, true);
    met.said();
    met.send(one, 100_000, true);
    met.send(two, 20_000, true);
    let said = met.said();
    assert_eq!(said[..3], ["data 1 16384", "data 1 16384", "data 1 16384"]);
    assert_eq!(said[3..], ["data 1 16383"], "all of the window");
    assert_eq!(met.hear(&update(0, 30_000)), "data 1 16384, data 3 13616");
    let rest = met.hear(&update(0, 1_000_000));
    assert_eq!(rest, "data 1 16384, data 3 6384 end, data 1 1697 end");
}

#[test]
fn what_waits_to_be_written_is_bounded_and_streams_take_turns() {
    let mut met = Met::new();
    met.hear(&[settings(&[(4, 10_000_000)]), update(0, 10_000_000)].concat());
    let one = met.ask_as(&Method::POST, true);
    let two = met.ask_as(&Method::POST, true);
    met.send(one, 1_000_000, true);
    met.send(two, 1_000_000, true);
    assert!(met.core.out.len() < 100_000, "{}", met.core.out.len());
    met.said();
    for _ in 0..10 {
        met.core.fill();
        let said = met.said();
        let of = |id: &str| said.iter().filter(|it| it.starts_with(id)).count();
        assert_eq!(of("data 1"), of("data 3"), "{said:?}");
    }
}

#[test]
fn unread_content_is_granted_anew_when_it_is_taken() {
    let mut met = Met::new();
    let one = met.ask();
    met.said();
    met.hear(&ok(one));
    let full_of = |id| frame(DATA, 0, id, &[b'x'; 16_384]);
    let full = full_of(one);
    for _ in 0..16 {
        assert!(!met.hear(&full).contains("window"));
    }
    assert!(met.hear(&full).ends_with("malformed, reset 1 3"), "no more");
    // All of it is the connection's again, however a stream ends.
    let mut said = String::new();
    for number in 0..400_u32 {
        let id = met.ask();
        said += &met.hear(&[ok(id), full_of(id).repeat(16)].concat());
        said += ", ";
        match number % 3 {
            0 => {}
            1 => said += &met.hear(&reset(id, 8)),
            _ => said += &met.hear(&frame(DATA, END_STREAM, id, &[])),
        }
        met.drop_reader(id);
        said += ", ";
        said += &met.said().join(", ");
        said += ", ";
    }
    let bytes = |word: &str| word.strip_prefix("window 0 ")?.parse::<u64>().ok();
    let granted: u64 = said.split(", ").filter_map(bytes).sum();
    let sent = 400 * 16 * 16_384;
    assert!(granted > sent - 34_000_000, "{granted} of {sent}");
}

#[test]
fn small_pieces_are_kept_together() {
    let mut met = Met::new();
    let one = met.ask();
    met.hear(&ok(one));
    let small = frame(DATA, 0, one, b"xyz");
    met.hear(&small.repeat(10_000));
    let place = met.place(one);
    let stream = met.core.streams.get(place).unwrap();
    assert_eq!(stream.held_bytes(), 30_000);
    assert!(stream.held.len() < 60, "{}", stream.held.len());
}

#[test]
fn who_gives_up_tells_the_endpoint() {
    let mut met = Met::new();
    let one = met.ask();
    met.drop_reader(one);
    assert_eq!(met.said(), ["head 1 end", "reset 1 8"]);
    // What was on its way is no fault.
    let late = [ok(one), frame(DATA, END_STREAM, one, &[0; 100])].concat();
    assert_eq!(met.hear(&late), "");
    // With content that is not all there.
    let two = met.ask_as(&Method::POST, true);
    let place = met.place(two);
    met.core.leave_writing(place);
    assert_eq!(met.hear(&[]), "3: given up, head 3, reset 3 8");
    met.drop_reader(two);
    // After an answer that came early, there is nobody to blame.
    let three = met.ask_as(&Method::POST, true);
    let place = met.place(three);
    assert_eq!(
        met.hear(&whole(5, &[(":status", "403")])),
        "5: 403 end, head 5"
    );
    met.drop_reader(three);
    assert_eq!(met.said(), [""; 0], "the content goes on");
    met.core.send(place, Bytes::from_static(b"x"), None);
    met.core.leave_writing(place);
    assert_eq!(met.said(), ["data 5 1", "reset 5 0"]);
    assert_eq!(met.core.streams.open(), 0);
    // One that is all sent ends in peace.
    let four = met.ask_as(&Method::POST, true);
    met.send(four, 3, true);
    let place = met.place(four);
    met.core.leave_writing(place);
    assert_eq!(met.said(), ["head 7", "data 7 3 end"]);
    assert_eq!(met.hear(&whole(7, &[(":status", "204")])), "7: 204 end");
    met.drop_reader(four);
    assert_eq!(met.said(), [""; 0]);
    assert_eq!(met.core.unanswered, 0);
}

#[test]
fn goodbyes_let_what_is_looked_at_end() {
    let mut met = Met::new();
    met.ask();
    met.ask();
    assert_eq!(met.hear(&goodbye(0x7fff_ffff)), "head 1 end, head 3 end");
    assert_eq!(met.core.room(), Room::Never);
    assert_eq!(met.hear(&goodbye(1)), "3: unseen for ever");
    assert_eq!(met.hear(&ok(1)), "1: 200, 3: unseen for ever");
    let end = frame(DATA, END_STREAM, 1, b"x");
    assert_eq!(met.hear(&end), "1: 200 +1 end, 3: unseen for ever");
    assert_eq!(met.core.streams.open(), 0);
    assert!(met.hear(&goodbye(5)).ends_with("fatal 1"));
}

#[test]
fn of_a_connection_that_breaks_the_unwritten_was_never_sent() {
    let mut met = Met::new();
    met.ask();
    met.said();
    let written = met.core.out.len();
    met.ask();
    let half = met.core.out.len() - written;
    met.ask();
    // The second has gone in part.
    met.core.wrote(half - 1);
    met.core.end("so");
    assert_eq!(met.hear(&[]), "1: ended, 3: ended, 5: unseen for ever");
    assert_eq!(met.core.unanswered, 0);
}

#[test]
fn who_finds_no_room_is_woken_when_a_stream_ends() {
    let mut met = Met::new();
    for _ in 0..4 {
        met.ask();
    }
    assert_eq!(met.core.room(), Room::Full);
    met.core.wait_for_room(Waker::noop());
    met.core.wakes.clear();
    met.hear(&whole(1, &[(":status", "200")]));
    assert_eq!(met.core.wakes.len(), 1);
    assert_eq!(met.core.room(), Room::Free);
    // It may be told of fewer than are open, and of more.
    met.hear(&settings(&[(3, 2)]));
    assert_eq!(met.core.room(), Room::Full);
    met.core.wait_for_room(Waker::noop());
    met.core.wakes.clear();
    met.hear(&settings(&[(3, 100)]));
    assert_eq!(met.core.wakes.len(), 1);
}

#[test]
fn without_a_word_of_streams_there_is_no_limit() {
    let mut core = Core::new(Instant::now());
    core.receive(&settings(&[]), Instant::now()).unwrap();
    assert_eq!(core.streams_max, usize::MAX);
    core.receive(&settings(&[(3, 0)]), Instant::now()).unwrap();
    core.receive(&settings(&[]), Instant::now()).unwrap();
    assert_eq!(core.streams_max, 0);
}

#[test]
fn the_late_are_given_up_and_the_others_waited_for() {
    let mut met = Met::new();
    let second = std::time::Duration::from_secs(1);
    for seconds in [1, 3] {
        let ask = Ask {
            method: &Method::GET,
            is_tls: true,
            authority: &Authority::from_static("a"),
            path: &PathAndQuery::from_static("/p"),
            headers: &HeaderMap::new(),
            length: None,
        };
        let place = met.core.open(&ask, false, Some(met.now + seconds * second));
        met.places.push((2 * seconds - 1, place));
    }
    let next = met.core.expire(met.now + second);
    assert_eq!(next, Some(met.now + 3 * second));
    let said = "1: late, head 1 end, head 3 end, reset 1 8";
    assert_eq!(met.hear(&[]), said);
    met.hear(&ok(3));
    assert_eq!(met.core.expire(met.now + 4 * second), None);
}

#[test]
fn waiters_that_are_reset_leave_no_trace() {
    let mut met = Met::new();
    met.hear(&settings(&[(4, 0)]));
    for _ in 0..100 {
        let id = met.ask_as(&Method::POST, true);
        met.send(id, 10, true);
        let place = met.place(id);
        met.core.leave_writing(place);
        met.drop_reader(id);
    }
    assert!(met.core.blocked.is_empty());
    assert_eq!(met.core.streams.open(), 0);
}

#[test]
fn endpoints_that_ask_and_do_not_read_are_left() {
    let ping = frame(PING, 0, 0, &[0; 8]);
    let mut met = Met::new();
    let mut is_over = false;
    // Slowly, so that it is no flood.
    for _ in 0..20 {
        met.now += std::time::Duration::from_secs(1);
        is_over |= met.core.receive(&ping.repeat(100), met.now).is_err();
    }
    assert!(is_over);
    let mut met = Met::new();
    for _ in 0..20 {
        met.now += std::time::Duration::from_secs(1);
        met.core.receive(&ping.repeat(100), met.now).unwrap();
        met.said();
    }
    for (flood, count) in [
        (ping, 1001),
        (settings(&[]), 1001),
        (update(0, 1), 50_001),
        (frame(77, 0, 0, b"x"), 1001),
    ] {
        let mut met = Met::new();
        assert!(met.hear(&flood.repeat(count)).ends_with("fatal 11"));
    }
    let mut met = Met::new();
    met.ask();
    let early = head(1, &[(":status", "103")]);
    assert!(met.hear(&early.repeat(1001)).ends_with("fatal 11"));
}
