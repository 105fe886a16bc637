//! What comes to a connection from elsewhere: time, and the wish to stop. Looked at when one of
//! them moves, not at every turn.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use super::driver::Ended;
use crate::clock;

type Boxed<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What has to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Say goodbye.
    Leave,
    /// Ask whether the client is there.
    Ping,
}

/// How long is waited for a client.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Patience {
    /// For the first request.
    pub(in super::super) first_request: Duration,
    /// In silence, before it is asked whether it is there.
    pub(in super::super) ping_interval: Duration,
    /// For any sign of life after that.
    pub(in super::super) ping_timeout: Duration,
}

/// One connection's.
pub(in super::super) struct Orders<'a> {
    /// Ends when the connection has to.
    cut: Boxed<'a>,
    /// Ends when the client has to be told to leave.
    leave: Option<Boxed<'a>>,
    patience: Patience,
    tick: Pin<Box<Sleep>>,
    /// Until when a first request has to be there.
    unasked_until: Option<Instant>,
    heard: Instant,
    pinged: Option<Instant>,
}

impl<'a> Orders<'a> {
    pub(in super::super) fn new(
        cut: impl Future<Output = ()> + Send + 'a,
        leave: impl Future<Output = ()> + Send + 'a,
        patience: Patience,
    ) -> Self {
        let now = clock::now();
        let mut orders = Orders {
            cut: Box::pin(cut),
            leave: Some(Box::pin(leave)),
            patience,
            tick: Box::pin(tokio::time::sleep(Duration::ZERO)),
            unasked_until: Some(now + patience.first_request),
            heard: now,
            pinged: None,
        };
        orders.wind();
        orders
    }

    /// Bytes came.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// A request came.
    pub(super) fn asked(&mut self) {
        self.unasked_until = None;
    }

    /// What has to be done next; asked until it says nothing.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Order, Ended>> {
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(Ended::Cut));
        }
        if let Some(leave) = &mut self.leave
            && leave.as_mut().poll(cx).is_ready()
        {
            self.leave = None;
            return Poll::Ready(Ok(Order::Leave));
        }
        while self.tick.as_mut().poll(cx).is_ready() {
            let order = self.tick(clock::now());
            self.wind();
            if let Some(order) = order {
                return Poll::Ready(order);
            }
        }
        Poll::Pending
    }

    fn tick(&mut self, now: Instant) -> Option<Result<Order, Ended>> {
        if self.unasked_until.is_some_and(|until| now >= until) {
            return Some(Err(Ended::Unasked));
        }
        self.pinged = self.pinged.filter(|pinged| self.heard < *pinged);
        match self.pinged {
            Some(pinged) if now >= pinged + self.patience.ping_timeout => Some(Err(Ended::Silent)),
            None if now >= self.heard + self.patience.ping_interval => {
                self.pinged = Some(now);
                Some(Ok(Order::Ping))
            }
            _ => None,
        }
    }

    /// Sets the alarm for whatever is due next.
    fn wind(&mut self) {
        let silence = match self.pinged {
            Some(pinged) => pinged + self.patience.ping_timeout,
            None => self.heard + self.patience.ping_interval,
        };
        let next = self
            .unasked_until
            .map_or(silence, |until| until.min(silence));
        self.tick.as_mut().reset(next.into());
    }
}
