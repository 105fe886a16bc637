//! A request's content on its way into an HTTP/2 stream, at the pace at which the endpoint takes it.
//!
//! Content at hand goes out with the head; for what is still to come there is a task, which ends
//! with the content, with the endpoint's reset, or with whoever waits for the answer. It holds
//! nothing itself: a frame is only asked for when there is room for it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;
use tokio::task::JoinHandle;

use super::http2::{Outlet, StreamError};
use super::send::SendBody;
use crate::body::BodyError;
use crate::http2::frames::Reason;

/// See the module.
pub(super) struct Upload {
    body: SendBody,
    outlet: Outlet,
}

/// The task of an upload; dropped, it ends, and the stream is reset with it.
pub(super) struct Uploading(Option<JoinHandle<()>>);

impl Upload {
    pub(super) fn new(body: SendBody, outlet: Outlet) -> Self {
        Upload { body, outlet }
    }

    /// Sends what is at hand; the task that sends the rest, if there is any.
    pub(super) async fn begin(mut self) -> Option<Uploading> {
        let begun = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut self).poll(cx))).await;
        begun
            .is_pending()
            .then(|| Uploading(Some(tokio::spawn(self))))
    }

    /// Ready when all is sent, or nothing more can be.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        loop {
            ready!(self.outlet.poll_room(cx))?;
            // Also while the client is waited for: the endpoint may not want the rest.
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                return self.outlet.poll_stopped(cx).map(Err);
            };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    self.outlet.reset(reason_of(&error));
                    return Poll::Ready(Ok(()));
                }
                None => {
                    self.outlet.send(Bytes::new(), true);
                    return Poll::Ready(Ok(()));
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let is_last = self.body.is_end_stream();
                    self.outlet.send(data, is_last);
                    if is_last {
                        return Poll::Ready(Ok(()));
                    }
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.outlet.end_with(trailers);
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
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
    match error {
        BodyError::Reset(code) => Reason(*code),
        _ => Reason::INTERNAL_ERROR,
    }
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
