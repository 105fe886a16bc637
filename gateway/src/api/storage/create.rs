//! Creation: name, identity, and a namespace that is there and stays.

use bytes::Bytes;
use serde_json::json;
use sluice_metastore::{Record, Revision};

use super::{Object, Storage, Stored, Target, WriteOptions, at_revision, decoded, prepare};
use crate::api::errors;
use crate::api::keys;
use crate::api::meta;
use crate::api::names;
use crate::api::object;
use crate::api::resource::ResourceKind;
use crate::status::Refusal;

/// Names tried for one `generateName`: with 14 million suffixes, eight collisions in a row mean
/// that the base is used up.
const NAMES_MAX: usize = 8;

impl Storage {
    /// Makes an object. With an empty `target.name` the object's own name or `generateName` counts.
    ///
    /// # Errors
    /// 409 when the name is taken, 404 or 403 for the namespace, 422 for wrong fields, or what the
    /// check or the store refuses.
    pub async fn create(
        &self,
        target: Target<'_>,
        object: Object,
        options: WriteOptions<'_>,
    ) -> Result<Stored, Refusal> {
        let kind = target.kind;
        let own_name = meta::text(&object, "name").to_owned();
        let base = meta::text(&object, "generateName").to_owned();
        let is_generated = own_name.is_empty() && !base.is_empty();
        let prepared = prepare::create(target, object, &self.sources)?;
        for _ in 0..NAMES_MAX {
            let mut object = prepared.clone();
            let name = if is_generated {
                names::generate(&base, self.sources.suffix_bits())
            } else {
                own_name.clone()
            };
            meta::set(&mut object, "name", name.as_str());
            let named = Target {
                name: &name,
                ..target
            };
            prepare::finish_create(kind, &name, &mut object)?;
            (options.check)(&object)?;
            let value = object::encode(kind, &object);
            match self.insert(named, value, options.dry_run).await? {
                Inserted::Done(stored) => return Ok(stored),
                Inserted::Taken(_) if is_generated => {}
                Inserted::Taken(record) => return Err(taken(named, &record)),
            }
        }
        let mut refusal = errors::already_exists(kind, &base);
        refusal.retry_after = Some(1);
        Err(refusal)
    }

    async fn insert(
        &self,
        target: Target<'_>,
        value: Bytes,
        dry_run: bool,
    ) -> Result<Inserted, Refusal> {
        let key = keys::object(target.kind, target.namespace, target.name);
        for _ in 0..super::ATTEMPTS_MAX {
            let mut compares = vec![at_revision(&key, Revision::ZERO)];
            if target.kind.is_namespaced() {
                let key = keys::namespace(target.namespace);
                compares.push(at_revision(&key, self.usable_namespace(target)?));
            }
            if target.kind.is_custom {
                let key = keys::definition(target.kind);
                compares.push(at_revision(
                    &key,
                    self.usable_definition(target.kind, &key)?,
                ));
            }
            if let Some(record) = self.record(&key)? {
                return Ok(Inserted::Taken(record));
            }
            if dry_run {
                let revision = Revision::ZERO;
                return Ok(Inserted::Done(Stored { value, revision }));
            }
            let put = self.put(target.kind, &key, value.clone()).await?;
            let answer = self.commit(compares, put).await?;
            if answer.succeeded {
                let revision = answer.revision;
                return Ok(Inserted::Done(Stored { value, revision }));
            }
        }
        Err(errors::try_again(
            "the namespace or definition keeps changing; try again",
        ))
    }

    /// The revision of the target's namespace, which must be there and not ending.
    fn usable_namespace(&self, target: Target<'_>) -> Result<Revision, Refusal> {
        let namespace = target.namespace;
        let Some(record) = self.record(&keys::namespace(namespace))? else {
            return Err(namespace_not_found(namespace));
        };
        let peek = meta::Peek::of(record.value());
        if peek.is_none_or(|p| p.deletion_timestamp.is_some()) {
            return Err(namespace_ending(target.kind, target.name, namespace));
        }
        Ok(record.mod_revision())
    }

    /// The revision of a custom kind's definition, which must be there and not ending: what came into
    /// being after its instances were cleared away would be there again when the definition is.
    fn usable_definition(&self, kind: &ResourceKind, key: &Bytes) -> Result<Revision, Refusal> {
        let record = self.record(key)?.ok_or_else(errors::no_such_path)?;
        let peek = meta::Peek::of(record.value());
        if peek.is_none_or(|p| p.deletion_timestamp.is_some()) {
            let mut refusal = errors::method_not_allowed(kind, "create");
            refusal.message =
                "create not allowed while custom resource definition is terminating".into();
            return Err(refusal);
        }
        Ok(record.mod_revision())
    }
}

enum Inserted {
    Done(Stored),
    Taken(Record),
}

fn taken(target: Target<'_>, record: &Record) -> Refusal {
    let mut refusal = errors::already_exists(target.kind, target.name);
    let is_deleting = decoded(target, record).is_ok_and(|o| meta::is_deleting(&o));
    if is_deleting {
        refusal.message = format!("object is being deleted: {}", refusal.message);
    }
    refusal
}

fn namespace_not_found(namespace: &str) -> Refusal {
    let mut refusal = errors::no_such_path();
    refusal.message = format!("namespaces \"{namespace}\" not found");
    refusal.details = Some(json!({"name": namespace, "kind": "namespaces"}));
    refusal
}

fn namespace_ending(kind: &ResourceKind, name: &str, namespace: &str) -> Refusal {
    let why = format!(
        "unable to create new content in namespace {namespace} because it is being terminated"
    );
    let mut refusal = errors::forbidden(kind, name, &why);
    let cause = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    if let Some(details) = refusal.details.as_mut().and_then(|d| d.as_object_mut()) {
        details.insert("causes".into(), cause);
    }
    refusal
}
