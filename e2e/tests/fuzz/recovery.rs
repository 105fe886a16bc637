//! The log over files that were damaged: recovery says `Corrupt`, or hands back a beginning of what
//! was written, each batch as it was, and can then be written on.
//!
//! An input is a program: what is written, how it ends (in order, or by a power cut), what is then
//! done to the files. Where a single bit was turned, at most the last batch may be missing, and none
//! where the log was closed in order.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use bytes::Bytes;
use sluice_metastore::engine::embedded::faulty::{FaultyDisk, Survival};
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::engine::{AppendOutcome, Batch, Engine, Epoch, Recovered};
use sluice_metastore::{Error, ErrorKind, Revision};

use crate::feed::Feed;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

pub(crate) fn target() -> Target {
    Target {
        name: "recovery",
        shape: Shape::program(200),
        seeds: vec![Vec::new()],
        check: Box::new(check),
    }
}

/// What was written, all of it durable.
#[derive(Default)]
struct Written {
    batches: Vec<Batch>,
    /// At which revision, and after how many batches.
    checkpoints: Vec<(Revision, usize)>,
}

impl Written {
    fn last(&self) -> Revision {
        self.batches
            .last()
            .map_or(Revision::FIRST, |batch| batch.last)
    }
}

fn open(disk: &FaultyDisk) -> Result<(Arc<Embedded>, Epoch), Error> {
    let options = EmbeddedOptions {
        dir: "unused".into(),
        segment_bytes: 8 << 10,
        spares: 0,
        reserve_bytes: 0,
    };
    let engine = Embedded::open_over(Arc::new(disk.clone()), options)?;
    let epoch = engine.acquire("fuzz")?;
    Ok((engine, epoch))
}

fn append(engine: &Embedded, epoch: Epoch, batch: &Batch) -> Result<(), String> {
    let (sender, receiver) = channel();
    let done = Box::new(move |outcome| sender.send(outcome).unwrap());
    engine.append(epoch, batch.clone(), done);
    let outcome = receiver.recv_timeout(Duration::from_secs(60));
    match outcome.map_err(|_| "no outcome within a minute".to_owned())? {
        AppendOutcome::Durable => Ok(()),
        other => Err(format!("an append came to {other:?}")),
    }
}

/// The one chunk of a checkpoint.
fn chunk(at: Revision) -> Bytes {
    Bytes::from(format!("all up to {at}"))
}

fn check(input: &[u8]) -> Result<Verdict, String> {
    let mut feed = Feed::new(input);
    let disk = FaultyDisk::new();
    let (written, image, is_closed) = write(&mut feed, &disk)?;
    let damages = feed.pick(&[0, 1, 1, 1, 2, 3]);
    let mut is_one_bit = true;
    for _ in 0..damages {
        is_one_bit &= damage(&mut feed, &image);
    }
    let found = match recover(&image) {
        Ok(found) => found,
        Err(error) if damages == 0 => return Err(format!("undamaged: {error}")),
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Verdict::Refused),
        Err(error) => return Err(format!("not Corrupt but {:?}: {error}", error.kind())),
    };
    let missing = compare(&written, &found)?;
    let may_miss = match damages {
        0 => 0,
        1 if is_one_bit => usize::from(!is_closed),
        _ => usize::MAX,
    };
    if missing > may_miss {
        return Err(format!("{missing} batches are gone in silence"));
    }
    go_on(&found)?;
    Ok(Verdict::Accepted)
}

fn write(feed: &mut Feed<'_>, disk: &FaultyDisk) -> Result<(Written, FaultyDisk, bool), String> {
    let (engine, epoch) = open(disk).map_err(|error| error.to_string())?;
    engine
        .recover(epoch, &mut |_| Ok(()))
        .map_err(|error| error.to_string())?;
    let mut written = Written::default();
    for _ in 0..feed.below(40) {
        match feed.below(8) {
            0 if !written.batches.is_empty() => {
                let at = written.last();
                engine
                    .checkpoint(epoch, at, &mut [chunk(at)].into_iter())
                    .map_err(|error| format!("checkpoint: {error}"))?;
                written.checkpoints.push((at, written.batches.len()));
            }
            1 => engine.trim().map_err(|error| format!("trim: {error}"))?,
            kind => {
                let previous = written.last();
                let batch = Batch {
                    previous,
                    last: if kind == 2 { previous } else { previous.next() },
                    payload: payload(feed, written.batches.len()),
                };
                append(&engine, epoch, &batch)?;
                written.batches.push(batch);
            }
        }
    }
    let is_closed = feed.below(2) == 1;
    if is_closed {
        engine.close();
    }
    let survival = match feed.below(3) {
        0 => Survival::Nothing,
        1 => Survival::Everything,
        _ => Survival::Sectors(u64::from(feed.byte())),
    };
    Ok((written, disk.power_cut(survival), is_closed))
}

/// Bytes that no other batch has, some of which look like the log's own.
fn payload(feed: &mut Feed<'_>, number: usize) -> Bytes {
    let mut payload = format!("batch {number} ").into_bytes();
    let filler = feed.pick(&[&b"SLFR"[..], b"\0\0\0\0", b"SLUICELG", b"text"]);
    for _ in 0..feed.below(400) {
        payload.extend_from_slice(filler);
    }
    Bytes::from(payload)
}

/// Does something to a file; whether it was the turning of one bit.
fn damage(feed: &mut Feed<'_>, disk: &FaultyDisk) -> bool {
    let names = disk.names();
    if names.is_empty() {
        return true;
    }
    let name = &names[feed.below(names.len())];
    let mut content = disk.content(name).unwrap();
    let kind = feed.below(12);
    // Most of a segment is zeros: what was written is hit more often.
    let end = content
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    let at = feed.below(end.max(1));
    let until = (at + 1 + feed.below(4096)).min(content.len());
    match kind {
        0 => {
            disk.take_away(name);
            return false;
        }
        1 => {
            let other = &names[feed.below(names.len())];
            content = disk.content(other).unwrap();
        }
        2 => content.truncate(at),
        3 => content[at.min(until)..until].fill(0),
        4 => {
            let copy = content[at.min(until)..until].to_vec();
            let to = feed.below(content.len() + 1) & !7;
            content.splice(to..(to + copy.len()).min(content.len()), copy);
        }
        5 => content.extend_from_slice(b"SLFR and then something"),
        _ => {
            if let Some(byte) = content.get_mut(at) {
                *byte ^= 1 << feed.below(8);
            }
        }
    }
    disk.put(name, content);
    kind > 5
}

/// What a recovery handed back.
#[derive(Default)]
struct Found {
    disk: FaultyDisk,
    at: Option<Revision>,
    chunks: Vec<Bytes>,
    batches: Vec<Batch>,
}

fn recover(disk: &FaultyDisk) -> Result<Found, Error> {
    let (engine, epoch) = open(disk)?;
    let mut found = Found {
        disk: disk.clone(),
        ..Found::default()
    };
    engine.recover(epoch, &mut |part| {
        match part {
            Recovered::Checkpoint(at) => found.at = Some(at),
            Recovered::Chunk(chunk) => found.chunks.push(chunk),
            Recovered::Batch(batch) => found.batches.push(batch),
        }
        Ok(())
    })?;
    Ok(found)
}

fn is_same(a: &Batch, b: &Batch) -> bool {
    (a.previous, a.last, &a.payload) == (b.previous, b.last, &b.payload)
}

/// How many of the written batches are missing at the end; fails unless the rest is there.
fn compare(written: &Written, found: &Found) -> Result<usize, String> {
    // What the checkpoint stands for need not come back; housekeeping at its revision may.
    let (covered, needed_from) = match found.at {
        None => (0, 0),
        Some(at) => {
            let taken = written.checkpoints.iter().rfind(|(taken, _)| *taken == at);
            let (_, covered) = taken.ok_or(format!("there was no checkpoint at {at}"))?;
            if found.chunks != [chunk(at)] {
                return Err(format!("the checkpoint at {at} holds {:?}", found.chunks));
            }
            let behind = |batch: &Batch| batch.previous >= at;
            let first = written.batches.iter().position(behind);
            (*covered, first.unwrap_or(written.batches.len()))
        }
    };
    let rest = &found.batches;
    for from in needed_from..=covered.max(needed_from) {
        let tail = written.batches.get(from..).unwrap_or_default();
        let is_prefix =
            rest.len() <= tail.len() && rest.iter().zip(tail).all(|(a, b)| is_same(a, b));
        if is_prefix {
            // The longest covered beginning that fits is the one to be judged by.
            let there = (from + rest.len()).max(covered);
            return Ok(written.batches.len().saturating_sub(there));
        }
    }
    let revisions = |batches: &[Batch]| -> Vec<(u64, u64)> {
        let pair = |batch: &Batch| (batch.previous.get(), batch.last.get());
        batches.iter().map(pair).collect()
    };
    let (found_revisions, all) = (revisions(rest), revisions(&written.batches));
    Err(format!(
        "checkpoint {:?} and batches {found_revisions:?} of {all:?} came back",
        found.at
    ))
}

/// Writes one more batch and finds it behind the others.
fn go_on(found: &Found) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let (engine, epoch) = open(&found.disk).map_err(text)?;
    let mut sink = |_| Ok(());
    engine.recover(epoch, &mut sink).map_err(text)?;
    let newest = found.batches.last().map(|batch| batch.last).max(found.at);
    let previous = newest.unwrap_or(Revision::FIRST);
    let batch = Batch {
        previous,
        last: previous.next(),
        payload: Bytes::from_static(b"one more"),
    };
    append(&engine, epoch, &batch)?;
    let image = found.disk.power_cut(Survival::Nothing);
    drop(engine);
    let again = recover(&image).map_err(|error| format!("written on: {error}"))?;
    let (last, before) = again.batches.split_last().ok_or("nothing came back")?;
    let is_whole = before.len() == found.batches.len()
        && before
            .iter()
            .zip(&found.batches)
            .all(|(a, b)| is_same(a, b));
    if again.at != found.at || !is_whole || !is_same(last, &batch) {
        return Err("after one more batch, the others differ".to_owned());
    }
    Ok(())
}
