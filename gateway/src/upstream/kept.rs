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
use crate::identity::RequestHeaders;

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
}

#[derive(Debug)]
struct Shared {
    rest: Body,
    frames: VecDeque<Bytes>,
    /// How many of the frames the youngest attempt has sent; while nothing is kept any more, those
    /// it has still to send are all there are.
    position: usize,
    bytes: usize,
    is_keeping: bool,
    is_lost: bool,
    /// The client's end has come.
    is_ended: bool,
    attempt: u32,
    keeper: Arc<Keeper>,
    forbidden: Forbidden,
}

/// Which trailer fields to drop: a judge, and the names it goes by.
pub(crate) type Forbidden = (
    fn(&RequestHeaders, &HeaderName) -> bool,
    Arc<RequestHeaders>,
);

impl Kept {
    /// Takes the client's content. `forbidden` names the trailer fields to drop.
    pub(crate) fn new(body: Body, keeper: Arc<Keeper>, forbidden: Forbidden) -> Self {
        let shared = Shared {
            rest: body,
            frames: VecDeque::new(),
            position: 0,
            bytes: 0,
            is_keeping: true,
            is_lost: false,
            is_ended: false,
            attempt: 0,
            keeper,
            forbidden,
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
        shared.position = 0;
        Some(KeptBody {
            shared: Arc::clone(&self.shared),
            attempt: shared.attempt,
        })
    }

    /// Whether the client has sent all of it.
    pub(crate) fn is_read(&self) -> bool {
        let shared = self.shared.lock();
        shared.is_ended || shared.rest.is_end_stream()
    }

    /// Whether one more attempt could be made.
    pub(crate) fn is_there(&self) -> bool {
        !self.shared.lock().is_lost
    }

    /// No further attempt will be made.
    pub(crate) fn forget(&self) {
        self.shared.lock().stop_keeping();
    }
}

impl Shared {
    fn keep(&mut self, data: &Bytes) {
        if !self.is_keeping {
            self.is_lost = true;
            return;
        }
        let all = self.keeper.bytes.fetch_add(data.len(), Ordering::Relaxed);
        self.bytes += data.len();
        self.frames.push_back(data.clone());
        self.position = self.frames.len();
        if self.bytes > KEPT_MAX || all + data.len() > KEPT_ALL_MAX {
            self.stop_keeping();
        }
    }

    /// Lets go of what has been sent; what has not been still passes.
    fn stop_keeping(&mut self) {
        self.is_keeping = false;
        self.is_lost |= self.position > 0;
        self.frames.drain(..self.position.min(self.frames.len()));
        self.position = 0;
        self.keeper.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = 0;
    }

    /// The next frame that an earlier attempt has read already.
    fn next_kept(&mut self) -> Option<Bytes> {
        if !self.is_keeping {
            let next = self.frames.pop_front();
            self.is_lost |= next.is_some();
            return next;
        }
        let next = self.frames.get(self.position).cloned();
        self.position += usize::from(next.is_some());
        next
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
        if let Some(data) = shared.next_kept() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match Pin::new(&mut shared.rest).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => {
                    shared.keep(&data);
                    Poll::Ready(Some(Ok(Frame::data(data))))
                }
                Err(frame) => Poll::Ready(Some(Ok(shared.sift(frame)))),
            },
            other => {
                shared.is_ended |= matches!(other, Poll::Ready(None));
                other
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        let shared = self.shared.lock();
        shared.frames.len() <= shared.position && shared.rest.is_end_stream()
    }

    pub(super) fn size(&self) -> SizeHint {
        let shared = self.shared.lock();
        if shared.is_lost || !shared.frames.is_empty() {
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
                let (is_forbidden, names) = &self.forbidden;
                let forbidden: Vec<HeaderName> = trailers
                    .keys()
                    .filter(|name| is_forbidden(names, name))
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

#[cfg(test)]
mod tests {

    use futures_util::{FutureExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;
    use crate::upstream::SendBody;

    fn kept(frames: &[&'static [u8]]) -> (Kept, Arc<Keeper>) {
        let frames: Vec<_> = frames
            .iter()
            .map(|f| Ok::<_, BodyError>(Frame::data(Bytes::from_static(f))))
            .collect();
        let body = StreamBody::new(stream::iter(frames));
        let keeper = Arc::new(Keeper::default());
        let kept = Kept::new(
            Body::boxed(body),
            Arc::clone(&keeper),
            (|_, _| false, Arc::default()),
        );
        (kept, keeper)
    }

    fn next(body: &mut SendBody) -> Option<Result<Bytes, BodyError>> {
        let frame = body.frame().now_or_never().expect("it is all there");
        frame.map(|f| f.map(|f| f.into_data().unwrap_or_default()))
    }

    fn rest(body: &mut SendBody) -> Vec<u8> {
        std::iter::from_fn(|| next(body))
            .flat_map(Result::unwrap)
            .collect()
    }

    #[test]
    fn second_attempt_sends_all_and_the_first_no_more() {
        let (kept, keeper) = kept(&[b"ab", b"cd", b"ef"]);
        let mut first = SendBody::Kept(kept.attempt().unwrap());
        assert_eq!(next(&mut first).unwrap().unwrap(), "ab");
        assert_eq!(next(&mut first).unwrap().unwrap(), "cd");
        let mut second = SendBody::Kept(kept.attempt().unwrap());
        assert!(next(&mut first).unwrap().is_err());
        assert_eq!(rest(&mut second), b"abcdef");
        assert_eq!(keeper.bytes.load(Ordering::Relaxed), 6);
        kept.forget();
        assert_eq!(keeper.bytes.load(Ordering::Relaxed), 0);
        assert!(kept.attempt().is_none());
    }

    #[test]
    fn early_answer_takes_nothing_from_the_replay() {
        let (kept, _) = kept(&[b"ab", b"cd", b"ef"]);
        let mut first = SendBody::Kept(kept.attempt().unwrap());
        next(&mut first);
        next(&mut first);
        let mut second = SendBody::Kept(kept.attempt().unwrap());
        assert_eq!(next(&mut second).unwrap().unwrap(), "ab");
        kept.forget();
        assert_eq!(rest(&mut second), b"cdef");
    }

    #[test]
    fn too_much_is_not_kept_and_passes_all_the_same() {
        static MEGABYTE: [u8; 1 << 20] = [0; 1 << 20];
        let (kept, keeper) = kept(&[&MEGABYTE[..]; 5]);
        let mut first = SendBody::Kept(kept.attempt().unwrap());
        assert_eq!(rest(&mut first).len(), 5 << 20);
        assert_eq!(keeper.bytes.load(Ordering::Relaxed), 0);
        assert!(kept.attempt().is_none());
    }

    #[test]
    fn unread_content_is_never_lost() {
        let (kept, _) = kept(&[b"ab"]);
        let unsent = kept.attempt().unwrap();
        kept.forget();
        drop(unsent);
        assert_eq!(rest(&mut SendBody::Kept(kept.attempt().unwrap())), b"ab");
    }
}
