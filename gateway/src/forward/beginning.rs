//! The beginning of an answer to a read, held back until the answer is sure to be one.
//!
//! An apiserver that is killed has often sent a head whose content never comes. While nothing of
//! the answer has reached the client, another endpoint can be asked; so a read's head waits for
//! its first content, and a small answer for all of it. A client can do nothing with a head alone:
//! nobody waits longer for a whole answer. Bounds: [`HELD_MAX`] bytes, [`FIRST_MAX`] for the
//! first content and [`REST_MAX`] for what follows it; whatever is there then is passed on. An
//! answer in one frame needs no allocation. It knows nothing of retries.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body as _;

use crate::upstream::{ReceiveError, Received};

/// Objects are a few KiB, and lists of a namespace some tens.
const HELD_MAX: usize = 64 * 1024;

/// A kube-apiserver writes its head with the first content; a pause of this length is its way.
const FIRST_MAX: Duration = Duration::from_secs(5);

/// What follows of a small answer is on its way already; a trickle must not be held up for long.
const REST_MAX: Duration = Duration::from_secs(1);

/// Content that has come and was not handed on yet.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    first: Option<Bytes>,
    more: VecDeque<Bytes>,
    trailers: Option<Box<HeaderMap>>,
    bytes: usize,
    /// Nothing more will come.
    is_over: bool,
}

/// An answer's content, part of it at hand.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) incoming: Received,
    pub(super) beginning: Beginning,
}

impl Opened {
    /// Takes the content as it comes.
    pub(super) fn at_once(incoming: Received) -> Self {
        Opened {
            incoming,
            beginning: Beginning::default(),
        }
    }

    /// Waits for the beginning.
    ///
    /// # Errors
    /// The content broke; nothing of it has been handed on.
    pub(super) async fn held(incoming: Received) -> Result<Self, ReceiveError> {
        let mut opened = Opened::at_once(incoming);
        let has_begun = |opened: &Opened| opened.beginning.bytes > 0;
        // Nearly always all of it is there already, and no timer is set.
        let done = std::future::poll_fn(|cx| Poll::Ready(opened.poll_held(cx, |_| false))).await;
        if let Poll::Ready(done) = done {
            return done.map(|()| opened);
        }
        let first = std::future::poll_fn(|cx| opened.poll_held(cx, has_begun));
        if let Ok(first) = tokio::time::timeout(FIRST_MAX, first).await {
            first?;
            let rest = std::future::poll_fn(|cx| opened.poll_held(cx, |_| false));
            if let Ok(rest) = tokio::time::timeout(REST_MAX, rest).await {
                rest?;
            }
        }
        Ok(opened)
    }

    /// Ready when all is there, too much is there, or `is_enough`.
    fn poll_held(
        &mut self,
        cx: &mut Context<'_>,
        is_enough: impl Fn(&Opened) -> bool,
    ) -> Poll<Result<(), ReceiveError>> {
        loop {
            let is_all = self.beginning.is_over || self.incoming.is_end_stream();
            let is_full = self.beginning.bytes >= HELD_MAX;
            if is_all || is_full || self.is_whole() || is_enough(self) {
                return Poll::Ready(Ok(()));
            }
            match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                None => self.beginning.is_over = true,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.beginning.push(data),
                    Err(frame) => {
                        self.beginning.trailers = frame.into_trailers().ok().map(Box::new);
                        self.beginning.is_over = true;
                    }
                },
            }
        }
    }

    /// Whether as much has come as the head has said; a break after that takes nothing away.
    pub(super) fn is_whole(&self) -> bool {
        self.incoming.size_hint().exact() == Some(0)
    }

    /// Whether nothing more will come from the upstream.
    pub(super) fn is_over(&self) -> bool {
        self.beginning.is_over || self.incoming.is_end_stream()
    }

    /// Whether everything has been handed on.
    pub(super) fn is_spent(&self) -> bool {
        self.is_over() && self.beginning.first.is_none() && self.beginning.trailers.is_none()
    }
}

impl Beginning {
    fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.bytes += data.len();
        match self.first {
            None => self.first = Some(data),
            Some(_) => self.more.push_back(data),
        }
    }

    /// The next content at hand.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let next = std::mem::replace(&mut self.first, self.more.pop_front())?;
        self.bytes -= next.len();
        Some(next)
    }

    /// The trailers, once all content is gone.
    pub(super) fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take().map(|trailers| *trailers)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
