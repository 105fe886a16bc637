//! What an etcd is: the whole content at each revision, in a map.
//!
//! Written from etcd's documentation and answers, in the words of the wire, without a look at the
//! store: nothing here is shared with it but the generated messages.

use std::collections::BTreeMap;

use bytes::Bytes;
use sluice_metastore::etcd::client::etcdserverpb as pb;
use sluice_metastore::etcd::client::mvccpb::KeyValue;

use pb::range_request::{SortOrder, SortTarget};

/// Everything at one revision.
pub(crate) type Content = BTreeMap<Bytes, KeyValue>;

/// Why a request is refused: any of these texts will do, since several things may be wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) Vec<&'static str>);

pub(crate) const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
pub(crate) const FUTURE: &str = "etcdserver: mvcc: required revision is a future revision";
pub(crate) const EMPTY_KEY: &str = "etcdserver: key is not provided";
pub(crate) const NO_KEY: &str = "etcdserver: key not found";
pub(crate) const VALUE_PROVIDED: &str = "etcdserver: value is provided";
pub(crate) const LEASE_PROVIDED: &str = "etcdserver: lease is provided";
pub(crate) const TOO_MANY_OPS: &str = "etcdserver: too many operations in txn request";
pub(crate) const DUPLICATE: &str = "etcdserver: duplicate key given in txn request";
/// How it shows when somebody looks further at what the model refuses as [`DUPLICATE`].
pub(crate) const DUPLICATE_TAKEN: &str = "[\"etcdserver: duplicate key given in txn request\"]";
pub(crate) const INVALID_SORT: &str = "etcdserver: invalid sort option";
pub(crate) const NO_LEASE: &str = "etcdserver: requested lease not found";
pub(crate) const LEASE_EXISTS: &str = "etcdserver: lease already exists";
pub(crate) const TTL_TOO_LARGE: &str = "etcdserver: too large lease TTL";

/// The longest time to live there is.
const TTL_MOST: i64 = 9_000_000_000;
/// The shortest, of an etcd with its default election timeout.
const TTL_LEAST: i64 = 2;

/// An etcd.
#[derive(Debug)]
pub(crate) struct Model {
    /// The revision of the first content.
    base: i64,
    contents: Vec<Content>,
    /// The keys that each of them changed, in the order made.
    changes: Vec<Vec<Bytes>>,
    pub(crate) floor: i64,
    /// Time to live by id.
    pub(crate) leases: BTreeMap<i64, i64>,
}

impl Model {
    /// One that was never written to.
    pub(crate) fn fresh() -> Model {
        Model::at_base(1, 0)
    }

    /// An empty one that stands at a revision.
    pub(crate) fn at_base(base: i64, floor: i64) -> Model {
        Model {
            base,
            contents: vec![Content::new()],
            changes: vec![Vec::new()],
            floor,
            leases: BTreeMap::new(),
        }
    }

    pub(crate) fn base(&self) -> i64 {
        self.base
    }

    pub(crate) fn revision(&self) -> i64 {
        self.base + i64::try_from(self.contents.len()).unwrap() - 1
    }

    pub(crate) fn now(&self) -> &Content {
        self.contents.last().unwrap()
    }

    fn place(&self, revision: i64) -> Option<usize> {
        usize::try_from(revision - self.base).ok()
    }

    /// The content at a revision that can be read.
    pub(crate) fn at(&self, revision: i64) -> &Content {
        &self.contents[self.place(revision).unwrap()]
    }

    /// The keys that a revision changed.
    pub(crate) fn changed(&self, revision: i64) -> &[Bytes] {
        let place = self.place(revision);
        place
            .and_then(|place| self.changes.get(place))
            .map_or(&[], Vec::as_slice)
    }

    pub(crate) fn push(&mut self, content: Content, changes: Vec<Bytes>) {
        if !changes.is_empty() {
            self.contents.push(content);
            self.changes.push(changes);
        }
    }

    /// What is wrong with reading at a revision.
    pub(crate) fn unreadable(&self, revision: i64) -> Option<&'static str> {
        match revision {
            at if at > self.revision() => Some(FUTURE),
            at if at > 0 && at < self.floor => Some(COMPACTED),
            _ => None,
        }
    }

    pub(crate) fn range(&self, ask: &pb::RangeRequest) -> Result<pb::RangeResponse, Refusal> {
        let wrong = range_faults(ask);
        if !wrong.is_empty() {
            return Err(Refusal(wrong));
        }
        if let Some(why) = self.unreadable(ask.revision) {
            return Err(Refusal(vec![why]));
        }
        Ok(self.read(self.now(), ask))
    }

    /// Reads what was checked; `now` is the content that a read without a revision sees.
    pub(crate) fn read(&self, now: &Content, ask: &pb::RangeRequest) -> pb::RangeResponse {
        let content = if ask.revision > 0 {
            self.at(ask.revision)
        } else {
            now
        };
        let mut found: Vec<KeyValue> = within(content, &ask.key, &ask.range_end).cloned().collect();
        let count = i64::try_from(found.len()).unwrap();
        if ask.count_only {
            return pb::RangeResponse {
                count,
                ..Default::default()
            };
        }
        let bounded = |least: i64, most: i64, number: i64| {
            (most == 0 || number <= most) && (least == 0 || number >= least)
        };
        found.retain(|kv| {
            bounded(ask.min_mod_revision, ask.max_mod_revision, kv.mod_revision)
                && bounded(
                    ask.min_create_revision,
                    ask.max_create_revision,
                    kv.create_revision,
                )
        });
        sort(&mut found, ask);
        let limit = usize::try_from(ask.limit).ok().filter(|limit| *limit > 0);
        let more = limit.is_some_and(|limit| found.len() > limit);
        found.truncate(limit.unwrap_or(usize::MAX));
        if ask.keys_only {
            for kv in &mut found {
                kv.value = Bytes::new();
                // etcd 3.7 answers these from its index, which knows no leases; earlier ones say them.
                kv.lease = if self.base > 1 { 0 } else { kv.lease };
            }
        }
        pb::RangeResponse {
            kvs: found,
            more,
            count,
            ..Default::default()
        }
    }

    pub(crate) fn compact(&mut self, at: i64) -> Result<(), Refusal> {
        if at > self.revision() {
            return Err(Refusal(vec![FUTURE]));
        }
        if at <= self.floor {
            return Err(Refusal(vec![COMPACTED]));
        }
        self.floor = at;
        Ok(())
    }

    /// Answers the time to live; `id` is the one that was chosen, where none was named.
    pub(crate) fn grant(&mut self, ask: &pb::LeaseGrantRequest) -> Result<i64, Refusal> {
        let mut wrong = Vec::new();
        if ask.ttl > TTL_MOST {
            wrong.push(TTL_TOO_LARGE);
        }
        if self.leases.contains_key(&ask.id) {
            wrong.push(LEASE_EXISTS);
        }
        if !wrong.is_empty() {
            return Err(Refusal(wrong));
        }
        Ok(ask.ttl.max(TTL_LEAST))
    }

    pub(crate) fn revoke(&mut self, id: i64) -> Result<(), Refusal> {
        if self.leases.remove(&id).is_none() {
            return Err(Refusal(vec![NO_LEASE]));
        }
        let mut content = self.now().clone();
        let gone: Vec<Bytes> = content
            .extract_if(.., |_, kv| kv.lease == id)
            .map(|(key, _)| key)
            .collect();
        self.push(content, gone);
        Ok(())
    }
}

/// What a read is refused for, whatever the content.
pub(crate) fn range_faults(ask: &pb::RangeRequest) -> Vec<&'static str> {
    let mut wrong = Vec::new();
    if ask.key.is_empty() {
        wrong.push(EMPTY_KEY);
    }
    if SortOrder::try_from(ask.sort_order).is_err()
        || SortTarget::try_from(ask.sort_target).is_err()
    {
        wrong.push(INVALID_SORT);
    }
    wrong
}

/// Whether a key is among those that a key and a range end name.
pub(crate) fn is_within(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    match end {
        [] => key == start,
        [0] => key >= start,
        _ => key >= start && key < end,
    }
}

pub(crate) fn within<'a>(
    content: &'a Content,
    start: &'a [u8],
    end: &'a [u8],
) -> impl Iterator<Item = &'a KeyValue> {
    content
        .values()
        .filter(move |kv| is_within(&kv.key, start, end))
}

/// Equals stay in the order of their keys.
fn sort(found: &mut [KeyValue], ask: &pb::RangeRequest) {
    let is_descending = ask.sort_order() == SortOrder::Descend;
    found.sort_by(|one, two| {
        let order = match ask.sort_target() {
            SortTarget::Key => one.key.cmp(&two.key),
            SortTarget::Version => one.version.cmp(&two.version),
            SortTarget::Create => one.create_revision.cmp(&two.create_revision),
            SortTarget::Mod => one.mod_revision.cmp(&two.mod_revision),
            SortTarget::Value => one.value.cmp(&two.value),
        };
        if is_descending {
            order.reverse()
        } else {
            order
        }
    });
}
