//! A client's request content on its way upstream, kept as long as it may have to be sent again.
//!
//! Frames pass as they come and as fast as the endpoint takes them; beside that, their bytes (by
//! reference count) are kept until the response head has come. A replay begins with what is kept
//! and goes on with what the client has still to send. Bounds: [`KEPT_MAX`] for one request,
//! [`Keeper`] for all of a cluster; beyond either nothing is kept and nothing replayed, the
//! content itself still passes. Trailers pass without the fields a client must not set.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderName;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

use crate::body::{Body, BodyError};

/// kube-apiserver refuses larger request bodies.
const KEPT_MAX: usize = 3 * 1024 * 1024;

/// All kept bodies of a cluster: a burst of two hundred ordinary writes of 300 KB.
const KEPT_ALL_MAX: usize = 64 * 1024 * 1024;

/// Counts the bytes kept by all requests of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    bytes: AtomicUsize,
}

/// The forwarder's side: decides how long to keep, and makes the content anew.
#[derive(Debug)]
pub(crate) struct Kept {
    shared: Arc<Mutex<Shared>>,
}

/// The connection's side: the content, from its beginning.
#[derive(Debug)]
pub(crate) struct KeptBody {
    shared: Arc<Mutex<Shared>>,
    /// Only the youngest attempt may read.
    attempt: u32,
    /// What of the kept frames this attempt has still to send.
    position: usize,
}

#[derive(Debug)]
struct Shared {
    rest: Body,
    frames: VecDeque<Bytes>,
    bytes: usize,
    is_keeping: bool,
    is_lost: bool,
    attempt: u32,
    keeper: Arc<Keeper>,
    is_forbidden: fn(&HeaderName) -> bool,
}

impl Kept {
    /// Takes the client's content. `is_forbidden` names the trailer fields to drop.
    pub(crate) fn new(
        body: Body,
        keeper: Arc<Keeper>,
        is_forbidden: fn(&HeaderName) -> bool,
    ) -> Self {
        let shared = Shared {
            rest: body,
            frames: VecDeque::new(),
            bytes: 0,
            is_keeping: true,
            is_lost: false,
            attempt: 0,
            keeper,
            is_forbidden,
        };
        Kept {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// The content for one more attempt; earlier ones can read no further. `None` when some of it
    /// is gone.
    pub(crate) fn attempt(&self) -> Option<KeptBody> {
        let mut shared = self.shared.lock();
        if shared.is_lost {
            return None;
        }
        shared.attempt += 1;
        Some(KeptBody {
            shared: Arc::clone(&self.shared),
            attempt: shared.attempt,
            position: 0,
        })
    }

    /// No further attempt will be made.
    pub(crate) fn forget(&self) {
        self.shared.lock().stop_keeping();
    }
}

impl Shared {
    fn keep(&mut self, data: &Bytes) {
        if !self.is_keeping {
            return;
        }
        let all = self.keeper.bytes.fetch_add(data.len(), Ordering::Relaxed);
        self.bytes += data.len();
        self.frames.push_back(data.clone());
        if self.bytes > KEPT_MAX || all + data.len() > KEPT_ALL_MAX {
            self.stop_keeping();
        }
    }

    fn stop_keeping(&mut self) {
        self.is_keeping = false;
        self.keeper.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // With nothing read yet, nothing is lost.
        self.is_lost |= self.bytes > 0;
        self.bytes = 0;
        self.frames.clear();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop_keeping();
    }
}

impl KeptBody {
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut shared = self.shared.lock();
        if shared.attempt != self.attempt {
            return Poll::Ready(Some(Err(BodyError::Cut("sent again elsewhere"))));
        }
        if let Some(data) = shared.frames.get(self.position) {
            self.position += 1;
            return Poll::Ready(Some(Ok(Frame::data(data.clone()))));
        }
        match Pin::new(&mut shared.rest).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    shared.keep(&data);
                    self.position += usize::from(shared.is_keeping);
                    if !shared.is_keeping {
                        shared.is_lost = true;
                    }
                    Poll::Ready(Some(Ok(Frame::data(data))))
                }
                Err(frame) => Poll::Ready(Some(Ok(shared.sift(frame)))),
            },
            other => other,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let shared = self.shared.lock();
        shared.frames.len() <= self.position && shared.rest.is_end_stream()
    }

    pub(super) fn size(&self) -> SizeHint {
        let shared = self.shared.lock();
        if self.position > 0 || !shared.frames.is_empty() {
            return SizeHint::default();
        }
        shared.rest.size_hint()
    }
}

impl Shared {
    /// Takes out of trailers what a client must not say. Trailers are not kept: a replay after
    /// them is answered without.
    fn sift(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        self.is_lost = true;
        match frame.into_trailers() {
            Ok(mut trailers) => {
                let forbidden: Vec<HeaderName> = trailers
                    .keys()
                    .filter(|name| (self.is_forbidden)(name))
                    .cloned()
                    .collect();
                for name in forbidden {
                    trailers.remove(name);
                }
                Frame::trailers(trailers)
            }
            Err(frame) => frame,
        }
    }
}
