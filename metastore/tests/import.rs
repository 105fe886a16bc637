//! Data directories made by an import: what a store opened on one shows, and what becomes of an
//! import that is refused, fails or is killed.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::io::ErrorKind as Io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_metastore::engine::embedded::faulty::{FaultyDisk, On, Survival};
use sluice_metastore::engine::embedded::{Embedded, EmbeddedOptions};
use sluice_metastore::events::{Change, Watch};
use sluice_metastore::import::Standing;
use sluice_metastore::read::Range;
use sluice_metastore::txn::Put;
use sluice_metastore::{Error, Import, KeyRange, LeaseId, Record, Revision, Store, StoreOptions};

fn rev(number: u64) -> Revision {
    Revision::new(number)
}

fn standing(revision: u64, compacted: u64) -> Standing {
    Standing {
        revision: rev(revision),
        compacted: rev(compacted),
        next_lease: 1,
    }
}

fn record(key: &str, value: &str, create: u64, modified: u64, version: u64, lease: i64) -> Record {
    let (key, value) = (key.as_bytes(), value.as_bytes());
    let lease = LeaseId(lease);
    Record::new(key, value, rev(create), rev(modified), version, lease)
}

fn begin(disk: &FaultyDisk, standing: Standing) -> Result<Import, Error> {
    Import::begin_over(Arc::new(disk.clone()), "test", standing)
}

/// Five keys, with a lease.
fn fill(import: &mut Import) -> Result<(), Error> {
    for (number, key) in (0..).zip(["/a", "/b", "/c", "/d", "/e"]) {
        import.put(&record(key, &"v".repeat(1000), 10, 20 + number, 3, 7))?;
    }
    import.lease(LeaseId(7), Duration::from_secs(60))
}

fn whole(disk: &FaultyDisk) -> Result<(), Error> {
    let mut import = begin(disk, standing(40, 40))?;
    fill(&mut import)?;
    import.finish().map(drop)
}

fn open(disk: &FaultyDisk) -> Result<Store, Error> {
    let options = EmbeddedOptions {
        spares: 0,
        ..EmbeddedOptions::new("")
    };
    let engine = Embedded::open_over(Arc::new(disk.clone()), options)?;
    Store::open(engine, StoreOptions::default())
}

fn refusal(outcome: Result<(), Error>) -> String {
    match outcome {
        Err(Error::Import { reason }) => reason,
        other => panic!("{other:?} is no refusal"),
    }
}

async fn put(store: &Store, key: &str) -> u64 {
    let put = Put {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(Bytes::from_static(b"new")),
        lease: Some(LeaseId::NONE),
        want_previous: false,
    };
    store.put(put).await.unwrap().revision.get()
}

fn watch(store: &Store, start: u64) -> Result<sluice_metastore::Watcher, Error> {
    store.watch(Watch {
        range: KeyRange::All,
        start: Some(rev(start)),
        want_previous: false,
    })
}

#[tokio::test]
async fn a_store_goes_on_from_what_was_imported() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("made/when/missing");
    let mut import = Import::begin(&place, "test", standing(40, 40)).unwrap();
    fill(&mut import).unwrap();
    let done = import.finish().unwrap();
    assert_eq!((done.keys, done.versions, done.leases), (5, 5, 1));

    let engine = Embedded::open(EmbeddedOptions::new(&place)).unwrap();
    let store = Store::open(engine, StoreOptions::default()).unwrap();
    assert_eq!((store.revision(), store.compacted()), (rev(40), rev(40)));
    let found = store.range(&Range::of(KeyRange::All)).unwrap();
    assert_eq!(found.count, 5);
    let third = found.records.get(2).unwrap();
    assert_eq!(third, &record("/c", &"v".repeat(1000), 10, 22, 3, 7));
    let mut digest = sluice_metastore::digest::Digest::default();
    found.records.iter().for_each(|record| digest.add(record));
    assert_eq!(done.digest, digest);

    assert_eq!(put(&store, "/c").await, 41);
    let lease = store.lease_remaining(LeaseId(7)).unwrap();
    assert_eq!(lease.granted, Duration::from_secs(60));
    assert_eq!(lease.keys, ["/a", "/b", "/d", "/e"], "/c was put without");
    let behind = watch(&store, 39).unwrap_err();
    assert!(matches!(behind, Error::Compacted { .. }), "{behind}");
    let mut from = watch(&store, 40).unwrap();
    let events = from.next().await.unwrap().events;
    assert!(
        matches!(events.as_slice(), [one] if matches!(&one.change, Change::Put(r) if r.mod_revision() == rev(41)))
    );
    assert_eq!(store.lease_revoke(LeaseId(7)).await.unwrap(), rev(42));
    assert_eq!(store.range(&Range::of(KeyRange::All)).unwrap().count, 1);
    store.close().await;
}

#[tokio::test]
async fn history_comes_along_with_the_order_of_its_changes() {
    let disk = FaultyDisk::new();
    let mut import = begin(&disk, standing(9, 4)).unwrap();
    import.put(&record("/a", "1", 2, 3, 2, 0)).unwrap();
    import.put(&record("/a", "2", 2, 6, 3, 0)).unwrap();
    import.delete(b"/a", rev(8)).unwrap();
    import.delete(b"/b", rev(5)).unwrap();
    import.put(&record("/b", "3", 6, 6, 1, 0)).unwrap();
    import.put(&record("/c", "4", 6, 6, 1, 0)).unwrap();
    import.order(rev(6), &[b"/c", b"/a", b"/b"]).unwrap();
    let done = import.finish().unwrap();
    assert_eq!((done.keys, done.versions), (2, 6));
    let store = open(&disk).unwrap();
    let shown = |at: u64| {
        let mut query = Range::of(KeyRange::All);
        query.at = sluice_metastore::read::At::Exactly(rev(at));
        let found = store.range(&query).unwrap().records;
        let text = found
            .iter()
            .map(|r| format!("{}@{}", r.key().escape_ascii(), r.mod_revision()));
        text.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(4), "/a@3");
    assert_eq!(shown(6), "/a@6 /b@6 /c@6");
    assert_eq!(shown(9), "/b@6 /c@6");
    let mut watcher = watch(&store, 5).unwrap();
    let mut events = Vec::new();
    while events.len() < 5 {
        let batch = watcher.next().await.unwrap();
        events.extend(batch.events.into_iter().map(|event| match event.change {
            Change::Put(r) => format!("+{}@{}", r.key().escape_ascii(), r.mod_revision()),
            Change::Delete { key, revision } => format!("-{}@{revision}", key.escape_ascii()),
        }));
    }
    assert_eq!(events, ["-/b@5", "+/c@6", "+/a@6", "+/b@6", "-/a@8"]);
}

#[test]
fn a_directory_with_anything_in_it_is_refused_and_left_alone() {
    let disk = FaultyDisk::new();
    disk.put("notes.txt", b"mine".to_vec());
    let text = refusal(whole(&disk));
    assert!(text.contains("holds notes.txt"), "{text}");
    assert_eq!(disk.names(), ["notes.txt"]);

    let disk = FaultyDisk::new();
    whole(&disk).unwrap();
    let before: Vec<_> = disk.names();
    let text = refusal(whole(&disk));
    assert!(text.contains("not empty"), "{text}");
    assert_eq!(disk.names(), before);
    open(&disk).unwrap();
    let mut with_log = disk.names();
    with_log.retain(|name| !before.contains(name));
    assert!(with_log.is_empty(), "opening made {with_log:?}");
}

#[test]
fn content_that_no_store_could_have_is_refused_with_the_key() {
    type Step = fn(&mut Import) -> Result<(), Error>;
    let cases: &[(&str, Step)] = &[
        ("key /b comes after /c, not in order", |import| {
            import.put(&record("/c", "", 10, 20, 3, 0))?;
            import.put(&record("/b", "", 10, 20, 3, 0))
        }),
        ("key /b has version 20 after 20", |import| {
            import.put(&record("/b", "", 10, 20, 3, 0))?;
            import.put(&record("/b", "", 10, 20, 4, 0))
        }),
        (
            "key /b was changed at revision 41, after the 40",
            |import| import.put(&record("/b", "", 10, 41, 3, 0)),
        ),
        ("key /b was changed at revision 1, and the first", |i| {
            i.put(&record("/b", "", 1, 1, 1, 0))
        }),
        ("key  has no name", |i| i.put(&record("", "", 10, 20, 3, 0))),
        ("key /b has create revision 21", |import| {
            import.put(&record("/b", "", 21, 20, 3, 0))
        }),
        ("and version 1, which do not", |import| {
            import.put(&record("/b", "", 10, 20, 1, 0))
        }),
        ("and version 5, which do not", |import| {
            import.put(&record("/b", "", 10, 20, 3, 0))?;
            import.put(&record("/b", "", 10, 21, 5, 0))
        }),
        ("and version 4, which do not", |import| {
            import.put(&record("/b", "", 10, 20, 3, 0))?;
            import.delete(b"/b", rev(21))?;
            import.put(&record("/b", "", 10, 22, 4, 0))
        }),
        ("lease 7 comes twice", |import| {
            import.lease(LeaseId(7), Duration::from_secs(60))?;
            import.lease(LeaseId(7), Duration::from_secs(60))
        }),
        ("the order of revision 9 comes after that of 9", |import| {
            import.order(rev(9), &[])?;
            import.order(rev(9), &[])
        }),
    ];
    for (text, step) in cases {
        let disk = FaultyDisk::new();
        let mut import = begin(&disk, standing(40, 40)).unwrap();
        let reason = refusal(step(&mut import));
        assert!(reason.contains(text), "{reason} does not say: {text}");
        drop(import);
        assert_eq!(disk.names(), Vec::<String>::new(), "{text}");
    }
    let disk = FaultyDisk::new();
    let mut import = begin(&disk, standing(40, 40)).unwrap();
    import.put(&record("/b", "", 10, 20, 3, 0x1f)).unwrap();
    let reason = refusal(import.finish().map(drop));
    assert!(reason.contains("key /b hangs on lease 1f"), "{reason}");
    for (revision, compacted) in [(0, 0), (1, 2), (Revision::MAX.get(), 1)] {
        refusal(begin(&FaultyDisk::new(), standing(revision, compacted)).map(drop));
    }
}

#[test]
fn an_import_killed_at_any_step_is_whole_or_refused_until_done_again() {
    let disk = FaultyDisk::new();
    let images: Arc<Mutex<Vec<FaultyDisk>>> = Arc::default();
    let taken = Arc::clone(&images);
    let seeds = Mutex::new(0);
    disk.observe(Some(Arc::new(move |disk: &FaultyDisk| {
        *seeds.lock() += 1;
        let seed = *seeds.lock();
        for survival in [
            Survival::Nothing,
            Survival::Everything,
            Survival::Bytes(3000),
            Survival::Sectors(seed),
        ] {
            taken.lock().push(disk.power_cut(survival));
        }
    })));
    whole(&disk).unwrap();
    disk.observe(None);
    let images = std::mem::take(&mut *images.lock());
    let (mut refused, mut done, mut untouched) = (0, 0, 0);
    for image in images {
        let copy = image.power_cut(Survival::Everything);
        match open(&image) {
            Err(Error::Import { reason }) => {
                assert!(reason.contains("do the same again"), "{reason}");
                whole(&image).unwrap();
                assert_eq!(open(&image).unwrap().revision(), rev(40));
                refused += 1;
            }
            Ok(store) if store.revision() == rev(40) => done += 1,
            // Before the marker: nothing of it is there.
            Ok(store) => {
                assert_eq!(store.revision(), Revision::FIRST);
                whole(&copy).unwrap();
                assert_eq!(open(&copy).unwrap().revision(), rev(40));
                untouched += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 10 && done > 3, "{refused} refused, {done} done");
    assert!(untouched < 12, "{untouched} looked like an empty store");
}

#[test]
fn an_import_without_room_says_so_and_leaves_nothing() {
    let disk = FaultyDisk::new();
    disk.fail(On::Write, "checkpoint", 0, Io::StorageFull);
    assert!(matches!(whole(&disk), Err(Error::NoSpace)));
    assert_eq!(disk.names(), Vec::<String>::new());
    whole(&disk).unwrap();
    assert_eq!(open(&disk).unwrap().revision(), rev(40));
}

#[test]
fn two_imports_do_not_meet_in_one_directory() {
    let disk = FaultyDisk::new();
    let mut first = begin(&disk, standing(40, 40)).unwrap();
    let second = begin(&disk, standing(50, 50)).unwrap_err();
    assert!(matches!(second, Error::Stopped { .. }), "{second}");
    let opened = open(&disk).unwrap_err();
    assert!(matches!(opened, Error::Import { .. }), "{opened}");
    fill(&mut first).unwrap();
    first.finish().unwrap();
    assert_eq!(open(&disk).unwrap().revision(), rev(40));
}
