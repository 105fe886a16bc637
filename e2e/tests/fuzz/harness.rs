//! Runs one target: its corpus, then random inputs for its share of the time.
//!
//! A check that fails or panics, here or on a thread that it started, ends the run with the input
//! cut down. An input that takes longer than [`HANG`] ends the process, since nothing can end it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::mutate::{self, Shape};
use crate::{TARGETS, corpus};

/// How often a run says how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// Thousands of times what the slowest input takes, on however busy a machine.
const HANG: Duration = Duration::from_secs(60);

/// What became of an input that was well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was read, and the oracle looked at what came out.
    Accepted,
    /// It was refused in order.
    Refused,
}

/// Says what is wrong with what an input did.
type Check = Box<dyn FnMut(&[u8]) -> Result<Verdict, String>>;

/// What is tried.
pub(crate) struct Target {
    /// Names its folder of the corpus.
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// Inputs from elsewhere in the repository, beside the corpus.
    pub(crate) seeds: Vec<Vec<u8>>,
    pub(crate) check: Check,
}

/// Panics on threads that checks started; they may be blamed on another target than their own.
static PANICS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Its panics are caught.
    static IS_CHECKING: Cell<bool> = const { Cell::new(false) };
    /// A failure is being cut down: its panics have been shown.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_CHECKING.get() {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            if !IS_QUIET.get() {
                print(info);
            }
        }));
    });
}

/// What the thread that looks on sees.
#[derive(Default)]
struct Progress {
    inputs: AtomicU64,
    accepted: AtomicU64,
    current: Mutex<Option<(Instant, Vec<u8>)>>,
}

/// Makes and runs a target, and fails with the least input that fails it.
pub(crate) fn run(make: fn() -> Target) {
    count_panics();
    IS_CHECKING.set(true);
    let Target {
        name,
        shape,
        seeds,
        mut check,
    } = make();
    let seed = number("SLUICE_FUZZ_SEED").unwrap_or(1);
    let share = share(number("SLUICE_FUZZ_SECONDS"));
    let progress = Arc::new(Progress::default());
    let (done, is_done) = channel();
    let onlooker = {
        let progress = Arc::clone(&progress);
        std::thread::spawn(move || look_on(name, &progress, &is_done))
    };
    let mut inputs = corpus::of(name);
    inputs.extend(seeds);
    for (n, input) in inputs.iter().enumerate() {
        try_one(&mut check, input, &progress)
            .unwrap_or_else(|why| fail(name, &format!("kept input {n}"), &why, input, &mut check));
    }
    let kept = progress.inputs.load(Ordering::Relaxed);
    let good = progress.accepted.load(Ordering::Relaxed);
    assert!(
        good > 0,
        "{name}: no kept input is accepted: the oracle never looked"
    );
    let start = Instant::now();
    let mut n = 0;
    while start.elapsed() < share {
        let input = mutate::next(&mut Dice::of(seed, n), shape, &inputs);
        try_one(&mut check, &input, &progress).unwrap_or_else(|why| {
            fail(
                name,
                &format!("input {n} of seed {seed}"),
                &why,
                &input,
                &mut check,
            )
        });
        n += 1;
    }
    drop(done);
    onlooker.join().unwrap();
    let good = progress.accepted.load(Ordering::Relaxed);
    println!("{name}: seed={seed} kept={kept} random={n} accepted={good}");
}

fn try_one(check: &mut Check, input: &[u8], progress: &Progress) -> Result<(), String> {
    *progress.current.lock().unwrap() = Some((Instant::now(), input.to_vec()));
    let verdict = guarded(check, input)?;
    *progress.current.lock().unwrap() = None;
    progress.inputs.fetch_add(1, Ordering::Relaxed);
    if verdict == Verdict::Accepted {
        progress.accepted.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn guarded(check: &mut Check, input: &[u8]) -> Result<Verdict, String> {
    let before = PANICS.load(Ordering::Relaxed);
    match catch_unwind(AssertUnwindSafe(|| check(input))) {
        Err(_) => Err("it panicked, as shown above".to_owned()),
        Ok(_) if PANICS.load(Ordering::Relaxed) > before => {
            Err("a thread panicked meanwhile, as shown above".to_owned())
        }
        Ok(answer) => answer,
    }
}

fn fail(name: &str, which: &str, why: &str, input: &[u8], check: &mut Check) -> ! {
    IS_QUIET.set(true);
    let least = mutate::shrink(input, |less| guarded(check, less).is_err());
    let why = guarded(check, &least)
        .err()
        .unwrap_or_else(|| why.to_owned());
    IS_QUIET.set(false);
    panic!(
        "{name}, {which}: {why}\nto keep it, add this line to e2e/corpus/{name}/found.txt:\n{}\n",
        corpus::escape(&least)
    );
}

/// Tells how far it is, and ends the process when an input does not end.
fn look_on(name: &str, progress: &Progress, is_done: &Receiver<()>) {
    while is_done.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
        let inputs = progress.inputs.load(Ordering::Relaxed);
        let accepted = progress.accepted.load(Ordering::Relaxed);
        println!("{name}: {inputs} inputs, {accepted} accepted");
        let current = progress.current.lock().unwrap().clone();
        if let Some((since, input)) = current
            && since.elapsed() > HANG
        {
            eprintln!("{name} does not end on:\n{}", corpus::escape(&input));
            std::process::exit(101);
        }
    }
}

/// A target's part of the time: targets run on as many threads as there are cores.
fn share(seconds: Option<u64>) -> Duration {
    let Some(seconds) = seconds else {
        return Duration::from_secs(1);
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let cores = u32::try_from(cores).unwrap_or(TARGETS).min(TARGETS);
    Duration::from_secs(seconds) * cores / TARGETS
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}
