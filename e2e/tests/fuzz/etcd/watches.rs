//! Watches over a program's writes, against what the model says changed.
//!
//! Progress is asked for at the end: the answer may only come when all up to its revision was shown,
//! so whatever is missing then is lost, and whatever is there more than once or early shows as well.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::mvccpb::event::EventType;
use sluice_metastore::etcd::client::mvccpb::{Event, KeyValue};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Streaming;

use pb::watch_client::WatchClient;
use pb::watch_create_request::FilterType;
use pb::watch_request::RequestUnion;

use super::model::{Model, is_within};
use super::wire::Wire;
use crate::feed::Feed;

/// Far above what any answer takes; only a lost one runs into it.
const PATIENCE: Duration = Duration::from_secs(20);
/// Progress is asked for so often, 300 ms apart.
const TRIES: u32 = 6;
const MOST: usize = 3;
/// Beyond the revision a watch may begin at; as many writes are made to get there.
const AHEAD: usize = 6;

struct Watched {
    ask: pb::WatchCreateRequest,
    /// The first revision it wants.
    from: i64,
    /// The floor as it began.
    floor: i64,
    id: i64,
    seen: Vec<Event>,
}

/// Watches of one stream.
pub(crate) struct Watches {
    requests: mpsc::Sender<pb::WatchRequest>,
    answers: Streaming<pb::WatchResponse>,
    all: Vec<Watched>,
}

impl Watches {
    pub(crate) async fn open(
        feed: &mut Feed<'_>,
        wire: &Wire,
        model: &Model,
    ) -> Result<Option<Watches>, String> {
        let (requests, outgoing) = mpsc::channel(16);
        let outgoing = futures_util::stream::unfold(outgoing, |mut outgoing| async {
            let next = outgoing.recv().await?;
            Some((next, outgoing))
        });
        let count = feed.below(MOST + 1);
        let asks: Vec<_> = (0..count).map(|_| make(feed, model)).collect();
        for ask in &asks {
            let create = RequestUnion::CreateRequest(ask.clone());
            send(&requests, create).await?;
        }
        if asks.is_empty() {
            return Ok(None);
        }
        // etcd says nothing at all, not even that there is a stream, before it is asked for a watch.
        let mut client = WatchClient::new(wire.channel.clone());
        let answers = client.watch(outgoing.boxed()).await;
        let mut watches = Watches {
            requests,
            answers: answers.map_err(|e| e.message().to_owned())?.into_inner(),
            all: Vec::new(),
        };
        for ask in asks {
            watches.created(ask, model).await?;
        }
        Ok(Some(watches))
    }

    async fn next(&mut self, awaited: &str) -> Result<pb::WatchResponse, String> {
        let answer = timeout(PATIENCE, self.answers.message()).await;
        let answer = answer.map_err(|_| format!("{awaited} did not come"))?;
        let answer = answer.map_err(|e| format!("in place of {awaited}: {}", e.message()))?;
        answer.ok_or_else(|| format!("the stream ended in place of {awaited}"))
    }

    /// The next answer that is no event.
    async fn after_events(&mut self, awaited: &str) -> Result<pb::WatchResponse, String> {
        loop {
            let answer = self.next(awaited).await?;
            if answer.events.is_empty() {
                return Ok(answer);
            }
            let id = answer.watch_id;
            let known = self.all.iter_mut().find(|watched| watched.id == id);
            let watched = known.ok_or_else(|| format!("events of watch {id}, which is none"))?;
            let first = answer.events.first().map_or(0, revision);
            if watched
                .seen
                .last()
                .is_some_and(|last| revision(last) >= first)
            {
                return Err(format!(
                    "watch {id}: revision {first} in two answers, or late"
                ));
            }
            watched.seen.extend(answer.events);
        }
    }

    async fn created(&mut self, ask: pb::WatchCreateRequest, model: &Model) -> Result<(), String> {
        let said = format!("{ask:?}");
        let answer = self.after_events("the answer to a watch").await?;
        if !answer.created {
            return Err(format!("{said}: not created but {answer:?}"));
        }
        let header = answer.header.unwrap_or_default();
        if header.revision != model.revision() {
            return Err(format!("{said}: created at {}", header.revision));
        }
        let key: &[u8] = if ask.key.is_empty() { b"\0" } else { &ask.key };
        let end: &[u8] = &ask.range_end;
        let is_empty = !matches!(end, [] | [0]) && key >= end;
        if ask.start_revision < 0 || is_empty {
            if answer.canceled && answer.watch_id == -1 && !answer.cancel_reason.is_empty() {
                return Ok(());
            }
            return Err(format!("{said}: taken, {answer:?}"));
        }
        if answer.canceled {
            return Err(format!("{said}: refused, {answer:?}"));
        }
        if ask.start_revision > 0 && ask.start_revision < model.floor {
            let over = self.after_events("the end of a compacted watch").await?;
            if over.canceled && over.compact_revision == model.floor {
                return Ok(());
            }
            return Err(format!("{said}: compacted at {} and {over:?}", model.floor));
        }
        let from = match ask.start_revision {
            0 => model.revision() + 1,
            start => start,
        };
        self.all.push(Watched {
            ask,
            from,
            floor: model.floor,
            id: answer.watch_id,
            seen: Vec::new(),
        });
        Ok(())
    }

    /// Whether some watch has yet to begin.
    pub(crate) fn want_beyond(&self, revision: i64) -> bool {
        self.all.iter().any(|watched| watched.from > revision)
    }

    /// Reads all there is and compares.
    pub(crate) async fn all_agree(&mut self, model: &Model) -> Result<(), String> {
        if self.all.is_empty() {
            return Ok(());
        }
        for again in 1.. {
            if again > TRIES {
                let asks: Vec<_> = self.all.iter().map(|watched| &watched.ask).collect();
                let at = model.revision();
                return Err(format!("no progress to revision {at} for {asks:?}"));
            }
            let ask = RequestUnion::ProgressRequest(pb::WatchProgressRequest {});
            send(&self.requests, ask).await?;
            // One that comes before all watches have caught up is not answered, and asked again.
            let told = timeout(Duration::from_millis(300), self.after_events("progress")).await;
            let Ok(answer) = told else {
                continue;
            };
            let answer = answer?;
            let at = answer.header.unwrap_or_default().revision;
            if answer.canceled || answer.watch_id != -1 || at > model.revision() {
                return Err(format!("progress is {answer:?}"));
            }
            if at == model.revision() {
                break;
            }
        }
        for watched in &self.all {
            let expected = events(watched, model);
            if watched.seen != expected {
                return Err(format!(
                    "{:?} saw {:?} in place of {expected:?}",
                    watched.ask, watched.seen
                ));
            }
        }
        Ok(())
    }
}

async fn send(requests: &mpsc::Sender<pb::WatchRequest>, ask: RequestUnion) -> Result<(), String> {
    let ask = pb::WatchRequest {
        request_union: Some(ask),
    };
    let sent = requests.send(ask).await;
    sent.map_err(|_| "the stream of requests is closed".to_owned())
}

fn revision(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn make(feed: &mut Feed<'_>, model: &Model) -> pb::WatchCreateRequest {
    let ahead = i64::try_from(feed.below(AHEAD)).unwrap();
    let start_revision = match feed.below(8) {
        0 => 0,
        1 => -1,
        2 => model.revision() + ahead,
        3 => model.floor + ahead - 2,
        _ => model.base() + i64::try_from(feed.below(24)).unwrap(),
    };
    let start_revision = start_revision.min(model.revision() + 6).max(-1);
    // What a member of somebody else's did before it was emptied is not in the model.
    let start_revision = match start_revision {
        before if before > 0 && model.base() > 1 => before.max(model.base() + 1),
        start => start,
    };
    let filters = match feed.below(6) {
        1 => vec![i32::from(FilterType::Noput)],
        2 => vec![i32::from(FilterType::Nodelete)],
        _ => Vec::new(),
    };
    pb::WatchCreateRequest {
        key: Bytes::from_static(feed.pick(&[b"a", b"\0", b"", b"b", b"a/"])),
        range_end: Bytes::from_static(feed.pick(&[b"", b"\0", b"\0", b"b", b"c", b"\xff"])),
        start_revision,
        prev_kv: feed.below(2) == 1,
        filters,
        progress_notify: feed.below(2) == 1,
        ..Default::default()
    }
}

/// What a watch must have seen.
fn events(watched: &Watched, model: &Model) -> Vec<Event> {
    let ask = &watched.ask;
    let is_filtered = |kind: FilterType| ask.filters.contains(&i32::from(kind));
    let key: &[u8] = if ask.key.is_empty() { b"\0" } else { &ask.key };
    let mut events = Vec::new();
    for at in watched.from.max(model.base() + 1)..=model.revision() {
        for changed in model.changed(at) {
            if !is_within(changed, key, &ask.range_end) {
                continue;
            }
            let now = model.at(at).get(changed);
            let before = model.at(at - 1).get(changed);
            // A compaction takes what was before along, as etcd looks it up.
            let is_known = ask.prev_kv && at > watched.floor;
            let prev_kv = before.filter(|_| is_known).cloned();
            let (kind, filter, kv) = match now {
                Some(kv) => (EventType::Put, FilterType::Noput, kv.clone()),
                None => {
                    let gone = KeyValue {
                        key: changed.clone(),
                        mod_revision: at,
                        ..KeyValue::default()
                    };
                    (EventType::Delete, FilterType::Nodelete, gone)
                }
            };
            if !is_filtered(filter) {
                events.push(Event {
                    r#type: kind.into(),
                    kv: Some(kv),
                    prev_kv,
                });
            }
        }
    }
    events
}
