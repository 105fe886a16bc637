//! Segments made ready ahead: zero-filled and synced, so that the log thread neither waits for room
//! nor pays for extents that were never written.
//!
//! A thread keeps [`super::EmbeddedOptions::spares`] of them; a trim hands back old segments in the
//! same way. A spare that cannot be made is tried again when the next one is wanted, and the log
//! makes its own meanwhile. Recovery removes all of them.
//!
//! The *reserve* is one more, smaller and kept over restarts: it is for what makes room on a full
//! disk. Once the log finds none the engine is *short*, and the caller is to send only that; the
//! thread then looks every second whether there is room for the reserve and a segment again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::files::{Files, fill_with_zeros};
use super::{checkpoint, segment};

/// Where a segment of the log's own making is written before it has a name.
pub(super) const TEMPORARY: &str = "segment.tmp";
pub(super) const BEING_MADE: &str = "spare.tmp";
const PREFIX: &str = "spare-";
/// The segment kept for a full disk.
pub(super) const RESERVE: &str = "reserve";
/// How often a full disk is looked at: an operator who made room waits no longer.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether a file is something unfinished or unused that recovery removes.
pub(super) fn is_leftover(name: &str) -> bool {
    name.starts_with(PREFIX) || [TEMPORARY, BEING_MADE, checkpoint::TEMPORARY].contains(&name)
}

/// Spares by name, and the wish for more.
#[derive(Debug)]
pub(super) struct Spares {
    state: Mutex<State>,
    changed: Condvar,
    wanted: usize,
    segment_bytes: u64,
    /// Size of the reserve; zero for none.
    pub(super) reserve_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    ready: Vec<String>,
    made: u64,
    is_asked: bool,
    is_stopped: bool,
    has_reserve: bool,
    /// There was no room for a segment, and there has not been since.
    is_short: bool,
}

impl Spares {
    pub(super) fn new(wanted: usize, segment_bytes: u64, reserve_bytes: u64) -> Self {
        Spares {
            state: Mutex::default(),
            changed: Condvar::new(),
            wanted,
            segment_bytes,
            reserve_bytes,
        }
    }

    /// One of the usual size, if there is one; the thread then makes another.
    pub(super) fn take(&self) -> Option<String> {
        let mut state = self.state.lock();
        state.is_asked = true;
        self.changed.notify_one();
        state.ready.pop()
    }

    /// A name for a file of the usual size, when another spare is of use besides those there and
    /// the `coming` ones that have a name already.
    pub(super) fn name_for(&self, bytes: u64, coming: usize) -> Option<String> {
        let mut state = self.state.lock();
        if bytes != self.segment_bytes || state.ready.len() + coming >= self.wanted {
            return None;
        }
        state.made += 1;
        Some(format!("{PREFIX}{}", state.made))
    }

    /// A spare is there, durably under its name, and nothing refers to what it was.
    pub(super) fn add(&self, name: String) {
        self.state.lock().ready.push(name);
    }

    /// Asks for the first spares.
    pub(super) fn ask(&self) {
        self.state.lock().is_asked = true;
        self.changed.notify_one();
    }

    /// Whether there is a thread to run.
    pub(super) fn is_of_use(&self) -> bool {
        self.wanted > 0 || self.reserve_bytes > 0
    }

    /// Takes the reserve of an earlier process over, when it is of the size wanted.
    pub(super) fn find_reserve(&self, files: &dyn Files) {
        let bytes = files.open(RESERVE).and_then(|file| file.len());
        let is_right = bytes.is_ok_and(|bytes| bytes == self.reserve_bytes);
        self.state.lock().has_reserve = is_right && self.reserve_bytes > 0;
    }

    /// Whether the caller had better send only what makes room.
    pub(super) fn is_short(&self) -> bool {
        self.state.lock().is_short
    }

    /// There was no room for a segment; answers whether that was known.
    pub(super) fn fall_short(&self) -> bool {
        if self.reserve_bytes == 0 {
            return false;
        }
        let mut state = self.state.lock();
        state.is_asked = true;
        self.changed.notify_one();
        std::mem::replace(&mut state.is_short, true)
    }

    /// Gives out the reserve, if it is there.
    pub(super) fn take_reserve(&self) -> bool {
        std::mem::take(&mut self.state.lock().has_reserve)
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_one();
    }

    /// The thread: makes spares when asked, until stopped.
    pub(super) fn run(self: &Arc<Self>, files: &dyn Files) {
        loop {
            {
                let mut state = self.state.lock();
                while !state.is_stopped && !state.is_asked {
                    if state.is_short {
                        state.is_asked = self.changed.wait_for(&mut state, LOOK_EVERY).timed_out();
                    } else {
                        self.changed.wait(&mut state);
                    }
                }
                if state.is_stopped {
                    return;
                }
                state.is_asked = false;
            }
            let is_kept = self.keep_reserve(files);
            let is_made = self.make_spares(files);
            if is_kept && is_made && self.has_room(files) {
                let mut state = self.state.lock();
                if std::mem::take(&mut state.is_short) {
                    tracing::info!("there is room for log segments again");
                }
            }
        }
    }

    /// Makes the reserve when it is missing; false when it cannot be had.
    fn keep_reserve(&self, files: &dyn Files) -> bool {
        if self.reserve_bytes == 0 || self.state.lock().has_reserve {
            return true;
        }
        let made = self.make(files, RESERVE, self.reserve_bytes);
        let mut state = self.state.lock();
        state.has_reserve = made.is_ok();
        if let Err(error) = made {
            // Before anything else takes the last room.
            state.is_short = true;
            tracing::debug!(%error, "no reserve could be set aside");
            let _ = files.remove(BEING_MADE);
        }
        state.has_reserve
    }

    /// Makes the spares that are missing; false when one cannot be had.
    fn make_spares(&self, files: &dyn Files) -> bool {
        while let Some(name) = self.name_for(self.segment_bytes, 0) {
            match self.make(files, &name, self.segment_bytes) {
                Ok(()) => self.add(name),
                Err(error) => {
                    // Without a spare the log goes on, a little slower.
                    tracing::debug!(%error, "no spare segment could be made");
                    let _ = files.remove(BEING_MADE);
                    return false;
                }
            }
        }
        true
    }

    /// Whether a segment would fit; with spares there is one.
    fn has_room(&self, files: &dyn Files) -> bool {
        if self.wanted > 0 || !self.is_short() {
            return true;
        }
        let fits = files
            .create(BEING_MADE)
            .and_then(|file| file.reserve(self.segment_bytes));
        // Nothing but the question was wanted; one that stays is removed by the next recovery.
        let _ = files.remove(BEING_MADE);
        fits.is_ok()
    }

    fn make(&self, files: &dyn Files, name: &str, bytes: u64) -> io::Result<()> {
        let file = files.create(BEING_MADE)?;
        file.reserve(bytes)?;
        fill_with_zeros(&*file, segment::FRAMES_AT, bytes)?;
        file.sync()?;
        files.rename(BEING_MADE, name)?;
        files.sync_names()
    }
}
