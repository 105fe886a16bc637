//! Create, update, patch, delete, and deletes of collections.

use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{self, Decoded, Expected, FieldValidation};
use super::form::{self, Form};
use super::options;
use super::patch::Patch;
use super::{Call, read};
use crate::api::errors::{self, Cause};
use crate::api::keys;
use crate::api::meta;
use crate::api::protobuf::TypeMeta;
use crate::api::storage::{DeleteOptions, Deleted, Object, Part, Stored, Target, WriteOptions};
use crate::body::Body;
use crate::status::Refusal;

const DELETE_OPTIONS: Expected<'static> = Expected::Other(TypeMeta {
    api_version: "v1",
    kind: "DeleteOptions",
});

/// Makes an object.
pub(crate) async fn create(call: Call<'_>, body: Body) -> Result<Response<Body>, Refusal> {
    let Decoded { object, warnings } = decode(&call, body).await?;
    check_identity(&call, &object, "")?;
    let check = |object: &Object| call.check_grant(object);
    let options = call.write_options(&check)?;
    let target = Target {
        name: "",
        ..call.target()
    };
    let stored = call
        .server
        .storage()
        .create(target, object, options)
        .await?;
    let mut response = form::object(&call, StatusCode::CREATED, &stored)?;
    form::warn(&mut response, &warnings);
    Ok(response)
}

/// Replaces an object, or a part of it.
pub(crate) async fn update(call: Call<'_>, body: Body) -> Result<Response<Body>, Refusal> {
    let Decoded { object, warnings } = decode(&call, body).await?;
    check_identity(&call, &object, call.info.name())?;
    let check = |object: &Object| call.check_grant(object);
    let options = call.write_options(&check)?;
    let storage = call.server.storage();
    let change = |_: &Object| Ok(object.clone());
    let stored = storage
        .update(call.target(), call.part, options, change)
        .await?;
    let mut response = form::object(&call, StatusCode::OK, &stored)?;
    form::warn(&mut response, &warnings);
    Ok(response)
}

/// Changes an object, or a part of it, by a patch.
pub(crate) async fn patch(call: Call<'_>, body: Body) -> Result<Response<Body>, Refusal> {
    let bytes = body::collect(body).await?;
    let validation = FieldValidation::parse(&call.query("fieldValidation"))?;
    let patch = Patch::read(call.kind, body::media_type(call.headers), &bytes)?;
    let check = |object: &Object| call.check_grant(object);
    let options = call.write_options(&check)?;
    let storage = call.server.storage();
    let change = |old: &Object| {
        let new = patch.apply(call.target(), old)?;
        check_identity(&call, &new, call.info.name())?;
        if validation == FieldValidation::Strict {
            let unknown = unknown_fields(&call, validation, &new);
            if !unknown.is_empty() {
                let why = format!("strict decoding error: {}", unknown.join(", "));
                let cause = Cause::invalid("patch", call.info.name(), &why);
                return Err(errors::invalid(call.kind, call.info.name(), &[cause]));
            }
        }
        Ok(new)
    };
    let stored = storage
        .update(call.target(), call.part, options, change)
        .await?;
    form::object(&call, StatusCode::OK, &stored)
}

/// Deletes an object.
pub(crate) async fn delete(call: Call<'_>, body: Body) -> Result<Response<Body>, Refusal> {
    let options = delete_options(&call, body).await?;
    let target = call.target();
    match call.server.storage().delete(target, &options).await? {
        Deleted::Marked(stored) => form::object(&call, StatusCode::OK, &stored),
        Deleted::Gone(stored) => Ok(form::json(StatusCode::OK, gone(target, &stored))),
    }
}

/// Deletes the objects that a list with the same options shows, one by one; what is gone already is
/// passed over. Options that cannot be read delete nothing.
pub(crate) async fn delete_collection(
    call: Call<'_>,
    body: Body,
) -> Result<Response<Body>, Refusal> {
    let selectors = options::selectors(&call)?;
    let shown = options::list(call.info)?;
    let options = delete_options(&call, body).await?;
    let storage = call.server.storage();
    let listed = storage
        .list(call.kind, call.namespace(), &selectors, &shown)
        .await?;
    let prefix = keys::prefix(call.kind);
    for record in &listed.records {
        let Some((namespace, name)) = keys::parse(call.kind, &prefix, record.key()) else {
            continue;
        };
        let target = Target {
            kind: call.kind,
            namespace,
            name,
        };
        match storage.delete(target, &options).await {
            Err(refusal) if refusal.code == StatusCode::NOT_FOUND => {}
            other => {
                other?;
            }
        }
    }
    let body = read::body(&call, &Form::Plain, listed)?;
    Ok(form::json(StatusCode::OK, body))
}

async fn decode(call: &Call<'_>, body: Body) -> Result<Decoded, Refusal> {
    let validation = FieldValidation::parse(&call.query("fieldValidation"))?;
    let bytes = body::collect(body).await?;
    let mut decoded = body::decode(
        call.headers,
        &bytes,
        validation,
        Expected::Object(call.kind),
    )?;
    let unknown = unknown_fields(call, validation, &decoded.object);
    if validation == FieldValidation::Strict && !unknown.is_empty() {
        let message = format!("strict decoding error: {}", unknown.join(", "));
        return Err(errors::bad_request(message));
    }
    decoded.warnings.extend(unknown);
    Ok(decoded)
}

/// The fields that the schema of a custom kind does not know and that are about to be dropped;
/// built-in kinds have no schema here.
fn unknown_fields(call: &Call<'_>, validation: FieldValidation, object: &Object) -> Vec<String> {
    if !call.kind.is_custom || validation == FieldValidation::Ignore {
        return Vec::new();
    }
    let object = Value::Object(object.clone());
    let found = call.server.definitions().unknown_fields(call.kind, &object);
    found
        .iter()
        .map(|path| format!("unknown field \"{path}\""))
        .collect()
}

/// 400 when an object is not what its path says.
fn check_identity(call: &Call<'_>, object: &Object, name: &str) -> Result<(), Refusal> {
    let kind = call.kind;
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let version = kind.api_version();
    if !matches!(text("apiVersion"), "") && text("apiVersion") != version {
        return Err(errors::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({version})",
            text("apiVersion")
        )));
    }
    if !text("kind").is_empty() && text("kind") != kind.kind {
        return Err(errors::bad_request(format!(
            "the kind in the data ({}) does not match the expected kind ({})",
            text("kind"),
            kind.kind
        )));
    }
    let own = meta::text(object, "name");
    if !name.is_empty() && !own.is_empty() && own != name {
        return Err(errors::bad_request(format!(
            "the name of the object ({own}) does not match the name on the URL ({name})"
        )));
    }
    let namespace = meta::text(object, "namespace");
    if !namespace.is_empty() && namespace != call.namespace() {
        let message =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(errors::bad_request(message));
    }
    Ok(())
}

/// What of a `DeleteOptions` counts here. A field of another type is refused: passed over, it would
/// turn a guarded deletion into an unguarded one.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct GivenOptions {
    dry_run: Option<Vec<String>>,
    propagation_policy: Option<String>,
    preconditions: Option<Preconditions>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

async fn delete_options(call: &Call<'_>, body: Body) -> Result<DeleteOptions, Refusal> {
    let bytes = body::collect(body).await?;
    let given = if bytes.is_empty() {
        Object::new()
    } else {
        body::decode(
            call.headers,
            &bytes,
            FieldValidation::Ignore,
            DELETE_OPTIONS,
        )?
        .object
    };
    let given = GivenOptions::deserialize(Value::Object(given))
        .map_err(|error| errors::bad_request(format!("DeleteOptions cannot be read: {error}")))?;
    let mut dry_run = options::dry_run(&call.query("dryRun"))?;
    for word in given.dry_run.unwrap_or_default() {
        dry_run |= options::dry_run(&word)?;
    }
    let asked = call.query("propagationPolicy");
    let policy = given.propagation_policy.unwrap_or_default();
    for policy in [policy.as_str(), asked.as_str()] {
        if !matches!(policy, "" | "Background" | "Foreground" | "Orphan") {
            let why = "use Background, Foreground or Orphan";
            let cause = Cause::invalid("propagationPolicy", policy, why);
            let causes = [cause];
            return Err(errors::invalid_as(
                "meta.k8s.io",
                "DeleteOptions",
                "",
                &causes,
            ));
        }
    }
    let preconditions = given.preconditions.unwrap_or_default();
    Ok(DeleteOptions {
        dry_run,
        uid: preconditions.uid.unwrap_or_default(),
        resource_version: preconditions.resource_version.unwrap_or_default(),
    })
}

fn gone(target: Target<'_>, stored: &Stored) -> Body {
    let kind = target.kind;
    let uid = meta::Peek::of(&stored.value).map(|peek| peek.uid.into_owned());
    let mut details = json!({"name": target.name, "kind": kind.plural});
    if let Some(map) = details.as_object_mut() {
        if !kind.group.is_empty() {
            map.insert("group".into(), kind.group.as_str().into());
        }
        if let Some(uid) = uid {
            map.insert("uid".into(), uid.into());
        }
    }
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    });
    Body::from(status.to_string().into_bytes())
}

impl<'a> Call<'a> {
    pub(super) fn write_options<'c>(
        &self,
        check: &'c (dyn Fn(&Object) -> Result<(), Refusal> + Send + Sync),
    ) -> Result<WriteOptions<'c>, Refusal> {
        let dry_run = options::dry_run(&self.query("dryRun"))?;
        Ok(WriteOptions { dry_run, check })
    }

    /// Nobody gives away rights that they do not have.
    pub(super) fn check_grant(&self, object: &Object) -> Result<(), Refusal> {
        if self.kind.group != crate::api::rbac::GROUP || self.part != Part::Main {
            return Ok(());
        }
        let object = Value::Object(object.clone());
        self.server
            .check_escalation(&self.ctx.user, &self.kind.plural, &object)
    }
}
