//! Snapshot files that were damaged: reading says so, or what is restored of one is a store that
//! opens, reads, counts what was promised and takes a write. A file whose checksum does not fit is
//! never read; one whose checksum was made to fit again shows how the reader bears what it finds.
//!
//! A store's snapshot is taken once. An input is a program that damages it; the empty one does not,
//! and must give the store back.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use sluice_metastore::backup::{Bump, Contents, HashCheck, Snapshot};
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::read::Range;
use sluice_metastore::txn::{Delete, Op, Put, Txn};
use sluice_metastore::{Error, ErrorKind, KeyRange, LeaseId, Revision, Store, StoreOptions};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::feed::Feed;
use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

/// Bytes of the checksum at the end.
const SHA: usize = 32;
/// What the tree is cut into.
const PAGE: usize = 4096;

pub(crate) fn target() -> Target {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (file, records) = runtime.block_on(taken());
    let dir = tempfile::tempdir().unwrap();
    Target {
        name: "snapshot",
        shape: Shape::program(80),
        seeds: vec![Vec::new()],
        check: Box::new(move |input| check(&runtime, &dir, &file, &records, input)),
    }
}

/// A snapshot of a store with a past, leases and revisions that changed several keys.
async fn taken() -> (Vec<u8>, Vec<Bytes>) {
    let store = Store::open(Memory::new(), StoreOptions::default()).unwrap();
    let minute = Duration::from_secs(60);
    store.lease_grant(LeaseId(77), minute).await.unwrap();
    let put = |key: String, lease: i64| {
        Op::Put(Put {
            key: Bytes::from(key),
            value: Some(Bytes::from_static(b"a value")),
            lease: Some(LeaseId(lease)),
            want_previous: false,
        })
    };
    for n in 0..90_u32 {
        let mut txn = Txn::default();
        txn.success.push(put(format!("/z/{}", n % 13), 0));
        if n % 5 == 0 {
            txn.success.push(put(format!("/a/{n}"), 77));
        }
        if n % 9 == 8 {
            txn.success.push(Op::Delete(Delete {
                range: KeyRange::prefix(b"/a/1"),
                want_previous: false,
            }));
            txn.success
                .retain(|op| !matches!(op, Op::Put(put) if put.key.starts_with(b"/a")));
        }
        store.txn(txn).await.unwrap();
    }
    store.compact(Revision::new(30)).await.unwrap();
    let mut file = Vec::new();
    let snapshot = Snapshot::take(&store).unwrap();
    let mut keep = |piece: Bytes, _left| {
        file.extend_from_slice(&piece);
        Ok(())
    };
    snapshot.write(&mut keep).unwrap();
    (file, records(&store).unwrap())
}

fn records(store: &Store) -> Result<Vec<Bytes>, Error> {
    let found = store.range(&Range::of(KeyRange::All))?;
    Ok(found
        .records
        .iter()
        .map(|record| record.encoded_bytes())
        .collect())
}

fn check(
    runtime: &Runtime,
    dir: &TempDir,
    whole: &[u8],
    expected: &[Bytes],
    input: &[u8],
) -> Result<Verdict, String> {
    let mut feed = Feed::new(input);
    let mut file = whole.to_vec();
    for _ in 0..feed.pick(&[0, 1, 1, 1, 2, 4]) {
        damage(&mut feed, &mut file);
    }
    let is_refitted = feed.below(8) != 1 && file.len() > SHA;
    if is_refitted {
        let end = file.len() - SHA;
        let sum = Sha256::digest(&file[..end]);
        file[end..].copy_from_slice(&sum);
    }
    let path = dir.path().join("snapshot.db");
    std::fs::write(&path, &file).unwrap();
    let mut nobody = |_, _| ();
    let contents = match Contents::read(&path, HashCheck::Wanted, &mut nobody) {
        Ok(contents) => contents,
        Err(error) if file == whole => return Err(format!("undamaged: {error}")),
        Err(error) => return refused(error, &[ErrorKind::Corrupt]),
    };
    if file != whole && !is_refitted {
        return Err("a file whose checksum does not fit was read".to_owned());
    }
    let text = |error: Error| error.to_string();
    let digest = contents.digest(&mut nobody).map_err(text)?;
    let place = dir.path().join("restored");
    let restored = contents.restore(&place, "fuzz", Bump::default(), &mut nobody);
    let restored = match restored {
        Ok(restored) => restored,
        Err(error) if file == whole => return Err(format!("undamaged: {error}")),
        // What no store can have come to is found when one is made of it; nothing is left then.
        Err(error) => {
            let left = place.read_dir().map(Iterator::count).unwrap_or_default();
            if left > 0 {
                return Err(format!(
                    "{left} files are left of what was refused: {error}"
                ));
            }
            return refused(error, &[ErrorKind::Corrupt, ErrorKind::Invalid]);
        }
    };
    let stands = (restored.revision, restored.compacted);
    let opened = runtime.block_on(opened(&place, stands));
    std::fs::remove_dir_all(&place).unwrap();
    let found = opened.map_err(|why| format!("restored, and {why}"))?;
    if found.len() as u64 != restored.made.keys || digest != restored.made.digest {
        let (keys, made) = (found.len(), restored.made);
        return Err(format!("{keys} keys and {digest:?} of what was {made:?}"));
    }
    if file == whole && found != expected {
        return Err("the store did not come back".to_owned());
    }
    Ok(Verdict::Accepted)
}

fn refused(error: Error, kinds: &[ErrorKind]) -> Result<Verdict, String> {
    if kinds.contains(&error.kind()) {
        return Ok(Verdict::Refused);
    }
    Err(format!("not {kinds:?} but {:?}: {error}", error.kind()))
}

/// Opens what was restored; its records, after which it takes a write.
async fn opened(dir: &Path, stands: (Revision, Revision)) -> Result<Vec<Bytes>, String> {
    let text = |error: Error| error.to_string();
    let options = EmbeddedOptions {
        segment_bytes: 8 << 10,
        spares: 0,
        ..EmbeddedOptions::new(dir)
    };
    let engine = Embedded::open(options).map_err(text)?;
    // A lease that was read as one of no time must not end before it was looked at.
    let now = std::time::Instant::now();
    let options = StoreOptions {
        now: Arc::new(move || now),
        ..StoreOptions::default()
    };
    let store = Store::open(engine, options).map_err(text)?;
    if (store.revision(), store.compacted()) != stands {
        let (revision, floor) = (store.revision(), store.compacted());
        return Err(format!(
            "it stands at {revision}, {floor} in place of {stands:?}"
        ));
    }
    let found = records(&store).map_err(text)?;
    let put = Put {
        key: Bytes::from_static(b"/after"),
        value: Some(Bytes::new()),
        lease: Some(LeaseId::NONE),
        want_previous: false,
    };
    let answer = store.put(put).await.map_err(text)?;
    store.close().await;
    if answer.revision != stands.0.next() {
        return Err(format!("its next write is {}", answer.revision));
    }
    Ok(found)
}

fn damage(feed: &mut Feed<'_>, file: &mut Vec<u8>) {
    let pages = file.len() / PAGE;
    let at = match feed.below(3) {
        // Heads of pages, where the tree says how it hangs together.
        0 if pages > 0 => feed.below(pages) * PAGE + feed.below(64),
        // And anywhere that is not empty.
        _ => {
            let from = feed.below(file.len().max(1));
            let filled = file.iter().skip(from).position(|byte| *byte != 0);
            from + filled.unwrap_or(0)
        }
    };
    match feed.below(8) {
        0 => file.truncate(at),
        1 if pages > 1 => {
            let (from, to) = (feed.below(pages) * PAGE, feed.below(pages) * PAGE);
            file.copy_within(from..from + PAGE, to);
        }
        2 => file.extend(std::iter::repeat_n(feed.byte(), PAGE)),
        3 => {
            let until = (at + 1 + feed.below(16)).min(file.len());
            let from = at.min(until);
            file[from..until].fill(feed.pick(&[0, 0xff]));
        }
        4 => {
            if let Some(byte) = file.get_mut(at) {
                *byte = feed.byte();
            }
        }
        _ => {
            if let Some(byte) = file.get_mut(at) {
                *byte ^= 1 << feed.below(8);
            }
        }
    }
}
