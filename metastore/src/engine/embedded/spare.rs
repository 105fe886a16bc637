//! Segments made ready ahead: zero-filled and synced, so that the log thread neither waits for room
//! nor pays for extents that were never written.
//!
//! A thread keeps [`super::EmbeddedOptions::spares`] of them; a trim hands back old segments in the
//! same way. A spare that cannot be made is tried again when the next one is wanted, and the log
//! makes its own meanwhile. Recovery removes all of them.

use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::files::{Files, fill_with_zeros};
use super::{checkpoint, segment};

/// Where a segment of the log's own making is written before it has a name.
pub(super) const TEMPORARY: &str = "segment.tmp";
const BEING_MADE: &str = "spare.tmp";
const PREFIX: &str = "spare-";

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
}

#[derive(Debug, Default)]
struct State {
    ready: Vec<String>,
    made: u64,
    is_asked: bool,
    is_stopped: bool,
}

impl Spares {
    pub(super) fn new(wanted: usize, segment_bytes: u64) -> Self {
        Spares {
            state: Mutex::default(),
            changed: Condvar::new(),
            wanted,
            segment_bytes,
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
                    self.changed.wait(&mut state);
                }
                if state.is_stopped {
                    return;
                }
                state.is_asked = false;
            }
            while let Some(name) = self.name_for(self.segment_bytes, 0) {
                match self.make(files, &name) {
                    Ok(()) => self.add(name),
                    Err(error) => {
                        // Without a spare the log goes on, a little slower.
                        tracing::debug!(%error, "no spare segment could be made");
                        let _ = files.remove(BEING_MADE);
                        break;
                    }
                }
            }
        }
    }

    fn make(&self, files: &dyn Files, name: &str) -> io::Result<()> {
        let file = files.create(BEING_MADE)?;
        file.reserve(self.segment_bytes)?;
        fill_with_zeros(&*file, segment::FRAMES_AT, self.segment_bytes)?;
        file.sync()?;
        files.rename(BEING_MADE, name)?;
        files.sync_names()
    }
}
