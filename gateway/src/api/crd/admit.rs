//! Whether a definition may be stored, and what the server writes into it: defaults of its names,
//! the finalizer, and the status, established or not.

use serde_json::{Value, json};

use super::CLEANUP_FINALIZER;
use super::definition::{at, list, text, texts};
use super::view::{ByName, conflict};
use crate::api::errors::Cause;
use crate::api::names;

/// Versions one definition may have; each is a row in discovery and a document in OpenAPI.
const VERSIONS_MAX: usize = 32;

/// Checks, defaults and sets the status of a definition about to be stored. `timestamp` is now in
/// Kubernetes' form. What comes back makes a 422; empty is good.
///
/// The object comes with the status it had, or without one when it is new. Asked at every write of
/// a definition, those of its status included: nobody but the server says whether it is
/// established.
pub(super) fn admit(object: &mut Value, others: &ByName, timestamp: &str) -> Vec<Cause> {
    default(object);
    let mut causes = check(object);
    let name = text(object, "metadata.name");
    let uid = text(object, "metadata.uid");
    let old = others
        .get(name)
        .filter(|old| text(&old.object, "metadata.uid") == uid);
    if let Some(old) = old {
        check_unchanged(object, &old.object, &mut causes);
    }
    if !causes.is_empty() {
        return causes;
    }
    let status = status(object, others, timestamp);
    let is_new = at(object, "status.conditions").is_none();
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), status);
    }
    if is_new {
        hold(object);
    }
    causes
}

/// Adds the finalizer that the clean-up takes off again.
fn hold(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|f| f == CLEANUP_FINALIZER)
    {
        finalizers.push(json!(CLEANUP_FINALIZER));
    }
}

fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let conversion = spec.entry("conversion").or_insert_with(|| json!({}));
    if let Some(conversion) = conversion.as_object_mut() {
        conversion
            .entry("strategy")
            .or_insert_with(|| json!("None"));
    }
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else {
        return;
    };
    let kind = names
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let defaults = [
        ("singular", kind.to_lowercase()),
        ("listKind", format!("{kind}List")),
    ];
    for (field, value) in defaults {
        let given = names.get(field).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() {
            names.insert(field.to_owned(), value.into());
        }
    }
}

fn quoted(value: &str) -> String {
    Value::from(value).to_string()
}

fn unsupported(field: &str, value: &str, supported: &str) -> Cause {
    Cause {
        reason: "FieldValueNotSupported",
        message: format!(
            "Unsupported value: {}: supported values: {supported}",
            quoted(value)
        ),
        field: field.to_owned(),
    }
}

fn check(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let group = text(object, "spec.group");
    let plural = text(object, "spec.names.plural");
    if group.is_empty() {
        causes.push(Cause::required("spec.group", "name the API group"));
    } else if !names::is_subdomain(group) || !group.contains('.') {
        let why = "should be a domain with at least one dot";
        causes.push(Cause::invalid("spec.group", group, why));
    }
    let name = text(object, "metadata.name");
    if name != format!("{plural}.{group}") {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", name, why));
    }
    check_protection(object, group, &mut causes);
    check_names(object, &mut causes);
    let scope = text(object, "spec.scope");
    if !matches!(scope, "Cluster" | "Namespaced") {
        causes.push(unsupported(
            "spec.scope",
            scope,
            "\"Cluster\", \"Namespaced\"",
        ));
    }
    let strategy = text(object, "spec.conversion.strategy");
    if strategy != "None" {
        causes.push(unsupported(
            "spec.conversion.strategy",
            strategy,
            "\"None\"",
        ));
    }
    check_versions(object, &mut causes);
    causes
}

/// Groups of the Kubernetes community are taken only with their word for it.
fn check_protection(object: &Value, group: &str, causes: &mut Vec<Cause>) {
    let of = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    if !of("k8s.io") && !of("kubernetes.io") {
        return;
    }
    let annotations = at(object, "metadata.annotations");
    let approved = annotations.and_then(|a| a.get("api-approved.kubernetes.io"));
    if approved.and_then(Value::as_str).is_none_or(str::is_empty) {
        let field = "metadata.annotations[api-approved.kubernetes.io]";
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\", \
                   see https://github.com/kubernetes/enhancements/pull/1111";
        causes.push(Cause::required(field, why));
    }
}

fn check_names(object: &Value, causes: &mut Vec<Cause>) {
    let mut labels = vec![
        (
            "spec.names.plural",
            text(object, "spec.names.plural").to_owned(),
        ),
        (
            "spec.names.singular",
            text(object, "spec.names.singular").to_owned(),
        ),
    ];
    let short = texts(object, "spec.names.shortNames").into_iter();
    labels.extend(short.map(|name| ("spec.names.shortNames", name)));
    let categories = texts(object, "spec.names.categories").into_iter();
    labels.extend(categories.map(|name| ("spec.names.categories", name)));
    for (field, name) in labels {
        if name.is_empty() {
            causes.push(Cause::required(field, "must not be empty"));
        } else if !names::is_label(&name) || name.starts_with(|c: char| c.is_ascii_digit()) {
            let why = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
                       start with an alphabetic character, and end with an alphanumeric character";
            causes.push(Cause::invalid(field, &name, why));
        }
    }
    for field in ["spec.names.kind", "spec.names.listKind"] {
        let kind = text(object, field);
        if kind.is_empty() {
            causes.push(Cause::required(field, "must not be empty"));
        } else if !names::is_label(&kind.to_ascii_lowercase()) {
            let why = "may have mixed case, but should otherwise match a DNS-1035 label";
            causes.push(Cause::invalid(field, kind, why));
        }
    }
    if text(object, "spec.names.kind") == text(object, "spec.names.listKind") {
        let why = "kind and listKind may not be the same";
        causes.push(Cause::invalid(
            "spec.names.listKind",
            text(object, "spec.names.listKind"),
            why,
        ));
    }
}

fn check_versions(object: &Value, causes: &mut Vec<Cause>) {
    let versions = list(object, "spec.versions");
    if versions.is_empty() {
        causes.push(Cause::required(
            "spec.versions",
            "must have at least one version",
        ));
        return;
    }
    if versions.len() > VERSIONS_MAX {
        let why = format!("must have at most {VERSIONS_MAX} versions");
        causes.push(Cause::invalid(
            "spec.versions",
            &versions.len().to_string(),
            &why,
        ));
        return;
    }
    let stored = versions
        .iter()
        .filter(|v| v.get("storage") == Some(&Value::Bool(true)));
    if stored.count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", "", why));
    }
    let mut seen = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{index}]");
        let name = text(version, "name");
        if !names::is_label(name) {
            let why = "must be a DNS label";
            causes.push(Cause::invalid(&format!("{field}.name"), name, why));
        }
        if seen.contains(&name) {
            let why = "must contain unique version names";
            causes.push(Cause::invalid(&format!("{field}.name"), name, why));
        }
        seen.push(name);
        check_version(version, &field, causes);
    }
}

fn check_version(version: &Value, field: &str, causes: &mut Vec<Cause>) {
    let schema = format!("{field}.schema.openAPIV3Schema");
    match at(version, "schema.openAPIV3Schema") {
        None | Some(Value::Null) => causes.push(Cause::required(&schema, "schemas are required")),
        Some(given) if text(given, "type") != "object" => {
            let at = format!("{schema}.type");
            causes.push(Cause::invalid(
                &at,
                text(given, "type"),
                "must be object at the root",
            ));
        }
        Some(_) => {}
    }
    let columns = list(version, "additionalPrinterColumns");
    if let Err((index, error)) = crate::api::table::Columns::custom(columns) {
        let at = format!("{field}.additionalPrinterColumns[{index}].jsonPath");
        let path = columns
            .get(index)
            .map_or("", |column| text(column, "jsonPath"));
        causes.push(Cause::invalid(&at, path, &error.to_string()));
    }
    if let Some(scale) = at(version, "subresources.scale") {
        for name in ["specReplicasPath", "statusReplicasPath"] {
            let path = text(scale, name);
            if !path.starts_with('.') || path.contains('[') {
                let at = format!("{field}.subresources.scale.{name}");
                causes.push(Cause::invalid(
                    &at,
                    path,
                    "should be a path of field names, .a.b",
                ));
            }
        }
    }
}

/// What clients and stored objects rest on stays as it is.
fn check_unchanged(object: &Value, old: &Value, causes: &mut Vec<Cause>) {
    for field in ["spec.scope", "spec.names.kind"] {
        let (was, is) = (text(old, field), text(object, field));
        if was != is {
            causes.push(Cause::invalid(field, is, "field is immutable"));
        }
    }
}

/// The status: the versions something may still be stored in, the names, and the two conditions.
fn status(object: &Value, others: &ByName, timestamp: &str) -> Value {
    let old_status = object.get("status").unwrap_or(&Value::Null);
    let mut stored = texts(old_status, "storedVersions");
    let versions = list(object, "spec.versions").iter();
    for version in versions.filter(|v| v.get("storage") == Some(&Value::Bool(true))) {
        let name = text(version, "name").to_owned();
        if !stored.contains(&name) {
            stored.push(name);
        }
    }
    let conflict = conflict(others, object);
    let (accepted, established) = match &conflict {
        None => (
            ("True", "NoConflicts", "no conflicts found".to_owned()),
            (
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted".to_owned(),
            ),
        ),
        Some(conflict) => (
            ("False", conflict.reason, conflict.message.clone()),
            (
                "False",
                "NotAccepted",
                "not all names are accepted".to_owned(),
            ),
        ),
    };
    let condition = |kind: &str, (status, reason, message): (&str, &str, String)| {
        let was = list(old_status, "conditions").iter();
        let mut was = was.filter(|c| text(c, "type") == kind && text(c, "status") == status);
        let since = was
            .next()
            .map_or(timestamp, |c| text(c, "lastTransitionTime"));
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since,
        })
    };
    let accepted_names = match conflict {
        None => at(object, "spec.names").cloned(),
        Some(_) => old_status.get("acceptedNames").cloned(),
    };
    let mut conditions = vec![
        condition("NamesAccepted", accepted),
        condition("Established", established),
    ];
    if !text(object, "metadata.deletionTimestamp").is_empty() {
        let message = "instances are being deleted".to_owned();
        conditions.push(condition(
            "Terminating",
            ("True", "InstanceDeletionInProgress", message),
        ));
    }
    json!({
        "acceptedNames": accepted_names.unwrap_or_else(|| json!({"kind": "", "plural": ""})),
        "conditions": conditions,
        "storedVersions": stored,
    })
}
