//! Dying at a named step as by `kill -9`, so that suites end a real process where they want to.
//!
//! ```text
//! write segment half                  a change of the data directory: what, which file, when
//! any                                 each of those
//! shown                               a step of the store's
//! expiring / write segment half       the last of them, after those before it
//! ```
//!
//! A process has one such path at most and never leaves the last step of it. What it wrote by then
//! is with the operating system and not lost: power cuts are the business of `FaultyDisk`.

use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::process::{Signal, getpid, kill_process};

use super::step::Step;

/// Each change of the data directory.
const ANY: &str = "any";
/// Between two steps of a path.
const THEN: &str = " / ";
const CHANGES: [&str; 8] = [
    "lock", "create", "write", "reserve", "truncate", "sync", "rename", "remove",
];
const FILES: [&str; 10] = [
    "lock",
    "segment",
    "new-segment",
    "spare",
    "new-spare",
    "reserve",
    "checkpoint",
    "new-checkpoint",
    "marker",
    "names",
];
const TIMES: [&str; 3] = ["before", "half", "after"];
const STEPS: [(&str, Step); 9] = [
    ("durable", Step::Durable),
    ("shown", Step::Shown),
    ("answered", Step::Answered),
    ("expiring", Step::Expiring),
    ("compacting", Step::Compacting),
    ("floor-durable", Step::FloorDurable),
    ("sweeping", Step::Sweeping),
    ("checkpointing", Step::Checkpointing),
    ("checkpointed", Step::Checkpointed),
];

static PLAN: OnceLock<Plan> = OnceLock::new();

/// Where to die, and how far this process is on its way there.
struct Plan {
    path: Vec<String>,
    /// How many steps of the path were made, and how often the last one is still passed.
    progress: Mutex<(usize, u64)>,
}

/// Has this process die at the last step of a path, after passing that one `passes` times; the first
/// path given stays.
///
/// # Errors
/// A step that there is not, to be written otherwise.
pub fn die_at(path: &str, passes: u64) -> Result<(), String> {
    let path: Vec<String> = path.split(THEN).map(str::to_owned).collect();
    if let Some(unknown) = path.iter().find(|step| !is_known(step)) {
        return Err(format!("there is no step {unknown}"));
    }
    let _earlier = PLAN.set(Plan {
        path,
        progress: Mutex::new((0, passes)),
    });
    Ok(())
}

fn is_known(step: &str) -> bool {
    let words: Vec<&str> = step.split(' ').collect();
    match words.as_slice() {
        [one] => *one == ANY || STEPS.iter().any(|(name, _)| name == one),
        [change, file, time] => {
            CHANGES.contains(change) && FILES.contains(file) && TIMES.contains(time)
        }
        _ => false,
    }
}

/// Whether a step on the way begins with these words.
pub(crate) fn is_ahead(words: &str) -> bool {
    let mut path = PLAN.get().into_iter().flat_map(|plan| &plan.path);
    path.any(|step| step.starts_with(words))
}

/// The process is at a step of the store's.
pub(crate) fn reached(step: Step) {
    let is_it = |wanted: &str| STEPS.contains(&(wanted, step));
    pass(is_it);
}

/// The process is about to change a file of the data directory, in the midst of it or done.
pub(crate) fn changing(change: &str, file: &str, time: &str) {
    pass(|wanted| wanted == ANY || wanted.split(' ').eq([change, file, time].into_iter()));
}

fn pass(is_it: impl Fn(&str) -> bool) {
    let Some(plan) = PLAN.get() else { return };
    let mut progress = plan.progress.lock();
    let (made, passes) = *progress;
    if !plan.path.get(made).is_some_and(|wanted| is_it(wanted)) {
        return;
    }
    if made + 1 < plan.path.len() {
        progress.0 += 1;
    } else if passes > 0 {
        progress.1 -= 1;
    } else {
        // With the lock held: nobody else goes on to a later step meanwhile.
        loop {
            let _is_sent = kill_process(getpid(), Signal::KILL);
        }
    }
}
