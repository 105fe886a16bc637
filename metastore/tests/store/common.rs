//! Short ways to say what the store is asked in the tests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_metastore::engine::memory::Memory;
use sluice_metastore::events::{Change, Event, EventBatch, Watch};
use sluice_metastore::read::{At, Projection, Range, RangeAnswer};
use sluice_metastore::txn::{Compare, Delete, Op, OpAnswer, Put, Relation, Target, Txn, TxnAnswer};
use sluice_metastore::{Error, KeyRange, LeaseId, Record, Revision, Store, StoreOptions, Watcher};

pub(crate) fn rev(number: u64) -> Revision {
    Revision::new(number)
}

pub(crate) fn bytes(text: impl AsRef<str>) -> Bytes {
    Bytes::copy_from_slice(text.as_ref().as_bytes())
}

pub(crate) fn key(name: impl AsRef<str>) -> KeyRange {
    KeyRange::Key(bytes(name))
}

pub(crate) fn prefix(name: &str) -> KeyRange {
    KeyRange::prefix(name.as_bytes())
}

/// A store over a new memory engine.
pub(crate) fn fresh() -> (Arc<Memory>, Store) {
    fresh_with(StoreOptions::default())
}

pub(crate) fn fresh_with(options: StoreOptions) -> (Arc<Memory>, Store) {
    let engine = Memory::new();
    let store = Store::open(engine.clone(), options).unwrap();
    (engine, store)
}

/// A clock that only a test moves.
#[derive(Clone)]
pub(crate) struct Clock(Arc<Mutex<Instant>>);

impl Clock {
    pub(crate) fn new() -> Self {
        Clock(Arc::new(Mutex::new(Instant::now())))
    }

    pub(crate) fn advance(&self, by: Duration) {
        *self.0.lock() += by;
    }

    pub(crate) fn options(&self) -> StoreOptions {
        let now = self.0.clone();
        StoreOptions {
            now: Arc::new(move || *now.lock()),
            ..StoreOptions::default()
        }
    }
}

pub(crate) fn put_op(name: impl AsRef<str>, value: impl AsRef<str>, lease: LeaseId) -> Op {
    Op::Put(Put {
        key: bytes(name),
        value: Some(bytes(value)),
        lease: Some(lease),
        want_previous: false,
    })
}

pub(crate) fn delete_op(range: KeyRange) -> Op {
    Op::Delete(Delete {
        range,
        want_previous: false,
    })
}

pub(crate) fn get_op(name: &str) -> Op {
    Op::Range(Range::of(key(name)))
}

pub(crate) fn txn(compares: Vec<Compare>, success: Vec<Op>, failure: Vec<Op>) -> Txn {
    Txn {
        compares,
        success,
        failure,
    }
}

pub(crate) fn is(name: &str, target: Target) -> Compare {
    Compare {
        range: key(name),
        relation: Relation::Equal,
        target,
    }
}

/// The create shape of an apiserver.
pub(crate) fn create_txn(name: &str, value: &str) -> Txn {
    let absent = vec![is(name, Target::Mod(Revision::ZERO))];
    txn(absent, vec![put_op(name, value, LeaseId::NONE)], vec![])
}

/// The update shape of an apiserver.
pub(crate) fn update_txn(name: &str, value: &str, at: u64) -> Txn {
    let compare = vec![is(name, Target::Mod(rev(at)))];
    let put = vec![put_op(name, value, LeaseId::NONE)];
    txn(compare, put, vec![get_op(name)])
}

/// The delete shape of an apiserver.
pub(crate) fn delete_txn(name: &str, at: u64) -> Txn {
    let compare = vec![is(name, Target::Mod(rev(at)))];
    txn(compare, vec![delete_op(key(name))], vec![get_op(name)])
}

pub(crate) async fn create(store: &Store, name: &str, value: &str) -> TxnAnswer {
    store.txn(create_txn(name, value)).await.unwrap()
}

pub(crate) async fn update(store: &Store, name: &str, value: &str, at: u64) -> TxnAnswer {
    store.txn(update_txn(name, value, at)).await.unwrap()
}

pub(crate) async fn delete(store: &Store, name: &str, at: u64) -> TxnAnswer {
    store.txn(delete_txn(name, at)).await.unwrap()
}

/// A put without any condition; answers its revision.
pub(crate) async fn put(store: &Store, name: &str, value: &str) -> u64 {
    let op = put_op(name, value, LeaseId::NONE);
    let answer = store.txn(txn(vec![], vec![op], vec![])).await.unwrap();
    answer.revision.get()
}

pub(crate) fn read(store: &Store, range: KeyRange) -> RangeAnswer {
    store.range(&Range::of(range)).unwrap()
}

pub(crate) fn read_at(store: &Store, range: KeyRange, at: u64) -> Result<RangeAnswer, Error> {
    let mut query = Range::of(range);
    query.at = At::Exactly(rev(at));
    store.range(&query)
}

pub(crate) fn page(store: &Store, range: KeyRange, at: Option<u64>, limit: usize) -> RangeAnswer {
    let mut query = Range::of(range);
    query.at = at.map_or(At::Latest, |at| At::Exactly(rev(at)));
    query.limit = Some(limit);
    store.range(&query).unwrap()
}

pub(crate) fn count(store: &Store, range: KeyRange, at: Option<u64>) -> u64 {
    let mut query = Range::of(range);
    query.at = at.map_or(At::Latest, |at| At::Exactly(rev(at)));
    query.projection = Projection::CountOnly;
    store.range(&query).unwrap().count
}

/// What the else branch's one read found.
pub(crate) fn found(answer: &TxnAnswer) -> Option<Record> {
    match answer.answers.as_slice() {
        [OpAnswer::Range(range)] => range.records.first().cloned(),
        _ => None,
    }
}

pub(crate) fn watch(store: &Store, range: KeyRange, start: u64) -> Watcher {
    try_watch(store, range, start).unwrap()
}

pub(crate) fn try_watch(store: &Store, range: KeyRange, start: u64) -> Result<Watcher, Error> {
    store.watch(Watch {
        range,
        start: Some(rev(start)),
        want_previous: true,
    })
}

/// Pulls until `count` events came; anything beyond them in the last batch is there as well.
pub(crate) async fn take(watcher: &mut Watcher, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let EventBatch { events: more, .. } = next(watcher).await.unwrap();
        events.extend(more);
    }
    events
}

/// The next batch; a watcher that should have something and has not within ten seconds is a fault.
pub(crate) async fn next(watcher: &mut Watcher) -> Result<EventBatch, Error> {
    let patience = Duration::from_secs(10);
    let answer = tokio::time::timeout(patience, watcher.next()).await;
    answer.expect("an event within ten seconds")
}

/// Waits until the store's numbers satisfy a condition.
pub(crate) async fn until(store: &Store, what: &str, holds: impl Fn(&Store) -> bool) {
    let waiting = async {
        while !holds(store) {
            tokio::task::yield_now().await;
        }
    };
    let patience = Duration::from_secs(10);
    tokio::time::timeout(patience, waiting).await.expect(what);
}

/// An event in one line: `+key@rev create/mod/version value (previous)`.
pub(crate) fn line(event: &Event) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let previous = event.previous.as_ref().map(|record| text(record.value()));
    let previous = previous.unwrap_or_else(|| "-".to_owned());
    match &event.change {
        Change::Put(record) => format!(
            "put {} {} create={} mod={} version={} previous={previous}",
            text(record.key()),
            text(record.value()),
            record.create_revision(),
            record.mod_revision(),
            record.version(),
        ),
        Change::Delete { key, revision } => {
            format!("delete {} mod={revision} previous={previous}", text(key))
        }
    }
}
