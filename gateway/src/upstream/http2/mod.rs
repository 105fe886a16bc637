//! One HTTP/2 connection to an endpoint.
//!
//! ```text
//! a request ----> core: its bytes into `out` ----> the socket, at once or with others' (`shared`)
//! its answer <--- core: woken, takes what came <-- the driver reads
//! ```
//! All of a connection is one state behind one lock, which requests hold for a moment and the driver
//! for its turn: no channel and no task a request. A silent endpoint is noticed by pings (`driver`).
//! It knows nothing of pools or retries.

mod answer;
mod core;
mod driver;
mod error;
mod floods;
mod head;
mod outlet;
mod receive;
mod shared;
mod streams;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

pub(crate) use self::answer::{Answer, Content};
pub(crate) use self::core::Ask;
use self::core::{Core, Room};
pub(crate) use self::driver::{Ended, Http2Driver};
pub(crate) use self::error::StreamError;
pub(crate) use self::outlet::Outlet;
use self::shared::Shared;
pub(crate) use self::streams::Head;
use super::io::Stream;

/// What sends requests; the connection ends when this and the last of its streams is gone.
pub(crate) struct Http2 {
    shared: Arc<Shared>,
}

/// The connection takes no more requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed;

/// Says HTTP/2's first words; the endpoint's stream limit is zero until it has said its own.
pub(super) fn begin(stream: Stream) -> (Http2, Http2Driver) {
    let now = Instant::now();
    let shared = Arc::new(Shared::new(Core::new(now), stream));
    let driver = Http2Driver::new(Arc::clone(&shared), now);
    (Http2 { shared }, driver)
}

impl Http2 {
    /// Sends a request's head, once there is room; with `has_content`, that is to follow by the
    /// outlet. By `deadline` the head of its answer has to be there.
    ///
    /// # Errors
    /// Nothing of it has been sent then, nor will be.
    pub(super) fn poll_send(
        &self,
        ask: &Ask<'_>,
        has_content: bool,
        deadline: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Answer, Option<Outlet>), Closed>> {
        let place = ready!(self.shared.change(|state| match state.core.room() {
            Room::Never => Poll::Ready(Err(Closed)),
            Room::Full => {
                state.core.wait_for_room(cx.waker());
                Poll::Pending
            }
            Room::Free => {
                let place = state.core.open(ask, has_content, deadline);
                if let Some(deadline) = deadline
                    && state.looks_at.is_none_or(|at| deadline < at)
                {
                    state.looks_at = Some(deadline);
                    state.is_due_earlier = true;
                }
                if !has_content {
                    state.hurry();
                }
                Poll::Ready(Ok(place))
            }
        }))?;
        let answer = Answer::new(Arc::clone(&self.shared), place);
        let outlet = has_content.then(|| Outlet::new(Arc::clone(&self.shared), place));
        Poll::Ready(Ok((answer, outlet)))
    }

    /// Whether it takes no more requests: it is broken, or the endpoint has said goodbye.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.state.lock().core.is_closed()
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.shared.change(|state| state.has_sender = false);
    }
}
