//! Connections at random: whatever comes in whatever pieces, nothing panics, every bound holds, no
//! window is overrun, contents arrive as they were sent, and how the bytes were cut changes nothing.
//!
//! The oracle is a client's view of the same connection, kept from the bytes of both sides alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use proptest::prelude::*;

use super::super::core::{Core, Event, LEAVING};
use super::super::upload::Upload;
use super::oracle;
use super::{LIMITS, block, frame, get, get_with};
use crate::http2::frames::{
    self, ACK, CONTENT_MAX, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEAD_BYTES,
    HEADERS, Head, PADDED, PING, PREFACE, PRIORITY, RST_STREAM, Reason, SETTINGS, WINDOW_UPDATE,
};

/// A step of a connection's life: what its client says, or what is done with one of its streams.
#[derive(Clone, Debug)]
enum Step {
    Hear(Vec<Said>),
    Answer {
        number: usize,
        is_last: bool,
    },
    Send {
        number: usize,
        bytes: usize,
        is_last: bool,
    },
    Trailers(usize),
    Read(usize),
    Drop(usize),
    Abort(usize),
    Leave,
    Pass(u64),
}

/// What a client says; streams are counted from the youngest, so that most of it makes sense.
#[derive(Clone, Debug)]
enum Said {
    Head {
        is_continued: bool,
        flags: u8,
        block: Vec<u8>,
    },
    Data {
        back: u32,
        flags: u8,
        bytes: usize,
        padding: u8,
    },
    Trailers {
        back: u32,
        flags: u8,
    },
    Reset(u32),
    Window(Option<u32>, u32),
    Whole(Vec<u8>),
}

/// The number of a stream that was opened `back` ago.
fn id(next: u32, back: u32) -> u32 {
    next.saturating_sub(2 + 2 * back).max(1)
}

impl Said {
    fn bytes(&self, next: &mut u32) -> Vec<u8> {
        match *self {
            Said::Head {
                is_continued,
                flags,
                ref block,
            } => {
                let id = *next;
                *next += 2;
                if is_continued {
                    let (first, second) = block.split_at(block.len() / 2);
                    let first = frame(HEADERS, flags & !END_HEADERS, id, first);
                    return [first, frame(CONTINUATION, END_HEADERS, id, second)].concat();
                }
                frame(HEADERS, flags | END_HEADERS, id, block)
            }
            Said::Data {
                back,
                flags,
                bytes,
                padding,
            } => {
                let content = content(bytes, padding, flags & PADDED != 0);
                frame(DATA, flags, id(*next, back), &content)
            }
            Said::Trailers { back, flags } => frame(
                HEADERS,
                flags | END_HEADERS,
                id(*next, back),
                &block(&[("a", "b")]),
            ),
            Said::Reset(back) => frame(RST_STREAM, 0, id(*next, back), &[0, 0, 0, 8]),
            Said::Window(back, more) => {
                let id = back.map_or(0, |back| id(*next, back));
                frame(WINDOW_UPDATE, 0, id, &more.to_be_bytes())
            }
            Said::Whole(ref bytes) => bytes.clone(),
        }
    }
}

fn content(bytes: usize, padding: u8, is_padded: bool) -> Vec<u8> {
    // No two neighbours are the same, so that nothing can be lost between them.
    let content = (0..bytes).map(|it| u8::try_from(it % 251).unwrap_or_default());
    if is_padded {
        let padded = std::iter::once(padding).chain(content);
        let behind = std::iter::repeat_n(0, usize::from(padding));
        padded.chain(behind).collect()
    } else {
        content.collect()
    }
}

fn head() -> impl Strategy<Value = Said> {
    let block = prop_oneof![
        12 => Just(get()),
        2 => Just(get_with(&[("content-length", "700")])),
        1 => Just(get_with(&[("content-length", "0")])),
        1 => prop::collection::vec(oracle::piece(), 0..3).prop_map(|it| oracle::block(&it, true)),
    ];
    let flags = prop::sample::select(vec![END_STREAM, 0, 0]);
    (prop::bool::weighted(0.2), flags, block).prop_map(|(is_continued, flags, block)| Said::Head {
        is_continued,
        flags,
        block,
    })
}

fn settings() -> impl Strategy<Value = Said> {
    let known = (
        1..5_u16,
        prop::sample::select(vec![0_u32, 1, 100, 4096, 65_535, 100_000]),
    );
    let known = known.prop_map(|(name, value)| match name {
        2 => (2, 0),
        name => (name, value),
    });
    prop::collection::vec(known, 0..3).prop_map(|all| {
        let bytes = |(name, value): &(u16, u32)| {
            [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat()
        };
        let content: Vec<u8> = all.iter().flat_map(bytes).collect();
        Said::Whole(frame(SETTINGS, 0, 0, &content))
    })
}

/// What is mostly no good.
fn wild() -> impl Strategy<Value = Said> {
    let raw = || prop::collection::vec(any::<u8>(), 0..12);
    let odd = prop::sample::select(vec![0, 1, 65_535, (1 << 31) - 1, 1 << 31, u32::MAX]);
    prop_oneof![
        raw().prop_map(Said::Whole),
        (0..12_u8, any::<u8>(), 0..9_u32, raw())
            .prop_map(|(kind, flags, id, raw)| Said::Whole(frame(kind, flags, id, &raw))),
        (prop::option::of(0..4_u32), odd).prop_map(|(back, word)| Said::Window(back, word)),
        prop::collection::vec(oracle::piece(), 0..6).prop_map(|pieces| Said::Head {
            is_continued: false,
            flags: 0,
            block: oracle::block(&pieces, false),
        }),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let flags = prop::sample::select(vec![0, 0, 0, END_STREAM, PADDED, PADDED | END_STREAM]);
    let bytes = prop_oneof![8 => 0..600_usize, 1 => 0..1100_usize];
    let more = prop::sample::select(vec![1_u32, 100, 5000, 70_000]);
    let back = || 0..4_u32;
    prop_oneof![
        80 => head(),
        120 => (back(), flags, bytes, 0..9_u8)
            .prop_map(|(back, flags, bytes, padding)| Said::Data { back, flags, bytes, padding }),
        6 => (back(), prop::sample::select(vec![END_STREAM, END_STREAM, 0]))
            .prop_map(|(back, flags)| Said::Trailers { back, flags }),
        20 => back().prop_map(Said::Reset),
        40 => (prop::option::of(back()), more).prop_map(|(back, more)| Said::Window(back, more)),
        20 => settings(),
        10 => any::<bool>().prop_map(|is_echo| {
            Said::Whole(frame(PING, u8::from(is_echo), 0, &LEAVING))
        }),
        10 => back().prop_map(|back| Said::Whole(frame(PRIORITY, 0, 2 * back + 1, &[0; 5]))),
        1 => Just(Said::Whole(frame(GOAWAY, 0, 0, &[0; 8]))),
        2 => wild(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0..4_usize;
    prop_oneof![
        12 => prop::collection::vec(said(), 1..4).prop_map(Step::Hear),
        4 => (number.clone(), prop::bool::weighted(0.3)).prop_map(|(number, is_last)| Step::Answer { number, is_last }),
        4 => (number.clone(), 0..40_000_usize, prop::bool::weighted(0.3))
            .prop_map(|(number, bytes, is_last)| Step::Send { number, bytes, is_last }),
        1 => number.clone().prop_map(Step::Trailers),
        6 => number.clone().prop_map(Step::Read),
        1 => number.clone().prop_map(Step::Drop),
        1 => number.prop_map(Step::Abort),
        1 => prop::bool::weighted(0.1).prop_map(|leaves| if leaves { Step::Leave } else { Step::Pass(700) }),
    ]
}

/// The same connection as its client sees it.
#[derive(Default)]
struct View {
    said: Vec<u8>,
    heard: Vec<u8>,
    /// What the client grants, and what we sent: connection under 0, and each stream.
    granted: BTreeMap<u32, i64>,
    sent: BTreeMap<u32, i64>,
    /// What it sent, and what we grant.
    uploaded: BTreeMap<u32, i64>,
    regranted: BTreeMap<u32, i64>,
    contents: BTreeMap<u32, Vec<u8>>,
    initial: i64,
    begun: BTreeSet<u32>,
    ended: BTreeSet<u32>,
}

/// Takes whole frames off the front.
pub(super) fn frames_of(bytes: &mut Vec<u8>) -> Vec<(Head, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(head) = bytes.first_chunk::<HEAD_BYTES>() {
        let head = Head::read(*head);
        let end = HEAD_BYTES + usize::try_from(head.length).unwrap();
        if bytes.len() < end {
            break;
        }
        found.push((head, bytes[HEAD_BYTES..end].to_vec()));
        bytes.drain(..end);
    }
    found
}

impl View {
    fn says(&mut self, bytes: &[u8]) {
        self.said.extend(bytes);
        for (head, content) in frames_of(&mut self.said) {
            let word = i64::from(frames::word(&content).unwrap_or(0) & frames::MAX_31);
            match head.kind {
                WINDOW_UPDATE => *self.granted.entry(head.stream).or_default() += word,
                SETTINGS if !head.has(ACK) => {
                    for setting in content.chunks(6) {
                        if setting.len() == 6 && setting[..2] == [0, 4] {
                            self.initial = i64::from(frames::word(&setting[2..]).unwrap());
                        }
                    }
                }
                DATA => {
                    for id in [0, head.stream] {
                        *self.uploaded.entry(id).or_default() += i64::from(head.length);
                    }
                    if let Ok(content) = frames::unpadded(head, &content) {
                        let all = self.contents.entry(head.stream).or_default();
                        all.extend(content);
                    }
                }
                _ => {}
            }
        }
    }

    /// What we said is in order.
    fn hears(&mut self, bytes: &[u8]) {
        self.heard.extend(bytes);
        for (head, content) in frames_of(&mut self.heard) {
            let id = head.stream;
            assert!(content.len() <= CONTENT_MAX, "a frame too large");
            match head.kind {
                HEADERS | DATA => {
                    assert!(!self.ended.contains(&id), "{id} goes on after its end");
                    assert!(
                        head.kind == HEADERS || self.begun.contains(&id),
                        "{id} has no head"
                    );
                    self.begun.insert(id);
                    if head.has(END_STREAM) {
                        self.ended.insert(id);
                    }
                }
                RST_STREAM => {
                    self.ended.insert(id);
                }
                WINDOW_UPDATE => {
                    let more = i64::from(frames::word(&content).unwrap());
                    assert!(more > 0, "a window that grows by nothing");
                    let sum = self.regranted.entry(id).or_default();
                    *sum += more;
                    let uploaded = self.uploaded.get(&id).copied().unwrap_or(0);
                    let first = if id == 0 { 4465 } else { 0 };
                    assert!(
                        *sum <= uploaded + first,
                        "{id} was granted what it never sent"
                    );
                }
                _ => {}
            }
            if head.kind == DATA {
                for id in [0, id] {
                    let begun = if id == 0 { 65_535 } else { self.initial };
                    let granted = begun + self.granted.get(&id).copied().unwrap_or(0);
                    let sent = self.sent.entry(id).or_default();
                    *sent += i64::from(head.length);
                    assert!(
                        head.length == 0 || *sent <= granted,
                        "{id}: a window overrun"
                    );
                }
            }
        }
    }
}

struct Life {
    core: Core,
    view: View,
    now: Instant,
    /// The next stream of the client's.
    next: u32,
    open: Vec<(usize, u32)>,
    uploads: BTreeMap<u32, (Upload, usize)>,
    log: Vec<String>,
}

impl Life {
    fn new(now: Instant) -> Life {
        let view = View {
            initial: 65_535,
            ..View::default()
        };
        let core = Core::new(LIMITS, Arc::default(), now);
        Life {
            core,
            view,
            now,
            next: 1,
            open: Vec::new(),
            uploads: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// No when the connection is over.
    fn hear(&mut self, bytes: &[u8], cuts: &[usize]) -> bool {
        self.view.says(bytes);
        let mut rest = bytes;
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let count = cuts.next().map_or(rest.len(), |cut| rest.len().min(*cut));
            let (piece, more) = rest.split_at(count);
            rest = more;
            if let Err(fatal) = self.core.receive(piece, self.now) {
                self.log.push(format!("fatal {fatal:?}"));
                return false;
            }
            self.check();
        }
        true
    }

    fn check(&mut self) {
        let core = &self.core;
        assert!(core.carry.len() < HEAD_BYTES + CONTENT_MAX);
        let block = core.block.as_ref().map_or(0, |block| block.bytes.len());
        assert!(block <= 7 * CONTENT_MAX);
        assert!(core.decoder.table_size() <= 4096);
        let streams = usize::try_from(LIMITS.streams).unwrap();
        assert!(core.streams.len() <= streams);
    }

    fn settle(&mut self) {
        for event in self.core.events.drain(..) {
            match event {
                Event::Asked {
                    place,
                    id,
                    parts,
                    upload,
                } => {
                    self.log.push(format!(
                        "asked {id} {} {} {:?}",
                        parts.method, parts.uri, parts.headers
                    ));
                    self.open.push((place, id));
                    self.uploads.extend(upload.map(|upload| (id, (upload, 0))));
                }
                Event::Gone { id, .. } => {
                    self.log.push(format!("gone {id}"));
                    self.open.retain(|(_, open)| *open != id);
                }
            }
        }
        let out = std::mem::take(&mut self.core.out);
        self.view.hears(&out);
        self.log.push(format!("{out:02x?}"));
        let core = &mut self.core;
        self.open.retain(|(place, id)| core.is_open(*place, *id));
    }

    fn place(&self, number: usize) -> Option<(usize, u32)> {
        self.open.get(number).copied()
    }

    /// No when the connection is over.
    fn take(&mut self, step: &Step, cuts: &[usize]) -> bool {
        let mut goes_on = true;
        match *step {
            Step::Hear(ref all) => {
                let bytes: Vec<_> = all.iter().flat_map(|it| it.bytes(&mut self.next)).collect();
                goes_on = self.hear(&bytes, cuts);
            }
            Step::Answer { number, is_last } => {
                if let Some((place, id)) = self.place(number)
                    && !self.view.begun.contains(&id)
                {
                    let date = || HeaderValue::from_static("today");
                    let lines = HeaderMap::new();
                    self.core
                        .head(place, StatusCode::OK, &lines, None, date, is_last);
                }
            }
            Step::Send {
                number,
                bytes,
                is_last,
            } => {
                if let Some((place, id)) = self.place(number)
                    && self.view.begun.contains(&id)
                {
                    let mut bytes = Bytes::from(vec![0; bytes]);
                    for _ in 0..4 {
                        self.core.data(place, &mut bytes, is_last);
                    }
                }
            }
            Step::Trailers(number) => {
                if let Some((place, id)) = self.place(number)
                    && self.view.begun.contains(&id)
                {
                    self.core.trailers(place, &HeaderMap::new());
                }
            }
            Step::Read(number) => self.read(number),
            Step::Drop(number) => {
                if let Some((place, id)) = self.place(number) {
                    self.uploads.remove(&id);
                    self.core.collect(place);
                }
            }
            Step::Abort(number) => {
                if let Some((place, _)) = self.place(number) {
                    self.core.abort(place, Reason::CANCEL);
                }
            }
            Step::Leave => self.core.leave(),
            Step::Pass(millis) => self.now += Duration::from_millis(millis),
        }
        self.check();
        self.settle();
        goes_on
    }

    fn read(&mut self, number: usize) {
        let Some((place, id)) = self.place(number) else {
            return;
        };
        let Some((upload, read)) = self.uploads.get_mut(&id) else {
            return;
        };
        let polled = upload.frame().now_or_never();
        self.log.push(format!("read {polled:?}"));
        if let Some(Some(Ok(frame))) = polled
            && let Ok(data) = frame.into_data()
        {
            assert!(data.len() <= 1000, "more than a window was held");
            let sent = &self.view.contents[&id];
            assert_eq!(data, sent[*read..*read + data.len()], "another content");
            *read += data.len();
        }
        self.core.collect(place);
    }
}

fn live(steps: &[Step], cuts: &[usize], now: Instant) -> Vec<String> {
    let mut life = Life::new(now);
    life.core.receive(PREFACE, now).unwrap();
    life.settle();
    let begin = Step::Hear(vec![Said::Whole(frame(SETTINGS, 0, 0, &[]))]);
    let head = || Said::Head {
        is_continued: false,
        flags: 0,
        block: get(),
    };
    let open = Step::Hear(vec![head(), head(), head()]);
    for step in [&begin, &open].into_iter().chain(steps) {
        if !life.take(step, cuts) {
            break;
        }
    }
    life.log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn connections_at_random_keep_their_bounds_however_they_are_cut(
        steps in prop::collection::vec(step(), 1..40),
        cuts in prop::collection::vec(1..40_usize, 1..5),
    ) {
        let now = Instant::now();
        let whole = live(&steps, &[], now);
        let cut = live(&steps, &cuts, now);
        prop_assert_eq!(whole, cut);
    }
}
