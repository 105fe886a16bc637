//! Deletion: at once, or marked and left to those who hold it up.
//!
//! There is no garbage collector here, so a propagation policy is accepted and dependents stay;
//! nothing would ever take an `orphan` or `foregroundDeletion` finalizer off again, so none is set.

use serde_json::json;

use super::update::{check_uid, is_held};
use super::{ATTEMPTS_MAX, Storage, Stored, Target, decoded, prepare};
use crate::api::errors;
use crate::api::keys;
use crate::api::meta;
use crate::api::object;
use crate::api::seek;
use crate::status::Refusal;

/// Namespaces that the cluster cannot be without.
const NAMESPACES_KEPT: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What a client asks of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Everything but the deletion.
    pub dry_run: bool,
    /// Only an object of this uid; empty for any.
    pub uid: String,
    /// Only an object of this resource version; empty for any.
    pub resource_version: String,
}

/// What became of the object.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// It is gone; this was its last state, at the deletion's revision.
    Gone(Stored),
    /// It is marked, and goes when nothing holds it up.
    Marked(Stored),
}

impl Deleted {
    /// Whether it is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self, Deleted::Gone(_))
    }
}

impl Storage {
    /// Deletes an object, or marks it if something holds it up.
    ///
    /// # Errors
    /// 404, 409 for a precondition, 403 for a namespace that has to stay, or what the store
    /// refuses.
    pub async fn delete(
        &self,
        target: Target<'_>,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refusal> {
        let Target { kind, name, .. } = target;
        let is_namespace = prepare::is(kind, "", "namespaces");
        if is_namespace && NAMESPACES_KEPT.contains(&name) {
            return Err(errors::forbidden(
                kind,
                name,
                "this namespace may not be deleted",
            ));
        }
        let key = keys::object(kind, target.namespace, name);
        for _ in 0..ATTEMPTS_MAX {
            let record = self.record(&key)?;
            let record = record.ok_or_else(|| errors::not_found(kind, name))?;
            let mut object = decoded(target, &record)?;
            check_uid(target, &options.uid, meta::text(&object, "uid"))?;
            let version = meta::text(&object, "resourceVersion");
            if !options.resource_version.is_empty() && options.resource_version != version {
                return Err(errors::modified(kind, name));
            }
            let mut stored = Stored::from(&record);
            let is_marking = is_held(kind, &object);
            if is_marking {
                if meta::is_deleting(&object) {
                    return Ok(Deleted::Marked(stored));
                }
                self.mark(is_namespace, &mut object);
                stored.value = object::encode(kind, &object);
            }
            if !options.dry_run {
                let answer = if is_marking {
                    self.swap(kind, &key, record.mod_revision(), stored.value.clone())
                        .await?
                } else {
                    self.remove(target, record.mod_revision()).await?
                };
                if !answer.succeeded {
                    continue;
                }
                stored.revision = answer.revision;
            }
            return Ok(if is_marking {
                Deleted::Marked(stored)
            } else {
                Deleted::Gone(stored)
            });
        }
        Err(errors::modified(kind, name))
    }

    fn mark(&self, is_namespace: bool, object: &mut super::Object) {
        meta::set(object, "deletionTimestamp", self.sources.timestamp());
        if is_namespace {
            seek::put(object, "status.phase", json!("Terminating"));
            return;
        }
        meta::set(object, "deletionGracePeriodSeconds", 0);
        if meta::of(object).is_some_and(|m| m.contains_key("generation")) {
            prepare::raise_generation(object);
        }
    }
}
