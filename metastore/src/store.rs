//! The store's handle: what callers hold, and what it shares with the sequencer.
//!
//! Reads are served from a published state and never wait for a write. Writes are queued for the
//! sequencer, one thread that orders them, and are answered once they are durable and visible.
//! Dropping the last handle, or [`Store::close`], ends the thread and lets the engine go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::cold::{self, Residence, load};
use crate::engine::Engine;
use crate::events::log::Log;
use crate::events::{Watch, Watcher};
use crate::lease::LeaseView;
use crate::lease::expiry::Expiry;
use crate::read::{Range, RangeAnswer, serve};
use crate::sequencer::Sequencer;
use crate::sequencer::inbox::{Inbox, Message};
use crate::sequencer::mailbox::{Envelope, Mailbox};
use crate::sequencer::request::{Reply, Request, Said, TxnReply, Waiting};
use crate::state::State;
use crate::stats::{Counters, StoreSize, StoreStats};
use crate::txn::check::{Limits, check, is_read_only};
use crate::txn::evaluate::{Refusal, evaluate};
use crate::txn::{Delete, Op, Put, Txn, TxnAnswer};
use crate::{Error, LeaseId, Revision, faults, recovery};

/// How often a transaction's values are read back before it is given up: each time more of them
/// would have to have left the memory meanwhile.
const COLD_TRIES: usize = 32;

mod options;
mod quota;

pub use options::StoreOptions;

/// The longest time to live of a lease, as etcd has it.
const LEASE_TTL_MAX: Duration = Duration::from_secs(9_000_000_000);

/// A store; clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Store {
    handle: Arc<Handle>,
}

/// Ends the sequencer when the last [`Store`] goes; watchers do not keep it running.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.inbox.send(Message::Close(None));
    }
}

/// What readers, watchers and the sequencer share.
pub(crate) struct Shared {
    /// The newest durable state. Only the sequencer stores here.
    pub(crate) view: ArcSwap<State>,
    pub(crate) log: Log,
    pub(crate) inbox: Inbox,
    pub(crate) expiry: Mutex<Expiry>,
    pub(crate) newest: watch::Sender<Revision>,
    /// Why there will be no more writes; set once.
    pub(crate) failure: OnceLock<String>,
    pub(crate) counters: Counters,
    /// An operator wants no more puts, whatever the room.
    pub(crate) refuses_puts: AtomicBool,
    /// The largest put refused for want of room since there last was room for all; zero for none.
    refused_bytes: AtomicU64,
    pub(crate) engine: Arc<dyn Engine>,
    /// Where values in memory are counted, when there is a limit to them.
    pub(crate) residence: Option<Arc<Residence>>,
    pub(crate) options: StoreOptions,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let revision = self.view.load().revision;
        f.debug_struct("Shared")
            .field("revision", &revision)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn view(&self) -> Arc<State> {
        self.view.load_full()
    }

    pub(crate) fn now(&self) -> Instant {
        (self.options.now)()
    }

    fn limits(&self) -> Limits {
        Limits {
            ops: self.options.txn_ops_max,
            bytes: self.options.request_bytes_max,
        }
    }

    /// # Errors
    /// `Stopped` when the store takes no more writes.
    pub(crate) fn check_running(&self) -> Result<(), Error> {
        match self.failure.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Stopped {
                reason: reason.clone(),
            }),
        }
    }
}

impl Store {
    /// Takes the engine's lock and reads back what is durable. Blocks until that is done.
    ///
    /// # Errors
    /// `Unavailable` when another holder has the engine; `Corrupt` when what it holds cannot be
    /// trusted; `Io`.
    pub fn open(engine: Arc<dyn Engine>, options: StoreOptions) -> Result<Store, Error> {
        let epoch = engine.acquire(&options.holder)?;
        let limit = options.memory_limit_bytes;
        let residence = limit.map(|limit| Arc::new(Residence::new(limit)));
        let mut found = recovery::recover(engine.as_ref(), epoch, residence.clone())?;
        let ring_bytes = limit.map_or(options.ring_bytes, |limit| {
            Residence::ring_bytes(limit, options.ring_bytes)
        });
        let log = Log::new(ring_bytes);
        recovery::rebuild_log(&found, &log)?;
        recovery::spoil(&mut found.state);
        let mut expiry = Expiry::default();
        let now = (options.now)();
        for id in found.state.lease_ids() {
            if let Some(lease) = found.state.lease(id) {
                expiry.grant(id, lease.ttl, now);
            }
        }
        let shared = Arc::new(Shared {
            newest: watch::Sender::new(found.state.revision),
            view: ArcSwap::from_pointee(found.state.clone()),
            log,
            inbox: Inbox::new(options.queue_units),
            expiry: Mutex::new(expiry),
            failure: OnceLock::new(),
            counters: Counters::default(),
            refuses_puts: AtomicBool::new(false),
            refused_bytes: AtomicU64::new(0),
            engine,
            residence,
            options,
        });
        if shared.residence.is_some() {
            cold::spawn(Arc::clone(&shared)).map_err(|source| Error::Io {
                action: "start the eviction's thread".to_owned(),
                source,
            })?;
        }
        Sequencer::spawn(Arc::clone(&shared), epoch, found)?;
        Ok(Store {
            handle: Arc::new(Handle { shared }),
        })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// The newest visible revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.shared().view.load().revision
    }

    /// The compacted floor: the least revision that can still be read.
    #[must_use]
    pub fn compacted(&self) -> Revision {
        self.shared().view.load().floor
    }

    /// The newest visible revision, to wait on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.shared().newest.subscribe()
    }

    /// What a read is served from.
    fn readable(&self) -> Arc<State> {
        faults::stale(self.shared().view())
    }

    /// Reads a range of what is durable; takes no part in the order of writes and waits for none.
    /// In a store with a memory limit it may block on the disk.
    ///
    /// # Errors
    /// `Future` or `Compacted` when the revision asked for cannot be read; `EmptyKey`; `Corrupt` or
    /// `Io` when a value cannot be read back.
    pub fn range(&self, query: &Range) -> Result<RangeAnswer, Error> {
        serve::serve(&self.readable(), query)
    }

    /// As [`Store::range`], as far as that goes without touching a file; `None` where it does not.
    pub(crate) fn range_now(&self, query: &Range) -> Result<Option<RangeAnswer>, Error> {
        let (answer, cold) = serve::look(&self.readable(), query)?;
        Ok(Some(answer).filter(|_| cold.is_empty()))
    }

    /// As [`Store::range`], for callers that must not block: what has left the memory is read on a
    /// thread that may. Gathering what is in memory takes its time here all the same.
    ///
    /// # Errors
    /// As [`Store::range`].
    ///
    /// # Cancellation
    /// A read that was begun is finished for nobody.
    pub async fn read(&self, query: &Range) -> Result<RangeAnswer, Error> {
        let state = self.readable();
        let (answer, cold) = serve::look(&state, query)?;
        if cold.is_empty() {
            return Ok(answer);
        }
        let query = query.clone();
        blocking(move || serve::serve(&state, &query)).await
    }

    /// Runs a transaction; what it wrote is durable and visible when this answers.
    ///
    /// # Errors
    /// `Invalid` kinds when the request is wrong; `LeaseNotFound`; `Compacted` or `Future` of a
    /// read in it; `NoSpace` or `Overloaded` when there is no room, nothing having been done;
    /// `Corrupt` or `Io` when a value that it needs cannot be read back, nothing having been done;
    /// `Uncertain` when nobody knows whether it was done; `Stopped`.
    ///
    /// # Cancellation
    /// Once queued, the transaction runs whether or not anybody waits for the answer.
    pub async fn txn(&self, txn: Txn) -> Result<TxnAnswer, Error> {
        let bytes = check(&txn, self.shared().limits())?;
        let is_read_only = is_read_only(&txn);
        let mut txn = txn;
        // What was read back stays in memory while it is held here.
        let mut held = Vec::new();
        for _ in 0..COLD_TRIES {
            let said = if is_read_only {
                let mut state = State::clone(&self.shared().view());
                match evaluate(&mut state, &txn) {
                    Ok(outcome) => Said::Answer(outcome.answer),
                    Err(Refusal::Error(error)) => return Err(error),
                    Err(Refusal::Cold(cold)) => Said::Cold(txn, cold),
                }
            } else {
                self.ask(bytes, |reply| Request::Txn(txn, TxnReply::Once(reply)))
                    .await?
            };
            match said {
                Said::Answer(answer) => return Ok(answer),
                Said::Cold(again, cold) => {
                    txn = again;
                    held.push(blocking(move || load(&cold, true)).await?);
                }
            }
        }
        Err(Error::Overloaded)
    }

    /// Prepares a transaction whose answer is put into a mailbox under `ticket`; the caller sends
    /// what is prepared with [`Store::send_all`]. Never waits: what would have to comes back.
    ///
    /// # Errors
    /// As [`Store::txn`]; nothing is put into the mailbox then.
    pub(crate) fn prepare(
        &self,
        txn: Txn,
        mailbox: &Arc<Mailbox>,
        ticket: u64,
    ) -> Result<Prepared, Error> {
        let shared = self.shared();
        let bytes = check(&txn, shared.limits())?;
        if is_read_only(&txn) {
            let mut state = State::clone(&shared.view());
            return match evaluate(&mut state, &txn) {
                Ok(outcome) => Ok(Prepared::Answered(outcome.answer)),
                Err(Refusal::Error(error)) => Err(error),
                Err(Refusal::Cold(_)) => Ok(Prepared::Later(txn)),
            };
        }
        shared.check_running()?;
        let Some(permit) = shared.inbox.room_now(bytes) else {
            return Ok(Prepared::Later(txn));
        };
        let reply = TxnReply::Post(Envelope::new(mailbox, ticket));
        Ok(Prepared::Message(Message::Request(Waiting {
            request: Request::Txn(txn, reply),
            permit: Some(permit),
            is_second_try: false,
        })))
    }

    /// Sends what was prepared, in order.
    pub(crate) fn send_all(&self, prepared: &mut Vec<Message>) {
        let shared = self.shared();
        shared.inbox.send_all(prepared);
        for message in prepared.drain(..) {
            if let (Message::Request(waiting), Err(error)) = (message, shared.check_running()) {
                waiting.refuse(error);
            }
        }
    }

    /// Writes one key.
    ///
    /// # Errors
    /// As [`Store::txn`].
    pub async fn put(&self, put: Put) -> Result<TxnAnswer, Error> {
        self.txn(only(Op::Put(put))).await
    }

    /// Deletes the keys of a range.
    ///
    /// # Errors
    /// As [`Store::txn`].
    pub async fn delete(&self, delete: Delete) -> Result<TxnAnswer, Error> {
        self.txn(only(Op::Delete(delete))).await
    }

    /// Gives up history below `at`, which itself stays readable; answers the newest revision. What
    /// can go is let go later, in steps.
    ///
    /// # Errors
    /// `Compacted` when `at` is at or below the floor, `Future` when it is not reached yet;
    /// otherwise as [`Store::txn`].
    pub async fn compact(&self, at: Revision) -> Result<Revision, Error> {
        faults::reached(faults::Step::Compacting);
        self.ask(0, |reply| Request::Compact(at, reply)).await
    }

    /// Watches a range from a revision on.
    ///
    /// # Errors
    /// `Compacted` when the start lies below the floor.
    pub fn watch(&self, watch: Watch) -> Result<Watcher, Error> {
        Watcher::open(Arc::clone(self.shared()), watch)
    }

    /// Grants a lease under `id`, or under one of the store's choice for [`LeaseId::NONE`];
    /// answers the id and the time to live, which may be longer than asked for.
    ///
    /// # Errors
    /// `LeaseExists`, `LeaseTtlTooLarge`; otherwise as [`Store::txn`].
    pub async fn lease_grant(
        &self,
        id: LeaseId,
        ttl: Duration,
    ) -> Result<(LeaseId, Duration), Error> {
        if ttl > LEASE_TTL_MAX {
            return Err(Error::LeaseTtlTooLarge);
        }
        let ttl = ttl.max(self.shared().options.lease_ttl_min);
        self.ask(0, |reply| Request::Grant(id, ttl, reply)).await
    }

    /// Ends a lease and deletes its keys, all in one revision; answers the newest revision.
    ///
    /// # Errors
    /// `LeaseNotFound`; otherwise as [`Store::txn`].
    pub async fn lease_revoke(&self, id: LeaseId) -> Result<Revision, Error> {
        self.ask(0, |reply| Request::Revoke(id, reply)).await
    }

    /// Begins a lease's time anew; answers how long that is.
    ///
    /// # Errors
    /// `LeaseNotFound` when it does not exist or is ending; `Stopped`.
    #[expect(
        clippy::unused_async,
        reason = "a store that is not the leader will have to ask the one that is"
    )]
    pub async fn lease_renew(&self, id: LeaseId) -> Result<Duration, Error> {
        self.shared().check_running()?;
        let now = self.shared().now();
        let renewed = self.shared().expiry.lock().renew(id, now);
        renewed.ok_or(Error::LeaseNotFound)
    }

    /// A lease as it stands.
    ///
    /// # Errors
    /// `LeaseNotFound`.
    pub fn lease_remaining(&self, id: LeaseId) -> Result<LeaseView, Error> {
        let state = self.shared().view();
        let lease = state.lease(id).ok_or(Error::LeaseNotFound)?;
        let now = self.shared().now();
        let remaining = self.shared().expiry.lock().remaining(id, now);
        Ok(LeaseView {
            granted: lease.ttl,
            remaining: remaining.unwrap_or_default(),
            keys: state.lease_keys(id),
        })
    }

    /// All leases, by id.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseId> {
        self.shared().view().lease_ids()
    }

    /// How much it holds.
    #[must_use]
    pub fn size(&self) -> StoreSize {
        StoreSize {
            on_disk: self.shared().engine.size(),
            in_use: self.shared().view.load().bytes,
        }
    }

    /// Whether puts are refused for want of room, on the disk or in the quota; or one was, and still
    /// would be, although smaller ones are not. Ends by itself.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.shared().is_full()
    }

    /// Forgets the puts that were too large for the room there is; answers whether the store counted
    /// as full for them alone, and so no longer does.
    pub fn forget_refused(&self) -> bool {
        self.shared().forget_refused()
    }

    /// Whether they soon will be. Compacting then makes room, if there is anything to let go.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        self.shared().is_nearly_full()
    }

    /// Bytes on disk beyond which no put may go.
    #[must_use]
    pub fn quota_bytes(&self) -> u64 {
        self.shared().options.quota_bytes
    }

    /// Refuses puts and new leases as if there were no room, or lets them in again. Not kept over a
    /// restart.
    pub fn refuse_puts(&self, refuse: bool) {
        self.shared().refuses_puts.store(refuse, Ordering::Relaxed);
    }

    /// Writes a checkpoint and gives back what the log holds beyond it; answers when that is done.
    ///
    /// # Errors
    /// `NoSpace` or `Io` when the checkpoint cannot be written, nothing being lost; `Stopped`.
    pub async fn defragment(&self) -> Result<(), Error> {
        let shared = self.shared();
        shared.check_running()?;
        let (reply, done) = oneshot::channel();
        if !shared.inbox.send(Message::Defragment(reply)) {
            shared.check_running()?;
        }
        let lost = |_dropped| Error::Stopped {
            reason: "the store ended before the checkpoint was written".to_owned(),
        };
        done.await.map_err(lost)?
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let shared = self.shared();
        let state = shared.view();
        let residence = shared.residence.as_deref();
        StoreStats {
            waiting: shared.inbox.taken() as u64,
            syncs: shared.engine.syncs(),
            ..shared.counters.read(&state, shared.log.bytes(), residence)
        }
    }

    /// Why the store takes no more writes; `None` while it does.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.shared().failure.get().cloned()
    }

    /// Whether it takes no more writes, without the reason.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.shared().failure.get().is_some()
    }

    /// Finishes what is queued, then stops: later writes and waiting watchers get `Stopped`.
    pub async fn close(self) {
        let (done, closed) = oneshot::channel();
        if self.shared().inbox.send(Message::Close(Some(done))) {
            // An error means the sequencer ended without saying so, which is closed as well.
            let _closed = closed.await;
        }
    }

    async fn ask<T>(
        &self,
        bytes: usize,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, Error> {
        let shared = self.shared();
        shared.check_running()?;
        let permit = shared.inbox.room_for(bytes).await?;
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting {
            request: request(reply),
            permit: Some(permit),
            is_second_try: false,
        };
        if !shared.inbox.send(Message::Request(waiting)) {
            shared.check_running()?;
        }
        let lost = |_dropped| Error::Uncertain {
            reason: "the sequencer ended before it answered".to_owned(),
        };
        answer.await.map_err(lost)?
    }
}

/// A transaction on its way to the sequencer.
pub(crate) enum Prepared {
    /// To be sent.
    Message(Message),
    /// It only read, and this is the answer.
    Answered(TxnAnswer),
    /// There is no room now, or a value must be read back: [`Store::txn`] waits.
    Later(Txn),
}

/// Runs what may wait for a disk on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let lost = |lost: tokio::task::JoinError| Error::Stopped {
        reason: lost.to_string(),
    };
    tokio::task::spawn_blocking(work).await.map_err(lost)?
}

pub(crate) fn only(op: Op) -> Txn {
    Txn {
        compares: Vec::new(),
        success: vec![op],
        failure: Vec::new(),
    }
}
