//! Watches: the present objects if wanted, then every change, bookmarks, and a clean end.
//!
//! ```text
//!   initial --all sent, end marked--> live --time, drain, store stopped--> over
//!      |                               |
//!      +------- history lost ----------+--> ERROR event --> over
//! ```
//! A watch holds a cursor into the store's events and no queue: a slow client is told of every
//! change when it gets there, or of lost history by 410 when compaction was faster.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::json;
use sluice_metastore::Watcher;
use sluice_metastore::events::{Event, EventBatch, Watch};
use sluice_metastore::read::Range;
use sluice_metastore::{Error, Record, Revision};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Call;
use super::form::{self, Form};
use super::options::{self, WatchOptions};
use crate::api::errors;
use crate::api::keys;
use crate::api::resource::{Registry, ResourceKind};
use crate::api::selectors::Selectors;
use crate::api::storage::Storage;
use crate::api::storage::watch::{HistoryLost, Telling, Told, selected};
use crate::api::table::{Head, Shape};
use crate::api::view::{View, frame_of};
use crate::body::{Body, BodyError};
use crate::status::Refusal;

/// Bytes sent at once; events beyond it wait for the next write.
const PIECE_BYTES: usize = 64 << 10;
/// Between bookmarks, as a kube-apiserver has it.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch sends its last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The least a watch lasts whose client names no time; at most twice that.
const LAST_MIN: Duration = Duration::from_secs(1800);

/// Follows a collection.
pub(crate) async fn serve(call: Call<'_>) -> Result<Response<Body>, Refusal> {
    let form = Form::of(&call, Shape::Watch)?;
    let selectors = options::selectors(&call)?;
    let options = options::watch(call.info)?;
    let server = call.server;
    let random = (server.storage().sources().random)();
    let spread = u64::try_from(random % u128::from(LAST_MIN.as_secs())).unwrap_or(0);
    let last = options
        .timeout
        .unwrap_or(LAST_MIN + Duration::from_secs(spread));
    let now = Instant::now();
    let mut watching = Watching {
        storage: server.storage().clone(),
        registry: Arc::clone(server.registry()),
        view: server.views().of(call.kind),
        kind: Arc::clone(call.kind),
        prefix: keys::prefix(call.kind),
        selectors,
        form,
        head: Head::Named,
        initial: VecDeque::new(),
        end_mark: None,
        watcher: None,
        pending: VecDeque::new(),
        failed: None,
        is_over: false,
        bookmarks: options.bookmarks,
        bookmark_at: now + BOOKMARK_EVERY.min(last.saturating_sub(BOOKMARK_BEFORE_END)),
        ends_at: now + last,
        drain: call.ctx.ending(),
    };
    if let Err(refusal) = watching.start(&call, options).await {
        // From here on a refusal is an event: the client knows by it that it watched.
        watching.failed = Some(refusal);
    }
    let frames = stream::unfold(watching, |mut watching| async move {
        let piece = watching.next().await?;
        Some((Ok::<_, BodyError>(Frame::data(piece)), watching))
    });
    Ok(form::json(
        StatusCode::OK,
        Body::boxed(StreamBody::new(frames)),
    ))
}

struct Watching {
    storage: Storage,
    registry: Arc<Registry>,
    view: Arc<View>,
    kind: Arc<ResourceKind>,
    /// Before every object of the kind.
    prefix: String,
    selectors: Selectors,
    form: Form,
    head: Head,
    /// Objects still to be shown, with the revision their end is marked with.
    initial: VecDeque<Record>,
    end_mark: Option<Revision>,
    watcher: Option<Watcher>,
    /// Events taken from the store, not yet told.
    pending: VecDeque<Event>,
    failed: Option<Refusal>,
    is_over: bool,
    bookmarks: bool,
    bookmark_at: Instant,
    ends_at: Instant,
    drain: CancellationToken,
}

/// Why the wait for events ended.
enum Woken {
    Events(Result<EventBatch, Error>),
    Bookmark,
    End,
}

impl Watching {
    async fn start(&mut self, call: &Call<'_>, options: WatchOptions) -> Result<(), Refusal> {
        let range = self.selectors.range(&self.kind, call.namespace());
        let store = self.storage.store().clone();
        let start = if options.initial {
            if let Some(version) = options.version {
                self.storage.reach(version).await?;
            }
            let answer = store.read(&Range::of(range.clone())).await;
            let answer = answer.map_err(|e| errors::from_store(&e))?;
            self.initial = answer.records.into();
            self.end_mark = options.marks_end.then_some(answer.revision);
            answer.revision
        } else {
            options.version.unwrap_or_else(|| store.revision())
        };
        let watch = Watch {
            range,
            start: Some(start.next()),
            want_previous: true,
        };
        let watcher = store
            .watch(watch)
            .map_err(|error| self.too_old(start, &error))?;
        self.watcher = Some(watcher);
        Ok(())
    }

    /// The next bytes to send; `None` when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.is_over {
                return None;
            }
            if let Some(refusal) = self.failed.take() {
                self.is_over = true;
                return Some(frame_of("ERROR", &refusal.encode_json()));
            }
            let mut out = BytesMut::new();
            if let Err(refusal) = self.fill(&mut out) {
                self.failed = Some(refusal);
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
            if self.failed.is_some() {
                continue;
            }
            match self.wait().await {
                Woken::Events(Ok(batch)) => self.pending.extend(batch.events),
                Woken::Events(Err(error)) => self.lose(&error),
                Woken::Bookmark => {
                    if let Some(bookmark) = self.bookmark() {
                        return Some(bookmark);
                    }
                }
                Woken::End => self.is_over = true,
            }
        }
    }

    async fn wait(&mut self) -> Woken {
        let Some(watcher) = &mut self.watcher else {
            return Woken::End;
        };
        tokio::select! {
            // Ends and bookmarks must not starve behind a busy kind.
            biased;
            () = self.drain.cancelled() => Woken::End,
            () = tokio::time::sleep_until(self.ends_at) => Woken::End,
            () = tokio::time::sleep_until(self.bookmark_at) => Woken::Bookmark,
            batch = watcher.next() => Woken::Events(batch),
        }
    }

    /// Appends what is at hand, up to a piece.
    fn fill(&mut self, out: &mut BytesMut) -> Result<(), Refusal> {
        while out.len() < PIECE_BYTES {
            if let Some(record) = self.initial.pop_front() {
                self.show(&record, out)?;
            } else if let Some(revision) = self.end_mark.take() {
                let mark = json!({"k8s.io/initial-events-end": "true"});
                let frame = self.bookmark_frame(revision, Some(mark))?;
                out.extend_from_slice(&frame);
            } else if let Some(event) = self.pending.pop_front() {
                let told = selected(&self.kind, &self.prefix, &self.selectors, &event);
                let revision = event.change.revision();
                let told = told
                    .map_err(|HistoryLost| expired(revision, self.storage.store().compacted()))?;
                if let Some(telling) = told {
                    self.tell(&telling, out)?;
                }
            } else {
                break;
            }
        }
        Ok(())
    }

    fn show(&mut self, record: &Record, out: &mut BytesMut) -> Result<(), Refusal> {
        let place = keys::parse(&self.kind, &self.prefix, record.key());
        if !place.is_some_and(|place| self.selectors.select(place, record.value())) {
            return Ok(());
        }
        let telling = Telling {
            told: Told::Added,
            value: record.value_bytes(),
            revision: record.mod_revision(),
            key: record.key_bytes(),
        };
        let Form::Plain = self.form else {
            return self.tell(&telling, out);
        };
        let frame = self.view.encode(&telling).ok_or_else(foreign)?;
        out.extend_from_slice(&frame);
        Ok(())
    }

    fn tell(&mut self, telling: &Telling, out: &mut BytesMut) -> Result<(), Refusal> {
        if let Form::Plain = self.form {
            out.extend_from_slice(&self.view.frame(telling).ok_or_else(foreign)?);
            return Ok(());
        }
        let raw = self
            .view
            .object(&telling.value, telling.revision)
            .ok_or_else(foreign)?;
        let object = self.form.object(self.head, raw)?;
        self.head = Head::Bare;
        out.extend_from_slice(&frame_of(telling.told.as_str(), &object));
        Ok(())
    }

    /// A bookmark, after whatever events are there already; `None` when there are some, or none is
    /// wanted.
    fn bookmark(&mut self) -> Option<Bytes> {
        let now = Instant::now();
        let last = self
            .ends_at
            .checked_sub(BOOKMARK_BEFORE_END)
            .filter(|last| *last > now);
        self.bookmark_at = match last {
            Some(last) => last.min(now + BOOKMARK_EVERY),
            None => self.ends_at + BOOKMARK_EVERY,
        };
        let kind = &self.kind;
        if self
            .registry
            .resolve(&kind.group, &kind.version, &kind.plural)
            .is_none()
        {
            self.is_over = true;
            return None;
        }
        let polled = self.watcher.as_mut()?.poll_now();
        match polled {
            Ok(None) if self.bookmarks => {}
            Ok(None) => return None,
            Ok(Some(batch)) => {
                self.pending.extend(batch.events);
                if self.bookmarks {
                    // Right after them.
                    self.bookmark_at = now;
                }
                return None;
            }
            Err(error) => {
                self.lose(&error);
                return None;
            }
        }
        let through = self.watcher.as_ref()?.through();
        // A watch that starts in the future has nothing to say yet.
        if through > self.storage.store().revision() {
            return None;
        }
        self.bookmark_frame(through, None).ok()
    }

    fn bookmark_frame(
        &mut self,
        revision: Revision,
        annotations: Option<serde_json::Value>,
    ) -> Result<Bytes, Refusal> {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let (Some(map), Some(annotations)) = (metadata.as_object_mut(), annotations) {
            map.insert("annotations".into(), annotations);
        }
        let object = json!({
            "kind": self.kind.kind,
            "apiVersion": self.kind.api_version(),
            "metadata": metadata,
        });
        let raw = Bytes::from(object.to_string());
        let object = self.form.object(self.head, raw)?;
        self.head = Head::Bare;
        Ok(frame_of("BOOKMARK", &object))
    }

    fn lose(&mut self, error: &Error) {
        match error {
            Error::Compacted { requested, .. } => {
                self.failed = Some(self.too_old(requested.prev(), error));
            }
            // The store is going: end cleanly, the client comes back to another one or to this
            // one's next life.
            Error::Stopped { .. } => self.is_over = true,
            other => self.failed = Some(errors::from_store(other)),
        }
    }

    fn too_old(&self, asked: Revision, error: &Error) -> Refusal {
        match error {
            Error::Compacted { compacted, .. } => expired(asked, *compacted),
            other => errors::from_store(other),
        }
    }
}

fn expired(asked: Revision, oldest: Revision) -> Refusal {
    errors::expired(format!("too old resource version: {asked} ({oldest})"))
}

fn foreign() -> Refusal {
    errors::internal("unable to decode: a stored value is not an object of this API")
}
