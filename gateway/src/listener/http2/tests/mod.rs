//! A connection without a socket: what it says to what it hears.

mod careless;
mod driving;
mod oracle;
mod random;
mod rules;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;

use super::core::{Core, Event, Leaving, Limits};
use super::upload::Upload;
use crate::http2::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEAD_BYTES, HEADERS, Head, PADDED,
    PING, PREFACE, PRIORITY, RST_STREAM, Reason, SETTINGS, WINDOW_UPDATE,
};

const LIMITS: Limits = Limits {
    streams: 4,
    header_bytes: 1024,
    stream_window: 1000,
    connection_window: 70_000,
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

fn get() -> Vec<u8> {
    block(&[
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/p"),
    ])
}

fn get_with(more: &[(&str, &str)]) -> Vec<u8> {
    [get(), block(more)].concat()
}

/// A whole request, and one whose content is to come.
fn whole(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &get())
}

fn open(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &get())
}

struct Met {
    core: Core,
    uploads: Vec<(u32, Upload)>,
    now: Instant,
}

impl Met {
    /// A connection that has begun.
    fn new() -> Met {
        let now = Instant::now();
        let core = Core::new(LIMITS, Arc::default(), now);
        let uploads = Vec::new();
        let mut met = Met { core, uploads, now };
        met.hear(&[PREFACE.as_slice(), &frame(SETTINGS, 0, 0, &[])].concat());
        met
    }

    /// What became of these bytes, a word a matter.
    fn hear(&mut self, bytes: &[u8]) -> String {
        let heard = self.core.receive(bytes, self.now);
        let mut said = Vec::new();
        for event in self.core.events.drain(..) {
            match event {
                Event::Asked { id, upload, .. } => {
                    said.push(format!("asked {id}"));
                    self.uploads.extend(upload.map(|upload| (id, upload)));
                }
                Event::Gone { id, .. } => said.push(format!("gone {id}")),
            }
        }
        said.extend(self.said());
        if let Err(fatal) = heard {
            said.push(format!("fatal {}", fatal.reason.0));
        }
        said.join(", ")
    }

    /// The frames that were written.
    fn said(&mut self) -> Vec<String> {
        let out = std::mem::take(&mut self.core.out);
        let (mut rest, mut said) = (out.as_slice(), Vec::new());
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

    fn place(&self, id: u32) -> usize {
        self.core.streams.place(id).unwrap()
    }

    fn answer(&mut self, id: u32, is_last: bool) {
        let place = self.place(id);
        let date = || HeaderValue::from_static("today");
        let lines = HeaderMap::new();
        self.core
            .head(place, StatusCode::OK, &lines, None, date, is_last);
    }

    fn send(&mut self, id: u32, bytes: usize, is_last: bool) -> usize {
        let mut bytes = Bytes::from(vec![0; bytes]);
        let place = self.place(id);
        self.core.data(place, &mut bytes, is_last);
        bytes.len()
    }
}

/// Taken whole, byte by byte, and in threes.
fn heard(bytes: &[u8]) -> String {
    let whole = Met::new().hear(bytes);
    for cut in [1, 3] {
        let mut met = Met::new();
        let pieces = bytes.chunks(cut);
        let mut said: Vec<_> = Vec::new();
        for piece in pieces {
            let word = met.hear(piece);
            let is_over = word.contains("fatal");
            said.push(word);
            if is_over {
                break;
            }
        }
        said.retain(|word| !word.is_empty());
        let sorted = |text: &str| {
            let mut words: Vec<_> = text.split(", ").map(str::to_owned).collect();
            words.sort();
            words
        };
        assert_eq!(
            sorted(&said.join(", ")),
            sorted(&whole),
            "{bytes:?} by {cut}"
        );
    }
    whole
}

#[test]
fn uploads_arrive_and_grant_what_was_read() {
    let mut met = Met::new();
    met.hear(&open(1));
    met.hear(&frame(DATA, 0, 1, &[b'x'; 600]));
    let (_, mut upload) = met.uploads.pop().unwrap();
    let read = |upload: &mut Upload| upload.frame().now_or_never();
    let first = read(&mut upload).unwrap().unwrap().unwrap().into_data();
    assert_eq!(first.unwrap().len(), 600);
    assert!(read(&mut upload).is_none());
    let place = met.place(1);
    met.core.collect(place);
    assert_eq!(met.said(), ["window 1 600"]);
    met.hear(&frame(DATA, PADDED, 1, &[2, b'y', 0, 0]));
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("a", "b")]));
    assert_eq!(met.hear(&trailers), "");
    let second = read(&mut upload).unwrap().unwrap().unwrap().into_data();
    assert_eq!(second.unwrap(), "y");
    let last = read(&mut upload).unwrap().unwrap().unwrap().into_trailers();
    assert_eq!(last.unwrap()["a"], "b");
    assert!(read(&mut upload).unwrap().is_none());

    // The connection's window is granted whoever reads, and however a stream ends.
    let half = 70_000 / 2;
    let granted = |said: &str| {
        let bytes = |word: &str| word.strip_prefix("window 0 ")?.parse::<u32>().ok();
        said.split(", ").filter_map(bytes).sum::<u32>()
    };
    let mut sum = 0;
    for number in 0..100 {
        let stream = 3 + 2 * number;
        met.hear(&open(stream));
        sum += granted(&met.hear(&frame(DATA, 0, stream, &[b'x'; 1000])));
        let place = met.place(stream);
        match number % 4 {
            0 => drop(met.uploads.pop()),
            1 => met.core.abort(place, Reason(8)),
            2 => sum += granted(&met.hear(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]))),
            _ => {
                // Answered before it was read, and read no more.
                met.answer(stream, true);
                drop(met.uploads.pop());
            }
        }
        met.core.collect(place);
        met.core.abort(place, Reason(8));
        sum += granted(&met.said().join(", "));
    }
    assert!(sum > 100_000 - half, "{sum}");
}

/// Those who do not read hold most of the connection's window; whoever reads goes on all the same.
#[test]
fn stuck_uploads_do_not_stop_those_that_are_read() {
    let now = Instant::now();
    let limits = Limits {
        streams: 10,
        stream_window: 10_000,
        connection_window: 70_000,
        ..LIMITS
    };
    let core = Core::new(limits, Arc::default(), now);
    let uploads = Vec::new();
    let mut met = Met { core, uploads, now };
    met.hear(&[PREFACE.as_slice(), &frame(SETTINGS, 0, 0, &[])].concat());
    for stuck in 0..6 {
        let id = 2 * stuck + 1;
        met.hear(&open(id));
        met.hear(&frame(DATA, 0, id, &[b'x'; 10_000]));
    }
    met.hear(&open(13));
    let (_, mut upload) = met.uploads.pop().unwrap();
    let (mut stream, mut connection) = (10_000_u32, 10_000_u32);
    for _ in 0..1000 {
        let count = 1000.min(stream).min(connection);
        assert!(count > 0, "{stream} {connection}");
        let data = frame(DATA, 0, 13, &vec![b'x'; count as usize]);
        let heard = met.hear(&data);
        (stream, connection) = (stream - count, connection - count);
        assert!(upload.frame().now_or_never().is_some());
        let place = met.place(13);
        met.core.collect(place);
        for said in heard
            .split(", ")
            .chain(met.said().iter().map(String::as_str))
        {
            let more = |of: &str| said.strip_prefix(of).map_or(0, |it| it.parse().unwrap());
            connection += more("window 0 ");
            stream += more("window 13 ");
        }
        assert!(stream <= 10_000 && connection <= 10_000);
    }
}

#[test]
fn broken_uploads_say_so() {
    let cut = |end: &[u8]| {
        let mut met = Met::new();
        met.hear(&open(1));
        met.hear(end);
        let (_, mut upload) = met.uploads.pop().unwrap();
        let read = upload.frame().now_or_never().unwrap();
        match read.unwrap().unwrap_err() {
            crate::body::BodyError::Reset(code) => Some(code),
            _ => None,
        }
    };
    assert_eq!(cut(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 8])), Some(8));
    assert_eq!(cut(&frame(DATA, 0, 1, &[0; 1001])), Some(3));
}

#[test]
fn answers_keep_within_windows() {
    let mut met = Met::new();
    let small = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]);
    assert_eq!(met.hear(&[small, whole(1)].concat()), "asked 1, settled");
    met.answer(1, false);
    assert_eq!(met.send(1, 25, true), 15);
    assert_eq!(met.send(1, 15, true), 15, "no room");
    assert_eq!(met.said(), ["head 1", "data 1 10"]);
    met.hear(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 5]));
    assert!(std::mem::take(&mut met.core.has_room));
    assert_eq!(met.send(1, 15, true), 10);
    // Taken back, below nothing, and given again.
    met.hear(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    met.hear(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 10]));
    assert_eq!(met.send(1, 10, true), 10, "ten less ten");
    met.hear(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 10]));
    assert_eq!(met.send(1, 10, true), 0);
    assert_eq!(met.said(), ["settled", "data 1 10 end"][1..].to_vec());
    assert_eq!(met.core.streams.len(), 0);
}

#[test]
fn the_connections_window_bounds_all_streams() {
    let mut met = Met::new();
    let wide = frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0x86, 0xa0]);
    met.hear(&[wide, whole(1), whole(3)].concat());
    met.answer(1, false);
    met.answer(3, false);
    let mut left = 60_000;
    while left > 0 {
        left = met.send(1, left, false);
    }
    assert_eq!(met.send(3, 10_000, false), 10_000 - 5_535);
    assert_eq!(met.send(3, 1, false), 1);
    assert_eq!(met.send(3, 0, true), 0, "an end needs no room");
    met.hear(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
    assert_eq!(met.send(1, 2, true), 1);
}

#[test]
fn long_heads_go_on_in_further_frames() {
    let mut met = Met::new();
    met.hear(&whole(1));
    let mut lines = HeaderMap::new();
    lines.insert("a", HeaderValue::from_str(&"x".repeat(40_000)).unwrap());
    let place = met.place(1);
    let date = || HeaderValue::from_static("today");
    met.core
        .head(place, StatusCode::OK, &lines, Some(3), date, false);
    assert_eq!(met.said(), ["head 1", "more 1", "more 1"]);
    met.core.trailers(place, &lines);
    assert_eq!(met.said(), ["head 1 end", "more 1", "more 1"]);
}

#[test]
fn goodbyes_have_two_steps() {
    let mut met = Met::new();
    met.hear(&whole(1));
    met.core.leave();
    met.core.leave();
    assert_eq!(met.said(), ["goodbye 2147483647", "ping"]);
    assert_eq!(met.hear(&whole(3)), "asked 3", "it was on its way");
    let echo = frame(PING, ACK, 0, &super::core::LEAVING);
    assert_eq!(met.hear(&echo), "goodbye 3");
    assert_eq!(met.core.leaving, Leaving::Counted(3));
    assert_eq!(met.hear(&open(5)), "", "that one goes elsewhere");
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 5, &block(&[("a", "b")]));
    let late = [frame(DATA, 0, 5, b"x"), trailers];
    assert_eq!(met.hear(&late.concat()), "");
    met.core.farewell(Reason::NO_ERROR, "");
    assert_eq!(met.said(), ["goodbye 3"], "it never grows");
    met.answer(1, true);
    assert!(!met.core.is_over());
    met.answer(3, true);
    assert!(met.core.is_over());
    // A client that says goodbye is served to its end.
    let mut met = Met::new();
    met.hear(&[whole(1), frame(GOAWAY, 0, 0, &[0; 8])].concat());
    assert!(!met.core.is_over());
    met.answer(1, true);
    assert!(met.core.is_over());
}

#[test]
fn an_early_answer_to_an_upload_is_followed_by_a_reset_without_blame() {
    let mut met = Met::new();
    met.hear(&open(1));
    met.uploads.clear();
    met.answer(1, true);
    assert_eq!(met.said(), ["head 1 end", "reset 1 0"]);
    assert_eq!(
        met.hear(&frame(DATA, 1, 1, &[0; 500])),
        "",
        "it was on its way"
    );
    // While somebody reads it, it goes on.
    met.hear(&open(3));
    met.answer(3, true);
    assert_eq!(met.said(), ["head 3 end"]);
    assert_eq!(met.hear(&frame(DATA, 1, 3, &[0; 500])), "");
    assert_eq!(met.core.streams.len(), 0);
    let (_, mut upload) = met.uploads.pop().unwrap();
    let read = upload.frame().now_or_never().unwrap().unwrap().unwrap();
    assert_eq!(read.into_data().unwrap().len(), 500);
}

#[test]
fn frames_that_carry_nothing_have_a_bound_and_work_has_none() {
    let update = frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    for (frame, count, is_fine) in [
        (frame(PING, 0, 0, &[0; 8]), 500, true),
        (frame(PING, 0, 0, &[0; 8]), 501, false),
        (frame(SETTINGS, 0, 0, &[]), 501, false),
        (frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 5]), 501, false),
        (frame(77, 0, 0, b"x"), 501, false),
        (update.clone(), 20_000, true),
        (update, 20_001, false),
    ] {
        let mut met = Met::new();
        // What the beginning counted has passed.
        met.now += Duration::from_secs(1);
        let heard = met.hear(&frame.repeat(count));
        assert_eq!(!heard.ends_with("fatal 11"), is_fine, "{frame:?} {count}");
        met.now += Duration::from_secs(1);
        let again = met.hear(&frame);
        assert!(
            !is_fine || !again.contains("fatal"),
            "windows pass: {again}"
        );
    }
    let mut met = Met::new();
    met.hear(&open(1));
    let empty = frame(DATA, 0, 1, &[]);
    assert!(met.hear(&empty.repeat(501)).ends_with("fatal 11"));
    // Streams that we are made to reset.
    let mut met = Met::new();
    let made = |number: u32| {
        let grown_by_nothing = frame(WINDOW_UPDATE, 0, 2 * number + 1, &[0; 4]);
        [open(2 * number + 1), grown_by_nothing].concat()
    };
    let bytes: Vec<u8> = (0..501).flat_map(made).collect();
    assert!(met.hear(&bytes).ends_with("fatal 11"));
}
