//! The eviction: a hand that goes round the index and lets go what was not read since it last came
//! by.
//!
//! A thread of its own, asleep while the values fit. It holds a copy of the state only for a step,
//! so that superseded nodes are not kept. What it passes over: values read since, those that the
//! ring or a reader holds (letting them go would free nothing), and those not durable yet.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Cell, Kept};
use crate::index::Version;
use crate::stats::add;
use crate::store::Shared;

/// Keys looked at in a step: some hundred microseconds.
const STEP_KEYS: usize = 1024;
/// How long to wait when a round let nothing go: what is held must be let go by others first.
const PAUSE: Duration = Duration::from_millis(20);

/// Starts the thread; it ends with the store.
pub(crate) fn spawn(shared: Arc<Shared>) -> std::io::Result<()> {
    let builder = std::thread::Builder::new().name("sluice-evict".to_owned());
    builder.spawn(move || run(&shared)).map(drop)
}

fn run(shared: &Shared) {
    let Some(residence) = &shared.residence else {
        return;
    };
    let mut hand = Bytes::new();
    let mut patience = None;
    while residence.wait(patience) {
        let mut freed_in_round = 0;
        patience = None;
        // The first round may only have cleared marks.
        let mut rounds_left = 2;
        while residence.excess() > 0 {
            let (freed, at) = step(shared, &hand, residence.excess());
            add(&residence.evicted, freed.0);
            freed_in_round += freed.1;
            if at.is_empty() {
                rounds_left -= 1;
                if freed_in_round > 0 {
                    rounds_left = 2;
                    freed_in_round = 0;
                } else if rounds_left == 0 {
                    patience = Some(PAUSE);
                    break;
                }
            }
            hand = at;
        }
    }
}

/// Goes on from a key; answers how many values and bytes went, and the key to go on from, empty
/// at the end.
fn step(shared: &Shared, hand: &[u8], wanted: usize) -> ((usize, usize), Bytes) {
    let state = shared.view();
    let (mut count, mut bytes) = (0, 0);
    let mut walk = state.index.iter_from(hand);
    for (key, history) in walk.by_ref().take(STEP_KEYS) {
        let cells = history.versions().filter_map(Version::kept);
        let done = cells.filter_map(cell_of).try_for_each(|cell| {
            let freed = cell.cool();
            count += usize::from(freed > 0);
            bytes += freed;
            if bytes >= wanted {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        if done.is_break() {
            return ((count, bytes), Bytes::copy_from_slice(key));
        }
    }
    let next = walk.next().map(|(key, _)| Bytes::copy_from_slice(key));
    ((count, bytes), next.unwrap_or_default())
}

fn cell_of(kept: &Kept) -> Option<&Cell> {
    match kept {
        Kept::Whole(_) => None,
        Kept::Cell(cell) => Some(cell),
    }
}
