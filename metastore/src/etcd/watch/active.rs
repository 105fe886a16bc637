//! One watch of a stream: its cursor, what its client asked for, and how its events are worded.

use bytes::Bytes;
use futures_util::future::AbortHandle;
use prost::Message;

use super::super::proto::etcdserverpb as pb;
use super::super::proto::etcdserverpb::watch_create_request::FilterType;
use super::super::proto::mvccpb::Event as WireEvent;
use super::super::proto::mvccpb::event::EventType;
use super::super::wire::KeyValue;
use crate::Watcher;
use crate::events::Bell;
use crate::events::{Change, Event, EventBatch};
use crate::faults::{Fault, injected};
use crate::{Error, Revision};

/// Above this a response is split for clients that asked for it: etcd's request limit and its
/// allowance for the envelope.
const FRAGMENT_BYTES: usize = 2 * 1024 * 1024;

/// A response ends at the next whole revision after this, so that a watch that catches up on large
/// objects does not make one message of hundreds of them.
const RESPONSE_BYTES: usize = 1024 * 1024;

/// A watch that was accepted.
pub(crate) struct Active {
    watcher: Watcher,
    /// Where it begins; no progress is told below it.
    start: Option<Revision>,
    /// The client wants to hear how far it is.
    pub(crate) wants_progress: bool,
    /// Nothing was sent since the last tick, so the next one is worth a notice.
    pub(crate) is_quiet: bool,
    /// Its place in the table of nudges.
    pub(crate) nudge_key: Option<Bytes>,
    /// Takes its bell down.
    pub(crate) bell: Option<AbortHandle>,
    fragments: bool,
    puts: bool,
    deletes: bool,
}

impl Active {
    pub(crate) fn new(watcher: Watcher, request: &pb::WatchCreateRequest) -> Self {
        let without = |filter: FilterType| request.filters.contains(&filter.into());
        Active {
            watcher,
            start: Revision::from_wire(request.start_revision),
            wants_progress: request.progress_notify,
            is_quiet: true,
            nudge_key: None,
            bell: None,
            fragments: request.fragment,
            puts: !without(FilterType::Noput),
            deletes: !without(FilterType::Nodelete),
        }
    }

    /// Every event up to here has been handed out.
    pub(crate) fn through(&self) -> Revision {
        self.watcher.through()
    }

    /// Rings when there may be more.
    pub(crate) fn listen(&self) -> Bell {
        self.watcher.bell()
    }

    /// What is there already, if anything.
    pub(crate) fn poll(&mut self) -> Result<Option<EventBatch>, Error> {
        self.watcher.poll_now()
    }

    /// Whether the client may be told that it is at `revision`.
    pub(crate) fn may_tell(&self, revision: Revision) -> bool {
        self.start.is_none_or(|start| start <= revision)
    }

    /// The responses that carry a batch; none when its filters left nothing. `header` makes the
    /// header of a response whose events reach up to a revision.
    pub(crate) fn responses(
        &mut self,
        id: i64,
        batch: EventBatch,
        header: impl Fn(Revision) -> Option<pb::ResponseHeader>,
    ) -> Vec<pb::WatchResponse> {
        let (puts, deletes) = (self.puts, self.deletes);
        let mut events = batch.events;
        events.retain(|event| match event.change {
            Change::Put(_) => puts,
            Change::Delete { .. } => deletes,
        });
        if events.is_empty() {
            return Vec::new();
        }
        self.is_quiet = false;
        let mut responses = Vec::new();
        if injected(Fault::EventsSwapped) {
            events.reverse();
        }
        for (events, through) in by_size(events, batch.through, RESPONSE_BYTES) {
            let response = pb::WatchResponse {
                header: header(through),
                watch_id: id,
                events,
                ..Default::default()
            };
            if self.fragments {
                responses.extend(split(response, FRAGMENT_BYTES));
            } else {
                responses.push(response);
            }
        }
        responses
    }
}

/// Words events in groups of whole revisions, each ending once it has reached `bytes`, and says up
/// to where each group reaches.
fn by_size(events: Vec<Event>, through: Revision, bytes: usize) -> Vec<(Vec<WireEvent>, Revision)> {
    let mut groups = Vec::new();
    let mut group = Vec::new();
    let (mut size, mut last) = (0, Revision::ZERO);
    for event in events {
        let at = event.change.revision();
        let is_split = injected(Fault::RevisionSplit) && !group.is_empty();
        if (size >= bytes && at != last) || is_split {
            groups.push((std::mem::take(&mut group), last));
            size = 0;
        }
        last = at;
        let event = worded(event);
        size += event.encoded_len();
        group.push(event);
    }
    groups.push((group, through));
    groups
}

/// An event as the wire has it: a put is the whole new version, a delete the bare key and its own
/// revision.
fn worded(event: Event) -> WireEvent {
    let (kind, kv) = match event.change {
        Change::Put(record) => (EventType::Put, KeyValue::Whole(record)),
        Change::Delete { key, revision } => (EventType::Delete, KeyValue::Deleted(key, revision)),
    };
    WireEvent {
        r#type: kind.into(),
        kv: Some(kv),
        prev_kv: event.previous.map(KeyValue::Whole),
    }
}

/// Splits a response that is too large into parts, all but the last marked as a fragment. A single
/// event is never split.
fn split(whole: pb::WatchResponse, bytes_max: usize) -> Vec<pb::WatchResponse> {
    if whole.encoded_len() < bytes_max || whole.events.len() < 2 {
        return vec![whole];
    }
    let pb::WatchResponse { events, .. } = whole;
    let envelope = pb::WatchResponse {
        header: whole.header,
        watch_id: whole.watch_id,
        fragment: true,
        ..Default::default()
    };
    let mut parts = vec![envelope.clone()];
    let mut room = bytes_max.saturating_sub(envelope.encoded_len());
    for event in events {
        // The event, its tag and its length.
        let bytes = event.encoded_len() + 1 + prost::length_delimiter_len(event.encoded_len());
        let is_first = parts.last().is_none_or(|part| part.events.is_empty());
        if bytes > room && !is_first {
            parts.push(envelope.clone());
            room = bytes_max.saturating_sub(envelope.encoded_len());
        }
        room = room.saturating_sub(bytes);
        if let Some(part) = parts.last_mut() {
            part.events.push(event);
        }
    }
    if let Some(last) = parts.last_mut() {
        last.fragment = false;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeaseId, Record};

    #[test]
    fn groups_by_size_end_at_whole_revisions() {
        let event = |n: u64, key: &[u8]| {
            let at = Revision::new(n);
            let record = Record::new(key, &[b'v'; 100], at, at, 1, LeaseId::NONE);
            Event {
                change: Change::Put(record),
                previous: None,
            }
        };
        let events = vec![
            event(2, b"a"),
            event(2, b"b"),
            event(3, b"a"),
            event(4, b"a"),
        ];
        let groups = by_size(events, Revision::new(9), 150);
        let shape: Vec<_> = groups
            .iter()
            .map(|(events, at)| (events.len(), at.get()))
            .collect();
        assert_eq!(shape, [(2, 2), (2, 9)]);
    }

    #[test]
    fn a_split_response_keeps_every_event_and_marks_all_but_the_last() {
        let event = |n: u64| {
            let record = Record::new(
                b"/k",
                &[b'v'; 100],
                Revision::new(n),
                Revision::new(n),
                1,
                LeaseId::NONE,
            );
            worded(Event {
                change: Change::Put(record),
                previous: None,
            })
        };
        let whole = pb::WatchResponse {
            events: (2..12).map(event).collect(),
            ..Default::default()
        };
        let parts = split(whole.clone(), 400);
        assert!(parts.len() > 1);
        assert!(parts.iter().all(|part| part.encoded_len() <= 400));
        let (last, others) = parts.split_last().expect("parts");
        assert!(!last.fragment && others.iter().all(|part| part.fragment));
        let joined: Vec<_> = parts.iter().flat_map(|part| part.events.clone()).collect();
        assert_eq!(joined, whole.events);
    }
}
