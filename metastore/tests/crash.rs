//! What the embedded engine makes of crashes, damage and a disk that refuses.
//!
//! Batches carry their own number as revision and as the seed of their bytes, so that whatever
//! comes back can be checked against what was sent. A crash is a power cut of a `FaultyDisk` at a
//! chosen moment; the image is then opened as the next process would.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::fs;
use std::io::ErrorKind as Io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_metastore::engine::embedded::faulty::{FaultyDisk, On, Survival};
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::engine::memory::Gate;
use sluice_metastore::engine::{AppendOutcome, Batch, Engine, Epoch, Recovered};
use sluice_metastore::{Error, ErrorKind, Revision};

const SEGMENT: usize = 8 << 10;
/// Where frames begin in a segment, and the bytes around a batch's payload.
const FRAMES_AT: usize = 4096;

fn options(spares: usize) -> EmbeddedOptions {
    EmbeddedOptions {
        segment_bytes: SEGMENT as u64,
        spares,
        ..EmbeddedOptions::new("")
    }
}

fn open(disk: &FaultyDisk) -> Arc<Embedded> {
    Embedded::open_over(Arc::new(disk.clone()), options(0)).unwrap()
}

/// The next such operation waits until this is released or dropped.
struct Held(Gate);

fn hold(disk: &FaultyDisk, on: On) -> Held {
    let gate = Gate::new();
    disk.hold(on, ".log", &gate);
    Held(gate)
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Bytes of all files.
fn used(disk: &FaultyDisk) -> usize {
    let names = disk.names().into_iter();
    names.map(|name| disk.content(&name).unwrap().len()).sum()
}

/// What recovery handed back: where the checkpoint stands, and the batches after it.
#[derive(Debug, PartialEq, Eq)]
struct State {
    at: Option<u64>,
    last: u64,
}

/// Recovers and checks that what comes back is whole, in order and as it was sent.
fn recover(engine: &Embedded, epoch: Epoch) -> Result<State, Error> {
    let mut at = None;
    let mut last = None;
    let mut chunks = Vec::new();
    engine.recover(epoch, &mut |item| {
        match item {
            Recovered::Checkpoint(revision) => at = Some(revision.get()),
            Recovered::Chunk(chunk) => chunks.push(chunk),
            Recovered::Batch(batch) => {
                let number = batch.last.get();
                assert_eq!(
                    batch.payload,
                    payload(number),
                    "batch {number} is not what was sent"
                );
                assert_eq!(batch.previous.get(), number - 1);
                let before = last.or(at).unwrap_or(1);
                assert_eq!(batch.previous.get(), before, "a gap in the log");
                last = Some(number);
            }
        }
        Ok(())
    })?;
    if let Some(at) = at {
        assert_eq!(
            chunks,
            state_at(at),
            "the checkpoint is not what was written"
        );
    }
    Ok(State {
        at,
        last: last.or(at).unwrap_or(1),
    })
}

fn start(disk: &FaultyDisk) -> Result<(Arc<Embedded>, Epoch, State), Error> {
    let engine = open(disk);
    let epoch = engine.acquire("test")?;
    let state = recover(&engine, epoch)?;
    Ok((engine, epoch, state))
}

/// Bytes that depend on the number, of lengths from nothing to some hundred.
fn payload(number: u64) -> Bytes {
    let length = usize::try_from(number * 37 % 300).unwrap();
    let seed = usize::try_from(number).unwrap() * 31;
    let byte = |index: usize| u8::try_from((seed + index * 7) % 256).unwrap();
    (0..length).map(byte).collect()
}

/// The chunks of a checkpoint.
fn state_at(at: u64) -> Vec<Bytes> {
    (0..3).map(|chunk| payload(at + chunk)).collect()
}

fn numbered(number: u64) -> Batch {
    Batch {
        previous: Revision::new(number - 1),
        last: Revision::new(number),
        payload: payload(number),
    }
}

fn send(engine: &Embedded, epoch: Epoch, number: u64) -> Receiver<AppendOutcome> {
    let (sender, receiver) = channel();
    let done = Box::new(move |outcome| sender.send(outcome).unwrap());
    engine.append(epoch, numbered(number), done);
    receiver
}

fn append(engine: &Embedded, epoch: Epoch, number: u64) -> AppendOutcome {
    send(engine, epoch, number).recv().unwrap()
}

fn append_all(engine: &Embedded, epoch: Epoch, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        assert_eq!(
            append(engine, epoch, number),
            AppendOutcome::Durable,
            "number={number}"
        );
    }
}

fn checkpoint(engine: &Embedded, epoch: Epoch, at: u64) -> Result<(), Error> {
    engine.checkpoint(epoch, Revision::new(at), &mut state_at(at).into_iter())
}

fn is_failed(outcome: &AppendOutcome) -> bool {
    matches!(outcome, AppendOutcome::Failed { .. })
}

/// Opens an image twice, writing in between: what a crash left must also bear being gone on from.
fn check_image(image: &FaultyDisk, acknowledged: u64, sent: u64) -> State {
    let (engine, epoch, state) = start(image).unwrap();
    let last = state.last;
    assert!(
        (acknowledged..=sent).contains(&last),
        "last={last} of {acknowledged}..={sent}"
    );
    append_all(&engine, epoch, last + 1..=last + 2);
    let image = image.power_cut(Survival::Nothing);
    drop(engine);
    let (_engine, _, again) = start(&image).unwrap();
    assert_eq!((again.at, again.last), (state.at, last + 2));
    state
}

#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    let disk = FaultyDisk::new();
    let (engine, epoch, _) = start(&disk).unwrap();
    append_all(&engine, epoch, 2..=8);
    // One group of several batches is written and waits for its sync.
    let (first, second) = (hold(&disk, On::Sync), hold(&disk, On::Sync));
    let alone = send(&engine, epoch, 9);
    first.0.wait_reached();
    let group: Vec<_> = (10..=13)
        .map(|number| send(&engine, epoch, number))
        .collect();
    drop(first);
    assert_eq!(alone.recv().unwrap(), AppendOutcome::Durable);
    second.0.wait_reached();
    let frame: usize = (10..=13)
        .map(|number| payload(number).len() + 20)
        .sum::<usize>()
        + 40;
    let mut whole = 0;
    for bytes in 0..=frame.next_multiple_of(8) {
        let state = check_image(&disk.power_cut(Survival::Bytes(bytes)), 9, 13);
        // All of the group or nothing: it was one write under one checksum.
        assert!(
            state.last == 9 || bytes >= frame,
            "bytes={bytes} last={}",
            state.last
        );
        whole += u64::from(state.last == 13);
    }
    assert!((1..=8).contains(&whole), "whole={whole}");
    for seed in 0..200 {
        check_image(&disk.power_cut(Survival::Sectors(seed)), 9, 13);
    }
    check_image(&disk.power_cut(Survival::Nothing), 9, 9);
    check_image(&disk.power_cut(Survival::Everything), 13, 13);
    drop(second);
    for done in group {
        assert_eq!(done.recv().unwrap(), AppendOutcome::Durable);
    }
}

#[test]
fn whatever_fills_the_tail_is_cut() {
    let disk = FaultyDisk::new();
    let (engine, epoch, _) = start(&disk).unwrap();
    append_all(&engine, epoch, 2..=60);
    let image = disk.power_cut(Survival::Nothing);
    let logs: Vec<String> = image
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".log"))
        .collect();
    assert!(logs.len() > 1, "{logs:?}");
    let newest = logs.last().unwrap();
    let content = image.content(newest).unwrap();
    let end = end_of_data(&content);
    let older = image.content(&logs[0]).unwrap();
    let fillers: [Vec<u8>; 4] = [
        vec![0xff; SEGMENT - end],
        (0..SEGMENT - end)
            .map(|byte| u8::try_from(byte * 131 % 251).unwrap())
            .collect(),
        older[FRAMES_AT..][..SEGMENT - end].to_vec(),
        // Frames of this very segment, once more.
        content[FRAMES_AT..]
            .iter()
            .chain(&content[FRAMES_AT..])
            .copied()
            .take(SEGMENT - end)
            .collect(),
    ];
    for filler in fillers {
        let image = image.power_cut(Survival::Everything);
        image.put(newest, [&content[..end], &filler].concat());
        check_image(&image, 60, 60);
    }
}

/// The end of what is not zero, at a frame's boundary.
fn end_of_data(content: &[u8]) -> usize {
    let last = content.iter().rposition(|byte| *byte != 0).unwrap();
    (last + 1).next_multiple_of(8)
}

/// A directory with a trimmed log of several segments and a checkpoint.
fn filled(is_closed: bool) -> FaultyDisk {
    let disk = FaultyDisk::new();
    let (engine, epoch, _) = start(&disk).unwrap();
    append_all(&engine, epoch, 2..=30);
    checkpoint(&engine, epoch, 25).unwrap();
    engine.trim().unwrap();
    append_all(&engine, epoch, 31..=60);
    if is_closed {
        engine.close();
    }
    disk.power_cut(Survival::Nothing)
}

#[test]
fn a_flip_of_any_byte_is_found_or_in_the_cut_tail() {
    for is_closed in [false, true] {
        let disk = filled(is_closed);
        let (mut found, mut harmless, mut cut) = (0, 0, 0);
        for name in disk.names() {
            let content = disk.content(&name).unwrap();
            for place in 0..end_of_data(&content) {
                // A few of the zeros between a header and the frames stand for all of them.
                let is_zeros = (64..FRAMES_AT).contains(&place) && !name.ends_with("checkpoint");
                if is_zeros && place % 512 != 0 {
                    continue;
                }
                let image = disk.power_cut(Survival::Everything);
                let mut content = content.clone();
                content[place] ^= 1 << (place % 8);
                image.put(&name, content);
                match start(&image) {
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                        assert!(error.to_string().contains("/faulty"), "{error}");
                        found += 1;
                    }
                    Ok((_, _, state)) if state.last == 60 => harmless += 1,
                    Ok((_, _, state)) => {
                        assert!(
                            !is_closed && state.last == 59,
                            "{name} at {place}: {state:?}"
                        );
                        cut += 1;
                    }
                }
            }
        }
        let last_frame = (40 + 20 + payload(60).len()).next_multiple_of(8);
        assert!(
            cut <= last_frame && found > 5000,
            "found={found} harmless={harmless} cut={cut}"
        );
        // What may pass: the zeros after a header, the end mark, the lock, covered segments.
        assert!(harmless < 3000, "harmless={harmless}");
    }
}

#[test]
fn a_damaged_checkpoint_falls_back_only_while_the_log_covers_it() {
    let disk = FaultyDisk::new();
    let (engine, epoch, _) = start(&disk).unwrap();
    append_all(&engine, epoch, 2..=40);
    checkpoint(&engine, epoch, 20).unwrap();
    let damage = |image: FaultyDisk, at: u64| {
        let name = format!("{at:020}.checkpoint");
        let mut content = image.content(&name).unwrap();
        content[100] ^= 1;
        image.put(&name, content);
        image
    };
    let image = || disk.power_cut(Survival::Nothing);
    assert_eq!(
        start(&damage(image(), 20)).unwrap().2,
        State { at: None, last: 40 }
    );
    checkpoint(&engine, epoch, 40).unwrap();
    let expected = State {
        at: Some(20),
        last: 40,
    };
    assert_eq!(start(&damage(image(), 40)).unwrap().2, expected);
    let both = damage(damage(image(), 40), 20);
    assert_eq!(start(&both).unwrap().2, State { at: None, last: 40 });
    engine.trim().unwrap();
    append_all(&engine, epoch, 41..=60);
    engine.trim().unwrap();
    let error = start(&damage(image(), 40)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains("40.checkpoint at offset="),
        "{error}"
    );
    // A damaged one that was passed over does not stay for ever.
    let passed = damage(image(), 40);
    passed.put(
        "00000000000000000020.checkpoint",
        both.content("00000000000000000020.checkpoint").unwrap(),
    );
    assert!(start(&passed).is_err());
}

#[test]
fn a_missing_segment_is_found() {
    let disk = filled(false);
    let logs: Vec<String> = disk
        .names()
        .into_iter()
        .filter(|name| name.ends_with(".log"))
        .collect();
    assert!(logs.len() >= 3, "{logs:?}");
    for name in &logs[..logs.len() - 1] {
        let image = disk.power_cut(Survival::Everything);
        image.take_away(name);
        // The oldest one may be wholly covered by the checkpoint.
        match start(&image) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
            Ok((_, _, state)) => assert_eq!((state.last, name), (60, &logs[0])),
        }
    }
    let image = disk.power_cut(Survival::Everything);
    logs.iter().for_each(|name| image.take_away(name));
    assert_eq!(start(&image).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// A crash after any step of a history with rotation, checkpoints, trims, recycling and restarts.
#[test]
fn a_crash_at_any_step_loses_nothing_acknowledged() {
    struct Moment {
        image: FaultyDisk,
        acknowledged: u64,
        sent: u64,
    }
    let disk = FaultyDisk::new();
    let moments: Arc<Mutex<Vec<Moment>>> = Arc::default();
    let (acknowledged, sent) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(1)));
    let observer = {
        let (moments, acknowledged, sent) = (
            Arc::clone(&moments),
            Arc::clone(&acknowledged),
            Arc::clone(&sent),
        );
        move |disk: &FaultyDisk| {
            let mut moments = moments.lock();
            let seed = moments.len() as u64;
            for survival in [
                Survival::Nothing,
                Survival::Everything,
                Survival::Sectors(seed),
                Survival::Sectors(seed + 1_000_000),
            ] {
                // Read before the cut, so that they hold for what the image must have.
                let acknowledged = acknowledged.load(Ordering::SeqCst);
                let image = disk.power_cut(survival);
                let sent = sent.load(Ordering::SeqCst);
                moments.push(Moment {
                    image,
                    acknowledged,
                    sent,
                });
            }
        }
    };
    disk.observe(Some(Arc::new(observer)));
    let mut number = 1;
    for round in 0..3 {
        let engine = Embedded::open_over(Arc::new(disk.clone()), options(2)).unwrap();
        let epoch = engine.acquire("test").unwrap();
        assert_eq!(recover(&engine, epoch).unwrap().last, number);
        for _ in 0..4 {
            for _ in 0..15 {
                number += 1;
                sent.store(number, Ordering::SeqCst);
                assert_eq!(append(&engine, epoch, number), AppendOutcome::Durable);
                acknowledged.store(number, Ordering::SeqCst);
            }
            checkpoint(&engine, epoch, number - 5).unwrap();
            engine.trim().unwrap();
        }
        if round == 1 {
            engine.close();
        }
        // The first process goes without a word: the lock is the only thing it lets go.
        drop(engine);
    }
    disk.observe(None);
    let moments = std::mem::take(&mut *moments.lock());
    assert!(moments.len() > 1000, "moments={}", moments.len());
    for Moment {
        image,
        acknowledged,
        sent,
    } in moments
    {
        check_image(&image, acknowledged, sent);
    }
}

#[test]
fn a_trimmed_segment_is_not_used_again_before_its_old_name_is_gone() {
    let disk = FaultyDisk::new();
    // Spares come from the trim alone.
    for _ in 0..100 {
        disk.fail(On::Create, "spare.tmp", 0, Io::Other);
    }
    let engine = Embedded::open_over(Arc::new(disk.clone()), options(1)).unwrap();
    let epoch = engine.acquire("test").unwrap();
    recover(&engine, epoch).unwrap();
    append_all(&engine, epoch, 2..=60);
    checkpoint(&engine, epoch, 60).unwrap();
    let images: Arc<Mutex<Vec<FaultyDisk>>> = Arc::default();
    let gate = Held(Gate::new());
    disk.hold(On::SyncNames, "", &gate.0);
    std::thread::scope(|scope| {
        let gate = gate;
        let trim = scope.spawn(|| engine.trim());
        gate.0.wait_reached();
        let seen = Arc::clone(&images);
        let observer = move |disk: &FaultyDisk| seen.lock().push(disk.power_cut(Survival::Nothing));
        disk.observe(Some(Arc::new(observer)));
        append_all(&engine, epoch, 61..=120);
        disk.observe(None);
        drop(gate);
        trim.join().unwrap().unwrap();
    });
    for image in images.lock().iter() {
        check_image(image, 60, 120);
    }
    let spares = || {
        disk.names()
            .iter()
            .filter(|name| name.starts_with("spare-"))
            .count()
    };
    assert_eq!(spares(), 1);
    append_all(&engine, epoch, 121..=180);
    assert_eq!(spares(), 0);
    check_image(&disk.power_cut(Survival::Nothing), 180, 180);
}

#[test]
fn a_failed_sync_ends_writing_for_good() {
    for on in [On::Sync, On::Write] {
        let disk = FaultyDisk::new();
        let (engine, epoch, _) = start(&disk).unwrap();
        append_all(&engine, epoch, 2..=5);
        disk.fail(on, ".log", 0, Io::Other);
        let outcomes = [6, 7, 8].map(|number| send(&engine, epoch, number));
        for outcome in outcomes {
            assert!(is_failed(&outcome.recv().unwrap()));
        }
        let syncs = disk.syncs();
        // The disk is well again, and nothing is tried any more.
        assert!(is_failed(&append(&engine, epoch, 6)));
        assert_eq!(
            checkpoint(&engine, epoch, 5).unwrap_err().kind(),
            ErrorKind::Unavailable
        );
        engine.close();
        assert_eq!(disk.syncs(), syncs);
        check_image(&disk.power_cut(Survival::Nothing), 5, 5);
        check_image(&disk.power_cut(Survival::Everything), 5, 8);
    }
}

#[test]
fn a_failure_while_a_segment_begins_ends_writing_unless_it_is_room() {
    for on in [On::Create, On::Write, On::Sync, On::Rename, On::SyncNames] {
        for kind in [Io::StorageFull, Io::Other] {
            let disk = FaultyDisk::new();
            let (engine, epoch, _) = start(&disk).unwrap();
            let name = if on == On::SyncNames {
                ""
            } else {
                "segment.tmp"
            };
            disk.fail(on, name, 0, kind);
            let outcome = append(&engine, epoch, 2);
            if kind == Io::StorageFull {
                assert_eq!(outcome, AppendOutcome::NoSpace, "{on:?}");
                assert_eq!(append(&engine, epoch, 2), AppendOutcome::NoSpace);
                engine.resume(epoch);
                append_all(&engine, epoch, 2..=60);
            } else {
                assert!(is_failed(&outcome), "{on:?}");
                assert!(is_failed(&append(&engine, epoch, 2)));
            }
            let last = if kind == Io::StorageFull { 60 } else { 1 };
            check_image(&disk.power_cut(Survival::Nothing), last, last);
            check_image(&disk.power_cut(Survival::Everything), last, last);
        }
    }
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = FaultyDisk::new();
    let (engine, epoch, _) = start(&disk).unwrap();
    // The lock, and two segments.
    disk.set_room(Some(8192 + 2 * SEGMENT));
    let mut last = 1;
    while append(&engine, epoch, last + 1) == AppendOutcome::Durable {
        last += 1;
    }
    assert!(last > 10, "last={last}");
    let refused = [last + 1, last + 2].map(|number| send(&engine, epoch, number));
    for outcome in refused {
        assert_eq!(outcome.recv().unwrap(), AppendOutcome::NoSpace);
    }
    disk.set_room(Some(0));
    let error = checkpoint(&engine, epoch, last).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    // Still full.
    engine.resume(epoch);
    assert_eq!(append(&engine, epoch, last + 1), AppendOutcome::NoSpace);
    let full = disk.power_cut(Survival::Nothing);
    full.set_room(Some(0));
    // A full disk can be started from, and read.
    let (restarted, restarted_epoch, state) = start(&full).unwrap();
    assert_eq!(state.last, last);
    assert_eq!(
        append(&restarted, restarted_epoch, last + 1),
        AppendOutcome::NoSpace
    );
    // Room without a restart.
    disk.set_room(None);
    engine.resume(epoch);
    append_all(&engine, epoch, last + 1..=last + 60);
    check_image(&disk.power_cut(Survival::Nothing), last + 60, last + 60);
}

#[test]
fn a_checkpoint_and_a_trim_make_room_on_a_full_disk() {
    let disk = FaultyDisk::new();
    let (engine, epoch, _) = start(&disk).unwrap();
    append_all(&engine, epoch, 2..=80);
    disk.set_room(Some(used(&disk)));
    let mut last = 80;
    while append(&engine, epoch, last + 1) == AppendOutcome::Durable {
        last += 1;
    }
    // Room for a small checkpoint, not for a segment.
    disk.set_room(Some(used(&disk) + 4096));
    checkpoint(&engine, epoch, last).unwrap();
    engine.trim().unwrap();
    engine.resume(epoch);
    append_all(&engine, epoch, last + 1..=last + 10);
    check_image(&disk.power_cut(Survival::Nothing), last + 10, last + 10);
}

#[test]
fn all_that_is_queued_takes_one_sync() {
    let disk = FaultyDisk::new();
    let (engine, epoch, _) = start(&disk).unwrap();
    append_all(&engine, epoch, 2..=2);
    let gate = hold(&disk, On::Sync);
    let first = send(&engine, epoch, 3);
    gate.0.wait_reached();
    let before = disk.syncs();
    let rest: Vec<_> = (4..=8).map(|number| send(&engine, epoch, number)).collect();
    // Nothing is said to be durable while the disk has not said so.
    assert!(first.try_recv().is_err());
    drop(gate);
    for outcome in std::iter::once(first).chain(rest) {
        assert_eq!(outcome.recv().unwrap(), AppendOutcome::Durable);
    }
    assert_eq!(disk.syncs() - before, 2);
}

#[test]
fn a_holder_whose_lock_file_was_replaced_is_fenced() {
    let disk = FaultyDisk::new();
    let (old, old_epoch, _) = start(&disk).unwrap();
    append_all(&old, old_epoch, 2..=5);
    // One write is under way while somebody removes the lock and starts a second process.
    let gate = hold(&disk, On::Write);
    let late = send(&old, old_epoch, 6);
    gate.0.wait_reached();
    let lock = disk.content("sluice.lock").unwrap();
    disk.put("sluice.lock", lock);
    let (new, new_epoch, state) = start(&disk).unwrap();
    assert_eq!(state.last, 5);
    assert!(new_epoch > old_epoch);
    append_all(&new, new_epoch, 6..=30);
    drop(gate);
    assert_eq!(late.recv().unwrap(), AppendOutcome::Fenced);
    assert_eq!(append(&old, old_epoch, 6), AppendOutcome::Fenced);
    append_all(&new, new_epoch, 31..=40);
    check_image(&disk.power_cut(Survival::Everything), 40, 40);
}

#[test]
fn a_damaged_lock_slot_never_gives_an_epoch_again() {
    let disk = FaultyDisk::new();
    for _ in 0..3 {
        start(&disk).unwrap();
    }
    for slot in [0, 4096] {
        let image = disk.power_cut(Survival::Everything);
        let mut lock = image.content("sluice.lock").unwrap();
        lock[slot + 30] ^= 1;
        image.put("sluice.lock", lock);
        let (_, epoch, _) = start(&image).unwrap();
        assert!(epoch > Epoch(3), "{epoch:?}");
    }
}

// A real directory, for what concerns the operating system.

fn in_directory(dir: &std::path::Path) -> Arc<Embedded> {
    Embedded::open(EmbeddedOptions::new(dir)).unwrap()
}

#[test]
fn a_second_holder_is_told_who_has_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let first = in_directory(dir.path());
    let epoch = first.acquire("node-a").unwrap();
    let second = in_directory(dir.path());
    let error = second.acquire("node-b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    for part in [
        "holder=node-a",
        &format!("pid={}", std::process::id()),
        dir.path().to_str().unwrap(),
    ] {
        assert!(text.contains(part), "{text}");
    }
    first.close();
    assert!(second.acquire("node-b").unwrap() > epoch);
}

#[test]
fn a_foreign_directory_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letters.txt"), "dear").unwrap();
    let error = in_directory(dir.path()).acquire("node").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("letters.txt; name an empty directory"),
        "{error}"
    );
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1);
    // A file in the directory's place.
    let error = Embedded::open(EmbeddedOptions::new(dir.path().join("letters.txt"))).unwrap_err();
    assert!(
        error.to_string().contains("cannot open data directory"),
        "{error}"
    );
}

#[test]
fn data_without_its_lock_and_newer_formats_are_refused() {
    let disk = filled(true);
    let image = disk.power_cut(Survival::Everything);
    image.take_away("sluice.lock");
    assert_eq!(start(&image).unwrap_err().kind(), ErrorKind::Corrupt);
    let image = disk.power_cut(Survival::Everything);
    image.put("sluice.lock", vec![0; 8192]);
    let error = start(&image).unwrap_err();
    assert!(
        error.to_string().contains("does not hold the epoch"),
        "{error}"
    );
    for (suffix, crc_at) in [("lock", 508), ("log", 60), ("checkpoint", 60)] {
        let image = disk.power_cut(Survival::Everything);
        let names = image.names();
        let name = names.iter().rfind(|name| name.ends_with(suffix)).unwrap();
        let mut content = image.content(name).unwrap();
        content[8] = 2;
        let crc = crc32c::crc32c(&content[..crc_at]).to_le_bytes();
        content[crc_at..crc_at + 4].copy_from_slice(&crc);
        image.put(name, content);
        let error = start(&image).unwrap_err().to_string();
        assert!(
            error.contains("is of format version 2, this build reads 1"),
            "{error}"
        );
    }
}

#[test]
fn default_segments_go_through_spares_and_restarts_take_little_room() {
    let dir = tempfile::tempdir().unwrap();
    let large = Bytes::from(vec![5; 4 << 20]);
    let mut last = 1;
    for _ in 0..3 {
        let engine = in_directory(dir.path());
        let epoch = engine.acquire("node").unwrap();
        let mut seen = 1;
        engine
            .recover(epoch, &mut |item| {
                if let Recovered::Batch(batch) = item {
                    seen = batch.last.get();
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, last);
        for _ in 0..10 {
            let (sender, receiver) = channel();
            let batch = Batch {
                previous: Revision::new(last),
                last: Revision::new(last + 1),
                payload: large.clone(),
            };
            engine.append(
                epoch,
                batch,
                Box::new(move |outcome| sender.send(outcome).unwrap()),
            );
            assert_eq!(receiver.recv().unwrap(), AppendOutcome::Durable);
            last += 1;
        }
    }
    let bytes = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let is_log = entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "log");
        if is_log {
            entry.metadata().unwrap().len()
        } else {
            0
        }
    };
    let total: u64 = fs::read_dir(dir.path()).unwrap().map(bytes).sum();
    // Two segments cut to what they hold, one whole.
    assert!(total < (40 + 40 + 64 + 2) << 20, "total={total}");
}
