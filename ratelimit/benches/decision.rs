//! Rough cost of one decision, in nanoseconds: `cargo bench -p sluice-ratelimit`.
//!
//! A plain program without a harness: the least of several rounds, so that a busy machine
//! matters little. The figures are for eyes; nothing fails on them.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_ratelimit::{
    Breaker, BreakerPolicy, Bucket, InFlight, Key, Keyed, Limits, Moment, Quota, RuleId, decide,
};

const ROUNDS: u32 = 9;
const CALLS: u32 = 1_000_000;

fn measure<R>(name: &str, mut call: impl FnMut(Moment) -> R) {
    let best = (0..ROUNDS)
        .map(|round| {
            let base = Moment::ZERO + Duration::from_secs(u64::from(round) * 1000);
            let start = Instant::now();
            for tick in 0..u64::from(CALLS) {
                black_box(call(black_box(base + Duration::from_micros(tick))));
            }
            start.elapsed()
        })
        .min()
        .unwrap_or_default();
    let nanos = best.as_secs_f64() * 1e9 / f64::from(CALLS);
    println!("{name:<40} {nanos:>8.1} ns");
}

fn main() {
    let rate = NonZeroU32::new(5_000_000).expect("not zero");
    let quota = Quota::per_second(rate, rate).expect("in range");
    let scarce = Quota::per_second(NonZeroU32::MIN, NonZeroU32::MIN).expect("in range");
    let bucket = Bucket::new(&quota);
    measure("bucket, admitted", |now| bucket.check(&quota, now, 0));
    let empty = Bucket::new(&scarce);
    measure("bucket, rejected", |now| empty.check(&scarce, now, 0));
    let in_flight = Arc::new(InFlight::default());
    measure("in-flight permit, taken and dropped", |now| {
        in_flight.acquire(10, now, 0)
    });
    measure("decision with both, cached entries", |now| {
        let limits = Limits {
            rate: Some((&bucket, &quota)),
            in_flight: Some((&in_flight, 10)),
        };
        decide(limits, now, 0)
    });
    let breaker = Breaker::new();
    measure("breaker, closed", |now| {
        breaker.admit(&BreakerPolicy::BY_HAND, now, 0)
    });
    let map = Keyed::new(100_000);
    let users: Vec<String> = (0..10_000)
        .map(|n| format!("system:node:worker-{n}"))
        .collect();
    let mut next = users.iter().cycle();
    measure("bucket by key, 10,000 keys", |now| {
        let mut key = Key::new(RuleId::new(1));
        key.field(next.next().map_or("", String::as_str).as_bytes());
        map.get(&key, now, || Bucket::new(&quota))
            .check(&quota, now, 0)
    });
}
