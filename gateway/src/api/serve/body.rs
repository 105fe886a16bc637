//! Request bodies: JSON, YAML and protobuf into one object.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::api::errors;
use crate::api::protobuf::{self, TypeMeta};
use crate::api::resource::ResourceKind;
use crate::api::storage::Object;
use crate::body::{Body, BodyError};
use crate::status::Refusal;

/// The greatest body taken, as in a kube-apiserver.
pub(crate) const BODY_BYTES_MAX: usize = 3 << 20;

/// A body may take as long as a kube-apiserver gives a request.
const BODY_TIME_MAX: Duration = Duration::from_secs(60);
/// Duplicates named to a client; more teach it nothing.
const DUPLICATES_MAX: usize = 16;

/// What is done about fields given twice, and about those that the schema of a custom kind does not
/// know; built-in kinds have no schema here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    pub(crate) fn parse(word: &str) -> Result<Self, Refusal> {
        match word {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(errors::bad_request(format!(
                "invalid fieldValidation \"{other}\": use Ignore, Warn or Strict"
            ))),
        }
    }
}

/// What a body is to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected<'a> {
    /// An object of a kind served.
    Object(&'a ResourceKind),
    /// What is no object: options, a question.
    Other(TypeMeta<'a>),
}

impl Expected<'_> {
    /// Custom kinds have no form in protobuf.
    fn has_protobuf(self) -> bool {
        !matches!(self, Expected::Object(kind) if kind.is_custom)
    }

    fn read_protobuf(self, bytes: &[u8]) -> Result<Object, Refusal> {
        let version;
        let types = match self {
            Expected::Object(kind) => {
                version = kind.api_version();
                TypeMeta {
                    api_version: &version,
                    kind: &kind.kind,
                }
            }
            Expected::Other(types) => types,
        };
        protobuf::decode(bytes, types).map_err(|fault| errors::bad_request(fault.to_string()))
    }
}

/// An object as sent, and the warnings it earned.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Object,
    pub(crate) warnings: Vec<String>,
}

/// Reads a body whole, within [`BODY_TIME_MAX`].
pub(crate) async fn collect(body: Body) -> Result<Bytes, Refusal> {
    let collecting = body.collect_up_to(BODY_BYTES_MAX);
    let Ok(collected) = tokio::time::timeout(BODY_TIME_MAX, collecting).await else {
        return Err(errors::too_slow(BODY_TIME_MAX));
    };
    collected.map_err(|error| match error {
        BodyError::Cut(_) => errors::too_large(BODY_BYTES_MAX),
        BodyError::Transport(error) => unread(&error),
        error @ (BodyError::Reset(_) | BodyError::Broken(_)) => unread(&error),
    })
}

fn unread(why: &dyn std::fmt::Display) -> Refusal {
    errors::bad_request(format!("request body could not be read: {why}"))
}

/// The media type of a body, without parameters; JSON when it is not said.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let media = value
        .and_then(|v| v.split(';').next())
        .unwrap_or_default()
        .trim();
    if media.is_empty() {
        "application/json"
    } else {
        media
    }
}

/// Reads an object of a body.
///
/// # Errors
/// 415 for a type that is not read, 400 for what is no object, or has duplicates where they matter.
pub(crate) fn decode(
    headers: &HeaderMap,
    bytes: &[u8],
    validation: FieldValidation,
    expected: Expected<'_>,
) -> Result<Decoded, Refusal> {
    let (value, duplicates) = match media_type(headers) {
        "application/json" => read_json(bytes)?,
        // The parser itself refuses duplicate keys in YAML.
        "application/yaml" | "application/x-yaml" | "text/yaml" => (read_yaml(bytes)?, Vec::new()),
        protobuf::MEDIA_TYPE if expected.has_protobuf() => {
            (Value::Object(expected.read_protobuf(bytes)?), Vec::new())
        }
        other => {
            let last = if expected.has_protobuf() {
                ", application/vnd.kubernetes.protobuf"
            } else {
                ""
            };
            return Err(errors::unsupported_media_type(format!(
                "the body of the request was in an unknown format: media type \"{other}\"; accepted media types include: application/json, application/yaml{last}"
            )));
        }
    };
    let Value::Object(object) = value else {
        return Err(errors::bad_request("the body is not an object"));
    };
    let warnings: Vec<String> = duplicates
        .iter()
        .map(|path| format!("duplicate field \"{path}\""))
        .collect();
    match validation {
        FieldValidation::Strict if !warnings.is_empty() => {
            let message = format!("strict decoding error: {}", warnings.join(", "));
            Err(errors::bad_request(message))
        }
        FieldValidation::Ignore => Ok(Decoded {
            object,
            warnings: Vec::new(),
        }),
        _ => Ok(Decoded { object, warnings }),
    }
}

/// A value, and the paths of fields that occur twice in it; the last one counts.
fn read_json(bytes: &[u8]) -> Result<(Value, Vec<String>), Refusal> {
    let found = RefCell::new(Vec::new());
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let seed = Watchful {
        path: String::new(),
        found: &found,
    };
    let value = seed
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    let value = value.map_err(|error| {
        errors::bad_request(format!("the object provided is unrecognized: {error}"))
    })?;
    Ok((value, found.into_inner()))
}

fn read_yaml(bytes: &[u8]) -> Result<Value, Refusal> {
    let text =
        std::str::from_utf8(bytes).map_err(|_| errors::bad_request("the body is not UTF-8"))?;
    serde_saphyr::from_str(text)
        .map_err(|error| errors::bad_request(format!("error parsing YAML: {error}")))
}

/// Builds a value and notes duplicate fields on the way.
struct Watchful<'f> {
    path: String,
    found: &'f RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Watchful<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Watchful<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, list.len());
            match seq.next_element_seed(Watchful {
                path,
                found: self.found,
            })? {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = if self.path.is_empty() {
                key.clone()
            } else {
                format!("{}.{key}", self.path)
            };
            let value = map.next_value_seed(Watchful {
                path: path.clone(),
                found: self.found,
            })?;
            if object.insert(key, value).is_some() {
                let mut found = self.found.try_borrow_mut().map_err(A::Error::custom)?;
                if found.len() < DUPLICATES_MAX {
                    found.push(path);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const OPTIONS: Expected<'static> = Expected::Other(TypeMeta {
        api_version: "v1",
        kind: "DeleteOptions",
    });

    fn headers(media: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        headers
    }

    #[test]
    fn duplicates_are_named() {
        let twice = br#"{"a":{"b":1,"b":2},"l":[{"x":1,"x":1}]}"#;
        let json = headers("application/json; charset=utf-8");
        let warned = decode(&json, twice, FieldValidation::Warn, OPTIONS).unwrap();
        assert_eq!(warned.object["a"]["b"], 2);
        assert_eq!(
            warned.warnings,
            ["duplicate field \"a.b\"", "duplicate field \"l[0].x\""]
        );
        let refused = decode(&json, twice, FieldValidation::Strict, OPTIONS).unwrap_err();
        assert_eq!(refused.code, 400);
        let ignored = decode(&json, twice, FieldValidation::Ignore, OPTIONS).unwrap();
        assert!(ignored.warnings.is_empty());
    }

    #[test]
    fn yaml_is_read_and_cbor_is_not() {
        let yaml = b"kind: ConfigMap\ndata:\n  a: \"1\"\n";
        let read = decode(
            &headers("application/yaml"),
            yaml,
            FieldValidation::Strict,
            OPTIONS,
        )
        .unwrap();
        assert_eq!(read.object["data"]["a"], "1");
        let cbor = headers("application/cbor");
        let refused =
            decode(&cbor, b"\xd9\xd9\xf7\xa0", FieldValidation::Warn, OPTIONS).unwrap_err();
        assert_eq!(refused.code, 415);
        for bad in [b"[]".as_ref(), b"{", b"{} x", b""] {
            let refused = decode(
                &headers("application/json"),
                bad,
                FieldValidation::Warn,
                OPTIONS,
            );
            assert_eq!(refused.unwrap_err().code, 400);
        }
    }
}
