//! An upstream's response body on its way to the client.
//!
//! Frames pass as they come, at the client's pace. A body that breaks is reset, never ended: half
//! a list must not look whole. A watch that breaks ends cleanly between two events, so that the
//! client watches on from its last resource version; so does one that has to end for a drain, or
//! is wanted at another endpoint.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::beginning::Opened;
use super::framing::{Framer, Framing};
use super::patience::Patience;
use crate::body::{Body, BodyError};
use crate::clock;
use crate::upstream::{Estimates, Lease, Outcome, ReceiveError, Received, Seat, Ticket, View};

/// What a response occupies upstream; free again when dropped.
pub(super) struct Hold {
    view: Arc<View>,
    ticket: Ticket,
    /// Tunnels' connections are their own and need none.
    _lease: Option<Lease>,
    size: Option<Size>,
}

/// How large an answer is, for those who want to know in the end.
pub(super) struct Size {
    pub(super) estimates: Arc<Estimates>,
    pub(super) kind: u64,
    pub(super) bytes: u64,
}

impl Hold {
    pub(super) fn new(view: &Arc<View>, ticket: Ticket, lease: Lease, size: Option<Size>) -> Self {
        Hold {
            view: Arc::clone(view),
            ticket,
            _lease: Some(lease),
            size,
        }
    }

    /// The answer has ended whole.
    fn finish(self) {
        if let Some(size) = &self.size {
            size.estimates.note(size.kind, size.bytes);
        }
    }

    fn count(&mut self, frame: &Frame<Bytes>) {
        if let (Some(size), Some(data)) = (&mut self.size, frame.data_ref()) {
            size.bytes += data.len() as u64;
        }
    }

    pub(super) fn without_lease(view: &Arc<View>, ticket: Ticket) -> Self {
        Hold {
            view: Arc::clone(view),
            ticket,
            _lease: None,
            size: None,
        }
    }

    pub(super) fn endpoint_id(&self) -> Arc<str> {
        Arc::clone(&self.ticket.endpoint.id)
    }

    fn observe_break(&self, error: &ReceiveError) {
        let endpoint = &self.ticket.endpoint;
        tracing::debug!(endpoint = &*endpoint.id, %error, "response body broke");
        endpoint.observe(Outcome::Failure, &self.view.spec, clock::now());
    }
}

/// The body of any answer that is not a stream of events.
pub(super) fn plain(opened: Opened, mut hold: Hold, patience: Patience) -> Body {
    if let Some(size) = &mut hold.size {
        size.bytes = opened.beginning.bytes() as u64;
    }
    let mut plain = Plain {
        opened,
        hold: Some(hold),
        patience,
    };
    if plain.opened.is_over() {
        plain.finish(); // the endpoint is done with what is at hand whole
    }
    if plain.opened.is_spent() {
        return Body::Empty;
    }
    Body::boxed(plain)
}

/// The body of a watch.
pub(super) fn watch(
    incoming: Received,
    hold: Hold,
    headers: &HeaderMap,
    ending: CancellationToken,
) -> Body {
    Body::boxed(Events {
        incoming,
        seat: hold.ticket.endpoint.watches.sit(),
        hold: Some(hold),
        framer: Framer::new(framing(headers)),
        trailers: None,
        ending: Some(Box::pin(ending.cancelled_owned())),
        is_ending: false,
        is_over: false,
    })
}

fn framing(headers: &HeaderMap) -> Framing {
    if headers.contains_key(CONTENT_ENCODING) {
        return Framing::Opaque;
    }
    let media = headers.get(CONTENT_TYPE).map(|v| v.as_bytes());
    let media = media.and_then(|media| media.split(|&b| b == b';').next());
    match media.map(<[u8]>::trim_ascii) {
        Some(b"application/json") => Framing::Lines,
        Some(b"application/vnd.kubernetes.protobuf") => Framing::Lengths,
        _ => Framing::Opaque,
    }
}

struct Plain {
    opened: Opened,
    hold: Option<Hold>,
    patience: Patience,
}

impl HttpBody for Plain {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let opened = &mut this.opened;
        if let Some(data) = opened.beginning.pop() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if opened.is_over() {
            let trailers = opened.beginning.trailers().map(Frame::trailers);
            return Poll::Ready(trailers.map(Ok));
        }
        let Poll::Ready(next) = Pin::new(&mut opened.incoming).poll_frame(cx) else {
            let why = ready!(this.patience.poll_over(cx));
            return Poll::Ready(Some(Err(this.give_up(why))));
        };
        this.patience.renew();
        match next {
            Some(Ok(frame)) => {
                if let Some(hold) = &mut this.hold {
                    hold.count(&frame);
                }
                // A transport that knows this to be the end does not ask again.
                if opened.incoming.is_end_stream() {
                    this.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            None => {
                this.finish();
                Poll::Ready(None)
            }
            // Only its end is missing.
            Some(Err(_)) if opened.is_whole() => {
                this.finish();
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                if let Some(hold) = this.hold.take() {
                    hold.observe_break(&error);
                }
                // Without the cause: its reset code is between us and the upstream.
                Poll::Ready(Some(Err(BodyError::Cut("upstream body broke"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.opened.is_spent()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.opened.beginning.bytes() as u64;
        match self.opened.incoming.size_hint().exact() {
            Some(left) => SizeHint::with_exact(held + left),
            // The upstream has told no length, and neither do we.
            None => SizeHint::default(),
        }
    }
}

impl Plain {
    /// The upstream's part is reset with the hold's end.
    fn give_up(&mut self, why: &'static str) -> BodyError {
        if let Some(hold) = self.hold.take()
            && !self.patience.is_for_ever()
        {
            let endpoint = &hold.ticket.endpoint;
            tracing::debug!(endpoint = &*endpoint.id, why, "answer given up");
            endpoint.observe(Outcome::Failure, &hold.view.spec, clock::now());
        }
        BodyError::Cut(why)
    }

    fn finish(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.finish();
        }
    }
}

struct Events {
    incoming: Received,
    /// Whether it is wanted elsewhere.
    seat: Arc<Seat>,
    hold: Option<Hold>,
    framer: Framer,
    trailers: Option<Frame<Bytes>>,
    ending: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    is_ending: bool,
    is_over: bool,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(data) = this.framer.pop() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if this.is_over {
                return Poll::Ready(this.trailers.take().map(Ok));
            }
            if this.poll_ending(cx) && !this.framer.is_torn() {
                this.finish();
                continue;
            }
            match ready!(Pin::new(&mut this.incoming).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.framer.push(data),
                    Err(trailers) => this.trailers = Some(trailers),
                },
                None => {
                    this.framer.release();
                    this.finish();
                }
                Some(Err(error)) => {
                    if let Some(hold) = &this.hold {
                        hold.observe_break(&error);
                    }
                    this.finish();
                    if this.framer.is_torn() {
                        let cut = BodyError::Cut("upstream watch broke inside an event");
                        return Poll::Ready(Some(Err(cut)));
                    }
                }
            }
        }
    }
}

impl Events {
    fn poll_ending(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(ending) = &mut self.ending
            && ending.as_mut().poll(cx).is_ready()
        {
            self.ending = None;
            self.is_ending = true;
        }
        if !self.is_ending && self.seat.poll_asked(cx).is_ready() {
            self.is_ending = true;
        }
        self.is_ending
    }

    fn finish(&mut self) {
        self.is_over = true;
        self.hold = None;
    }
}
