//! The sender of one watch stream.
//!
//! ```text
//!            request, nudge, tick, bell of a watch
//!                          |
//!   idle --------------> pump: move the cursors due, word their events
//!    ^                     |
//!    |   nothing to send   v        client takes one
//!    +---------------- outbox -------------------------> sent
//! ```
//!
//! A watch is due when its bell rang, that is when something it may concern became visible: the
//! streams of an apiserver sleep through each other's writes. A bell is hung up again before its
//! cursor moves, so nothing is missed in between.
//!
//! Progress is told only from here and only after the pump: at that moment everything up to the
//! revision told lies in the outbox before it, so it can be neither early nor out of order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{Abortable, Aborted, abortable};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Interval, MissedTickBehavior};
use tonic::{Status, Streaming};

use super::super::convert::key_range;
use super::super::errors;
use super::super::proto::etcdserverpb as pb;
use super::super::proto::etcdserverpb::watch_request::RequestUnion;
use super::super::shared::Shared;
use super::active::Active;
use super::nudge::Nudge;
use crate::events::{Bell, Watch};
use crate::faults::{Fault, injected, now_and_then};
use crate::{Error, KeyRange, Revision};

/// The watch id of answers that are about no watch, or about all of the stream.
const NO_WATCH: i64 = -1;
/// Watches of one stream; an apiserver holds a few, a proxy in front of many some thousands.
const WATCHES_MAX: usize = 16 * 1024;
/// Responses worded before they are sent: enough for one full frame of small ones.
const OUTBOX_MAX: usize = 32;
/// Passes over the cursors in search of one revision that all stand at, before letting others run.
const PASSES_MAX: usize = 8;

/// Owns every watch of a stream and is polled for what to send next.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    /// `None` once the client has nothing more to ask.
    requests: Option<Streaming<pb::WatchRequest>>,
    watches: BTreeMap<i64, Active>,
    /// One bell for each watch that is not due. A bell taken down ends as aborted.
    bells: FuturesUnordered<Abortable<Ring>>,
    /// Watches whose cursors may have something to move over.
    due: BTreeSet<i64>,
    next_id: i64,
    /// The first id the next pass of the pump looks at, so that busy watches do not starve others.
    next_pumped: i64,
    outbox: VecDeque<pb::WatchResponse>,
    nudge: Arc<Nudge>,
    ticks: Interval,
    /// A progress request that is not answered yet; several count as one.
    is_progress_due: bool,
}

impl Sender {
    pub(crate) fn new(shared: Arc<Shared>, requests: Streaming<pb::WatchRequest>) -> Self {
        shared.counters.watch_streams.up();
        let ordinal = shared.counters.watch_streams_opened.next();
        let mut ticks = tokio::time::interval(jittered(shared.progress_interval, ordinal));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        Sender {
            shared,
            requests: Some(requests),
            watches: BTreeMap::new(),
            bells: FuturesUnordered::new(),
            due: BTreeSet::new(),
            next_id: 0,
            next_pumped: 0,
            outbox: VecDeque::new(),
            nudge: Arc::new(Nudge::default()),
            ticks,
            is_progress_due: false,
        }
    }

    /// The next response. `Err(None)` ends the stream without a status, `Err(Some)` with one.
    pub(crate) async fn next(&mut self) -> Result<pb::WatchResponse, Option<Status>> {
        loop {
            if let Some(response) = self.outbox.pop_front() {
                return Ok(response);
            }
            if self.shared.stopping.is_cancelled() {
                return Err(Some(errors::stopped()));
            }
            self.take_requests()?;
            while let Some(Some(rung)) = self.bells.next().now_or_never() {
                self.rung(rung)?;
            }
            self.pump()?;
            self.tell_nudged()?;
            self.tell_all()?;
            if !self.outbox.is_empty() {
                continue;
            }
            if self.due.is_empty() && !self.is_progress_due {
                self.wait().await?;
            } else {
                // A cursor moves a bounded way at a time. Others may run, then it goes on.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Hangs a bell up again and makes its watch due.
    fn rung(&mut self, rung: Result<i64, Aborted>) -> Result<(), Option<Status>> {
        let Ok(id) = rung else { return Ok(()) };
        if self.shared.store.failure().is_some() {
            return Err(Some(errors::stopped()));
        }
        self.listen(id);
        Ok(())
    }

    /// Hangs up a watch's bell, then makes it due: in this order nothing is missed.
    fn listen(&mut self, id: i64) {
        if let Some(active) = self.watches.get_mut(&id) {
            let (ring, handle) = abortable(Ring {
                id,
                bell: active.listen(),
            });
            active.bell = Some(handle);
            self.bells.push(ring);
            self.due.insert(id);
        }
    }

    /// Takes what the client has asked already, so that a stream of events cannot put off a cancel.
    fn take_requests(&mut self) -> Result<(), Option<Status>> {
        while self.outbox.len() < OUTBOX_MAX {
            let Some(requests) = &mut self.requests else {
                return Ok(());
            };
            match requests.message().now_or_never() {
                None => return Ok(()),
                Some(request) => self.requested(request)?,
            }
        }
        Ok(())
    }

    /// Waits until there may be something to send.
    async fn wait(&mut self) -> Result<(), Option<Status>> {
        // An ended stream of requests must not be polled again, and never wakes anyone.
        let asked = async {
            match &mut self.requests {
                Some(requests) => requests.message().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // First, so that a drain is not put off by traffic.
            () = self.shared.stopping.cancelled() => Err(Some(errors::stopped())),
            // A cancel or a new watch before more events.
            request = asked => self.requested(request),
            // The two below only lead back to the pump.
            () = self.nudge.waited() => Ok(()),
            Some(rung) = self.bells.next(), if !self.bells.is_empty() => self.rung(rung),
            // Last: under traffic the notice would say nothing that the events do not.
            _ = self.ticks.tick() => self.tick(),
        }
    }

    fn requested(
        &mut self,
        request: Result<Option<pb::WatchRequest>, Status>,
    ) -> Result<(), Option<Status>> {
        match request.map_err(Some)? {
            None => self.requests = None,
            Some(request) => match request.request_union {
                Some(RequestUnion::CreateRequest(create)) => self.create(create),
                Some(RequestUnion::CancelRequest(cancel)) => self.cancel(cancel.watch_id),
                Some(RequestUnion::ProgressRequest(_)) => {
                    self.shared.nudges.begin();
                    self.is_progress_due = !self.watches.is_empty();
                    if injected(Fault::ProgressAhead) {
                        let revision = self.shared.store.revision();
                        self.outbox.push_back(self.about(NO_WATCH, revision));
                    }
                }
                // etcd passes over what it does not know, too.
                None => {}
            },
        }
        Ok(())
    }

    fn create(&mut self, mut request: pb::WatchCreateRequest) {
        if request.key.is_empty() {
            request.key = bytes::Bytes::from_static(&[0]);
        }
        // The client counts on every event above what the answer says: from now on is from there.
        let current = self.shared.store.revision();
        let range = key_range(&request.key, &request.range_end);
        let id = match self.admit(&request, &range) {
            Ok(id) => id,
            Err(reason) => return self.refuse(current, reason),
        };
        let begun = self.shared.store.watch(Watch {
            range: range.clone(),
            start: Some(Revision::from_wire(request.start_revision).unwrap_or(current.next())),
            want_previous: request.prev_kv,
        });
        let created = pb::WatchResponse {
            created: true,
            ..self.about(id, current)
        };
        match begun {
            Ok(watcher) => {
                let mut active = Active::new(watcher, &request);
                if active.wants_progress {
                    active.nudge_key = self.shared.nudges.enter(&range, id, &self.nudge);
                }
                self.watches.insert(id, active);
                self.listen(id);
                self.shared.counters.watchers.up();
                self.outbox.push_back(created);
            }
            Err(Error::Compacted { compacted, .. }) => {
                self.outbox.push_back(created);
                self.tell_compacted(id, compacted);
            }
            Err(error) => self.refuse(current, errors::status(&error).message()),
        }
    }

    /// Chooses the watch's id, or says why there can be no such watch.
    fn admit(
        &mut self,
        request: &pb::WatchCreateRequest,
        range: &KeyRange,
    ) -> Result<i64, &'static str> {
        if request.start_revision < 0 {
            return Err(errors::COMPACTED);
        }
        if matches!(range, KeyRange::Between(start, end) if start >= end) {
            return Err(errors::WATCH_RANGE_EMPTY);
        }
        if self.watches.len() >= WATCHES_MAX {
            return Err(errors::WATCHES_TOO_MANY);
        }
        if request.watch_id != 0 {
            let is_taken = self.watches.contains_key(&request.watch_id);
            return if is_taken {
                Err(errors::WATCH_ID_TAKEN)
            } else {
                Ok(request.watch_id)
            };
        }
        while self.watches.contains_key(&self.next_id) {
            self.next_id += 1;
        }
        self.next_id += 1;
        Ok(self.next_id - 1)
    }

    fn refuse(&mut self, current: Revision, reason: &str) {
        self.outbox.push_back(pb::WatchResponse {
            created: true,
            canceled: true,
            cancel_reason: reason.to_owned(),
            ..self.about(NO_WATCH, current)
        });
    }

    /// Cancels at the client's wish: without a reason, which the library takes for its own doing.
    fn cancel(&mut self, id: i64) {
        if self.forget(id) {
            let current = self.shared.store.revision();
            self.outbox.push_back(pb::WatchResponse {
                canceled: true,
                ..self.about(id, current)
            });
        }
    }

    fn forget(&mut self, id: i64) -> bool {
        let Some(active) = self.watches.remove(&id) else {
            return false;
        };
        if let Some(key) = &active.nudge_key {
            self.shared.nudges.leave(key, id, &self.nudge);
        }
        if let Some(bell) = &active.bell {
            bell.abort();
        }
        self.due.remove(&id);
        self.shared.counters.watchers.down();
        true
    }

    /// Moves each cursor that is due and words what it finds, one batch a watch, until the outbox
    /// is full.
    fn pump(&mut self) -> Result<(), Option<Status>> {
        let from = self.next_pumped;
        let later = self.due.range(from..);
        let ids: Vec<i64> = later.chain(self.due.range(..from)).copied().collect();
        for id in ids {
            if self.outbox.len() >= OUTBOX_MAX {
                if injected(Fault::SlowStreamLoses) {
                    let _lost = self.watches.get_mut(&id).map(Active::poll);
                }
                self.next_pumped = id;
                break;
            }
            self.advance(id)?;
        }
        Ok(())
    }

    /// Moves one cursor and words what it finds. The watch stays due until nothing is found.
    fn advance(&mut self, id: i64) -> Result<(), Option<Status>> {
        let Some(active) = self.watches.get_mut(&id) else {
            return Ok(());
        };
        match active.poll() {
            Ok(None) => {
                self.due.remove(&id);
            }
            Ok(Some(batch)) => {
                self.due.insert(id);
                self.shared.counters.events.add(batch.events.len());
                let shared = &self.shared;
                let responses = active.responses(id, batch, |through| shared.header(through));
                if now_and_then(Fault::EventsTwice) {
                    self.outbox.extend(responses.clone());
                }
                self.outbox.extend(responses);
            }
            Err(Error::Compacted { compacted, .. }) => {
                self.forget(id);
                self.tell_compacted(id, compacted);
            }
            Err(error) => return Err(Some(errors::status(&error))),
        }
        Ok(())
    }

    fn tell_compacted(&mut self, id: i64, floor: Revision) {
        let current = self.shared.store.revision();
        self.outbox.push_back(pb::WatchResponse {
            canceled: true,
            compact_revision: floor.to_wire(),
            ..self.about(id, current)
        });
    }

    /// Answers a progress request: one notice for the whole stream, at a revision that every watch
    /// stands at. Without a watch, or with one that waits for the future, there is no answer, as
    /// from etcd; while one lags, the answer waits for it.
    fn tell_all(&mut self) -> Result<(), Option<Status>> {
        if !self.is_progress_due {
            return Ok(());
        }
        let mut target = self.shared.store.revision();
        if self.watches.values().any(|one| !one.may_tell(target)) {
            self.is_progress_due = false;
            return Ok(());
        }
        // Writes go on while cursors move, so they may come to stand apart; another pass takes
        // those behind to where the first of them is.
        for _ in 0..PASSES_MAX {
            let places = || self.watches.values().map(Active::through);
            let Some(newest) = places().max() else {
                self.is_progress_due = false;
                return Ok(());
            };
            target = target.max(newest);
            if places().all(|place| place == target) {
                self.is_progress_due = false;
                self.outbox.push_back(self.about(NO_WATCH, target));
                return Ok(());
            }
            let behind = self
                .watches
                .iter()
                .filter(|(_, one)| one.through() < target);
            let behind: Vec<i64> = behind.map(|(id, _)| *id).collect();
            for id in behind {
                if self.outbox.len() >= OUTBOX_MAX {
                    return Ok(());
                }
                self.advance(id)?;
            }
        }
        Ok(())
    }

    /// Tells nudged watches how far they are, each after its own events.
    fn tell_nudged(&mut self) -> Result<(), Option<Status>> {
        for id in self.nudge.take() {
            self.advance(id)?;
            if self.due.contains(&id) {
                // Its events go first, and there may be more of them.
                self.nudge.add(id);
            } else {
                self.tell_one(id);
            }
        }
        Ok(())
    }

    /// The periodic notice, for watches that had nothing to hear since the last one.
    fn tick(&mut self) -> Result<(), Option<Status>> {
        let ids: Vec<i64> = self.watches.keys().copied().collect();
        for id in ids {
            let Some(active) = self.watches.get_mut(&id) else {
                continue;
            };
            if std::mem::replace(&mut active.is_quiet, true) && active.wants_progress {
                self.advance(id)?;
                if !self.due.contains(&id) {
                    self.tell_one(id);
                }
            }
        }
        Ok(())
    }

    /// Tells one watch how far it is, if it asked to hear and has begun.
    fn tell_one(&mut self, id: i64) {
        let Some(active) = self.watches.get(&id) else {
            return;
        };
        let through = active.through();
        if active.wants_progress && active.may_tell(through) {
            self.outbox.push_back(self.about(id, through));
        }
    }

    fn about(&self, id: i64, revision: Revision) -> pb::WatchResponse {
        let header = self.shared.header(revision);
        pb::WatchResponse {
            header,
            watch_id: id,
            ..Default::default()
        }
    }
}

/// A watch's bell, and whose it is.
struct Ring {
    id: i64,
    bell: Bell,
}

impl Future for Ring {
    type Output = i64;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<i64> {
        let id = self.id;
        Pin::new(&mut self.bell).poll(cx).map(|()| id)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let ids: Vec<i64> = self.watches.keys().copied().collect();
        for id in ids {
            self.forget(id);
        }
        self.shared.counters.watch_streams.down();
    }
}

/// Up to a tenth longer, differently for each stream, so that streams opened together do not tick
/// together. The ordinal times the golden ratio spreads evenly without randomness.
fn jittered(interval: Duration, ordinal: u64) -> Duration {
    let spread = ordinal.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    interval + interval.mul_f64(spread as f64 / f64::from(1_u32 << 16) / 10.0)
}
