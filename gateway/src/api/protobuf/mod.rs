//! Bodies in protobuf, read as the JSON that the same client would have sent.
//!
//! kubectl's typed commands and most controllers send protobuf without asking whether anybody reads
//! it. Answers are JSON all the same: every such client reads both.
//!
//! ```text
//!   "k8s\0" runtime.Unknown { typeMeta, raw } -- wire --> kind, message
//!                                                             | read, by the table's fields
//!                                                             v
//!                                                       a JSON object
//! ```
//! The encoding alone does not say what JSON leaves out: a zero is written whether it was set or
//! not. So the [`table`] is made from Go's types, whose tags say that, and not from the `.proto`
//! files; with it an object reads as Go's own JSON of it, but that what Go writes as `null` (a list
//! without elements, a zero time) is left out.
//!
//! A field that the table does not know is passed over. The result is at most [`DEPTH_MAX`] levels
//! deep; its size is bounded by that of the body, as of one in JSON. Custom kinds are not read here:
//! no table knows them.

mod read;
mod table;
mod wire;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

use super::storage::Object;
use table::TABLE;

/// The media type of the envelope.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Levels of JSON that an object may have. What reads it from the store takes 128, and lists and
/// events put a few around it. Schemas are the only messages that hold themselves.
const DEPTH_MAX: usize = 100;

/// Version and kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TypeMeta<'a> {
    /// `apps/v1`.
    pub(crate) api_version: &'a str,
    /// `Deployment`.
    pub(crate) kind: &'a str,
}

/// Why a body is not read. In each case its sender is to mend it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No envelope.
    Envelope,
    /// Of a kind that the table does not have.
    Kind { api_version: String, kind: String },
    /// A message that is none, and where in the object, innermost first.
    Message {
        why: &'static str,
        path: Vec<&'static str>,
    },
}

impl Fault {
    fn message(why: &'static str) -> Fault {
        let path = Vec::new();
        Fault::Message { why, path }
    }

    /// The same fault, seen from a level further out.
    fn within(mut self, name: &'static str) -> Fault {
        if let Fault::Message { path, .. } = &mut self {
            path.push(name);
        }
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Envelope => {
                f.write_str("the body is not an object in protobuf: send runtime.Unknown after the four bytes \"k8s\\0\"")
            }
            Fault::Kind { api_version, kind } => {
                write!(f, "no kind \"{kind}\" is registered for version \"{api_version}\" in protobuf: use JSON")
            }
            Fault::Message { why, path } => {
                let path: Vec<_> = path.iter().rev().copied().collect();
                write!(f, "the body cannot be read as protobuf: {why}, at=\"{}\"", path.join("."))
            }
        }
    }
}

/// The object in an envelope, with its `apiVersion` and `kind`; where the envelope does not say
/// them, they are those expected.
pub(crate) fn decode(bytes: &[u8], expected: TypeMeta<'_>) -> Result<Object, Fault> {
    let (mut types, raw) = wire::open(bytes)?;
    if types.kind.is_empty() {
        types = expected;
    }
    // Every group has options of its own name for its deletes, all of one form.
    let version = match types.kind {
        "DeleteOptions" => "v1",
        _ => types.api_version,
    };
    let message = TABLE
        .message_of(version, types.kind)
        .ok_or_else(|| Fault::Kind {
            api_version: types.api_version.to_owned(),
            kind: types.kind.to_owned(),
        })?;
    let mut object = Object::new();
    read::fields(&TABLE, raw, message, DEPTH_MAX, &mut object)?;
    let texts = [("apiVersion", types.api_version), ("kind", types.kind)];
    object.extend(texts.map(|(name, text)| (name.to_owned(), Value::from(text))));
    Ok(object)
}
