//! A structural schema, compiled, and what it does to an object: nulls and unknown fields go,
//! defaults come, and what is wrong is named.
//!
//! See the parent module for what of a schema is not enforced. Depth is bounded by that of the
//! schema and of the JSON reader.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::api::errors::Cause;

/// Wrong fields reported of one object; a list of a thousand wrong items is told by its first ones.
const CAUSES_MAX: usize = 64;

/// A schema or a part of one.
#[derive(Clone, Debug, Default)]
pub struct Structural {
    kind: Kind,
    is_nullable: bool,
    keeps_unknown: bool,
    is_embedded: bool,
    default: Option<Value>,
    required: Vec<String>,
    fields: BTreeMap<String, Structural>,
    others: Others,
    items: Option<Box<Structural>>,
    choices: Vec<Value>,
    bounds: Bounds,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// Fields that are not named.
#[derive(Clone, Debug, Default)]
enum Others {
    /// Are unknown.
    #[default]
    Unknown,
    /// Are anything.
    Anything,
    /// Are all alike.
    Each(Box<Structural>),
}

#[derive(Clone, Debug, Default)]
struct Bounds {
    least: Option<f64>,
    greatest: Option<f64>,
    /// Of characters, items or fields.
    shortest: Option<u64>,
    longest: Option<u64>,
}

impl Kind {
    fn read(schema: &Value) -> Kind {
        if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
            return Kind::IntOrString;
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => Kind::Object,
            Some("array") => Kind::Array,
            Some("string") => Kind::String,
            Some("integer") => Kind::Integer,
            Some("number") => Kind::Number,
            Some("boolean") => Kind::Boolean,
            _ => Kind::Any,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Any => "any",
            Kind::Object => "object",
            Kind::Array => "array",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
            Kind::IntOrString => "integer or string",
        }
    }

    fn fits(self, value: &Value) -> bool {
        let is_whole = || {
            let float = value.as_f64().is_some_and(|n| n.fract() == 0.0);
            value.is_i64() || value.is_u64() || float
        };
        match self {
            Kind::Any => true,
            Kind::Object => value.is_object(),
            Kind::Array => value.is_array(),
            Kind::String => value.is_string(),
            Kind::Integer => is_whole(),
            Kind::Number => value.is_number(),
            Kind::Boolean => value.is_boolean(),
            Kind::IntOrString => value.is_string() || is_whole(),
        }
    }
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&Value::Bool(true))
}

impl Structural {
    /// Compiles an `openAPIV3Schema`.
    #[must_use]
    pub fn read(schema: &Value) -> Structural {
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let count = |names: [&str; 3]| {
            let mut found = names.iter().filter_map(|name| schema.get(*name));
            found.next().and_then(Value::as_u64)
        };
        let list = |name: &str| schema.get(name).and_then(Value::as_array);
        let fields = schema.get("properties").and_then(Value::as_object);
        let required = list("required").into_iter().flatten();
        Structural {
            kind: Kind::read(schema),
            is_nullable: flag(schema, "nullable"),
            keeps_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            is_embedded: flag(schema, "x-kubernetes-embedded-resource"),
            default: schema.get("default").cloned(),
            required: required
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            fields: fields
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), Structural::read(schema)))
                .collect(),
            others: match schema.get("additionalProperties") {
                Some(Value::Bool(true)) => Others::Anything,
                Some(schema @ Value::Object(_)) => Others::Each(Box::new(Structural::read(schema))),
                _ => Others::Unknown,
            },
            items: schema
                .get("items")
                .map(|items| Box::new(Structural::read(items))),
            choices: list("enum").cloned().unwrap_or_default(),
            bounds: Bounds {
                least: number("minimum"),
                greatest: number("maximum"),
                shortest: count(["minLength", "minItems", "minProperties"]),
                longest: count(["maxLength", "maxItems", "maxProperties"]),
            },
        }
    }

    /// Prunes, defaults and checks a whole object of the kind. Its `apiVersion`, `kind` and
    /// `metadata` are none of the schema's business.
    pub fn apply(&self, object: &mut Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let Some(fields) = object.as_object_mut() {
            let own: Vec<(String, Value)> = ["apiVersion", "kind", "metadata"]
                .iter()
                .filter_map(|name| fields.remove_entry(*name))
                .collect();
            self.prune(fields);
            self.settle(fields, "", &mut causes);
            fields.extend(own);
        }
        causes.truncate(CAUSES_MAX);
        causes
    }

    /// Names of fields the schema does not know, as dotted paths; for strict validation. They are
    /// those that [`Structural::apply`] takes away in silence.
    #[must_use]
    pub fn unknown(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        for (name, value) in object.as_object().into_iter().flatten() {
            if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                self.look_at_field(name, value, name, &mut found);
            }
        }
        found.truncate(CAUSES_MAX);
        found
    }

    fn look_at_field(&self, name: &str, value: &Value, path: &str, found: &mut Vec<String>) {
        match self.field(name) {
            Some(schema) => schema.look(value, path, found),
            None if self.keeps(name) => {}
            None => found.push(path.to_owned()),
        }
    }

    fn look(&self, value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.look_at_field(name, value, &format!("{path}.{name}"), found);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some(schema) = &self.items {
                        schema.look(item, &format!("{path}[{index}]"), found);
                    }
                }
            }
            _ => {}
        }
    }

    fn field(&self, name: &str) -> Option<&Structural> {
        let named = self.fields.get(name);
        named.or(match &self.others {
            Others::Each(schema) => Some(schema),
            Others::Unknown | Others::Anything => None,
        })
    }

    /// Whether a field without a schema stays.
    fn keeps(&self, name: &str) -> bool {
        let of_object = matches!(name, "apiVersion" | "kind" | "metadata");
        self.keeps_unknown
            || matches!(self.others, Others::Anything)
            || (self.is_embedded && of_object)
            // Without a type nothing was said about the fields.
            || (self.kind == Kind::Any && self.fields.is_empty())
    }

    fn prune(&self, fields: &mut Map<String, Value>) {
        fields.retain(|name, value| match self.field(name) {
            Some(schema) => {
                // A null that may not be null is the same as absent where there is a default.
                let gives_way = value.is_null() && !schema.is_nullable && schema.default.is_some();
                schema.prune_value(value);
                !gives_way
            }
            None => self.keeps(name),
        });
    }

    fn prune_value(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => self.prune(fields),
            Value::Array(items) => {
                if let Some(schema) = &self.items {
                    items.iter_mut().for_each(|item| schema.prune_value(item));
                }
            }
            _ => {}
        }
    }

    /// Puts defaults in and checks the fields of an object.
    fn settle(&self, fields: &mut Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
        for (name, schema) in &self.fields {
            if let (Some(default), false) = (&schema.default, fields.contains_key(name)) {
                fields.insert(name.clone(), default.clone());
            }
        }
        for name in &self.required {
            if !fields.contains_key(name) {
                causes.push(required(&join(path, name)));
            }
        }
        for (name, value) in fields.iter_mut() {
            if causes.len() >= CAUSES_MAX {
                return;
            }
            if let Some(schema) = self.field(name) {
                schema.settle_value(value, &join(path, name), causes);
            }
        }
    }

    fn settle_value(&self, value: &mut Value, path: &str, causes: &mut Vec<Cause>) {
        if value.is_null() && self.is_nullable {
            return;
        }
        if !self.kind.fits(value) {
            causes.push(wrong_type(path, value, self.kind));
            return;
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            causes.push(unsupported(path, value, &self.choices));
        }
        self.check_bounds(value, path, causes);
        match value {
            Value::Object(fields) => self.settle(fields, path, causes),
            Value::Array(items) => {
                let Some(schema) = &self.items else {
                    return;
                };
                for (index, item) in items.iter_mut().enumerate() {
                    if causes.len() >= CAUSES_MAX {
                        return;
                    }
                    schema.settle_value(item, &format!("{path}[{index}]"), causes);
                }
            }
            _ => {}
        }
    }

    fn check_bounds(&self, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        let Bounds {
            least,
            greatest,
            shortest,
            longest,
        } = &self.bounds;
        let shown = value.to_string();
        let mut refuse = |why: String| causes.push(invalid(path, &shown, &why));
        if let Some(number) = value.as_f64() {
            if let Some(least) = least.filter(|least| number < *least) {
                refuse(format!(
                    "{path} in body should be greater than or equal to {least}"
                ));
            }
            if let Some(greatest) = greatest.filter(|greatest| number > *greatest) {
                refuse(format!(
                    "{path} in body should be less than or equal to {greatest}"
                ));
            }
        }
        let (length, unit) = match value {
            Value::String(text) => (text.chars().count(), "chars long"),
            Value::Array(items) => (items.len(), "items"),
            Value::Object(fields) => (fields.len(), "properties"),
            _ => return,
        };
        let length = length as u64;
        if let Some(shortest) = shortest.filter(|shortest| length < *shortest) {
            refuse(format!(
                "{path} in body should be at least {shortest} {unit}"
            ));
        }
        if let Some(longest) = longest.filter(|longest| length > *longest) {
            refuse(format!("{path} in body should be at most {longest} {unit}"));
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn required(path: &str) -> Cause {
    Cause {
        reason: "FieldValueRequired",
        message: "Required value".to_owned(),
        field: path.to_owned(),
    }
}

fn invalid(path: &str, shown: &str, why: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {shown}: {why}"),
        field: path.to_owned(),
    }
}

fn wrong_type(path: &str, value: &Value, wanted: Kind) -> Cause {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let wanted = wanted.name();
    let why = format!("{path} in body must be of type {wanted}: \"{found}\"");
    let mut cause = invalid(path, &format!("\"{found}\""), &why);
    cause.reason = "FieldValueTypeInvalid";
    cause
}

fn unsupported(path: &str, value: &Value, choices: &[Value]) -> Cause {
    let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
    Cause {
        reason: "FieldValueNotSupported",
        message: format!(
            "Unsupported value: {value}: supported values: {}",
            choices.join(", ")
        ),
        field: path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Structural {
        Structural::read(&json!({
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["size"],
                    "properties": {
                        "size": {"type": "integer", "minimum": 1, "maximum": 9},
                        "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                        "port": {"x-kubernetes-int-or-string": true},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "map": {"type": "object", "additionalProperties": {"type": "string"}},
                        "list": {"type": "array", "maxItems": 2, "items": {
                            "type": "object", "properties": {"a": {"type": "boolean"}},
                        }},
                        "maybe": {"type": "string", "nullable": true},
                    },
                },
            },
        }))
    }

    #[test]
    fn unknown_fields_go_and_defaults_come() {
        let mut object = json!({
            "apiVersion": "x/v1", "kind": "X", "metadata": {"name": "n", "odd": 1}, "other": 1,
            "spec": {
                "size": 3, "colour": null, "unknown": 1, "free": {"any": {"thing": 1}},
                "map": {"k": "v"}, "list": [{"a": true, "b": 1}], "maybe": null, "port": "http",
            },
        });
        assert_eq!(
            sample().unknown(&object),
            ["other", "spec.list[0].b", "spec.unknown"]
        );
        assert_eq!(sample().apply(&mut object), []);
        assert_eq!(
            object,
            json!({
                "apiVersion": "x/v1", "kind": "X", "metadata": {"name": "n", "odd": 1},
                "spec": {
                    "size": 3, "colour": "red", "free": {"any": {"thing": 1}},
                    "map": {"k": "v"}, "list": [{"a": true}], "maybe": null, "port": "http",
                },
            })
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let mut object = json!({"spec": {
            "colour": "green", "size": 10, "map": {"k": 1}, "list": [{"a": 1}, {}, {}], "port": true,
        }});
        let causes = sample().apply(&mut object);
        let fields: Vec<&str> = causes.iter().map(|c| c.field.as_str()).collect();
        let wanted = [
            "spec.colour",
            "spec.list",
            "spec.list[0].a",
            "spec.map.k",
            "spec.port",
            "spec.size",
        ];
        assert_eq!(fields, wanted);
        assert_eq!(
            causes.last().map(|c| c.message.as_str()),
            Some("Invalid value: 10: spec.size in body should be less than or equal to 9")
        );
        let causes = sample().apply(&mut json!({}));
        assert_eq!(causes.first().map(|c| c.field.as_str()), Some("spec"));
    }
}
