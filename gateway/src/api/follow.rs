//! Keeps a view of part of the store up to date: load it once, then follow its events in revision
//! order.
//!
//! Who has written something asks [`Follower::reached`] before answering, so that a client that
//! makes a role or a definition finds it in force with its next request. A view that falls behind
//! the compacted floor is loaded anew. It holds no queue: the watcher is a cursor, and who waits
//! nudges the task to look at what is visible now.

use std::sync::Arc;

use sluice_metastore::events::{Change, Watch, Watcher};
use sluice_metastore::read::Range;
use sluice_metastore::store::Store;
use sluice_metastore::{Error, KeyRange, Record, Revision};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

/// What is kept up to date. `reset` and `apply` are each followed by the publishing of the result,
/// which the implementation does itself.
pub(crate) trait View: Send + 'static {
    /// Forgets everything and starts from these.
    fn reset(&mut self, records: &[Record]);
    /// Changes what these say, in order.
    fn apply(&mut self, changes: &[Change]);
}

/// The task that keeps one view; it ends when this is dropped or the store closes.
#[derive(Debug)]
pub(crate) struct Follower {
    reached: watch::Receiver<Revision>,
    nudge: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    /// Loads the view and starts to follow; when this returns the view is complete.
    ///
    /// # Errors
    /// Whatever the store answers to a read or a watch at its newest revision.
    pub(crate) fn spawn<V: View>(
        store: Store,
        range: KeyRange,
        mut view: V,
    ) -> Result<Follower, Error> {
        let (watcher, loaded) = load(&store, &range, &mut view)?;
        let (told, reached) = watch::channel(loaded);
        let nudge = Arc::new(Notify::new());
        let following = Following {
            store,
            range,
            watcher,
            told,
            nudge: Arc::clone(&nudge),
        };
        let task = tokio::spawn(following.run(view)).abort_handle();
        Ok(Follower {
            reached,
            nudge,
            task,
        })
    }

    /// Waits until the view holds everything up to `revision`, which must be visible in the store
    /// already. Returns too when the view is kept no longer.
    pub(crate) async fn reached(&self, revision: Revision) {
        let mut reached = self.reached.clone();
        while *reached.borrow_and_update() < revision {
            self.nudge.notify_one();
            if reached.changed().await.is_err() {
                return;
            }
        }
    }
}

fn load(
    store: &Store,
    range: &KeyRange,
    view: &mut impl View,
) -> Result<(Watcher, Revision), Error> {
    let answer = store.range(&Range::of(range.clone()))?;
    let watcher = store.watch(Watch {
        range: range.clone(),
        start: Some(answer.revision.next()),
        want_previous: false,
    })?;
    view.reset(&answer.records);
    Ok((watcher, answer.revision))
}

struct Following {
    store: Store,
    range: KeyRange,
    watcher: Watcher,
    told: watch::Sender<Revision>,
    nudge: Arc<Notify>,
}

impl Following {
    async fn run(mut self, mut view: impl View) {
        loop {
            let looked = tokio::select! {
                biased;
                // Cancel-safe: an event not handed out stays with the watcher.
                batch = self.watcher.next() => batch.map(Some),
                // Somebody waits for a revision that may hold nothing for this view.
                () = self.nudge.notified() => self.watcher.poll_now(),
            };
            match looked {
                Ok(batch) => {
                    let events = batch.into_iter().flat_map(|batch| batch.events);
                    let changes: Vec<Change> = events.map(|event| event.change).collect();
                    if !changes.is_empty() {
                        view.apply(&changes);
                    }
                    self.told.send_replace(self.watcher.through());
                }
                Err(Error::Compacted { .. }) => match load(&self.store, &self.range, &mut view) {
                    Ok((again, loaded)) => {
                        self.watcher = again;
                        self.told.send_replace(loaded);
                    }
                    Err(error) => {
                        tracing::warn!(%error, "view of the store is kept no longer");
                        return;
                    }
                },
                // Nothing more can be written, so what was published stays true.
                Err(error) => {
                    tracing::debug!(%error, "store ended, so does its view");
                    return;
                }
            }
        }
    }
}
