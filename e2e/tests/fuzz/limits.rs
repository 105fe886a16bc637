//! Rates and numbers at once, against whole numbers: what is admitted, that a refusal takes nothing,
//! and that no hint comes before the wait.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use sluice_ratelimit::{Bucket, Decision, InFlight, Limits, Moment, Permit, Quota, Reason, decide};

use crate::feed::Feed;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

pub(crate) fn target() -> Target {
    Target {
        name: "limits",
        shape: Shape::program(300),
        seeds: vec![Vec::new()],
        check: Box::new(check),
    }
}

/// Hints end this much after the wait, and are spread by a quarter.
const ROW: Duration = Duration::from_secs(32);

fn quota(feed: &mut Feed<'_>) -> Quota {
    let number = |n: u32| NonZeroU32::new(n).unwrap();
    let (count, burst) = (number(1 + feed.number(2000)), number(1 + feed.number(60)));
    let period = Duration::from_millis(1 + u64::from(feed.number(5000)));
    Quota::new(count, period, burst).unwrap_or_else(|_| Quota::per_second(count, burst).unwrap())
}

/// The bucket as nanoseconds of refill at the present rate, and how many permits are out.
struct Model {
    quota: Quota,
    left: u128,
}

impl Model {
    fn full(quota: Quota) -> Self {
        let left = quota.interval().as_nanos() * u128::from(quota.burst().get());
        Model { quota, left }
    }

    fn pass(&mut self, span: Duration) {
        self.left = (self.left + span.as_nanos()).min(Model::full(self.quota).left);
    }

    fn resize(&mut self, quota: Quota) {
        let admissions = self.left * quota.interval().as_nanos();
        let left = admissions / self.quota.interval().as_nanos();
        *self = Model::full(quota);
        self.left = self.left.min(left);
    }
}

fn check(input: &[u8]) -> Result<Verdict, String> {
    let mut feed = Feed::new(input);
    let mut model = Model::full(quota(&mut feed));
    let bucket = Bucket::new(&model.quota);
    let in_flight = Arc::new(InFlight::default());
    let mut now = Moment::from_nanos(1_000_000_000);
    let mut max = feed.number(8);
    let mut held: Vec<Permit> = Vec::new();
    while !feed.is_empty() {
        match feed.below(8) {
            0 => {
                let span = Duration::from_micros(u64::try_from(feed.below(3_000_000)).unwrap());
                now = now + span;
                model.pass(span);
            }
            1 => max = feed.number(8),
            2 => drop(held.pop()),
            3 => {
                // A bucket learns of a quota when it is asked by it.
                model.resize(quota(&mut feed));
                ask(
                    &bucket,
                    &in_flight,
                    &mut model,
                    (now, 0),
                    u32::MAX,
                    &mut held,
                )?;
            }
            _ => {
                let noise = u64::from(feed.byte()) << 24;
                ask(
                    &bucket,
                    &in_flight,
                    &mut model,
                    (now, noise),
                    max,
                    &mut held,
                )?;
            }
        }
        if usize::try_from(in_flight.held()).unwrap() != held.len() {
            let (counted, held) = (in_flight.held(), held.len());
            return Err(format!("{counted} permits are counted and {held} held"));
        }
        if bucket.is_full(now) != (model.left == Model::full(model.quota).left) {
            return Err(format!(
                "full={} with {} left",
                bucket.is_full(now),
                model.left
            ));
        }
    }
    Ok(Verdict::Accepted)
}

fn ask(
    bucket: &Bucket,
    in_flight: &Arc<InFlight>,
    model: &mut Model,
    (now, noise): (Moment, u64),
    max: u32,
    held: &mut Vec<Permit>,
) -> Result<(), String> {
    let limits = Limits {
        rate: Some((bucket, &model.quota)),
        in_flight: Some((in_flight, max)),
    };
    let interval = model.quota.interval().as_nanos();
    let has_room = held.len() < usize::try_from(max).unwrap();
    match decide(limits, now, noise) {
        Decision::Admit(permit) => {
            if !has_room || model.left < interval {
                return Err(format!(
                    "admitted with {} held and {} left",
                    held.len(),
                    model.left
                ));
            }
            model.left -= interval;
            held.push(permit);
        }
        Decision::Reject(rejection) => match rejection.reason {
            Reason::InFlight if !has_room => {}
            Reason::Rate if has_room && model.left < interval => {
                let wait = u64::try_from(interval - model.left).unwrap();
                let wait = Duration::from_nanos(wait);
                let most = (wait + ROW) + (wait + ROW) / 4;
                if !(wait..=most).contains(&rejection.retry_after) {
                    return Err(format!(
                        "{wait:?} to wait, told {:?}",
                        rejection.retry_after
                    ));
                }
            }
            reason => {
                let reason = reason.as_str();
                return Err(format!(
                    "{reason}, with {} held and {} left",
                    held.len(),
                    model.left
                ));
            }
        },
    }
    Ok(())
}
