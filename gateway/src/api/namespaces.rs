//! How namespaces end: everything in them is deleted, then they are let go.
//!
//! A namespace that is being deleted takes no new objects (creation compares its revision), so its
//! content only shrinks. Everything that this needs to know is in the store: after a restart it
//! goes on where it was. Objects that others hold up by finalizers keep their namespace until the
//! last of them is gone; it is looked at again whenever the store has changed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_metastore::Watcher;
use sluice_metastore::events::Watch;
use sluice_metastore::read::{At, Range};

use super::keys;
use super::meta::Peek;
use super::resource::{Registry, ResourceKind};
use super::seek;
use super::storage::{
    DeleteOptions, NAMESPACE_FINALIZER, Object, Part, Storage, Target, WriteOptions,
};
use crate::status::Refusal;

/// Objects read at a time while a namespace is emptied.
const CHUNK: usize = 500;
/// Between two looks at a namespace that others hold up, or that could not be ended: others write
/// all the time, and each look costs one count a kind.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Ends namespaces until the store has stopped.
pub(super) async fn run(storage: Storage, registry: Arc<Registry>) {
    loop {
        let mut watcher = match follow(&storage) {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::error!(%error, "namespaces are not ended any more");
                return;
            }
        };
        let mut newest = storage.store().subscribe();
        loop {
            newest.borrow_and_update();
            let n_left = end_all(&storage, &registry).await;
            // With namespaces left, any change may be the one they wait for; else only theirs.
            let is_alive = if n_left > 0 {
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
                newest.changed().await.is_ok()
            } else {
                watcher.next().await.is_ok()
            };
            if !is_alive {
                break;
            }
        }
        if storage.store().failure().is_some() {
            return;
        }
    }
}

fn follow(storage: &Storage) -> Result<Watcher, sluice_metastore::Error> {
    storage.store().watch(Watch {
        range: keys::range(&keys::place("", "namespaces")),
        start: Some(storage.store().revision().next()),
        want_previous: false,
    })
}

/// Ends what can be ended; answers how many namespaces are left in their ending.
async fn end_all(storage: &Storage, registry: &Registry) -> usize {
    let Some(namespaces) = registry.resolve("", "v1", "namespaces") else {
        return 0;
    };
    let names = ending(storage, &namespaces);
    // Taken after the names: whatever is in a namespace that ends is of a kind that was served
    // before it began to.
    let table = registry.table();
    let mut n_left = 0;
    for name in names {
        match end(storage, table.kinds(), &namespaces, &name).await {
            Ok(true) => {}
            Ok(false) => n_left += 1,
            Err(refusal) => {
                tracing::warn!(
                    namespace = name,
                    error = refusal.message,
                    "ending a namespace"
                );
                n_left += 1;
            }
        }
    }
    n_left
}

/// The namespaces that are being deleted and that this server still holds.
fn ending(storage: &Storage, kind: &ResourceKind) -> Vec<String> {
    let range = Range::of(keys::range(&keys::prefix(kind)));
    let Ok(answer) = storage.store().range(&range) else {
        return Vec::new();
    };
    let names = answer.records.iter().filter_map(|record| {
        let peek = Peek::of(record.value())?;
        let is_ending = peek.deletion_timestamp.is_some() && is_held(record.value());
        is_ending.then(|| peek.name.into_owned())
    });
    names.collect()
}

fn is_held(stored: &[u8]) -> bool {
    let object: Option<Object> = serde_json::from_slice(stored).ok();
    object.is_some_and(|object| holds(&object))
}

fn holds(object: &Object) -> bool {
    let list = seek::value(object, "spec.finalizers").and_then(Value::as_array);
    list.is_some_and(|list| list.iter().any(|f| f == NAMESPACE_FINALIZER))
}

/// Deletes a namespace's content, and lets it go when there is none left.
async fn end(
    storage: &Storage,
    kinds: &[Arc<ResourceKind>],
    namespaces: &ResourceKind,
    name: &str,
) -> Result<bool, Refusal> {
    let mut is_empty = true;
    for kind in kinds.iter().filter(|kind| kind.is_namespaced()) {
        is_empty &= empty(storage, kind, name).await?;
    }
    if !is_empty {
        return Ok(false);
    }
    let target = Target {
        kind: namespaces,
        namespace: "",
        name,
    };
    let let_go = |old: &Object| {
        let mut new = old.clone();
        let list = seek::value(old, "spec.finalizers").and_then(Value::as_array);
        let mut list = list.cloned().unwrap_or_default();
        list.retain(|f| f != NAMESPACE_FINALIZER);
        seek::put(&mut new, "spec.finalizers", json!(list));
        Ok(new)
    };
    let options = WriteOptions::internal();
    storage
        .update(target, Part::Finalizers, options, let_go)
        .await?;
    Ok(true)
}

/// Deletes the objects of one kind in a namespace; answers whether none is left.
async fn empty(storage: &Storage, kind: &ResourceKind, namespace: &str) -> Result<bool, Refusal> {
    let prefix = keys::prefix(kind);
    let mut from = keys::range(&keys::prefix_in(kind, namespace));
    let mut is_empty = true;
    loop {
        let range = Range {
            at: At::Latest,
            limit: Some(CHUNK),
            ..Range::of(from.clone())
        };
        let answer = storage.store().read(&range).await;
        let answer = answer.map_err(|e| super::errors::from_store(&e))?;
        for record in &answer.records {
            let Some((namespace, name)) = keys::parse(kind, &prefix, record.key()) else {
                continue;
            };
            let target = Target {
                kind,
                namespace,
                name,
            };
            let deleted = storage.delete(target, &DeleteOptions::default()).await;
            is_empty &= match deleted {
                Ok(deleted) => deleted.is_gone(),
                Err(refusal) if refusal.code == http::StatusCode::NOT_FOUND => true,
                Err(refusal) => return Err(refusal),
            };
        }
        let last = answer.records.last().filter(|_| answer.more);
        let Some(last) = last else {
            return Ok(is_empty);
        };
        from = keys::after(from, last.key());
    }
}
