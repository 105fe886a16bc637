//! The contract of `Engine`, point by point, run against every engine there is.
//!
//! Each test takes a harness: a place where engines can be opened one after the other, as processes
//! that follow each other would.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use parking_lot::Mutex;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sluice_metastore::engine::embedded::faulty::{FaultyDisk, Survival};
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::engine::memory::{Gate, Memory, Script};
use sluice_metastore::engine::{AppendOutcome, Batch, Engine, Epoch, Recovered};
use sluice_metastore::{Error, ErrorKind, Revision};

/// Where engines live.
trait Harness {
    /// An engine as a process started now opens it.
    fn open(&self) -> Arc<dyn Engine>;
    /// The process of this engine dies, with what it had not made durable.
    fn crash(&mut self, engine: Arc<dyn Engine>);
}

#[derive(Default)]
struct InMemory(Mutex<Option<Arc<Memory>>>);

impl Harness for InMemory {
    fn open(&self) -> Arc<dyn Engine> {
        let mut last = self.0.lock();
        let memory = last.take().map_or_else(Memory::new, |last| last.reopened());
        *last = Some(Arc::clone(&memory));
        memory
    }

    fn crash(&mut self, engine: Arc<dyn Engine>) {
        drop(engine);
    }
}

struct InDirectory(tempfile::TempDir);

impl Harness for InDirectory {
    fn open(&self) -> Arc<dyn Engine> {
        let options = EmbeddedOptions {
            segment_bytes: 16 << 10,
            ..EmbeddedOptions::new(self.0.path().join("data"))
        };
        Embedded::open(options).unwrap()
    }

    fn crash(&mut self, engine: Arc<dyn Engine>) {
        drop(engine);
    }
}

struct OnFaultyDisk(FaultyDisk);

impl Harness for OnFaultyDisk {
    fn open(&self) -> Arc<dyn Engine> {
        let options = EmbeddedOptions {
            segment_bytes: 16 << 10,
            spares: 0,
            ..EmbeddedOptions::new("")
        };
        Embedded::open_over(Arc::new(self.0.clone()), options).unwrap()
    }

    fn crash(&mut self, engine: Arc<dyn Engine>) {
        self.0 = self.0.power_cut(Survival::Nothing);
        drop(engine);
    }
}

/// Runs each test against each engine.
macro_rules! contract {
    ($($test:ident)*) => {
        mod memory { $( #[test] fn $test() { super::$test(super::InMemory::default()); } )* }
        mod directory {
            $( #[test] fn $test() {
                super::$test(super::InDirectory(tempfile::tempdir().unwrap()));
            } )*
        }
        mod faulty_disk {
            $( #[test] fn $test() { super::$test(super::OnFaultyDisk(super::FaultyDisk::new())); } )*
        }
    };
}

contract! {
    outcomes_come_in_order_once_and_from_another_thread
    durable_batches_are_recovered_in_order
    batches_made_durable_at_once_stand_among_the_others
    a_fresh_engine_takes_any_previous
    a_gap_is_a_fault_and_stops_the_epoch
    a_batch_that_ends_before_it_begins_is_a_fault
    an_older_epoch_is_fenced
    an_epoch_never_handed_out_does_not_write
    nothing_is_appended_before_recovery
    a_checkpoint_stands_for_what_is_before_it
    a_checkpoint_that_dies_half_way_never_began
    a_misplaced_checkpoint_is_refused
    a_checkpoint_may_come_first
    trim_gives_room_back_and_loses_nothing
    housekeeping_does_not_keep_the_log_for_ever
    a_closed_engine_fails_appends_and_closes_twice
    the_last_handle_may_go_within_a_done
    what_the_sink_answers_is_passed_on
    any_history_is_recovered
}

fn rev(number: u64) -> Revision {
    Revision::new(number)
}

fn batch(previous: u64, last: u64, payload: impl Into<Bytes>) -> Batch {
    Batch {
        previous: rev(previous),
        last: rev(last),
        payload: payload.into(),
    }
}

/// What recovery handed back.
#[derive(Debug, Default, PartialEq, Eq)]
struct State {
    checkpoint: Option<(u64, Vec<Bytes>)>,
    batches: Vec<(u64, u64, Bytes)>,
}

fn recover(engine: &dyn Engine, epoch: Epoch) -> State {
    let mut state = State::default();
    engine
        .recover(epoch, &mut |item| {
            match item {
                Recovered::Checkpoint(at) => {
                    assert!(state.checkpoint.is_none() && state.batches.is_empty());
                    state.checkpoint = Some((at.get(), Vec::new()));
                }
                Recovered::Chunk(chunk) => state.checkpoint.as_mut().unwrap().1.push(chunk),
                Recovered::Batch(batch) => {
                    let batch = (batch.previous.get(), batch.last.get(), batch.payload);
                    state.batches.push(batch);
                }
            }
            Ok(())
        })
        .unwrap();
    state
}

/// Opens, acquires and recovers.
fn start(harness: &dyn Harness) -> (Arc<dyn Engine>, Epoch, State) {
    let engine = harness.open();
    let epoch = engine.acquire("test").unwrap();
    let state = recover(&*engine, epoch);
    (engine, epoch, state)
}

fn send(engine: &dyn Engine, epoch: Epoch, batch: Batch) -> Receiver<AppendOutcome> {
    let (sender, receiver) = channel();
    let done = Box::new(move |outcome| sender.send(outcome).unwrap());
    engine.append(epoch, batch, done);
    receiver
}

fn append(engine: &dyn Engine, epoch: Epoch, batch: Batch) -> AppendOutcome {
    send(engine, epoch, batch).recv().unwrap()
}

fn append_all(engine: &dyn Engine, epoch: Epoch, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        let batch = batch(number - 1, number, number.to_le_bytes().to_vec());
        assert_eq!(append(engine, epoch, batch), AppendOutcome::Durable);
    }
}

fn numbers(state: &State) -> Vec<u64> {
    state.batches.iter().map(|(_, last, _)| *last).collect()
}

fn is_failed(outcome: &AppendOutcome) -> bool {
    matches!(outcome, AppendOutcome::Failed { .. })
}

fn checkpoint(engine: &dyn Engine, epoch: Epoch, at: u64, chunks: &[&'static str]) {
    let mut chunks = chunks
        .iter()
        .map(|chunk| Bytes::from_static(chunk.as_bytes()));
    engine.checkpoint(epoch, rev(at), &mut chunks).unwrap();
}

fn outcomes_come_in_order_once_and_from_another_thread(harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    let (sender, receiver) = channel();
    for number in 2..=2000 {
        let sender = sender.clone();
        let done = Box::new(move |outcome| {
            sender
                .send((number, outcome, std::thread::current().id()))
                .unwrap();
        });
        engine.append(epoch, batch(number - 1, number, vec![7; 100]), done);
    }
    drop(sender);
    let answers: Vec<_> = receiver.iter().collect();
    assert!(answers.iter().map(|(number, ..)| *number).eq(2..=2000));
    for (_, outcome, thread) in answers {
        assert_eq!(outcome, AppendOutcome::Durable);
        assert_ne!(thread, std::thread::current().id());
    }
}

fn durable_batches_are_recovered_in_order(mut harness: impl Harness) {
    let large = vec![9; 100_000];
    let sent = [
        batch(1, 2, "first"),
        batch(2, 2, "housekeeping"),
        batch(2, 7, ""),
        batch(7, 8, large),
        batch(8, 9, "last"),
    ];
    let (engine, epoch, state) = start(&harness);
    assert_eq!(state, State::default());
    for batch in &sent {
        assert_eq!(
            append(&*engine, epoch, batch.clone()),
            AppendOutcome::Durable
        );
    }
    harness.crash(engine);
    let sent = sent.map(|b| (b.previous.get(), b.last.get(), b.payload));
    for _ in 0..2 {
        let (engine, _, state) = start(&harness);
        assert_eq!(state.batches, sent);
        harness.crash(engine);
    }
}

/// Written by whoever waits or by the engine's thread: the log is one, in the order asked for.
fn batches_made_durable_at_once_stand_among_the_others(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    let mut at_once = 0;
    for number in 2..=300 {
        let next = batch(number - 1, number, number.to_le_bytes().to_vec());
        let now = engine.append_now(epoch, &next);
        at_once += usize::from(now.is_some());
        let outcome = match now {
            Some((outcome, _place)) => outcome,
            None => append(&*engine, epoch, next),
        };
        assert_eq!(outcome, AppendOutcome::Durable);
        if number % 3 == 0 {
            // One of the other kind in between, so that either follows either.
            continue;
        }
        let last = engine.append_now(epoch, &batch(number, number, "housekeeping"));
        at_once += usize::from(last.is_some());
        if let Some((outcome, _place)) = last {
            assert_eq!(outcome, AppendOutcome::Durable);
        }
    }
    let wrong = engine.append_now(epoch, &batch(7, 8, "x"));
    assert!(wrong.is_none_or(|(outcome, _)| is_failed(&outcome)));
    harness.crash(engine);
    let numbers = numbers(&start(&harness).2);
    let revisions: Vec<u64> = {
        let mut all = numbers.clone();
        all.dedup();
        all
    };
    assert!(revisions.into_iter().eq(2..=300));
    assert!(at_once == 0 || numbers.len() > 299);
}

fn a_fresh_engine_takes_any_previous(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    assert_eq!(
        append(&*engine, epoch, batch(41, 42, "x")),
        AppendOutcome::Durable
    );
    assert_eq!(
        append(&*engine, epoch, batch(42, 43, "y")),
        AppendOutcome::Durable
    );
    harness.crash(engine);
    assert_eq!(numbers(&start(&harness).2), [42, 43]);
}

fn a_gap_is_a_fault_and_stops_the_epoch(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    append_all(&*engine, epoch, 2..=3);
    // In flight together, so that the fault falls between members of one group.
    let outcomes = [batch(3, 4, "a"), batch(5, 6, "gap"), batch(4, 5, "b")]
        .map(|batch| send(&*engine, epoch, batch))
        .map(|receiver| receiver.recv().unwrap());
    assert_eq!(outcomes[0], AppendOutcome::Durable);
    assert!(
        is_failed(&outcomes[1]) && is_failed(&outcomes[2]),
        "{outcomes:?}"
    );
    assert!(is_failed(&append(&*engine, epoch, batch(4, 5, "c"))));
    harness.crash(engine);
    let (engine, epoch, state) = start(&harness);
    assert_eq!(numbers(&state), [2, 3, 4]);
    append_all(&*engine, epoch, 5..=5);
}

fn a_batch_that_ends_before_it_begins_is_a_fault(harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    append_all(&*engine, epoch, 2..=3);
    assert!(is_failed(&append(&*engine, epoch, batch(3, 2, "x"))));
}

fn an_older_epoch_is_fenced(mut harness: impl Harness) {
    let (engine, first, _) = start(&harness);
    append_all(&*engine, first, 2..=2);
    harness.crash(engine);
    let (engine, second, _) = start(&harness);
    assert!(second > first);
    assert_eq!(
        append(&*engine, first, batch(2, 3, "old")),
        AppendOutcome::Fenced
    );
    assert_eq!(
        append(&*engine, first, batch(2, 3, "old")),
        AppendOutcome::Fenced
    );
    let refused = engine.checkpoint(first, rev(2), &mut std::iter::empty());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    append_all(&*engine, second, 3..=3);
}

fn an_epoch_never_handed_out_does_not_write(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    let outcome = append(&*engine, Epoch(epoch.0 + 1), batch(1, 2, "x"));
    assert_ne!(outcome, AppendOutcome::Durable);
    harness.crash(engine);
    assert_eq!(start(&harness).2, State::default());
}

fn nothing_is_appended_before_recovery(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    append_all(&*engine, epoch, 2..=4);
    harness.crash(engine);
    let engine = harness.open();
    let epoch = engine.acquire("test").unwrap();
    let outcome = append(&*engine, epoch, batch(9, 10, "gap"));
    assert!(is_failed(&outcome), "{outcome:?}");
}

fn a_checkpoint_stands_for_what_is_before_it(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    append_all(&*engine, epoch, 2..=5);
    assert_eq!(
        append(&*engine, epoch, batch(5, 5, "late")),
        AppendOutcome::Durable
    );
    checkpoint(&*engine, epoch, 5, &["a", "", "bc"]);
    append_all(&*engine, epoch, 6..=7);
    checkpoint(&*engine, epoch, 6, &["d"]);
    engine.trim().unwrap();
    harness.crash(engine);
    let (engine, epoch, state) = start(&harness);
    assert_eq!(state.checkpoint, Some((6, vec![Bytes::from_static(b"d")])));
    assert_eq!(numbers(&state), [7]);
    assert_eq!(
        append(&*engine, epoch, batch(7, 7, "at the mark")),
        AppendOutcome::Durable
    );
    checkpoint(&*engine, epoch, 7, &["e", "", "f"]);
    harness.crash(engine);
    // Nobody can tell whether what takes no revision is in the checkpoint, so it comes back.
    let (_engine, _, state) = start(&harness);
    let chunks = ["e", "", "f"].map(|chunk| Bytes::from_static(chunk.as_bytes()));
    assert_eq!(state.checkpoint, Some((7, chunks.to_vec())));
    assert_eq!(state.batches, [(7, 7, Bytes::from_static(b"at the mark"))]);
}

fn a_checkpoint_that_dies_half_way_never_began(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    append_all(&*engine, epoch, 2..=3);
    checkpoint(&*engine, epoch, 2, &["good"]);
    let mut chunks = (0..4).map(|number| {
        assert!(number < 2, "the source of the chunks dies");
        Bytes::from(vec![0; 1 << 20])
    });
    let died = catch_unwind(AssertUnwindSafe(|| {
        engine.checkpoint(epoch, rev(3), &mut chunks)
    }));
    assert!(died.is_err());
    engine.trim().unwrap();
    append_all(&*engine, epoch, 4..=4);
    harness.crash(engine);
    let (engine, epoch, state) = start(&harness);
    assert_eq!(
        state.checkpoint,
        Some((2, vec![Bytes::from_static(b"good")]))
    );
    assert_eq!(numbers(&state), [3, 4]);
    checkpoint(&*engine, epoch, 4, &["better"]);
    harness.crash(engine);
    assert_eq!(start(&harness).2.checkpoint.unwrap().0, 4);
}

fn a_misplaced_checkpoint_is_refused(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    append_all(&*engine, epoch, 2..=5);
    checkpoint(&*engine, epoch, 4, &["kept"]);
    for at in [3, 6] {
        assert!(
            engine
                .checkpoint(epoch, rev(at), &mut std::iter::empty())
                .is_err()
        );
    }
    harness.crash(engine);
    assert_eq!(start(&harness).2.checkpoint.unwrap().0, 4);
}

fn a_checkpoint_may_come_first(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    checkpoint(&*engine, epoch, 5000, &["restored"]);
    append_all(&*engine, epoch, 5001..=5002);
    harness.crash(engine);
    let (engine, epoch, state) = start(&harness);
    assert_eq!(state.checkpoint.as_ref().unwrap().0, 5000);
    assert_eq!(numbers(&state), [5001, 5002]);
    assert!(is_failed(&append(&*engine, epoch, batch(41, 42, "x"))));
}

fn trim_gives_room_back_and_loses_nothing(mut harness: impl Harness) {
    let (mut engine, mut epoch, _) = start(&harness);
    for number in 2..=200 {
        let batch = batch(number - 1, number, vec![1; 1000]);
        assert_eq!(append(&*engine, epoch, batch), AppendOutcome::Durable);
    }
    let full = engine.size();
    assert!(full >= 199 * 1000, "size={full}");
    engine.trim().unwrap();
    assert_eq!(
        engine.size(),
        full,
        "nothing is covered by a checkpoint yet"
    );
    checkpoint(&*engine, epoch, 150, &["state"]);
    engine.trim().unwrap();
    let trimmed = engine.size();
    assert!((50_000..70_000).contains(&trimmed), "size={trimmed}");
    harness.crash(engine);
    for last in [200, 260] {
        let state;
        (engine, epoch, state) = start(&harness);
        assert!(numbers(&state).into_iter().eq(151..=last));
        // Goes on into segments that were used before.
        if last == 200 {
            append_all(&*engine, epoch, 201..=260);
        }
        harness.crash(engine);
    }
}

fn housekeeping_does_not_keep_the_log_for_ever(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    append_all(&*engine, epoch, 2..=2);
    for round in 0_u8..6 {
        for _ in 0..40 {
            let batch = batch(2, 2, vec![round; 1000]);
            assert_eq!(append(&*engine, epoch, batch), AppendOutcome::Durable);
        }
        checkpoint(&*engine, epoch, 2, &["state"]);
        engine.trim().unwrap();
        assert!(
            engine.size() < 120_000 || round < 2,
            "size={}",
            engine.size()
        );
    }
    harness.crash(engine);
    let (_engine, _, state) = start(&harness);
    assert_eq!(state.checkpoint.unwrap().0, 2);
    assert!(state.batches.iter().all(|(_, _, payload)| payload[0] >= 4));
}

fn a_closed_engine_fails_appends_and_closes_twice(harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    let in_flight: Vec<_> = (2..100)
        .map(|number| send(&*engine, epoch, batch(number - 1, number, "x")))
        .collect();
    engine.close();
    for receiver in in_flight {
        assert_eq!(receiver.try_recv().unwrap(), AppendOutcome::Durable);
    }
    assert!(is_failed(&append(&*engine, epoch, batch(99, 100, "late"))));
    engine.close();
    // The lock was let go, though the closed engine is still there.
    let (_next, _, state) = start(&harness);
    assert!(numbers(&state).into_iter().eq(2..100));
}

fn the_last_handle_may_go_within_a_done(harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    let (sender, receiver) = channel();
    let (go, wait) = channel::<()>();
    let held = Arc::clone(&engine);
    let done = Box::new(move |outcome| {
        wait.recv().unwrap();
        drop(held);
        sender.send(outcome).unwrap();
    });
    engine.append(epoch, batch(1, 2, "x"), done);
    drop(engine);
    go.send(()).unwrap();
    assert_eq!(receiver.recv().unwrap(), AppendOutcome::Durable);
}

fn what_the_sink_answers_is_passed_on(mut harness: impl Harness) {
    let (engine, epoch, _) = start(&harness);
    append_all(&*engine, epoch, 2..=4);
    harness.crash(engine);
    let engine = harness.open();
    let epoch = engine.acquire("test").unwrap();
    let mut seen = 0;
    let result = engine.recover(epoch, &mut |_| {
        seen += 1;
        if seen == 2 {
            Err(Error::Overloaded)
        } else {
            Ok(())
        }
    });
    assert_eq!(
        (result.unwrap_err().kind(), seen),
        (ErrorKind::Exhausted, 2)
    );
}

#[derive(Clone, Debug)]
enum Step {
    Append { revisions: u64, bytes: usize },
    Checkpoint,
    Trim,
    Restart,
}

fn any_history_is_recovered(mut harness: impl Harness) {
    let step = prop_oneof![
        10 => (0..3_u64, 0..6000_usize).prop_map(|(revisions, bytes)| Step::Append { revisions, bytes }),
        1 => any::<()>().prop_map(|()| Step::Checkpoint),
        1 => any::<()>().prop_map(|()| Step::Trim),
        1 => any::<()>().prop_map(|()| Step::Restart),
    ];
    let mut runner = TestRunner::deterministic();
    let steps = proptest::collection::vec(step, 400);
    let steps = steps.new_tree(&mut runner).unwrap();
    let steps = steps.current();
    let (mut engine, mut epoch, _) = start(&harness);
    let mut last = 1;
    // The model: what was appended since the newest checkpoint, and what may come back besides.
    let mut at = None;
    let mut after: Vec<(u64, u64, Bytes)> = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Append { revisions, bytes } => {
                let payload = Bytes::from(vec![u8::try_from(number % 251).unwrap(); bytes]);
                let batch = batch(last, last + revisions, payload.clone());
                assert_eq!(append(&*engine, epoch, batch), AppendOutcome::Durable);
                after.push((last, last + revisions, payload));
                last += revisions;
            }
            Step::Checkpoint => {
                checkpoint(&*engine, epoch, last, &["state"]);
                at = Some(last);
                after.clear();
            }
            Step::Trim => engine.trim().unwrap(),
            Step::Restart => {
                harness.crash(engine);
                let state;
                (engine, epoch, state) = start(&harness);
                assert_eq!(state.checkpoint.map(|(at, _)| at), at);
                let extra = state
                    .batches
                    .len()
                    .checked_sub(after.len())
                    .expect("a batch is lost");
                let (repeated, rest) = state.batches.split_at(extra);
                assert_eq!(rest, after);
                let is_housekeeping =
                    |(previous, last, _): &(u64, u64, Bytes)| previous == last && Some(*last) == at;
                assert!(repeated.iter().all(is_housekeeping));
            }
        }
    }
}

// What only the memory engine can be told to do.

#[test]
fn uncertain_never_hides_a_success_nor_doubles_it() {
    for scripted in [Script::UncertainApplied, Script::UncertainLost] {
        let memory = Memory::new();
        let epoch = memory.acquire("a").unwrap();
        memory.script([Script::Durable, scripted.clone()]);
        let sent = [
            batch(1, 2, "x"),
            batch(2, 3, "y"),
            batch(3, 4, "z"),
            batch(4, 5, "w"),
        ];
        let outcomes: Vec<_> = sent
            .clone()
            .map(|batch| send(&*memory, epoch, batch))
            .into();
        let outcomes: Vec<_> = outcomes
            .into_iter()
            .map(|done| done.recv().unwrap())
            .collect();
        assert_eq!(outcomes[0], AppendOutcome::Durable);
        for outcome in &outcomes[1..] {
            assert!(
                matches!(outcome, AppendOutcome::Uncertain { .. }),
                "{outcome:?}"
            );
        }
        let found = if matches!(scripted, Script::UncertainApplied) {
            vec![2, 3]
        } else {
            vec![2]
        };
        assert_eq!(numbers(&recover(&*memory, epoch)), found);
        // Uncertain once more, then settled, then those behind it.
        memory.script([Script::UncertainLost]);
        let again = append(&*memory, epoch, sent[1].clone());
        assert!(matches!(again, AppendOutcome::Uncertain { .. }));
        for batch in &sent[1..] {
            assert_eq!(
                append(&*memory, epoch, batch.clone()),
                AppendOutcome::Durable
            );
        }
        assert_eq!(numbers(&recover(&*memory, epoch)), [2, 3, 4, 5]);
    }
}

#[test]
fn no_space_refuses_what_stands_behind_until_resumed() {
    let memory = Memory::new();
    let epoch = memory.acquire("a").unwrap();
    memory.script([Script::NoSpace]);
    // The second one would fit by its revisions, and was built on the first.
    for refused in [batch(1, 1, "lease"), batch(1, 2, "uses it")] {
        assert_eq!(append(&*memory, epoch, refused), AppendOutcome::NoSpace);
    }
    memory.resume(epoch);
    assert_eq!(
        append(&*memory, epoch, batch(1, 2, "alone")),
        AppendOutcome::Durable
    );
}

#[test]
fn failed_and_fenced_last() {
    for (scripted, is_right) in [
        (Script::Failed, is_failed as fn(&AppendOutcome) -> bool),
        (Script::Fenced, |outcome| *outcome == AppendOutcome::Fenced),
    ] {
        let memory = Memory::new();
        let epoch = memory.acquire("a").unwrap();
        memory.script([scripted]);
        for _ in 0..3 {
            assert!(is_right(&append(&*memory, epoch, batch(1, 2, "x"))));
        }
        assert_eq!(recover(&*memory, epoch), State::default());
    }
}

#[test]
fn a_deposed_holder_is_fenced_though_its_append_was_under_way() {
    let old = Memory::new();
    let first = old.acquire("a").unwrap();
    append_all(&*old, first, 2..=2);
    let gate = Gate::new();
    old.script([Script::Slow(gate.clone())]);
    let late = send(&*old, first, batch(2, 3, "late"));
    gate.wait_reached();
    let new = old.reopened();
    let second = new.acquire("b").unwrap();
    assert_eq!(numbers(&recover(&*new, second)), [2]);
    append_all(&*new, second, 3..=4);
    gate.release();
    assert_eq!(late.recv().unwrap(), AppendOutcome::Fenced);
    assert_eq!(
        append(&*old, first, batch(4, 5, "later")),
        AppendOutcome::Fenced
    );
    let third = new.reopened();
    let epoch = third.acquire("c").unwrap();
    let state = recover(&*third, epoch);
    assert_eq!(numbers(&state), [2, 3, 4]);
    assert_eq!(state.batches[1].2, 3_u64.to_le_bytes().to_vec());
}
