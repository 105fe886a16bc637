//! A client at random that keeps the rules, over a pipe of any size: it reads and writes when it
//! likes, as much as it likes. Whatever it asked and did not give up is answered whole in the end,
//! so nobody who waited for room, for a window or for a turn was forgotten.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::driving::{PATIENCE, connect, handler};
use super::random::frames_of;
use super::{LIMITS, block, frame};
use crate::body::{Body, BodyError};
use crate::http2::frames::{
    self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS,
    WINDOW_UPDATE,
};
use crate::listener::Handler;

/// Streams that are open at once: as many as may be.
const OPEN_MAX: usize = 4;

/// Bytes of the longest answer.
const LONG: usize = 90_000;

#[derive(Clone, Debug)]
enum Step {
    /// Asks for an answer of some kind, with as many bytes of content.
    Ask {
        kind: Kind,
        bytes: usize,
    },
    /// Gives up the oldest that is not answered.
    GiveUp,
    Write(usize),
    Read(usize),
    /// Lets us go on.
    Rest(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Empty,
    Short,
    Long,
    /// A little at a time, never at once.
    Slow,
    Echo,
    /// After the content was read to its end.
    Late,
    /// Without a look at the content.
    Early,
}

const KINDS: [Kind; 7] = [
    Kind::Empty,
    Kind::Short,
    Kind::Long,
    Kind::Slow,
    Kind::Echo,
    Kind::Late,
    Kind::Early,
];

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(KINDS.to_vec());
    prop_oneof![
        4 => (kind, 0..5000_usize).prop_map(|(kind, bytes)| Step::Ask { kind, bytes }),
        1 => Just(Step::GiveUp),
        3 => (1..3000_usize).prop_map(Step::Write),
        3 => (1..40_000_usize).prop_map(Step::Read),
        3 => (0..10_usize).prop_map(Step::Rest),
    ]
}

fn answering() -> Handler {
    handler(|request: Request<Body>| async move {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let kind = KINDS.iter().find(|kind| format!("{kind:?}") == path);
        let full = |bytes: usize| Body::from(Bytes::from(vec![b'x'; bytes]));
        Response::new(match kind.unwrap() {
            Kind::Empty => Body::Empty,
            Kind::Short | Kind::Early => full(100),
            Kind::Long => full(LONG),
            Kind::Slow => {
                let pieces = futures_util::stream::unfold(0, async |number| {
                    tokio::task::yield_now().await;
                    let piece = Frame::data(Bytes::from(vec![b'x'; 700]));
                    (number < 20).then_some((Ok::<_, BodyError>(piece), number + 1))
                });
                Body::boxed(StreamBody::new(pieces))
            }
            Kind::Echo => request.into_body(),
            Kind::Late => {
                let whole = request.into_body().collect().await;
                full(whole.map_or(0, |whole| whole.to_bytes().len()))
            }
        })
    })
}

/// A stream as the client has it.
struct Stream {
    kind: Kind,
    bytes: usize,
    unsent: usize,
    credit: i64,
    heard: usize,
}

struct Client {
    pipe: DuplexStream,
    next: u32,
    open: BTreeMap<u32, Stream>,
    credit: i64,
    to_write: Vec<u8>,
    read: Vec<u8>,
    is_ponged: bool,
}

impl Client {
    fn new(pipe: DuplexStream, window: u32) -> Self {
        let [a, b, c, d] = window.to_be_bytes();
        let settings = frame(SETTINGS, 0, 0, &[0, 4, a, b, c, d]);
        Client {
            pipe,
            next: 1,
            open: BTreeMap::new(),
            credit: 65_535,
            to_write: [PREFACE.as_slice(), &settings].concat(),
            read: Vec::new(),
            is_ponged: false,
        }
    }

    fn ask(&mut self, kind: Kind, bytes: usize) {
        if self.open.len() >= OPEN_MAX {
            return;
        }
        let id = self.next;
        self.next += 2;
        let path = format!("/{kind:?}");
        let head = block(&[(":method", "POST"), (":scheme", "https"), (":path", &path)]);
        let end = if bytes == 0 { END_STREAM } else { 0 };
        self.to_write
            .extend(frame(HEADERS, END_HEADERS | end, id, &head));
        let stream = Stream {
            kind,
            bytes,
            unsent: bytes,
            credit: i64::from(LIMITS.stream_window),
            heard: 0,
        };
        self.open.insert(id, stream);
    }

    fn give_up(&mut self) {
        if let Some((id, _)) = self.open.pop_first() {
            self.to_write
                .extend(frame(RST_STREAM, 0, id, &[0, 0, 0, 8]));
        }
    }

    /// What may be sent of the contents.
    fn upload(&mut self) {
        for (id, stream) in &mut self.open {
            let credit = usize::try_from(self.credit.min(stream.credit)).unwrap_or(0);
            let count = stream.unsent.min(credit);
            if count == 0 {
                continue;
            }
            stream.unsent -= count;
            stream.credit -= i64::try_from(count).unwrap();
            self.credit -= i64::try_from(count).unwrap();
            let end = if stream.unsent == 0 { END_STREAM } else { 0 };
            self.to_write
                .extend(frame(DATA, end, *id, &vec![b'y'; count]));
        }
    }

    /// Yes when anything was written.
    fn write(&mut self, most: usize) -> bool {
        self.upload();
        let count = self.to_write.len().min(most);
        let written = self.pipe.write(&self.to_write[..count]).now_or_never();
        let written = written.map_or(0, |it| it.expect("we go on"));
        self.to_write.drain(..written);
        written > 0
    }

    fn read(&mut self, most: usize) -> bool {
        let mut buffer = vec![0; most];
        let count = self.pipe.read(&mut buffer).now_or_never();
        let count = count.map_or(0, |it| it.expect("we go on"));
        self.read.extend(&buffer[..count]);
        for (head, content) in frames_of(&mut self.read) {
            let id = head.stream;
            match head.kind {
                DATA => {
                    let update = |id| frame(WINDOW_UPDATE, 0, id, &head.length.to_be_bytes());
                    if head.length > 0 {
                        self.to_write.extend(update(0));
                        if !head.has(END_STREAM) && self.open.contains_key(&id) {
                            self.to_write.extend(update(id));
                        }
                    }
                    if let Some(stream) = self.open.get_mut(&id) {
                        stream.heard += content.len();
                    }
                }
                WINDOW_UPDATE => {
                    let more = i64::from(frames::word(&content).unwrap());
                    let stream = self.open.get_mut(&id).map(|it| &mut it.credit);
                    if let Some(credit) = if id == 0 {
                        Some(&mut self.credit)
                    } else {
                        stream
                    } {
                        *credit += more;
                    }
                }
                RST_STREAM => assert!(!self.open.contains_key(&id), "{id} is reset"),
                PING => self.is_ponged = true,
                GOAWAY => panic!("goodbye: {}", String::from_utf8_lossy(&content)),
                _ => {}
            }
            if head.has(END_STREAM) && [DATA, HEADERS].contains(&head.kind) {
                self.answered(id);
            }
        }
        count > 0
    }

    fn answered(&mut self, id: u32) {
        let Some(stream) = self.open.remove(&id) else {
            return; // it was given up
        };
        let expected = match stream.kind {
            Kind::Empty => 0,
            Kind::Short | Kind::Early => 100,
            Kind::Long => LONG,
            Kind::Slow => 20 * 700,
            Kind::Echo | Kind::Late => stream.bytes,
        };
        assert_eq!(stream.heard, expected, "{id}, {:?}", stream.kind);
        if stream.unsent > 0 {
            // It was answered early, and we need no more of it.
            self.to_write
                .extend(frame(RST_STREAM, 0, id, &[0, 0, 0, 0]));
        }
    }
}

async fn live(pipe: usize, window: u32, steps: Vec<Step>) {
    let (near, driven) = connect(pipe, answering(), PATIENCE);
    let mut client = Client::new(near, window);
    for step in steps {
        match step {
            Step::Ask { kind, bytes } => client.ask(kind, bytes),
            Step::GiveUp => client.give_up(),
            Step::Write(most) => drop(client.write(most)),
            Step::Read(most) => drop(client.read(most)),
            Step::Rest(turns) => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
    // From here on it is patient.
    let mut idle = 0;
    let mut has_pinged = false;
    while !client.open.is_empty() || !client.is_ponged {
        if client.open.is_empty() && !has_pinged {
            client.to_write.extend(frame(PING, 0, 0, &[1; 8]));
            has_pinged = true;
        }
        let is_busy = client.write(usize::MAX) | client.read(1 << 16);
        tokio::task::yield_now().await;
        idle = if is_busy { 0 } else { idle + 1 };
        assert!(
            idle < 1000,
            "it waits for ever for {:?}",
            client.open.keys()
        );
    }
    assert!(!driven.is_finished());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clients_that_read_and_write_when_they_like_are_answered_in_the_end(
        pipe in prop::sample::select(vec![16_usize, 100, 1000, 10_000, 65_536, 300_000]),
        window in prop::sample::select(vec![500_u32, 20_000, 65_535, 1 << 20]),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(live(pipe, window, steps));
    }
}
