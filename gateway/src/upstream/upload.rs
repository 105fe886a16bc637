//! A request's content on its way into an HTTP/2 stream, at the pace at which the endpoint takes it.
//!
//! Content at hand goes out with the head; for what is still to come there is a task, which ends
//! with the content, with the endpoint's reset, or with whoever waits for the answer. Bounds: one
//! frame is held here until there is room for it.

use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;
use tokio::task::JoinHandle;

use super::send::SendBody;
use crate::body::BodyError;

/// See the module.
pub(super) struct Upload {
    body: SendBody,
    stream: SendStream<Bytes>,
    /// A frame that waits for room, and whether it is the last.
    waiting: Option<(Bytes, bool)>,
}

/// The task of an upload; dropped, it ends, and the stream is reset with it.
pub(super) struct Uploading(Option<JoinHandle<()>>);

impl Upload {
    pub(super) fn new(body: SendBody, stream: SendStream<Bytes>) -> Self {
        Upload {
            body,
            stream,
            waiting: None,
        }
    }

    /// Sends what is at hand; the task that sends the rest, if there is any.
    pub(super) async fn begin(mut self) -> Option<Uploading> {
        let begun = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut self).poll(cx))).await;
        begun
            .is_pending()
            .then(|| Uploading(Some(tokio::spawn(self))))
    }

    /// Ready when all is sent, or nothing more can be.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            // Also while the client is waited for: the endpoint may not want the rest.
            if let Poll::Ready(reason) = self.stream.poll_reset(cx)? {
                return Poll::Ready(Err(reason.into()));
            }
            if self.waiting.is_some() {
                ready!(self.poll_room(cx))?;
                if let Some((data, is_last)) = self.waiting.take() {
                    self.stream.send_data(data, is_last)?;
                    if is_last {
                        return Poll::Ready(Ok(()));
                    }
                }
                continue;
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    self.stream.send_reset(reason_of(&error));
                    return Poll::Ready(Ok(()));
                }
                None => return Poll::Ready(self.stream.send_data(Bytes::new(), true)),
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() => {
                    let is_last = self.body.is_end_stream();
                    self.stream.send_data(data, is_last)?;
                    if is_last {
                        return Poll::Ready(Ok(()));
                    }
                }
                Ok(data) => {
                    // The least claim on the connection's window: h2 raises it to what is sent, and
                    // what waits must not hold room that others could use.
                    self.stream.reserve_capacity(1);
                    self.waiting = Some((data, self.body.is_end_stream()));
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.stream.reserve_capacity(0);
                        return Poll::Ready(self.stream.send_trailers(trailers));
                    }
                }
            }
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        while self.stream.capacity() == 0 {
            match ready!(self.stream.poll_capacity(cx)) {
                Some(room) => {
                    room?;
                }
                None => return Poll::Ready(Err(Reason::CANCEL.into())), // it has been reset
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Future for Upload {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let sent = ready!(self.get_mut().poll_sent(cx));
        if let Err(error) = sent {
            // Whoever waits for the answer is told why, or has one already.
            tracing::debug!(%error, "a request's content was not sent whole");
        }
        Poll::Ready(())
    }
}

/// The reset that ended the client's content, handed on; any other fault is our own.
fn reason_of(error: &BodyError) -> Reason {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(reason) = error
            .downcast_ref::<h2::Error>()
            .and_then(h2::Error::reason)
        {
            return reason;
        }
        cause = error.source();
    }
    Reason::INTERNAL_ERROR
}

impl Uploading {
    /// Lets it run to its end.
    pub(super) fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}
