//! How many at once: a count of held permits, each given back when it is dropped, and the line of
//! those who wait for one.
//!
//! The maximum is an argument, so that a reload moves it with every permit still counted. A lower
//! one takes none back: it admits nobody until enough have finished.
//!
//! Permits held and places taken in the line are one number, changed in one step: whoever gives a
//! permit back sees who waits, and nobody begins to wait beside a free permit. The line is served
//! in the order of arrival, by whoever gives a permit back; newcomers do not overtake it. A line
//! exists once somebody has waited in it, and holds at most what whoever joins allows.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::decision::{Reason, Rejection};
use crate::moment::Moment;
use crate::spread::Spread;

/// How long one permit is taken to be held when a refused caller is told to come back: there is
/// no measure of it here, and Retry-After counts in seconds anyway.
const TURN_NANOS: u64 = 1_000_000_000;

/// One place in the line; permits held are counted below it.
const PLACE: u64 = 1 << 32;

/// A count of permits held, and a line.
#[derive(Debug, Default)]
pub struct InFlight {
    /// Permits in the lower half, places in the upper.
    counts: AtomicU64,
    spread: Spread,
    line: OnceLock<Box<Mutex<Line>>>,
}

/// Those who wait, the longest first.
#[derive(Debug, Default)]
struct Line {
    next: u64,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    number: u64,
    max: u32,
    call: Box<dyn FnOnce(Permit) + Send>,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Waiter").field(&self.number).finish()
    }
}

/// What came of joining.
#[derive(Debug)]
pub enum Joined {
    /// Go on.
    Now(Permit),
    /// Wait to be called.
    Later(Place),
}

impl InFlight {
    /// Takes a permit, if fewer than `max` are held. With a `max` of zero nobody is admitted.
    ///
    /// # Errors
    /// A [`Rejection`] when they are; `noise` spreads its hint.
    pub fn acquire(
        self: &Arc<Self>,
        max: u32,
        now: Moment,
        noise: u64,
    ) -> Result<Permit, Rejection> {
        let take = |counts: u64| (held(counts) < max).then(|| counts + 1);
        match self.update(take) {
            Ok(_) => Ok(Permit(Some(Arc::clone(self)))),
            Err(_) => Err(self.reject(max, now, noise)),
        }
    }

    /// Takes a permit if one is free and nobody waits, else a place in the line, where fewer than
    /// `places` are taken. Whoever has a place is handed the permit by `call`, once, by whichever
    /// thread gives one back; it must not wait.
    ///
    /// # Errors
    /// A [`Rejection`] when the line is full.
    pub fn join(
        self: &Arc<Self>,
        (max, places): (u32, u32),
        now: Moment,
        noise: u64,
        call: impl FnOnce(Permit) + Send + 'static,
    ) -> Result<Joined, Rejection> {
        let is_free = |counts: u64| held(counts) < max && waiting(counts) == 0;
        let take = |counts: u64| is_free(counts).then(|| counts + 1);
        if self.update(take).is_ok() {
            return Ok(Joined::Now(Permit(Some(Arc::clone(self)))));
        }
        let mut line = self.line.get_or_init(Box::default).lock();
        // Whoever gives a permit back from here on waits for the lock and finds the place taken.
        let step = |counts: u64| {
            if is_free(counts) {
                Some(counts + 1)
            } else if waiting(counts) < places {
                Some(counts + PLACE)
            } else {
                None
            }
        };
        let Ok(before) = self.update(step) else {
            drop(line);
            return Err(self.reject(max, now, noise));
        };
        if is_free(before) {
            return Ok(Joined::Now(Permit(Some(Arc::clone(self)))));
        }
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(Waiter {
            number,
            max,
            call: Box::new(call),
        });
        drop(line);
        // A raised maximum is noticed by whoever comes next.
        if held(before) < max {
            self.serve();
        }
        Ok(Joined::Later(Place {
            of: Arc::clone(self),
            number,
        }))
    }

    /// The answer to one for whom there is no permit, or none in time.
    pub fn reject(&self, max: u32, now: Moment, noise: u64) -> Rejection {
        Rejection {
            retry_after: self.spread.next(
                now,
                Duration::from_nanos(TURN_NANOS),
                TURN_NANOS / u64::from(max.max(1)),
                noise,
            ),
            reason: Reason::InFlight,
        }
    }

    /// How many permits are held.
    #[must_use]
    pub fn held(&self) -> u32 {
        held(self.counts.load(Ordering::Relaxed))
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        waiting(self.counts.load(Ordering::Relaxed))
    }

    fn update(&self, step: impl FnMut(u64) -> Option<u64>) -> Result<u64, u64> {
        self.counts
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, step)
    }

    fn give_back(self: &Arc<Self>) {
        let before = self.counts.fetch_sub(1, Ordering::AcqRel);
        if waiting(before) > 0 {
            self.serve();
        }
    }

    /// Hands out what is free to those who wait.
    #[cold]
    fn serve(self: &Arc<Self>) {
        while let Some(call) = self.next_served() {
            // Not under the lock: a permit that nobody takes any more comes back at once.
            call(Permit(Some(Arc::clone(self))));
        }
    }

    fn next_served(&self) -> Option<Box<dyn FnOnce(Permit) + Send>> {
        let mut line = self.line.get()?.lock();
        let max = line.waiting.front()?.max;
        let take = |counts: u64| (held(counts) < max).then(|| counts + 1 - PLACE);
        self.update(take).ok()?;
        line.waiting.pop_front().map(|first| first.call)
    }
}

fn held(counts: u64) -> u32 {
    u32::try_from(counts % PLACE).unwrap_or(u32::MAX)
}

fn waiting(counts: u64) -> u32 {
    u32::try_from(counts / PLACE).unwrap_or(u32::MAX)
}

/// The right to be in flight; dropping it gives it back. Not `Clone`: it is counted once.
#[derive(Debug)]
pub struct Permit(Option<Arc<InFlight>>);

impl Permit {
    /// A permit of what has no limit.
    #[must_use]
    pub const fn unlimited() -> Self {
        Permit(None)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(counted) = &self.0 {
            counted.give_back();
        }
    }
}

/// A place in a line; dropping it leaves the line. Whoever was called already has left it.
#[derive(Debug)]
pub struct Place {
    of: Arc<InFlight>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(line) = self.of.line.get() else {
            return;
        };
        let mut line = line.lock();
        let numbered = |waiter: &Waiter| waiter.number;
        let Ok(at) = line.waiting.binary_search_by_key(&self.number, numbered) else {
            return;
        };
        let left = line.waiting.remove(at);
        self.of.counts.fetch_sub(PLACE, Ordering::AcqRel);
        drop(line);
        drop(left); // what its call holds may have a drop of its own
        // Who is first now may have a higher maximum.
        if at == 0 && self.of.waiting() > 0 {
            self.of.serve();
        }
    }
}
