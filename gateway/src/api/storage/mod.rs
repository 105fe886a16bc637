//! What can be done to stored objects, by values and without HTTP.
//!
//! Each write is one compare-and-swap transaction against the revision it was worked out from; a
//! lost race is tried anew from the present state, a bounded number of times. Creation also
//! compares its namespace's revision, so that nothing comes into being in a namespace that has
//! begun to end. Reads are of the store's published state and wait for nothing.
//!
//! It does not know who asks: the caller has authorised, and hands in a check of what may be
//! written.

mod create;
mod delete;
mod expiry;
mod list;
mod prepare;
mod reach;
mod update;
pub mod watch;

pub use delete::{DeleteOptions, Deleted};
pub use list::{ListOptions, Listed, VersionMatch};
pub(crate) use prepare::NAMESPACE_FINALIZER;
pub use update::Part;

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value};
use sluice_metastore::read::{At, Range};
use sluice_metastore::store::Store;
use sluice_metastore::txn::{Compare, Op, Put, Relation, Target as Compared, Txn, TxnAnswer};
use sluice_metastore::{KeyRange, Record, Revision};

use self::expiry::Leases;
use super::errors;
use super::keys;
use super::object;
use super::resource::ResourceKind;
use crate::status::Refusal;

/// Attempts of one write before its client is told of a conflict: as many as a kube-apiserver
/// makes of a patch.
const ATTEMPTS_MAX: usize = 5;

/// An object as it came or as it will go: the whole JSON.
pub type Object = Map<String, Value>;

/// Where time and random numbers come from.
#[derive(Clone)]
pub struct Sources {
    /// The wall clock.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// 128 random bits, for identities and suffixes.
    pub random: Arc<dyn Fn() -> u128 + Send + Sync>,
}

impl Default for Sources {
    fn default() -> Self {
        let now = || {
            let seconds = i64::try_from(crate::clock::wall().as_secs()).unwrap_or(0);
            Timestamp::from_second(seconds).unwrap_or_default()
        };
        Sources {
            now: Arc::new(now),
            random: Arc::new(|| uuid::Uuid::new_v4().as_u128()),
        }
    }
}

impl Sources {
    /// The present in Kubernetes' form, to the second.
    fn timestamp(&self) -> String {
        let now = (self.now)();
        let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
        whole.to_string()
    }

    fn uid(&self) -> String {
        uuid::Builder::from_u128((self.random)())
            .with_variant(uuid::Variant::RFC4122)
            .with_version(uuid::Version::Random)
            .into_uuid()
            .to_string()
    }

    fn suffix_bits(&self) -> u64 {
        u64::try_from((self.random)() & u128::from(u64::MAX)).unwrap_or(0)
    }
}

/// The object of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Its kind, in the version asked for.
    pub kind: &'a ResourceKind,
    /// Empty for cluster-wide kinds.
    pub namespace: &'a str,
    /// Empty when it is yet to be generated.
    pub name: &'a str,
}

/// How a write is done.
#[derive(Clone, Copy)]
pub struct WriteOptions<'a> {
    /// Everything but the write itself.
    pub dry_run: bool,
    /// Asked of each object before it is stored.
    pub check: &'a (dyn Fn(&Object) -> Result<(), Refusal> + Send + Sync),
}

impl WriteOptions<'_> {
    /// Plain, for writes of the server itself.
    #[must_use]
    pub fn internal() -> WriteOptions<'static> {
        WriteOptions {
            dry_run: false,
            check: &|_| Ok(()),
        }
    }
}

/// A stored value and the revision that made it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// As [`object::encode`] writes it.
    pub value: Bytes,
    /// Its mod revision; zero for what a dry run would have created.
    pub revision: Revision,
}

impl From<&Record> for Stored {
    fn from(record: &Record) -> Self {
        Stored {
            value: record.value_bytes(),
            revision: record.mod_revision(),
        }
    }
}

/// The objects in one store; cheap to clone.
#[derive(Clone)]
pub struct Storage {
    store: Store,
    sources: Sources,
    leases: Leases,
}

impl Storage {
    /// The objects of a store.
    #[must_use]
    pub fn new(store: Store, sources: Sources) -> Self {
        Storage {
            store,
            sources,
            leases: Leases::default(),
        }
    }

    /// The store itself.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Where it takes time and random numbers from.
    #[must_use]
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The newest version of an object.
    ///
    /// # Errors
    /// 404 when it is not there, or what the store refuses.
    pub fn get(&self, target: Target<'_>) -> Result<Stored, Refusal> {
        let record = self.record(&keys::object(target.kind, target.namespace, target.name))?;
        let record = record.ok_or_else(|| errors::not_found(target.kind, target.name))?;
        Ok(Stored::from(&record))
    }

    /// The newest record at a key.
    fn record(&self, key: &Bytes) -> Result<Option<Record>, Refusal> {
        let range = Range::of(KeyRange::Key(key.clone()));
        let answer = self
            .store
            .range(&range)
            .map_err(|e| errors::from_store(&e))?;
        Ok(answer.records.into_iter().next())
    }

    fn range(&self, range: KeyRange, at: At, limit: Option<usize>) -> Range {
        Range {
            at,
            limit,
            ..Range::of(range)
        }
    }

    /// Puts a value where the key is still at `expected` (zero: absent).
    async fn swap(
        &self,
        kind: &ResourceKind,
        key: &Bytes,
        expected: Revision,
        value: Bytes,
    ) -> Result<TxnAnswer, Refusal> {
        let put = self.put(kind, key, value).await?;
        self.commit(vec![at_revision(key, expected)], put).await
    }

    /// The write of an object's value, on a lease if the kind's objects go by themselves.
    async fn put(&self, kind: &ResourceKind, key: &Bytes, value: Bytes) -> Result<Op, Refusal> {
        let lease = self.leases.of(kind, &self.store).await?;
        Ok(Op::Put(Put {
            key: key.clone(),
            value: Some(value),
            lease: Some(lease),
            want_previous: false,
        }))
    }

    async fn commit(&self, compares: Vec<Compare>, op: Op) -> Result<TxnAnswer, Refusal> {
        let txn = Txn {
            compares,
            success: vec![op],
            failure: Vec::new(),
        };
        self.store
            .txn(txn)
            .await
            .map_err(|e| errors::from_store(&e))
    }
}

/// Holds while a key's newest change is `revision`; zero is absence.
fn at_revision(key: &Bytes, revision: Revision) -> Compare {
    Compare {
        range: KeyRange::Key(key.clone()),
        relation: Relation::Equal,
        target: Compared::Mod(revision),
    }
}

/// Reads a record whole.
fn decoded(target: Target<'_>, record: &Record) -> Result<Object, Refusal> {
    object::decode(target.kind, record.value(), record.mod_revision()).ok_or_else(|| {
        let key = String::from_utf8_lossy(record.key()).into_owned();
        errors::internal(format!(
            "stored value is not an object of this API: key={key}"
        ))
    })
}
