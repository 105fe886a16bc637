//! Watches: several on one stream, resumed where they stood when the stream breaks.
//!
//! Every response is written down as it comes, with its time. A stream asks for progress now and
//! then. When the run ends it keeps asking until each of its watches has got to the last revision,
//! or for long enough that one that has not never will.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_metastore::etcd::client::etcdserverpb as pb;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;

use super::client::connect;
use super::tape::Tape;
use super::wire;
use crate::history::WatchLog;

/// How often a stream asks how far it is.
const ASK_EVERY: Duration = Duration::from_millis(60);
/// How long after the end of all traffic an event may take: far more than any does.
const SETTLE_MAX: Duration = Duration::from_secs(10);
/// How long a stream that broke waits before it tries again.
const PAUSE: Duration = Duration::from_millis(10);
/// Where the recorder begins: below it is only the empty store.
const FIRST: i64 = 2;

/// What a watch is of, and where it begins each time.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are the options of etcd's request"
)]
pub struct Spec {
    /// The first key.
    pub key: String,
    /// As etcd has it.
    pub end: String,
    /// The first revision; zero is from now on.
    pub start: i64,
    /// With previous values.
    pub prev_kv: bool,
    /// Without puts.
    pub no_put: bool,
    /// Without deletions.
    pub no_delete: bool,
    /// Large responses may come in parts.
    pub fragment: bool,
}

/// How a stream behaves.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// It reads no more than one response in this time.
    pub pause: Duration,
    /// It never asks for progress before the end: a watch on the future would have no answer.
    pub is_silent: bool,
    /// It is closed and resumed after so many responses; zero for never.
    pub reopen_after: usize,
    /// It does not resume but begins where it was told to at first.
    pub is_forgetful: bool,
    /// It begins at the compacted revision, wherever that is.
    pub is_at_floor: bool,
}

/// One watch with its place.
struct Watch {
    spec: Spec,
    /// Where it is to go on.
    next: i64,
    log: Option<WatchLog>,
}

/// Watches on one stream.
pub struct Stream {
    tape: Arc<Tape>,
    client: u32,
    target: watch::Receiver<String>,
    /// The last revision, once traffic is over.
    end: watch::Receiver<i64>,
    manner: Manner,
    watches: BTreeMap<i64, Watch>,
    is_recorder: bool,
}

impl Stream {
    /// Prepares a stream; it begins with [`Stream::run`].
    #[must_use]
    pub fn new(
        tape: &Arc<Tape>,
        target: &watch::Receiver<String>,
        end: &watch::Receiver<i64>,
        manner: Manner,
        specs: Vec<Spec>,
    ) -> Self {
        let watches = specs.into_iter().map(|spec| Watch {
            next: spec.start,
            spec,
            log: None,
        });
        Stream {
            client: tape.client(),
            tape: Arc::clone(tape),
            target: target.clone(),
            end: end.clone(),
            manner,
            watches: (1..).zip(watches).collect(),
            is_recorder: false,
        }
    }

    /// The watch that misses nothing.
    #[must_use]
    pub fn recorder(
        tape: &Arc<Tape>,
        target: &watch::Receiver<String>,
        end: &watch::Receiver<i64>,
    ) -> Self {
        let all = Spec {
            key: "\0".to_owned(),
            end: "\0".to_owned(),
            start: FIRST,
            prev_kv: true,
            ..Spec::default()
        };
        let mut stream = Stream::new(tape, target, end, Manner::default(), vec![all]);
        stream.is_recorder = true;
        stream
    }

    /// Watches until the run has ended and everything came.
    pub async fn run(mut self) {
        loop {
            let over = self.session().await.unwrap_or(false);
            for watch in self.watches.values_mut() {
                watch.close(&self.tape, 0);
                // At the end it takes what is left, or it would be turned away for ever where a
                // compaction that nobody heard of was done.
                if *self.end.borrow() > 0 {
                    continue;
                }
                if self.manner.is_forgetful {
                    watch.next = watch.spec.start;
                }
                if self.manner.is_at_floor {
                    watch.next = self.tape.floor();
                }
            }
            if over {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One connection; `true` when all is over.
    async fn session(&mut self) -> Result<bool, Status> {
        let (requests, outgoing) = mpsc::channel(self.watches.len() + 8);
        let client = WatchClient::new(connect(&mut self.target));
        let mut client = client.max_decoding_message_size(usize::MAX);
        for (id, watch) in &mut self.watches {
            let log = WatchLog {
                client: self.client,
                is_recorder: self.is_recorder,
                key: watch.spec.key.clone(),
                end: watch.spec.end.clone(),
                start: watch.next,
                prev_kv: watch.spec.prev_kv,
                no_put: watch.spec.no_put,
                no_delete: watch.spec.no_delete,
                opened: self.tape.now(),
                ..WatchLog::default()
            };
            let create = wire::watch(&log, *id, watch.spec.fragment);
            ask(&requests, RequestUnion::CreateRequest(create)).await?;
            watch.log = Some(log);
        }
        let outgoing = ReceiverStream::new(outgoing);
        let answers = tokio::time::timeout(Duration::from_secs(3), client.watch(outgoing)).await;
        let answers = answers.map_err(|_elapsed| Status::unavailable("no stream in time"))??;
        self.listen(&requests, answers.into_inner()).await
    }

    async fn listen(
        &mut self,
        requests: &mpsc::Sender<pb::WatchRequest>,
        mut answers: Streaming<pb::WatchResponse>,
    ) -> Result<bool, Status> {
        let mut ticks = tokio::time::interval(ASK_EVERY);
        let mut over_since = None;
        let mut heard = 0;
        loop {
            let last = *self.end.borrow();
            if last > 0 {
                let since = *over_since.get_or_insert_with(Instant::now);
                if self.is_through(last) || since.elapsed() > SETTLE_MAX {
                    for watch in self.watches.values_mut() {
                        watch.close(&self.tape, last);
                    }
                    return Ok(true);
                }
            }
            tokio::select! {
                answer = answers.message() => {
                    let Some(answer) = answer? else { return Ok(false) };
                    self.heard(answer);
                    heard += 1;
                    if self.watches.values().all(|watch| watch.log.is_none()) {
                        // All were overtaken by compaction; they begin again where it stands.
                        return Ok(false);
                    }
                    if last == 0 && self.manner.reopen_after > 0 && heard >= self.manner.reopen_after {
                        return Ok(false);
                    }
                    if last == 0 && !self.manner.pause.is_zero() {
                        tokio::time::sleep(self.manner.pause).await;
                    }
                }
                _ = ticks.tick() => {
                    if self.target.has_changed().unwrap_or(false) {
                        return Ok(false);
                    }
                    if last > 0 || !self.manner.is_silent {
                        let progress = pb::WatchProgressRequest {};
                        ask(requests, RequestUnion::ProgressRequest(progress)).await?;
                    }
                }
            }
        }
    }

    /// Whether every watch has got to the end; one on the future beyond it is owed nothing.
    fn is_through(&self, last: i64) -> bool {
        let mut open = self.watches.values().filter(|watch| watch.log.is_some());
        open.all(|watch| watch.next > last)
    }

    fn heard(&mut self, answer: pb::WatchResponse) {
        let id = answer.watch_id;
        let response = wire::watch_response(answer, self.tape.now());
        if id < 0 {
            // Of the stream as a whole: each of its watches is that far.
            if response.is_progress() {
                for watch in self.watches.values_mut() {
                    watch.heard(response.clone(), &self.tape);
                }
            }
            return;
        }
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.heard(response, &self.tape);
        }
    }
}

impl Watch {
    fn heard(&mut self, response: crate::history::WatchResponse, tape: &Tape) {
        let Some(log) = &mut self.log else { return };
        let (floor, is_over) = (response.compact_revision, response.canceled);
        if response.created && self.next == 0 {
            self.next = response.revision + 1;
        }
        if response.is_progress() {
            self.next = self.next.max(response.revision + 1);
        }
        for event in &response.events {
            // Of a part the last revision may go on.
            let after = i64::from(!response.fragment);
            self.next = self.next.max(event.kv.modified + after);
            if log.is_recorder && event.is_delete {
                tape.deleted(event.kv.modified);
            }
        }
        if log.is_recorder {
            tape.reached(self.next - 1);
        }
        log.responses.push(response);
        if is_over {
            self.close(tape, 0);
            // What is still there: the next session begins at the floor itself.
            self.next = self.next.max(floor);
        }
    }

    fn close(&mut self, tape: &Tape, owed_until: i64) {
        if let Some(mut log) = self.log.take() {
            log.owed_until = owed_until;
            tape.watch(log);
        }
    }
}

async fn ask(
    requests: &mpsc::Sender<pb::WatchRequest>,
    request: RequestUnion,
) -> Result<(), Status> {
    let request = pb::WatchRequest {
        request_union: Some(request),
    };
    let sent = requests.send(request).await;
    sent.map_err(|_gone| Status::unavailable("the stream ended"))
}
