//! Crashes of a server in this process at a chosen step of what it does to its disk.
//!
//! At that step the disk's image is taken as a crash would leave it, and whoever touches the disk
//! from then on is held: so nothing is acknowledged that the image might not have. The server is
//! taken away, then those held are let go, and the next one starts on the image.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sluice_metastore::engine::embedded::faulty::{FaultyDisk, Survival};
use tokio::sync::oneshot;

/// How long a held thread is held at most: a test that failed must still end.
const HELD_MAX: Duration = Duration::from_secs(30);

/// A crash that is set up and has perhaps happened.
pub struct Crash {
    state: Arc<(Mutex<State>, Condvar)>,
    disk: FaultyDisk,
    images: oneshot::Receiver<Vec<FaultyDisk>>,
}

struct State {
    /// Steps to let pass.
    left: u64,
    survivals: Vec<Survival>,
    images: Option<oneshot::Sender<Vec<FaultyDisk>>>,
    is_over: bool,
}

impl Crash {
    /// Sets one up at the step after the next `steps`: an image for each way to survive it.
    #[must_use]
    pub fn after(disk: &FaultyDisk, steps: u64, survivals: Vec<Survival>) -> Crash {
        let (sender, images) = oneshot::channel();
        let state = Arc::new((
            Mutex::new(State {
                left: steps,
                survivals,
                images: Some(sender),
                is_over: false,
            }),
            Condvar::new(),
        ));
        let held = Arc::clone(&state);
        disk.observe(Some(Arc::new(move |disk: &FaultyDisk| {
            let (state, over) = &*held;
            let mut state = state.lock();
            if state.left > 0 {
                state.left -= 1;
                return;
            }
            if let Some(sender) = state.images.take() {
                let ways = state.survivals.iter();
                let images = ways.map(|survival| disk.power_cut(*survival)).collect();
                // Whoever waited may have given up.
                let _given_up = sender.send(images);
            }
            while !state.is_over {
                if over.wait_for(&mut state, HELD_MAX).timed_out() {
                    return;
                }
            }
        })));
        Crash {
            state,
            disk: disk.clone(),
            images,
        }
    }

    /// Waits for the crash.
    ///
    /// # Panics
    /// When the step has not come within `patience`.
    pub async fn images(&mut self, patience: Duration) -> Vec<FaultyDisk> {
        let images = tokio::time::timeout(patience, &mut self.images).await;
        let images = images.expect("the store works on its disk while there is traffic");
        images.expect("the disk outlives the crash")
    }

    /// Lets go whoever is held; the server must be gone by now.
    pub fn let_go(self) {
        self.disk.observe(None);
        self.state.0.lock().is_over = true;
        self.state.1.notify_all();
    }
}

/// Has each step of the disk take this long from now on, until it is observed otherwise.
pub fn slow(disk: &FaultyDisk, time: Duration) {
    disk.observe(Some(Arc::new(move |_: &FaultyDisk| {
        // Nobody notifies it: this is how a thread waits for time alone.
        let nothing = Mutex::new(());
        Condvar::new().wait_for(&mut nothing.lock(), time);
    })));
}
