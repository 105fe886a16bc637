//! Carrying a data directory on with writes that have their revisions already.
//!
//! A [`Store`](crate::Store) gives the next revision to whatever it is asked to write. A follower is
//! told both: it appends what another store did, under the same revisions, so that an import at
//! revision R followed by R+1, R+2 ... is that other store. It holds no state and serves nothing;
//! whoever opens the directory next finds all of it. No lease ends while it follows: their ends are
//! writes of the other store like any other.
//!
//! Bound: one batch in memory, of the size the caller chose.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::codec::{self, Entry, encode_delete, encode_put};
use crate::engine::{AppendOutcome, Batch, Engine, Epoch, Recovered};
use crate::events::Change;
use crate::{Error, LeaseId, Revision};

/// How often a batch whose outcome is unknown is sent before that is said.
const TRIES: u32 = 10;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(200);

/// The one who may write to an engine, under revisions of another store.
pub struct Follower {
    engine: Arc<dyn Engine>,
    epoch: Epoch,
    revision: Revision,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower")
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl Follower {
    /// Takes the engine's lock and reads where it stands: at [`Revision::ZERO`] when it holds
    /// nothing. Blocks.
    ///
    /// # Errors
    /// As [`crate::Store::open`].
    pub fn open(engine: Arc<dyn Engine>, holder: &str) -> Result<Follower, Error> {
        let epoch = engine.acquire(holder)?;
        let mut revision = Revision::ZERO;
        engine.recover(epoch, &mut |part| {
            match part {
                Recovered::Checkpoint(at) => revision = at,
                Recovered::Chunk(_) => {}
                Recovered::Batch(batch) => revision = batch.last,
            }
            Ok(())
        })?;
        Ok(Follower {
            engine,
            epoch,
            revision,
        })
    }

    /// The last revision there is.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Appends changes of whole revisions, which follow each other and the last one, and before
    /// them leases, which are granted or begin anew with the time given. All of it is durable when
    /// this answers.
    ///
    /// # Errors
    /// `Import` when a revision does not follow or changes a key twice, nothing having been written;
    /// `NoSpace`, likewise; `Uncertain` or `Stopped`: open it again to learn what is there.
    ///
    /// # Cancellation
    /// What was handed to the engine is written whether or not anybody waits; open it again.
    pub async fn append(
        &mut self,
        leases: &[(LeaseId, Duration)],
        changes: &[Change],
    ) -> Result<(), Error> {
        let last = self.check(changes)?;
        let mut payload = codec::payload(0);
        for (id, ttl) in leases {
            Entry::Grant { id: *id, ttl: *ttl }.encode(&mut payload);
        }
        for change in changes {
            match change {
                Change::Put(record) => encode_put(&mut payload, record),
                Change::Delete { key, revision } => encode_delete(&mut payload, key, *revision),
            }
        }
        if codec::is_blank(&payload) {
            return Ok(());
        }
        let batch = Batch {
            previous: self.revision,
            last,
            payload: payload.freeze(),
        };
        self.write(batch).await?;
        self.revision = last;
        Ok(())
    }

    /// The last revision of these changes, if they may follow.
    fn check(&self, changes: &[Change]) -> Result<Revision, Error> {
        let mut last = self.revision;
        let mut seen = HashSet::new();
        for change in changes {
            let at = change.revision();
            if at == last.next() {
                last = at;
                seen.clear();
            }
            if at != last || last == self.revision {
                return Err(Error::Import {
                    reason: format!("revision {at} does not follow {last}: import anew"),
                });
            }
            if !seen.insert(change.key()) {
                let key = change.key().escape_ascii();
                return Err(Error::Import {
                    reason: format!("revision {at} changes key {key} twice: import anew"),
                });
            }
        }
        Ok(last)
    }

    async fn write(&self, batch: Batch) -> Result<(), Error> {
        let mut unknown = String::new();
        for _ in 0..TRIES {
            let (done, outcome) = oneshot::channel();
            let told = Box::new(move |outcome| {
                // Whoever waited may have been cancelled.
                let _gone = done.send(outcome);
            });
            self.engine.append(self.epoch, batch.clone(), told);
            match outcome.await {
                Ok(AppendOutcome::Durable) => return Ok(()),
                Ok(AppendOutcome::Uncertain { reason }) => unknown = reason,
                Ok(AppendOutcome::NoSpace) => {
                    self.engine.resume(self.epoch);
                    return Err(Error::NoSpace);
                }
                Ok(AppendOutcome::Failed { reason }) => return Err(Error::Stopped { reason }),
                Ok(AppendOutcome::Fenced) => {
                    let reason = "another process took the data directory over".to_owned();
                    return Err(Error::Stopped { reason });
                }
                Err(_dropped) => {
                    let reason = "the engine ended before it answered".to_owned();
                    return Err(Error::Uncertain { reason });
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Error::Uncertain { reason: unknown })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.engine.close();
    }
}
