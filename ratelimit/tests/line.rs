//! Waiting for a permit: in order, without a lost one, and with a bound.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use proptest::prelude::*;
use sluice_ratelimit::{InFlight, Joined, Moment, Permit, Place, Reason};

const NOW: Moment = Moment::ZERO;

fn join(in_flight: &Arc<InFlight>, max: u32, places: u32) -> (Place, Receiver<Permit>) {
    let (send, called) = channel();
    let call = move |permit| drop(send.send(permit));
    match in_flight.join((max, places), NOW, 0, call).unwrap() {
        Joined::Later(place) => (place, called),
        Joined::Now(_) => panic!("there was a free permit"),
    }
}

fn take(in_flight: &Arc<InFlight>, max: u32) -> Permit {
    in_flight.acquire(max, NOW, 0).unwrap()
}

#[test]
fn permits_go_to_those_who_wait_in_the_order_of_arrival() {
    let in_flight = Arc::<InFlight>::default();
    let held = take(&in_flight, 1);
    let (_first, first) = join(&in_flight, 1, 2);
    let (_second, second) = join(&in_flight, 1, 2);
    let full = in_flight.join((1, 2), NOW, 0, drop).unwrap_err();
    assert_eq!(full.reason, Reason::InFlight);
    assert!(full.retry_after >= Duration::from_secs(1));
    assert_eq!((in_flight.held(), in_flight.waiting()), (1, 2));
    drop(held);
    let permit = first.try_recv().unwrap();
    assert!(second.try_recv().is_err());
    assert_eq!((in_flight.held(), in_flight.waiting()), (1, 1));
    drop(permit);
    drop(second.try_recv().unwrap());
    assert_eq!((in_flight.held(), in_flight.waiting()), (0, 0));
}

#[test]
fn newcomers_do_not_overtake() {
    let in_flight = Arc::<InFlight>::default();
    let held = take(&in_flight, 1);
    let (_first, first) = join(&in_flight, 1, 9);
    // The maximum is raised; nobody has given a permit back since.
    let (_second, second) = join(&in_flight, 2, 9);
    assert!(first.try_recv().is_err(), "its own maximum is full");
    assert!(second.try_recv().is_err(), "and the line is a line");
    drop(held);
    let _one = first.try_recv().unwrap();
    let _two = second.try_recv().unwrap();
}

#[test]
fn whoever_leaves_gives_the_place_up_and_holds_nobody_back() {
    let in_flight = Arc::<InFlight>::default();
    let held = take(&in_flight, 1);
    let (first, called) = join(&in_flight, 1, 9);
    let (_second, second) = join(&in_flight, 2, 9);
    drop(first);
    assert!(called.recv().is_err());
    let two = second.try_recv().unwrap();
    drop((held, two));
    assert_eq!((in_flight.held(), in_flight.waiting()), (0, 0));
}

#[test]
fn a_permit_for_one_who_is_gone_goes_to_the_next() {
    let in_flight = Arc::<InFlight>::default();
    let held = take(&in_flight, 1);
    let (gone, called) = join(&in_flight, 1, 9);
    let (_next, next) = join(&in_flight, 1, 9);
    drop(called);
    drop(held);
    let permit = next.try_recv().unwrap();
    drop((gone, permit));
    assert_eq!((in_flight.held(), in_flight.waiting()), (0, 0));
}

/// Threads that take, wait, give back and give up: all end, and never are too many inside.
#[test]
fn no_wake_up_is_lost_between_threads() {
    const MAX: u32 = 3;
    let (in_flight, inside) = (Arc::<InFlight>::default(), Arc::<AtomicU32>::default());
    let begin = Arc::new(Barrier::new(8));
    let threads = (0..8u32).map(|thread| {
        let (in_flight, inside) = (Arc::clone(&in_flight), Arc::clone(&inside));
        let begin = Arc::clone(&begin);
        std::thread::spawn(move || {
            begin.wait();
            for turn in 0..3_000 {
                let (send, called) = channel();
                let call = move |permit| drop(send.send(permit));
                let joined = in_flight.join((MAX, 100), NOW, 0, call).unwrap();
                let _permit = match joined {
                    Joined::Now(permit) => permit,
                    Joined::Later(place) if (turn + thread) % 7 == 0 => {
                        drop(place);
                        continue;
                    }
                    Joined::Later(_place) => called.recv_timeout(Duration::from_secs(60)).unwrap(),
                };
                assert!(inside.fetch_add(1, Ordering::SeqCst) < MAX);
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    assert_eq!((in_flight.held(), in_flight.waiting()), (0, 0));
}

proptest! {
    /// Against a list and a number: who is called, in which order, and how many are held.
    #[test]
    fn line_is_a_queue(steps in prop::collection::vec((0..4u8, 0..8usize), 0..200)) {
        const MAX: u32 = 2;
        let in_flight = Arc::<InFlight>::default();
        let mut held: Vec<Permit> = Vec::new();
        let mut line: Vec<(Place, Receiver<Permit>)> = Vec::new();
        for (step, which) in steps {
            match step {
                0 | 1 => {
                    let (send, called) = channel();
                    let call = move |permit| drop(send.send(permit));
                    match in_flight.join((MAX, 5), NOW, 0, call) {
                        Ok(Joined::Now(permit)) => {
                            prop_assert!(held.len() < 2 && line.is_empty());
                            held.push(permit);
                        }
                        Ok(Joined::Later(place)) => {
                            prop_assert!(held.len() == 2 && line.len() < 5);
                            line.push((place, called));
                        }
                        Err(_) => prop_assert_eq!((held.len(), line.len()), (2, 5)),
                    }
                }
                2 if which < held.len() => drop(held.swap_remove(which)),
                3 if which < line.len() => drop(line.remove(which)),
                _ => {}
            }
            while !line.is_empty() && held.len() < 2 {
                held.push(line.remove(0).1.try_recv().unwrap());
            }
            for (_, called) in &line {
                prop_assert!(called.try_recv().is_err());
            }
            prop_assert_eq!(in_flight.held() as usize, held.len());
            prop_assert_eq!(in_flight.waiting() as usize, line.len());
        }
    }
}
