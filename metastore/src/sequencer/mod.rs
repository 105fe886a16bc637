//! The one writer: a thread that orders requests, hands batches to the engine, and makes visible
//! what became durable.
//!
//! ```text
//! inbox -> evaluate -> engine.append ... outcome -> publish -> answers
//!             ^ ahead: the assigned state    ^ in order: the visible one
//! ```
//!
//! It does not wait for the disk under load: while one batch is being synced the next is filled. A
//! small batch with nothing before it is synced right here, since there is nothing to fill yet and
//! changing threads would cost more. It runs ahead
//! on the assigned state, of which a copy rides with each batch; readers see that copy when the
//! batch is durable. Room in the inbox bounds what is queued and in flight.
//!
//! Lease expiry, the sweep of superseded versions and the trigger of checkpoints are steps of the
//! same loop, each bounded, so that none holds up a write for long.

mod batch;
mod housekeeping;
pub(crate) mod inbox;
pub(crate) mod mailbox;
mod outcome;
mod pace;
pub(crate) mod request;
mod window;

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use self::inbox::Message;
use self::mailbox::Round;
use self::pace::Pace;
use self::request::Waiting;
use self::window::Window;
use crate::engine::Epoch;
use crate::recovery::Found;
use crate::state::State;
use crate::store::Shared;
use crate::{Error, Revision};

/// How long it sleeps at most while there are leases: their clock is the caller's and may jump.
const LEASE_TICK: Duration = Duration::from_millis(100);

/// The sequencer's own state; the thread owns it.
pub(crate) struct Sequencer {
    shared: Arc<Shared>,
    epoch: Epoch,
    /// All that was assigned, durable or not.
    state: State,
    /// The newest durable revision: `shared.view`'s.
    visible: Revision,
    /// Taken from the inbox and not evaluated.
    queue: VecDeque<Waiting>,
    /// Whom to wake for the answers given; empty between steps.
    round: Round,
    window: Window,
    token: u64,
    /// Invariant: when set, the window's head is held and to be sent at that time.
    resend: Option<Resend>,
    /// The floor for which the sweep is complete.
    swept_for: Revision,
    /// When the sweep goes on.
    sweep_pace: Pace,
    /// The assigned state was swept since the last publication.
    is_view_stale: bool,
    bytes_since_checkpoint: u64,
    /// Something was swept that a new checkpoint would leave out.
    has_swept_since_checkpoint: bool,
    /// The engine refused a batch for want of space since the last checkpoint.
    was_short_of_space: bool,
    is_checkpointing: bool,
    /// Who waits for a checkpoint that is not begun yet, and for the one being written.
    defragment_next: Vec<oneshot::Sender<Result<(), Error>>>,
    defragment_now: Vec<oneshot::Sender<Result<(), Error>>>,
    /// When one that failed for want of room is tried again.
    checkpoint_after: Option<Instant>,
    closing: Option<Vec<oneshot::Sender<()>>>,
}

/// What a panic said.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a word")
}

/// When to send an uncertain batch again.
#[derive(Clone, Copy, Debug)]
struct Resend {
    at: Instant,
    pause: Duration,
}

impl Sequencer {
    /// Starts the thread.
    ///
    /// # Errors
    /// `Io` when the system has no thread to give.
    pub(crate) fn spawn(shared: Arc<Shared>, epoch: Epoch, found: Found) -> Result<(), Error> {
        let sequencer = Sequencer {
            epoch,
            visible: found.state.revision,
            queue: VecDeque::new(),
            round: Round::default(),
            window: Window::default(),
            token: 0,
            resend: None,
            swept_for: found.state.floor,
            sweep_pace: Pace::new(Instant::now()),
            is_view_stale: false,
            bytes_since_checkpoint: found.replayed,
            has_swept_since_checkpoint: false,
            was_short_of_space: false,
            is_checkpointing: false,
            defragment_next: Vec::new(),
            defragment_now: Vec::new(),
            checkpoint_after: None,
            closing: None,
            state: found.state,
            shared,
        };
        let builder = std::thread::Builder::new().name("sluice-store".to_owned());
        let spawned = builder.spawn(move || sequencer.run());
        spawned.map(drop).map_err(|source| Error::Io {
            action: "start the store's thread".to_owned(),
            source,
        })
    }

    /// A panic stops the store as a failed write does: the thread stays and says so to whoever
    /// asks. (A release build ends the process instead.)
    fn run(mut self) {
        let mut messages = Vec::new();
        while !self.is_finished() {
            // What a broken turn leaves behind is given up by `stop`, and looked at no more.
            let turn = catch_unwind(AssertUnwindSafe(|| self.turn(&mut messages)));
            if let Err(panic) = turn {
                self.stop(format!("the store's thread panicked: {}", text_of(&*panic)));
                self.refuse_queued();
            }
        }
        self.finish();
    }

    fn turn(&mut self, messages: &mut Vec<Message>) {
        self.shared.inbox.take(self.patience(), messages);
        for message in messages.drain(..) {
            self.receive(message);
        }
        if !self.settle_all() {
            return;
        }
        self.expire();
        self.evaluate();
        // What was made durable at once.
        if !self.settle_all() {
            return;
        }
        self.sweep();
        self.refresh_view();
        self.checkpoint();
    }

    /// Acts on the outcomes known; `false` when there will be no more writes.
    fn settle_all(&mut self) -> bool {
        self.settle();
        let goes_on = self.shared.failure.get().is_none();
        if !goes_on {
            self.refuse_queued();
        }
        goes_on
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Request(waiting) => self.queue.push_back(waiting),
            Message::Outcome(token, outcome, place) => self.window.report(token, outcome, place),
            Message::Checkpointed(result) => self.checkpointed(result),
            Message::Defragment(done) => self.defragment_next.push(done),
            Message::Close(done) => self.closing.get_or_insert_default().extend(done),
        }
    }

    /// How long there is nothing to do but for messages; `None` is for ever.
    fn patience(&self) -> Option<Duration> {
        if self.shared.failure.get().is_some() {
            return None;
        }
        let sweep = self.has_sweep().then(|| self.sweep_rests());
        let until = |at: Instant| {
            let left = at.saturating_duration_since(Instant::now());
            left.max(Duration::from_millis(1))
        };
        let resend = self.resend.map(|resend| until(resend.at));
        let checkpoint = self.checkpoint_after.map(until);
        let expiry = self.shared.expiry.lock().next().map(|at| {
            let left = at.saturating_duration_since(self.shared.now());
            left.clamp(Duration::from_millis(1), LEASE_TICK)
        });
        let waits = [sweep, resend, checkpoint, expiry];
        waits.into_iter().flatten().min()
    }

    fn is_finished(&self) -> bool {
        self.closing.is_some()
            && self.queue.is_empty()
            && self.window.is_empty()
            && !self.is_checkpointing
    }

    fn refuse_queued(&mut self) {
        // Nobody answers them any more, which tells them.
        self.defragment_next.clear();
        for waiting in self.queue.drain(..) {
            if let Err(error) = self.shared.check_running() {
                waiting.refuse(error);
            }
        }
    }

    /// The thread's end: nothing is in flight any more.
    fn finish(mut self) {
        self.shared.engine.close();
        // An earlier reason stands.
        let _earlier = self.shared.failure.set("the store was closed".to_owned());
        for message in self.shared.inbox.shut() {
            self.receive(message);
        }
        self.refuse_queued();
        self.shared.log.ring_all();
        if let Some(residence) = &self.shared.residence {
            residence.stop();
        }
        for done in self.closing.into_iter().flatten() {
            // Whoever closed may have stopped waiting.
            let _gone = done.send(());
        }
    }
}
