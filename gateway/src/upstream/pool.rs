//! The pooled HTTP/2 connections to one endpoint.
//!
//! A connection takes as many streams as the endpoint publishes and lets those beyond wait, so they
//! are counted here and a further connection is opened when all are full. Packing requests
//! on few connections is deliberate: each further one costs batching. A connection leaves the
//! list when its driver ends (closed, or GOAWAY) or its credentials have been replaced; streams
//! on it run to their end. Bounds: [`CONNECTIONS_MAX`], and a wait as long as a connect may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use http::Response;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connect::{Address, ConnectError, Connector};
use super::http2::{Ask, Http2, Http2Driver};
use super::received::Received;
use super::send::{SendBody, SendFailure, send};

/// Connections to one endpoint. kube-apiserver publishes 100 streams when left alone: 25,600
/// streams are beyond what one apiserver serves.
const CONNECTIONS_MAX: usize = 256;

/// Streams a new connection is expected to take, when deciding how many to open for those that
/// wait.
const STREAMS_EXPECTED: usize = 100;

/// The list, and how to be told that it changed.
#[derive(Default)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    connections: ArcSwap<Vec<Arc<Pooled>>>,
    opening: Mutex<Opening>,
    waiters: AtomicUsize,
    changed: Notify,
    opened: AtomicU64,
    /// Nobody will ask for connections any more.
    is_shut: AtomicBool,
}

/// Guards the list's changes, too.
#[derive(Default)]
struct Opening {
    under_way: usize,
    /// How many attempts have failed, ever; a waiter gives up on a failure younger than itself.
    failures: u64,
    last_failure: Option<ConnectError>,
}

/// One connection.
struct Pooled {
    sender: Http2,
    generation: u64,
    in_flight: AtomicUsize,
    streams_max: AtomicUsize,
    is_closed: AtomicBool,
    was_used: AtomicBool,
    pool: Arc<Inner>,
}

/// A stream's place on a connection; free again when dropped.
pub(crate) struct Lease {
    connection: Arc<Pooled>,
}

impl Pool {
    /// A place on a connection, opening one if need be.
    pub(crate) async fn lease(
        &self,
        to: &Arc<Address>,
        connector: &Arc<Connector>,
    ) -> Result<Lease, ConnectError> {
        if let Some(lease) = self.inner.take(connector.generation) {
            return Ok(lease);
        }
        self.lease_slowly(to, connector).await
    }

    /// Cancel-safe: a connection that is opened for somebody who leaves stays in the pool.
    async fn lease_slowly(
        &self,
        to: &Arc<Address>,
        connector: &Arc<Connector>,
    ) -> Result<Lease, ConnectError> {
        let inner = &self.inner;
        let waiting = Waiting::new(inner);
        let failures_before = inner.opening.lock().failures;
        let deadline = tokio::time::Instant::now() + connector.timeout;
        loop {
            let mut changed = std::pin::pin!(inner.changed.notified());
            changed.as_mut().enable();
            if let Some(lease) = inner.take(connector.generation) {
                return Ok(lease);
            }
            inner.open_enough(to, connector, failures_before)?;
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                drop(waiting);
                return match inner.take(connector.generation) {
                    Some(lease) => Ok(lease),
                    None => Err(ConnectError::Timeout(connector.timeout)),
                };
            }
        }
    }

    /// Connections that can be used.
    pub(crate) fn len(&self) -> usize {
        self.inner.connections.load().len()
    }

    /// Connections opened since the beginning.
    pub(crate) fn opened(&self) -> u64 {
        self.inner.opened.load(Ordering::Relaxed)
    }

    /// Drops connections of other generations, and those that nobody has used since the last
    /// sweep, but for one.
    pub(crate) fn sweep(&self, generation: u64) {
        let inner = &self.inner;
        let _guard = inner.opening.lock();
        let mut kept: Vec<Arc<Pooled>> = Vec::new();
        for connection in inner.connections.load().iter() {
            let is_used = connection.was_used.swap(false, Ordering::Relaxed)
                || connection.in_flight.load(Ordering::Relaxed) > 0;
            let is_closed = connection.is_closed.load(Ordering::Relaxed);
            if connection.generation == generation && !is_closed && (is_used || kept.is_empty()) {
                kept.push(Arc::clone(connection));
            }
        }
        inner.connections.store(Arc::new(kept));
    }
}

impl Drop for Pool {
    /// Connections refer to the list, so it is emptied by hand; streams run to their end.
    fn drop(&mut self) {
        let _guard = self.inner.opening.lock();
        self.inner.is_shut.store(true, Ordering::Relaxed);
        self.inner.connections.store(Arc::default());
    }
}

impl Inner {
    fn take(&self, generation: u64) -> Option<Lease> {
        let connections = self.connections.load();
        let found = connections.iter().find(|c| c.take(generation))?;
        Some(Lease {
            connection: Arc::clone(found),
        })
    }

    /// Starts as many connects as those who wait need, unless one has failed since they began.
    fn open_enough(
        self: &Arc<Self>,
        to: &Arc<Address>,
        connector: &Arc<Connector>,
        failures_before: u64,
    ) -> Result<(), ConnectError> {
        let mut opening = self.opening.lock();
        if opening.failures > failures_before
            && let Some(failure) = &opening.last_failure
        {
            return Err(failure.clone());
        }
        let wanted = self
            .waiters
            .load(Ordering::Relaxed)
            .div_ceil(STREAMS_EXPECTED);
        let open = self.connections.load().len();
        if open >= CONNECTIONS_MAX {
            return Err(ConnectError::Full(open));
        }
        while opening.under_way < wanted.min(CONNECTIONS_MAX - open) {
            opening.under_way += 1;
            let inner = Arc::clone(self);
            let (to, connector) = (Arc::clone(to), Arc::clone(connector));
            // A task of its own, so that the connection outlives whoever wanted it first.
            tokio::spawn(async move {
                let opened = connector.http2(&to).await;
                inner.finish_opening(opened, connector.generation);
            });
        }
        Ok(())
    }

    fn finish_opening(
        self: &Arc<Self>,
        opened: Result<(Http2, Http2Driver), ConnectError>,
        generation: u64,
    ) {
        let mut opening = self.opening.lock();
        opening.under_way -= 1;
        match opened {
            Ok(_) if self.is_shut.load(Ordering::Relaxed) => {}
            Ok((sender, driver)) => {
                let connection = Arc::new(Pooled {
                    sender,
                    generation,
                    in_flight: AtomicUsize::new(0),
                    streams_max: AtomicUsize::new(driver.streams_max()),
                    is_closed: AtomicBool::new(false),
                    was_used: AtomicBool::new(true),
                    pool: Arc::clone(self),
                });
                let mut list = self.connections.load().to_vec();
                list.push(Arc::clone(&connection));
                self.connections.store(Arc::new(list));
                self.opened.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(drive(connection, driver));
            }
            Err(failure) => {
                opening.failures += 1;
                opening.last_failure = Some(failure);
            }
        }
        drop(opening);
        self.changed.notify_waiters();
    }

    fn remove(&self, gone: &Arc<Pooled>) {
        let _guard = self.opening.lock();
        let mut list = self.connections.load().to_vec();
        list.retain(|connection| !Arc::ptr_eq(connection, gone));
        self.connections.store(Arc::new(list));
        self.changed.notify_waiters();
    }
}

/// Runs the connection, and publishes its stream limit each time it moves.
async fn drive(connection: Arc<Pooled>, mut driver: Http2Driver) {
    // The task must not keep the sender alive: a connection that has left the list ends when its
    // last lease does.
    let weak = Arc::downgrade(&connection);
    let pool = Arc::clone(&connection.pool);
    drop(connection);
    let mut is_leaving = false;
    let ended = std::future::poll_fn(|cx| {
        let polled = std::pin::Pin::new(&mut driver).poll(cx);
        if let Some(connection) = weak.upgrade() {
            let max = driver.streams_max();
            if connection.streams_max.swap(max, Ordering::Relaxed) < max {
                pool.changed.notify_waiters();
            }
            if !is_leaving && driver.is_over() {
                is_leaving = true;
                connection.is_closed.store(true, Ordering::Relaxed);
                pool.remove(&connection);
            }
        }
        polled
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "upstream connection broke");
    }
    drop(driver);
    if let Some(connection) = weak.upgrade() {
        connection.is_closed.store(true, Ordering::Relaxed);
        pool.remove(&connection);
    }
}

impl Pooled {
    fn take(&self, generation: u64) -> bool {
        if self.generation != generation || self.is_closed.load(Ordering::Relaxed) {
            return false;
        }
        let max = self.streams_max.load(Ordering::Relaxed);
        let more = |n: usize| (n < max).then_some(n + 1);
        let taken = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok();
        if taken && !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
        taken
    }
}

impl Lease {
    /// Sends one request, which has until `deadline` for the head of its answer if it is without
    /// content; the lease has to live until the response's body has ended.
    pub(crate) async fn send(
        &self,
        ask: Ask<'_>,
        body: SendBody,
        deadline: Option<Instant>,
    ) -> Result<Response<Received>, SendFailure> {
        let sent = send(&self.connection.sender, ask, body, deadline).await;
        let is_leaving = match &sent {
            Ok(_) | Err(SendFailure::Broken(_) | SendFailure::TimedOut) => false,
            Err(SendFailure::NeverSent) => true,
            Err(SendFailure::Refused { is_leaving }) => *is_leaving,
        };
        if is_leaving {
            // Its driver may not have come to see that: nobody else need try.
            self.connection.is_closed.store(true, Ordering::Relaxed);
        }
        sent
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.in_flight.fetch_sub(1, Ordering::Relaxed);
        let pool = &self.connection.pool;
        if pool.waiters.load(Ordering::Relaxed) > 0 {
            pool.changed.notify_one();
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lease")
    }
}

/// Counts somebody who waits, as long as they do.
struct Waiting<'a>(&'a Inner);

impl<'a> Waiting<'a> {
    fn new(inner: &'a Inner) -> Self {
        inner.waiters.fetch_add(1, Ordering::Relaxed);
        Waiting(inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiters.fetch_sub(1, Ordering::Relaxed);
    }
}
