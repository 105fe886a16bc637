//! Changing what is there: a replacement, a patch, or a part.

use sluice_metastore::txn::{Delete, Op};
use sluice_metastore::{KeyRange, Revision};

use super::{
    ATTEMPTS_MAX, Object, Storage, Stored, Target, WriteOptions, at_revision, decoded, prepare,
};
use crate::api::errors::{self, Cause};
use crate::api::keys;
use crate::api::meta;
use crate::api::object;
use crate::api::resource::ResourceKind;
use crate::api::seek;
use crate::status::Refusal;

/// Which part of an object a write reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status, for kinds that have one.
    Main,
    /// The status alone.
    Status,
    /// A namespace's `spec.finalizers` alone.
    Finalizers,
    /// All of it: the server's own writes.
    Internal,
}

impl Storage {
    /// Changes an object by `change`, which is given the present state and answers the next; it
    /// may be asked again when another write came first. A state that names another
    /// `resourceVersion` than the present one is a conflict. What changes nothing is not written.
    ///
    /// # Errors
    /// 404, 409, 422, or what `change`, the check or the store refuses.
    pub async fn update(
        &self,
        target: Target<'_>,
        part: Part,
        options: WriteOptions<'_>,
        mut change: impl FnMut(&Object) -> Result<Object, Refusal>,
    ) -> Result<Stored, Refusal> {
        let key = keys::object(target.kind, target.namespace, target.name);
        for _ in 0..ATTEMPTS_MAX {
            let record = self.record(&key)?;
            let record = record.ok_or_else(|| errors::not_found(target.kind, target.name))?;
            let old = decoded(target, &record)?;
            let mut new = change(&old)?;
            check_preconditions(target, part, &old, &new)?;
            prepare::update(target, part, &old, &mut new)?;
            (options.check)(&new)?;
            let value = object::encode(target.kind, &new);
            let expected = record.mod_revision();
            if value == record.value() || options.dry_run {
                let revision = expected;
                return Ok(Stored { value, revision });
            }
            let answer = if is_done(target.kind, &new) {
                self.remove(target, expected).await?
            } else {
                self.swap(target.kind, &key, expected, value.clone())
                    .await?
            };
            if answer.succeeded {
                let revision = answer.revision;
                return Ok(Stored { value, revision });
            }
        }
        Err(errors::modified(target.kind, target.name))
    }

    /// Deletes an object that is still at `expected`.
    pub(super) async fn remove(
        &self,
        target: Target<'_>,
        expected: Revision,
    ) -> Result<sluice_metastore::txn::TxnAnswer, Refusal> {
        let key = keys::object(target.kind, target.namespace, target.name);
        let compare = at_revision(&key, expected);
        let delete = Op::Delete(Delete {
            range: KeyRange::Key(key),
            want_previous: false,
        });
        self.commit(vec![compare], delete).await
    }
}

/// Whether its deletion began and nothing holds it up any more.
pub(super) fn is_done(kind: &ResourceKind, object: &Object) -> bool {
    meta::is_deleting(object) && !is_held(kind, object)
}

/// Whether something must happen before it may go.
pub(super) fn is_held(kind: &ResourceKind, object: &Object) -> bool {
    let held = seek::value(object, "spec.finalizers").and_then(|f| f.as_array());
    let is_namespace = prepare::is(kind, "", "namespaces");
    !meta::finalizers(object).is_empty() || (is_namespace && held.is_some_and(|f| !f.is_empty()))
}

fn check_preconditions(
    target: Target<'_>,
    part: Part,
    old: &Object,
    new: &Object,
) -> Result<(), Refusal> {
    let Target { kind, name, .. } = target;
    let version = meta::text(new, "resourceVersion");
    if matches!(version, "" | "0") {
        // Kinds whose writers must never win by being last.
        let must_name = kind.is_custom
            || prepare::is(kind, "coordination.k8s.io", "leases")
            || prepare::is(kind, "apiextensions.k8s.io", "customresourcedefinitions");
        if must_name && part != Part::Internal {
            let why = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", version, why);
            return Err(errors::invalid(kind, name, &[cause]));
        }
    } else if version != meta::text(old, "resourceVersion") {
        return Err(errors::modified(kind, name));
    }
    check_uid(target, meta::text(new, "uid"), meta::text(old, "uid"))
}

/// 409 when the object is another one of the same name.
pub(super) fn check_uid(target: Target<'_>, asked: &str, have: &str) -> Result<(), Refusal> {
    if asked.is_empty() || asked == have {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {asked}, UID in object meta: {have}");
    Err(errors::conflict(target.kind, target.name, &why))
}
