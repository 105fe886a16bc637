//! The end of a definition: its instances are deleted first, then its finalizer goes, and with the
//! last finalizer the definition itself.
//!
//! Instances with finalizers of their own are marked and waited for, as long as it takes. One task
//! a definition that ends; it is begun anew when the server starts again. A round looks at the
//! instances page by page, so memory is bounded by a page.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sluice_metastore::read::Range;

use super::definition::{text, texts};
use super::{CLEANUP_FINALIZER, Definition, GROUP, PLURAL};
use crate::api::resource::{Registry, ResourceKind};
use crate::api::storage::{DeleteOptions, Object, Part, Storage, Target, WriteOptions};
use crate::api::{errors, keys, meta};
use crate::status::Refusal;

/// Instances looked at in one read.
const PAGE: usize = 500;
/// Between rounds while instances are held up by finalizers, and after a refusal of the store:
/// nobody waits for this but the definition's deletion.
const PAUSE: Duration = Duration::from_millis(500);

/// Starts to clean up after a definition that is marked for deletion.
pub(super) fn spawn(storage: Storage, definition: Arc<Definition>) {
    tokio::spawn(async move {
        loop {
            match round(&storage, &definition).await {
                Ok(Left::Nothing) => match release(&storage, &definition).await {
                    Ok(()) => return,
                    Err(refusal) if refusal.code == http::StatusCode::NOT_FOUND => return,
                    Err(refusal) => report(&definition, &refusal),
                },
                Ok(Left::Held) => {}
                Err(refusal) if refusal.code == http::StatusCode::SERVICE_UNAVAILABLE => return,
                Err(refusal) => report(&definition, &refusal),
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
}

fn report(definition: &Definition, refusal: &Refusal) {
    let Definition { group, plural, .. } = definition;
    let message = &refusal.message;
    tracing::warn!(
        group,
        plural,
        message,
        "definition cannot be cleaned up after; trying on"
    );
}

/// Whether instances remain after a round.
enum Left {
    Nothing,
    Held,
}

async fn round(storage: &Storage, definition: &Definition) -> Result<Left, Refusal> {
    let Some(kind) = definition.kinds.first() else {
        return Ok(Left::Nothing);
    };
    let prefix = keys::prefix(kind);
    let mut range = Range::of(keys::range(&prefix));
    range.limit = Some(PAGE);
    let mut left = Left::Nothing;
    loop {
        let answer = storage
            .store()
            .read(&range)
            .await
            .map_err(|e| errors::from_store(&e))?;
        for record in &answer.records {
            let Some((namespace, name)) = keys::parse(kind, &prefix, record.key()) else {
                continue;
            };
            let target = Target {
                kind,
                namespace,
                name,
            };
            match storage.delete(target, &DeleteOptions::default()).await {
                Ok(crate::api::storage::Deleted::Gone(_)) => {}
                Ok(crate::api::storage::Deleted::Marked(_)) => left = Left::Held,
                Err(refusal) if refusal.code == http::StatusCode::NOT_FOUND => {}
                Err(refusal) => return Err(refusal),
            }
        }
        match answer.records.last() {
            Some(last) if answer.more => {
                let mut next = last.key().to_vec();
                next.push(0);
                let (start, end) = (
                    next.into(),
                    range.range.end().map(bytes::Bytes::copy_from_slice),
                );
                let Some(end) = end else { return Ok(left) };
                range.range = sluice_metastore::KeyRange::Between(start, end);
            }
            _ => return Ok(left),
        }
    }
}

/// Takes the finalizer off, whereupon the definition goes unless others hold it.
async fn release(storage: &Storage, definition: &Definition) -> Result<(), Refusal> {
    let kind: Arc<ResourceKind> = Registry::new()
        .resolve(GROUP, "v1", PLURAL)
        .ok_or_else(|| errors::internal("definitions are not served"))?;
    let name = text(&definition.object, "metadata.name");
    let target = Target {
        kind: &kind,
        namespace: "",
        name,
    };
    let uid = text(&definition.object, "metadata.uid");
    let change = |old: &Object| {
        let mut new = old.clone();
        if meta::text(old, "uid") == uid {
            let whole = Value::Object(old.clone());
            let mut finalizers = texts(&whole, "metadata.finalizers");
            finalizers.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
            meta::set(&mut new, "finalizers", finalizers);
        }
        Ok(new)
    };
    let options = WriteOptions::internal();
    storage
        .update(target, Part::Internal, options, change)
        .await
        .map(|_| ())
}
