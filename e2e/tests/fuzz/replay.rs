//! A store over a log that is not what it wrote: it opens or says `Corrupt`, and one that opens can
//! be read and written. Checksums keep this from happening to a damaged file; a fault of our own,
//! or a log of another version, gets this far.
//!
//! Batches and a checkpoint are recorded from a store once. An input is a program that changes some
//! of them; the empty one changes nothing, and must give the recorded state back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::engine::{AppendOutcome, Batch, Engine, Epoch, Place, PlacedDone, Recovered};
use sluice_metastore::read::{At, Range};
use sluice_metastore::txn::{Delete, Put};
use sluice_metastore::{Error, ErrorKind, KeyRange, LeaseId, Revision, Store, StoreOptions};
use tokio::runtime::{Builder, Runtime};

use crate::feed::Feed;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

pub(crate) fn target() -> Target {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let recorded = runtime.block_on(record());
    let plain = open(&recorded).unwrap();
    let state = state(&plain).unwrap();
    assert!(state.len() > 10, "the recorded store is all but empty");
    Target {
        name: "replay",
        shape: Shape::program(64),
        seeds: vec![Vec::new()],
        check: Box::new(move |input| check(&runtime, &recorded, &state, input)),
    }
}

/// What recovery hands back.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Checkpoint(Revision),
    Chunk(Bytes),
    Batch(Revision, Revision, Bytes),
}

/// Runs a store through every kind of entry, with a checkpoint in the middle.
async fn record() -> Vec<Part> {
    let engine = Memory::new();
    let options = StoreOptions {
        checkpoint_every_bytes: 1500,
        ..StoreOptions::default()
    };
    let store = Store::open(Arc::clone(&engine) as Arc<dyn Engine>, options).unwrap();
    let minute = Duration::from_secs(60);
    let (lease, _) = store.lease_grant(LeaseId(77), minute).await.unwrap();
    for n in 0..60_u64 {
        let key = Bytes::from(format!("/registry/core/pods/{}", n % 13));
        if n % 9 == 8 {
            let range = KeyRange::Key(key);
            let delete = Delete {
                range,
                want_previous: false,
            };
            store.delete(delete).await.unwrap();
            continue;
        }
        let put = Put {
            key,
            value: Some(Bytes::from(format!("value {n}"))),
            lease: Some(if n % 5 == 0 { lease } else { LeaseId::NONE }),
            want_previous: false,
        };
        store.put(put).await.unwrap();
        match n {
            20 => drop(store.compact(Revision::new(9)).await.unwrap()),
            50 => drop(store.lease_grant(LeaseId(78), minute).await.unwrap()),
            55 => drop(store.lease_revoke(LeaseId(78)).await.unwrap()),
            _ => {}
        }
    }
    store.close().await;
    let again = engine.reopened();
    let epoch = again.acquire("recorder").unwrap();
    let mut parts = Vec::new();
    let mut keep = |part| {
        parts.push(match part {
            Recovered::Checkpoint(at) => Part::Checkpoint(at),
            Recovered::Chunk(chunk) => Part::Chunk(chunk),
            Recovered::Batch(batch) => Part::Batch(batch.previous, batch.last, batch.payload),
        });
        Ok(())
    };
    again.recover(epoch, &mut keep).unwrap();
    parts
}

/// An engine that hands back what it is told to, and takes everything.
struct Told(Vec<Part>);

impl Engine for Told {
    fn acquire(&self, _holder: &str) -> Result<Epoch, Error> {
        Ok(Epoch(1))
    }

    fn recover_placed(
        &self,
        _epoch: Epoch,
        sink: &mut dyn FnMut(Recovered, Option<Place>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.0.iter().cloned().try_for_each(|part| {
            let part = match part {
                Part::Checkpoint(at) => Recovered::Checkpoint(at),
                Part::Chunk(chunk) => Recovered::Chunk(chunk),
                Part::Batch(previous, last, payload) => Recovered::Batch(Batch {
                    previous,
                    last,
                    payload,
                }),
            };
            sink(part, None)
        })
    }

    fn append_placed(&self, _epoch: Epoch, _batch: Batch, done: PlacedDone) {
        std::thread::spawn(move || done(AppendOutcome::Durable, None));
    }

    fn resume(&self, _epoch: Epoch) {}

    fn checkpoint_placed(
        &self,
        _epoch: Epoch,
        _at: Revision,
        chunks: &mut dyn Iterator<Item = Result<Bytes, Error>>,
    ) -> Result<Vec<Place>, Error> {
        for chunk in chunks {
            chunk?;
        }
        Ok(Vec::new())
    }

    fn trim(&self) -> Result<(), Error> {
        Ok(())
    }

    fn size(&self) -> u64 {
        0
    }

    fn close(&self) {}
}

fn open(parts: &[Part]) -> Result<Store, Error> {
    let engine = Arc::new(Told(parts.to_vec()));
    Store::open(engine, StoreOptions::default())
}

/// Every record, encoded, now and at the floor.
fn state(store: &Store) -> Result<Vec<Bytes>, String> {
    let mut state = Vec::new();
    for at in [
        At::Latest,
        At::Exactly(store.compacted().max(Revision::FIRST)),
    ] {
        let range = Range {
            at,
            ..Range::of(KeyRange::All)
        };
        let answer = match store.range(&range) {
            Ok(answer) => answer,
            // A floor that was made up lies in the future.
            Err(error) if error.kind() == ErrorKind::OutOfRange && at != At::Latest => continue,
            Err(error) => return Err(format!("cannot be read at {at:?}: {error}")),
        };
        let keys: Vec<&[u8]> = answer.records.iter().map(|record| record.key()).collect();
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err(format!("keys out of order at {at:?}: {keys:?}"));
        }
        state.extend(answer.records.iter().map(|record| record.encoded_bytes()));
    }
    Ok(state)
}

fn check(
    runtime: &Runtime,
    recorded: &[Part],
    expected: &[Bytes],
    input: &[u8],
) -> Result<Verdict, String> {
    let mut parts = recorded.to_vec();
    let mut feed = Feed::new(input);
    for _ in 0..feed.pick(&[0, 1, 1, 1, 2, 4]) {
        change(&mut feed, &mut parts);
    }
    let store = match open(&parts) {
        Ok(store) => store,
        Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(Verdict::Refused),
        Err(error) => return Err(format!("not Corrupt but {:?}: {error}", error.kind())),
    };
    let found = state(&store)?;
    if parts == recorded && found != expected {
        return Err("the recorded state did not come back".to_owned());
    }
    let before = store.revision();
    let put = Put {
        key: Bytes::from_static(b"/registry/core/pods/3"),
        value: Some(Bytes::from_static(b"after")),
        lease: Some(LeaseId::NONE),
        want_previous: false,
    };
    let answer = runtime.block_on(store.put(put));
    let answer = answer.map_err(|error| format!("it takes no write: {error}"))?;
    if answer.revision != before.next() {
        return Err(format!("{} follows {before}", answer.revision));
    }
    Ok(Verdict::Accepted)
}

fn change(feed: &mut Feed<'_>, parts: &mut Vec<Part>) {
    if parts.is_empty() {
        return;
    }
    let at = feed.below(parts.len());
    match feed.below(8) {
        0 => drop(parts.remove(at)),
        1 => {
            let other = feed.below(parts.len());
            parts.swap(at, other);
        }
        2 => {
            let copy = parts[at].clone();
            parts.insert(at, copy);
        }
        _ => {
            let (Part::Chunk(payload) | Part::Batch(_, _, payload)) = &mut parts[at] else {
                return;
            };
            let mut bytes = payload.to_vec();
            let place = feed.below(bytes.len() + 1);
            match feed.below(4) {
                0 => bytes.insert(place, feed.byte()),
                1 => bytes.truncate(place),
                2 => drop(bytes.drain(..place)),
                _ => {
                    if let Some(byte) = bytes.get_mut(place) {
                        *byte = feed.byte();
                    }
                }
            }
            *payload = Bytes::from(bytes);
        }
    }
}
