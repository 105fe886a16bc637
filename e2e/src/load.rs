//! Requests in the background, all the time: what happens beside them is noticed by nobody, or
//! shows here.
//!
//! Each worker has a connection of its own, and opens another when it is told to leave (GOAWAY), as
//! every client does; only what could not be sent is asked again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::client::{Answer, Client, ClientError, Http2};
use crate::process::eventually;

/// Requests that a load has on their way, unless it is told otherwise.
const AT_ONCE: usize = 4;

/// After so many bad answers a worker has shown enough.
const BAD_MAX: usize = 50;

/// A request of a load.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Its method.
    pub method: &'static str,
    /// Its path.
    pub path: String,
    /// Its body, JSON.
    pub body: String,
}

/// Asks in the background until told to stop; counts good answers (2xx) and keeps all others.
pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    moved: Arc<AtomicUsize>,
    tasks: JoinSet<Vec<String>>,
}

impl Load {
    /// Gets a path.
    #[must_use]
    pub fn start(client: &Client, path: &str) -> Self {
        let path = path.to_owned();
        Load::asking(client, AT_ONCE, move |_| Ask {
            method: "GET",
            path: path.clone(),
            body: String::new(),
        })
    }

    /// Asks what `make` says, which is told a number of its own for each request.
    #[must_use]
    pub fn asking(
        client: &Client,
        at_once: usize,
        make: impl Fn(usize) -> Ask + Send + Sync + 'static,
    ) -> Self {
        let (stop, answered, moved) = <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<_>)>::default();
        let (make, next) = (Arc::new(make), Arc::new(AtomicUsize::default()));
        let mut tasks = JoinSet::new();
        for _ in 0..at_once {
            let worker = Worker {
                client: client.clone(),
                stop: Arc::clone(&stop),
                answered: Arc::clone(&answered),
                moved: Arc::clone(&moved),
                next: Arc::clone(&next),
            };
            let make = Arc::clone(&make);
            tasks.spawn(async move { worker.run(&*make).await });
        }
        Load {
            stop,
            answered,
            moved,
            tasks,
        }
    }

    /// Waits until as many more answers have come.
    ///
    /// # Panics
    /// When they do not within a minute.
    pub async fn more(&self, count: usize) {
        let until = self.answered.load(Ordering::Relaxed) + count;
        let limit = Duration::from_secs(60);
        eventually("more answers under load", limit, || async {
            let now = self.answered.load(Ordering::Relaxed);
            if now >= until {
                Ok(())
            } else {
                Err(format!("{now} of {until}"))
            }
        })
        .await;
    }

    /// Ends it, and says how many answers were good.
    ///
    /// # Panics
    /// When one was not.
    pub async fn end(mut self, what: &str) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let mut bad = Vec::new();
        while let Some(done) = self.tasks.join_next().await {
            bad.extend(done.expect("a worker does not panic"));
        }
        let answered = self.answered.load(Ordering::Relaxed);
        let moved = self.moved.load(Ordering::Relaxed);
        let count = bad.len();
        println!("{what}: {answered} good answers, {moved} moved, {count} bad");
        let first = bad.first();
        assert!(bad.is_empty(), "{what}: {count} bad, the first: {first:?}");
        answered
    }
}

struct Worker {
    client: Client,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    moved: Arc<AtomicUsize>,
    next: Arc<AtomicUsize>,
}

impl Worker {
    async fn run(&self, make: &(dyn Fn(usize) -> Ask + Send + Sync)) -> Vec<String> {
        let mut bad = Vec::new();
        let mut connection = None;
        while !self.stop.load(Ordering::Relaxed) && bad.len() < BAD_MAX {
            let ask = make(self.next.fetch_add(1, Ordering::Relaxed));
            match self.ask(&mut connection, &ask).await {
                Ok(answer) if answer.status.is_success() => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok(answer) => {
                    let body = String::from_utf8_lossy(&answer.body);
                    bad.push(format!("{ask:?}: {} {body}", answer.status));
                }
                Err(error) => {
                    connection = None;
                    bad.push(format!("{ask:?}: {error}: {error:?}"));
                }
            }
        }
        bad
    }

    async fn ask(&self, connection: &mut Option<Http2>, ask: &Ask) -> Result<Answer, ClientError> {
        loop {
            let current = match connection.take() {
                Some(current) => current,
                None => self.client.http2().await?,
            };
            match current.send(ask.method, &ask.path, ask.body.clone()).await {
                Err(error) if is_unsent(&error) => {
                    self.moved.fetch_add(1, Ordering::Relaxed);
                }
                done => {
                    *connection = Some(current);
                    return done;
                }
            }
        }
    }
}

/// Whether the connection had been told to end before the request was sent, or was told that it
/// was not looked at: by RFC 9113 6.8 a GOAWAY says so of the streams above its last one.
fn is_unsent(error: &ClientError) -> bool {
    let Some(error) = error.downcast_ref::<hyper::Error>() else {
        return false;
    };
    let cause =
        std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    error.is_canceled() || cause.is_some_and(|cause| cause.is_go_away() && cause.is_remote())
}
