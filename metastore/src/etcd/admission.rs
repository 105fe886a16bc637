//! How many bytes of answered reads are on their way at once.
//!
//! An answer of one message is whole in memory until its client has taken it, so a burst of full
//! lists from slow clients could hold any amount. Answers above a size take room first: they wait
//! a while for it, then are refused with etcd's "too many requests". The room comes back when the
//! answer's body is dropped, sent or not, so an overload ends by itself.
//!
//! Streamed lists need none of this: they are made as their client takes them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::errors;

/// Answers up to this size need no room: a page of 500 objects of 2 KiB.
pub(crate) const FREE_BYTES: usize = 1024 * 1024;
/// The room: some lists of a large cluster's pods at once, and a bounded share of a small machine.
pub(crate) const ROOM_BYTES: usize = 512 * 1024 * 1024;
/// Room is counted in these, since a semaphore counts in 32 bits when asked for many.
const UNIT_BYTES: usize = 1024;
/// How long an answer waits for room: what kube-apiserver waits for a fresh cache, less a margin.
const PATIENCE: Duration = Duration::from_millis(2500);

/// The room of one listener.
pub(crate) struct Room {
    units: Arc<Semaphore>,
    /// Answers that wait for some of it.
    waiting: AtomicUsize,
    size: usize,
    patience: Duration,
}

/// Room taken by one answer; rides on the response until [`hold`] ties it to the body.
#[derive(Clone)]
pub(crate) struct Taken(
    #[expect(dead_code, reason = "held to be dropped")] Arc<OwnedSemaphorePermit>,
);

/// One among those that wait, until dropped.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Room {
    /// So many bytes, with etcd's patience.
    pub(crate) fn new(bytes: usize) -> Self {
        Room::of(bytes, PATIENCE)
    }

    /// Whether an answer waits for room.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    fn of(bytes: usize, patience: Duration) -> Self {
        let size = bytes / UNIT_BYTES;
        Room {
            units: Arc::new(Semaphore::new(size)),
            waiting: AtomicUsize::new(0),
            size,
            patience,
        }
    }

    /// Takes room for an answer of so many bytes; `None` when it is small. One that is larger than
    /// all the room takes all of it, alone.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Option<Taken>, Status> {
        if bytes <= FREE_BYTES {
            return Ok(None);
        }
        let units = u32::try_from((bytes / UNIT_BYTES).min(self.size)).unwrap_or(u32::MAX);
        if let Ok(permit) = Arc::clone(&self.units).try_acquire_many_owned(units) {
            return Ok(Some(Taken(Arc::new(permit))));
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _place = Place(&self.waiting);
        let room = Arc::clone(&self.units).acquire_many_owned(units);
        match tokio::time::timeout(self.patience, room).await {
            Ok(Ok(permit)) => Ok(Some(Taken(Arc::new(permit)))),
            // The semaphore is never closed, so this is time running out.
            Ok(Err(_)) | Err(_) => Err(errors::too_many_requests()),
        }
    }
}

/// Unfinished requests of one connection: some thirty of the largest, far more than a client sends
/// at once.
const BODIES_CONNECTION_BYTES: usize = 64 * 1024 * 1024;
/// Of all connections of a listener together: what answers may hold.
const BODIES_BYTES: usize = ROOM_BYTES;

/// Bytes that may be held, for whoever would rather be refused than wait.
pub(crate) struct Budget {
    left: AtomicUsize,
}

impl Default for Budget {
    /// That of a listener.
    fn default() -> Self {
        Budget::of(BODIES_BYTES)
    }
}

impl Budget {
    fn of(bytes: usize) -> Self {
        Budget {
            left: AtomicUsize::new(bytes),
        }
    }

    pub(crate) fn of_connection() -> Self {
        Budget::of(BODIES_CONNECTION_BYTES)
    }

    /// Takes so many bytes; takes none, and answers `false`, when fewer are left.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let take = |left: usize| left.checked_sub(bytes);
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        self.left.fetch_update(order.0, order.1, take).is_ok()
    }

    pub(crate) fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Ties the room an answer took to its body.
pub(crate) async fn hold(mut response: Response) -> Response {
    match response.extensions_mut().remove::<Taken>() {
        None => response,
        Some(taken) => response.map(|body| {
            Body::new(Held {
                body,
                _taken: taken,
            })
        }),
    }
}

struct Held {
    body: Body,
    _taken: Taken,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_gives_only_what_is_left() {
        let budget = Budget::of(10);
        assert!(budget.take(7) && !budget.take(4) && budget.take(3) && !budget.take(1));
        budget.give(4);
        assert!(budget.take(4) && budget.take(0) && !budget.take(1));
    }

    /// What holds the room is the body: the answer itself may be long gone.
    #[tokio::test]
    async fn room_comes_back_with_the_body() {
        let room = Room::of(4 * FREE_BYTES, Duration::from_millis(10));
        assert!(matches!(room.take(FREE_BYTES).await, Ok(None)));
        let taken = room
            .take(9 * FREE_BYTES)
            .await
            .expect("room for one")
            .expect("a large answer");
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(taken);
        let held = hold(response).await;
        let refused = room
            .take(2 * FREE_BYTES)
            .await
            .err()
            .expect("no room is left");
        assert_eq!(refused.message(), "etcdserver: too many requests");
        drop(held);
        assert!(matches!(room.take(4 * FREE_BYTES).await, Ok(Some(_))));
    }
}
